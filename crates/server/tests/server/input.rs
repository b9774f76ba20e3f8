//! Bad input, keys, paging and field selection.

use axum::http::Method;
use serde_json::json;

use crate::rig::Rig;

/// Path (of the box after `BOX`), body (`"<n>"` is a text of n characters), the field that the answer names, and a part of
/// the limit that it says.
const UNFIT: &[(&str, &str, &str, &str)] = &[
    ("/v1/boxes", r#"{"gaol":"x"}"#, "gaol", "goal"),
    ("/v1/boxes", r#"{"goal":"<501>"}"#, "goal", "500"),
    ("/v1/boxes", r#"{"goal":7}"#, "goal", "500"),
    ("/v1/boxes", r#"{"name":"<61>"}"#, "name", "60"),
    ("/v1/boxes", r#"{"image":"nope"}"#, "image", "host"),
    ("/v1/boxes", r#"{"image":"oci:x"}"#, "image", "host"),
    ("/v1/boxes", r#"{"name":""}"#, "name", "1 to 60"),
    ("/v1/boxes", r#"{"name":"a\nb"}"#, "name", "control"),
    (
        "/v1/boxes",
        r#"{"idleTimeoutMin":0}"#,
        "idleTimeoutMin",
        "10080",
    ),
    (
        "/v1/boxes",
        r#"{"idleTimeoutMin":10081}"#,
        "idleTimeoutMin",
        "10080",
    ),
    (
        "/v1/boxes",
        r#"{"idleTimeoutMin":-1}"#,
        "idleTimeoutMin",
        "10080",
    ),
    (
        "/v1/boxes",
        r#"{"idleTimeoutMin":"5"}"#,
        "idleTimeoutMin",
        "10080",
    ),
    (
        "/v1/boxes",
        r#"{"idleTimeoutMin":1.5}"#,
        "idleTimeoutMin",
        "10080",
    ),
    (
        "/v1/boxes",
        r#"{"waitForCapacitySec":1801}"#,
        "waitForCapacitySec",
        "1800",
    ),
    ("/v1/boxes", r#"{"wait":"no"}"#, "wait", "true or false"),
    (
        "/v1/boxes",
        r#"{"private":"yes"}"#,
        "private",
        "true or false",
    ),
    ("/v1/boxes", r#"{"egress":"open"}"#, "egress", "denyOut"),
    (
        "/v1/boxes",
        r#"{"egress":{"mode":"half"}}"#,
        "egress.mode",
        "open",
    ),
    (
        "/v1/boxes",
        r#"{"egress":{"allowOut":["example.com"]}}"#,
        "egress.allowOut",
        "1000",
    ),
    (
        "/v1/boxes",
        r#"{"egress":{"denyOut":["::/0"]}}"#,
        "egress.denyOut",
        "IPv6",
    ),
    (
        "/v1/boxes",
        r#"{"services":[{"name":"d","port":49983}]}"#,
        "services",
        "49983",
    ),
    (
        "/v1/boxes",
        r#"{"size":{"memoryMb":999999999}}"#,
        "size.memoryMb",
        "16384",
    ),
    (
        "/v1/boxes",
        r#"{"size":{"memoryMb":1}}"#,
        "size.memoryMb",
        "64",
    ),
    ("/v1/boxes", r#"{"size":{"cpus":9}}"#, "size.cpus", "8"),
    ("/v1/boxes", r#"{"size":{"cpus":0}}"#, "size.cpus", "0.1"),
    (
        "/v1/boxes",
        r#"{"size":{"cpus":"two"}}"#,
        "size.cpus",
        "0.1",
    ),
    (
        "/v1/boxes",
        r#"{"size":{"diskGb":101}}"#,
        "size.diskGb",
        "100",
    ),
    ("/v1/boxes", r#"{"size":{"ram":1}}"#, "ram", "memoryMb"),
    ("/v1/boxes", r#"{"size":[1,512,3]}"#, "size", "memoryMb"),
    ("/v1/boxes", r#"{"env":{"A B":"x"}}"#, "env", "A B"),
    ("/v1/boxes", r#"{"env":{"A":1}}"#, "env", "256"),
    (
        "/v1/boxes",
        r#"{"metadata":{"a":"<1001>"}}"#,
        "metadata",
        "1000",
    ),
    ("/v1/boxes", r#"{"secrets":["token"]}"#, "secrets", "token"),
    (
        "/v1/boxes",
        r#"{"services":[{"name":"Web","port":80}]}"#,
        "services",
        "Web",
    ),
    (
        "/v1/boxes",
        r#"{"services":[{"name":"web","port":0}]}"#,
        "services",
        "65535",
    ),
    (
        "/v1/boxes",
        r#"{"services":[{"name":"web","port":70000}]}"#,
        "services",
        "port",
    ),
    ("/v1/boxes", r#"{"policy":"eternal"}"#, "policy", "agent"),
    ("/v1/boxes", r#"{"policy":5}"#, "policy", "agent"),
    (
        "/v1/boxes",
        r#"{"policy":{"freezeAfterSec":0}}"#,
        "policy.freezeAfterSec",
        "604800",
    ),
    (
        "/v1/boxes",
        r#"{"policy":{"freezeAfterSec":"x"}}"#,
        "policy.freezeAfterSec",
        "604800",
    ),
    (
        "/v1/boxes",
        r#"{"policy":{"stopFrozenAfterSec":2592001}}"#,
        "policy.stopFrozenAfterSec",
        "2592000",
    ),
    (
        "/v1/boxes",
        r#"{"policy":{"atEnd":"pause"}}"#,
        "policy.atEnd",
        "lifetimeSec",
    ),
    (
        "/v1/boxes",
        r#"{"policy":{"until":1}}"#,
        "until",
        "freezeAfterSec",
    ),
    (
        "/v1/boxes",
        r#"{"restore":"x","image":"host"}"#,
        "image",
        "restore",
    ),
    ("BOX/exec", r#"{}"#, "cmd", "131072"),
    ("BOX/exec", r#"{"cmd":""}"#, "cmd", "131072"),
    ("BOX/exec", r#"{"cmd":"<131073>"}"#, "cmd", "131072"),
    (
        "BOX/exec",
        r#"{"cmd":"true","timeoutSec":3601}"#,
        "timeoutSec",
        "3600",
    ),
    (
        "BOX/exec",
        r#"{"cmd":"true","timeoutSec":0}"#,
        "timeoutSec",
        "3600",
    ),
    (
        "BOX/exec",
        r#"{"cmd":"true","note":"<201>"}"#,
        "note",
        "200",
    ),
    (
        "BOX/exec",
        r#"{"cmd":"true","execId":"xyz"}"#,
        "execId",
        "16",
    ),
    (
        "BOX/exec",
        r#"{"cmd":"true","background":"yes"}"#,
        "background",
        "true or false",
    ),
    (
        "BOX/exec",
        r#"{"cmd":"true","shell":"zsh"}"#,
        "shell",
        "cmd",
    ),
    (
        "BOX/wake",
        r#"{"coldRestart":1}"#,
        "coldRestart",
        "true or false",
    ),
    ("BOX/freeze", r#"{"now":true}"#, "now", "none"),
    ("BOX/renew", r#"{"now":true}"#, "now", "none"),
    (
        "BOX",
        r#"{"idleTimeoutMin":10081}"#,
        "idleTimeoutMin",
        "10080",
    ),
    ("BOX", r#"{"status":"ready"}"#, "status", "idleTimeoutMin"),
    (
        "/v1/test/clock",
        r#"{"advanceSec":-5}"#,
        "advanceSec",
        "315360000",
    ),
    ("/v1/test/clock", r#"{}"#, "advanceSec", "315360000"),
];

/// Puts texts of the length that is asked for into a body.
fn filled(body: &str) -> String {
    match body.split_once("\"<") {
        Some((before, rest)) => {
            let (length, after) = rest.split_once(">\"").unwrap();
            let text = "x".repeat(length.parse().unwrap());
            format!("{before}\"{text}\"{after}")
        }
        None => body.to_owned(),
    }
}

#[tokio::test]
async fn every_value_that_does_not_fit_is_named_with_its_limit() {
    let rig = Rig::new().await;
    let id = rig.ready_box().await;
    for (path, body, field, limit) in UNFIT {
        let method = if *path == "BOX" {
            Method::PATCH
        } else {
            Method::POST
        };
        let path = path.replace("BOX", &format!("/v1/boxes/{id}"));
        let answer = rig.client().raw(method, &path, filled(body).into()).await;
        let text = answer.error(400, "bad_request");
        assert!(
            text.contains(field),
            "{body}: `{text}` does not name {field}"
        );
        assert!(
            text.contains(limit),
            "{body}: `{text}` does not say {limit}"
        );
    }
    let boxes = rig.get("/v1/boxes").await.expect(200);
    assert_eq!(
        boxes["boxes"].as_array().unwrap().len(),
        1,
        "nothing was made by mistake"
    );
}

#[tokio::test]
async fn bodies_that_are_no_json_or_too_large_are_refused() {
    let rig = Rig::new().await;
    let client = rig.client();
    for body in ["{", "[]", "\"x\"", "{} {}", "nonsense"] {
        let answer = client.raw(Method::POST, "/v1/boxes", body.into()).await;
        answer.error(400, "bad_request");
    }
    let large = vec![b' '; 8 * 1024 * 1024 + 1];
    let text = client
        .raw(Method::POST, "/v1/boxes", large)
        .await
        .error(413, "too_large");
    assert!(text.contains("8388608"), "{text}");
    let id = rig.ready_box().await;
    let stdin = "x".repeat(1024 * 1024 + 1);
    let text = client
        .exec(id, json!({ "cmd": "true", "stdin": stdin }))
        .await
        .error(413, "too_large");
    assert!(text.contains("1048576"), "{text}");
}

#[tokio::test]
async fn queries_are_as_strict_as_bodies() {
    let rig = Rig::new().await;
    for (query, word) in [
        ("limit=0", "1000"),
        ("limit=1001", "1000"),
        ("limit=ten", "1000"),
        ("cursor=x", "nextCursor"),
        ("all=maybe", "1 or 0"),
        ("sort=name", "cursor"),
    ] {
        let text = rig
            .get(&format!("/v1/boxes?{query}"))
            .await
            .error(400, "bad_request");
        assert!(text.contains(word), "{query}: {text}");
    }
}

#[tokio::test]
async fn without_a_good_key_there_is_nothing_to_see() {
    let rig = Rig::new().await;
    let id = rig.ready_box().await;
    let other = format!("e2b_{}", "0".repeat(40));
    for key in [None, Some("x"), Some(other.as_str())] {
        let client = rig.client().with_key(key);
        for path in [
            "/v1/boxes",
            "/v1/host",
            "/v1/test/clock",
            &format!("/v1/boxes/{id}"),
        ] {
            let answer = client.call(Method::GET, path, None).await;
            assert!(answer.headers.contains_key("www-authenticate"));
            answer.error(401, "unauthorized");
        }
        client.call(Method::GET, "/healthz", None).await.expect(200);
        client.call(Method::GET, "/readyz", None).await.expect(200);
    }
}

#[tokio::test]
async fn the_admin_key_is_private_and_survives_restarts() {
    use std::os::unix::fs::PermissionsExt as _;
    let mut rig = Rig::new().await;
    let path = rig.data().join("admin.key");
    let key = std::fs::read_to_string(&path).unwrap();
    assert_eq!(
        std::fs::metadata(&path).unwrap().permissions().mode() & 0o777,
        0o600
    );
    let key = key.trim();
    assert!(key.len() == 44 && key.starts_with("e2b_"), "{key}");
    let database = std::fs::read(rig.data().join("icebox.db")).unwrap();
    let found = database
        .windows(key.len())
        .any(|window| window == key.as_bytes());
    assert!(!found, "the key is stored in plain text");
    rig.restart().await;
    let client = rig.client().with_key(Some(key));
    client
        .call(Method::GET, "/v1/boxes", None)
        .await
        .expect(200);
    std::fs::remove_file(&path).unwrap();
    rig.restart().await;
    rig.get("/v1/boxes").await.expect(200);
}

#[tokio::test]
async fn unknown_boxes_and_paths_are_not_found() {
    let rig = Rig::new().await;
    for id in ["aaaaaaaaaaaaaaaaaaaa", "no-such", "%2e%2e"] {
        rig.get(&format!("/v1/boxes/{id}"))
            .await
            .error(404, "not_found");
        let exec = rig
            .post(&format!("/v1/boxes/{id}/exec"), json!({ "cmd": "true" }))
            .await;
        exec.error(404, "not_found");
        rig.post(&format!("/v1/boxes/{id}/stop"), json!({}))
            .await
            .error(404, "not_found");
    }
    rig.post("/v1/boxes", json!({ "restore": "a".repeat(20) }))
        .await
        .error(404, "not_found");
    rig.get("/v1/nothing").await.error(404, "not_found");
    let put = rig.client().call(Method::PUT, "/v1/boxes", None).await;
    put.error(405, "bad_request");
}

#[tokio::test]
async fn lists_go_from_the_most_recently_used_page_by_page() {
    let rig = Rig::new().await;
    let mut ids = Vec::new();
    for _ in 0..5 {
        ids.push(rig.ready_box().await);
        rig.advance(1).await;
    }
    rig.exec(ids[1], "true").await.expect(200);
    let expected: Vec<&str> = [1, 4, 3, 2, 0]
        .iter()
        .map(|n: &usize| ids[*n].as_str())
        .collect();
    let mut seen: Vec<String> = Vec::new();
    let mut path = "/v1/boxes?limit=2".to_owned();
    loop {
        let page = rig.get(&path).await.expect(200);
        let boxes = page["boxes"].as_array().unwrap();
        assert!(boxes.len() <= 2);
        seen.extend(
            boxes
                .iter()
                .map(|shown| shown["id"].as_str().unwrap().to_owned()),
        );
        let Some(cursor) = page["nextCursor"].as_str() else {
            break;
        };
        path = format!("/v1/boxes?limit=2&cursor={cursor}");
    }
    assert_eq!(seen, expected);
}

#[tokio::test]
async fn fields_select_and_unknown_ones_are_named() {
    let rig = Rig::new().await;
    let id = rig
        .box_with(json!({ "name": "n", "metadata": { "a": "b" } }))
        .await;
    let path = format!("/v1/boxes/{id}?fields=name,metadata,tier,colour");
    let shown = rig.get(&path).await.expect(200);
    let expected = json!({
        "id": id.as_str(), "status": "ready", "name": "n", "metadata": { "a": "b" },
        "unknownFields": ["colour"],
    });
    assert_eq!(shown, expected);
}

#[tokio::test]
async fn a_box_shows_what_it_was_made_of() {
    let rig = Rig::new().await;
    let id = rig
        .box_with(json!({
            "goal": "try", "size": { "cpus": 0.5, "memoryMb": 512, "diskGb": 3 },
            "services": [{ "name": "web", "port": 3000, "web": true }],
        }))
        .await;
    let shown = rig.status(id).await;
    assert_eq!(
        shown["size"],
        json!({ "cpus": 0.5, "memoryMb": 512, "diskGb": 3 })
    );
    let url = format!("http://web-{id}.localhost:{}/", rig.address().port());
    assert_eq!(
        shown["services"],
        json!([{ "name": "web", "port": 3000, "mode": "box", "url": url, "web": true }])
    );
    assert_eq!(
        (&shown["image"], &shown["goal"]),
        (&json!("host"), &json!("try"))
    );
    assert!(id.as_str().len() == 20);
}

/// The daemon in the box holds to the same, but a box must not wake only to refuse a call.
#[tokio::test]
async fn a_place_that_no_call_may_name_is_refused_and_wakes_nothing() {
    let rig = Rig::new().await;
    let id = rig.frozen_box().await;
    let get = |path: &str| (Method::GET, format!("files?path={path}"));
    let put = |path: &str| (Method::PUT, format!("files?path={path}"));
    let sync = |dest: &str| (Method::POST, format!("sync?dest={dest}"));
    let outside = "below /work, /tmp or /dev/shm";
    let up = "must not contain `..`";
    let rows = [
        (get("../../etc/shadow"), up),
        (get("/etc/shadow"), outside),
        (get("/tmp/../etc/shadow"), up),
        (put("/usr/bin/sh"), outside),
        (put("a/../../b"), up),
        (put("/work"), "must name a file"),
        (put("a/"), "must name a file"),
        (sync("../x"), "must be a folder below /work"),
        (sync("/etc"), "must be a folder below /work"),
        (sync("~/x"), "must be a folder below /work"),
    ];
    for ((method, path), said) in rows {
        let whole = format!("/v1/boxes/{id}/{path}");
        let answer = rig.client().raw(method, &whole, Vec::new()).await;
        let text = answer.error(400, "bad_request");
        assert!(text.contains(said), "{path}: {text}");
        assert_eq!(rig.state(id).await, "frozen", "{path}");
    }
}
