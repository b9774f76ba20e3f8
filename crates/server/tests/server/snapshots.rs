//! Snapshots and forks: who gets them, what goes on in them, and what becomes of them when the server, the driver or the
//! box does not play along.

use axum::http::Method;
use icebox_lifecycle::BoxId;
use icebox_server::config::Limits;
use icebox_server::driver::fake::{Behaviour, Gate, Step};
use serde_json::{Value, json};

use crate::rig::{Answer, Rig};

async fn save(rig: &Rig, id: BoxId, body: Value) -> Answer {
    rig.post(&format!("/v1/boxes/{id}/snapshots"), body).await
}

async fn saved(rig: &Rig, id: BoxId, body: Value) -> String {
    let made = save(rig, id, body).await.expect(201);
    made["id"].as_str().unwrap().to_owned()
}

async fn remove(rig: &Rig, snapshot: &str) -> Answer {
    let path = format!("/v1/snapshots/{snapshot}");
    rig.client().call(Method::DELETE, &path, None).await
}

async fn fork(rig: &Rig, id: BoxId, body: Value) -> Answer {
    rig.post(&format!("/v1/boxes/{id}/fork"), body).await
}

async fn listed(rig: &Rig) -> Vec<Value> {
    let list = rig.get("/v1/snapshots").await.expect(200);
    list["snapshots"].as_array().unwrap().clone()
}

fn id_of(view: &Value) -> BoxId {
    BoxId::parse(view["id"].as_str().unwrap()).unwrap()
}

