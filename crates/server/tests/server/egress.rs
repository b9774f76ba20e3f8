//! What a box may reach outside: asked for, changed, kept; what the driver is told of it, and when.

use axum::http::Method;
use icebox_lifecycle::BoxId;
use icebox_server::config::PrivateAddresses;
use icebox_server::driver::Egress;
use icebox_server::driver::fake::{Behaviour, Step};
use icebox_wire::rest::EgressMode;
use serde_json::{Value, json};

use crate::rig::Rig;

fn only(ranges: &[&str]) -> Egress {
    Egress {
        allow: ranges.iter().map(|range| range.parse().unwrap()).collect(),
        ..Egress::default()
    }
}

async fn started(rig: &Rig, body: Value) -> BoxId {
    let view = rig.post("/v1/boxes", body).await.expect(201);
    BoxId::parse(view["id"].as_str().unwrap()).unwrap()
}

async fn patch(rig: &Rig, id: BoxId, egress: Value) -> crate::rig::Answer {
    let path = format!("/v1/boxes/{id}");
    let body = json!({ "egress": egress });
    rig.client().call(Method::PATCH, &path, Some(body)).await
}

async fn shown(rig: &Rig, id: BoxId) -> Value {
    rig.get(&format!("/v1/boxes/{id}")).await.expect(200)["egress"].clone()
}

#[tokio::test]
async fn a_box_reaches_what_its_start_says() {
    let rig = Rig::new().await;
    for (asked, shows, driver) in [
        (Value::Null, json!({"mode": "open"}), Egress::open()),
        (json!({}), json!({"mode": "open"}), Egress::open()),
        (
            json!({"mode": "none"}),
            json!({"mode": "none"}),
            Egress::default(),
        ),
        (
            json!({"allowOut": ["1.2.3.4/24"]}),
            json!({"mode": "none", "allowOut": ["1.2.3.0/24"]}),
            only(&["1.2.3.0/24"]),
        ),
        (
            json!({"allowOut": ["1.1.1.1"], "denyOut": ["0.0.0.0/0"]}),
            json!({"mode": "open", "allowOut": ["1.1.1.1"], "denyOut": ["0.0.0.0/0"]}),
            Egress {
                open: true,
                deny: only(&["0.0.0.0/0"]).allow,
                ..only(&["1.1.1.1"])
            },
        ),
    ] {
        let body = if asked.is_null() {
            json!({})
        } else {
            json!({ "egress": asked })
        };
        let id = started(&rig, body).await;
        assert_eq!(shown(&rig, id).await, shows);
        assert_eq!(rig.fake.egress(id), Some(driver));
    }
}

#[tokio::test]
async fn a_change_holds_at_once_and_is_no_use() {
    let rig = Rig::new().await;
    let id = started(&rig, json!({})).await;
    let before = rig.get(&format!("/v1/boxes/{id}")).await.expect(200);
    rig.advance(60).await;
    let view = patch(&rig, id, json!({"mode": "none"})).await.expect(200);
    assert_eq!(view["lastUsedAt"], before["lastUsedAt"]);
    assert_eq!(view["egress"], json!({"mode": "none"}));
    assert_eq!(rig.fake.egress(id), Some(Egress::default()));
    // The same again asks the driver for nothing.
    let asked = rig.fake.count(Step::Reach);
    patch(&rig, id, json!({"mode": "none"})).await.expect(200);
    assert_eq!(rig.fake.count(Step::Reach), asked);
}

#[tokio::test]
async fn a_frozen_box_is_not_woken_and_has_it_when_it_wakes() {
    let rig = Rig::new().await;
    let id = started(&rig, json!({})).await;
    let path = |what: &str| format!("/v1/boxes/{id}/{what}");
    rig.post(&path("freeze"), json!({})).await.expect(200);
    let view = patch(&rig, id, json!({"allowOut": ["1.1.1.1"]}))
        .await
        .expect(200);
    assert_eq!(view["status"], "frozen");
    assert_eq!(rig.fake.count(Step::Reach), 0);
    rig.exec(id, "true").await.expect(200);
    assert_eq!(rig.fake.egress(id), Some(only(&["1.1.1.1"])));
}

