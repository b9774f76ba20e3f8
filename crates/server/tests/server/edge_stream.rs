//! Requests through a box's URL, byte by byte: what is left out and added, bodies that stream both ways, tunnels, hang-ups,
//! and requests that are refused because they can be read in two ways.

use axum::body::Body;
use axum::http::{Request, StatusCode};
use axum::routing::{get, post};
use futures_util::StreamExt as _;
use http_body_util::{BodyExt as _, Empty};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use icebox_lifecycle::BoxId;

use crate::program::{Program, Talk, host, within};
use crate::rig::{MIN, Rig};

/// A ready box, its program, and a client's connection.
async fn talking() -> (Rig, BoxId, Program, Talk) {
    let rig = Rig::new().await;
    let id = rig.web_box().await;
    let program = Program::on(&rig, id, 3000).await;
    let client = Talk::to(rig.address()).await;
    (rig, id, program, client)
}

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

#[tokio::test]
async fn heads_are_ours_and_nothing_a_client_pretends_gets_through() {
    let (_rig, id, program, mut client) = talking().await;
    let host = host("web", id);
    let request = format!(
        "GET /path?query=%20 HTTP/1.1\r\nHost: {host}\r\nConnection: keep-alive, X-Secret\r\nX-Secret: 1\r\n\
         Keep-Alive: 5\r\nProxy-Authorization: x\r\nProxy-Connection: x\r\nTE: trailers, deflate\r\n\
         X-Forwarded-For: 1.2.3.4\r\nX-Forwarded-Host: evil.example\r\nX-Forwarded-Proto: https\r\n\
         X-Forwarded-Port: 1\r\nForwarded: for=1.2.3.4\r\nX-Real-IP: 1.2.3.4\r\nX_Real_IP: 1.2.3.4\r\n\
         X_Forwarded_For: 1.2.3.4\r\nCookie: a=1\r\nX-Mine: kept\r\n\r\n"
    );
    client.say(&request).await;
    let mut talk = program.accept().await;
    let head = talk.head().await;
    let mut lines: Vec<&str> = head.trim_end().split("\r\n").collect();
    assert_eq!(lines.remove(0), "get /path?query=%20 http/1.1");
    lines.sort_unstable();
    let expected = [
        "cookie: a=1".to_owned(),
        format!("host: {host}"),
        "te: trailers".to_owned(),
        "x-forwarded-for: 127.0.0.1".to_owned(),
        format!("x-forwarded-host: {host}"),
        "x-forwarded-proto: http".to_owned(),
        "x-mine: kept".to_owned(),
    ];
    assert_eq!(lines, expected);
    talk.say(
        "HTTP/1.1 200 Fine\r\nConnection: X-Hop\r\nX-Hop: 1\r\nKeep-Alive: 5\r\nX-End: 1\r\n\
         Set-Cookie: a=1; Domain=localhost; Path=/\r\nSet-Cookie: b=2; HttpOnly\r\nContent-Length: 2\r\n\r\nok",
    )
    .await;
    let head = client.head().await;
    assert!(head.starts_with("http/1.1 200 fine\r\n"), "{head}");
    for (field, there) in [
        ("x-hop", false),
        ("keep-alive", false),
        ("x-end: 1", true),
        ("set-cookie: a=1; path=/\r\n", true),
        ("set-cookie: b=2; httponly\r\n", true),
        ("access-control", false),
    ] {
        assert_eq!(head.contains(field), there, "{field}: {head}");
    }
    client.hear("ok").await;
}

