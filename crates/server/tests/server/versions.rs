//! Published versions that run under a name of a box: each in a box of its own, which ends when nobody has a use for it.

use icebox_lifecycle::BoxId;
use icebox_server::driver::fake::{Behaviour, Gate, Step};
use icebox_server::driver::{Driver as _, Stream};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use crate::program::within;
use crate::rig::{Answer, HOUR, MIN, Rig};

fn id(text: &Value) -> BoxId {
    BoxId::parse(text.as_str().unwrap()).unwrap()
}

async fn publish(rig: &Rig, body: Value) -> Answer {
    rig.post("/v1/versions", body).await
}

async fn wire(rig: &Rig, of: BoxId, body: Value) -> Answer {
    rig.post(&format!("/v1/boxes/{of}/wire"), body).await
}

/// A service of a box, as its status has it.
async fn service(rig: &Rig, of: BoxId, name: &str) -> Value {
    let shown = rig.status(of).await;
    let services = shown["services"].as_array().unwrap().iter();
    let mut found = services.filter(|service| service["name"] == name);
    found.next().unwrap().clone()
}

/// A program that says this word to whoever connects and asks, on port 3000 of a box.
async fn answers(rig: &Rig, of: BoxId, word: &'static str) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    rig.fake
        .listen(of, 3000, Some(listener.local_addr().unwrap()));
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            // Whoever only knocks asks nothing.
            if stream.read(&mut [0; 1]).await.is_ok_and(|read| read == 1) {
                let _ = stream.write_all(word.as_bytes()).await;
            }
        }
    });
}

/// Has version `label` of `api` published from a box with a program that says so, and goes on in it.
async fn published(rig: &Rig, label: &'static str) {
    let source = rig.ready_box().await;
    answers(rig, source, label).await;
    let body = json!({"service": "api", "label": label, "fromBox": source.as_str()});
    let made = publish(rig, body).await.expect(201);
    assert!(
        made["image"].as_str().unwrap().starts_with("snapshot:snap"),
        "{made}"
    );
    rig.stop(source).await.expect(200);
}

/// A box with the name `api` for that version, and the box in which it runs.
async fn with_version(rig: &Rig, label: &str) -> (BoxId, BoxId) {
    let services = json!([{"name": "api", "port": 3000, "version": label}]);
    let of = rig.box_with(json!({ "services": services })).await;
    let runs_in = id(&service(rig, of, "api").await["fromBox"]);
    (of, runs_in)
}

/// What the program says to which the name leads in a box.
async fn said(rig: &Rig, of: BoxId, port: u16) -> String {
    let mut process: Stream = within(rig.fake.connect(of, port)).await.unwrap();
    within(process.write_all(b"?")).await.unwrap();
    let mut said = String::new();
    within(process.read_to_string(&mut said)).await.unwrap();
    said
}

/// Waits until no connection holds a box any more; it has ended, but the box may not have heard of it yet.
async fn released(rig: &Rig, of: BoxId) {
    let released = async { while rig.status(of).await["freeze"]["blockedBy"] != json!([]) {} };
    within(released).await;
}

#[tokio::test]
async fn what_ran_when_it_was_published_goes_on_under_the_name() {
    let rig = Rig::new().await;
    published(&rig, "v1").await;
    let (of, runs_in) = with_version(&rig, "v1").await;
    let shown = service(&rig, of, "api").await;
    assert_eq!(
        (&shown["mode"], &shown["version"]),
        (&json!("link"), &json!("v1"))
    );
    assert!(
        shown["versionId"].as_str().unwrap().starts_with("ver_"),
        "{shown}"
    );
    assert_eq!(said(&rig, of, 3000).await, "v1");
    let other = rig.status(runs_in).await;
    assert_eq!(other["name"], "api v1");
    assert_eq!(other["goal"], format!("version v1 of api, for box {of}"));
    assert_eq!(other["linkedFrom"][0]["box"], of.as_str());
    // It freezes like any box, and a connection wakes it.
    released(&rig, runs_in).await;
    rig.freeze(runs_in).await.expect(200);
    assert_eq!(said(&rig, of, 3000).await, "v1");
    released(&rig, runs_in).await;
    rig.freeze(runs_in).await.expect(200);
    // In a box that was there before, by its id, and on a port of its own.
    let before = rig.ready_box().await;
    let named =
        json!({"service": "api", "port": 8080, "targetPort": 3000, "version": shown["versionId"]});
    let wired = wire(&rig, before, named).await.expect(200);
    let second = &wired["services"][0];
    assert_eq!(
        (&second["version"], &second["targetPort"]),
        (&json!("v1"), &json!(3000))
    );
    assert_ne!(second["fromBox"], shown["fromBox"], "each box has its own");
    assert_eq!(said(&rig, before, 8080).await, "v1");
    let steps = rig.status(before).await["steps"].clone();
    let step = steps.as_array().unwrap().last().unwrap().clone();
    assert_eq!(
        (&step["kind"], &step["detail"]),
        (&json!("wire"), &json!("version v1"))
    );
}

