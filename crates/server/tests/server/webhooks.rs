//! Webhooks against a real endpoint: signed, at least once, in order for each box, across a restart; and what is refused.

use std::collections::HashMap;

use axum::http::Method;
use axum::response::IntoResponse as _;
use icebox_server::config::{PrivateAddresses, WebhookSettings};
use serde_json::{Value, json};

use crate::receiver::{Got, Receiver, status};
use crate::rig::{HOUR, MIN, Rig, RigClient};

const SECRET: &str = "whsec_MDEyMzQ1Njc4OWFiY2RlZmdoaWprbG1u";

/// Makes a webhook to this endpoint; gives its id.
async fn hook(rig: &Rig, receiver: &Receiver, more: Value) -> String {
    let mut body = json!({ "url": receiver.url });
    let fields = more.as_object().unwrap().clone();
    body.as_object_mut().unwrap().extend(fields);
    let made = rig.post("/v1/webhooks", body).await.expect(201);
    made["id"].as_str().unwrap().to_owned()
}

fn kinds(got: &[Got]) -> Vec<&str> {
    got.iter().map(|got| got.event().1).collect()
}

async fn deliveries(rig: &Rig, hook: &str) -> Vec<Value> {
    let path = format!("/v1/webhooks/{hook}/deliveries");
    let answer = rig.get(&path).await.expect(200);
    answer["deliveries"].as_array().unwrap().clone()
}

/// Asks until the deliveries are so; no time passes meanwhile.
async fn until(rig: &Rig, hook: &str, so: impl Fn(&[Value]) -> bool) -> Vec<Value> {
    loop {
        let list = deliveries(rig, hook).await;
        if so(&list) {
            return list;
        }
    }
}

/// Until the oldest delivery that waits was tried so often: while time moves it may be tried more often.
async fn until_tried(rig: &Rig, hook: &str, tries: u64) -> Value {
    let oldest = |list: &[Value]| {
        let mut waiting = list.iter().rev();
        waiting.find(|one| one["state"] == "waiting").cloned()
    };
    let list = until(rig, hook, |list| {
        oldest(list).is_some_and(|one| one["tries"].as_u64() >= Some(tries))
    });
    oldest(&list.await).unwrap()
}

async fn all_delivered(rig: &Rig, hook: &str) -> Vec<Value> {
    let over = |list: &[Value]| list.iter().all(|one| one["state"] == "delivered");
    until(rig, hook, over).await
}

async fn patch(rig: &Rig, hook: &str, body: Value) -> Value {
    let path = format!("/v1/webhooks/{hook}");
    let answer = rig.client().call(Method::PATCH, &path, Some(body)).await;
    answer.expect(200)
}

#[tokio::test]
async fn every_event_is_posted_once_signed_and_in_order() {
    let rig = Rig::new().await;
    let mut receiver = Receiver::new().await;
    let before = rig.ready_box().await;
    let id = hook(&rig, &receiver, json!({ "secret": SECRET })).await;
    let new = rig.ready_box().await;
    rig.freeze(new).await.expect(200);
    let got = receiver.next_of(new.as_str(), 4).await;
    assert_eq!(kinds(&got), ["starting", "ready", "freezing", "frozen"]);
    let mut ids = Vec::new();
    for got in &got {
        assert!(got.is_signed_by(SECRET), "{got:?}");
        assert_eq!(got.method, Method::POST);
        assert_eq!(got.header("content-type"), "application/json");
        assert!(receiver.url.contains(got.header("host")));
        let sent_at: i64 = got.header("webhook-timestamp").parse().unwrap();
        let off = icebox_server::clock::machine_now().0 / 1_000 - sent_at;
        assert!((0..300).contains(&off), "{off} s by the machine's clock");
        ids.push(got.header("webhook-id").to_owned());
    }
    let lines = rig.get("/v1/events").await.bytes;
    let lines = String::from_utf8(lines.to_vec()).unwrap();
    let events = lines.lines().map(serde_json::from_str::<Value>);
    let events: Vec<Value> = events.map(Result::unwrap).collect();
    for (got, event) in got.iter().zip(&events[2..]) {
        assert_eq!(&got.json["data"], event, "the same as /v1/events tells");
        assert_eq!(got.json["timestamp"], event["at"]);
        let kind = format!("box.{}", event["kind"].as_str().unwrap());
        assert_eq!(got.json["type"], json!(kind));
    }
    let list = all_delivered(&rig, &id).await;
    let listed: Vec<_> = list.iter().rev().map(|one| one["id"].clone()).collect();
    assert_eq!(json!(listed), json!(ids));
    for one in &list {
        assert_eq!((&one["tries"], &one["status"]), (&json!(1), &json!(200)));
        assert_ne!(one["box"], before.as_str(), "that was before");
    }
    assert_eq!(kinds(&receiver.rest()), [] as [&str; 0]);
}

