//! The E2B dialect's control plane and its way into boxes, as its clients see them.

use axum::Router;
use axum::http::Method;
use axum::routing::get;
use icebox_lifecycle::BoxId;
use serde_json::{Value, json};

use crate::program::{Program, Talk};
use crate::rig::{Answer, HOUR, MIN, Rig, RigClient};

/// A client with the admin's key, as this dialect carries it.
pub(crate) fn client(rig: &Rig) -> RigClient {
    let key = std::fs::read_to_string(rig.data().join("admin.key")).unwrap();
    let client = rig.client().with_key(None);
    client.with_header("x-api-key", key.trim())
}

async fn create(client: &RigClient, more: Value) -> Value {
    let mut body = json!({"templateID": "base", "timeout": 300});
    for (field, value) in more.as_object().unwrap() {
        body[field] = value.clone();
    }
    client.post("/v2/sandboxes", body).await.expect(201)
}

fn id(sandbox: &Value) -> BoxId {
    BoxId::parse(sandbox["sandboxID"].as_str().unwrap()).unwrap()
}

async fn info(client: &RigClient, id: BoxId) -> Answer {
    let path = format!("/sandboxes/{id}");
    client.call(Method::GET, &path, None).await
}

async fn state(client: &RigClient, id: BoxId) -> Value {
    info(client, id).await.expect(200)["state"].clone()
}

async fn act(client: &RigClient, id: BoxId, what: &str, body: Value) -> Answer {
    client.post(&format!("/sandboxes/{id}/{what}"), body).await
}

/// A request to a port of a box.
async fn traffic(rig: &Rig, id: BoxId, port: u16, path: &str) -> Answer {
    let client = rig.client().with_key(None);
    let client = client.with_header("e2b-sandbox-id", id.as_str());
    let client = client.with_header("e2b-sandbox-port", &port.to_string());
    client.call(Method::GET, path, None).await
}

/// A program of the box that says hello on port 8000.
async fn hello(rig: &Rig, id: BoxId) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let program = Router::new().route("/", get(|| async { "hello" }));
    tokio::spawn(async move { axum::serve(listener, program).await.unwrap() });
    rig.fake.listen(id, 8000, Some(address));
}

#[tokio::test]
async fn a_box_ends_at_the_moment_that_was_set_frozen_or_not() {
    let rig = Rig::new().await;
    let client = client(&rig);
    let made = create(&client, json!({"timeout": HOUR})).await;
    for field in [
        "templateID",
        "sandboxID",
        "clientID",
        "envdVersion",
        "envdAccessToken",
    ] {
        assert!(made[field].is_string(), "{field}: {made}");
    }
    let id = id(&made);
    rig.advance(30 * MIN).await;
    assert_eq!(rig.state(id).await, "frozen");
    assert_eq!(state(&client, id).await, "running");
    rig.advance(30 * MIN - 1).await;
    assert_eq!(state(&client, id).await, "running");
    rig.advance(1).await;
    let gone = info(&client, id).await;
    assert_eq!(gone.headers["should-retry"], "false");
    assert_eq!(gone.expect(404)["code"], 404);
}

#[tokio::test]
async fn a_paused_box_is_kept_and_comes_back_with_a_new_end() {
    let rig = Rig::new().await;
    let client = client(&rig);
    let made = create(&client, json!({})).await;
    let id = id(&made);
    act(&client, id, "pause", json!({})).await.expect(204);
    act(&client, id, "pause", json!({})).await.expect(409);
    act(&client, id, "timeout", json!({"timeout": 9}))
        .await
        .expect(404);
    rig.advance(60 * 24 * HOUR).await;
    assert_eq!(state(&client, id).await, "paused");
    let unreachable = traffic(&rig, id, 49983, "/health").await.expect(502);
    assert_eq!(unreachable["message"], "The sandbox was not found");
    let refused = rig.exec(id, "true").await;
    refused.error(409, "paused");

    let connect = format!("/v2/sandboxes/{id}/connect");
    let back = client.post(&connect, json!({"timeout": 60})).await;
    let back = back.expect(201);
    assert_eq!(back["envdAccessToken"], made["envdAccessToken"]);
    let end = async || info(&client, id).await.expect(200)["endAt"].clone();
    let first = end().await;
    client
        .post(&connect, json!({"timeout": 30}))
        .await
        .expect(200);
    assert_eq!(end().await, first, "never less than it had");
    client
        .post(&connect, json!({"timeout": 90}))
        .await
        .expect(200);
    assert_ne!(end().await, first);
    rig.advance(89).await;
    assert_eq!(state(&client, id).await, "running");
    rig.advance(1).await;
    info(&client, id).await.expect(404);
}

