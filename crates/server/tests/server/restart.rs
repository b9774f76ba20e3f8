//! A server that is killed at any step: the next one finds every box as it must be, and nothing is done twice that must
//! not be.

use icebox_lifecycle::{BoxId, Processes};
use icebox_server::driver::fake::{Behaviour, Gate, Step};
use serde_json::json;

use crate::rig::{HOUR, MIN, Rig};

/// Kills the server while `step` is held before or after it acted, and starts the next.
async fn killed_at(
    rig: &mut Rig,
    step: Step,
    hold: fn(Gate) -> Behaviour,
    begin: impl AsyncFnOnce(&Rig),
) {
    let gate = Gate::default();
    rig.fake.next(step, hold(gate.clone()));
    begin(rig).await;
    gate.reached().await;
    rig.restart().await;
}

fn post(rig: &Rig, path: String, body: serde_json::Value) {
    let client = rig.client();
    // The server is killed under it, so there is no answer to wait for.
    drop(tokio::spawn(async move {
        client.post(&path, body).await;
    }));
}

const HOLDS: [fn(Gate) -> Behaviour; 2] = [Behaviour::HoldBefore, Behaviour::HoldAfter];

#[tokio::test]
async fn killed_in_a_start_the_box_starts() {
    for hold in HOLDS {
        let mut rig = Rig::new().await;
        killed_at(&mut rig, Step::Boot, hold, async |rig| {
            post(rig, "/v1/boxes".into(), json!({}));
        })
        .await;
        let list = rig.get("/v1/boxes").await.expect(200);
        let id = BoxId::parse(list["boxes"][0]["id"].as_str().unwrap()).unwrap();
        rig.until(id, "ready").await;
        rig.exec(id, "true").await.expect(200);
    }
}

#[tokio::test]
async fn killed_in_a_freeze_the_box_is_frozen_with_its_memory() {
    for step in [Step::Freeze, Step::Evict] {
        for hold in HOLDS {
            let mut rig = Rig::new().await;
            let id = rig.ready_box().await;
            rig.exec(id, "remember me").await.expect(200);
            killed_at(&mut rig, step, hold, async |rig| {
                post(rig, format!("/v1/boxes/{id}/freeze"), json!({}));
            })
            .await;
            rig.until(id, "frozen").await;
            assert_eq!(
                rig.exec(id, "recall").await.expect(200)["stdout"],
                "me",
                "{step:?}"
            );
        }
    }
}

#[tokio::test]
async fn killed_in_a_wake_the_box_wakes_with_its_memory_and_without_a_copy() {
    for step in [Step::Thaw, Step::Release] {
        for hold in HOLDS {
            let mut rig = Rig::new().await;
            let id = rig.ready_box().await;
            rig.exec(id, "remember me").await.expect(200);
            rig.freeze(id).await.expect(200);
            killed_at(&mut rig, step, hold, async |rig| {
                post(rig, format!("/v1/boxes/{id}/wake"), json!({}));
            })
            .await;
            rig.until(id, "ready").await;
            assert_eq!(
                rig.exec(id, "recall").await.expect(200)["stdout"],
                "me",
                "{step:?}"
            );
            assert_eq!(rig.fake.seen(id).unwrap().processes, Processes::Running);
        }
    }
}

#[tokio::test]
async fn killed_in_a_stop_nothing_is_left() {
    for hold in HOLDS {
        let mut rig = Rig::new().await;
        let id = rig.frozen_box().await;
        killed_at(&mut rig, Step::Destroy, hold, async |rig| {
            post(rig, format!("/v1/boxes/{id}/stop"), json!({}));
        })
        .await;
        rig.until(id, "terminated").await;
        assert_eq!(rig.fake.seen(id), None);
    }
}

#[tokio::test]
async fn killed_in_a_restore_the_box_comes_back() {
    for hold in HOLDS {
        let mut rig = Rig::new().await;
        let id = rig.ready_box().await;
        rig.exec(id, "remember me").await.expect(200);
        rig.advance(25 * HOUR).await;
        assert_eq!(rig.state(id).await, "terminated");
        killed_at(&mut rig, Step::Thaw, hold, async |rig| {
            post(rig, "/v1/boxes".into(), json!({ "restore": id.as_str() }));
        })
        .await;
        rig.until(id, "ready").await;
        assert_eq!(rig.exec(id, "recall").await.expect(200)["stdout"], "me");
    }
}

