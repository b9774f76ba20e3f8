//! Signing in to the dashboard: with a key or a link, what the cookie opens and what it does not, and its end.

use axum::http::Method;
use serde_json::{Value, json};

use crate::program::{Program, host};
use crate::rig::{Answer, HOUR, MIN, Rig, RigClient};

const DAY: u64 = 24 * HOUR;
const CSRF: (&str, &str) = ("x-icebox-csrf", "1");

/// What the browser keeps of `Set-Cookie`.
fn kept(answer: &Answer) -> String {
    let cookie = answer.headers["set-cookie"].to_str().unwrap();
    cookie.split(';').next().unwrap().to_owned()
}

async fn sign_in(rig: &Rig, body: Value) -> Answer {
    let nobody = rig.client().with_key(None);
    nobody.post("/v1/session", body).await
}

/// A browser that was signed in with this key.
async fn browser(rig: &Rig, key: &str) -> RigClient {
    let signed_in = sign_in(rig, json!({ "key": key })).await;
    assert_eq!(signed_in.status.as_u16(), 200, "{}", signed_in.json);
    let nobody = rig.client().with_key(None);
    nobody.with_header("cookie", &kept(&signed_in))
}

async fn link(rig: &Rig) -> Value {
    rig.post("/v1/session/links", json!({})).await.expect(200)
}

async fn get(client: &RigClient, path: &str) -> Answer {
    client.call(Method::GET, path, None).await
}

fn admin_key(rig: &Rig) -> String {
    let key = std::fs::read_to_string(rig.data().join("admin.key")).unwrap();
    key.trim().to_owned()
}

#[tokio::test]
async fn a_key_signs_a_browser_in_and_the_cookie_is_let_in_everywhere() {
    let rig = Rig::new().await;
    let signed_in = sign_in(&rig, json!({ "key": admin_key(&rig) })).await;
    let cookie = signed_in.headers["set-cookie"].to_str().unwrap();
    let (secret, rest) = cookie.split_once(';').unwrap();
    assert_eq!(rest, " Path=/; HttpOnly; SameSite=Strict; Max-Age=1209600");
    let (name, secret) = secret.split_once('=').unwrap();
    assert_eq!((name, secret.len()), ("icebox-session", 4 + 64));
    assert_eq!(signed_in.headers["cache-control"], "no-store");
    let view = signed_in.json.clone();
    assert_eq!(
        (&view["account"], &view["admin"]),
        (&json!("default"), &json!(true))
    );
    assert!(!view.to_string().contains(secret));

    let nobody = rig.client().with_key(None);
    let page = nobody.with_header("cookie", &format!("theme=dark; {}", kept(&signed_in)));
    assert_eq!(get(&page, "/v1/session").await.expect(200), view);
    let acting = page.clone().with_header(CSRF.0, CSRF.1);
    let id = acting.post("/v1/boxes", json!({})).await.expect(201)["id"].clone();
    let path = format!("/v1/boxes/{}", id.as_str().unwrap());
    get(&page, &path).await.expect(200);
    get(&page, "/v1/account").await.expect(200);
    get(&page, "/v1/accounts").await.expect(200);
    acting
        .post(&format!("{path}/exec"), json!({"cmd": "true"}))
        .await
        .expect(200);
    let changed = json!({"name": "mine"});
    acting
        .call(Method::PATCH, &path, Some(changed))
        .await
        .expect(200);
    acting.call(Method::DELETE, &path, None).await.expect(200);
}