#[tokio::test]
async fn a_pause_at_the_end_is_ended_by_traffic_where_that_was_asked_for() {
    let rig = Rig::new().await;
    let client = client(&rig);
    let auto = json!({"autoPause": true, "autoResume": {"enabled": true}});
    let wakes = id(&create(&client, auto).await);
    let stays = id(&create(&client, json!({"autoPause": true})).await);
    let files =
        json!({"autoPause": true, "autoPauseMemory": false, "autoResume": {"enabled": true}});
    let files = id(&create(&client, files).await);
    for id in [wakes, stays, files] {
        hello(&rig, id).await;
    }
    rig.advance(300).await;
    for id in [wakes, stays, files] {
        assert_eq!(state(&client, id).await, "paused");
    }
    assert_eq!(
        info(&client, files).await.expect(200)["pauseMode"],
        "filesystem"
    );
    let said = traffic(&rig, wakes, 8000, "/").await;
    assert_eq!(
        (said.status.as_u16(), &said.bytes[..]),
        (200, &b"hello"[..])
    );
    traffic(&rig, stays, 8000, "/").await.expect(502);
    traffic(&rig, files, 8000, "/").await.expect(502);
    rig.advance(299).await;
    assert_eq!(state(&client, wakes).await, "running");
    rig.advance(1).await;
    assert_eq!(state(&client, wakes).await, "paused");
    act(&client, files, "resume", json!({})).await.expect(201);
    act(&client, files, "resume", json!({})).await.expect(409);
}

#[tokio::test]
async fn traffic_wakes_a_box_that_froze_for_being_idle_and_is_a_use() {
    let rig = Rig::new().await;
    let client = client(&rig);
    let id = id(&create(&client, json!({"timeout": 10 * HOUR})).await);
    hello(&rig, id).await;
    rig.advance(HOUR).await;
    assert_eq!(rig.state(id).await, "frozen");
    let said = traffic(&rig, id, 8000, "/").await;
    assert_eq!(said.status.as_u16(), 200, "{}", said.json);
    assert_eq!(rig.state(id).await, "ready");
    rig.until_unused(id).await;
    rig.advance(10 * MIN - 1).await;
    assert_eq!(rig.state(id).await, "ready");
    rig.advance(1).await;
    assert_eq!(rig.state(id).await, "frozen");
}

#[tokio::test]
async fn traffic_goes_where_it_may_and_clients_are_told_why_not() {
    let rig = Rig::new().await;
    let client = client(&rig);
    let closed = json!({"network": {"allowPublicTraffic": false}});
    let made = create(&client, closed).await;
    let id = id(&made);
    hello(&rig, id).await;
    let nobody = traffic(&rig, id, 8000, "/").await.expect(403);
    assert_eq!(nobody["sandboxId"], id.as_str());
    let token = made["trafficAccessToken"].as_str().unwrap();
    let with = |port: &str| {
        let client = rig.client().with_key(None);
        let client = client.with_header("e2b-sandbox-id", &format!("{id}-icebox"));
        let client = client.with_header("e2b-sandbox-port", port);
        client.with_header("e2b-traffic-access-token", token)
    };
    let said = with("8000").call(Method::GET, "/", None).await;
    assert_eq!(said.status.as_u16(), 200);
    let shut = with("8001").call(Method::GET, "/", None).await.expect(502);
    let text = shut["message"].as_str().unwrap();
    assert!(text.contains("port is not open"), "{text}");
    with("0").call(Method::GET, "/", None).await.expect(400);
    // The daemon's own service is the server's alone.
    let daemon = with("49983");
    let own = daemon.post("/icebox.boxd.v1.Boxd/Exec", json!({}));
    own.await.expect(404);

    let half = rig.client().with_header("e2b-sandbox-id", id.as_str());
    half.call(Method::GET, "/", None).await.expect(400);
    let other = rig.ready_box().await;
    traffic(&rig, other, 8000, "/").await.expect(502);
    traffic(&rig, BoxId::parse(&"z".repeat(20)).unwrap(), 8000, "/")
        .await
        .expect(502);
}