#[tokio::test]
async fn running_boxes_run_on_and_their_commands_are_adopted() {
    let mut rig = Rig::new().await;
    let id = rig.ready_box().await;
    rig.exec(id, "remember me").await.expect(200);
    post(
        &rig,
        format!("/v1/boxes/{id}/exec"),
        json!({ "cmd": "hang" }),
    );
    rig.until_running(id).await;
    let exec_id = rig.only_command(id);
    rig.restart().await;
    assert_eq!(rig.state(id).await, "ready");
    assert_eq!(rig.fake.count(Step::Boot), 1);
    rig.until_background(id, 1).await;
    let shown = rig.status(id).await;
    assert_eq!(shown["freeze"]["blockedBy"][0]["kind"], "background");
    let url = format!("/v1/boxes/{id}/procs/{exec_id}/output");
    assert_eq!(&rig.get(&url).await.bytes[..], b"hanging\n");
    rig.fake.finish(id, &exec_id);
    rig.until_background(id, 0).await;
    assert_eq!(rig.exec(id, "recall").await.expect(200)["stdout"], "me");
}

#[tokio::test]
async fn after_a_reboot_boxes_with_a_copy_are_frozen_and_the_others_interrupted() {
    let mut rig = Rig::new().await;
    let (frozen, ready) = (rig.frozen_box().await, rig.ready_box().await);
    rig.kill().await;
    rig.fake.reboot();
    rig.start().await;
    assert_eq!(rig.state(frozen).await, "frozen");
    rig.exec(frozen, "true").await.expect(200);
    let shown = rig.status(ready).await;
    assert_eq!(shown["status"], "interrupted");
    let text = rig.exec(ready, "true").await.error(409, "interrupted");
    assert!(
        text.contains("the host was restarted") && text.contains("coldRestart"),
        "{text}"
    );
}

#[tokio::test]
async fn a_copy_that_is_lost_is_told_and_the_files_are_kept() {
    let mut rig = Rig::new().await;
    let id = rig.frozen_box().await;
    let copy = rig.fake.seen(id).unwrap().copy.unwrap();
    rig.kill().await;
    rig.fake.lose_copy(id, copy);
    rig.start().await;
    assert_eq!(rig.state(id).await, "interrupted");
    let cold = json!({ "coldRestart": true });
    rig.post(&format!("/v1/boxes/{id}/wake"), cold)
        .await
        .expect(200);
}

#[tokio::test]
async fn a_box_no_record_names_is_shown_and_left_alone() {
    let mut rig = Rig::new().await;
    rig.kill().await;
    let stranger = BoxId::parse(&"z".repeat(20)).unwrap();
    rig.fake.plant(stranger);
    rig.start().await;
    let host = rig.get("/v1/host").await.expect(200);
    assert_eq!(host["orphans"], json!([stranger.as_str()]));
    assert_eq!(
        rig.fake.seen(stranger).unwrap().processes,
        Processes::Running
    );
}

#[tokio::test]
async fn deadlines_and_reasons_outlive_the_server() {
    let mut rig = Rig::new().await;
    let id = rig.ready_box().await;
    rig.advance(9 * MIN).await;
    let before = rig.status(id).await;
    rig.restart().await;
    let after = rig.status(id).await;
    assert_eq!(before["freeze"], after["freeze"]);
    assert_eq!(before["why"], after["why"]);
    assert_eq!(before["lastUsedAt"], after["lastUsedAt"]);
    rig.advance(MIN).await;
    assert_eq!(rig.state(id).await, "frozen");
}

#[tokio::test]
async fn a_second_server_on_the_same_folder_is_refused() {
    let rig = Rig::new().await;
    let text = rig.second_server().await;
    assert!(text.contains("another icebox server is using"), "{text}");
}

