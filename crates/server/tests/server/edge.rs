//! Rules 3.4, 4.5 and 8: links that wake, pages that wait, what holds a box and what does not, and who may look.

use axum::http::{Method, StatusCode};
use axum::routing::get;
use icebox_lifecycle::{BoxId, Event};
use icebox_server::driver::fake::{Behaviour, Gate, Step};
use serde_json::json;

use crate::program::{Program, browser, host};
use crate::rig::{MIN, Rig};

#[tokio::test]
async fn a_page_load_wakes_a_frozen_box_and_then_shows_the_app() {
    let rig = Rig::new().await;
    let id = rig.web_box().await;
    rig.says(id, "the app").await;
    assert_eq!(rig.opens("web", id).await.text(), "the app");
    rig.freeze(id).await.expect(200);
    let gate = Gate::default();
    rig.fake
        .next(Step::Thaw, Behaviour::HoldBefore(gate.clone()));
    let page = rig.opens("web", id).await;
    assert_eq!(page.status, 503);
    assert_eq!(page.headers["retry-after"], "3");
    assert_eq!(page.headers["cache-control"], "no-store");
    assert!(
        page.headers["content-type"]
            .to_str()
            .unwrap()
            .starts_with("text/html")
    );
    let html = page.text();
    assert!(html.contains("Waking this box…"), "{html}");
    assert!(
        html.contains("This page reloads by itself in a few seconds."),
        "{html}"
    );
    gate.reached().await;
    gate.open();
    rig.until(id, "ready").await;
    assert_eq!(rig.opens("web", id).await.text(), "the app");
    assert_eq!(rig.opens("3000", id).await.text(), "the app");
    assert_eq!(rig.fake.count(Step::Thaw), 1);
    let why = rig.status(id).await["why"].to_string();
    assert!(why.contains("5.1"), "a wake is use: {why}");
}

#[tokio::test]
async fn the_waiting_page_learns_when_the_box_is_awake() {
    let rig = Rig::new().await;
    let id = rig.web_box().await;
    rig.freeze(id).await.expect(200);
    let gate = Gate::default();
    rig.fake
        .next(Step::Thaw, Behaviour::HoldBefore(gate.clone()));
    let html = browser(rig.at("web", id).with_header("accept-language", "ja"));
    let html = html.load("/").await.text();
    assert!(
        html.contains("lang=\"ja\"") && html.contains("/.icebox/awake"),
        "{html}"
    );
    let client = rig.at("web", id);
    let asking = tokio::spawn(async move { client.load("/.icebox/awake").await });
    gate.reached().await;
    gate.open();
    assert_eq!(asking.await.unwrap().status, 204);
    let used = rig.status(id).await["freeze"].clone();
    rig.at("web", id).load("/.icebox/awake").await;
    assert_eq!(
        rig.status(id).await["freeze"],
        used,
        "asking is no activity"
    );
    assert_eq!(rig.at("web", id).load("/.icebox/other").await.status, 404);
}

