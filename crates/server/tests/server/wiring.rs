//! Where the names in a box lead (rules 3.1, 3.4, 4.2, 5.1, 5.6): links that wake and hold, servers elsewhere, endpoints of
//! environments, and what people see first.

use axum::http::Method;
use icebox_lifecycle::BoxId;
use icebox_server::driver::conformance::Inside as _;
use icebox_server::driver::{Driver as _, Stream};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::mcp::Agent;
use crate::program::{Program, browser, within};
use crate::rig::{Answer, HOUR, MIN, Rig};

/// What a program in a box gets that connects to a port there.
async fn dial(rig: &Rig, id: BoxId, port: u16) -> Stream {
    rig.fake.connect(id, port).await.unwrap()
}

async fn wire(rig: &Rig, id: BoxId, body: Value) -> Answer {
    rig.post(&format!("/v1/boxes/{id}/wire"), body).await
}

/// A box with the name `db` for port 5432 of another.
async fn linked_to(rig: &Rig, target: BoxId) -> BoxId {
    let service = json!({"name": "db", "port": 5432, "fromBox": target.as_str()});
    rig.box_with(json!({ "services": [service] })).await
}

/// Sends a word each way.
async fn talk(process: &mut Stream, program: &Program) -> crate::program::Talk {
    within(process.write_all(b"ping\n")).await.unwrap();
    let mut heard = program.accept().await;
    assert_eq!(heard.hear("\n").await, "ping\n");
    heard.say("pong\n").await;
    let mut pong = [0; 5];
    within(process.read_exact(&mut pong)).await.unwrap();
    assert_eq!(&pong, b"pong\n");
    heard
}

async fn has_ended(process: &mut Stream) {
    let read = within(process.read(&mut [0; 1])).await;
    assert!(matches!(read, Ok(0) | Err(_)), "{read:?}");
}

/// Asks for the status of a box until it is as it should be; what it waits for needs no time but that.
async fn until(rig: &Rig, id: BoxId, fits: impl Fn(&Value) -> bool) -> Value {
    let looking = async {
        loop {
            let shown = rig.status(id).await;
            if fits(&shown) {
                return shown;
            }
        }
    };
    within(looking).await
}

fn holds(shown: &Value) -> Vec<&str> {
    let by = shown["freeze"]["blockedBy"].as_array().unwrap();
    by.iter()
        .map(|hold| hold["kind"].as_str().unwrap())
        .collect()
}

#[tokio::test]
async fn a_link_wakes_the_box_it_leads_to_and_holds_it_while_its_own_is_awake() {
    let rig = Rig::new().await;
    let target = rig.ready_box().await;
    let program = Program::on(&rig, target, 5432).await;
    let source = linked_to(&rig, target).await;
    rig.freeze(target).await.expect(200);
    let mut process = dial(&rig, source, 5432).await;
    let _heard = talk(&mut process, &program).await;
    let shown = rig.status(target).await;
    assert_eq!(shown["status"], "ready");
    assert_eq!(holds(&shown), ["link"]);
    assert_eq!(shown["agent"]["idleSec"], 0);
    assert!(
        shown["why"]
            .to_string()
            .contains("another box connected to it")
    );
    let from = json!([{"box": source.as_str(), "service": "db", "port": 5432}]);
    assert_eq!(shown["linkedFrom"], from);
    let shown = rig.status(source).await;
    let link = &shown["links"][0];
    assert_eq!(
        (&link["status"], &link["open"]),
        (&json!("listening"), &json!(1))
    );
    assert_eq!(
        (&link["box"], &link["failed"]),
        (&json!(target.as_str()), &json!(0))
    );
    let service = &shown["services"][0];
    assert_eq!(
        (&service["mode"], &service["fromBox"]),
        (&json!("link"), &json!(target.as_str()))
    );
    assert!(
        service["url"]
            .as_str()
            .unwrap()
            .contains(&format!("5432-{target}"))
    );

    rig.advance(9 * MIN).await;
    assert_eq!(rig.state(target).await, "ready");
    rig.advance(2 * MIN).await;
    assert_eq!(rig.state(source).await, "frozen");
    assert_eq!(
        rig.state(target).await,
        "frozen",
        "nothing holds it any more"
    );
    has_ended(&mut process).await;

    // New connections work, from a program that was there before as well.
    rig.post(&format!("/v1/boxes/{source}/wake"), json!({}))
        .await
        .expect(200);
    let mut process = dial(&rig, source, 5432).await;
    let heard = talk(&mut process, &program).await;
    assert_eq!(rig.state(target).await, "ready");
    drop((process, heard));
    let shown = until(&rig, target, |shown| holds(shown).is_empty()).await;
    assert!(
        shown["freeze"]["at"].is_string(),
        "the end of a link is a use like any other"
    );
}