#[tokio::test]
async fn a_box_waits_for_its_own_failures_and_others_go_on() {
    let rig = Rig::new().await;
    let mut receiver = Receiver::answering(|_| status(500)).await;
    let id = hook(&rig, &receiver, json!({ "secret": SECRET })).await;
    let stuck = rig.ready_box().await;
    let first = receiver.next().await;
    assert_eq!(first.event(), (stuck.as_str(), "starting"));
    let tried = until_tried(&rig, &id, 1).await;
    assert_eq!(tried["status"], 500);
    assert_eq!(tried["error"], "it answered 500");
    receiver.answer({
        let stuck = stuck.as_str().to_owned();
        move |got| status(if got.event().0 == stuck { 500 } else { 200 })
    });
    let other = rig.ready_box().await;
    let others = receiver.next_of(other.as_str(), 2).await;
    assert_eq!(kinds(&others), ["starting", "ready"]);
    for tries in 2..5 {
        rig.advance(20 * MIN).await;
        until_tried(&rig, &id, tries).await;
    }
    receiver.answer(|_| status(200));
    rig.advance(5 * HOUR).await;
    all_delivered(&rig, &id).await;
    let got = receiver.rest();
    let got: Vec<Got> = got
        .into_iter()
        .filter(|got| got.event().0 == stuck.as_str())
        .collect();
    let tries = got.iter().take_while(|got| got.event().1 == "starting");
    for again in tries {
        assert_eq!(again.header("webhook-id"), first.header("webhook-id"));
        assert_eq!(again.body, first.body);
        assert!(again.is_signed_by(SECRET));
    }
    let mut order = kinds(&got);
    assert!(order.len() >= 7, "{order:?}");
    order.dedup();
    assert_eq!(order, ["starting", "ready", "freezing", "frozen"]);
}

#[tokio::test]
async fn many_boxes_with_failures_at_random_each_hear_everything_in_order() {
    let rig = Rig::new().await;
    let mut seen: HashMap<String, u32> = HashMap::new();
    let mut receiver = Receiver::answering(move |got| {
        let tries = seen.entry(got.header("webhook-id").to_owned()).or_default();
        *tries += 1;
        let seq = got.json["data"]["seq"].as_u64().unwrap();
        status(if u64::from(*tries) <= seq % 3 {
            503
        } else {
            200
        })
    })
    .await;
    let id = hook(&rig, &receiver, json!({})).await;
    let mut boxes = Vec::new();
    for _ in 0..12 {
        let small = json!({ "size": { "memoryMb": 512 } });
        boxes.push(rig.box_with(small).await);
    }
    for id in &boxes {
        rig.freeze(*id).await.expect(200);
    }
    let list = until(&rig, &id, |list| list.len() == 48);
    list.await;
    loop {
        let list = deliveries(&rig, &id).await;
        if list.iter().all(|one| one["state"] == "delivered") {
            break;
        }
        rig.advance(MIN).await;
    }
    let got = receiver.rest();
    for id in &boxes {
        let of_box = got.iter().filter(|got| got.event().0 == id.as_str());
        let mut order: Vec<&str> = of_box.map(|got| got.event().1).collect();
        order.dedup();
        assert_eq!(order, ["starting", "ready", "freezing", "frozen"]);
    }
    assert!(got.len() > 60, "there were failures: {}", got.len());
}

#[tokio::test]
async fn a_killed_server_repeats_what_was_under_way_and_loses_nothing() {
    let mut rig = Rig::new().await;
    let mut receiver = Receiver::answering(|_| None).await;
    let id = hook(&rig, &receiver, json!({})).await;
    let new = rig.ready_box().await;
    let cut_off = receiver.next().await;
    rig.kill().await;
    receiver.answer(|_| status(200));
    rig.start().await;
    let got = receiver.next_of(new.as_str(), 2).await;
    assert_eq!(kinds(&got), ["starting", "ready"]);
    assert_eq!(got[0].header("webhook-id"), cut_off.header("webhook-id"));
    rig.freeze(new).await.expect(200);
    let got = receiver.next_of(new.as_str(), 2).await;
    assert_eq!(kinds(&got), ["freezing", "frozen"]);
    assert_eq!(all_delivered(&rig, &id).await.len(), 4);
}