#[tokio::test]
async fn a_page_of_somebody_elses_does_nothing_with_the_cookie() {
    let rig = Rig::new().await;
    let page = browser(&rig, &admin_key(&rig)).await;
    let own = format!("http://{}", rig.address());
    let own = own.as_str();
    // Method, whether our header is there, `Origin`, `Sec-Fetch-Site`, and what comes of it.
    let table: &[(&str, bool, &str, &str, u16)] = &[
        ("GET", false, "", "", 200),
        ("GET", false, "", "same-origin", 200),
        ("GET", false, "", "none", 200),
        ("GET", false, "", "same-site", 403),
        ("GET", true, "", "cross-site", 403),
        ("GET", true, "http://web-a.localhost", "", 403),
        ("POST", false, "", "", 403),
        ("POST", false, own, "same-origin", 403),
        ("POST", true, "", "", 201),
        ("POST", true, own, "same-origin", 201),
        ("POST", true, own, "same-site", 403),
        ("POST", true, own, "cross-site", 403),
        ("POST", true, "null", "", 403),
        ("POST", true, "http://localhost:1", "", 403),
        ("POST", true, "http://evil.example", "same-origin", 403),
    ];
    for (method, header, origin, site, status) in table {
        let mut client = page.clone();
        if *header {
            client = client.with_header(CSRF.0, CSRF.1);
        }
        for (name, value) in [("origin", origin), ("sec-fetch-site", site)] {
            if !value.is_empty() {
                client = client.with_header(name, value);
            }
        }
        let row = format!("{method} {header} {origin} {site}");
        let body = (*method == "POST").then(|| json!({"wait": false}));
        let method = method.parse().unwrap();
        let answer = client.call(method, "/v1/boxes", body).await;
        assert_eq!(answer.status.as_u16(), *status, "{row}: {}", answer.json);
        if *status == 403 {
            assert_eq!(answer.json["code"], "forbidden", "{row}");
        }
    }
    let other_value = page.clone().with_header(CSRF.0, "yes");
    other_value
        .post("/v1/boxes", json!({}))
        .await
        .error(403, "forbidden");
    // Whoever shows a key needs none of it.
    let program = rig.client().with_header("origin", "http://evil.example");
    program.post("/v1/boxes", json!({})).await.expect(201);
    // Nor may such a page sign somebody in as somebody else.
    let planted = rig
        .client()
        .with_key(None)
        .with_header("sec-fetch-site", "cross-site");
    let key = json!({ "key": admin_key(&rig) });
    planted
        .post("/v1/session", key)
        .await
        .error(403, "forbidden");
}

#[tokio::test]
async fn the_cookie_is_for_the_api_of_this_server_alone() {
    let rig = Rig::new().await;
    let id = rig.web_box().await;
    let signed_in = sign_in(&rig, json!({ "key": admin_key(&rig) })).await;
    let cookie = kept(&signed_in);
    let page = rig.client().with_key(None).with_header("cookie", &cookie);
    let page = page.with_header(CSRF.0, CSRF.1);
    // Agents and E2B's clients show keys.
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"});
    page.post("/mcp", call).await.error(401, "unauthorized");
    get(&page, "/v2/sandboxes").await.expect(401);
    page.post("/v1/session/links", json!({}))
        .await
        .error(401, "unauthorized");
    // A box's host knows no session, and the box gets none, whichever way a request takes.
    let program = Program::on(&rig, id, 3000).await;
    let other = "icebox-session=x; __Host-icebox-session=y";
    let client = page.clone().with_header("host", &host("web", id));
    let client = client.with_header("cookie", &format!("a=1; {other}"));
    let (answer, head) = tokio::join!(get(&client, "/v1/boxes"), async {
        let mut talk = program.accept().await;
        let head = talk.head().await;
        talk.say(
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nSet-Cookie: icebox-session=planted\r\n\
                  Set-Cookie: b=2\r\n\r\nhi",
        )
        .await;
        head
    });
    assert_eq!(
        &answer.bytes[..],
        b"hi",
        "the program answered, not the API"
    );
    assert!(head.contains("cookie: a=1\r\n"), "{head}");
    assert!(!head.contains("icebox-session"), "{head}");
    let set: Vec<_> = answer.headers.get_all("set-cookie").iter().collect();
    assert_eq!(set, ["b=2"]);
    let sandbox = rig.client().with_header("x-api-key", &admin_key(&rig));
    let sandbox = sandbox
        .post("/sandboxes", json!({"templateID": "base"}))
        .await;
    let id = sandbox.expect(201)["sandboxID"]
        .as_str()
        .unwrap()
        .to_owned();
    let program = Program::on(&rig, id.parse_id(), 8000).await;
    let client = page.with_header("e2b-sandbox-id", &id);
    let client = client.with_header("e2b-sandbox-port", "8000");
    let (_, head) = tokio::join!(get(&client, "/v1/boxes"), async {
        let mut talk = program.accept().await;
        let head = talk.head().await;
        talk.say("HTTP/1.1 204 No Content\r\n\r\n").await;
        head
    });
    assert!(!head.contains("cookie"), "{head}");
}