#[tokio::test]
async fn a_link_holds_for_as_long_as_its_own_box_works() {
    let rig = Rig::new().await;
    let target = rig.ready_box().await;
    let program = Program::on(&rig, target, 5432).await;
    let source = linked_to(&rig, target).await;
    let client = rig.client();
    let call = tokio::spawn(async move {
        client
            .exec(source, json!({"cmd": "hang", "timeoutSec": 3600}))
            .await
    });
    rig.until_running(source).await;
    let mut process = dial(&rig, source, 5432).await;
    let _heard = talk(&mut process, &program).await;
    rig.advance(3 * HOUR).await;
    assert_eq!(holds(&rig.status(target).await), ["link"]);
    rig.fake.finish(source, &rig.only_command(source));
    call.await.unwrap().expect(200);
    rig.advance(9 * MIN).await;
    assert_eq!(rig.state(target).await, "ready");
    rig.advance(2 * MIN).await;
    assert_eq!(rig.state(source).await, "frozen");
    assert_eq!(rig.state(target).await, "frozen");
}

#[tokio::test]
async fn a_stop_of_its_own_box_is_the_end_of_a_link_and_that_is_a_use() {
    let rig = Rig::new().await;
    let target = rig.ready_box().await;
    let program = Program::on(&rig, target, 5432).await;
    let source = linked_to(&rig, target).await;
    let mut process = dial(&rig, source, 5432).await;
    let _heard = talk(&mut process, &program).await;
    rig.advance(8 * MIN).await;
    rig.stop(source).await.expect(200);
    has_ended(&mut process).await;
    rig.advance(8 * MIN).await;
    let shown = rig.status(target).await;
    assert_eq!(
        (&shown["status"], holds(&shown).len()),
        (&json!("ready"), 0)
    );
    assert_eq!(shown.get("linkedFrom"), None);
    rig.advance(3 * MIN).await;
    assert_eq!(rig.state(target).await, "frozen");
}

#[tokio::test]
async fn two_boxes_with_links_to_each_other_freeze() {
    let rig = Rig::new().await;
    let one = rig.ready_box().await;
    let other = linked_to(&rig, one).await;
    let back = json!({"service": "back", "port": 80, "fromBox": other.as_str()});
    wire(&rig, one, back).await.expect(200);
    let (of_one, of_other) = (
        Program::on(&rig, one, 5432).await,
        Program::on(&rig, other, 80).await,
    );
    let mut there = dial(&rig, other, 5432).await;
    let mut back = dial(&rig, one, 80).await;
    let _open = (
        talk(&mut there, &of_one).await,
        talk(&mut back, &of_other).await,
    );
    rig.advance(9 * MIN).await;
    for id in [one, other] {
        assert_eq!(holds(&rig.status(id).await), ["link"]);
    }
    rig.advance(2 * MIN).await;
    for id in [one, other] {
        assert_eq!(rig.state(id).await, "frozen");
    }
    has_ended(&mut there).await;
    has_ended(&mut back).await;
}

