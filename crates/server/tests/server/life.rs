//! Rules 4.1, 5.x and 6.x through the API: idle freeze, stop, restore, and what status says of them.

use axum::http::Method;
use icebox_lifecycle::Processes;
use icebox_server::config::Limits;
use icebox_server::driver::fake::{Behaviour, Gate, Step};
use serde_json::{Value, json};

use crate::rig::{HOUR, MIN, Rig};

#[tokio::test]
async fn a_box_freezes_exactly_ten_minutes_after_its_last_use() {
    let rig = Rig::new().await;
    let id = rig.ready_box().await;
    rig.advance(10 * MIN - 1).await;
    assert_eq!(rig.state(id).await, "ready");
    rig.exec(id, "true").await.expect(200);
    rig.advance(10 * MIN - 1).await;
    assert_eq!(rig.state(id).await, "ready");
    rig.advance(1).await;
    let shown = rig.status(id).await;
    assert_eq!(shown["status"], "frozen");
    assert_eq!(shown["tier"], "disk");
    assert_eq!(shown["keeps"], "files_and_memory");
    assert_eq!(rig.fake.seen(id).unwrap().processes, Processes::Absent);
}

#[tokio::test]
async fn status_and_list_are_no_use_and_wake_nothing() {
    let rig = Rig::new().await;
    let id = rig.ready_box().await;
    let used = rig.status(id).await["lastUsedAt"].clone();
    rig.advance(5 * MIN).await;
    assert_eq!(rig.status(id).await["lastUsedAt"], used);
    rig.advance(5 * MIN).await;
    rig.get("/v1/boxes").await.expect(200);
    assert_eq!(rig.state(id).await, "frozen");
    assert_eq!(rig.fake.count(Step::Thaw), 0);
}

#[tokio::test]
async fn a_renewed_box_is_used_meanwhile_and_goes_on() {
    let rig = Rig::new().await;
    let id = rig.frozen_box().await;
    let path = format!("/v1/boxes/{id}/renew");
    let gate = Gate::default();
    rig.fake
        .next(Step::Renew, Behaviour::HoldBefore(gate.clone()));
    let (client, asked) = (rig.client(), path.clone());
    let renewing = tokio::spawn(async move { client.post(&asked, json!({})).await });
    gate.reached().await;
    assert_eq!(rig.fake.count(Step::Thaw), 1, "it is woken for it");
    rig.freeze(id).await.error(409, "in_use");
    rig.advance(11 * MIN).await;
    assert_eq!(rig.state(id).await, "ready");
    gate.open();
    assert_eq!(renewing.await.unwrap().expect(200)["status"], "ready");
    assert_eq!(rig.fake.count(Step::Renew), 1);

    let failing = Behaviour::Fail("files are on their way".to_owned());
    rig.fake.next(Step::Renew, failing);
    let said = rig.post(&path, json!({})).await.error(409, "renew_failed");
    assert!(said.contains("files are on their way"), "{said}");
    rig.exec(id, "true").await.expect(200);
    rig.freeze(id).await.expect(200);
}

#[tokio::test]
async fn freeze_at_comes_true() {
    let rig = Rig::new().await;
    let id = rig.ready_box().await;
    let freeze = rig.status(id).await["freeze"].clone();
    assert_eq!(freeze["blockedBy"], json!([]));
    let at: jiff::Timestamp = freeze["at"].as_str().unwrap().parse().unwrap();
    let now = rig.get("/v1/test/clock").await.expect(200);
    let now: jiff::Timestamp = now["now"].as_str().unwrap().parse().unwrap();
    assert_eq!(at.duration_since(now).as_secs(), 600);
}

#[tokio::test]
async fn a_background_command_holds_an_hour_and_no_longer() {
    let rig = Rig::new().await;
    let id = rig.ready_box().await;
    let began = json!({ "cmd": "hang", "background": true });
    let began = rig.client().exec(id, began).await.expect(200);
    assert_eq!(began["bgId"], began["execId"]);
    let blocked = rig.status(id).await["freeze"]["blockedBy"].clone();
    assert_eq!(
        (&blocked[0]["kind"], &blocked[0]["label"]),
        (&json!("background"), &json!("hang"))
    );
    rig.advance(HOUR - 1).await;
    assert_eq!(rig.state(id).await, "ready");
    rig.advance(1).await;
    assert_eq!(rig.state(id).await, "frozen");
    let procs = rig.get(&format!("/v1/boxes/{id}/procs")).await.expect(200);
    assert_eq!(
        procs["procs"][0]["running"], true,
        "it goes on after the thaw"
    );
}