#[tokio::test]
async fn a_wait_between_tries_outlives_the_server() {
    let mut rig = Rig::new().await;
    let mut receiver = Receiver::answering(|_| status(500)).await;
    let id = hook(&rig, &receiver, json!({})).await;
    let new = rig.ready_box().await;
    let tried = until_tried(&rig, &id, 1).await;
    receiver.next().await;
    receiver.answer(|_| status(200));
    rig.restart().await;
    let after = until_tried(&rig, &id, 1).await;
    assert_eq!(after["nextTryAt"], tried["nextTryAt"]);
    rig.advance(MIN).await;
    let got = receiver.next_of(new.as_str(), 2).await;
    assert_eq!(kinds(&got), ["starting", "ready"]);
}

#[tokio::test]
async fn an_endpoint_that_says_it_is_gone_is_left_alone_until_it_is_enabled_again() {
    let rig = Rig::new().await;
    let mut receiver = Receiver::answering(|_| status(410)).await;
    let id = hook(&rig, &receiver, json!({})).await;
    let first = rig.ready_box().await;
    receiver.next().await;
    let list = until(&rig, &id, |list| {
        !list.is_empty() && list.iter().all(|one| one["state"] == "given_up")
    });
    let mut list = list.await;
    let tried = list.pop().unwrap();
    assert_eq!(
        (&tried["status"], &tried["tries"]),
        (&json!(410), &json!(1))
    );
    // Whether the next event was in line already depends on who was faster.
    assert!(list.iter().all(|one| one["tries"] == 0), "{list:#?}");
    let shown = rig.get(&format!("/v1/webhooks/{id}")).await.expect(200);
    assert_eq!(shown["enabled"], false);
    assert!(shown["disabledReason"].as_str().unwrap().contains("410"));
    rig.freeze(first).await.expect(200);
    receiver.answer(|_| status(200));
    let shown = patch(&rig, &id, json!({ "enabled": true })).await;
    assert_eq!(shown["enabled"], true);
    assert_eq!(shown.get("disabledReason"), None);
    let second = rig.ready_box().await;
    let got = receiver.next().await;
    assert_eq!(
        got.event(),
        (second.as_str(), "starting"),
        "not what was before"
    );
}

#[tokio::test]
async fn a_filter_lets_through_what_it_names() {
    let rig = Rig::new().await;
    let (one, other) = (rig.ready_box().await, rig.ready_box().await);
    let mut by_kind = Receiver::new().await;
    let mut by_box = Receiver::new().await;
    hook(&rig, &by_kind, json!({ "kinds": ["frozen", "terminated"] })).await;
    let second = hook(&rig, &by_box, json!({ "box": one.as_str() })).await;
    for id in [one, other] {
        rig.freeze(id).await.expect(200);
    }
    rig.stop(other).await.expect(200);
    rig.stop(one).await.expect(200);
    let mut got = Vec::new();
    for _ in 0..4 {
        let message = by_kind.next().await;
        got.push((message.event().0.to_owned(), message.event().1.to_owned()));
    }
    for id in [one, other] {
        let of_box = got.iter().filter(|(of, _)| of == id.as_str());
        let order: Vec<&str> = of_box.map(|(_, kind)| &**kind).collect();
        assert_eq!(order, ["frozen", "terminated"]);
    }
    let list = until(&rig, &second, |list| {
        list.first()
            .is_some_and(|newest| newest["kind"] == "terminated" && newest["state"] == "delivered")
    });
    assert!(
        list.await
            .iter()
            .all(|delivery| delivery["box"] == one.as_str())
    );
    let order = by_box.rest();
    assert_eq!(
        kinds(&order),
        ["freezing", "frozen", "stopping", "terminated"]
    );
    // From now on something else.
    patch(&rig, &second, json!({ "box": null, "kinds": ["ready"] })).await;
    let third = rig.ready_box().await;
    assert_eq!(by_box.next().await.event(), (third.as_str(), "ready"));
}