#[tokio::test]
async fn nothing_but_a_page_load_wakes() {
    let rig = Rig::new().await;
    let id = rig.web_box().await;
    rig.freeze(id).await.expect(200);
    type Row = (Method, &'static [(&'static str, &'static str)]);
    let table: &[Row] = &[
        (
            Method::GET,
            &[("sec-fetch-mode", "cors"), ("accept", "text/html")],
        ),
        (
            Method::GET,
            &[("sec-fetch-mode", "no-cors"), ("accept", "image/png")],
        ),
        (Method::GET, &[("accept", "*/*")]),
        (
            Method::POST,
            &[("sec-fetch-mode", "navigate"), ("accept", "text/html")],
        ),
        (
            Method::GET,
            &[("sec-fetch-mode", "navigate"), ("sec-purpose", "prefetch")],
        ),
        (
            Method::GET,
            &[("accept", "text/html"), ("user-agent", "Slackbot 1.0")],
        ),
        (
            Method::GET,
            &[("accept", "text/html"), ("user-agent", "Googlebot/2.1")],
        ),
        (
            Method::GET,
            &[
                ("connection", "upgrade"),
                ("upgrade", "websocket"),
                ("sec-fetch-mode", "websocket"),
            ],
        ),
    ];
    for (method, fields) in table {
        let mut client = rig.at("web", id);
        for (name, value) in *fields {
            client = client.with_header(name, value);
        }
        let answer = client.raw(method.clone(), "/", Vec::new()).await;
        assert_eq!(answer.headers["cache-control"], "no-store");
        let expected = json!({ "error": "box is frozen", "status": "frozen" });
        assert_eq!(answer.expect(503), expected, "{method} {fields:?}");
    }
    rig.advance(MIN).await;
    assert_eq!(rig.state(id).await, "frozen");
    assert_eq!(rig.fake.count(Step::Thaw), 0);
}

#[tokio::test]
async fn a_box_is_woken_once_in_15_seconds_and_the_reloads_slow_down() {
    let rig = Rig::new().await;
    let id = rig.web_box().await;
    rig.freeze(id).await.expect(200);
    let fails = || Behaviour::Fail("no".into());
    for _ in 0..4 {
        rig.fake.next(Step::Thaw, fails());
    }
    let reload = async |sec: u64| {
        let page = rig.opens("web", id).await;
        assert_eq!(page.status, 503);
        let html = page.text();
        let meta = format!("http-equiv=\"refresh\" content=\"{sec}\"");
        assert!(html.contains(&meta), "{sec}: {html}");
    };
    reload(3).await;
    rig.advance(1).await;
    // A wake is tried twice before it is given up (rule 5.8).
    assert_eq!(
        (rig.fake.count(Step::Thaw), rig.state(id).await.as_str()),
        (0, "frozen")
    );
    for _ in 0..20 {
        reload(3).await;
    }
    rig.advance(13).await;
    reload(3).await;
    assert_eq!(rig.state(id).await, "frozen");
    rig.advance(1).await;
    reload(5).await;
    rig.advance(30).await;
    assert_eq!(rig.state(id).await, "frozen", "the second wake failed, too");
    reload(5).await;
    rig.until(id, "ready").await;
    assert_eq!(rig.fake.count(Step::Thaw), 1, "the third one did not");
}

#[tokio::test]
async fn on_the_way_to_and_from_frozen_a_box_answers_as_if_frozen() {
    let rig = Rig::new().await;
    let id = rig.web_box().await;
    rig.says(id, "the app").await;
    let (freezing, thawing) = (Gate::default(), Gate::default());
    rig.fake
        .next(Step::Freeze, Behaviour::HoldBefore(freezing.clone()));
    let client = rig.client();
    let path = format!("/v1/boxes/{id}/freeze");
    let freeze = tokio::spawn(async move { client.post(&path, json!({})).await });
    freezing.reached().await;
    let as_frozen = json!({ "error": "box is frozen", "status": "frozen" });
    assert_eq!(rig.fetches("web", id).await.expect(503), as_frozen);
    assert_eq!(
        rig.status(id).await["status"],
        "freezing",
        "that wakes nothing"
    );
    freezing.open();
    freeze.await.unwrap().expect(200);
    rig.fake
        .next(Step::Thaw, Behaviour::HoldBefore(thawing.clone()));
    rig.opens("web", id).await.expect(503);
    thawing.reached().await;
    assert_eq!(rig.fetches("web", id).await.expect(503), as_frozen);
    assert!(
        rig.opens("web", id)
            .await
            .text()
            .contains("Waking this box…")
    );
    thawing.open();
    rig.until(id, "ready").await;
    assert_eq!(rig.fetches("web", id).await.text(), "the app");
}

#[tokio::test]
async fn a_page_load_during_a_freeze_lets_the_box_run_on() {
    let rig = Rig::new().await;
    let id = rig.web_box().await;
    rig.says(id, "the app").await;
    let gate = Gate::default();
    rig.fake
        .next(Step::Freeze, Behaviour::HoldBefore(gate.clone()));
    let client = rig.client();
    let path = format!("/v1/boxes/{id}/freeze");
    let freeze = tokio::spawn(async move { client.post(&path, json!({})).await });
    gate.reached().await;
    rig.opens("web", id).await.expect(503);
    gate.open();
    freeze.await.unwrap().error(409, "in_use");
    rig.until(id, "ready").await;
    assert_eq!(rig.opens("web", id).await.text(), "the app");
}

#[tokio::test]
async fn without_credits_the_page_says_so_and_does_not_reload() {
    let rig = Rig::new().await;
    let id = rig.web_box().await;
    let none = json!({ "left": 0 });
    let path = "/v1/accounts/default/credits";
    rig.post(path, none).await.expect(200);
    rig.until(id, "frozen").await;
    let page = rig.opens("web", id).await;
    assert_eq!(page.status, 402);
    let html = page.text();
    assert!(
        html.contains("This box is paused") && html.contains("credits"),
        "{html}"
    );
    assert!(
        !html.contains("refresh") && !html.contains("<script"),
        "{html}"
    );
    assert!(!page.headers.contains_key("retry-after"));
    assert_eq!(
        rig.fetches("web", id).await.expect(503)["error"],
        "box is frozen"
    );
    assert_eq!(rig.fake.count(Step::Thaw), 0);
}

#[tokio::test]
async fn boxes_that_are_gone_say_so() {
    let rig = Rig::new().await;
    let (stopped, lost) = (rig.web_box().await, rig.web_box().await);
    rig.stop(stopped).await.expect(200);
    rig.fake.kill(lost, "it fell over");
    rig.until(lost, "interrupted").await;
    for (id, status) in [(stopped, "terminated"), (lost, "interrupted")] {
        let expected = json!({ "error": format!("box is {status}"), "status": status });
        assert_eq!(rig.fetches("web", id).await.expect(503), expected);
        let page = rig.opens("web", id).await;
        assert_eq!(page.status, 503);
        let html = page.text();
        assert!(html.contains(&format!("box is {status}")), "{html}");
        assert!(!html.contains("refresh"), "{html}");
    }
    let unknown = BoxId::from_random([1; 20]);
    assert_eq!(rig.opens("web", unknown).await.status, 404);
    assert_eq!(rig.state(stopped).await, "terminated");
}

#[tokio::test]
async fn requests_hold_a_box_for_two_hours_and_a_polling_tab_does_not_wake_it() {
    let rig = Rig::new().await;
    let id = rig.web_box().await;
    rig.says(id, "the app").await;
    for minute in 0..120 {
        assert_eq!(rig.fetches("web", id).await.status, 200, "minute {minute}");
        if minute == 30 {
            let shown = rig.status(id).await;
            assert_eq!(shown["freeze"]["blockedBy"][0]["kind"], "url", "{shown}");
        }
        rig.advance(MIN).await;
    }
    assert_eq!(rig.state(id).await, "frozen", "2 hours after the last use");
    for _ in 0..30 {
        rig.fetches("web", id).await.expect(503);
        rig.advance(MIN).await;
    }
    assert_eq!(rig.state(id).await, "frozen");
    assert_eq!(
        (rig.fake.count(Step::Freeze), rig.fake.count(Step::Thaw)),
        (1, 0)
    );
}

#[tokio::test]
async fn every_request_counts_and_a_crowd_of_them_is_one_event() {
    let rig = Rig::new().await;
    let id = rig.web_box().await;
    rig.says(id, "the app").await;
    rig.advance(9 * MIN).await;
    let turns = rig.engine().counters().turns();
    for _ in 0..50 {
        rig.fetches("web", id).await.expect(200);
    }
    // The one who asks has to come after what was told.
    rig.engine().tell(id, Event::Tick).await.unwrap();
    rig.advance(0).await;
    let turns = rig.engine().counters().turns() - turns;
    assert!(turns < 20, "{turns} turns for 50 requests in one moment");
    rig.advance(9 * MIN).await;
    assert_eq!(
        rig.state(id).await,
        "ready",
        "the last one was 9 minutes ago"
    );
    rig.advance(MIN).await;
    assert_eq!(rig.state(id).await, "frozen");
}

#[tokio::test]
async fn a_program_that_comes_back_within_three_seconds_is_waited_for() {
    let rig = Rig::new().await;
    let id = rig.web_box().await;
    let client = rig.at("web", id);
    let asking = tokio::spawn(async move { client.load("/").await });
    rig.until_requested(id).await;
    rig.says(id, "back again").await;
    assert_eq!(asking.await.unwrap().text(), "back again");
    let shown = rig.status(id).await;
    assert!(shown["health"].get("sceneErrors").is_none(), "{shown}");
}

#[tokio::test]
async fn failures_are_told_apart_and_shown_for_half_an_hour() {
    let rig = Rig::new().await;
    let id = rig.web_box().await;
    let answer = rig.fetches("web", id).await.expect(503);
    assert_eq!(answer["error"], "nothing listens on port 3000 of this box");
    let shown = rig.status(id).await;
    let error = &shown["services"][0]["lastProxyError"];
    assert_eq!(
        (&error["status"], &error["count"]),
        (&json!(503), &json!(1)),
        "{shown}"
    );
    assert_eq!(shown["health"]["sceneErrors"][0]["place"], "web");

    let program = Program::on(&rig, id, 3000).await;
    let client = browser(rig.at("web", id));
    let asking = tokio::spawn(async move { client.load("/").await });
    let mut talk = program.accept().await;
    talk.head().await;
    drop(talk);
    let page = asking.await.unwrap();
    assert_eq!(page.status, 502);
    assert!(page.text().contains("box unreachable"), "{}", page.text());
    assert!(!page.text().contains("refresh"));

    let client = rig.at("web", id);
    let asking = tokio::spawn(async move { client.load("/").await });
    let mut talk = program.accept().await;
    talk.head().await;
    talk.say("this is no HTTP\r\n\r\n").await;
    assert_eq!(asking.await.unwrap().status, 502);

    let broken = || async { (StatusCode::INTERNAL_SERVER_ERROR, "my own trouble") };
    rig.serves(id, axum::Router::new().route("/", get(broken)))
        .await;
    let answer = rig.opens("web", id).await;
    assert_eq!(
        (answer.status.as_u16(), answer.text().as_str()),
        (500, "my own trouble")
    );
    let error = rig.status(id).await["services"][0]["lastProxyError"].clone();
    assert_eq!(
        (&error["status"], &error["count"]),
        (&json!(500), &json!(4))
    );

    assert_eq!(rig.fetches("shop", id).await.status, 404);
    assert_eq!(rig.fetches("0", id).await.status, 404);
    assert_eq!(rig.fetches("99999", id).await.status, 404);
    assert_eq!(
        rig.fetches("49983", id).await.status,
        404,
        "the daemon has no URL"
    );
    let shown = rig.status(id).await;
    let errors = shown["health"]["sceneErrors"].as_array().unwrap().clone();
    assert!(
        errors.iter().any(|error| error["place"] == "shop"),
        "{shown}"
    );

    // Keep it awake: what is shown is about it, not about its being frozen.
    for _ in 0..4 {
        rig.advance(9 * MIN).await;
        rig.exec(id, "true").await.expect(200);
    }
    let shown = rig.status(id).await;
    assert!(shown["health"].get("sceneErrors").is_none(), "{shown}");
    assert!(
        shown["services"][0].get("lastProxyError").is_none(),
        "{shown}"
    );
}

#[tokio::test]
async fn urls_are_shown_and_stay() {
    let rig = Rig::new().await;
    let services = json!([
        { "name": "api", "port": 8000, "web": false },
        { "name": "web", "port": 3000, "web": true },
    ]);
    let id = rig.box_with(json!({ "services": services })).await;
    let port = rig.address().port();
    let url = |place: &str| format!("http://{place}-{id}.localhost:{port}/");
    for _ in 0..2 {
        let shown = rig.status(id).await;
        assert_eq!(shown["sceneUrl"], url("api"));
        assert_eq!(shown["webUrl"], url("web"));
        assert_eq!(shown["services"][1]["url"], url("web"));
        rig.freeze(id).await.expect(200);
    }
    let daemon = json!({ "services": [{ "name": "d", "port": 49983, "web": false }] });
    let text = rig
        .post("/v1/boxes", daemon)
        .await
        .error(400, "bad_request");
    assert!(text.contains("49983"), "{text}");
}

#[tokio::test]
async fn a_private_box_is_for_those_who_have_a_link() {
    let rig = Rig::new().await;
    let services = json!([{ "name": "web", "port": 3000, "web": true }]);
    let request = json!({ "services": services, "private": true });
    let id = rig.box_with(request).await;
    let seen = |headers: axum::http::HeaderMap| async move {
        let cookies = headers.get_all("cookie").iter();
        cookies
            .map(|c| c.to_str().unwrap().to_owned())
            .collect::<Vec<_>>()
            .join("|")
    };
    rig.serves(id, axum::Router::new().route("/", get(seen)))
        .await;
    assert_eq!(rig.status(id).await["private"], true);
    let page = rig.opens("web", id).await;
    assert_eq!(page.status, 403);
    assert!(page.text().contains("This box is private"));
    assert_eq!(rig.fetches("3000", id).await.status, 403);
    assert_eq!(rig.fetches("web", id).await.status, 403);
    rig.freeze(id).await.expect(200);
    assert_eq!(
        rig.opens("web", id).await.status,
        403,
        "a stranger wakes nothing"
    );
    assert_eq!(rig.fake.count(Step::Thaw), 0);
    rig.exec(id, "true").await.expect(200);

    let path = format!("/v1/boxes/{id}/link");
    let link = rig
        .post(&path, json!({ "ttlSec": 60, "service": "web" }))
        .await
        .expect(200);
    let url = link["url"].as_str().unwrap();
    let (base, _) = url.split_once("/.icebox").unwrap();
    assert_eq!(
        base,
        format!("http://web-{id}.localhost:{}", rig.address().port())
    );
    let entry = path_of(url);
    let entered = browser(rig.at("web", id)).load(&entry).await;
    assert_eq!(
        (entered.status.as_u16(), &entered.headers["location"]),
        (303, &"/".parse().unwrap())
    );
    let cookie = entered.headers["set-cookie"].to_str().unwrap().to_owned();
    assert!(
        cookie.contains("HttpOnly") && !cookie.to_lowercase().contains("domain"),
        "{cookie}"
    );
    let pair = cookie.split(';').next().unwrap().to_owned();
    let with = |place: &str, more: &str| {
        let cookie = format!("{pair}{more}");
        rig.at(place, id).with_header("cookie", &cookie)
    };
    let answer = with("web", "; mine=1").load("/").await;
    assert_eq!(
        (answer.status.as_u16(), answer.text().as_str()),
        (200, "mine=1")
    );

    let other = rig
        .box_with(json!({ "services": services, "private": true }))
        .await;
    let elsewhere = rig.at("web", other).with_header("cookie", &pair);
    assert_eq!(elsewhere.load("/").await.status, 403, "it is for one box");
    assert_eq!(with("8080", "").load("/").await.status, 403, "and one port");
    assert_eq!(
        rig.at("web", id).load(&format!("{entry}x")).await.status,
        403
    );

    rig.advance(59).await;
    assert_eq!(with("web", "").load("/").await.status, 200);
    rig.advance(1).await;
    assert_eq!(with("web", "").load("/").await.status, 403, "it is over");

    let link = rig.post(&path, json!({})).await.expect(200);
    let entry = path_of(link["url"].as_str().unwrap());
    assert_eq!(rig.at("web", id).load(&entry).await.status, 303);
    let revoked = rig.client().call(Method::DELETE, &path, None).await;
    revoked.expect(200);
    assert_eq!(
        rig.at("web", id).load(&entry).await.status,
        403,
        "it was revoked"
    );
    rig.patch(id, json!({ "private": false })).await.expect(200);
    assert_eq!(rig.fetches("web", id).await.status, 200);
}

#[tokio::test]
async fn links_are_refused_by_field() {
    let rig = Rig::new().await;
    let id = rig.web_box().await;
    let path = format!("/v1/boxes/{id}/link");
    for (body, field) in [
        (json!({ "ttlSec": 0 }), "ttlSec"),
        (json!({ "ttlSec": 2_592_001 }), "ttlSec"),
        (json!({ "port": 0 }), "port"),
        (json!({ "port": 49983 }), "port"),
        (json!({ "port": 80, "service": "web" }), "port"),
        (json!({ "service": "shop" }), "service"),
        (json!({ "to": "web" }), "to"),
    ] {
        let answer = rig.post(&path, body.clone()).await;
        assert_eq!(answer.json["field"], field, "{body}: {}", answer.json);
        answer.error(400, "bad_request");
    }
    let unused = rig.status(id).await["lastUsedAt"].clone();
    rig.advance(MIN).await;
    rig.post(&path, json!({})).await.expect(200);
    assert_eq!(
        rig.status(id).await["lastUsedAt"],
        unused,
        "a link is no use"
    );
    rig.stop(id).await.expect(200);
    rig.post(&path, json!({})).await.error(410, "box_gone");
}

#[tokio::test]
async fn the_api_answers_on_its_own_names_only() {
    let rig = Rig::new().await;
    let id = rig.web_box().await;
    let status = async |host: &str| {
        let client = rig.client().with_header("host", host);
        client.load("/v1/boxes").await.status.as_u16()
    };
    for (name, expected) in [
        ("127.0.0.1:7070", 200),
        ("[::1]", 200),
        ("localhost", 200),
        ("LOCALHOST:1", 200),
        ("icebox.example", 200),
        ("attacker.example", 421),
        ("localhost.attacker.example", 421),
        ("short-id.localhost", 421),
        ("me@localhost", 400),
        // A box's name is the box's, whatever key comes along.
        (&host("web", id), 503),
    ] {
        assert_eq!(status(name).await, expected, "{name}");
    }
}

/// What comes after the host in a URL.
fn path_of(url: &str) -> String {
    let (_, path) = url.split_once("//").unwrap();
    let (_, path) = path.split_once('/').unwrap();
    format!("/{path}")
}
