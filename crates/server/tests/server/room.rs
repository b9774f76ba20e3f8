//! Room on the host (rules 5.9, 14.1) through the API: who gets it, in which order, who waits, and what is said.

use axum::http::Method;
use icebox_lifecycle::{BoxId, Processes};
use icebox_server::config::Limits;
use icebox_server::driver::fake::{Behaviour, Gate, Step};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::rig::{Answer, MIN, Rig, RigClient};

/// How often the queue is looked at until it has the length it must come to.
const LOOKS: usize = 10_000;

async fn with_slots(running_boxes: usize) -> Rig {
    Rig::with(Limits {
        running_boxes,
        ..Limits::default()
    })
    .await
}

/// Asks for something, in a task that can be aborted as a client that hangs up.
fn asking(client: RigClient, path: String, body: Value) -> JoinHandle<Answer> {
    tokio::spawn(async move { client.post(&path, body).await })
}

fn starting(rig: &Rig, body: Value) -> JoinHandle<Answer> {
    asking(rig.client(), "/v1/boxes".into(), body)
}

fn calling(rig: &Rig, id: BoxId, body: Value) -> JoinHandle<Answer> {
    asking(rig.client(), format!("/v1/boxes/{id}/exec"), body)
}

fn waking(rig: &Rig, id: BoxId, body: Value) -> JoinHandle<Answer> {
    asking(rig.client(), format!("/v1/boxes/{id}/wake"), body)
}

/// Until so many boxes wait; no time passes.
async fn until_waiting(rig: &Rig, boxes: usize) {
    until_capacity(rig, |now| now["slots"]["waiting"] == boxes).await;
}

/// Until the room is as it must become.
async fn until_capacity(rig: &Rig, enough: impl Fn(&Value) -> bool) {
    for _ in 0..LOOKS {
        if enough(&capacity(rig).await) {
            return;
        }
    }
    panic!("it stays {}", capacity(rig).await);
}

async fn capacity(rig: &Rig) -> Value {
    let host = rig.get("/v1/host").await.expect(200);
    host["capacity"].clone()
}

async fn slots(rig: &Rig) -> (u64, u64, u64) {
    let slots = capacity(rig).await["slots"].clone();
    let part = |name: &str| slots[name].as_u64().unwrap();
    (part("running"), part("maximum"), part("waiting"))
}

fn id_of(shown: &Value) -> BoxId {
    BoxId::parse(shown["id"].as_str().unwrap()).unwrap()
}

/// A frozen box, and another that has the only slot.
async fn a_frozen_box_on_a_full_host() -> (Rig, BoxId, BoxId) {
    let rig = with_slots(1).await;
    let frozen = rig.frozen_box().await;
    let up = rig.ready_box().await;
    (rig, frozen, up)
}

#[tokio::test]
async fn starts_and_wakes_go_in_the_order_they_came_and_the_place_shows() {
    let (rig, frozen, up) = a_frozen_box_on_a_full_host().await;
    let wait = json!({ "waitForCapacitySec": 1800 });
    let first = starting(&rig, wait.clone());
    until_waiting(&rig, 1).await;
    let call = calling(
        &rig,
        frozen,
        json!({ "cmd": "echo hi", "waitForCapacitySec": 1800 }),
    );
    until_waiting(&rig, 2).await;
    let last = starting(&rig, wait);
    until_waiting(&rig, 3).await;

    let shown = rig.status(frozen).await;
    assert_eq!(
        (&shown["status"], &shown["tier"], &shown["statusReason"]),
        (
            &json!("frozen"),
            &json!("disk"),
            &json!("waits for room on the host, 1 before it")
        )
    );
    assert_eq!(shown["waitsForRoom"]["before"], 1);
    let why = shown["why"].as_array().unwrap().last().unwrap();
    assert_eq!(why["rule"], "5.9");
    assert!(
        why["text"].as_str().unwrap().contains("1 before it"),
        "{why}"
    );
    let list = rig.get("/v1/boxes").await.expect(200);
    assert_eq!(
        list["slots"],
        json!({ "running": 1, "maximum": 1, "waiting": 3 })
    );
    let queue = capacity(&rig).await["queue"].clone();
    let wanted: Vec<_> = (0..3).map(|at| queue[at]["wanted"].clone()).collect();
    assert_eq!(wanted, ["start", "wake", "start"]);
    assert_eq!(queue[1]["box"], frozen.as_str());

    rig.freeze(up).await.expect(200);
    let first = id_of(&first.await.unwrap().expect(201));
    assert_eq!(rig.status(frozen).await["waitsForRoom"]["before"], 0);
    assert!(!call.is_finished() && !last.is_finished());
    rig.stop(first).await.expect(200);
    assert_eq!(call.await.unwrap().expect(200)["stdout"], "hi\n");
    assert_eq!(rig.status(frozen).await["waitsForRoom"], Value::Null);
    assert!(!last.is_finished());
    rig.freeze(frozen).await.expect(200);
    last.await.unwrap().expect(201);
    assert_eq!(slots(&rig).await, (1, 1, 0));
}