#[tokio::test]
async fn a_version_with_a_command_is_started_by_it_with_variables() {
    let rig = Rig::new().await;
    let source = rig.ready_box().await;
    let body = json!({"service": "api", "label": "v1", "fromBox": source.as_str(), "cmd": "hang"});
    let made = publish(&rig, body).await.expect(201);
    assert_eq!(made["cmd"], "hang");
    let snapshots = rig.get("/v1/snapshots").await.expect(200);
    assert_eq!(
        snapshots["snapshots"][0]["memory"], false,
        "its files are enough"
    );
    let of = rig.ready_box().await;
    let body = json!({"service": "api", "port": 3000, "version": "v1", "env": {"MODE": "test"}});
    let (wired, ()) = tokio::join!(wire(&rig, of, body), async {
        // Its program listens a moment after its command began.
        let runs_in = runs_v1(&rig).await;
        rig.until_running(runs_in).await;
        answers(&rig, runs_in, "started").await;
    });
    let wired = wired.expect(200);
    let shown = &wired["services"][0];
    assert_eq!(shown["env"], json!({"MODE": "test"}));
    assert_eq!(said(&rig, of, 3000).await, "started");
    let runs_in = id(&shown["fromBox"]);
    // The daemon of the fake gets none of them; a real box is asked by the program of an agent's work.
    let view = rig.engine().views().get(runs_in).unwrap();
    assert_eq!(view.record.env.get("MODE"), Some("test"));
}

#[tokio::test]
async fn a_box_that_runs_a_version_ends_when_nobody_has_a_use_for_it() {
    let rig = Rig::new().await;
    published(&rig, "v1").await;
    published(&rig, "v2").await;
    let (of, one) = with_version(&rig, "v1").await;
    assert_eq!(said(&rig, of, 3000).await, "v1");
    // Another version under the name.
    let body = json!({"service": "api", "version": "v2"});
    let wired = wire(&rig, of, body).await.expect(200);
    let two = id(&wired["services"][0]["fromBox"]);
    rig.until(one, "terminated").await;
    assert_eq!(said(&rig, of, 3000).await, "v2");
    // Only its port or its mark changes: it is needed as before.
    wire(&rig, of, json!({"service": "api", "web": true}))
        .await
        .expect(200);
    assert_eq!(rig.state(two).await, "ready");
    // Its own program.
    wire(&rig, of, json!({"service": "api", "mode": "box"}))
        .await
        .expect(200);
    rig.until(two, "terminated").await;
    assert!(service(&rig, of, "api").await.get("version").is_none());
    // Stopped by a call.
    let (of, runs_in) = with_version(&rig, "v1").await;
    rig.stop(of).await.expect(200);
    rig.until(runs_in, "terminated").await;
    // A box that merely has a link to one that runs a version ends nothing.
    let (of, runs_in) = with_version(&rig, "v1").await;
    let link = json!([{"name": "api", "port": 3000, "fromBox": runs_in.as_str()}]);
    let guest = rig.box_with(json!({ "services": link })).await;
    rig.stop(guest).await.expect(200);
    assert_eq!(rig.state(runs_in).await, "ready");
    rig.stop(of).await.expect(200);
    rig.until(runs_in, "terminated").await;
}

