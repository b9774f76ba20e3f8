//! `Idempotency-Key` of the E2B dialect: one sandbox for each key, however often it is asked for, and whatever happens in
//! between.

use icebox_lifecycle::BoxId;
use icebox_server::driver::fake::{Behaviour, Gate, Step};
use serde_json::{Value, json};

use crate::e2b::client;
use crate::rig::{Answer, HOUR, Rig, RigClient};

fn body() -> Value {
    json!({"templateID": "base", "timeout": HOUR, "metadata": {"a": "b"}})
}

async fn create(client: &RigClient, key: &str, body: Value) -> Answer {
    let client = client.clone().with_header("idempotency-key", key);
    client.post("/v2/sandboxes", body).await
}

async fn listed(rig: &Rig) -> usize {
    let listed = rig.get("/v1/boxes?all=1").await.expect(200);
    listed["boxes"].as_array().unwrap().len()
}

#[tokio::test]
async fn the_same_request_gets_the_same_sandbox_and_another_one_is_refused() {
    let mut rig = Rig::new().await;
    let client = client(&rig);
    let made = create(&client, "k-1", body()).await.expect(201);
    assert_eq!(create(&client, "k-1", body()).await.expect(201), made);
    let other = create(&client, "k-2", body()).await.expect(201);
    assert_ne!(other["sandboxID"], made["sandboxID"]);
    assert_eq!(listed(&rig).await, 2);
    let refused = create(&client, "k-1", json!({"templateID": "base"})).await;
    assert_eq!(refused.headers["should-retry"], "false");
    let refused = refused.expect(422);
    assert_eq!(refused["error_code"], "idempotency_request_mismatch");
    assert_eq!(refused["code"], 422);
    for key in ["", "Upper", "a_b", "a b", &"a".repeat(256)] {
        let refused = create(&client, key, body()).await.expect(400);
        let text = refused["message"].as_str().unwrap();
        assert!(
            text.contains("`Idempotency-Key` must be 1 to 255"),
            "{text}"
        );
    }
    create(&client, &"a".repeat(255), body()).await.expect(201);
    let their_key = format!("e2b_{}", "b".repeat(40));
    let theirs = rig.other_account().await.with_key(None);
    let theirs = theirs.with_header("x-api-key", &their_key);
    let theirs = create(&theirs, "k-1", body()).await.expect(201);
    assert_ne!(theirs["sandboxID"], made["sandboxID"]);
}

#[tokio::test]
async fn a_key_is_good_for_a_day_even_if_its_sandbox_ended() {
    let rig = Rig::new().await;
    let client = client(&rig);
    let made = create(&client, "k", body()).await.expect(201);
    rig.advance(24 * HOUR - 1).await;
    assert_eq!(create(&client, "k", body()).await.expect(201), made);
    let info = format!("/sandboxes/{}", made["sandboxID"].as_str().unwrap());
    let gone = client.call(axum::http::Method::GET, &info, None).await;
    gone.expect(404);
    rig.advance(1).await;
    let fresh = create(&client, "k", body()).await.expect(201);
    assert_ne!(fresh["sandboxID"], made["sandboxID"]);
}

#[tokio::test]
async fn those_who_ask_while_it_starts_get_that_one_even_after_the_first_hung_up() {
    let rig = Rig::new().await;
    let client = client(&rig);
    let gate = Gate::default();
    rig.fake
        .next(Step::Boot, Behaviour::HoldBefore(gate.clone()));
    let asking = |client: &RigClient| {
        let client = client.clone();
        tokio::spawn(async move { create(&client, "k", body()).await.expect(201) })
    };
    let first = asking(&client);
    gate.reached().await;
    let others = [asking(&client), asking(&client)];
    first.abort();
    gate.open();
    let mut ids = Vec::new();
    for other in others {
        ids.push(other.await.unwrap()["sandboxID"].clone());
    }
    assert_eq!(ids[0], ids[1]);
    assert_eq!(rig.fake.count(Step::Boot), 1);
    assert_eq!(listed(&rig).await, 1);
}

#[tokio::test]
async fn a_server_that_was_killed_in_the_middle_makes_no_second_one() {
    for hold in [Behaviour::HoldBefore, Behaviour::HoldAfter] {
        let mut rig = Rig::new().await;
        let asking = client(&rig);
        let gate = Gate::default();
        rig.fake.next(Step::Boot, hold(gate.clone()));
        drop(tokio::spawn(async move {
            create(&asking, "k", body()).await;
        }));
        gate.reached().await;
        rig.restart().await;
        let made = create(&client(&rig), "k", body()).await.expect(201);
        assert_eq!(listed(&rig).await, 1);
        let id = BoxId::parse(made["sandboxID"].as_str().unwrap()).unwrap();
        assert_eq!(rig.state(id).await, "ready");
    }
}

#[tokio::test]
async fn what_failed_may_be_asked_again() {
    let rig = Rig::new().await;
    let client = client(&rig);
    let unknown = json!({"templateID": "nobody-made-this"});
    create(&client, "k", unknown).await.expect(404);
    let broken = Behaviour::Refuse("no such image".to_owned());
    rig.fake.next(Step::Boot, broken);
    let failed = create(&client, "k", body()).await.expect(500);
    assert_eq!(failed["error_code"], "sandbox_create_failed");
    let made = create(&client, "k", body()).await.expect(201);
    assert_eq!(create(&client, "k", body()).await.expect(201), made);
}