trait ParseId {
    fn parse_id(&self) -> icebox_lifecycle::BoxId;
}

impl ParseId for String {
    fn parse_id(&self) -> icebox_lifecycle::BoxId {
        icebox_lifecycle::BoxId::parse(self).unwrap()
    }
}

#[tokio::test]
async fn a_link_signs_in_once_and_for_ten_minutes() {
    let rig = Rig::new().await;
    let made = link(&rig).await;
    let token = made["token"].as_str().unwrap();
    let url = format!("http://{}/app#token={token}", rig.address());
    assert_eq!(made["url"], url);
    let body = json!({ "token": token });
    let (one, two) = tokio::join!(sign_in(&rig, body.clone()), sign_in(&rig, body.clone()));
    let (one, two) = (one.status.as_u16(), two.status.as_u16());
    assert_eq!((one.min(two), one.max(two)), (200, 401));
    let again = sign_in(&rig, body).await.error(401, "unauthorized");
    assert!(again.contains("icebox dashboard"), "{again}");

    let (late, kept) = (link(&rig).await, link(&rig).await);
    rig.advance(10 * MIN - 1).await;
    sign_in(&rig, json!({ "token": kept["token"] }))
        .await
        .expect(200);
    rig.advance(1).await;
    sign_in(&rig, json!({ "token": late["token"] }))
        .await
        .error(401, "unauthorized");
}

#[tokio::test]
async fn what_is_no_proof_is_refused() {
    let rig = Rig::new().await;
    let token = link(&rig).await["token"].clone();
    let table = [
        (json!({}), 400, "exactly one"),
        (
            json!({"key": admin_key(&rig), "token": token}),
            400,
            "exactly one",
        ),
        (json!({"key": 7}), 400, "key"),
        (json!({"password": "x"}), 400, "password"),
        (json!({"key": ""}), 401, "no valid key"),
        (
            json!({"key": format!("e2b_{}", "0".repeat(40))}),
            401,
            "no valid key",
        ),
        (json!({"key": token}), 401, "no valid key"),
        (json!({"token": admin_key(&rig)}), 401, "used already"),
        (
            json!({"token": format!("ibl_{}", "0".repeat(64))}),
            401,
            "used already",
        ),
        (json!({"token": "x".repeat(100_000)}), 401, "used already"),
    ];
    for (body, status, said) in table {
        let refused = sign_in(&rig, body.clone()).await;
        assert_eq!(refused.status.as_u16(), status, "{body}");
        let error = refused.json["error"].as_str().unwrap();
        assert!(error.contains(said), "{body}: {error}");
        assert!(!refused.headers.contains_key("set-cookie"), "{body}");
    }
    let nobody = rig.client().with_key(None);
    get(&nobody, "/v1/session").await.error(401, "unauthorized");
    let cookie = |value: &str| nobody.clone().with_header("cookie", value);
    for value in [
        "icebox-session=",
        "icebox-session=ibs_0",
        "__Host-icebox-session=x",
    ] {
        get(&cookie(value), "/v1/session")
            .await
            .error(401, "unauthorized");
    }
    let secret = kept(&sign_in(&rig, json!({ "token": token })).await);
    get(&cookie(&secret), "/v1/boxes").await.expect(200);
    let two = get(
        &cookie(&format!("{secret}; icebox-session=planted")),
        "/v1/boxes",
    )
    .await;
    let said = two.error(401, "unauthorized");
    assert!(said.contains("two sessions"), "{said}");
    let wrong_key = cookie(&secret).with_header("authorization", "Bearer nonsense");
    get(&wrong_key, "/v1/boxes")
        .await
        .error(401, "unauthorized");
}

