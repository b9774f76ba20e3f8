//! Rules 4.7, 4.8, 5.4 to 5.8: calls that meet a freeze or a thaw at every stage, joined wakes, failed wakes, and stops
//! that win.

use icebox_lifecycle::{BoxId, Processes};
use icebox_server::driver::fake::{Behaviour, Gate, Step};
use serde_json::json;
use tokio::task::JoinHandle;

use crate::rig::{Answer, MIN, Rig};

fn calling(rig: &Rig, id: BoxId, cmd: &str) -> JoinHandle<Answer> {
    let (client, body) = (rig.client(), json!({ "cmd": cmd }));
    tokio::spawn(async move { client.exec(id, body).await })
}

/// Freezes in the background with this behaviour at this step, until the gate is reached.
async fn freezing(
    rig: &Rig,
    id: BoxId,
    step: Step,
    hold: fn(Gate) -> Behaviour,
) -> (Gate, JoinHandle<Answer>) {
    let gate = Gate::default();
    rig.fake.next(step, hold(gate.clone()));
    let client = rig.client();
    let freeze = tokio::spawn(async move {
        client
            .post(&format!("/v1/boxes/{id}/freeze"), json!({}))
            .await
    });
    gate.reached().await;
    (gate, freeze)
}

#[tokio::test]
async fn a_call_at_any_stage_of_a_freeze_waits_and_runs() {
    type Hold = fn(Gate) -> Behaviour;
    let stages: [(Step, Hold); 4] = [
        (Step::Freeze, Behaviour::HoldBefore),
        (Step::Freeze, Behaviour::HoldAfter),
        (Step::Evict, Behaviour::HoldBefore),
        (Step::Evict, Behaviour::HoldAfter),
    ];
    for (step, hold) in stages {
        let rig = Rig::new().await;
        let id = rig.ready_box().await;
        rig.exec(id, "remember stage").await.expect(200);
        let (gate, freeze) = freezing(&rig, id, step, hold).await;
        let call = calling(&rig, id, "recall");
        // The call has come in once its use shows.
        rig.until_called(id).await;
        assert!(!call.is_finished(), "{step:?}: it waits");
        gate.open();
        let answer = call.await.unwrap().expect(200);
        assert_eq!(answer["stdout"], "stage", "{step:?}");
        assert_eq!(rig.state(id).await, "ready");
        freeze.await.unwrap();
    }
}

#[tokio::test]
async fn a_call_on_a_frozen_box_wakes_it_with_its_memory() {
    let rig = Rig::new().await;
    let id = rig.ready_box().await;
    rig.exec(id, "remember blue").await.expect(200);
    rig.freeze(id).await.expect(200);
    assert_eq!(rig.exec(id, "recall").await.expect(200)["stdout"], "blue");
    assert_eq!(
        rig.fake.seen(id).unwrap().copy,
        None,
        "a box that runs has no copy"
    );
}

#[tokio::test]
async fn many_callers_join_one_wake() {
    let rig = Rig::new().await;
    let id = rig.frozen_box().await;
    let gate = Gate::default();
    rig.fake
        .next(Step::Thaw, Behaviour::HoldBefore(gate.clone()));
    let calls: Vec<_> = (0..20)
        .map(|n| calling(&rig, id, &format!("echo {n}")))
        .collect();
    gate.reached().await;
    gate.open();
    for (n, call) in calls.into_iter().enumerate() {
        assert_eq!(call.await.unwrap().expect(200)["stdout"], format!("{n}\n"));
    }
    assert_eq!(rig.fake.count(Step::Thaw), 1);
    assert_eq!(rig.fake.count(Step::Release), 1);
}

#[tokio::test]
async fn a_wake_that_fails_is_retried_once_then_told_and_the_copy_stays() {
    let rig = Rig::new().await;
    let id = rig.frozen_box().await;
    rig.fake.next(Step::Thaw, Behaviour::Fail("first".into()));
    rig.exec(id, "true").await.expect(200);

    rig.freeze(id).await.expect(200);
    for _ in 0..2 {
        rig.fake.next(
            Step::Thaw,
            Behaviour::Fail("page 7 has a wrong checksum".into()),
        );
    }
    let failed = rig.exec(id, "true").await;
    assert!(failed.headers.contains_key("retry-after"));
    let text = failed.error(503, "wake_failed");
    assert!(
        text.contains("page 7") && text.contains("coldRestart"),
        "{text}"
    );
    assert_eq!(rig.state(id).await, "frozen");
    assert!(rig.fake.seen(id).unwrap().copy.is_some());
    rig.exec(id, "true").await.expect(200);
}