#[tokio::test]
async fn whoever_hangs_up_leaves_the_queue_and_gets_nothing() {
    let (rig, frozen, up) = a_frozen_box_on_a_full_host().await;
    let boots = rig.fake.count(Step::Boot);
    let wait = json!({ "waitForCapacitySec": 1800 });
    let waiting = [
        starting(&rig, wait.clone()),
        calling(
            &rig,
            frozen,
            json!({ "cmd": "true", "waitForCapacitySec": 1800 }),
        ),
    ];
    until_waiting(&rig, 2).await;
    let joined = waking(&rig, frozen, wait.clone());
    let procs = {
        let (client, path) = (rig.client(), format!("/v1/boxes/{frozen}/procs"));
        tokio::spawn(async move { client.call(Method::GET, &path, None).await })
    };
    let last = starting(&rig, wait);
    until_waiting(&rig, 3).await;
    for task in waiting.iter().chain([&joined, &procs]) {
        task.abort();
    }
    until_waiting(&rig, 1).await;
    assert_eq!(rig.state(frozen).await, "frozen");
    rig.freeze(up).await.expect(200);
    last.await.unwrap().expect(201);
    assert_eq!(rig.fake.count(Step::Boot), boots + 1);
    assert_eq!(rig.fake.count(Step::Thaw), 0);
    assert_eq!(slots(&rig).await, (1, 1, 0));
}

#[tokio::test]
async fn a_wake_waits_half_a_minute_then_says_so_and_the_box_is_as_before() {
    let (rig, frozen, _up) = a_frozen_box_on_a_full_host().await;
    let call = calling(&rig, frozen, json!({ "cmd": "true" }));
    until_waiting(&rig, 1).await;
    let impatient = json!({ "cmd": "true", "waitForCapacitySec": 0 });
    let refused = rig.client().exec(frozen, impatient).await;
    assert!(refused.headers.contains_key("retry-after"));
    refused.error(503, "no_capacity");
    let alone = capacity(&rig).await["queue"][0]["until"].clone();
    let wake = waking(&rig, frozen, json!({ "waitForCapacitySec": 31 }));
    until_capacity(&rig, |now| now["queue"][0]["until"] != alone).await;
    rig.advance(29).await;
    assert!(!call.is_finished());
    rig.advance(1).await;
    let answer = call.await.unwrap();
    assert!(answer.headers.contains_key("retry-after"));
    assert_eq!(
        answer.json["slots"],
        json!({ "running": 1, "maximum": 1, "waiting": 1 }),
        "the wake waits on: {}",
        answer.json
    );
    let text = answer.error(503, "no_capacity");
    assert!(text.starts_with("no box capacity right now"), "{text}");
    assert!(text.contains("stays frozen as it is"), "{text}");
    rig.advance(1).await;
    wake.await.unwrap().error(503, "no_capacity");
    let shown = rig.status(frozen).await;
    assert_eq!(
        (&shown["status"], &shown["tier"]),
        (&json!("frozen"), &json!("disk"))
    );
    assert_eq!(slots(&rig).await, (1, 1, 0));
}

#[tokio::test]
async fn all_who_wait_for_a_box_get_it_together() {
    let (rig, frozen, up) = a_frozen_box_on_a_full_host().await;
    let body = json!({ "cmd": "echo hi", "waitForCapacitySec": 60 });
    let calls: Vec<_> = (0..3)
        .map(|_| calling(&rig, frozen, body.clone()))
        .collect();
    let wake = waking(&rig, frozen, json!({ "waitForCapacitySec": 60 }));
    until_waiting(&rig, 1).await;
    rig.freeze(up).await.expect(200);
    for call in calls {
        assert_eq!(call.await.unwrap().expect(200)["stdout"], "hi\n");
    }
    assert_eq!(wake.await.unwrap().expect(200)["status"], "ready");
    assert_eq!(rig.fake.count(Step::Thaw), 1);
}