#[tokio::test]
async fn a_link_that_leads_nowhere_says_why_and_a_restart_opens_those_that_do() {
    let mut rig = Rig::new().await;
    let target = rig.ready_box().await;
    let source = linked_to(&rig, target).await;
    rig.stop(target).await.expect(200);
    let mut process = dial(&rig, source, 5432).await;
    has_ended(&mut process).await;
    let shown = until(&rig, source, |shown| shown["links"][0]["failed"] == 1).await;
    let error = shown["links"][0]["lastError"].as_str().unwrap();
    assert!(error.contains("was stopped"), "{error}");

    let target = rig.ready_box().await;
    let program = Program::on(&rig, target, 9000).await;
    let anew = json!({"service": "db", "fromBox": target.as_str(), "targetPort": 9000});
    let wired = wire(&rig, source, anew).await.expect(200);
    assert_eq!(wired["services"][0]["targetPort"], 9000);
    let mut process = dial(&rig, source, 5432).await;
    let _heard = talk(&mut process, &program).await;
    let steps = rig.status(source).await["steps"].clone();
    let step = steps.as_array().unwrap().last().unwrap();
    assert_eq!((&step["kind"], &step["ok"]), (&json!("wire"), &json!(true)));
    assert_eq!(step["detail"], format!("link to {target}"));

    rig.restart().await;
    has_ended(&mut process).await;
    until(&rig, source, |shown| {
        shown["links"][0]["status"] == "listening"
    })
    .await;
    let mut process = dial(&rig, source, 5432).await;
    let _heard = talk(&mut process, &program).await;
    assert_eq!(holds(&rig.status(target).await), ["link"]);
}

#[tokio::test]
async fn a_port_that_a_program_has_is_said_and_tried_again() {
    let rig = Rig::new().await;
    let target = rig.ready_box().await;
    let program = Program::on(&rig, target, 5432).await;
    let source = rig.ready_box().await;
    let own = Program::on(&rig, source, 5432).await;
    let link = json!({"service": "db", "port": 5432, "fromBox": target.as_str()});
    let wired = wire(&rig, source, link).await.expect(200);
    let error = wired["services"][0]["lastError"].as_str().unwrap();
    assert!(error.contains("listens on port 5432 itself"), "{error}");
    assert_eq!(wired["links"][0]["status"], "waiting");
    drop(own);
    rig.fake.listen(source, 5432, None);
    until(&rig, source, |shown| {
        shown["links"][0]["status"] == "listening"
    })
    .await;
    let mut process = dial(&rig, source, 5432).await;
    let _heard = talk(&mut process, &program).await;
    // Its own again: the port is free for it.
    let own = json!({"service": "db", "mode": "box"});
    wire(&rig, source, own).await.expect(200);
    has_ended(&mut process).await;
    assert!(
        rig.fake.connect(source, 5432).await.is_err(),
        "nothing listens there"
    );
    let own = Program::on(&rig, source, 5433).await;
    wire(
        &rig,
        source,
        json!({"service": "db", "mode": "box", "targetPort": 5433}),
    )
    .await
    .expect(200);
    let mut process = dial(&rig, source, 5432).await;
    let _heard = talk(&mut process, &own).await;
}

