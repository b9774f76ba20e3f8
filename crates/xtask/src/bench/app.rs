//! The dashboard in a real browser: how soon it shows something, what open pages cost the server, and whether a page that is
//! left open grows. Owns what is measured and its goals.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, ensure};
use serde_json::{Value, json};

use super::goal::{Goal, Limit, conclude};
use super::million::Many;
use super::{median_of, progress};
use crate::browser::Browser;
use crate::harness::Instance;

/// Boxes in the list that is painted.
const BOXES: usize = 2_000;
/// How often it is painted.
const PAINTS: usize = 11;
/// Boxes in which something goes on.
const BUSY: usize = 50;
/// Pages that are open.
const PAGES: usize = 100;
/// How long the server's time is taken.
const TAKEN: Duration = Duration::from_secs(20);
/// How often each of the busy boxes is used meanwhile.
const USED_EVERY: Duration = Duration::from_secs(10);
/// What happens in an hour: an event a second.
const EVENTS: u64 = 3_600;
/// Boxes to which it happens.
const CHANGING: usize = 10;

/// Runs it.
pub fn run() -> anyhow::Result<()> {
    conclude(&[paint()?, open_pages()?, left_open()?])
}

fn paint() -> anyhow::Result<Goal> {
    progress(&format!("first paint with {BOXES} boxes"));
    let many = Many::start(BOXES)?;
    let mut browser = signed_in(&many.url, &many.key)?;
    let (mut painted, mut listed) = (vec![], vec![]);
    for _ in 0..PAINTS {
        let seen = browser.visit("/app", "[data-box]")?;
        listed.push(seen["ms"].as_f64().context("no time")?);
        let script = "performance.getEntriesByName('first-contentful-paint')[0].startTime";
        painted.push(browser.evaluate(script)?.as_f64().context("no paint")?);
    }
    let rows = browser.ask(&json!({ "do": "count", "selector": "[data-box]" }))?;
    Ok(Goal {
        what: "first paint of the list",
        unit: "ms",
        ours: median_of(painted),
        against: format!(
            "median of {PAINTS}; boxes to be seen after {:.0} ms; {rows} rows of {BOXES} boxes",
            median_of(listed)
        ),
        limit: Limit::AtMost(500.0),
    })
}

fn open_pages() -> anyhow::Result<Goal> {
    progress(&format!("{BUSY} busy boxes"));
    let mut instance = Instance::new("bench-app", false)?;
    instance.start(&[])?;
    let ids = small_boxes(&instance, BUSY)?;
    for id in &ids {
        let ticking = "i=0; while sleep 1; do echo tick $((i++)); done";
        let request = json!({ "cmd": ticking, "background": true, "note": "Rebuild on change" });
        instance.post(&format!("/v1/boxes/{id}/exec"), request)?;
    }
    let (address, key) = instance.address()?;
    let mut browser = signed_in(&format!("http://{address}"), &key)?;
    browser.visit("/app", "[data-box]")?;
    let one = busy_share(&instance, &ids)?;
    progress(&format!("{PAGES} pages"));
    let mut paths = vec!["/app".to_owned(); PAGES / 2];
    paths.extend((0..PAGES / 2).map(|n| format!("/app/boxes/{}", ids[n % ids.len()])));
    // One is open already.
    browser.ask(&json!({ "do": "crowd", "paths": paths[1..] }))?;
    let all = busy_share(&instance, &ids)?;
    let refused = browser.ask(&json!({ "do": "complaints" }))?;
    ensure!(refused == json!([]), "the page complained: {refused}");
    drop(browser);
    stop_all(&instance, &ids)?;
    instance.stop()?;
    Ok(Goal {
        what: "what 100 open pages cost more than one",
        unit: "% of a core",
        ours: all - one,
        against: format!(
            "{BUSY} boxes, a command in each every {} s and a line a second: {one:.1} % with one page, {all:.1} % with {PAGES}",
            USED_EVERY.as_secs()
        ),
        limit: Limit::AtMost(10.0),
    })
}