#[tokio::test]
async fn a_background_command_that_ends_lets_go() {
    let rig = Rig::new().await;
    let id = rig.ready_box().await;
    let began = json!({ "cmd": "hang", "background": true });
    let began = rig.client().exec(id, began).await.expect(200);
    rig.engine().settled().await;
    rig.fake.finish(id, began["execId"].as_str().unwrap());
    let let_go = rig.engine().views().wait_for(id, |view| {
        if view.sandbox.holds.background.is_empty() {
            std::ops::ControlFlow::Break(())
        } else {
            std::ops::ControlFlow::Continue(())
        }
    });
    let_go.await.unwrap();
    rig.advance(10 * MIN).await;
    assert_eq!(rig.state(id).await, "frozen");
}

#[tokio::test]
async fn a_frozen_box_stops_after_a_day_and_can_be_brought_back_for_another() {
    let rig = Rig::new().await;
    let id = rig.ready_box().await;
    rig.exec(id, "remember blue").await.expect(200);
    rig.advance(10 * MIN).await;
    let stops_at = rig.status(id).await["stopsAt"].clone();
    rig.advance(24 * HOUR - 1).await;
    assert_eq!(rig.state(id).await, "frozen");
    rig.advance(1).await;
    let shown = rig.status(id).await;
    assert_eq!(shown["status"], "terminated");
    assert_eq!(shown["statusReason"], "frozen and unused for 24 hours");
    let now = rig.get("/v1/test/clock").await.expect(200)["now"].clone();
    assert_eq!(stops_at, now, "it stopped when it said it would");

    let gone = rig.exec(id, "true").await;
    let until = gone.json["restorableUntil"].clone();
    assert_eq!(until, shown["restorableUntil"]);
    let text = gone.error(410, "box_gone");
    assert!(
        text.contains("restore") && text.contains(until.as_str().unwrap()),
        "{text}"
    );

    rig.advance(24 * HOUR - 1).await;
    let back = json!({ "restore": id.as_str(), "goal": "go on" });
    let back = rig.post("/v1/boxes", back).await.expect(201);
    assert_eq!(
        (&back["id"], &back["status"]),
        (&json!(id.as_str()), &json!("ready"))
    );
    assert_eq!(back["goal"], "go on");
    let word = rig.exec(id, "recall").await.expect(200);
    assert_eq!(word["stdout"], "blue");
}

#[tokio::test]
async fn after_the_promised_day_a_restore_is_refused_and_nothing_is_left() {
    let rig = Rig::new().await;
    let id = rig.frozen_box().await;
    rig.advance(24 * HOUR).await;
    assert_eq!(rig.state(id).await, "terminated");
    rig.advance(24 * HOUR).await;
    let text = rig
        .post("/v1/boxes", json!({ "restore": id.as_str() }))
        .await
        .error(410, "box_gone");
    assert!(text.contains("start a new box"), "{text}");
    assert_eq!(rig.fake.seen(id), None);
    assert_eq!(rig.status(id).await["restorableUntil"], Value::Null);
}

#[tokio::test]
async fn two_restores_at_once_are_one_and_both_get_the_box() {
    let rig = Rig::new().await;
    let id = rig.frozen_box().await;
    rig.advance(24 * HOUR).await;
    let gate = Gate::default();
    rig.fake
        .next(Step::Thaw, Behaviour::HoldBefore(gate.clone()));
    let restore = || {
        let client = rig.client();
        tokio::spawn(async move {
            client
                .post("/v1/boxes", json!({ "restore": id.as_str() }))
                .await
        })
    };
    let first = restore();
    gate.reached().await;
    let second = restore();
    // The second one is in once the engine has answered a later question of this client.
    rig.status(id).await;
    gate.open();
    for answer in [first, second] {
        let shown = answer.await.unwrap().expect(201);
        assert_eq!(
            (&shown["id"], &shown["status"]),
            (&json!(id.as_str()), &json!("ready"))
        );
    }
    assert_eq!(rig.fake.count(Step::Thaw), 1);
}