async fn recall(rig: &Rig, id: BoxId) -> String {
    let done = rig.exec(id, "recall").await.expect(200);
    done["stdout"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_running_box_is_saved_and_goes_on_with_what_was_under_way() {
    let rig = Rig::new().await;
    let id = rig.ready_box().await;
    rig.exec(id, "remember me").await.expect(200);
    let client = rig.client();
    let waiting = tokio::spawn(async move { client.exec(id, json!({"cmd": "hang"})).await });
    rig.fake.until_command(id).await;
    let running = rig.only_command(id);
    let snapshot = saved(&rig, id, json!({"name": "one"})).await;
    rig.until(id, "ready").await;
    assert_eq!(
        rig.fake.running_commands(id),
        std::slice::from_ref(&running)
    );
    assert_eq!(recall(&rig, id).await, "me");
    rig.fake.finish(id, &running);
    waiting.await.unwrap().expect(200);
    let shown = &listed(&rig).await[0];
    assert_eq!(shown["id"], snapshot);
    assert_eq!(shown["name"], "one");
    assert_eq!(shown["box"], id.as_str());
    assert_eq!(shown["memory"], true);
    // Two boxes from it, by its id and by its name, after the original and its memory are gone.
    rig.stop(id).await.expect(200);
    for name in [&snapshot, "one", "one:default"] {
        let new = rig.box_with(json!({"snapshot": name})).await;
        assert_eq!(recall(&rig, new).await, "me", "{name}");
    }
    remove(&rig, "one").await.expect(200);
    assert_eq!(listed(&rig).await, Vec::<Value>::new());
    let gone = rig.post("/v1/boxes", json!({"snapshot": snapshot})).await;
    gone.error(404, "not_found");
    remove(&rig, &snapshot).await.error(404, "not_found");
    rig.fake.until_snapshots(0).await;
}

#[tokio::test]
async fn a_frozen_box_is_saved_as_it_is_and_not_woken() {
    let rig = Rig::new().await;
    let id = rig.ready_box().await;
    rig.exec(id, "remember me").await.expect(200);
    rig.freeze(id).await.expect(200);
    let used = rig.status(id).await["lastUsedAt"].clone();
    let snapshot = saved(&rig, id, json!({})).await;
    assert_eq!(rig.state(id).await, "frozen");
    assert_eq!(rig.status(id).await["lastUsedAt"], used);
    let new = rig.box_with(json!({"snapshot": snapshot})).await;
    assert_eq!(recall(&rig, new).await, "me");
    let cold = json!({"snapshot": snapshot, "memory": false});
    let new = rig.box_with(cold).await;
    rig.exec(new, "recall").await.expect(200);
    assert_ne!(recall(&rig, new).await, "me");
}

#[tokio::test]
async fn forks_go_on_and_the_original_does_too() {
    let rig = Rig::new().await;
    let id = rig
        .box_with(json!({"name": "web", "goal": "g", "env": {"A": "b"}, "idleTimeoutMin": 99}))
        .await;
    rig.exec(id, "remember me").await.expect(200);
    let forked = fork(&rig, id, json!({"count": 3})).await.expect(201);
    let forks = forked["forks"].as_array().unwrap();
    assert_eq!(forks.len(), 3);
    for fork in forks {
        let view = &fork["box"];
        assert_eq!(
            (&view["status"], &view["name"]),
            (&json!("ready"), &json!("web"))
        );
        assert_eq!(
            (&view["goal"], &view["idleTimeoutMin"]),
            (&json!("g"), &json!(99))
        );
        assert_eq!(recall(&rig, id_of(view)).await, "me");
        rig.exec(id_of(view), "remember another").await.expect(200);
    }
    assert_eq!(recall(&rig, id).await, "me");
    // Nobody sees what they were made from, and it is gone.
    assert_eq!(listed(&rig).await, Vec::<Value>::new());
    rig.fake.until_snapshots(0).await;
    let named = fork(&rig, id, json!({"count": 2, "name": "try"})).await;
    let named = named.expect(201);
    assert_eq!(named["forks"][0]["box"]["name"], "try 1");
    assert_eq!(named["forks"][1]["box"]["name"], "try 2");
}

#[tokio::test]
async fn forks_that_find_no_room_say_so_one_by_one() {
    let rig = Rig::with(Limits {
        running_boxes: 3,
        ..Limits::default()
    })
    .await;
    let id = rig.ready_box().await;
    let forked = fork(&rig, id, json!({"count": 4})).await.expect(201);
    let forks = forked["forks"].as_array().unwrap();
    let made = forks.iter().filter(|fork| fork["box"].is_object()).count();
    let full = forks
        .iter()
        .filter(|fork| fork["error"]["code"] == "no_capacity")
        .count();
    assert_eq!((made, full), (2, 2), "{forked}");
    assert_eq!(rig.state(id).await, "ready");
    rig.fake.until_snapshots(0).await;
}

#[tokio::test]
async fn what_does_not_fit_is_refused() {
    let mut rig = Rig::with(Limits {
        account_snapshots: 1,
        ..Limits::default()
    })
    .await;
    let id = rig.ready_box().await;
    for (body, says) in [
        (json!({"count": 0}), "`count` must be"),
        (json!({"count": 21}), "`count` must be"),
        (json!({"count": "1"}), "`count` must be"),
        (json!({"name": ""}), "`name` must be"),
        (json!({"colour": 1}), "no field `colour`"),
    ] {
        let text = fork(&rig, id, body).await.error(400, "bad_request");
        assert!(text.contains(says), "{text}");
    }
    for (body, says) in [
        (json!({"name": ""}), "`name` must be"),
        (json!({"name": "a b"}), "`name` must be"),
        (json!({"name": "../x"}), "`name` must be"),
        (json!({"name": "x".repeat(61)}), "`name` must be"),
        (json!({"name": "snapaaaaaaaaaaaaaaaa"}), "`name` must be"),
        (json!({"memory": 1}), "`memory` must be"),
    ] {
        let text = save(&rig, id, body).await.error(400, "bad_request");
        assert!(text.contains(says), "{text}");
    }
    let snapshot = saved(&rig, id, json!({"memory": false})).await;
    for (body, field) in [
        (json!({"snapshot": snapshot, "memory": true}), "memory"),
        (json!({"snapshot": snapshot, "image": "host"}), "image"),
        (json!({"memory": true}), "memory"),
        (
            json!({"restore": id.as_str(), "snapshot": snapshot}),
            "snapshot",
        ),
    ] {
        let answer = rig.post("/v1/boxes", body).await;
        let json = answer.expect(400);
        assert_eq!(json["field"], field, "{json}");
    }
    save(&rig, id, json!({})).await.error(409, "too_many");
    let other = rig.other_account().await;
    let path = format!("/v1/boxes/{id}/snapshots");
    other.post(&path, json!({})).await.error(404, "not_found");
    let fork = format!("/v1/boxes/{id}/fork");
    other.post(&fork, json!({})).await.error(404, "not_found");
    let theirs = other.post("/v1/boxes", json!({"snapshot": snapshot})).await;
    theirs.error(404, "not_found");
    rig.stop(id).await.expect(200);
    self::fork(&rig, id, json!({})).await.error(410, "box_gone");
}

#[tokio::test]
async fn the_latest_of_a_name_has_it_alone() {
    let rig = Rig::new().await;
    let id = rig.ready_box().await;
    let first = saved(&rig, id, json!({"name": "x"})).await;
    let second = saved(&rig, id, json!({"name": "x:default"})).await;
    let names: Vec<_> = listed(&rig)
        .await
        .iter()
        .map(|it| it["name"].clone())
        .collect();
    assert_eq!(names, [json!("x"), Value::Null]);
    let found = rig.get("/v1/snapshots/x").await.expect(200);
    assert_eq!(found["id"], second);
    rig.get(&format!("/v1/snapshots/{first}")).await.expect(200);
}

#[tokio::test]
async fn a_failure_leaves_no_snapshot_and_a_box_that_goes_on() {
    let rig = Rig::new().await;
    let id = rig.ready_box().await;
    rig.exec(id, "remember me").await.expect(200);
    let fail = || Behaviour::Fail("the disk is full".to_owned());
    for (step, behaviour) in [
        (Step::Freeze, fail()),
        (Step::Freeze, Behaviour::Refuse("a fuse mount".to_owned())),
        (Step::Save, fail()),
        (
            Step::Save,
            Behaviour::ActAndFail("the disk is full".to_owned()),
        ),
        (Step::Save, Behaviour::Panic),
    ] {
        rig.fake.next(step, behaviour.clone());
        let failed = save(&rig, id, json!({})).await;
        failed.error(409, "snapshot_failed");
        rig.until(id, "ready").await;
        assert_eq!(recall(&rig, id).await, "me", "{behaviour:?}");
        assert_eq!(listed(&rig).await, Vec::<Value>::new());
        rig.fake.until_snapshots(0).await;
        rig.fake.next(step, behaviour);
        let failed = fork(&rig, id, json!({})).await;
        failed.error(409, "snapshot_failed");
        rig.until(id, "ready").await;
        rig.fake.until_snapshots(0).await;
    }
    // The files alone can be had although the memory cannot.
    let refuse = Behaviour::Refuse("a fuse mount".to_owned());
    rig.fake.next(Step::Freeze, refuse);
    let files = save(&rig, id, json!({"memory": false})).await.expect(201);
    assert_eq!(files["memory"], false);
}

#[tokio::test]
async fn a_snapshot_in_use_stays_until_the_box_has_begun() {
    let rig = Rig::new().await;
    let id = rig.ready_box().await;
    rig.exec(id, "remember me").await.expect(200);
    let snapshot = saved(&rig, id, json!({})).await;
    let gate = Gate::default();
    rig.fake
        .next(Step::Boot, Behaviour::HoldBefore(gate.clone()));
    let body = json!({"snapshot": snapshot, "wait": false});
    let new = id_of(&rig.post("/v1/boxes", body).await.expect(201));
    gate.reached().await;
    remove(&rig, &snapshot).await.expect(200);
    assert_eq!(rig.fake.count(Step::DropSnapshot), 0);
    gate.open();
    rig.until(new, "ready").await;
    assert_eq!(recall(&rig, new).await, "me");
    rig.fake.until_snapshots(0).await;
}

#[tokio::test]
async fn a_call_that_comes_meanwhile_waits_and_a_stop_wins() {
    let rig = Rig::new().await;
    let id = rig.ready_box().await;
    rig.exec(id, "remember me").await.expect(200);
    let gate = Gate::default();
    rig.fake
        .next(Step::Save, Behaviour::HoldBefore(gate.clone()));
    let client = rig.client();
    let path = format!("/v1/boxes/{id}/snapshots");
    let saving = tokio::spawn(async move { client.post(&path, json!({})).await });
    gate.reached().await;
    let client = rig.client();
    let calling = tokio::spawn(async move { client.exec(id, json!({"cmd": "recall"})).await });
    rig.until_called(id).await;
    gate.open();
    assert_eq!(calling.await.unwrap().expect(200)["stdout"], "me");
    saving.await.unwrap().expect(201);
    let gate = Gate::default();
    rig.fake
        .next(Step::Freeze, Behaviour::HoldBefore(gate.clone()));
    let client = rig.client();
    let path = format!("/v1/boxes/{id}/snapshots");
    let saving = tokio::spawn(async move { client.post(&path, json!({})).await });
    gate.reached().await;
    let client = rig.client();
    let path = format!("/v1/boxes/{id}/stop");
    let stopping = tokio::spawn(async move { client.post(&path, json!({})).await });
    saving.await.unwrap().error(409, "snapshot_failed");
    gate.open();
    stopping.await.unwrap().expect(200);
    rig.fake.until_snapshots(1).await;
}

#[tokio::test]
async fn a_server_that_went_down_over_one_leaves_it_whole_or_not_at_all() {
    for (step, hold) in [
        (Step::Freeze, Behaviour::HoldBefore as fn(Gate) -> Behaviour),
        (Step::Freeze, Behaviour::HoldAfter),
        (Step::Save, Behaviour::HoldBefore),
        (Step::Save, Behaviour::HoldAfter),
    ] {
        for act in ["snapshots", "fork"] {
            let mut rig = Rig::new().await;
            let id = rig.ready_box().await;
            rig.exec(id, "remember me").await.expect(200);
            let gate = Gate::default();
            rig.fake.next(step, hold(gate.clone()));
            let (client, path) = (rig.client(), format!("/v1/boxes/{id}/{act}"));
            drop(tokio::spawn(async move {
                client.post(&path, json!({})).await;
            }));
            gate.reached().await;
            rig.restart().await;
            rig.until(id, "ready").await;
            assert_eq!(recall(&rig, id).await, "me");
            // A freeze goes on, and with it a snapshot that somebody may still want.
            let whole = usize::from(step == Step::Freeze && act == "snapshots");
            rig.fake.until_snapshots(whole).await;
            while listed(&rig).await.len() != whole {}
        }
    }
}