#[tokio::test]
async fn it_outlives_the_server_and_is_made_so_again() {
    let mut rig = Rig::new().await;
    let id = started(&rig, json!({"egress": {"allowOut": ["1.1.1.1"]}})).await;
    let asked = rig.fake.count(Step::Reach);
    rig.restart().await;
    rig.until(id, "ready").await;
    rig.exec(id, "true").await.expect(200);
    patch(&rig, id, json!({"allowOut": ["1.1.1.2"]}))
        .await
        .expect(200);
    assert!(rig.fake.count(Step::Reach) > asked + 1);
    assert_eq!(rig.fake.egress(id), Some(only(&["1.1.1.2"])));
}

#[tokio::test]
async fn forks_and_snapshots_have_it_too() {
    let rig = Rig::new().await;
    let id = started(&rig, json!({"egress": {"allowOut": ["1.1.1.1"]}})).await;
    let forked = rig.post(&format!("/v1/boxes/{id}/fork"), json!({})).await;
    let fork = forked.expect(201)["forks"][0]["box"]["id"]
        .as_str()
        .unwrap()
        .to_owned();
    let fork = BoxId::parse(&fork).unwrap();
    assert_eq!(rig.fake.egress(fork), Some(only(&["1.1.1.1"])));
    let path = format!("/v1/boxes/{id}/snapshots");
    let kept = rig.post(&path, json!({"name": "kept"})).await;
    kept.expect(201);
    for (body, reaches) in [
        (json!({"snapshot": "kept"}), only(&["1.1.1.1"])),
        (
            json!({"snapshot": "kept", "egress": {"mode": "none"}}),
            Egress::default(),
        ),
    ] {
        let id = started(&rig, body).await;
        assert_eq!(rig.fake.egress(id), Some(reaches));
    }
}

/// The news of ways out that were told.
async fn told(rig: &Rig) -> Vec<String> {
    let page = rig.get("/v1/events").await;
    assert_eq!(page.status, 200);
    let events = page.bytes.split(|byte| *byte == b'\n');
    let events = events.filter_map(|line| serde_json::from_slice::<Value>(line).ok());
    let of_way_out = events.filter(|event| event["kind"] == "egress");
    of_way_out
        .map(|event| {
            assert_eq!(
                (&event["rule"], &event["from"]),
                (&json!("5.12"), &Value::Null)
            );
            event["text"].as_str().unwrap().to_owned()
        })
        .collect()
}

#[tokio::test]
async fn a_change_that_cannot_be_made_says_so_and_is_tried_again() {
    let rig = Rig::new().await;
    let id = started(&rig, json!({})).await;
    rig.fake.break_way_out(Some("no rules"));
    let setting = json!({"allowOut": ["1.1.1.1"]});
    let text = patch(&rig, id, setting.clone())
        .await
        .error(503, "egress_failed");
    assert!(
        text.contains("no rules") && text.contains("tried again"),
        "{text}"
    );
    assert_eq!(rig.fake.egress(id), Some(Egress::default()));
    let egress = shown(&rig, id).await;
    assert_eq!(
        (&egress["mode"], &egress["allowOut"]),
        (&json!("none"), &json!(["1.1.1.1"]))
    );
    assert_eq!(egress["failure"]["error"], "no rules");
    // The very same is no change, and yet it is tried.
    let asked = rig.fake.count(Step::Reach);
    patch(&rig, id, setting).await.error(503, "egress_failed");
    assert_eq!(rig.fake.count(Step::Reach), asked + 1);
    // By itself it is, too; each reason is told once.
    rig.advance(60).await;
    assert!(rig.fake.count(Step::Reach) > asked + 2);
    rig.fake.break_way_out(None);
    rig.advance(60).await;
    assert_eq!(rig.fake.egress(id), Some(only(&["1.1.1.1"])));
    assert_eq!(
        shown(&rig, id).await,
        json!({"mode": "none", "allowOut": ["1.1.1.1"]})
    );
    let tried = rig.fake.count(Step::Reach);
    rig.advance(600).await;
    assert_eq!(
        rig.fake.count(Step::Reach),
        tried,
        "there was nothing to try"
    );
    assert_eq!(
        told(&rig).await,
        [
            "it reaches nothing outside, trying again: no rules",
            "it reaches outside what it may"
        ]
    );
}