#[tokio::test]
async fn a_box_stopped_by_a_call_keeps_nothing() {
    let rig = Rig::new().await;
    let id = rig.frozen_box().await;
    let shown = rig.stop(id).await.expect(200);
    assert_eq!(shown["status"], "terminated");
    assert_eq!(rig.fake.seen(id), None);
    assert_eq!(rig.fake.count(Step::Thaw), 0, "a stop wakes nothing (5.4)");
    let again = rig.stop(id).await.expect(200);
    assert_eq!(again["status"], "terminated");
    let text = rig
        .post("/v1/boxes", json!({ "restore": id.as_str() }))
        .await
        .error(410, "box_gone");
    assert!(text.contains("keeps no copy"), "{text}");
    rig.exec(id, "true").await.error(410, "box_gone");
    let change = json!({ "goal": "too late" });
    rig.patch(id, change).await.error(410, "box_gone");
}

#[tokio::test]
async fn its_own_limit_stops_a_box_frozen_or_not() {
    let rig = Rig::new().await;
    let long = rig.box_with(json!({ "idleTimeoutMin": 30 })).await;
    let short = rig.box_with(json!({ "idleTimeoutMin": 5 })).await;
    rig.advance(5 * MIN).await;
    let shown = rig.status(short).await;
    assert_eq!(shown["status"], "terminated");
    assert_eq!(
        shown["statusReason"],
        "unused for 5 minutes, over idleTimeoutMin 5"
    );
    assert_eq!(shown["restorableUntil"], Value::Null, "it was never frozen");
    rig.advance(5 * MIN).await;
    assert_eq!(rig.state(long).await, "frozen");
    rig.advance(20 * MIN).await;
    assert_eq!(rig.state(long).await, "terminated");
}