#[tokio::test]
async fn a_box_that_can_be_brought_back_finds_its_version_again() {
    let rig = Rig::new().await;
    published(&rig, "v1").await;
    let (of, runs_in) = with_version(&rig, "v1").await;
    rig.advance(11 * MIN).await;
    rig.until(of, "frozen").await;
    rig.until(runs_in, "frozen").await;
    rig.advance(25 * HOUR).await;
    assert_eq!(rig.state(of).await, "terminated");
    assert_eq!(
        rig.state(runs_in).await,
        "frozen",
        "a day without use does not end it"
    );
    rig.post("/v1/boxes", json!({"restore": of.as_str()}))
        .await
        .expect(201);
    assert_eq!(said(&rig, of, 3000).await, "v1");
    released(&rig, runs_in).await;
    rig.advance(11 * MIN).await;
    rig.advance(25 * HOUR).await;
    assert_eq!(rig.state(of).await, "terminated");
    // With the copy of the box goes what it needed.
    rig.advance(24 * HOUR).await;
    rig.until(runs_in, "terminated").await;
}

#[tokio::test]
async fn what_cannot_run_is_refused_and_leaves_nothing() {
    let rig = Rig::new().await;
    published(&rig, "v1").await;
    let of = rig.ready_box().await;
    for (label, body) in [
        ("other", json!({"image": "registry.example/api:1"})),
        ("bare", json!({"image": "host"})),
    ] {
        let mut body = body;
        body["service"] = json!("api");
        body["label"] = json!(label);
        publish(&rig, body).await.expect(201);
    }
    for (body, field, said) in [
        (json!({"version": "v9"}), "version", "the latest are"),
        (
            json!({"version": "other"}),
            "version",
            "no box starts from `registry.example/api:1`",
        ),
        (
            json!({"version": "bare"}),
            "version",
            "publish it with a `cmd`",
        ),
        (
            json!({"version": "v1", "env": {"A": "1"}}),
            "env",
            "goes on as it ran",
        ),
        (
            json!({"version": "v1", "env": {"A B": "1"}}),
            "env",
            "letters, digits",
        ),
        (json!({"version": "v1", "mode": "box"}), "mode", "left out"),
        (
            json!({"version": "v1", "fromBox": of.as_str()}),
            "fromBox",
            "left out",
        ),
        (
            json!({"version": "v1", "targetPort": 49983}),
            "targetPort",
            "49983",
        ),
        (json!({"env": {"A": "1"}}), "env", "goes with `version`"),
    ] {
        let mut body = body;
        body["service"] = json!("api");
        body["port"] = json!(3000);
        let refused = wire(&rig, of, body.clone()).await;
        assert_eq!(refused.json["field"], field, "{body}: {}", refused.json);
        let text = refused.error(400, "bad_request");
        assert!(text.contains(said), "{body}: {text}");
    }
    for (services, said) in [
        (
            json!([{"name": "api", "port": 3000, "version": "v9"}]),
            "is none",
        ),
        (
            json!([{"name": "api", "port": 3000, "version": "v1", "fromBox": of.as_str()}]),
            "without `fromBox`",
        ),
        // One of two that runs is ended again.
        (
            json!([{"name": "api", "port": 3000, "version": "v1"}, {"name": "web", "port": 80, "version": "v1"}]),
            "is none",
        ),
        (
            json!([{"name": "api", "port": 3000, "version": "v1"}, {"name": "web", "port": 3000}]),
            "different",
        ),
    ] {
        let refused = rig.post("/v1/boxes", json!({ "services": services })).await;
        let text = refused.error(400, "bad_request");
        assert!(text.contains(said), "{services}: {text}");
    }
    let source = rig.ready_box().await;
    let again = json!({"service": "api", "label": "v1", "fromBox": source.as_str()});
    let text = publish(&rig, again).await.error(400, "bad_request");
    assert!(text.contains("published already"), "{text}");
    for body in [
        json!({}),
        json!({"image": "host", "fromBox": source.as_str()}),
    ] {
        let mut body = body;
        body["service"] = json!("api");
        body["label"] = json!("v3");
        let text = publish(&rig, body).await.error(400, "bad_request");
        assert!(text.contains("exactly one of"), "{text}");
    }
    let snapshots = rig.get("/v1/snapshots").await.expect(200);
    let [only] = &snapshots["snapshots"].as_array().unwrap()[..] else {
        panic!("one for the version, and no more: {snapshots}");
    };
    // A removed one runs no more, and says so.
    let path = format!("/v1/snapshots/{}", only["id"].as_str().unwrap());
    rig.client()
        .call(axum::http::Method::DELETE, &path, None)
        .await
        .expect(200);
    let gone = wire(
        &rig,
        of,
        json!({"service": "api", "port": 3000, "version": "v1"}),
    )
    .await;
    let text = gone.error(400, "bad_request");
    assert!(text.contains("was removed"), "{text}");
    let listed = rig.get("/v1/boxes").await.expect(200);
    let boxes = listed["boxes"].as_array().unwrap().iter();
    let running: Vec<_> = boxes.map(|it| &it["id"]).collect();
    assert_eq!(running.len(), 2, "nothing else runs: {listed}");
}

