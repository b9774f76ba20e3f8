//! `GET /v1/events`: every change with its rule, in order, none lost over a restart, and nobody else's.

use axum::http::Method;
use icebox_lifecycle::BoxId;
use serde_json::{Value, json};

use crate::rig::{HOUR, MIN, Rig, RigClient, Stream};

/// Events as JSON lines, read to their end.
async fn events(client: &RigClient, query: &str) -> Vec<Value> {
    let path = format!("/v1/events{query}");
    let answer = client.call(Method::GET, &path, None).await;
    assert_eq!(answer.status, 200, "{}", answer.json);
    assert_eq!(answer.headers["content-type"], "application/x-ndjson");
    let text = String::from_utf8(answer.bytes.to_vec()).unwrap();
    let lines = text.lines().map(serde_json::from_str);
    lines.collect::<Result<_, _>>().unwrap()
}

fn of(events: &[Value], id: BoxId) -> Vec<(&str, &str)> {
    let of_box = events.iter().filter(|event| event["box"] == id.as_str());
    let told = of_box.map(|event| {
        let text = |field: &str| event[field].as_str().unwrap();
        (text("kind"), text("rule"))
    });
    told.collect()
}

/// The next server-sent event: its id, its kind and its data.
async fn sent(stream: &mut Stream) -> Option<(String, String, Value)> {
    let mut lines = Vec::new();
    loop {
        match stream.line().await? {
            line if line.is_empty() && !lines.is_empty() => break,
            line if line.is_empty() || line.starts_with(':') => {}
            line => lines.push(line),
        }
    }
    let field = |name: &str| {
        let mut found = lines.iter().filter_map(|line| line.strip_prefix(name));
        found.next().unwrap().to_owned()
    };
    let data = serde_json::from_str(&field("data: ")).unwrap();
    Some((field("id: "), field("event: "), data))
}

#[tokio::test]
async fn every_change_is_told_in_order_with_its_rule() {
    let rig = Rig::new().await;
    let id = rig.ready_box().await;
    rig.advance(10 * MIN).await;
    rig.exec(id, "true").await.expect(200);
    rig.freeze(id).await.expect(200);
    rig.stop(id).await.expect(200);
    let told = events(&rig.client(), "").await;
    let kinds = [
        ("starting", "2.1"),
        ("ready", "2.1"),
        ("freezing", "4.1"),
        ("frozen", "4.9"),
        ("thawing", "5.1"),
        ("ready", "5.2"),
        ("freezing", "2.1"),
        ("frozen", "4.9"),
        ("stopping", "6.6"),
        ("terminated", "6.11"),
    ];
    assert_eq!(of(&told, id), kinds, "{told:#?}");
    for two in told.windows(2) {
        assert!(two[0]["seq"].as_i64() < two[1]["seq"].as_i64(), "{two:?}");
        assert_eq!(two[0]["kind"], two[1]["from"]);
    }
    assert_eq!(told[0]["from"], Value::Null);
    let at =
        |index: usize| -> jiff::Timestamp { told[index]["at"].as_str().unwrap().parse().unwrap() };
    assert_eq!(at(2).duration_since(at(1)).as_secs(), 600);
    assert!(told[2]["text"].as_str().unwrap().contains("10 minutes"));
}

#[tokio::test]
async fn a_reader_goes_on_after_a_restart_and_misses_nothing() {
    let mut rig = Rig::new().await;
    let id = rig.ready_box().await;
    let first = events(&rig.client(), "?limit=1").await;
    assert_eq!(of(&first, id), [("starting", "2.1")]);
    rig.advance(10 * MIN).await;
    rig.restart().await;
    rig.exec(id, "true").await.expect(200);
    let mut all = first;
    loop {
        let since = all.last().unwrap()["seq"].as_i64().unwrap();
        let next = events(&rig.client(), &format!("?since={since}&limit=2")).await;
        if next.is_empty() {
            break;
        }
        assert!(next.len() <= 2);
        all.extend(next);
    }
    assert_eq!(all, events(&rig.client(), "").await);
    assert_eq!(all, events(&rig.client(), "?since=0").await);
    let kinds: Vec<&str> = of(&all, id).into_iter().map(|(kind, _)| kind).collect();
    let expected = [
        "starting", "ready", "freezing", "frozen", "thawing", "ready",
    ];
    assert_eq!(kinds, expected);
}

