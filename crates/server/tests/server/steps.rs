//! Rule 11.3 through the API: what status says that calls did with a box.

use icebox_server::driver::fake::{Behaviour, Step};
use serde_json::{Value, json};

use crate::rig::{HOUR, MIN, Rig};

async fn steps(rig: &Rig, id: icebox_lifecycle::BoxId) -> Vec<Value> {
    rig.status(id).await["steps"].as_array().unwrap().clone()
}

#[tokio::test]
async fn calls_are_steps_with_what_they_came_to_and_never_their_output() {
    let mut rig = Rig::new().await;
    let id = rig.box_with(json!({ "goal": "make it work" })).await;
    let client = rig.client();
    rig.advance(MIN).await;
    let noted = json!({ "cmd": "echo secret words", "note": "to see" });
    client.exec(id, noted).await.expect(200);
    rig.exec(id, "false").await.expect(200);
    let long = format!("echo {}", "é".repeat(300));
    let behind = json!({ "cmd": long, "background": true });
    client.exec(id, behind).await.expect(200);
    let shown = steps(&rig, id).await;
    assert_eq!(shown.len(), 4, "{shown:#?}");

    let start = &shown[0];
    assert_eq!(
        (
            &start["kind"],
            &start["summary"],
            &start["ok"],
            &start["ms"]
        ),
        (
            &json!("start"),
            &json!("make it work"),
            &json!(true),
            &json!(0)
        )
    );
    let echo = &shown[1];
    assert_eq!(
        (&echo["kind"], &echo["summary"], &echo["note"]),
        (
            &json!("exec"),
            &json!("echo secret words"),
            &json!("to see")
        )
    );
    assert_eq!((&echo["ok"], &echo["exitCode"]), (&json!(true), &json!(0)));
    assert!(echo["ms"].is_u64() && echo["stdout"].is_null());
    assert!(echo["at"].as_str() > start["at"].as_str());
    let failed = &shown[2];
    assert_eq!(
        (&failed["ok"], &failed["exitCode"]),
        (&json!(true), &json!(1))
    );
    assert_eq!(failed["error"], Value::Null);
    let behind = &shown[3];
    assert_eq!(
        (&behind["detail"], &behind["exitCode"], &behind["timedOut"]),
        (&json!("background"), &Value::Null, &Value::Null)
    );
    let summary = behind["summary"].as_str().unwrap();
    assert_eq!(summary.chars().count(), 200);
    assert!(summary.ends_with("é…"), "{summary}");

    rig.restart().await;
    assert_eq!(steps(&rig, id).await, shown, "they outlive the server");
    let list = rig.get("/v1/boxes").await.expect(200);
    assert_eq!(list["boxes"][0]["steps"], Value::Null);
}

#[tokio::test]
async fn stop_and_restore_are_steps_and_freeze_and_wake_are_not() {
    let rig = Rig::new().await;
    let id = rig.frozen_box().await;
    rig.post(&format!("/v1/boxes/{id}/wake"), json!({}))
        .await
        .expect(200);
    rig.advance(10 * MIN + 24 * HOUR).await;
    assert_eq!(rig.state(id).await, "terminated");
    let back = json!({ "restore": id.as_str() });
    rig.post("/v1/boxes", back).await.expect(201);
    rig.stop(id).await.expect(200);
    let shown = steps(&rig, id).await;
    let kinds: Vec<_> = shown.iter().map(|s| (&s["kind"], &s["detail"])).collect();
    let none = Value::Null;
    assert_eq!(
        kinds,
        [
            (&json!("start"), &none),
            (&json!("start"), &json!("restored")),
            (&json!("stop"), &none)
        ]
    );
    assert!(shown.iter().all(|step| step["ok"] == true), "{shown:#?}");
}

#[tokio::test]
async fn a_call_that_fails_is_a_step_with_its_error_until_its_repeat_succeeds() {
    let rig = Rig::new().await;
    let id = rig.frozen_box().await;
    let request = json!({ "cmd": "echo once", "execId": "00112233445566ff" });
    for _ in 0..2 {
        rig.fake.next(Step::Thaw, Behaviour::Fail("no room".into()));
    }
    let refused = rig.client().exec(id, request.clone()).await;
    assert_eq!(refused.json["execId"], "00112233445566ff");
    refused.error(503, "wake_failed");
    let shown = steps(&rig, id).await;
    assert_eq!(shown[1]["ok"], false);
    assert!(shown[1]["error"].as_str().unwrap().contains("no room"));
    for _ in 0..2 {
        rig.client().exec(id, request.clone()).await.expect(200);
    }
    let shown = steps(&rig, id).await;
    assert_eq!(shown.len(), 2, "a repeat is no step of its own: {shown:#?}");
    assert_eq!(
        (&shown[1]["ok"], &shown[1]["exitCode"]),
        (&json!(true), &json!(0))
    );
}

#[tokio::test]
async fn a_start_that_fails_is_a_step_with_its_error() {
    let rig = Rig::new().await;
    rig.fake
        .next(Step::Boot, Behaviour::Refuse("no such image".into()));
    let refused = rig.post("/v1/boxes", json!({})).await;
    let id = refused.json["box"].as_str().unwrap().to_owned();
    refused.error(500, "start_failed");
    let shown = rig.get(&format!("/v1/boxes/{id}")).await.expect(200);
    let step = &shown["steps"][0];
    assert_eq!(
        (&step["kind"], &step["ok"]),
        (&json!("start"), &json!(false))
    );
    assert!(
        step["error"].as_str().unwrap().contains("no such image"),
        "{step}"
    );
}

#[tokio::test]
async fn housekeeping_of_the_adapter_is_left_out() {
    let rig = Rig::new().await;
    let id = rig.ready_box().await;
    for request in [
        json!({ "cmd": "echo > /work/.psbx-sync/1a2b/list" }),
        json!({ "cmd": "true", "cwd": ".psbx-sync/1a2b" }),
        json!({ "cmd": "true", "cwd": "/work/.psbx-sync" }),
    ] {
        rig.client().exec(id, request).await.expect(200);
    }
    let other = json!({ "cmd": "true", "cwd": ".psbx-synced" });
    rig.client().exec(id, other).await.expect(200);
    assert_eq!(steps(&rig, id).await.len(), 2, "the start and the last one");
}

#[tokio::test]
async fn the_last_thirty_of_seven_days_are_shown() {
    let rig = Rig::new().await;
    let awake = json!({ "policy": { "freezeAfterSec": null } });
    let id = rig.box_with(awake).await;
    for number in 0..40 {
        rig.exec(id, &format!("echo {number}")).await.expect(200);
    }
    let shown = steps(&rig, id).await;
    assert_eq!(shown.len(), 30);
    assert_eq!(
        (&shown[0]["summary"], &shown[29]["summary"]),
        (&json!("echo 10"), &json!("echo 39"))
    );
    rig.advance(7 * 24 * HOUR).await;
    assert_eq!(steps(&rig, id).await.len(), 30);
    rig.advance(1).await;
    assert_eq!(rig.status(id).await["steps"], Value::Null);
}