#[tokio::test]
async fn guessing_is_stopped_and_only_for_a_while() {
    let rig = Rig::new().await;
    let wrong = json!({"key": format!("e2b_{}", "0".repeat(40))});
    for _ in 0..20 {
        sign_in(&rig, wrong.clone())
            .await
            .error(401, "unauthorized");
    }
    let right = json!({ "key": admin_key(&rig) });
    let refused = sign_in(&rig, right.clone()).await;
    assert_eq!(refused.headers["retry-after"], "60");
    refused.error(429, "busy");
    get(&rig.client(), "/v1/boxes").await.expect(200);
    rig.advance(MIN).await;
    sign_in(&rig, right).await.expect(200);
}

#[tokio::test]
async fn a_session_outlives_the_server_and_ends_after_two_weeks() {
    let mut rig = Rig::new().await;
    let signed_in = sign_in(&rig, json!({ "key": admin_key(&rig) })).await;
    let waiting = link(&rig).await;
    rig.restart().await;
    let page = rig
        .client()
        .with_key(None)
        .with_header("cookie", &kept(&signed_in));
    get(&page, "/v1/session").await.expect(200);
    let by_link = sign_in(&rig, json!({ "token": waiting["token"] })).await;
    assert_eq!(by_link.status.as_u16(), 200);
    rig.advance(14 * DAY - 1).await;
    get(&page, "/v1/session").await.expect(200);
    rig.advance(1).await;
    let over = get(&page, "/v1/session").await.error(401, "unauthorized");
    assert!(over.contains("the session is over"), "{over}");
    let key = json!({ "key": admin_key(&rig) });
    sign_in(&rig, key).await.expect(200);
    assert_eq!(rows(&rig, "sessions"), 1, "old ones are swept");
    assert_eq!(rows(&rig, "session_links"), 0);
}

fn rows(rig: &Rig, table: &str) -> i64 {
    let db = rusqlite::Connection::open(rig.data().join("icebox.db")).unwrap();
    let sql = format!("SELECT count(*) FROM {table}");
    db.query_row(&sql, [], |row| row.get(0)).unwrap()
}

#[tokio::test]
async fn signing_out_ends_a_session_and_signing_in_again_the_one_before() {
    let mut rig = Rig::new().await;
    let key = admin_key(&rig);
    let first = browser(&rig, &key).await;
    let again = first.post("/v1/session", json!({ "key": key })).await;
    get(&first, "/v1/session").await.error(401, "unauthorized");
    let page = rig
        .client()
        .with_key(None)
        .with_header("cookie", &kept(&again));
    let elsewhere = browser(&rig, &key).await;
    page.call(Method::DELETE, "/v1/session", None)
        .await
        .error(403, "forbidden");
    let acting = page.clone().with_header(CSRF.0, CSRF.1);
    let out = acting.call(Method::DELETE, "/v1/session", None).await;
    let cookie = out.headers["set-cookie"].to_str().unwrap().to_owned();
    assert!(
        cookie.starts_with("icebox-session=; ") && cookie.contains("Max-Age=0"),
        "{cookie}"
    );
    out.expect(200);
    get(&page, "/v1/session").await.error(401, "unauthorized");
    get(&elsewhere, "/v1/session").await.expect(200);
    rig.restart().await;
    let page = rig
        .client()
        .with_key(None)
        .with_header("cookie", &kept(&again));
    get(&page, "/v1/session").await.error(401, "unauthorized");
}