#[tokio::test]
async fn an_endpoint_that_never_answers_holds_up_no_other_webhook_and_no_box() {
    let rig = Rig::new().await;
    let dead = Receiver::answering(|_| None).await;
    let mut alive = Receiver::new().await;
    hook(&rig, &dead, json!({})).await;
    hook(&rig, &alive, json!({})).await;
    for _ in 0..20 {
        let id = rig.ready_box().await;
        rig.freeze(id).await.expect(200);
        let got = alive.next_of(id.as_str(), 4).await;
        assert_eq!(kinds(&got), ["starting", "ready", "freezing", "frozen"]);
    }
}

#[tokio::test]
async fn an_endpoint_that_asks_for_time_gets_it() {
    let rig = Rig::new().await;
    let busy = |_: &Got| {
        Some(
            (
                axum::http::StatusCode::TOO_MANY_REQUESTS,
                [("retry-after", "1000")],
            )
                .into_response(),
        )
    };
    let mut receiver = Receiver::answering(busy).await;
    let id = hook(&rig, &receiver, json!({ "kinds": ["starting"] })).await;
    let at = |value: &Value| value.as_str().unwrap().parse::<jiff::Timestamp>().unwrap();
    rig.ready_box().await;
    receiver.next().await;
    let tried = until_tried(&rig, &id, 1).await;
    let wait = at(&tried["nextTryAt"]).as_second() - at(&tried["triedAt"]).as_second();
    assert_eq!(wait, 1_000);
    receiver.answer(|_| status(200));
    let held = rig.ready_box().await;
    until(&rig, &id, |list| list.len() == 2).await;
    rig.advance(999).await;
    assert_eq!(kinds(&receiver.rest()), [] as [&str; 0]);
    rig.advance(1).await;
    receiver.next_of(held.as_str(), 1).await;
    all_delivered(&rig, &id).await;
}

#[tokio::test]
async fn after_a_day_an_event_is_given_up_and_the_next_one_has_its_turn() {
    let rig = Rig::new().await;
    let receiver = Receiver::answering(|_| status(404)).await;
    let id = hook(&rig, &receiver, json!({ "kinds": ["starting", "ready"] })).await;
    rig.ready_box().await;
    let (mut tries, mut hours) = (0, 0);
    loop {
        let list = until(&rig, &id, |list| {
            let tried = |one: &Value| one["tries"].as_u64() > Some(tries);
            list.len() == 2 && (tried(&list[1]) || list[1]["state"] == "given_up")
        });
        let list = list.await;
        tries = list[1]["tries"].as_u64().unwrap();
        if list[1]["state"] == "given_up" {
            assert_eq!(list[1].get("nextTryAt"), None);
            break;
        }
        assert_eq!(list[0]["tries"], 0, "the next one waits");
        rig.advance(5 * HOUR).await;
        hours += 5;
    }
    assert!((4..40).contains(&tries), "{tries}");
    assert!((24..35).contains(&hours), "{hours}");
    until(&rig, &id, |list| list[0]["tries"].as_u64() > Some(0)).await;
}

#[tokio::test]
async fn a_test_message_is_sent_at_once_and_once_and_says_what_came_of_it() {
    let rig = Rig::new().await;
    let mut receiver = Receiver::new().await;
    let body = json!({ "url": receiver.url, "enabled": false });
    let made = rig.post("/v1/webhooks", body).await.expect(201);
    let path = format!("/v1/webhooks/{}/test", made["id"].as_str().unwrap());
    let tested = rig.post(&path, json!({})).await.expect(200);
    assert_eq!(
        (&tested["ok"], &tested["status"]),
        (&json!(true), &json!(200))
    );
    let got = receiver.next().await;
    assert_eq!(got.json["type"], "webhook.test");
    assert_eq!(tested["id"], got.header("webhook-id"));
    assert!(got.is_signed_by(made["secret"].as_str().unwrap()));
    receiver.answer(|_| status(302));
    let tested = rig.post(&path, json!({})).await.expect(200);
    assert_eq!(tested["ok"], false);
    assert!(tested["error"].as_str().unwrap().contains("redirects"));
    drop(receiver);
    let tested = rig.post(&path, json!({})).await.expect(200);
    assert_eq!((&tested["ok"], tested.get("status")), (&json!(false), None));
}