#[tokio::test]
async fn a_change_that_the_driver_did_not_finish_counts_as_one_that_could_not_be_made() {
    let rig = Rig::new().await;
    let id = started(&rig, json!({})).await;
    for (behaviour, why) in [
        (Behaviour::Fail("it hangs".to_owned()), "it hangs"),
        (Behaviour::Panic, "broke down"),
    ] {
        rig.fake.next(Step::Reach, behaviour);
        let none = json!({"mode": "none"});
        let text = patch(&rig, id, none).await.error(503, "egress_failed");
        assert!(text.contains(why), "{text}");
        rig.advance(5).await;
        assert_eq!(rig.fake.egress(id), Some(Egress::default()));
        patch(&rig, id, json!({})).await.expect(200);
    }
}

#[tokio::test]
async fn a_box_starts_and_wakes_without_its_way_out_and_says_so() {
    let mut rig = Rig::new().await;
    rig.fake.break_way_out(Some("no nft"));
    let view = rig.post("/v1/boxes", json!({})).await.expect(201);
    let id = BoxId::parse(view["id"].as_str().unwrap()).unwrap();
    assert_eq!(
        (&view["status"], &view["egress"]["failure"]["error"]),
        (&json!("ready"), &json!("no nft"))
    );
    let notice = view["notices"][0].as_str().unwrap();
    assert!(
        notice.contains("reaches nothing outside") && notice.contains("no nft"),
        "{notice}"
    );
    let why = view["why"].as_array().unwrap();
    assert!(why.iter().any(|why| why["rule"] == "5.12"), "{view}");
    rig.fake.break_way_out(None);
    rig.advance(5).await;
    assert_eq!(shown(&rig, id).await, json!({"mode": "open"}));
    assert_eq!(rig.fake.egress(id), Some(Egress::open()));
    // A wake is as a start; while it is frozen, nothing is tried and nothing is wrong.
    rig.fake.break_way_out(Some("no nft"));
    let path = |what: &str| format!("/v1/boxes/{id}/{what}");
    rig.post(&path("freeze"), json!({})).await.expect(200);
    rig.exec(id, "true").await.expect(200);
    assert_eq!(shown(&rig, id).await["failure"]["error"], "no nft");
    rig.post(&path("freeze"), json!({})).await.expect(200);
    assert_eq!(shown(&rig, id).await, json!({"mode": "open"}));
    let tried = rig.fake.count(Step::Reach);
    rig.advance(60).await;
    assert_eq!(rig.fake.count(Step::Reach), tried);
    // It outlives the server, and so does the end of it.
    rig.exec(id, "true").await.expect(200);
    rig.restart().await;
    assert_eq!(shown(&rig, id).await["failure"]["error"], "no nft");
    rig.fake.break_way_out(None);
    rig.advance(300).await;
    assert_eq!(shown(&rig, id).await, json!({"mode": "open"}));
    // A box that may reach nothing lacks nothing.
    rig.fake.break_way_out(Some("no nft"));
    let closed = started(&rig, json!({"egress": {"mode": "none"}})).await;
    assert_eq!(shown(&rig, closed).await, json!({"mode": "none"}));
}