#[tokio::test]
async fn connections_are_kept_and_a_closed_one_is_nobodys_fault() {
    let (_rig, id, program, mut client) = talking().await;
    let get = format!("GET / HTTP/1.1\r\nHost: {}\r\n\r\n", host("web", id));
    client.say(&get).await;
    let mut talk = program.accept().await;
    let mut kept = 0;
    for _ in 0..20 {
        talk.head().await;
        talk.say(OK).await;
        client.hear("ok").await;
        client.say(&get).await;
        // A request that comes in the very moment in which a connection is put back finds none.
        tokio::select! {
            () = talk.readable() => kept += 1,
            new = program.accept() => talk = new,
        }
    }
    assert!(kept > 0, "20 requests, 20 connections");
    talk.head().await;
    talk.say(OK).await;
    client.hear("ok").await;
    drop(talk);
    client.say(&get).await;
    let mut talk = program.accept().await;
    talk.head().await;
    talk.say(OK).await;
    assert!(client.head().await.starts_with("http/1.1 200"));
}

#[tokio::test]
async fn bodies_stream_both_ways_with_their_trailers() {
    let (_rig, id, program, mut client) = talking().await;
    let head = format!(
        "POST / HTTP/1.1\r\nHost: {}\r\nTransfer-Encoding: chunked\r\nTE: trailers\r\nTrailer: X-Sum\r\n\r\n",
        host("web", id)
    );
    client.say(&head).await;
    let mut talk = program.accept().await;
    let head = talk.head().await;
    assert!(
        head.contains("transfer-encoding: chunked") && !head.contains("content-length"),
        "{head}"
    );
    talk.say("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n")
        .await;
    assert!(client.head().await.starts_with("http/1.1 200"));
    for word in ["one", "two", "three"] {
        // Each piece arrives before the next is sent, in both directions.
        client.say(&format!("{:x}\r\n{word}\r\n", word.len())).await;
        talk.hear(&format!("{word}\r\n")).await;
        talk.say(&format!("{:x}\r\n{word}\r\n", word.len())).await;
        client.hear(&format!("{word}\r\n")).await;
    }
    client.say("0\r\nX-Sum: 12\r\n\r\n").await;
    assert!(
        talk.hear("\r\n\r\n")
            .await
            .to_ascii_lowercase()
            .contains("x-sum: 12")
    );
    talk.say("0\r\nX-Sum: 34\r\n\r\n").await;
    assert!(
        client
            .hear("\r\n\r\n")
            .await
            .to_ascii_lowercase()
            .contains("x-sum: 34")
    );
}