#[tokio::test]
async fn a_secret_is_shown_when_the_server_makes_it_and_never_again() {
    let rig = Rig::new().await;
    let mut receiver = Receiver::new().await;
    let body = json!({ "url": receiver.url });
    let made = rig.post("/v1/webhooks", body).await.expect(201);
    let (id, first) = (
        made["id"].as_str().unwrap(),
        made["secret"].as_str().unwrap(),
    );
    let given = json!({ "url": receiver.url, "secret": SECRET, "enabled": false });
    let given = rig.post("/v1/webhooks", given).await.expect(201);
    assert_eq!(given.get("secret"), None, "who gave it has it");
    rig.ready_box().await;
    assert!(receiver.next().await.is_signed_by(first));
    assert!(receiver.next().await.is_signed_by(first));
    let all = all_delivered(&rig, id).await;
    let shown = patch(&rig, id, json!({ "secret": null })).await;
    let second = shown["secret"].as_str().unwrap();
    assert_ne!(second, first);
    rig.ready_box().await;
    assert!(receiver.next().await.is_signed_by(second));
    let shown = patch(&rig, id, json!({ "secret": SECRET })).await;
    assert_eq!(shown.get("secret"), None);
    let list = rig.get("/v1/webhooks").await.expect(200);
    let one = rig.get(&format!("/v1/webhooks/{id}")).await.expect(200);
    let everything = format!("{list}{one}{}", json!(all));
    for secret in [first, second, SECRET, "secret"] {
        assert!(!everything.contains(secret), "{everything}");
    }
}

#[tokio::test]
async fn only_the_admins_account_reaches_private_addresses_unless_it_is_allowed() {
    let mut rig = Rig::new().await;
    let other = rig.other_account().await;
    let mut receiver = Receiver::new().await;
    let port = receiver.url.rsplit(':').next().unwrap().to_owned();
    let make = async |client: &RigClient, host: &str| {
        let body = json!({ "url": format!("http://{host}:{port}") });
        client.post("/v1/webhooks", body).await
    };
    for host in [
        "127.0.0.1",
        "10.0.0.1",
        "169.254.169.254",
        "[::1]",
        "[::ffff:10.0.0.1]",
    ] {
        let text = make(&other, host).await.error(400, "bad_request");
        assert!(text.contains("public internet"), "{text}");
    }
    // A name is looked up when something is sent.
    for host in ["localhost", "127.1", "0x7f000001", "2130706433"] {
        let made = make(&other, host).await.expect(201);
        let path = format!("/v1/webhooks/{}/test", made["id"].as_str().unwrap());
        let tested = other.post(&path, json!({})).await.expect(200);
        assert_eq!(tested["ok"], false, "{host}");
        assert!(
            tested["error"]
                .as_str()
                .unwrap()
                .contains("public internet"),
            "{tested}"
        );
    }
    assert_eq!(receiver.rest().len(), 0);
    let test_of = |made: &Value| format!("/v1/webhooks/{}/test", made["id"].as_str().unwrap());
    let own = make(&rig.client(), "127.0.0.1").await.expect(201);
    assert_eq!(
        rig.post(&test_of(&own), json!({})).await.expect(200)["ok"],
        true
    );
    receiver.next().await;
    for (allowed, of_admin, of_other) in [
        (PrivateAddresses::Everyone, true, true),
        (PrivateAddresses::Nobody, false, false),
    ] {
        rig.kill().await;
        rig.webhooks = WebhookSettings {
            private_addresses: allowed,
        };
        rig.start().await;
        let key = format!("e2b_{}", "b".repeat(40));
        let other = rig.client().with_key(Some(&key));
        let answer = rig.post(&test_of(&own), json!({})).await.expect(200);
        assert_eq!(answer["ok"], of_admin, "{answer}");
        let status = make(&other, "127.0.0.1").await.status;
        assert_eq!(status == 201, of_other, "{status}");
    }
}