#[tokio::test]
async fn what_cannot_be_wired_is_refused_and_changes_nothing() {
    let mut rig = Rig::new().await;
    let stranger = rig.other_account().await;
    let theirs = stranger.post("/v1/boxes", json!({})).await.expect(201);
    let theirs = theirs["id"].as_str().unwrap().to_owned();
    let target = rig.ready_box().await;
    let link = json!({"name": "db", "port": 5432, "fromBox": target.as_str()});
    let services = json!([link, {"name": "web", "port": 3000}]);
    let id = rig.box_with(json!({"services": services})).await;
    let gone = rig.ready_box().await;
    rig.stop(gone).await.expect(200);
    rig.freeze(id).await.expect(200);
    let own_url = format!("http://web-{id}.localhost:7070/");
    let rows: &[(Value, &str)] = &[
        (json!({}), "service"),
        (json!({"service": "db"}), "mode"),
        (json!({"service": "new"}), "port"),
        (json!({"service": "Bad", "port": 80}), "service"),
        (json!({"service": "a b", "port": 80}), "service"),
        (json!({"service": "localhost", "port": 80}), "service"),
        (json!({"service": "x".repeat(41), "port": 80}), "service"),
        (json!({"service": "new", "port": 0}), "port"),
        (json!({"service": "new", "port": 70_000}), "port"),
        (json!({"service": "new", "port": 49_983}), "port"),
        (
            json!({"service": "new", "port": 80, "targetPort": 49_983}),
            "targetPort",
        ),
        (
            json!({"service": "new", "port": 80, "targetPort": 0}),
            "targetPort",
        ),
        (
            json!({"service": "new", "port": 49_983, "fromBox": target.as_str()}),
            "targetPort",
        ),
        (
            json!({"service": "new", "port": 80, "fromBox": target.as_str(), "targetPort": 49_983}),
            "targetPort",
        ),
        (
            json!({"service": "new", "port": 80, "fromBox": id.as_str()}),
            "fromBox",
        ),
        (
            json!({"service": "new", "port": 80, "fromBox": theirs}),
            "fromBox",
        ),
        (
            json!({"service": "new", "port": 80, "fromBox": gone.as_str()}),
            "fromBox",
        ),
        (
            json!({"service": "new", "port": 80, "fromBox": "../x"}),
            "fromBox",
        ),
        (
            json!({"service": "new", "port": 80, "fromBox": target.as_str(), "mode": "box"}),
            "mode",
        ),
        (
            json!({"service": "new", "port": 80, "fromBox": target.as_str(), "externalBaseUrl": "http://a"}),
            "externalBaseUrl",
        ),
        (
            json!({"service": "new", "port": 80, "mode": "link"}),
            "mode",
        ),
        (
            json!({"service": "new", "port": 80, "mode": "external"}),
            "externalBaseUrl",
        ),
        (
            json!({"service": "new", "port": 80, "mode": "box", "externalBaseUrl": "http://a"}),
            "externalBaseUrl",
        ),
        (
            json!({"service": "new", "port": 80, "externalBaseUrl": "http://a", "targetPort": 81}),
            "targetPort",
        ),
        (
            json!({"service": "new", "port": 80, "externalBaseUrl": "ftp://a"}),
            "externalBaseUrl",
        ),
        (
            json!({"service": "new", "port": 80, "externalBaseUrl": "http://a/?x"}),
            "externalBaseUrl",
        ),
        (
            json!({"service": "new", "port": 80, "externalBaseUrl": "http://u@a/"}),
            "externalBaseUrl",
        ),
        (
            json!({"service": "new", "port": 80, "externalBaseUrl": own_url}),
            "externalBaseUrl",
        ),
        (
            json!({"service": "new", "port": 80, "version": "v1"}),
            "version",
        ),
        (json!({"service": "new", "port": 5432}), "port"),
        (json!({"service": "db", "port": 3000}), "port"),
        (json!({"service": "db", "scenePaths": ["/x"]}), "scenePaths"),
        (json!({"scenePaths": ["/x"]}), "externalBaseUrl"),
        (
            json!({"scenePaths": [], "externalBaseUrl": "http://a"}),
            "externalBaseUrl",
        ),
        (
            json!({"scenePaths": ["x"], "externalBaseUrl": "http://a"}),
            "scenePaths",
        ),
        (
            json!({"scenePaths": ["/a/../b"], "externalBaseUrl": "http://a"}),
            "scenePaths",
        ),
        (
            json!({"scenePaths": ["/a%2e"], "externalBaseUrl": "http://a"}),
            "scenePaths",
        ),
        (
            json!({"scenePaths": vec!["/x"; 33], "externalBaseUrl": "http://a"}),
            "scenePaths",
        ),
        (
            json!({"scenePaths": ["/x"], "externalBaseUrl": "http://a", "port": 1}),
            "port",
        ),
        (json!({"service": 1}), "service"),
        (json!({"servic": "x"}), "servic"),
    ];
    for (body, field) in rows {
        let answer = wire(&rig, id, body.clone()).await;
        assert_eq!(answer.json["field"], *field, "{body}: {}", answer.json);
        answer.error(400, "bad_request");
    }
    let scenes = [
        json!({}),
        json!({"service": "nosuch"}),
        json!({"service": "web", "url": "http://a"}),
        json!({"url": "javascript:alert(1)"}),
        json!({"url": "http://localhost:49983/"}),
        json!({"url": "http://web:81/"}),
        json!({"url": format!("http://a/{}", "x".repeat(2_000))}),
    ];
    for body in scenes {
        let answer = rig
            .post(&format!("/v1/boxes/{id}/scene"), body.clone())
            .await;
        assert_eq!(answer.status, 400, "{body}: {}", answer.json);
    }
    // A ring: what leads on to somewhere else is no end of a link.
    let ring = json!({"service": "new", "port": 80, "fromBox": id.as_str(), "targetPort": 5432});
    let refused = wire(&rig, target, ring).await.error(400, "bad_request");
    assert!(refused.contains("leads on to somewhere else"), "{refused}");
    wire(&rig, gone, json!({"service": "a", "port": 80}))
        .await
        .error(410, "box_gone");
    stranger
        .post(
            &format!("/v1/boxes/{id}/wire"),
            json!({"service": "a", "port": 80}),
        )
        .await
        .error(404, "not_found");
    let private = json!({"service": "a", "port": 80, "externalBaseUrl": "http://10.0.0.1/"});
    let refused = stranger
        .post(&format!("/v1/boxes/{theirs}/wire"), private)
        .await;
    assert!(
        refused
            .error(400, "bad_request")
            .contains("public internet")
    );
    let shown = rig.status(id).await;
    assert_eq!(shown["status"], "frozen", "what cannot be wakes nothing");
    assert_eq!(shown["services"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn a_ring_that_came_to_be_later_carries_nothing() {
    let rig = Rig::new().await;
    let one = rig.ready_box().await;
    let other = linked_to(&rig, one).await;
    // The end of the first link leads back by now.
    let back =
        json!({"service": "db", "port": 5432, "fromBox": other.as_str(), "targetPort": 5433});
    wire(&rig, one, back).await.expect(200);
    let mut process = dial(&rig, other, 5432).await;
    has_ended(&mut process).await;
    let shown = until(&rig, other, |shown| shown["links"][0]["failed"] == 1).await;
    let error = shown["links"][0]["lastError"].as_str().unwrap();
    assert!(error.contains("leads on to somewhere else"), "{error}");
}

/// A server elsewhere, that says what it was asked.
async fn elsewhere() -> String {
    let (program, address) = Program::elsewhere().await;
    tokio::spawn(async move {
        loop {
            let mut asked = program.accept().await;
            tokio::spawn(async move {
                let head = asked.head().await;
                let upgrade = head.contains("upgrade: echo");
                if upgrade {
                    asked
                        .say("HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: echo\r\n\r\n")
                        .await;
                    let word = asked.hear("\n").await;
                    asked.say(&word).await;
                    return;
                }
                let len = head.len();
                asked
                    .say(&format!(
                        "HTTP/1.1 200 OK\r\ncontent-length: {len}\r\n\r\n{head}"
                    ))
                    .await;
            });
        }
    });
    format!("http://{address}")
}

async fn asks(process: &mut Stream, request: &str) -> String {
    within(process.write_all(request.as_bytes())).await.unwrap();
    let mut answer = Vec::new();
    within(process.read_to_end(&mut answer)).await.unwrap();
    String::from_utf8(answer).unwrap()
}

#[tokio::test]
async fn a_service_elsewhere_is_reached_from_inside_and_from_outside() {
    let rig = Rig::new().await;
    let base = elsewhere().await;
    let host = base.trim_start_matches("http://").to_owned();
    let start = json!({
        "services": [{"name": "api", "port": 8000, "web": true}],
        "externalBaseUrl": format!("{base}/v2/"),
    });
    let id = rig.box_with(start).await;
    let mut process = dial(&rig, id, 8000).await;
    let request = "GET /x?y=1 HTTP/1.1\r\nhost: api:8000\r\nx-mine: 1\r\nconnection: close\r\n\r\n";
    let answer = asks(&mut process, request).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(answer.contains("get /v2/x?y=1 http/1.1"), "{answer}");
    assert!(
        answer.contains(&format!("host: {host}\r\n")) && answer.contains("x-mine: 1"),
        "{answer}"
    );
    assert!(!answer.contains("x-forwarded"), "{answer}");

    let mut process = dial(&rig, id, 8000).await;
    let request = "GET / HTTP/1.1\r\nhost: api\r\nconnection: upgrade\r\nupgrade: echo\r\n\r\n";
    let answer = asks(&mut process, &format!("{request}a word\n")).await;
    assert!(
        answer.starts_with("HTTP/1.1 101") && answer.ends_with("a word\n"),
        "{answer}"
    );

    let answer = browser(rig.at("api", id)).load("/x").await;
    assert_eq!(answer.status, 200);
    let said = answer.text();
    assert!(
        said.contains("get /v2/x http/1.1") && said.contains(&format!("host: {host}")),
        "{said}"
    );
    assert!(!said.contains(id.as_str()), "{said}");
    let climbs = browser(rig.at("api", id)).load("/%2e%2e/secret").await;
    assert_eq!(climbs.status, 502);
    let shown = rig.status(id).await;
    let service = &shown["services"][0];
    assert_eq!(
        (&service["mode"], &service["externalBaseUrl"]),
        (&json!("external"), &json!(format!("{base}/v2")))
    );

    // What is not there is said to whoever asks.
    let (program, address) = Program::elsewhere().await;
    drop(program);
    let dead = json!({"service": "api", "mode": "external", "externalBaseUrl": format!("http://{address}")});
    wire(&rig, id, dead).await.expect(200);
    let mut process = dial(&rig, id, 8000).await;
    let answer = asks(
        &mut process,
        "GET / HTTP/1.1\r\nhost: api\r\nconnection: close\r\n\r\n",
    )
    .await;
    assert!(
        answer.starts_with("HTTP/1.1 502") && answer.contains("cannot be reached"),
        "{answer}"
    );
    let answer = browser(rig.at("api", id)).load("/").await;
    assert_eq!(answer.status, 502);
    let shown = rig.status(id).await;
    assert_eq!(shown["services"][0]["lastProxyError"]["status"], 502);
}

#[tokio::test]
async fn a_request_that_comes_back_here_ends() {
    let rig = Rig::new().await;
    let id = rig.ready_box().await;
    // An address of this server: its host names a box only once the request is here.
    let api = format!("http://{}", rig.address());
    wire(
        &rig,
        id,
        json!({"service": "api", "port": 80, "externalBaseUrl": api}),
    )
    .await
    .expect(200);
    let answer = browser(rig.at("api", id)).load("/healthz").await;
    assert_eq!(
        answer.status, 200,
        "the API may be reached like anything else"
    );
    let (program, address) = Program::elsewhere().await;
    let loops = json!({"service": "api", "externalBaseUrl": format!("http://{address}")});
    wire(&rig, id, loops).await.expect(200);
    let client = browser(rig.at("api", id));
    let asking = tokio::spawn(async move { client.load("/").await });
    let mut asked = program.accept().await;
    let head = asked.head().await;
    let via = head
        .lines()
        .find(|line| line.starts_with("via: "))
        .unwrap()
        .to_owned();
    // A proxy elsewhere sends it on to the box's URL, as proxies do.
    let again = rig
        .at("api", id)
        .with_header("via", via.trim_start_matches("via: "));
    let again = browser(again).load("/").await;
    assert_eq!(again.status, 502);
    asked
        .say("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
        .await;
    assert_eq!(asking.await.unwrap().status, 200);
}

#[tokio::test]
async fn chosen_paths_of_the_scene_are_elsewhere() {
    let rig = Rig::new().await;
    let base = elsewhere().await;
    let id = rig.web_box().await;
    rig.says(id, "the app").await;
    let paths = json!({"scenePaths": ["/api", "/auth/"], "externalBaseUrl": base});
    let wired = wire(&rig, id, paths).await.expect(200);
    assert_eq!(wired["scenePaths"], json!(["/api", "/auth/"]));
    assert_eq!(wired["sceneUrl"], rig.status(id).await["sceneUrl"]);
    for path in ["/api", "/api/x?y", "/auth/in"] {
        let said = browser(rig.at("web", id)).load(path).await.text();
        assert!(said.contains(&format!("get {path} http/1.1")), "{said}");
    }
    for path in ["/", "/apix", "/auth2", "/api/%2e%2e/secret"] {
        rig.says(id, "the app").await;
        assert_eq!(
            browser(rig.at("web", id)).load(path).await.text(),
            "the app",
            "{path}"
        );
    }
    rig.says(id, "the app").await;
    assert_eq!(
        browser(rig.at("3000", id)).load("/api").await.text(),
        "the app",
        "it is not the scene's host"
    );
    wire(&rig, id, json!({"scenePaths": []})).await.expect(200);
    rig.says(id, "the app").await;
    assert_eq!(
        browser(rig.at("web", id)).load("/api").await.text(),
        "the app"
    );
}

#[tokio::test]
async fn a_link_lives_at_the_box_that_it_leads_to_and_a_scene_is_what_was_chosen() {
    let rig = Rig::new().await;
    let target = rig.web_box().await;
    let services = json!([{"name": "one", "port": 1000}, {"name": "two", "port": 2000, "web": true},
        {"name": "shop", "port": 80, "fromBox": target.as_str(), "targetPort": 3000}]);
    let id = rig.box_with(json!({"services": services})).await;
    let answer = rig.at("shop", id).load("/a?b=c").await;
    assert_eq!(answer.status, 307);
    let there = answer.headers["location"].to_str().unwrap().to_owned();
    assert!(
        there.starts_with("http://3000-")
            && there.contains(target.as_str())
            && there.ends_with("/a?b=c"),
        "{there}"
    );
    let scene = format!("/v1/boxes/{id}/scene");
    assert!(
        rig.status(id).await["sceneUrl"]
            .as_str()
            .unwrap()
            .contains("//one-")
    );
    for (body, begins, ends) in [
        (json!({"service": "two"}), "http://two-", "/"),
        (json!({"service": "shop"}), "http://3000-", "/"),
        (
            json!({"url": "http://localhost:2000/admin?x=1"}),
            "http://two-",
            "/admin?x=1",
        ),
        (
            json!({"url": "http://127.0.0.1:4000/"}),
            "http://4000-",
            "/",
        ),
        (json!({"url": "http://two/a"}), "http://two-", "/a"),
        (
            json!({"url": "https://example.com/b"}),
            "https://example.com/b",
            "/b",
        ),
    ] {
        let shown = rig.post(&scene, body.clone()).await.expect(200);
        let url = shown["sceneUrl"].as_str().unwrap();
        assert!(
            url.starts_with(begins) && url.ends_with(ends),
            "{body}: {url}"
        );
    }
    let agent = Agent::new(&rig, "one");
    let shown = agent
        .works(
            "sandbox_scene",
            json!({"id": id.as_str(), "service": "two"}),
        )
        .await;
    assert!(shown["sceneUrl"].as_str().unwrap().contains("//two-"));
    let wired = agent
        .works(
            "sandbox_wire",
            json!({"id": id.as_str(), "service": "three", "port": 3000, "web": true}),
        )
        .await;
    assert_eq!(wired["services"][3]["mode"], "box");
    let (text, _) = agent
        .fails(
            "sandbox_wire",
            json!({"id": id.as_str(), "service": "three", "version": "v1"}),
        )
        .await;
    assert!(text.contains("`v1` is none, there are none yet"), "{text}");
    let names = rig.fake.read_file(id, "hosts").await.unwrap();
    assert_eq!(names.lines().count(), 4, "{names}");
    assert!(
        names.lines().all(|line| line.ends_with("# icebox")),
        "{names}"
    );
}

/// A server elsewhere that says whatever it hears.
async fn echo() -> u16 {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let (mut read, mut write) = stream.split();
                // A client that only looks says nothing.
                let _ = tokio::io::copy(&mut read, &mut write).await;
            });
        }
    });
    port
}