#[tokio::test]
async fn stopped_boxes_are_listed_on_demand_for_seven_days() {
    let rig = Rig::new().await;
    let id = rig.ready_box().await;
    rig.stop(id).await.expect(200);
    let ids = |list: Value| -> Vec<String> {
        let boxes = list["boxes"].as_array().unwrap().iter();
        boxes
            .map(|shown| shown["id"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(
        ids(rig.get("/v1/boxes").await.expect(200)),
        Vec::<String>::new()
    );
    assert_eq!(
        ids(rig.get("/v1/boxes?all=1").await.expect(200)),
        [id.as_str()]
    );
    rig.advance(7 * 24 * HOUR - 1).await;
    assert_eq!(
        ids(rig.get("/v1/boxes?all=1").await.expect(200)),
        [id.as_str()]
    );
    rig.advance(1).await;
    assert_eq!(
        ids(rig.get("/v1/boxes?all=1").await.expect(200)),
        Vec::<String>::new()
    );
    rig.get(&format!("/v1/boxes/{id}"))
        .await
        .error(404, "not_found");
}

#[tokio::test]
async fn why_names_the_rules_that_decided() {
    let rig = Rig::new().await;
    let id = rig.ready_box().await;
    rig.advance(10 * MIN).await;
    let why = rig.status(id).await["why"].clone();
    let rules: Vec<&str> = why
        .as_array()
        .unwrap()
        .iter()
        .map(|why| why["rule"].as_str().unwrap())
        .collect();
    assert!(
        rules.contains(&"2.1") && rules.contains(&"4.1") && rules.contains(&"4.9"),
        "{why}"
    );
}

#[tokio::test]
async fn a_freeze_that_fails_leaves_the_box_as_it_was_and_is_tried_again() {
    let rig = Rig::new().await;
    let id = rig.ready_box().await;
    rig.exec(id, "remember red").await.expect(200);
    rig.fake
        .next(Step::Freeze, Behaviour::Fail("the disk is full".into()));
    let answer = rig.freeze(id).await;
    assert!(answer.headers.contains_key("retry-after"));
    let text = answer.error(503, "freeze_failed");
    assert!(text.contains("the disk is full"), "{text}");
    assert_eq!(rig.exec(id, "recall").await.expect(200)["stdout"], "red");
    assert_eq!(rig.state(id).await, "ready");
    rig.advance(10 * MIN).await;
    assert_eq!(rig.state(id).await, "frozen");
}

#[tokio::test]
async fn memory_that_cannot_be_copied_stays_in_ram_and_says_why() {
    let rig = Rig::new().await;
    let id = rig.ready_box().await;
    rig.exec(id, "remember green").await.expect(200);
    rig.fake
        .next(Step::Freeze, Behaviour::Refuse("io_uring is in use".into()));
    // The script refuses after standing still with a copy; the record must not trust that copy.
    let shown = rig.freeze(id).await.expect(200);
    assert_eq!(
        (&shown["status"], &shown["tier"]),
        (&json!("frozen"), &json!("ram"))
    );
    assert_eq!(shown["snapshotError"], "io_uring is in use");
    assert_eq!(rig.exec(id, "recall").await.expect(200)["stdout"], "green");
    assert_eq!(rig.fake.count(Step::Thaw), 0);
}

#[tokio::test]
async fn a_host_without_checkpoints_freezes_in_ram() {
    let rig = Rig::new().await;
    rig.fake
        .cannot_checkpoint("criu is missing; run `icebox doctor`");
    let id = rig.ready_box().await;
    let shown = rig.freeze(id).await.expect(200);
    assert_eq!(shown["tier"], "ram");
    assert_eq!(
        shown["snapshotError"],
        "criu is missing; run `icebox doctor`"
    );
    rig.exec(id, "true").await.expect(200);
}

#[tokio::test]
async fn with_a_budget_frozen_boxes_stay_warm_and_the_least_recently_used_gives_way() {
    let rig = Rig::with(Limits {
        warm_memory_mb: 4096,
        ..Limits::default()
    })
    .await;
    let boxes = [
        rig.ready_box().await,
        rig.ready_box().await,
        rig.ready_box().await,
    ];
    for id in boxes {
        rig.advance(1).await;
        rig.exec(id, "true").await.expect(200);
    }
    for id in &boxes[..2] {
        assert_eq!(rig.freeze(*id).await.expect(200)["tier"], "ram");
    }
    assert_eq!(rig.freeze(boxes[2]).await.expect(200)["tier"], "ram");
    rig.advance(0).await;
    assert_eq!(rig.status(boxes[0]).await["tier"], "disk");
    assert_eq!(rig.status(boxes[1]).await["tier"], "ram");
    rig.exec(boxes[2], "true").await.expect(200);
    assert_eq!(rig.fake.count(Step::Thaw), 0);
}

#[tokio::test]
async fn a_full_host_says_so_and_a_start_that_waits_gets_the_room_that_comes() {
    let rig = Rig::with(Limits {
        running_boxes: 1,
        ..Limits::default()
    })
    .await;
    let id = rig.ready_box().await;
    let full = rig.post("/v1/boxes", json!({})).await;
    assert!(full.headers.contains_key("retry-after"));
    let text = full.error(503, "no_capacity");
    let expected =
        "no box capacity right now: 1 of 1 slots on this host are taken; freeze or stop a box";
    assert!(text.starts_with(expected), "{text}");
    let client = rig.client();
    let waiting = tokio::spawn(async move {
        client
            .post("/v1/boxes", json!({ "waitForCapacitySec": 1800 }))
            .await
    });
    // While somebody waits, nobody who does not wait gets in.
    rig.post("/v1/boxes", json!({}))
        .await
        .error(503, "no_capacity");
    rig.freeze(id).await.expect(200);
    assert_eq!(waiting.await.unwrap().expect(201)["status"], "ready");
}

#[tokio::test]
async fn a_start_that_fails_says_why_and_leaves_nothing() {
    let rig = Rig::new().await;
    rig.fake.next(
        Step::Boot,
        Behaviour::Refuse("image host is not on this host".into()),
    );
    let failed = rig.post("/v1/boxes", json!({})).await;
    let text = failed.error(500, "start_failed");
    assert!(text.contains("image host is not on this host"), "{text}");
    let list = rig.get("/v1/boxes?all=1").await.expect(200);
    let id = list["boxes"][0]["id"].as_str().unwrap();
    let id = icebox_lifecycle::BoxId::parse(id).unwrap();
    rig.until(id, "terminated").await;
    assert_eq!(rig.fake.seen(id), None);
}

#[tokio::test]
async fn a_driver_that_breaks_down_is_a_failure_like_any_other() {
    let rig = Rig::new().await;
    rig.fake.next(Step::Boot, Behaviour::Panic);
    rig.ready_box().await;
    assert_eq!(rig.fake.count(Step::Boot), 1, "the second try worked");
}

#[tokio::test]
async fn a_start_that_does_not_wait_answers_at_once() {
    let rig = Rig::new().await;
    let gate = Gate::default();
    rig.fake
        .next(Step::Boot, Behaviour::HoldBefore(gate.clone()));
    let shown = rig
        .post("/v1/boxes", json!({ "wait": false }))
        .await
        .expect(201);
    assert_eq!(shown["status"], "starting");
    let id = icebox_lifecycle::BoxId::parse(shown["id"].as_str().unwrap()).unwrap();
    gate.open();
    rig.until(id, "ready").await;
}

#[tokio::test]
async fn a_stop_that_fails_is_tried_again_until_it_is_done() {
    let rig = Rig::new().await;
    let id = rig.ready_box().await;
    for _ in 0..2 {
        rig.fake
            .next(Step::Destroy, Behaviour::Fail("a mount is busy".into()));
    }
    let client = rig.client();
    let stopping = tokio::spawn(async move {
        client
            .call(Method::DELETE, &format!("/v1/boxes/{id}"), None)
            .await
    });
    rig.until(id, "stopping").await;
    rig.exec(id, "true").await.error(410, "box_gone");
    rig.advance(10).await;
    assert_eq!(stopping.await.unwrap().expect(200)["status"], "terminated");
    assert_eq!(rig.fake.seen(id), None);
}

#[tokio::test]
async fn changed_settings_are_no_use_and_equal_ones_change_nothing() {
    let rig = Rig::new().await;
    let id = rig.frozen_box().await;
    let used = rig.status(id).await["lastUsedAt"].clone();
    rig.advance(60).await;
    let change = json!({ "name": "web", "goal": "a shop", "idleTimeoutMin": 90 });
    let shown = rig.patch(id, change).await.expect(200);
    assert_eq!(
        (&shown["name"], &shown["goal"], &shown["idleTimeoutMin"]),
        (&json!("web"), &json!("a shop"), &json!(90))
    );
    assert_eq!(
        (&shown["status"], &shown["lastUsedAt"]),
        (&json!("frozen"), &used)
    );
    let cleared =
        json!({ "name": null, "idleTimeoutMin": null, "policy": { "freezeAfterSec": 1200 } });
    let shown = rig.patch(id, cleared).await.expect(200);
    assert_eq!(
        (&shown["name"], &shown["idleTimeoutMin"]),
        (&Value::Null, &Value::Null)
    );
    rig.exec(id, "true").await.expect(200);
    rig.advance(20 * MIN - 1).await;
    assert_eq!(rig.state(id).await, "ready");
    rig.advance(1).await;
    assert_eq!(rig.state(id).await, "frozen");
}

#[tokio::test]
async fn conversations_are_told_apart() {
    let rig = Rig::new().await;
    let mine = rig.client().with_header("x-psbx-agent", "agent-1");
    let shown = mine.post("/v1/boxes", json!({})).await.expect(201);
    let path = format!("/v1/boxes/{}", shown["id"].as_str().unwrap());
    assert_eq!(shown["agent"]["thisConversation"], true);
    assert_eq!(
        rig.get(&path).await.expect(200)["agent"],
        json!({ "state": "working", "idleSec": 0 })
    );
    rig.post("/v1/agents/agent-1/heartbeat", json!({ "client": "t" }))
        .await
        .expect(200);
    rig.advance(3 * MIN).await;
    assert_eq!(
        rig.get(&path).await.expect(200)["agent"]["state"],
        "working"
    );
    rig.advance(1).await;
    assert_eq!(rig.get(&path).await.expect(200)["agent"]["state"], "left");
    let text = rig
        .post("/v1/agents/no!/leave", json!({}))
        .await
        .error(400, "bad_request");
    assert_eq!(text, "agent id: letters, digits, - and _ only, at most 64");
}