#[tokio::test]
async fn webhooks_are_their_accounts_own_and_not_too_many() {
    let mut rig = Rig::new().await;
    let other = rig.other_account().await;
    let mut receiver = Receiver::new().await;
    let id = hook(&rig, &receiver, json!({})).await;
    let own_box = rig.ready_box().await;
    receiver.next_of(own_box.as_str(), 2).await;
    for (method, path, body) in [
        (Method::GET, format!("/v1/webhooks/{id}"), None),
        (
            Method::PATCH,
            format!("/v1/webhooks/{id}"),
            Some(json!({ "enabled": false })),
        ),
        (Method::DELETE, format!("/v1/webhooks/{id}"), None),
        (
            Method::POST,
            format!("/v1/webhooks/{id}/test"),
            Some(json!({})),
        ),
        (Method::GET, format!("/v1/webhooks/{id}/deliveries"), None),
    ] {
        let answer = other.call(method.clone(), &path, body.clone()).await;
        answer.error(404, "not_found");
        let nobody = rig.client().with_key(None);
        nobody
            .call(method, &path, body)
            .await
            .error(401, "unauthorized");
    }
    let of_another = json!({ "url": "https://hooks.example/", "box": own_box.as_str() });
    other
        .post("/v1/webhooks", of_another)
        .await
        .error(404, "not_found");
    assert_eq!(
        other
            .call(Method::GET, "/v1/webhooks", None)
            .await
            .expect(200),
        json!({ "webhooks": [] })
    );
    other.post("/v1/boxes", json!({})).await.expect(201);
    for _ in 1..20 {
        hook(&rig, &receiver, json!({ "enabled": false })).await;
    }
    let body = json!({ "url": receiver.url });
    let text = rig
        .post("/v1/webhooks", body.clone())
        .await
        .error(409, "too_many");
    assert!(text.contains("at most 20"), "{text}");
    let path = format!("/v1/webhooks/{id}");
    rig.client()
        .call(Method::DELETE, &path, None)
        .await
        .expect(200);
    rig.client()
        .call(Method::DELETE, &path, None)
        .await
        .error(404, "not_found");
    rig.post("/v1/webhooks", body).await.expect(201);
    let last = rig.ready_box().await;
    let got = receiver.next().await;
    assert_eq!(
        got.event().0,
        last.as_str(),
        "nothing of another account's box"
    );
}

#[tokio::test]
async fn what_does_not_fit_is_refused_by_name() {
    let rig = Rig::new().await;
    let long = format!("http://a/{}", "x".repeat(2_000));
    let url = "https://hooks.example/";
    for (field, body) in [
        ("url", json!({})),
        ("url", json!({ "url": "" })),
        ("url", json!({ "url": 1 })),
        ("url", json!({ "url": "ftp://a/" })),
        ("url", json!({ "url": "http://user:pass@a/" })),
        ("url", json!({ "url": "http://a/ b" })),
        ("url", json!({ "url": "http://a/\r\nx: y" })),
        ("url", json!({ "url": long })),
        ("kinds", json!({ "url": url, "kinds": ["melted"] })),
        ("kinds", json!({ "url": url, "kinds": ["ready", "ready"] })),
        ("kinds", json!({ "url": url, "kinds": ["ready,frozen"] })),
        ("kinds", json!({ "url": url, "kinds": "ready" })),
        ("secret", json!({ "url": url, "secret": "" })),
        ("secret", json!({ "url": url, "secret": "whsec_AAAA" })),
        (
            "secret",
            json!({ "url": url, "secret": "0123456789abcdefghijklmnopqrstuv" }),
        ),
        ("enabled", json!({ "url": url, "enabled": "yes" })),
        ("colour", json!({ "url": url, "colour": "red" })),
    ] {
        let answer = rig.post("/v1/webhooks", body.clone()).await;
        let text = answer.error(400, "bad_request");
        assert!(text.contains(&format!("`{field}`")), "{body}: {text}");
    }
    let nobody = json!({ "url": url, "box": "x".repeat(20) });
    rig.post("/v1/webhooks", nobody)
        .await
        .error(404, "not_found");
    let made = rig
        .post("/v1/webhooks", json!({ "url": url, "enabled": false }))
        .await
        .expect(201);
    let path = format!("/v1/webhooks/{}", made["id"].as_str().unwrap());
    for body in [
        json!({ "url": "http://a@b/" }),
        json!({ "url": "http://ok.example/", "kinds": ["melted"] }),
        json!({ "url": "http://ok.example/", "secret": "x" }),
        json!({ "id": "wh_1" }),
    ] {
        let answer = rig.client().call(Method::PATCH, &path, Some(body)).await;
        answer.error(400, "bad_request");
    }
    let shown = rig.get(&path).await.expect(200);
    assert_eq!(shown["url"], url, "all of a change or nothing");
    for query in ["limit=0", "limit=1001", "limit=x", "since=1"] {
        let answer = rig.get(&format!("{path}/deliveries?{query}")).await;
        answer.error(400, "bad_request");
    }
    for id in [
        "wh_0000000000000000",
        "..",
        "%00",
        "'; DROP TABLE webhooks; --",
    ] {
        let id = id.replace(' ', "%20");
        let answer = rig.get(&format!("/v1/webhooks/{id}")).await;
        answer.error(404, "not_found");
    }
}
