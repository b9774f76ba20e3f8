//! A rough measure, not a benchmark: many frozen boxes are cheap, and the loop keeps up.

use std::sync::Arc;

use futures_util::StreamExt as _;
use icebox_lifecycle::time::MIN;
use serde_json::json;

use crate::rig::Rig;

fn resident_kb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmRSS:"))
        .unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[tokio::test]
async fn a_thousand_frozen_boxes_are_cheap_and_freeze_in_one_advance() {
    const BOXES: usize = 1_000;
    let rig = Arc::new(
        Rig::with(icebox_server::config::Limits {
            running_boxes: BOXES,
            ..icebox_server::config::Limits::default()
        })
        .await,
    );
    let before_kb = resident_kb();
    let starts = (0..BOXES).map(|_| {
        let client = rig.client();
        async move { client.post("/v1/boxes", json!({})).await.expect(201) }
    });
    let started: Vec<_> = futures_util::stream::iter(starts)
        .buffer_unordered(32)
        .collect()
        .await;
    assert_eq!(started.len(), BOXES);
    rig.advance(10 * MIN.unsigned_abs() / 1_000).await;
    let host = rig.get("/v1/host").await.expect(200);
    assert_eq!(host["boxes"], json!({ "frozen": BOXES }));
    let grown_kb = resident_kb().saturating_sub(before_kb);
    println!("{BOXES} frozen boxes: {grown_kb} KiB more, the fake world included");
    assert!(grown_kb < 64 * 1024, "{grown_kb} KiB");
}

#[tokio::test]
async fn a_kept_connection_runs_commands_quickly() {
    const CALLS: u32 = 200;
    let rig = Rig::new().await;
    let id = rig.ready_box().await;
    let client = rig.client();
    #[expect(
        clippy::disallowed_methods,
        reason = "measures how long something took"
    )]
    let begin = std::time::Instant::now();
    for _ in 0..CALLS {
        client.exec(id, json!({ "cmd": "true" })).await.expect(200);
    }
    let each = begin.elapsed() / CALLS;
    println!("exec of true over REST on the fake: {each:?}");
    let turns = rig.engine().counters().turns();
    assert!(turns >= u64::from(CALLS), "{turns} turns");
    assert!(each.as_millis() < 50, "{each:?}");
}
