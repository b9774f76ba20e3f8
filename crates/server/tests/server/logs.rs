//! Application logs: projects and their keys, what pages and programs may send, what is found again, and hostile senders.

use std::fmt::Write as _;

use axum::http::Method;
use serde_json::{Value, json};

use crate::mcp::Agent;
use crate::rig::{Answer, HOUR, Rig, RigClient};

/// Two pieces of a minified script, and where they come from.
const MAP: &str = r#"{"version": 3, "sources": ["src/pay.ts"], "names": ["fail"], "mappings": "aAME,wBAGFA",
    "sourcesContent": ["the secret source"]}"#;
const STACK: &str = "Error: boom\n    at a (https://app.example/assets/app.js:1:20)\n    at https://app.example/assets/app.js:1:38";
const RESOLVED: &str = "Error: boom\n    at fail (src/pay.ts:7:3)\n    at src/pay.ts:10:1";

struct Project {
    id: String,
    key: String,
}

async fn project(rig: &Rig, body: Value) -> Project {
    let made = rig.post("/v1/projects", body).await.expect(201);
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    Project {
        id: text(&made["project"]["id"]),
        key: text(&made["writeKey"]),
    }
}

/// A program without a key of the API.
fn sender(rig: &Rig) -> RigClient {
    rig.client().with_key(None)
}

async fn send(rig: &Rig, project: &Project, events: Value) -> Answer {
    let body = json!({ "key": project.key, "events": events });
    sender(rig).post("/v1/logs", body).await
}

async fn logged(rig: &Rig, project: &Project, events: Value) {
    let count = events.as_array().unwrap().len();
    let taken = send(rig, project, events).await.expect(200);
    assert_eq!(taken["accepted"], count);
}

fn path(project: &Project, below: &str, query: &[(&str, &str)]) -> String {
    let mut path = format!("/v1/projects/{}/logs{below}?", project.id);
    for (name, value) in query {
        let value: String = form_urlencoded::byte_serialize(value.as_bytes()).collect();
        write!(path, "{name}={value}&").unwrap();
    }
    path.pop();
    path
}

async fn found(rig: &Rig, project: &Project, query: &[(&str, &str)]) -> Value {
    rig.get(&path(project, "", query)).await.expect(200)
}

fn messages(answer: &Value) -> Vec<&str> {
    let rows = answer["rows"].as_array().unwrap().iter();
    rows.map(|row| row["msg"].as_str().unwrap()).collect()
}

/// A part of an upload: its name and its content.
type Part<'p> = (&'p str, &'p [u8]);