/// A connection to that, from a program in a box.
async fn echoes(rig: &Rig, id: BoxId, port: u16) -> Stream {
    let mut process = dial(rig, id, port).await;
    within(process.write_all(b"ping\n")).await.unwrap();
    let mut heard = [0; 5];
    within(process.read_exact(&mut heard)).await.unwrap();
    assert_eq!(&heard, b"ping\n");
    process
}

#[tokio::test]
async fn boxes_of_an_environment_reach_what_an_admin_lets_them() {
    let mut rig = Rig::new().await;
    let port = echo().await;
    let client = rig.client();
    client
        .post("/v1/environments", json!({"name": "staging"}))
        .await
        .expect(201);
    let start = json!({"environment": "staging", "services": [{"name": "web", "port": 3000}]});
    let id = rig.box_with(start).await;
    let path = "/v1/environments/staging/connections";
    let body = json!({"name": "vpc", "endpoints": [format!("pg.test=127.0.0.1:{port}")]});
    let made = client.post(path, body).await.expect(201);
    let of = made["id"].as_str().unwrap().to_owned();
    assert_eq!(
        (&made["online"], made["hosts"].as_array().unwrap().len()),
        (&json!(true), 1)
    );

    // A box that runs already reaches it, by a name with an address of its own.
    let names = rig.fake.read_file(id, "hosts").await.unwrap();
    assert!(
        names.contains(" pg.test # icebox\n") && names.contains("127.0.0.1 web"),
        "{names}"
    );
    let mut process = echoes(&rig, id, port).await;
    let shown = rig.status(id).await;
    assert_eq!(
        shown["connections"][0]["hosts"][0]["endpoint"],
        format!("pg.test=127.0.0.1:{port}")
    );
    let agent = Agent::new(&rig, "one");
    let listed = agent.works("sandbox_environments", json!({})).await;
    assert_eq!(listed["environments"][0]["connectorOnline"], true);
    // Others do not.
    let outside = rig.ready_box().await;
    assert!(rig.fake.connect(outside, port).await.is_err());

    // It is there again after a freeze, and after a restart.
    rig.freeze(id).await.expect(200);
    has_ended(&mut process).await;
    rig.exec(id, "true").await.expect(200);
    drop(echoes(&rig, id, port).await);
    rig.restart().await;
    let client = rig.client();
    within(async {
        while rig.fake.connect(id, port).await.is_err() {
            tokio::task::yield_now().await
        }
    })
    .await;

    let endpoints = format!("{path}/{of}/endpoints");
    for bad in [
        json!(["x"]),
        json!(["10.0.0.1:80"]),
        json!(["localhost:80"]),
        json!(["a:80", "a:80"]),
        json!("a:80"),
        json!(vec!["a:80"; 65]),
    ] {
        let body = json!({"endpoints": bad});
        client
            .call(Method::PUT, &endpoints, Some(body))
            .await
            .error(400, "bad_request");
    }
    let none = json!({"endpoints": []});
    let set = client
        .call(Method::PUT, &endpoints, Some(none.clone()))
        .await
        .expect(200);
    assert_eq!(set["hosts"], json!([]));
    assert!(
        rig.fake.connect(id, port).await.is_err(),
        "it is taken back at once"
    );
    let names = rig.fake.read_file(id, "hosts").await.unwrap();
    assert!(!names.contains("pg.test"), "{names}");
    client
        .call(
            Method::PUT,
            &format!("{path}/conn_nosuch/endpoints"),
            Some(none.clone()),
        )
        .await
        .error(404, "not_found");
    client
        .post(
            "/v1/environments/nosuch/connections",
            json!({"name": "vpc"}),
        )
        .await
        .error(404, "not_found");
    client
        .post(path, json!({"name": "Bad Name"}))
        .await
        .error(400, "bad_request");

    // It opens the host's networks, so that only the admin's key does it; for other accounts as well.
    let stranger = rig.other_account().await;
    let client = rig.client();
    stranger
        .post("/v1/environments", json!({"name": "own"}))
        .await
        .expect(201);
    let own = "/v1/environments/own/connections";
    stranger
        .post(own, json!({"name": "vpc"}))
        .await
        .error(403, "forbidden");
    let for_other = format!("{own}?account=other");
    let made = client.post(
        &for_other,
        json!({"name": "vpc", "endpoints": ["db.internal.invalid:5432"]}),
    );
    let made = made.await.expect(201);
    assert_eq!(made["online"], false);
    let listed = stranger
        .call(Method::GET, "/v1/environments", None)
        .await
        .expect(200);
    assert_eq!(
        listed["environments"][0]["connections"][0]["id"],
        made["id"]
    );
    client
        .call(Method::DELETE, &format!("{path}/{of}"), None)
        .await
        .expect(200);
    client
        .call(Method::DELETE, &format!("{path}/{of}"), None)
        .await
        .error(404, "not_found");
}
