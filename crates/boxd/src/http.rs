//! What is served over plain HTTP beside the services: health, figures, variables, files.

use std::fs;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;
use axum::{Json, Router};
use serde_json::{Value, json};

use crate::clock;
use crate::files::Transfers;
use crate::files::receive::receive;
use crate::files::send::send;
use crate::starter::Starter;

/// The routes, without what is to be tried when none fits.
pub(crate) fn routes(starter: Arc<Starter>, transfers: Transfers) -> Router {
    let meter = Arc::new(Meter::default());
    Router::new()
        .route("/health", get(async || StatusCode::NO_CONTENT))
        .route("/metrics", get(metrics).with_state(meter))
        .route("/envs", get(variables).with_state(starter))
        .route(
            "/files",
            get(send).post(receive).with_state(Arc::new(transfers)),
        )
}

/// Box-wide variables.
async fn variables(State(starter): State<Arc<Starter>>) -> Json<Value> {
    Json(json!(starter.box_wide()))
}

/// Remembers the processor time of the latest look, because a share needs two.
#[derive(Default)]
struct Meter {
    latest: Mutex<Option<(Instant, u64)>>,
}

/// Figures of the box: its own control group's where that can be read, else the machine's.
async fn metrics(State(meter): State<Arc<Meter>>) -> Json<Value> {
    let cpus = cpus();
    let memory = memory();
    let (disk_total, disk_used) = disk();
    Json(json!({
        "ts": clock::unix_ms() / 1000,
        "cpu_count": cpus.ceil(),
        "cpu_used_pct": meter.used_percent(),
        "mem_total": memory.total,
        "mem_used": memory.used,
        "mem_cache": memory.cache,
        "disk_total": disk_total,
        "disk_used": disk_used,
    }))
}

impl Meter {
    /// Of one processor, since the latest look; 0 at the first.
    fn used_percent(&self) -> f64 {
        let Some(used_us) = field(&cgroup("cpu.stat"), "usage_usec") else {
            return 0.0;
        };
        let now = clock::now();
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        let before = latest.replace((now, used_us));
        let Some((then, used_then)) = before else {
            return 0.0;
        };
        let passed_us = now.duration_since(then).as_secs_f64() * 1e6;
        if passed_us > 0.0 {
            used_us.saturating_sub(used_then) as f64 / passed_us * 100.0
        } else {
            0.0
        }
    }
}

/// How many processors the box may use.
fn cpus() -> f64 {
    let max = cgroup("cpu.max");
    let mut words = max.split_whitespace().map(str::parse::<f64>);
    if let (Some(Ok(quota)), Some(Ok(period))) = (words.next(), words.next()) {
        return quota / period;
    }
    std::thread::available_parallelism().map_or(1.0, |count| count.get() as f64)
}

/// In bytes.
struct Memory {
    total: u64,
    used: u64,
    cache: u64,
}

fn memory() -> Memory {
    let info = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let machine = |name| field(&info, name).unwrap_or_default() * 1024;
    let (total, cache) = (machine("MemTotal:"), machine("Cached:"));
    let own = |file: &str| cgroup(file).trim().parse::<u64>().ok();
    match own("memory.current") {
        Some(current) => {
            let cache = field(&cgroup("memory.stat"), "file").unwrap_or_default();
            Memory {
                total: own("memory.max").unwrap_or(total),
                used: current.saturating_sub(cache),
                cache,
            }
        }
        None => Memory {
            total,
            used: total.saturating_sub(machine("MemAvailable:")),
            cache,
        },
    }
}

/// Total and used bytes of the box's root.
fn disk() -> (u64, u64) {
    let stat = rustix::fs::statvfs("/").map_err(io::Error::from);
    stat.map_or((0, 0), |stat| {
        let bytes = |blocks: u64| blocks.saturating_mul(stat.f_frsize);
        (
            bytes(stat.f_blocks),
            bytes(stat.f_blocks.saturating_sub(stat.f_bfree)),
        )
    })
}

fn cgroup(file: &str) -> String {
    fs::read_to_string(format!("/sys/fs/cgroup/{file}")).unwrap_or_default()
}

/// The number after a name at the beginning of a line.
fn field(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        (words.next() == Some(name)).then(|| words.next()?.parse().ok())?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_by_their_whole_name() {
        let text = "usage_usec 12\nMemTotal:   100 kB\nfile_mapped 7\nfile 5\n";
        assert_eq!(field(text, "usage_usec"), Some(12));
        assert_eq!(field(text, "MemTotal:"), Some(100));
        assert_eq!(field(text, "file"), Some(5));
        assert_eq!(field(text, "none"), None);
    }
}