#[tokio::test]
async fn a_cold_restart_goes_on_from_the_files() {
    let rig = Rig::new().await;
    let id = rig.ready_box().await;
    rig.exec(id, "remember memory").await.expect(200);
    rig.freeze(id).await.expect(200);
    let cold = json!({ "coldRestart": true });
    let shown = rig
        .post(&format!("/v1/boxes/{id}/wake"), cold)
        .await
        .expect(200);
    assert_eq!(shown["status"], "ready");
    assert_eq!(rig.exec(id, "recall").await.expect(200)["stdout"], "");
    assert_eq!(rig.fake.seen(id).unwrap().copy, None, "the copy is void");
}

#[tokio::test]
async fn waking_is_use_and_can_be_repeated() {
    let rig = Rig::new().await;
    let id = rig.frozen_box().await;
    let used = rig.status(id).await["lastUsedAt"].clone();
    rig.advance(MIN).await;
    let wake = format!("/v1/boxes/{id}/wake");
    let shown = rig
        .client()
        .raw(axum::http::Method::POST, &wake, Vec::new())
        .await
        .expect(200);
    assert_ne!(shown["lastUsedAt"], used);
    rig.post(&wake, json!({})).await.expect(200);
    assert_eq!(rig.fake.count(Step::Thaw), 1);
}

#[tokio::test]
async fn a_stop_wins_over_a_freeze_and_over_a_wake() {
    for step in [Step::Freeze, Step::Thaw, Step::Release] {
        let rig = Rig::new().await;
        let id = if step == Step::Freeze {
            rig.ready_box().await
        } else {
            rig.frozen_box().await
        };
        let gate = Gate::default();
        rig.fake.next(step, Behaviour::HoldBefore(gate.clone()));
        let other = if step == Step::Freeze {
            let client = rig.client();
            let path = format!("/v1/boxes/{id}/freeze");
            tokio::spawn(async move { client.post(&path, json!({})).await })
        } else {
            calling(&rig, id, "true")
        };
        gate.reached().await;
        let client = rig.client();
        let stop = tokio::spawn(async move {
            client
                .post(&format!("/v1/boxes/{id}/stop"), json!({}))
                .await
        });
        rig.until(id, "stopping").await;
        other.await.unwrap().error(410, "box_gone");
        gate.open();
        assert_eq!(
            stop.await.unwrap().expect(200)["status"],
            "terminated",
            "{step:?}"
        );
        assert_eq!(rig.fake.seen(id), None, "{step:?}");
        assert_eq!(
            rig.engine().counters().dropped_outcomes(),
            1,
            "{step:?}: the late outcome"
        );
    }
}

#[tokio::test]
async fn a_command_cut_off_by_a_stop_has_an_unknown_outcome() {
    let rig = Rig::new().await;
    let id = rig.ready_box().await;
    let call = calling(&rig, id, "hang");
    rig.until_running(id).await;
    rig.stop(id).await.expect(200);
    let answer = call.await.unwrap();
    assert_eq!(answer.json["outcome"], "unknown");
    answer.error(410, "box_gone");
}

#[tokio::test]
async fn a_box_in_use_is_not_frozen_by_a_call() {
    let rig = Rig::new().await;
    let id = rig.ready_box().await;
    let call = calling(&rig, id, "hang");
    rig.until_running(id).await;
    let refused = rig.freeze(id).await;
    assert_eq!(refused.json["blockedBy"], json!(["foreground"]));
    refused.error(409, "in_use");
    rig.advance(60 * MIN).await;
    assert_eq!(rig.state(id).await, "ready", "a call under way holds it");
    rig.fake.finish(id, &rig.only_command(id));
    call.await.unwrap().expect(200);
    rig.advance(10 * MIN).await;
    assert_eq!(rig.state(id).await, "frozen");
}

#[tokio::test]
async fn a_box_whose_first_process_ends_is_interrupted_and_says_so() {
    let rig = Rig::new().await;
    let id = rig.ready_box().await;
    let call = calling(&rig, id, "hang");
    rig.until_running(id).await;
    rig.fake.kill(id, "its daemon was killed by signal 9");
    rig.until(id, "interrupted").await;
    let text = call.await.unwrap().error(409, "interrupted");
    assert!(text.contains("signal 9"), "{text}");
    let shown = rig.status(id).await;
    assert!(
        shown["statusReason"]
            .as_str()
            .unwrap()
            .contains("start a new box"),
        "{shown}"
    );
    let cold = json!({ "coldRestart": true });
    rig.post(&format!("/v1/boxes/{id}/wake"), cold)
        .await
        .expect(200);
    rig.exec(id, "true").await.expect(200);
    assert_eq!(rig.fake.seen(id).unwrap().processes, Processes::Running);
}