#[tokio::test]
async fn server_sent_events_go_on_and_are_resumed_by_their_id() {
    let rig = Rig::new().await;
    let client = rig.client().with_header("accept", "text/event-stream");
    let mut stream = client.open("/v1/events").await;
    assert_eq!(stream.content_type, "text/event-stream");
    let id = rig.ready_box().await;
    let (starting, kind, data) = sent(&mut stream).await.unwrap();
    assert_eq!((&*kind, &data["box"]), ("starting", &json!(id.as_str())));
    assert_eq!(data["seq"].to_string(), starting);
    assert_eq!(sent(&mut stream).await.unwrap().1, "ready");
    rig.advance(10 * MIN).await;
    assert_eq!(sent(&mut stream).await.unwrap().1, "freezing");
    assert_eq!(sent(&mut stream).await.unwrap().1, "frozen");
    // The id a browser sends wins over the address it was given at first.
    let resumed = client.with_header("last-event-id", &starting);
    let mut resumed = resumed.open("/v1/events?since=0").await;
    assert_eq!(sent(&mut resumed).await.unwrap().1, "ready");
}

#[tokio::test]
async fn followed_lines_come_as_it_happens_and_end_with_the_server() {
    let rig = Rig::new().await;
    let client = rig.client();
    let mut lines = client.open("/v1/events?follow=true").await;
    let mut few = client.open("/v1/events?follow=true&limit=3").await;
    let id = rig.ready_box().await;
    rig.freeze(id).await.expect(200);
    let kind = |line: Option<String>| {
        let event: Value = serde_json::from_str(&line.unwrap()).unwrap();
        event["kind"].as_str().unwrap().to_owned()
    };
    for expected in ["starting", "ready", "freezing", "frozen"] {
        assert_eq!(kind(lines.line().await), expected);
    }
    for expected in ["starting", "ready", "freezing"] {
        assert_eq!(kind(few.line().await), expected);
    }
    assert_eq!(few.line().await, None, "that was as many as it wanted");
    rig.commands().end_streams();
    assert_eq!(lines.line().await, None);
}

#[tokio::test]
async fn an_account_sees_its_own_boxes_only() {
    let mut rig = Rig::new().await;
    let other = rig.other_account().await;
    rig.ready_box().await;
    assert_eq!(events(&other, "").await, [] as [Value; 0]);
    let mut follow = other.open("/v1/events?follow=true").await;
    let id = rig.ready_box().await;
    let own = other.post("/v1/boxes", json!({})).await.expect(201);
    let line = follow.line().await.unwrap();
    let event: Value = serde_json::from_str(&line).unwrap();
    assert_eq!(event["box"], own["id"], "it is told of nothing in between");
    for event in events(&other, "").await {
        assert_eq!(event["box"], own["id"]);
    }
    assert_eq!(of(&events(&rig.client(), "").await, id).len(), 2);
}

#[tokio::test]
async fn events_that_are_not_kept_any_more_are_refused_and_not_passed_over() {
    let rig = Rig::new().await;
    let old = rig.ready_box().await;
    rig.advance(8 * 24 * HOUR).await;
    let id = rig.ready_box().await;
    let gone = rig.get("/v1/events?since=0").await;
    let oldest = gone.json["oldest"].as_i64().unwrap();
    let text = gone.error(410, "events_gone");
    assert!(text.contains("7 days"), "{text}");
    let kept = events(&rig.client(), &format!("?since={}", oldest - 1)).await;
    assert_eq!(kept[0]["seq"], oldest);
    assert_eq!(kept, events(&rig.client(), "").await);
    assert_eq!(of(&kept, id), [("starting", "2.1"), ("ready", "2.1")]);
    assert!(of(&kept, old).len() < 5, "{kept:#?}");
}

#[tokio::test]
async fn questions_that_do_not_fit_are_refused() {
    let rig = Rig::new().await;
    rig.ready_box().await;
    let newest = events(&rig.client(), "").await.last().unwrap()["seq"].clone();
    let none = events(&rig.client(), &format!("?since={newest}")).await;
    assert_eq!(none, [] as [Value; 0]);
    for query in [
        "since=99",
        "since=-1",
        "since=x",
        "limit=0",
        "limit=1001",
        "follow=2",
        "to=1",
    ] {
        let answer = rig.get(&format!("/v1/events?{query}")).await;
        answer.error(400, "bad_request");
    }
    let resumed = rig.client().with_header("last-event-id", "x");
    let answer = resumed.call(Method::GET, "/v1/events", None).await;
    assert!(answer.error(400, "bad_request").contains("Last-Event-ID"));
    let nobody = rig.client().with_key(None);
    let answer = nobody.call(Method::GET, "/v1/events", None).await;
    answer.error(401, "unauthorized");
}
