//! What E2B's Python SDK takes against this server: a box, a command, a large file. Owns what is measured; the measuring is
//! done by a program beside this file, in the SDK's own process.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, ensure};
use serde_json::Value;

use super::{Figure, Target, progress};
use crate::harness::Instance;
use crate::sdks;

const PROGRAM: &str = "src/bench/e2b_sdk.py";
/// How often a box is started.
const ROUNDS: u32 = 21;
/// What is written, and read again: 64 MiB, and how fast at least.
const BYTES: f64 = (64_u64 << 20) as f64;
const BYTES_A_SEC: f64 = 300e6;
/// How much memory may grow by over all of it, in KiB.
const GROWTH_KIB: u64 = 16 << 10;

/// Runs it.
pub fn run() -> anyhow::Result<()> {
    progress("boxes, commands and files through E2B's Python SDK");
    let python = sdks::python("e2b/python/new.txt")?;
    let mut instance = Instance::new("bench-e2b", false)?;
    instance.start(&[])?;
    // The first box waits for its image.
    let first = instance.start_box(serde_json::json!({}))?;
    instance.post(&format!("/v1/boxes/{first}/stop"), serde_json::json!({}))?;
    let before_kib = instance.server_rss_kib()?;
    let measured = measure(&instance, &python)?;
    let after_kib = instance.server_rss_kib()?;
    let figures = figures(&measured)?;
    println!();
    figures.iter().for_each(Figure::print);
    for what in ["write", "read"] {
        let mb_a_sec = BYTES / 1e6 / (ms(&measured, what)?.as_secs_f64());
        println!("64 MiB {what:5} {mb_a_sec:9.0} MB/s");
    }
    let boxd = |n: usize| {
        measured["boxd_kib"][n]
            .as_u64()
            .context("no memory of boxd")
    };
    let mut flat = true;
    for (who, before, after) in [
        ("server", before_kib, after_kib),
        ("boxd", boxd(0)?, boxd(1)?),
    ] {
        flat &= after <= before + GROWTH_KIB;
        println!("memory of {who:6} before {before:7} KiB, after {after:7} KiB");
    }
    instance.stop()?;
    let missed = figures.iter().filter(|figure| !figure.is_reached()).count();
    ensure!(
        missed == 0,
        "{missed} of {} figures were missed",
        figures.len()
    );
    ensure!(flat, "memory grew by more than {GROWTH_KIB} KiB");
    Ok(())
}

fn measure(instance: &Instance, python: &std::path::Path) -> anyhow::Result<Value> {
    let url = instance.url()?;
    let (_, key) = instance.address()?;
    let program = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(PROGRAM);
    let said = sdks::said(
        Command::new(python)
            .arg(program)
            .arg(ROUNDS.to_string())
            .env("E2B_API_URL", &url)
            .env("E2B_SANDBOX_URL", &url)
            .env("E2B_API_KEY", key)
            .env("PYTHONDONTWRITEBYTECODE", "1"),
    )?;
    serde_json::from_str(&said).with_context(|| format!("the program said {said:?}"))
}

fn figures(measured: &Value) -> anyhow::Result<Vec<Figure>> {
    let of = |what| ms(measured, what);
    let limit = Duration::from_secs_f64(BYTES / BYTES_A_SEC);
    let transfer = |what, ours| Figure {
        what,
        ours,
        baseline: limit,
        against: "300 MB/s",
        target: Target::Limit,
    };
    Ok(vec![
        Figure {
            what: "Sandbox.create",
            ours: of("create")?,
            baseline: of("start")?,
            against: "the same start over REST",
            target: Target::Times(1.5),
        },
        Figure {
            what: "commands.run(\"true\")",
            ours: of("run")?,
            baseline: of("trip")?,
            against: "a bare round trip to the server",
            target: Target::Above(Duration::from_millis(3)),
        },
        transfer("files.write of 64 MiB", of("write")?),
        transfer("files.read of 64 MiB", of("read")?),
    ])
}

fn ms(measured: &Value, what: &str) -> anyhow::Result<Duration> {
    let ms = measured["ms"][what].as_f64();
    let ms = ms.with_context(|| format!("no figure for {what}: {measured}"))?;
    Ok(Duration::from_secs_f64(ms / 1e3))
}