#[tokio::test]
async fn a_lying_driver_is_found_out() {
    let rig = Rig::new().await;
    let id = rig.ready_box().await;
    rig.fake.next(
        Step::Freeze,
        Behaviour::ActAndFail("lost the answer".into()),
    );
    rig.freeze(id).await.error(503, "freeze_failed");
    rig.exec(id, "true").await.expect(200);
    assert_eq!(
        rig.fake.seen(id).unwrap().copy,
        None,
        "the copy nobody trusts is dropped"
    );
}

#[tokio::test]
async fn time_in_which_the_server_was_down_is_no_idle_time() {
    let mut rig = Rig::new().await;
    let id = rig.ready_box().await;
    rig.advance(9 * MIN).await;
    rig.kill().await;
    // A clock that went on while the server was down.
    let away_ms = 5 * 60_000;
    let engine = rig.engine_after(away_ms).await;
    let view = engine.views().get(id).unwrap();
    assert_eq!(view.sandbox.state, icebox_lifecycle::State::Ready);
    let freeze_at = view
        .sandbox
        .forecast(view.sandbox.last_use)
        .freeze_at
        .unwrap();
    assert_eq!(
        freeze_at.since(view.sandbox.last_use),
        10 * 60_000 + away_ms
    );
    engine.shut_down().await;
}

#[tokio::test]
async fn a_box_at_rest_counts_every_gap_in_though_its_record_is_not_written() {
    let mut rig = Rig::new().await;
    let id = rig.frozen_box().await;
    let before = rig.engine().views().get(id).unwrap();
    let stops_at = before.sandbox.next_deadline().unwrap();
    rig.kill().await;
    let away_ms = 5 * 60_000;
    for times in 1..=3 {
        let engine = rig.engine_after(away_ms).await;
        let view = engine.views().get(id).unwrap();
        assert_eq!(
            view.sandbox.next_deadline(),
            Some(stops_at + times * away_ms)
        );
        assert_eq!(view.generation, before.generation, "it was not written");
        assert!(view.observed_at.is_some(), "though it was looked at");
        let account = view.record.account;
        let listed = engine.views().list(account, false, None, 10);
        assert_eq!(listed.len(), 1);
        assert_eq!(engine.views().counts(), [("frozen", 1)].into());
        engine.shut_down().await;
    }
    rig.start().await;
    rig.exec(id, "true").await.expect(200);
}

#[tokio::test]
async fn a_box_at_rest_that_came_due_while_the_server_was_down_is_stopped_at_the_start() {
    let mut rig = Rig::new().await;
    let kept = rig.frozen_box().await;
    rig.advance(25 * HOUR).await;
    assert_eq!(rig.state(kept).await, "terminated");
    rig.kill().await;
    // What was promised for a certain time does not move: its copy is gone now.
    let engine = rig.engine_after(25 * 3_600_000).await;
    let view = engine.views().get(kept).unwrap();
    assert_eq!(view.sandbox.kept(), None);
    engine.shut_down().await;
}

#[tokio::test]
async fn a_database_that_cannot_be_written_stops_nothing_for_good() {
    let rig = Rig::new().await;
    let id = rig.ready_box().await;
    rig.exec(id, "remember me").await.expect(200);
    let gate = Gate::default();
    rig.fake
        .next(Step::Freeze, Behaviour::HoldAfter(gate.clone()));
    post(&rig, format!("/v1/boxes/{id}/freeze"), json!({}));
    gate.reached().await;
    let other = rusqlite::Connection::open(rig.data().join("icebox.db")).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    gate.open();
    let text = rig
        .post("/v1/boxes", json!({}))
        .await
        .error(500, "internal");
    assert!(text.contains("log"), "{text}");
    assert_eq!(
        rig.state(id).await,
        "freezing",
        "readers are served meanwhile"
    );
    other.execute_batch("ROLLBACK").unwrap();
    rig.until(id, "frozen").await;
    assert_eq!(rig.exec(id, "recall").await.expect(200)["stdout"], "me");
    let list = rig.get("/v1/boxes?all=1").await.expect(200);
    assert_eq!(
        list["boxes"].as_array().unwrap().len(),
        1,
        "what was refused was not made"
    );
}