#[tokio::test]
async fn a_jump_of_the_clock_gives_room_in_its_order() {
    let (rig, frozen, up) = a_frozen_box_on_a_full_host().await;
    let call = calling(
        &rig,
        frozen,
        json!({ "cmd": "true", "waitForCapacitySec": 1800 }),
    );
    until_waiting(&rig, 1).await;
    let late = starting(&rig, json!({ "waitForCapacitySec": 60 }));
    until_waiting(&rig, 2).await;
    rig.advance(10 * MIN).await;
    late.await.unwrap().error(503, "no_capacity");
    call.await.unwrap().expect(200);
    assert_eq!(rig.state(up).await, "frozen");
    assert_eq!(rig.state(frozen).await, "ready");
}

#[tokio::test]
async fn while_a_box_waits_its_clocks_stand_still() {
    for gives_up in [false, true] {
        let rig = with_slots(1).await;
        let id = rig.box_with(json!({ "idleTimeoutMin": 15 })).await;
        rig.freeze(id).await.expect(200);
        let up = rig.ready_box().await;
        let busy = calling(&rig, up, json!({ "cmd": "hang", "timeoutSec": 3600 }));
        rig.until_running(up).await;
        rig.advance(14 * MIN).await;
        let wait = if gives_up { 20 * MIN } else { 30 * MIN };
        let call = calling(
            &rig,
            id,
            json!({ "cmd": "true", "waitForCapacitySec": wait }),
        );
        until_waiting(&rig, 1).await;
        rig.advance(20 * MIN).await;
        assert_eq!(rig.state(id).await, "frozen");
        rig.fake.finish(up, &rig.only_command(up));
        busy.await.unwrap().expect(200);
        if gives_up {
            call.await.unwrap().error(503, "no_capacity");
            rig.advance(MIN - 1).await;
            assert_eq!(rig.state(id).await, "frozen");
            rig.advance(1).await;
            assert_eq!(rig.state(id).await, "terminated");
        } else {
            rig.stop(up).await.expect(200);
            call.await.unwrap().expect(200);
        }
    }
}

#[tokio::test]
async fn a_stop_or_a_freeze_takes_a_box_out_of_the_queue() {
    let (rig, frozen, up) = a_frozen_box_on_a_full_host().await;
    let call = calling(&rig, frozen, json!({ "cmd": "true" }));
    until_waiting(&rig, 1).await;
    assert_eq!(rig.freeze(frozen).await.expect(200)["status"], "frozen");
    let text = call.await.unwrap().error(503, "wake_failed");
    assert!(
        text.contains("frozen by a call while it waited for room"),
        "{text}"
    );
    assert_eq!(slots(&rig).await, (1, 1, 0));

    let call = calling(&rig, frozen, json!({ "cmd": "true" }));
    until_waiting(&rig, 1).await;
    let wake = waking(&rig, frozen, json!({ "waitForCapacitySec": 60 }));
    let last = starting(&rig, json!({ "waitForCapacitySec": 60 }));
    until_waiting(&rig, 2).await;
    rig.stop(frozen).await.expect(200);
    call.await.unwrap().error(410, "box_gone");
    let woken = wake.await.unwrap();
    assert_eq!(woken.status, 410, "{woken:?}");
    assert_eq!(slots(&rig).await, (1, 1, 1));
    rig.stop(up).await.expect(200);
    last.await.unwrap().expect(201);
}

#[tokio::test]
async fn a_restore_needs_room_too() {
    let rig = with_slots(1).await;
    let stopped = rig.frozen_box().await;
    rig.advance(24 * 60 * MIN).await;
    assert_eq!(rig.state(stopped).await, "terminated");
    let up = rig.ready_box().await;
    let back = json!({ "restore": stopped.as_str() });
    rig.post("/v1/boxes", back).await.error(503, "no_capacity");
    let back = json!({ "restore": stopped.as_str(), "waitForCapacitySec": 60 });
    let restoring = starting(&rig, back);
    until_waiting(&rig, 1).await;
    assert_eq!(capacity(&rig).await["queue"][0]["wanted"], "restore");
    assert_eq!(rig.status(stopped).await["waitsForRoom"]["before"], 0);
    rig.stop(up).await.expect(200);
    let shown = restoring.await.unwrap().expect(201);
    assert_eq!(
        (id_of(&shown), &shown["status"]),
        (stopped, &json!("ready"))
    );
}