#[tokio::test]
async fn lists_have_pages_filters_and_an_order() {
    let rig = Rig::new().await;
    let client = client(&rig);
    let mut ids = Vec::new();
    for n in 0..5 {
        let metadata =
            json!({"metadata": {"n": (n % 2).to_string(), "of": "a b"}, "timeout": HOUR});
        ids.push(id(&create(&client, metadata).await).to_string());
        rig.advance(1).await;
    }
    let get = async |path: &str| client.call(Method::GET, path, None).await;
    let named = |answer: &Answer| -> Vec<String> {
        let boxes = answer.json.as_array().unwrap().iter();
        boxes
            .map(|sandbox| sandbox["sandboxID"].as_str().unwrap().to_owned())
            .collect()
    };
    let mut newest: Vec<String> = ids.clone();
    newest.reverse();
    let (mut pages, mut token) = (Vec::new(), String::new());
    loop {
        let page = get(&format!("/v2/sandboxes?limit=2{token}")).await;
        assert_eq!(page.headers["x-total-running"], "5");
        pages.extend(named(&page));
        let Some(next) = page.headers.get("x-next-token") else {
            break;
        };
        token = format!("&nextToken={}", next.to_str().unwrap());
    }
    assert_eq!(pages, newest);
    assert_eq!(named(&get("/v2/sandboxes?order=asc").await), ids);
    let odd = get("/v2/sandboxes?metadata=n%3D1%26of%3Da%252520b").await;
    assert_eq!(named(&odd), [newest[1].clone(), newest[3].clone()]);
    let first = BoxId::parse(&ids[0]).unwrap();
    act(&client, first, "pause", json!({})).await.expect(204);
    assert_eq!(named(&get("/v2/sandboxes?state=paused").await), ids[..1]);
    assert_eq!(named(&get("/sandboxes").await), newest[..4]);
    get("/v2/sandboxes?nextToken=x").await.expect(400);
    get("/v2/sandboxes?limit=101").await.expect(400);
}

#[tokio::test]
async fn what_does_not_fit_is_refused_in_the_words_of_the_dialect() {
    let rig = Rig::new().await;
    let client = client(&rig);
    let bad = [
        (400, json!({"templateID": "base", "timeout": 0})),
        (400, json!({"templateID": "base", "timeout": 2_592_001})),
        (400, json!({"templateID": "base", "timeout": "soon"})),
        (400, json!({"templateID": "base", "metadata": {"a": 1}})),
        (400, json!({"templateID": "base", "envVars": {"1": "x"}})),
        (
            400,
            json!({"templateID": "base", "network": {"denyOut": ["example.com"]}}),
        ),
        (400, json!({})),
        (404, json!({"templateID": "nobody-made-this"})),
        (
            501,
            json!({"templateID": "base", "volumeMounts": [{"name": "v", "path": "/v"}]}),
        ),
        (
            501,
            json!({"templateID": "base", "network": {"allowOut": ["example.com"]}}),
        ),
    ];
    for (status, body) in bad {
        for path in ["/sandboxes", "/v2/sandboxes"] {
            let refused = client.post(path, body.clone()).await;
            assert_eq!(refused.headers["should-retry"], "false");
            let error = refused.expect(status);
            assert_eq!(error["code"], status, "{body}");
            assert!(error["message"].is_string(), "{error}");
        }
    }
    for path in [
        "/volumes",
        "/secrets",
        "/v3/templates",
        "/templates/x/builds/y",
    ] {
        client.post(path, json!({})).await.expect(501);
    }
    let nobody = rig.client().with_key(None);
    let refused = nobody.call(Method::GET, "/v2/sandboxes", None).await;
    assert_eq!(refused.expect(401)["code"], 401);
    let alias = client.call(Method::GET, "/templates/aliases/base", None);
    assert_eq!(alias.await.expect(200)["templateID"], "base");
}

#[tokio::test]
async fn another_account_sees_and_reaches_nothing() {
    let mut rig = Rig::new().await;
    let own = create(&client(&rig), json!({})).await;
    let other = rig.other_account().await;
    let key = format!("e2b_{}", "b".repeat(40));
    let other = other.with_key(None).with_header("x-api-key", &key);
    let id = id(&own);
    info(&other, id).await.expect(404);
    for what in ["pause", "connect", "timeout", "resume"] {
        let body = json!({"timeout": 1});
        act(&other, id, what, body).await.expect(404);
    }
    let listed = other.call(Method::GET, "/v2/sandboxes", None).await;
    assert_eq!(listed.expect(200), json!([]));
    assert_eq!(state(&client(&rig), id).await, "running");
}

