//! Metrics of boxes over time, from what [`crate::usage`] has sampled.

use axum::Json;
use axum::extract::{Path, RawQuery, State};
use icebox_lifecycle::Time;
use icebox_lifecycle::time::SEC;
use serde_json::{Map, Value, json};

use super::super::App;
use super::error::Failure;
use super::input::{Client, find};
use crate::commands::trouble::stamp;
use crate::commands::{Kind, Trouble};
use crate::engine::View;
use crate::usage::Sample;

/// The most boxes of one request.
const MANY: usize = 100;

/// `GET /sandboxes/{id}/metrics`
pub(super) async fn of_one(
    State(app): State<App>,
    client: Client,
    Path(id): Path<String>,
    RawQuery(query): RawQuery,
) -> Result<Json<Vec<Value>>, Failure> {
    let found = find(&app, &client, &id)?;
    let (mut from, mut to) = (Time(i64::MIN), Time(i64::MAX));
    for (name, value) in form_urlencoded::parse(query.unwrap_or_default().as_bytes()) {
        match &*name {
            "start" => from = seconds("start", &value)?,
            // The whole of that second.
            "end" => to = seconds("end", &value)? + (SEC - 1),
            _ => {}
        }
    }
    let samples = app.commands.usage().of(found.id());
    let within = samples
        .iter()
        .filter(|sample| (from..=to).contains(&sample.at));
    Ok(Json(within.map(|sample| show(&found, sample)).collect()))
}

/// `GET /sandboxes/metrics`: the latest of each.
pub(super) async fn of_many(
    State(app): State<App>,
    client: Client,
    RawQuery(query): RawQuery,
) -> Result<Json<Value>, Failure> {
    let mut sandboxes = Map::new();
    let query = query.unwrap_or_default();
    let lists = form_urlencoded::parse(query.as_bytes()).filter(|(name, _)| name == "sandbox_ids");
    let ids: Vec<String> = lists
        .flat_map(|(_, list)| list.split(',').map(str::to_owned).collect::<Vec<_>>())
        .collect();
    if ids.len() > MANY {
        let text = format!("`sandbox_ids` must be at most {MANY} ids");
        return Err(Trouble::new(Kind::BadRequest, text).into());
    }
    for id in ids {
        let Ok(found) = find(&app, &client, &id) else {
            continue;
        };
        if let Some(sample) = app.commands.usage().of(found.id()).last() {
            sandboxes.insert(id, show(&found, sample));
        }
    }
    Ok(Json(json!({"sandboxes": sandboxes})))
}

fn seconds(field: &str, text: &str) -> Result<Time, Failure> {
    let sec: i64 = text
        .parse()
        .map_err(|_| Trouble::bad(field, "a time in seconds since 1970"))?;
    Ok(Time(sec.saturating_mul(SEC)))
}

fn show(view: &View, sample: &Sample) -> Value {
    let size = &view.record.size;
    json!({
        "timestamp": stamp(sample.at),
        "timestampUnix": sample.at.0 / SEC,
        "cpuCount": size.milli_cpus.div_ceil(1000),
        "cpuUsedPct": sample.cpu_percent,
        "memUsed": sample.memory_bytes,
        "memTotal": size.memory_mb * 1024 * 1024,
        "memCache": sample.cache_bytes,
        "diskUsed": sample.disk_bytes,
        "diskTotal": size.disk_gb * 1024 * 1024 * 1024,
    })
}