#[tokio::test]
async fn a_body_goes_along_with_every_method() {
    let (_rig, id, program, mut client) = talking().await;
    let host = host("web", id);
    let table = [
        format!(
            "GET / HTTP/1.1\r\nHost: {host}\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n"
        ),
        format!("DELETE / HTTP/1.1\r\nHost: {host}\r\nContent-Length: 4\r\n\r\nbody"),
    ];
    for request in &table {
        client.say(request).await;
        let mut talk = program.accept().await;
        talk.hear("body").await;
        talk.say("HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
            .await;
        assert!(client.head().await.starts_with("http/1.1 204"));
    }
}

#[tokio::test]
async fn events_arrive_one_by_one_and_hang_ups_reach_the_program() {
    let (_rig, id, program, mut client) = talking().await;
    client
        .say(&format!(
            "GET /events HTTP/1.1\r\nHost: {}\r\n\r\n",
            host("web", id)
        ))
        .await;
    let mut talk = program.accept().await;
    talk.head().await;
    talk.say("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
        .await;
    client.head().await;
    for n in 0..3 {
        talk.say(&format!("data: {n}\n\n")).await;
        client.hear(&format!("data: {n}\n\n")).await;
    }
    // The program says nothing, and still learns that nobody listens.
    drop(client);
    talk.rest().await;
}

#[tokio::test]
async fn a_client_that_gives_up_before_the_answer_is_known_to_have_left() {
    let (_rig, id, program, mut client) = talking().await;
    client
        .say(&format!(
            "GET /slow HTTP/1.1\r\nHost: {}\r\n\r\n",
            host("web", id)
        ))
        .await;
    let mut talk = program.accept().await;
    talk.head().await;
    drop(client);
    talk.rest().await;
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_not_taken_for_a_whole_one() {
    let (_rig, id, program, mut client) = talking().await;
    client
        .say(&format!(
            "GET / HTTP/1.1\r\nHost: {}\r\n\r\n",
            host("web", id)
        ))
        .await;
    let mut talk = program.accept().await;
    talk.head().await;
    talk.say("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n")
        .await;
    client.hear("half").await;
    drop(talk);
    let (rest, _) = client.rest().await;
    assert!(!rest.contains("0\r\n"), "{rest:?}");
}

#[tokio::test]
async fn the_program_decides_whether_it_wants_a_body() {
    let (_rig, id, program, mut client) = talking().await;
    let post = |path: &str| {
        format!(
            "POST {path} HTTP/1.1\r\nHost: {}\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n",
            host("web", id)
        )
    };
    client.say(&post("/yes")).await;
    let mut talk = program.accept().await;
    assert!(talk.head().await.contains("expect: 100-continue"));
    talk.say("HTTP/1.1 100 Continue\r\n\r\n").await;
    assert!(client.head().await.starts_with("http/1.1 100"));
    client.say("body").await;
    talk.hear("body").await;
    talk.say("HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
        .await;
    assert!(client.head().await.starts_with("http/1.1 204"));

    client.say(&post("/no")).await;
    let mut talk = program.accept().await;
    talk.head().await;
    talk.say("HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno")
        .await;
    assert!(
        client.head().await.starts_with("http/1.1 413"),
        "no 100 before it"
    );
    client.hear("no").await;
}

#[tokio::test]
async fn a_websocket_is_a_tunnel_counts_once_and_ends_with_a_freeze() {
    let (rig, id, program, mut client) = talking().await;
    rig.advance(5 * MIN).await;
    let open = format!(
        "GET /socket HTTP/1.1\r\nHost: {}\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n",
        host("web", id)
    );
    client.say(&open).await;
    let mut talk = program.accept().await;
    let head = talk.head().await;
    for field in [
        "connection: upgrade",
        "upgrade: websocket",
        "sec-websocket-key:",
    ] {
        assert!(head.contains(field), "{field}: {head}");
    }
    talk.say("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nfirst").await;
    let head = client.head().await;
    assert!(
        head.starts_with("http/1.1 101") && head.contains("upgrade: websocket"),
        "{head}"
    );
    client.hear("first").await;
    for _ in 0..3 {
        client.say("ping").await;
        talk.hear("ping").await;
        talk.say("pong").await;
        client.hear("pong").await;
        rig.advance(3 * MIN).await;
    }
    assert_eq!(rig.state(id).await, "ready", "it opened 9 minutes ago");
    rig.advance(MIN).await;
    assert_eq!(rig.state(id).await, "frozen", "bytes in it do not count");
    let (rest, in_order) = client.rest().await;
    assert!(rest.is_empty() && in_order, "{rest:?}");
    talk.rest().await;
}

#[tokio::test]
async fn a_refused_upgrade_is_an_answer_like_any_other() {
    let (_rig, id, program, mut client) = talking().await;
    let open = format!(
        "GET / HTTP/1.1\r\nHost: {}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
        host("web", id)
    );
    client.say(&open).await;
    let mut talk = program.accept().await;
    talk.head().await;
    talk.say("HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno")
        .await;
    assert!(client.head().await.starts_with("http/1.1 403"));
    client.hear("no").await;
}

#[tokio::test]
async fn streams_end_when_the_box_freezes() {
    let (rig, id, program, mut client) = talking().await;
    client
        .say(&format!(
            "GET / HTTP/1.1\r\nHost: {}\r\n\r\n",
            host("web", id)
        ))
        .await;
    let mut talk = program.accept().await;
    talk.head().await;
    talk.say("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n")
        .await;
    client.hear("half").await;
    rig.freeze(id).await.expect(200);
    let (rest, _) = client.rest().await;
    assert!(!rest.contains("0\r\n"), "{rest:?}");
    talk.rest().await;
}

#[tokio::test]
async fn ranges_and_large_bodies_pass_at_constant_memory() {
    const PIECE: usize = 64 * 1024;
    const PIECES: usize = 4 * 1024;
    let rig = Rig::new().await;
    let id = rig.web_box().await;
    let down = || async {
        let piece = bytes::Bytes::from(vec![7_u8; PIECE]);
        let pieces = futures_util::stream::iter(
            (0..PIECES).map(move |_| Ok::<_, std::io::Error>(piece.clone())),
        );
        Body::from_stream(pieces)
    };
    let up = |body: Body| async move {
        let mut body = body.into_data_stream();
        let mut count = 0;
        while let Some(piece) = body.next().await {
            count += piece.unwrap().len();
        }
        count.to_string()
    };
    let part = |request: Request<Body>| async move {
        assert_eq!(request.headers()["range"], "bytes=2-3");
        (
            StatusCode::PARTIAL_CONTENT,
            [("content-range", "bytes 2-3/9")],
            "cd",
        )
    };
    let router = axum::Router::new()
        .route("/down", get(down))
        .route("/up", post(up))
        .route("/part", get(part));
    rig.serves(id, router.layer(axum::extract::DefaultBodyLimit::disable()))
        .await;
    let answer = rig
        .at("web", id)
        .with_header("range", "bytes=2-3")
        .load("/part")
        .await;
    assert_eq!(
        (answer.status.as_u16(), answer.text().as_str()),
        (206, "cd")
    );
    assert_eq!(answer.headers["content-range"], "bytes 2-3/9");

    let before = resident_kb();
    let client: Client<_, Body> = Client::builder(TokioExecutor::new()).build_http();
    let request = |path: &str| {
        Request::builder()
            .uri(format!("http://{}{path}", rig.address()))
            .header("host", host("web", id))
    };
    let answer = client
        .request(request("/down").body(Body::empty()).unwrap())
        .await
        .unwrap();
    let mut count = 0;
    let mut body = answer.into_body();
    while let Some(frame) = within(body.frame()).await {
        count += frame.unwrap().into_data().unwrap().len();
    }
    assert_eq!(count, PIECE * PIECES);
    let piece = bytes::Bytes::from(vec![7_u8; PIECE]);
    let pieces = futures_util::stream::iter(
        (0..PIECES).map(move |_| Ok::<_, std::io::Error>(piece.clone())),
    );
    let post = request("/up")
        .method("POST")
        .body(Body::from_stream(pieces))
        .unwrap();
    let answer = client.request(post).await.unwrap();
    let counted = answer.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(counted, (PIECE * PIECES).to_string());
    let most = most_resident_kb();
    assert!(
        most < before + 64 * 1024,
        "{before} kB before, {most} kB at most, of 2 x 256 MiB"
    );
}

fn resident_kb() -> u64 {
    status_kb("VmRSS:")
}

fn most_resident_kb() -> u64 {
    status_kb("VmHWM:")
}

fn status_kb(field: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(field));
    line.unwrap()
        .trim()
        .trim_end_matches(" kB")
        .parse()
        .unwrap()
}

#[tokio::test]
async fn http2_is_spoken_too() {
    let rig = Rig::new().await;
    let id = rig.web_box().await;
    let seen = |request: Request<Body>| async move {
        let of = |name: &str| {
            let value = request.headers().get(name);
            value
                .map_or("-", |value| value.to_str().unwrap())
                .to_owned()
        };
        format!("{} {} {}", of("host"), of("cookie"), of("x-forwarded-host"))
    };
    rig.serves(id, axum::Router::new().route("/", get(seen)))
        .await;
    let name = host("web", id);
    let stream = tokio::net::TcpStream::connect(rig.address()).await.unwrap();
    let io = hyper_util::rt::TokioIo::new(stream);
    let (mut sender, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), io)
        .await
        .unwrap();
    tokio::spawn(connection);
    let request = Request::builder()
        .uri(format!("http://{name}/"))
        .header("cookie", "a=1")
        .header("cookie", "b=2")
        .body(Empty::<bytes::Bytes>::new())
        .unwrap();
    let answer = within(sender.send_request(request)).await.unwrap();
    assert_eq!(answer.status(), 200);
    let text = answer.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(text, format!("{name} a=1; b=2 {name}"));
}

#[tokio::test]
async fn requests_that_can_be_read_in_two_ways_are_refused() {
    let rig = Rig::new().await;
    let id = rig.web_box().await;
    rig.says(id, "the app").await;
    let host = host("web", id);
    let table: &[(&str, &str)] = &[
        ("Content-Length: 4\r\nTransfer-Encoding: chunked", "400"),
        ("Transfer-Encoding: chunked\r\nContent-Length: 4", "400"),
        ("Content-Length: 4\r\nContent-Length: 5", "400"),
        ("Content-Length: 4\r\nContent-Length: 4", "400"),
        ("Content-Length: 4, 4", "400"),
        ("Content-Length: +4", "400"),
        ("Content-Length: 0x4", "400"),
        ("Transfer-Encoding: gzip, chunked", "400"),
        ("Transfer-Encoding: chunked, identity", "400"),
        ("Transfer-Encoding: xchunked", "400"),
        ("Transfer-Encoding : chunked", "400"),
        ("Transfer-Encoding:\u{b}chunked", "400"),
        ("Transfer_Encoding: chunked", "400"),
        ("Transfer--Encoding: chunked", "400"),
        ("Content_Length: 4", "400"),
        ("X: y\r\n Transfer-Encoding: chunked", "400"),
        ("X: a\0b", "400"),
        ("X: a\rContent-Length: 4", "400"),
        ("Host: other.example", "400"),
        ("Content-Length: 4", "200"),
    ];
    for (fields, status) in table {
        for (method, path) in [("POST", "/"), ("GET", "/x")] {
            let mut client = Talk::to(rig.address()).await;
            let smuggled = "GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n";
            let request = format!(
                "{method} {path} HTTP/1.1\r\nHost: {host}\r\n{fields}\r\n\r\n0\r\n\r\n{smuggled}"
            );
            let request = if *status == "200" {
                format!(
                    "{method} {path} HTTP/1.1\r\nHost: {host}\r\n{fields}\r\nConnection: close\r\n\r\nbody"
                )
            } else {
                request
            };
            client.say(&request).await;
            let (answers, _) = client.rest().await;
            let first = answers.split(' ').nth(1);
            assert_eq!(first, Some(*status), "{method} {fields:?}: {answers}");
            assert_eq!(
                answers.matches("HTTP/1.1 ").count(),
                1,
                "{method} {fields:?}: {answers}"
            );
        }
    }
}

#[tokio::test]
async fn out_of_bounds_heads_and_odd_targets_are_refused() {
    let rig = Rig::new().await;
    let id = rig.web_box().await;
    rig.says(id, "the app").await;
    let host = host("web", id);
    let large = "x".repeat(70_000);
    let many = "X: y\r\n".repeat(200);
    for (head, status) in [
        (
            format!("GET / HTTP/1.1\r\nHost: {host}\r\nX: {large}"),
            "431",
        ),
        (
            format!("GET / HTTP/1.1\r\nHost: {host}\r\n{}", many.trim_end()),
            "431",
        ),
        (
            format!("GET http://other.example/ HTTP/1.1\r\nHost: {host}"),
            "400",
        ),
        ("GET / HTTP/1.1\r\nX: y".to_owned(), "400"),
        (format!("CONNECT {host} HTTP/1.1\r\nHost: {host}"), "405"),
        (
            format!("GET http://{host}/ HTTP/1.1\r\nHost: {host}"),
            "200",
        ),
    ] {
        let mut client = Talk::to(rig.address()).await;
        client
            .say(&format!("{head}\r\nConnection: close\r\n\r\n"))
            .await;
        let (answer, _) = client.rest().await;
        let short: String = head.chars().take(60).collect();
        assert_eq!(answer.split(' ').nth(1), Some(status), "{short}: {answer}");
    }
}