/// An upload with these parts.
async fn upload(rig: &Rig, project: &Project, parts: &[Part<'_>]) -> Answer {
    let mut body = Vec::new();
    for (name, content) in parts {
        let head = format!("--cut\r\ncontent-disposition: form-data; name=\"{name}\"\r\n\r\n");
        body.extend_from_slice(head.as_bytes());
        body.extend_from_slice(content);
        body.extend_from_slice(b"\r\n");
    }
    body.extend_from_slice(b"--cut--\r\n");
    let client = rig
        .client()
        .with_header("content-type", "multipart/form-data; boundary=cut");
    let path = format!("/v1/projects/{}/sourcemaps", project.id);
    client.raw(Method::POST, &path, body).await
}

#[tokio::test]
async fn a_project_is_made_its_key_changed_and_removed() {
    let mut rig = Rig::new().await;
    let shop = project(&rig, json!({"name": "shop"})).await;
    assert!(shop.id.starts_with("prj_") && shop.key.starts_with("psw_"));
    let port = rig.address().port();
    let shown = rig.get("/v1/projects/shop").await.expect(200);
    assert_eq!(
        shown["origins"],
        json!([format!("http://*.localhost:{port}")])
    );
    let again = rig.post("/v1/projects", json!({"name": "shop"})).await;
    assert!(again.error(400, "bad_request").contains("new"));
    for (field, body) in [
        ("name", json!({})),
        ("name", json!({"name": ""})),
        ("name", json!({"name": "prj_shop"})),
        ("name", json!({"name": "a/b"})),
        ("name", json!({"name": "a".repeat(61)})),
        ("origins", json!({"name": "a", "origins": ["*"]})),
        (
            "origins",
            json!({"name": "a", "origins": ["https://a.example/x"]}),
        ),
        (
            "origins",
            json!({"name": "a", "origins": vec!["https://a.example"; 21]}),
        ),
        (
            "origins",
            json!({"name": "a", "origins": "https://a.example"}),
        ),
        ("colour", json!({"name": "a", "colour": "red"})),
    ] {
        let refused = rig.post("/v1/projects", body.clone()).await;
        assert_eq!(refused.json["field"], field, "{body}: {}", refused.json);
        refused.error(400, "bad_request");
    }
    logged(&rig, &shop, json!([{"msg": "one"}])).await;
    let rotated = rig
        .post("/v1/projects/shop/rotate", json!({}))
        .await
        .expect(200);
    assert_eq!(rotated["project"]["id"], shop.id);
    send(&rig, &shop, json!([{"msg": "old"}]))
        .await
        .error(401, "unauthorized");
    let shop = Project {
        key: rotated["writeKey"].as_str().unwrap().to_owned(),
        ..shop
    };
    logged(&rig, &shop, json!([{"msg": "two"}])).await;
    let stranger = rig.other_account().await;
    for below in ["", "/logs", "/logs/errors", "/logs/tail?waitSec=0"] {
        let path = format!("/v1/projects/{}{below}", shop.id);
        stranger
            .call(Method::GET, &path, None)
            .await
            .error(404, "not_found");
    }
    let listed = stranger
        .call(Method::GET, "/v1/projects", None)
        .await
        .expect(200);
    assert_eq!(listed["projects"], json!([]));
    assert_eq!(
        messages(&found(&rig, &shop, &[]).await),
        ["one", "two"],
        "after a restart, too"
    );
    logged(&rig, &shop, json!([{"msg": "three"}])).await;
    for file in ["logs.db", "logs.db-wal"] {
        let bytes = std::fs::read(rig.data().join(file)).unwrap();
        let key = shop.key.as_bytes();
        assert!(
            !bytes.windows(key.len()).any(|part| part == key),
            "{file} has the key"
        );
    }
    let path = format!("/v1/projects/{}", shop.id);
    rig.client()
        .call(Method::DELETE, &path, None)
        .await
        .expect(200);
    rig.get(&path).await.error(404, "not_found");
    send(&rig, &shop, json!([{"msg": "late"}]))
        .await
        .error(401, "unauthorized");
    let anew = project(&rig, json!({"name": "shop"})).await;
    assert_eq!(messages(&found(&rig, &anew, &[]).await), [""; 0]);
}

#[tokio::test]
async fn only_pages_of_the_projects_origins_may_send() {
    let rig = Rig::new().await;
    let origins = json!(["https://app.example", "https://*.app.example"]);
    let shop = project(&rig, json!({"name": "shop", "origins": origins})).await;
    let body = json!({"events": [{"msg": "from a page"}]});
    let with_key = format!("/v1/logs?key={}", shop.key);
    for (origin, may) in [
        ("https://app.example", true),
        ("https://eu.app.example", true),
        ("https://evil.example", false),
        ("http://app.example", false),
        ("null", false),
        ("", false),
    ] {
        let page = sender(&rig).with_header("origin", origin);
        let asked = page.call(Method::OPTIONS, &with_key, None).await;
        let allowed = |answer: &Answer| {
            let header = answer.headers.get("access-control-allow-origin");
            header.map(|value| value.to_str().unwrap().to_owned())
        };
        assert_eq!(asked.status, 204);
        let expected = may.then(|| origin.to_owned());
        assert_eq!(allowed(&asked), expected, "{origin}");
        assert_eq!(
            asked.headers.contains_key("access-control-allow-headers"),
            may
        );
        // As a page that closes sends it.
        let beacon = page
            .clone()
            .with_header("content-type", "text/plain;charset=UTF-8");
        let sent = beacon.post(&with_key, body.clone()).await;
        assert_eq!(allowed(&sent), expected, "{origin}");
        assert_eq!(sent.status, if may { 200 } else { 403 }, "{origin}");
        let broken = page.raw(Method::POST, &with_key, b"{".to_vec()).await;
        assert_eq!(
            allowed(&broken),
            expected,
            "a page may read what is wrong, too"
        );
        let anonymous = page.call(Method::OPTIONS, "/v1/logs", None).await;
        assert_eq!(allowed(&anonymous), expected, "{origin}");
    }
    assert_eq!(messages(&found(&rig, &shop, &[]).await).len(), 2);
    for key in [
        "",
        "psw_",
        &format!("psw_{}", "0".repeat(40)),
        &"x".repeat(5_000),
    ] {
        let refused = sender(&rig)
            .with_key(Some(key))
            .post("/v1/logs", body.clone())
            .await;
        refused.error(401, "unauthorized");
    }
    sender(&rig)
        .post("/v1/logs", body.clone())
        .await
        .error(401, "unauthorized");
    let program = sender(&rig).with_key(Some(&shop.key));
    program.post("/v1/logs", body).await.expect(200);
    // A write key reads nothing.
    let read = program.call(Method::GET, "/v1/projects", None).await;
    read.error(401, "unauthorized");
}

#[tokio::test]
async fn the_collector_is_for_every_page() {
    let rig = Rig::new().await;
    let script = sender(&rig).call(Method::GET, "/logs.js", None).await;
    assert_eq!(script.status, 200);
    assert_eq!(
        script.headers["content-type"],
        "text/javascript; charset=utf-8"
    );
    assert_eq!(
        script.headers["cross-origin-resource-policy"],
        "cross-origin"
    );
    assert!(script.bytes.len() < 12_000);
    let tag = script.headers["etag"].to_str().unwrap();
    let again = sender(&rig).with_header("if-none-match", tag);
    let again = again.call(Method::GET, "/logs.js", None).await;
    assert_eq!((again.status.as_u16(), again.bytes.len()), (304, 0));
}

#[tokio::test]
async fn what_was_logged_is_found_again() {
    let rig = Rig::new().await;
    let shop = project(&rig, json!({"name": "shop"})).await;
    let id = rig.frozen_box().await;
    let port = rig.address().port();
    let page = sender(&rig).with_header("origin", &format!("http://web-{id}.localhost:{port}"));
    let batch = json!({
        "key": shop.key, "release": "1.2", "user": "ann", "session": "s1", "device": "d1",
        "url": "https://app.example/cart", "sentAt": 10_000, "box": "b".repeat(20),
        "events": [
            {"msg": "page shown", "at": 7_000, "name": "view", "extra": {"ms": 420}},
            {"msg": "no such coupon", "level": "warn", "at": 9_000},
            {"msg": "boom", "level": "error", "name": "error", "stack": STACK},
        ],
    });
    page.post("/v1/logs", batch).await.expect(200);
    rig.advance(2 * 60).await;
    logged(&rig, &shop, json!([{"msg": "from a program"}])).await;
    let all = found(&rig, &shop, &[]).await;
    assert_eq!(all["nextCursor"], Value::Null);
    assert_eq!(
        messages(&all),
        ["page shown", "no such coupon", "boom", "from a program"]
    );
    let row = &all["rows"][2];
    let expected = json!({
        "time": row["time"], "level": "error", "name": "error", "msg": "boom", "release": "1.2",
        "box": id.as_str(), "user": "ann", "session": "s1", "device": "d1", "url": "https://app.example/cart",
        "stack": STACK,
    });
    assert_eq!(
        *row, expected,
        "the page's own box counts, not what it says"
    );
    let time = |at: usize| -> jiff::Timestamp {
        all["rows"][at]["time"].as_str().unwrap().parse().unwrap()
    };
    let apart = |one, other| time(other).as_millisecond() - time(one).as_millisecond();
    assert_eq!(
        (apart(0, 1), apart(0, 2), apart(0, 3)),
        (2_000, 3_000, 123_000)
    );
    let table: &[(&[(&str, &str)], usize)] = &[
        (&[("query", "COUPON")], 1),
        (&[("query", "?coupon ?boom")], 2),
        (&[("query", "-page -program")], 2),
        (&[("query", "%^(info|warn) %")], 3),
        (&[("query", "{ $.extra.ms > 400 && $.user = a* }")], 1),
        (&[("name", "view")], 1),
        (&[("name", "*")], 4),
        (&[("user", "ann"), ("session", "s1"), ("device", "d1")], 3),
        (&[("user", "bob")], 0),
        (&[("boxId", id.as_str())], 3),
        (&[("since", "60s")], 1),
        (&[("since", "2m")], 2),
        (&[("since", "30m"), ("query", "boom")], 1),
        (&[("since", "0")], 4),
    ];
    for (query, count) in table {
        assert_eq!(
            messages(&found(&rig, &shop, query).await).len(),
            *count,
            "{query:?}"
        );
    }
    let (mut cursor, mut seen) = (None::<String>, Vec::new());
    loop {
        let mut query = vec![("limit", "3"), ("query", "-coupon")];
        query.extend(cursor.as_deref().map(|cursor| ("cursor", cursor)));
        let page = found(&rig, &shop, &query).await;
        seen.extend(messages(&page).into_iter().map(str::to_owned));
        match page["nextCursor"].as_str() {
            Some(next) => cursor = Some(next.to_owned()),
            None => break,
        }
    }
    assert_eq!(seen, ["page shown", "boom", "from a program"]);
    let errors = rig
        .get(&path(&shop, "/errors", &[("boxId", id.as_str())]))
        .await
        .expect(200);
    assert_eq!(messages(&errors), ["boom"]);
    for (below, query, field) in [
        ("", ("limit", "0"), "limit"),
        ("", ("limit", "1001"), "limit"),
        ("", ("limit", "many"), "limit"),
        ("", ("since", "yesterday"), "since"),
        ("", ("cursor", "7"), "cursor"),
        ("", ("query", "[a]"), "query"),
        ("", ("boxId", "B"), "boxId"),
        ("", ("colour", "red"), "colour"),
        ("/errors", ("query", "a"), "query"),
        ("/errors", ("limit", "1001"), "limit"),
        ("/tail", ("waitSec", "26"), "waitSec"),
        ("/tail", ("since", "1h"), "since"),
        ("/tail", ("cursor", "x"), "cursor"),
    ] {
        let refused = rig.get(&path(&shop, below, &[query])).await;
        assert_eq!(refused.json["field"], field, "{below} {query:?}");
        refused.error(400, "bad_request");
    }
    let status = rig.status(id).await;
    assert_eq!(
        status["status"], "frozen",
        "none of this wakes a box or is use of it"
    );
}

#[tokio::test]
async fn a_tail_waits_for_what_comes() {
    let rig = Rig::new().await;
    let shop = project(&rig, json!({"name": "shop"})).await;
    logged(&rig, &shop, json!([{"msg": "before"}])).await;
    let begin = rig
        .get(&path(&shop, "/tail", &[("waitSec", "0")]))
        .await
        .expect(200);
    assert_eq!(messages(&begin), [""; 0]);
    let wait = |cursor: &Value, query: &str| {
        let cursor = cursor.as_str().unwrap();
        let path = path(
            &shop,
            "/tail",
            &[("waitSec", "25"), ("cursor", cursor), ("query", query)],
        );
        let client = rig.client();
        tokio::spawn(async move { client.call(Method::GET, &path, None).await.expect(200) })
    };
    let waiting = wait(&begin["cursor"], "");
    logged(&rig, &shop, json!([{"msg": "first"}])).await;
    let first = waiting.await.unwrap();
    assert_eq!(messages(&first), ["first"]);
    let waiting = wait(&first["cursor"], "wanted");
    logged(&rig, &shop, json!([{"msg": "other"}])).await;
    logged(&rig, &shop, json!([{"msg": "other"}, {"msg": "wanted"}])).await;
    let second = waiting.await.unwrap();
    assert_eq!(messages(&second), ["wanted"]);
    let cursor = second["cursor"].as_str().unwrap();
    let nothing = path(&shop, "/tail", &[("waitSec", "0"), ("cursor", cursor)]);
    assert_eq!(messages(&rig.get(&nothing).await.expect(200)), [""; 0]);
    let waiting = wait(&second["cursor"], "");
    rig.commands().end_streams();
    let ended = waiting.await.unwrap();
    assert_eq!(
        ended,
        json!({"rows": [], "cursor": cursor}),
        "a server that ends lets nobody wait"
    );
}

#[tokio::test]
async fn stacks_are_resolved_with_the_maps_that_are_there() {
    let rig = Rig::new().await;
    let shop = project(&rig, json!({"name": "shop"})).await;
    let report = |release: &str| {
        json!({
            "key": shop.key, "release": release,
            "events": [{"msg": "boom", "level": "error", "stack": STACK}],
        })
    };
    sender(&rig)
        .post("/v1/logs", report("1.2"))
        .await
        .expect(200);
    let map = ("/assets/app.js.map", MAP.as_bytes());
    let added = upload(&rig, &shop, &[("release", b"1.2"), map])
        .await
        .expect(200);
    assert_eq!(
        added,
        json!({"release": "1.2", "paths": ["/assets/app.js"]})
    );
    for release in ["1.2", "1.3"] {
        sender(&rig)
            .post("/v1/logs", report(release))
            .await
            .expect(200);
    }
    let errors = rig.get(&path(&shop, "/errors", &[])).await.expect(200);
    let resolved: Vec<_> = errors["rows"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| &row["stackResolved"])
        .collect();
    assert_eq!(
        resolved,
        [&Value::Null, &json!(RESOLVED), &Value::Null],
        "a map is for its release, and what comes later"
    );
    let hit = found(&rig, &shop, &[("query", "pay.ts:7")]).await;
    assert_eq!(messages(&hit).len(), 1);
    let files =
        ["logs.db", "logs.db-wal"].map(|file| std::fs::read(rig.data().join(file)).unwrap());
    let source = b"the secret source";
    let kept = files
        .iter()
        .any(|bytes| bytes.windows(source.len()).any(|part| part == source));
    assert!(!kept, "sources are not kept");
}

#[tokio::test]
async fn maps_that_are_none_are_refused_whole() {
    let mut rig = Rig::new().await;
    rig.logs.project_maps_mb = 1;
    rig.restart().await;
    let shop = project(&rig, json!({"name": "shop"})).await;
    let good = ("/a.js", MAP.as_bytes());
    let release: Part<'_> = ("release", b"1");
    let bomb = format!(
        r#"{{"version":3,"sources":["a"],"mappings":"{}"}}"#,
        ";".repeat(2_000_001)
    );
    let large = format!(
        r#"{{"version":3,"sources":["{}"],"mappings":"AAAA"}}"#,
        "a".repeat(1 << 20)
    );
    let long = "r".repeat(101);
    let table: &[(&[Part<'_>], u16, &str)] = &[
        (&[release, good, ("/b.js", b"not json")], 400, "/b.js"),
        (&[release, good, ("/b.js", bomb.as_bytes())], 400, "/b.js"),
        (&[release, good, ("/b.js", large.as_bytes())], 413, ""),
        (&[release, ("b.js", MAP.as_bytes())], 400, "files"),
        (&[release], 400, "files"),
        (&[good], 400, "release"),
        (&[("release", b""), good], 400, "release"),
        (&[("release", b"\xff"), good], 400, "release"),
        (&[("release", long.as_bytes()), good], 400, "release"),
    ];
    for (parts, status, field) in table {
        let refused = upload(&rig, &shop, parts).await;
        assert_eq!(refused.status.as_u16(), *status, "{}", refused.json);
        assert_eq!(
            refused.json["field"].as_str().unwrap_or_default(),
            *field,
            "{}",
            refused.json
        );
    }
    let uploads = format!("/v1/projects/{}/sourcemaps", shop.id);
    rig.post(&uploads, json!({}))
        .await
        .error(400, "bad_request");
    let cut_off = rig
        .client()
        .with_header("content-type", "multipart/form-data; boundary=cut");
    let cut_off = cut_off
        .raw(Method::POST, &uploads, b"--cut\r\ncontent".to_vec())
        .await;
    assert!(cut_off.error(400, "bad_request").contains("malformed"));
    let report = json!({
        "key": shop.key, "release": "1", "events": [{"msg": "boom", "stack": "at a (https://x.example/a.js:1:20)"}],
    });
    sender(&rig)
        .post("/v1/logs", report.clone())
        .await
        .expect(200);
    upload(&rig, &shop, &[release, good]).await.expect(200);
    sender(&rig).post("/v1/logs", report).await.expect(200);
    let rows = found(&rig, &shop, &[]).await;
    let resolved: Vec<_> = rows["rows"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row["stackResolved"].is_string())
        .collect();
    assert_eq!(
        resolved,
        [false, true],
        "nothing of a refused upload is kept"
    );
}

#[tokio::test]
async fn hostile_senders_are_told_and_bounded() {
    let rig = Rig::new().await;
    let shop = project(&rig, json!({"name": "shop"})).await;
    let program = sender(&rig).with_key(Some(&shop.key));
    let deep = format!(
        r#"{{"events":[{{"extra":{}1{}}}]}}"#,
        "[".repeat(5_000),
        "]".repeat(5_000)
    );
    let table: &[(&str, &str)] = &[
        ("", ""),
        ("not json", ""),
        ("[]", ""),
        ("{}", "events"),
        (r#"{"events":[]}"#, "events"),
        (r#"{"events":{}}"#, "events"),
        (r#"{"events":[7]}"#, "events[0]"),
        (r#"{"events":[{"msg":7}]}"#, "events[0].msg"),
        (r#"{"events":[{"level":"fatal"}]}"#, "events[0].level"),
        (r#"{"events":[{"at":"now"}]}"#, "events[0].at"),
        (r#"{"events":[{"colour":"red"}]}"#, "colour"),
        (r#"{"events":[{}],"box":"x"}"#, "box"),
        (&deep, ""),
    ];
    for (body, field) in table {
        let refused = program
            .raw(Method::POST, "/v1/logs", body.as_bytes().to_vec())
            .await;
        let shown: String = body.chars().take(60).collect();
        assert_eq!(
            refused.json["field"].as_str().unwrap_or_default(),
            *field,
            "{shown}: {}",
            refused.json
        );
        refused.error(400, "bad_request");
    }
    let many = json!({ "events": vec![json!({"msg": "a"}); 501] });
    assert!(
        program
            .post("/v1/logs", many)
            .await
            .error(400, "bad_request")
            .contains("500")
    );
    let all = json!({ "events": vec![json!({"msg": "one of 10,000 events"}); 10_000] });
    assert!(
        program
            .post("/v1/logs", all)
            .await
            .error(413, "too_large")
            .contains("262144")
    );
    let stack = "at a (https://x.example/a.js:1:1)\n".repeat(3_000);
    let long = json!([{
        "msg": "m\u{0}é".repeat(10_000), "name": "n".repeat(1_000), "stack": stack, "extra": "e".repeat(9_000),
    }]);
    logged(&rig, &shop, long).await;
    let row = &found(&rig, &shop, &[]).await["rows"][0];
    let len = |field: &str| row[field].as_str().unwrap().chars().count();
    assert_eq!(
        (len("msg"), len("name"), len("stack")),
        (8_000, 100, 16_000)
    );
    assert_eq!(row["extra"]["cut"].as_str().unwrap().chars().count(), 4_000);
}

#[tokio::test]
async fn a_project_sends_so_much_and_no_more() {
    let rig = Rig::new().await;
    let shop = project(&rig, json!({"name": "shop"})).await;
    let calm = project(&rig, json!({"name": "calm"})).await;
    let batch = json!(vec![json!({"msg": "one of 10,000"}); 500]);
    let mut refused = Vec::new();
    for _ in 0..20 {
        let answer = send(&rig, &shop, batch.clone()).await;
        if answer.status != 200 {
            refused.push(answer.headers["retry-after"].to_str().unwrap().to_owned());
            answer.error(429, "busy");
        }
    }
    assert_eq!(
        refused,
        vec!["5"; 10],
        "5,000 at once, and 100 more each second"
    );
    logged(&rig, &calm, json!([{"msg": "another project"}])).await;
    rig.advance(5).await;
    logged(&rig, &shop, batch).await;
    let (mut cursor, mut count) = (String::new(), 0);
    loop {
        let mut query = vec![("limit", "1000")];
        query.extend((!cursor.is_empty()).then_some(("cursor", &*cursor)));
        let page = found(&rig, &shop, &query).await;
        count += messages(&page).len();
        match page["nextCursor"].as_str() {
            Some(next) => cursor = next.to_owned(),
            None => break,
        }
    }
    assert_eq!(count, 5_500);
}

#[tokio::test]
async fn what_is_old_or_too_much_goes() {
    let mut rig = Rig::new().await;
    rig.logs.project_mb = 1;
    rig.logs.keep_days = 2;
    rig.restart().await;
    let shop = project(&rig, json!({"name": "shop"})).await;
    for index in 0..8 {
        let row = json!({"msg": format!("row {index}"), "extra": "x".repeat(7_000)});
        logged(&rig, &shop, json!(vec![row; 25])).await;
    }
    let bytes = loop {
        let shown = rig.get("/v1/projects/shop").await.expect(200);
        let bytes = shown["bytes"].as_u64().unwrap();
        if bytes <= 1 << 20 {
            break bytes;
        }
    };
    assert!(bytes > 900_000, "no more than needed goes: {bytes}");
    let rows = found(&rig, &shop, &[("limit", "1000")]).await;
    let rows = messages(&rows);
    assert_eq!(rows.last(), Some(&"row 7"));
    assert!(!rows.contains(&"row 0"), "the oldest go first");
    rig.advance(24 * HOUR).await;
    assert!(!messages(&found(&rig, &shop, &[("since", "2d")]).await).is_empty());
    rig.advance(24 * HOUR + 1).await;
    assert_eq!(
        messages(&found(&rig, &shop, &[("since", "30d")]).await),
        [""; 0]
    );
}

#[tokio::test]
async fn agents_read_logs() {
    let rig = Rig::new().await;
    let shop = project(&rig, json!({"name": "shop"})).await;
    let agent = Agent::new(&rig, "one");
    let listed = agent.ask("tools/list", json!({})).await;
    let tools = listed["result"]["tools"].as_array().unwrap();
    for name in ["logs_search", "logs_errors", "logs_tail"] {
        let tool = tools.iter().find(|tool| tool["name"] == name).unwrap();
        assert_eq!(tool["annotations"]["readOnlyHint"], true, "{name}");
        assert_eq!(
            tool["inputSchema"]["required"],
            json!(["project"]),
            "{name}"
        );
    }
    let begin = agent
        .works("logs_tail", json!({"project": "shop", "waitSec": 0}))
        .await;
    logged(
        &rig,
        &shop,
        json!([{"msg": "hello"}, {"msg": "boom", "level": "error"}]),
    )
    .await;
    let came = agent
        .works(
            "logs_tail",
            json!({"project": shop.id, "cursor": begin["cursor"]}),
        )
        .await;
    assert_eq!(messages(&came), ["hello", "boom"]);
    let query =
        json!({"project": "shop", "query": "{ $.level = \"error\" }", "since": 0, "limit": 5});
    assert_eq!(messages(&agent.works("logs_search", query).await), ["boom"]);
    let errors = agent
        .works("logs_errors", json!({"project": "shop", "since": "5m"}))
        .await;
    assert_eq!(messages(&errors), ["boom"]);
    for (tool, arguments, field) in [
        ("logs_search", json!({}), "project"),
        ("logs_search", json!({"project": 7}), "project"),
        (
            "logs_search",
            json!({"project": "shop", "since": [1]}),
            "since",
        ),
        (
            "logs_search",
            json!({"project": "shop", "since": -5}),
            "since",
        ),
        (
            "logs_search",
            json!({"project": "shop", "limit": 1001}),
            "limit",
        ),
        (
            "logs_search",
            json!({"project": "shop", "query": "{"}),
            "query",
        ),
        (
            "logs_errors",
            json!({"project": "shop", "query": "a"}),
            "query",
        ),
        (
            "logs_tail",
            json!({"project": "shop", "waitSec": 26}),
            "waitSec",
        ),
        (
            "logs_tail",
            json!({"project": "shop", "waitSec": "long"}),
            "waitSec",
        ),
        ("logs_tail", json!({"project": "nosuch"}), "project"),
    ] {
        let (text, fields) = agent.fails(tool, arguments.clone()).await;
        assert_eq!(fields["field"], field, "{arguments}: {text}");
    }
}
