//! What the dashboard asks for: its page and parts, looking that is no use, the newest events, and terminals that only pages
//! of the server open.

use axum::http::Method;
use serde_json::{Value, json};

use crate::rig::{MIN, Rig};

#[tokio::test]
async fn the_page_is_there_for_everybody_and_lets_nothing_else_run() {
    let rig = Rig::new().await;
    let nobody = rig.client().with_key(None);
    for path in [
        "/",
        "/app",
        "/app/",
        "/app/boxes/abcdefghij0123456789",
        "/app/events",
    ] {
        let page = nobody.call(Method::GET, path, None).await;
        // 503 is the page that says how to build the dashboard.
        assert!(
            [200, 503].contains(&page.status.as_u16()),
            "{path}: {}",
            page.status
        );
        assert_eq!(
            page.headers["content-type"], "text/html; charset=utf-8",
            "{path}"
        );
        let policy = page.headers["content-security-policy"].to_str().unwrap();
        assert!(policy.contains("default-src 'none'"), "{policy}");
        assert!(!policy.contains("unsafe"), "{policy}");
        assert!(policy.contains("frame-ancestors 'none'"), "{policy}");
        assert_eq!(page.headers["x-content-type-options"], "nosniff");
        let text = String::from_utf8(page.bytes.to_vec()).unwrap();
        assert!(text.contains("<title>Icebox</title>"), "{text}");
    }
    let gone = nobody
        .call(Method::GET, "/app/assets/nosuch.js", None)
        .await;
    assert_eq!(gone.status, 404);
    let outside = nobody
        .call(Method::GET, "/app/..%2f..%2fCargo.toml", None)
        .await;
    let text = String::from_utf8_lossy(&outside.bytes).into_owned();
    assert!(
        !text.contains("[package]") && !text.contains("[workspace]"),
        "{text}"
    );
    let written = nobody.call(Method::POST, "/app", Some(json!({}))).await;
    assert_eq!(written.status, 405);
}

#[tokio::test]
async fn rule_4_14_looking_at_commands_and_output_is_no_use_and_wakes_nothing() {
    let rig = Rig::new().await;
    let id = rig.ready_box().await;
    let hang = json!({ "cmd": "hang", "background": true });
    let began = rig.client().exec(id, hang).await.expect(200);
    let output = began["outputUrl"].as_str().unwrap().to_owned();
    let used = rig.status(id).await["lastUsedAt"].clone();
    rig.advance(5 * MIN).await;
    let procs = format!("/v1/boxes/{id}/procs?look=1");
    let seen = rig.get(&procs).await.expect(200);
    assert_eq!(seen["procs"][0]["running"], true);
    assert_eq!(seen["asleep"], Value::Null);
    let text = rig.get(&format!("{output}?look=1")).await;
    assert_eq!(&text.bytes[..], b"hanging\n");
    let rest = rig.get(&format!("{output}?look=1&offset=4")).await;
    assert_eq!(&rest.bytes[..], b"ing\n");
    assert_eq!(rest.headers["x-icebox-offset"], "4");
    let after = rig.status(id).await;
    assert_eq!(after["lastUsedAt"], used, "looking is no use");
    assert_eq!(after["freeze"]["blockedBy"][0]["kind"], "background");

    rig.freeze(id).await.expect(200);
    let asleep = rig.get(&procs).await.expect(200);
    assert_eq!(
        (&asleep["procs"], &asleep["asleep"]),
        (&json!([]), &json!(true))
    );
    let nothing = rig.get(&format!("{output}?look=1")).await;
    assert_eq!((nothing.status.as_u16(), nothing.bytes.len()), (200, 0));
    assert_eq!(rig.state(id).await, "frozen");
    let follow = rig.get(&format!("{output}?look=1&follow=1")).await;
    let text = follow.error(400, "bad_request");
    assert!(text.contains("looking ends at once"), "{text}");
    rig.get(&format!("/v1/boxes/{id}/procs?look=yes"))
        .await
        .error(400, "bad_request");
}

#[tokio::test]
async fn the_newest_events_are_read_without_those_before() {
    let mut rig = Rig::new().await;
    let id = rig.ready_box().await;
    rig.freeze(id).await.expect(200);
    let stranger = rig.other_account().await;
    stranger.post("/v1/boxes", json!({})).await.expect(201);
    let kinds = async |query: &str| -> Vec<String> {
        let answer = rig.get(&format!("/v1/events{query}")).await;
        assert_eq!(answer.status, 200, "{query}");
        let text = String::from_utf8(answer.bytes.to_vec()).unwrap();
        let kind = |line: &str| {
            let event: Value = serde_json::from_str(line).unwrap();
            event["kind"].as_str().unwrap().to_owned()
        };
        text.lines().map(kind).collect()
    };
    let all = kinds("").await;
    assert_eq!(all, ["starting", "ready", "freezing", "frozen"]);
    assert_eq!(kinds("?last=2").await, all[2..]);
    assert_eq!(kinds("?last=1000").await, all);
    assert_eq!(kinds("?last=0").await, [""; 0]);
    let both = rig.get("/v1/events?last=1&since=0").await;
    assert!(both.error(400, "bad_request").contains("`last`"));
    rig.get("/v1/events?last=1001")
        .await
        .error(400, "bad_request");
}

#[tokio::test]
async fn a_list_says_when_it_was_true_and_what_is_kept() {
    let rig = Rig::new().await;
    let id = rig.frozen_box().await;
    rig.patch(id, json!({ "keep": true })).await.expect(200);
    rig.advance(MIN).await;
    let list = rig.get("/v1/boxes").await.expect(200);
    let now = rig.get("/v1/test/clock").await.expect(200);
    assert_eq!(list["at"], now["now"]);
    let kept = &list["boxes"][0];
    assert_eq!(
        (&kept["keep"], &kept["stopsAt"]),
        (&json!(true), &Value::Null)
    );
}

#[tokio::test]
async fn a_terminal_is_a_websocket_for_pages_of_this_server() {
    let rig = Rig::new().await;
    let id = rig.frozen_box().await;
    let path = format!("/v1/boxes/{id}/terminal");
    let plain = rig.get(&path).await.error(400, "bad_request");
    assert!(plain.contains("WebSocket"), "{plain}");
    let stranger = rig.client().with_header("origin", "http://evil.example");
    let refused = stranger.call(Method::GET, &path, None).await;
    refused.error(403, "forbidden");
    rig.get(&format!("{path}?cols=0"))
        .await
        .error(400, "bad_request");
    rig.get(&format!("{path}?rows=1001"))
        .await
        .error(400, "bad_request");
    assert_eq!(rig.state(id).await, "frozen", "nothing of that wakes it");
    let nobody = rig.client().with_key(None);
    let nobody = nobody.call(Method::GET, &path, None).await;
    assert_eq!(nobody.status, 401);
}