#[tokio::test]
async fn versions_are_their_accounts_own() {
    let mut rig = Rig::new().await;
    published(&rig, "v1").await;
    let other = rig.other_account().await;
    let services = json!([{"name": "api", "port": 3000, "version": "v1"}]);
    let refused = other
        .post("/v1/boxes", json!({ "services": services }))
        .await;
    let text = refused.error(400, "bad_request");
    assert!(text.contains("there are none yet"), "{text}");
    let snapshots = rig.get("/v1/snapshots").await.expect(200);
    let image = format!(
        "snapshot:{}",
        snapshots["snapshots"][0]["id"].as_str().unwrap()
    );
    let body = json!({"service": "api", "label": "v1", "image": image});
    let refused = other.post("/v1/versions", body).await;
    assert_eq!(refused.json["field"], "image", "{}", refused.json);
    refused.error(400, "bad_request");
}

/// Once there is one, the box in which version `v1` of `api` runs.
async fn runs_v1(rig: &Rig) -> BoxId {
    let found = async {
        loop {
            let listed = rig.get("/v1/boxes").await.expect(200);
            let mut boxes = listed["boxes"].as_array().unwrap().iter();
            if let Some(found) = boxes.find(|it| it["name"] == "api v1") {
                return id(&found["id"]);
            }
        }
    };
    within(found).await
}

async fn published_with_a_command(rig: &Rig) -> BoxId {
    let source = rig.ready_box().await;
    let body = json!({"service": "api", "label": "v1", "fromBox": source.as_str(), "cmd": "hang"});
    publish(rig, body).await.expect(201);
    rig.ready_box().await
}

fn wires_v1(rig: &Rig, of: BoxId) -> tokio::task::JoinHandle<()> {
    let client = rig.client();
    let body = json!({"service": "api", "port": 3000, "version": "v1"});
    tokio::spawn(async move {
        client.post(&format!("/v1/boxes/{of}/wire"), body).await;
    })
}

#[tokio::test]
async fn a_version_is_wired_even_if_the_caller_goes_away() {
    let rig = Rig::new().await;
    let of = published_with_a_command(&rig).await;
    let wires = wires_v1(&rig, of);
    let runs_in = runs_v1(&rig).await;
    rig.until_running(runs_in).await;
    wires.abort();
    answers(&rig, runs_in, "started").await;
    let led = async { while rig.status(of).await["services"][0]["fromBox"] != runs_in.as_str() {} };
    within(led).await;
    assert_eq!(said(&rig, of, 3000).await, "started");
}

#[tokio::test]
async fn a_version_that_was_being_started_when_the_server_ended_is_not_left_behind() {
    let mut rig = Rig::new().await;
    let of = published_with_a_command(&rig).await;
    let gate = Gate::default();
    rig.fake
        .next(Step::Boot, Behaviour::HoldAfter(gate.clone()));
    drop(wires_v1(&rig, of));
    gate.reached().await;
    let runs_in = runs_v1(&rig).await;
    rig.restart().await;
    rig.until(runs_in, "terminated").await;
    let shown = rig.status(runs_in).await;
    assert_eq!(
        shown["statusReason"],
        "the box that it worked for has no use for it any more"
    );
    assert_eq!(rig.state(of).await, "ready");
}
