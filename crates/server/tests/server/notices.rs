//! Rule 6.4 through the API: who is told that a box is about to be stopped, and when.

use axum::http::Method;
use serde_json::{Value, json};

use crate::rig::{MIN, Rig};

#[tokio::test]
async fn a_conversation_is_warned_of_its_boxes_from_half_an_hour_before_they_stop() {
    let rig = Rig::new().await;
    let mine = rig.client().with_header("x-psbx-agent", "mine");
    let theirs = rig.client().with_header("x-psbx-agent", "theirs");
    let limited = json!({ "idleTimeoutMin": 60 });
    let doomed = mine.post("/v1/boxes", limited).await.expect(201);
    let doomed = doomed["id"].as_str().unwrap().to_owned();
    let doomed_path = format!("/v1/boxes/{doomed}");
    let start = async |client: &crate::rig::RigClient| {
        let shown = client.post("/v1/boxes", json!({})).await.expect(201);
        icebox_lifecycle::BoxId::parse(shown["id"].as_str().unwrap()).unwrap()
    };
    let (other, foreign) = (start(&mine).await, start(&theirs).await);
    let run = json!({ "cmd": "true" });

    rig.advance(30 * MIN - 1).await;
    let done = mine.exec(other, run.clone()).await.expect(200);
    assert_eq!(
        done["notices"],
        Value::Null,
        "just before it nobody is told"
    );

    rig.advance(1).await;
    let shown = mine.call(Method::GET, &doomed_path, None).await.expect(200);
    let (stops_at, status) = (shown["stopsAt"].as_str().unwrap(), &shown["status"]);
    assert_eq!(status, "frozen");
    let line = |minutes: u64| {
        json!([format!(
            "box {doomed}: the idle rules stop it for good at {stops_at} (in {minutes} minutes) \
             unless something uses it before then, and /work goes with it."
        )])
    };
    assert_eq!(shown["notices"], line(30));
    let done = mine.exec(other, run.clone()).await.expect(200);
    assert_eq!(done["notices"], line(30), "it used that box");
    let procs = format!("/v1/boxes/{other}/procs");
    let procs = mine.call(Method::GET, &procs, None).await.expect(200);
    assert_eq!(procs["notices"], line(30));
    let started = mine.post("/v1/boxes", json!({})).await.expect(201);
    assert_eq!(started["notices"], line(30));
    let list = mine.call(Method::GET, "/v1/boxes", None).await.expect(200);
    assert_eq!(list["notices"], line(30));

    let done = theirs.exec(foreign, run.clone()).await.expect(200);
    assert_eq!(done["notices"], Value::Null, "another conversation did not");
    rig.advance(29 * MIN + 1).await;
    let only = format!("{doomed_path}?fields=name");
    let named = theirs.call(Method::GET, &only, None).await.expect(200);
    assert_eq!(named["notices"], line(1), "unless it names the box");
}

#[tokio::test]
async fn a_use_ends_the_warning_and_looking_does_not() {
    let rig = Rig::new().await;
    let mine = rig.client().with_header("x-psbx-agent", "mine");
    let limited = json!({ "idleTimeoutMin": 60 });
    let shown = mine.post("/v1/boxes", limited).await.expect(201);
    let id = icebox_lifecycle::BoxId::parse(shown["id"].as_str().unwrap()).unwrap();
    rig.advance(45 * MIN).await;
    for _ in 0..2 {
        let shown = rig.status(id).await;
        let notices = shown["notices"].as_array().unwrap();
        assert_eq!(notices.len(), 1);
        assert!(notices[0].as_str().unwrap().contains("(in 15 minutes)"));
    }
    let done = mine.exec(id, json!({ "cmd": "true" })).await.expect(200);
    assert_eq!(done["notices"], Value::Null, "it is used at this moment");
    assert_eq!(rig.status(id).await["notices"], Value::Null);
    let limited = json!({ "idleTimeoutMin": 20 });
    let shown = rig.patch(id, limited).await.expect(200);
    let notices = shown["notices"].as_array().unwrap();
    assert!(
        notices[0].as_str().unwrap().contains("(in 20 minutes)"),
        "a limit of less than half an hour is said at once: {notices:?}"
    );
    rig.stop(id).await.expect(200);
    let list = mine
        .call(Method::GET, "/v1/boxes?all=1", None)
        .await
        .expect(200);
    assert_eq!(list["notices"], Value::Null);
}