#[tokio::test]
async fn boxes_found_running_after_a_restart_count_though_they_do_not_fit() {
    let mut rig = with_slots(3).await;
    let (one, two) = (rig.ready_box().await, rig.ready_box().await);
    let frozen = rig.frozen_box().await;
    rig.limits().running_boxes = 1;
    rig.restart().await;
    assert_eq!(slots(&rig).await, (2, 1, 0));
    for id in [one, two] {
        assert_eq!(rig.exec(id, "echo hi").await.expect(200)["stdout"], "hi\n");
    }
    let call = calling(
        &rig,
        frozen,
        json!({ "cmd": "true", "waitForCapacitySec": 60 }),
    );
    until_waiting(&rig, 1).await;
    rig.freeze(one).await.expect(200);
    assert_eq!(slots(&rig).await, (1, 1, 1));
    rig.freeze(two).await.expect(200);
    call.await.unwrap().expect(200);
    assert_eq!(slots(&rig).await, (1, 1, 0));
}

#[tokio::test]
async fn the_queue_does_not_outlive_the_server_and_the_box_does() {
    let (mut rig, frozen, up) = a_frozen_box_on_a_full_host().await;
    let call = calling(
        &rig,
        frozen,
        json!({ "cmd": "true", "waitForCapacitySec": 1800 }),
    );
    until_waiting(&rig, 1).await;
    rig.kill().await;
    call.abort();
    rig.start().await;
    assert_eq!(slots(&rig).await, (1, 1, 0));
    assert_eq!(rig.state(frozen).await, "frozen");
    rig.freeze(up).await.expect(200);
    assert_eq!(
        rig.state(frozen).await,
        "frozen",
        "nobody wants it any more"
    );
    rig.exec(frozen, "true").await.expect(200);
}

#[tokio::test]
async fn a_wake_under_way_keeps_its_room_over_a_restart() {
    let mut rig = with_slots(1).await;
    let id = rig.frozen_box().await;
    let gate = Gate::default();
    rig.fake
        .next(Step::Thaw, Behaviour::HoldBefore(gate.clone()));
    let wake = waking(&rig, id, json!({}));
    gate.reached().await;
    rig.kill().await;
    wake.abort();
    rig.start().await;
    rig.until(id, "ready").await;
    assert_eq!(slots(&rig).await, (1, 1, 0));
    rig.post("/v1/boxes", json!({}))
        .await
        .error(503, "no_capacity");
}

#[tokio::test]
async fn an_account_that_has_all_it_may_is_passed_over() {
    let mut rig = with_slots(2).await;
    rig.limits().account_boxes = Some(1);
    let other = rig.other_account().await;
    let mine = rig.ready_box().await;
    let text = rig
        .post("/v1/boxes", json!({}))
        .await
        .error(503, "no_capacity");
    assert!(
        text.contains("this account may have 1 boxes that are up"),
        "{text}"
    );
    let waiting = starting(&rig, json!({ "waitForCapacitySec": 60 }));
    until_waiting(&rig, 1).await;
    other.post("/v1/boxes", json!({})).await.expect(201);
    let queue = other.call(Method::GET, "/v1/host", None).await.expect(200);
    assert_eq!(queue["capacity"]["queue"], json!([]), "it is not theirs");
    assert_eq!(queue["capacity"]["account"], json!({ "boxes": 1 }));
    rig.freeze(mine).await.expect(200);
    waiting.await.unwrap().expect(201);
    assert_eq!(slots(&rig).await, (2, 2, 0));
}

#[tokio::test]
async fn a_start_that_fails_gives_its_room_back() {
    let rig = with_slots(1).await;
    let refuse = || Behaviour::Refuse("image host is not on this host".into());
    rig.fake.next(Step::Boot, refuse());
    rig.post("/v1/boxes", json!({}))
        .await
        .error(500, "start_failed");
    let list = rig.get("/v1/boxes?all=1").await.expect(200);
    rig.until(id_of(&list["boxes"][0]), "terminated").await;
    assert_eq!(slots(&rig).await, (0, 1, 0));
    rig.ready_box().await;
}