/// The part of a core that the server takes while its boxes are used, in percent.
fn busy_share(instance: &Instance, ids: &[String]) -> anyhow::Result<f64> {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let using = scope.spawn(|| use_in_turn(instance, ids, &over));
        std::thread::sleep(Duration::from_secs(5));
        let before = instance.server_cpu_ms()?;
        std::thread::sleep(TAKEN);
        let taken = instance.server_cpu_ms()?.saturating_sub(before);
        over.store(true, Ordering::Release);
        using
            .join()
            .map_err(|_| anyhow::anyhow!("the use of the boxes broke off"))??;
        Ok(100.0 * taken as f64 / TAKEN.as_millis() as f64)
    })
}

fn use_in_turn(instance: &Instance, ids: &[String], over: &AtomicBool) -> anyhow::Result<()> {
    for id in ids.iter().cycle() {
        if over.load(Ordering::Acquire) {
            break;
        }
        let request = json!({ "cmd": "true", "note": "Look whether it still works" });
        instance.post(&format!("/v1/boxes/{id}/exec"), request)?;
        std::thread::sleep(USED_EVERY / BUSY as u32);
    }
    Ok(())
}

fn left_open() -> anyhow::Result<Goal> {
    progress(&format!("a page left open for {EVENTS} events"));
    let mut instance = Instance::new("bench-app-open", false)?;
    // Freezes in RAM happen as often as one wants, and say the same.
    instance.start(&[("ICEBOX_CRIU", "/nonexistent")])?;
    let ids = small_boxes(&instance, CHANGING)?;
    let (address, key) = instance.address()?;
    let mut browser = signed_in(&format!("http://{address}"), &key)?;
    browser.visit("/app", "[data-box]")?;
    // The page keeps the newest thousand events; until it has them, it grows.
    let warm = change(&instance, &ids, EVENTS / 2)?;
    let before = browser.ask(&json!({ "do": "heap" }))?;
    let more = change(&instance, &ids, EVENTS)?;
    let after = browser.ask(&json!({ "do": "heap" }))?;
    drop(browser);
    stop_all(&instance, &ids)?;
    instance.stop()?;
    let kib = |bytes: &Value| {
        bytes
            .as_f64()
            .map(|bytes| bytes / 1024.0)
            .context("no heap")
    };
    let (before, after) = (kib(&before)?, kib(&after)?);
    Ok(Goal {
        what: "growth of a page in an hour's events",
        unit: "KiB",
        ours: after - before,
        against: format!("{before:.0} KiB after {warm} events, {after:.0} KiB after {more} more"),
        limit: Limit::AtMost(256.0),
    })
}

/// Lets boxes freeze and wake until so many events came; gives how many did.
fn change(instance: &Instance, ids: &[String], events: u64) -> anyhow::Result<u64> {
    let first = newest_event(instance)?;
    for id in ids.iter().cycle() {
        instance.post(&format!("/v1/boxes/{id}/freeze"), json!({}))?;
        let request = json!({ "cmd": "true", "note": "Look whether it still works" });
        instance.post(&format!("/v1/boxes/{id}/exec"), request)?;
        let came = newest_event(instance)? - first;
        if came >= events {
            return Ok(came);
        }
    }
    Ok(0)
}

fn newest_event(instance: &Instance) -> anyhow::Result<u64> {
    let answer = instance.get("/v1/events?last=1")?;
    let newest = if let Value::String(lines) = &answer {
        serde_json::from_str(lines.lines().last().unwrap_or("null"))?
    } else {
        // One line of JSON is JSON.
        answer
    };
    newest["seq"].as_u64().context("no event")
}

fn small_boxes(instance: &Instance, count: usize) -> anyhow::Result<Vec<String>> {
    let size = json!({ "cpus": 1, "memoryMb": 128, "diskGb": 1 });
    (0..count)
        .map(|n| instance.start_box(json!({ "size": size, "name": format!("box-{n}") })))
        .collect()
}

fn stop_all(instance: &Instance, ids: &[String]) -> anyhow::Result<()> {
    for id in ids {
        instance.post(&format!("/v1/boxes/{id}/stop"), json!({}))?;
    }
    Ok(())
}

fn signed_in(url: &str, key: &str) -> anyhow::Result<Browser> {
    let mut browser = Browser::open(url, "en-GB")?;
    browser.ask(&json!({ "do": "goto", "path": "/app" }))?;
    browser.ask(&json!({ "do": "fill", "label": "Key", "text": key }))?;
    browser.ask(&json!({ "do": "click", "name": "Sign in" }))?;
    browser.ask(&json!({ "do": "find", "selector": "[data-box]" }))?;
    Ok(browser)
}