/// A request to the host name of a port of a box, as `get_host` gives it.
fn at_host(rig: &Rig, id: BoxId, port: u16) -> RigClient {
    let client = rig.client().with_key(None);
    client.with_header("host", &format!("{port}-{id}.localhost:7070"))
}

#[tokio::test]
async fn a_host_name_is_as_good_as_headers() {
    let rig = Rig::new().await;
    let client = client(&rig);
    let id = id(&create(&client, json!({"timeout": 10 * HOUR})).await);
    hello(&rig, id).await;
    rig.advance(HOUR).await;
    assert_eq!(rig.state(id).await, "frozen");
    // It is no page load, and wakes the box all the same.
    let said = at_host(&rig, id, 8000).load("/").await;
    assert_eq!(
        (said.status.as_u16(), said.text()),
        (200, "hello".to_owned())
    );
    assert_eq!(rig.state(id).await, "ready");
    let shut = at_host(&rig, id, 8001).load("/").await.expect(502);
    let text = shut["message"].as_str().unwrap();
    assert!(text.contains("port is not open"), "{text}");
    // Who pretends to speak to another box is not heard.
    let other = "z".repeat(20);
    let pretends = at_host(&rig, id, 8000).with_header("e2b-sandbox-id", &other);
    assert_eq!(pretends.load("/").await.status.as_u16(), 200);
    let daemon = at_host(&rig, id, 49983);
    let own = daemon.post("/icebox.boxd.v1.Boxd/Exec", json!({}));
    own.await.expect(404);
    let path = format!("/sandboxes/{id}");
    let kill = client.call(Method::DELETE, &path, None);
    kill.await.expect(204);
    let gone = at_host(&rig, id, 8000).load("/").await.expect(502);
    assert_eq!(gone["message"], "The sandbox was not found");
}

#[tokio::test]
async fn a_closed_port_takes_the_token_at_its_host_name_too() {
    let rig = Rig::new().await;
    let closed = json!({"network": {"allowPublicTraffic": false}});
    let made = create(&client(&rig), closed).await;
    let id = id(&made);
    hello(&rig, id).await;
    let token = made["trafficAccessToken"].as_str().unwrap();
    let with = |token: &str| {
        let client = at_host(&rig, id, 8000);
        client.with_header("e2b-traffic-access-token", token)
    };
    assert_eq!(with(token).load("/").await.text(), "hello");
    with("wrong").load("/").await.expect(403);
    at_host(&rig, id, 8000).load("/").await.expect(403);
    // Boxes of other dialects have no such way in.
    let own = rig.ready_box().await;
    hello(&rig, own).await;
    rig.freeze(own).await.expect(200);
    let asleep = at_host(&rig, own, 8000).load("/").await;
    assert_eq!(asleep.expect(503)["status"], "frozen");
}

#[tokio::test]
async fn a_websocket_holds_its_box_until_it_closes() {
    let rig = Rig::new().await;
    let id = id(&create(&client(&rig), json!({"timeout": 10 * HOUR})).await);
    let program = Program::on(&rig, id, 8000).await;
    let mut visitor = Talk::to(rig.address()).await;
    let request = format!(
        "GET /socket HTTP/1.1\r\nHost: localhost\r\nE2b-Sandbox-Id: {id}\r\nE2b-Sandbox-Port: 8000\r\n\
         Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
    );
    visitor.say(&request).await;
    let mut socket = program.accept().await;
    socket.head().await;
    let switches =
        "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
    socket.say(switches).await;
    visitor.head().await;
    rig.advance(HOUR).await;
    assert_eq!(rig.state(id).await, "ready");
    socket.say("still here").await;
    visitor.hear("still here").await;
    drop((visitor, socket));
    rig.until_unused(id).await;
    rig.advance(10 * MIN).await;
    assert_eq!(rig.state(id).await, "frozen");
}

#[tokio::test]
async fn a_path_that_leads_nowhere_is_an_error_of_the_dialect() {
    let rig = Rig::new().await;
    let client = client(&rig);
    for (method, path) in [(Method::GET, "/teams"), (Method::PUT, "/v2/sandboxes")] {
        let error = client.call(method, path, None).await.expect(404);
        assert_eq!(error["code"], 404);
        assert!(error["message"].is_string(), "{error}");
    }
}