#[tokio::test]
async fn where_boxes_have_no_way_out() {
    let rig = Rig::new().await;
    rig.fake.no_way_out("there is no nft");
    let id = started(&rig, json!({})).await;
    assert_eq!(shown(&rig, id).await, json!({"mode": "none"}));
    started(&rig, json!({"egress": {"mode": "none"}})).await;
    let refused = rig.post("/v1/boxes", json!({"egress": {"mode": "open"}}));
    let text = refused.await.error(400, "bad_request");
    assert!(
        text.contains("egress.mode") && text.contains("there is no nft"),
        "{text}"
    );
}

#[tokio::test]
async fn the_server_sets_what_is_usual_and_who_reaches_private_networks() {
    let mut rig = Rig::new().await;
    rig.egress.default = EgressMode::None;
    rig.restart().await;
    let id = started(&rig, json!({})).await;
    assert_eq!(rig.fake.egress(id), Some(Egress::default()));
    let private = json!({"egress": {"allowOut": ["10.1.0.0/16"]}});
    started(&rig, private.clone()).await;
    rig.egress.private_addresses = PrivateAddresses::Nobody;
    rig.restart().await;
    let refused = rig.post("/v1/boxes", private).await;
    let text = refused.error(400, "bad_request");
    assert!(text.contains("10.1.0.0/16"), "{text}");
}

#[tokio::test]
async fn e2b_s_words_for_it() {
    let rig = Rig::new().await;
    let key = std::fs::read_to_string(rig.data().join("admin.key")).unwrap();
    let key = rig
        .client()
        .with_key(None)
        .with_header("x-api-key", key.trim());
    let open = Egress::open();
    let put = |id: String, body: Value| {
        let key = key.clone();
        async move {
            let path = format!("/sandboxes/{id}/network");
            key.call(Method::PUT, &path, Some(body)).await
        }
    };
    let create = |more: Value| {
        let key = key.clone();
        async move {
            let mut body = json!({"templateID": "base"});
            body.as_object_mut()
                .unwrap()
                .extend(more.as_object().unwrap().clone());
            let made = key.post("/v2/sandboxes", body).await.expect(201);
            BoxId::parse(made["sandboxID"].as_str().unwrap()).unwrap()
        }
    };
    let id = create(json!({})).await;
    assert_eq!(rig.fake.egress(id), Some(open.clone()));
    let id = create(json!({"allow_internet_access": false})).await;
    assert_eq!(rig.fake.egress(id), Some(Egress::default()));
    let lists = json!({"network": {"allowOut": ["1.1.1.1"], "denyOut": ["0.0.0.0/0", "::/0"]}});
    let id = create(lists).await;
    let both = Egress {
        open: true,
        deny: only(&["0.0.0.0/0"]).allow,
        ..only(&["1.1.1.1"])
    };
    assert_eq!(rig.fake.egress(id), Some(both));
    let done = put(id.to_string(), json!({"denyOut": ["8.8.8.8"]})).await;
    assert_eq!(done.status.as_u16(), 204);
    let denied = Egress {
        deny: only(&["8.8.8.8"]).allow,
        ..open.clone()
    };
    assert_eq!(rig.fake.egress(id), Some(denied));
    // What is left out is cleared.
    assert_eq!(put(id.to_string(), json!({})).await.status.as_u16(), 204);
    assert_eq!(rig.fake.egress(id), Some(open));
    for (status, body) in [
        (501, json!({"rules": {"example.com": [{}]}})),
        (501, json!({"egressProxy": {"address": "x"}})),
        (501, json!({"dnsServers": ["1.1.1.1"]})),
        (501, json!({"allowOut": ["example.com"]})),
        (501, json!({"allowOut": ["::/0"]})),
        (400, json!({"denyOut": ["example.com"]})),
    ] {
        assert_eq!(
            put(id.to_string(), body.clone()).await.status.as_u16(),
            status,
            "{body}"
        );
    }
}