#[tokio::test]
async fn a_wake_that_fails_gives_its_room_back() {
    let rig = with_slots(1).await;
    let id = rig.frozen_box().await;
    for _ in 0..2 {
        rig.fake
            .next(Step::Thaw, Behaviour::Fail("the disk is slow".into()));
    }
    rig.exec(id, "true").await.error(503, "wake_failed");
    assert_eq!(slots(&rig).await, (0, 1, 0));
    rig.ready_box().await;
}

/// Room for two boxes of the usual size, or for as many small ones as there are.
fn two_boxes_of_memory() -> Limits {
    Limits {
        memory_mb: Some(4_096),
        warm_memory_mb: 4_096,
        ..Limits::default()
    }
}

#[tokio::test]
async fn a_warm_box_gives_its_memory_to_a_start_that_needs_it() {
    let rig = Rig::with(two_boxes_of_memory()).await;
    let warm = rig.ready_box().await;
    rig.exec(warm, "remember me").await.expect(200);
    assert_eq!(rig.freeze(warm).await.expect(200)["tier"], "ram");
    let memory = capacity(&rig).await["memoryMb"].clone();
    assert_eq!(memory, json!({ "taken": 2048, "maximum": 4096 }));
    let up = rig.ready_box().await;
    assert_eq!(
        rig.status(warm).await["tier"],
        "ram",
        "there is room for both"
    );
    rig.ready_box().await;
    assert_eq!(rig.status(warm).await["tier"], "disk");
    let text = rig
        .post("/v1/boxes", json!({}))
        .await
        .error(503, "no_capacity");
    assert!(
        text.contains("it needs 2048 MiB of memory, and 0 of 4096 MiB are free"),
        "{text}"
    );
    rig.stop(up).await.expect(200);
    assert_eq!(rig.exec(warm, "recall").await.expect(200)["stdout"], "me");
}

#[tokio::test]
async fn memory_that_has_no_copy_counts_and_its_box_wakes_in_it() {
    let rig = Rig::with(two_boxes_of_memory()).await;
    let stays = rig.ready_box().await;
    rig.fake
        .next(Step::Freeze, Behaviour::Refuse("it is traced".into()));
    assert_eq!(rig.freeze(stays).await.expect(200)["tier"], "ram");
    let up = rig.ready_box().await;
    rig.post("/v1/boxes", json!({}))
        .await
        .error(503, "no_capacity");
    rig.exec(stays, "true").await.expect(200);
    assert_eq!(slots(&rig).await, (2, 256, 0));
    assert_eq!(rig.fake.seen(up).unwrap().processes, Processes::Running);
}

#[tokio::test]
async fn what_never_fits_is_told_with_the_limit() {
    let mut rig = Rig::new().await;
    let id = rig.frozen_box().await;
    rig.limits().memory_mb = Some(1_024);
    rig.limits().account_cpus = Some(1.5);
    rig.restart().await;
    let large = json!({ "size": { "memoryMb": 1025, "cpus": 1 } });
    let text = rig.post("/v1/boxes", large).await.error(400, "bad_request");
    assert!(
        text.contains("`size.memoryMb` must be 64 to 1024"),
        "{text}"
    );
    let many = json!({ "size": { "cpus": 2 } });
    let text = rig.post("/v1/boxes", many).await.error(400, "bad_request");
    assert!(text.contains("`size.cpus` must be 0.1 to 1.5"), "{text}");
    let text = rig.exec(id, "true").await.error(503, "no_capacity");
    assert!(text.contains("needs 2048 MiB of memory"), "{text}");
    assert!(text.contains("`limits.memory_mb`"), "{text}");
    assert_eq!(rig.state(id).await, "frozen");
    rig.ready_box().await;
}

#[tokio::test]
async fn a_box_in_use_is_never_frozen_to_make_room() {
    let (rig, frozen, up) = a_frozen_box_on_a_full_host().await;
    let busy = calling(&rig, up, json!({ "cmd": "hang", "timeoutSec": 3600 }));
    rig.until_running(up).await;
    let call = calling(
        &rig,
        frozen,
        json!({ "cmd": "true", "waitForCapacitySec": 1800 }),
    );
    until_waiting(&rig, 1).await;
    rig.advance(30 * MIN).await;
    call.await.unwrap().error(503, "no_capacity");
    assert_eq!(rig.state(up).await, "ready");
    rig.fake.finish(up, &rig.only_command(up));
    busy.await.unwrap().expect(200);
}