#[tokio::test]
async fn an_account_has_so_many_sessions_and_links() {
    let mut rig = Rig::new().await;
    let other = rig.other_account().await;
    let theirs = other.post("/v1/session/links", json!({})).await.expect(200);
    let theirs = sign_in(&rig, json!({ "token": theirs["token"] })).await;
    let key = json!({ "key": admin_key(&rig) });
    let first = sign_in(&rig, key.clone()).await;
    rig.advance(1).await;
    let mut second = None;
    for _ in 0..50 {
        let signed_in = sign_in(&rig, key.clone()).await;
        second.get_or_insert_with(|| kept(&signed_in));
    }
    let page = |cookie: &str| rig.client().with_key(None).with_header("cookie", cookie);
    get(&page(&kept(&first)), "/v1/session")
        .await
        .error(401, "unauthorized");
    get(&page(&second.unwrap()), "/v1/session")
        .await
        .expect(200);
    get(&page(&kept(&theirs)), "/v1/session").await.expect(200);
    assert_eq!(rows(&rig, "sessions"), 51);
    let oldest = link(&rig).await;
    rig.advance(1).await;
    for _ in 0..20 {
        link(&rig).await;
    }
    sign_in(&rig, json!({ "token": oldest["token"] }))
        .await
        .error(401, "unauthorized");
    assert_eq!(rows(&rig, "session_links"), 20);
}

#[tokio::test]
async fn a_revoked_key_is_let_in_no_more_and_takes_its_sessions_along() {
    let mut rig = Rig::new().await;
    let made = rig
        .post("/v1/accounts", json!({"name": "team"}))
        .await
        .expect(201);
    let key = made["key"].as_str().unwrap().to_owned();
    let team = rig.client().with_key(Some(&key));
    let box_id = team.post("/v1/boxes", json!({})).await.expect(201)["id"].clone();
    let second = rig
        .post("/v1/accounts/team/keys", json!({}))
        .await
        .expect(201);
    let page = browser(&rig, &key).await;
    let kept_page = browser(&rig, second["key"].as_str().unwrap()).await;
    let waiting = team.post("/v1/session/links", json!({})).await.expect(200);
    let listed = rig.get("/v1/accounts/team/keys").await.expect(200);
    assert_eq!(listed["keys"].as_array().unwrap().len(), 2);
    assert!(!listed.to_string().contains("e2b_"), "{listed}");
    let of_key = |listed: &Value, id: &Value| {
        let keys = listed["keys"].as_array().unwrap().iter();
        keys.clone().find(|key| key["id"] == *id).cloned()
    };
    assert_eq!(of_key(&listed, &made["id"]).unwrap()["sessions"], 1);

    let revoke =
        async |rig: &Rig, body: Value| rig.post("/v1/accounts/team/keys/revoke", body).await;
    for (body, status, code) in [
        (json!({}), 400, "bad_request"),
        (json!({"id": made["id"], "key": key}), 400, "bad_request"),
        (json!({"id": "000000000000"}), 404, "not_found"),
        (json!({"key": admin_key(&rig)}), 404, "not_found"),
    ] {
        revoke(&rig, body).await.error(status, code);
    }
    let body = json!({"id": made["id"]});
    team.post("/v1/accounts/team/keys/revoke", body.clone())
        .await
        .error(403, "forbidden");
    revoke(&rig, body.clone()).await.expect(200);
    revoke(&rig, body).await.error(404, "not_found");
    get(&team, "/v1/boxes").await.error(401, "unauthorized");
    get(&page, "/v1/boxes").await.error(401, "unauthorized");
    sign_in(&rig, json!({ "key": key }))
        .await
        .error(401, "unauthorized");
    sign_in(&rig, json!({ "token": waiting["token"] }))
        .await
        .error(401, "unauthorized");
    let path = format!("/v1/boxes/{}", box_id.as_str().unwrap());
    get(&kept_page, &path).await.expect(200);
    let listed = rig.get("/v1/accounts/team/keys").await.expect(200);
    assert!(of_key(&listed, &made["id"]).is_none());
    assert_eq!(rows(&rig, "sessions"), 1);

    rig.restart().await;
    let team = rig.client().with_key(Some(&key));
    get(&team, "/v1/boxes").await.error(401, "unauthorized");
    let by_key = json!({"key": second["key"]});
    revoke(&rig, by_key).await.expect(200);
    let of_file = json!({"key": admin_key(&rig)});
    let refused = rig.post("/v1/accounts/default/keys/revoke", of_file).await;
    let said = refused.error(409, "in_use");
    assert!(said.contains("admin.key"), "{said}");
    get(&rig.client(), "/v1/boxes").await.expect(200);
}
