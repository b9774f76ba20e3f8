//! HTTP/2 in front of programs that speak HTTP/1.1: what one version has and the other says differently, and how streams
//! and uploads end when either side hangs up.

use std::convert::Infallible;

use axum::http::{HeaderMap, HeaderValue, Request, StatusCode};
use bytes::Bytes;
use futures_util::stream;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Empty, StreamBody};
use hyper::body::Frame;
use hyper::client::conn::http2::SendRequest;
use hyper_util::rt::{TokioExecutor, TokioIo};
use icebox_lifecycle::BoxId;

use crate::program::{Program, Talk, host, within};
use crate::rig::Rig;

type Body = BoxBody<Bytes, Infallible>;

/// A ready box, its program, and a client's connection.
async fn talking() -> (Rig, BoxId, Program, SendRequest<Body>) {
    let rig = Rig::new().await;
    let id = rig.web_box().await;
    let program = Program::on(&rig, id, 3000).await;
    let stream = tokio::net::TcpStream::connect(rig.address()).await.unwrap();
    let handshake =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await;
    let (sender, connection) = handshake.unwrap();
    tokio::spawn(connection);
    (rig, id, program, sender)
}

fn empty() -> Body {
    Empty::new().boxed()
}

/// A body of these frames.
fn frames(frames: Vec<Frame<Bytes>>) -> Body {
    let frames = frames.into_iter().map(Ok::<_, Infallible>);
    BodyExt::boxed(StreamBody::new(stream::iter(frames)))
}

fn to(id: BoxId, path: &str) -> axum::http::request::Builder {
    Request::builder().uri(format!("http://{}{path}", host("web", id)))
}

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

#[tokio::test]
async fn trailers_pass_in_both_directions() {
    let (_rig, id, program, mut client) = talking().await;
    let mut sum = HeaderMap::new();
    sum.insert("x-sum", HeaderValue::from_static("12"));
    let body = frames(vec![
        Frame::data(Bytes::from_static(b"twelve")),
        Frame::trailers(sum),
    ]);
    let request = to(id, "/").method("POST").header("te", "trailers");
    let request = request.header("trailer", "x-sum").body(body).unwrap();
    let answer = tokio::spawn(async move { within(client.send_request(request)).await.unwrap() });
    let mut talk = program.accept().await;
    let head = talk.head().await;
    for field in [
        "transfer-encoding: chunked",
        "te: trailers",
        "trailer: x-sum",
    ] {
        assert!(head.contains(field), "{field}: {head}");
    }
    assert!(!head.contains("content-length"), "{head}");
    assert_eq!(talk.hear("0\r\n").await, "6\r\ntwelve\r\n0\r\n");
    assert_eq!(talk.head().await, "x-sum: 12\r\n\r\n");
    talk.say("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n2\r\nok\r\n0\r\nX-Sum: 34\r\n\r\n")
        .await;
    let answer = answer.await.unwrap();
    assert!(!answer.headers().contains_key("transfer-encoding"));
    let answer = within(answer.into_body().collect()).await.unwrap();
    assert_eq!(answer.trailers().unwrap()["x-sum"], "34");
    assert_eq!(answer.to_bytes(), "ok");
}

#[tokio::test]
async fn an_expectation_does_not_hold_a_body_up() {
    let (_rig, id, program, mut client) = talking().await;
    let body = frames(vec![Frame::data(Bytes::from_static(b"body"))]);
    let request = to(id, "/").method("PUT").header("expect", "100-continue");
    let request = request.header("content-length", "4").body(body).unwrap();
    let answer = tokio::spawn(async move { within(client.send_request(request)).await.unwrap() });
    let mut talk = program.accept().await;
    assert!(talk.head().await.contains("expect: 100-continue"));
    talk.say("HTTP/1.1 100 Continue\r\n\r\n").await;
    talk.hear("body").await;
    talk.say("HTTP/1.1 204 No Content\r\n\r\n").await;
    assert_eq!(answer.await.unwrap().status(), StatusCode::NO_CONTENT);
}

#[tokio::test]
async fn a_reader_who_leaves_takes_one_stream_along_and_no_other() {
    let (_rig, id, program, mut client) = talking().await;
    let mut ask = |path: &str| {
        let request = to(id, path).body(empty()).unwrap();
        within(client.send_request(request))
    };
    let (left, stays) = (ask("/left"), ask("/stays"));
    let (left, stays) = (tokio::spawn(left), tokio::spawn(stays));
    let (mut one, mut other) = (program.accept().await, program.accept().await);
    if !one.head().await.starts_with("get /left ") {
        std::mem::swap(&mut one, &mut other);
        one.head().await;
    } else {
        other.head().await;
    }
    for talk in [&mut one, &mut other] {
        talk.say("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: 1\n\n")
            .await;
    }
    let left = left.await.unwrap().unwrap();
    let mut stays = stays.await.unwrap().unwrap().into_body();
    drop(left);
    // The program says nothing more, and still learns that nobody listens.
    one.rest().await;
    let mut heard = Vec::new();
    other.say("data: 2\n\n").await;
    while heard.len() < 18 {
        let frame = within(stays.frame()).await.unwrap().unwrap();
        heard.extend_from_slice(frame.data_ref().unwrap());
    }
    assert_eq!(heard, b"data: 1\n\ndata: 2\n\n");
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_an_error_and_the_connection_goes_on() {
    let (_rig, id, program, mut client) = talking().await;
    let request = to(id, "/").body(empty()).unwrap();
    let answer = within(client.send_request(request));
    let answer = tokio::spawn(answer);
    let mut talk = program.accept().await;
    talk.head().await;
    talk.say("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf")
        .await;
    let mut body = answer.await.unwrap().unwrap().into_body();
    let half = within(body.frame()).await.unwrap().unwrap();
    assert_eq!(half.into_data().unwrap(), "half");
    drop(talk);
    assert!(within(body.frame()).await.unwrap().is_err(), "it is no end");
    let request = to(id, "/").body(empty()).unwrap();
    let answer = tokio::spawn(within(client.send_request(request)));
    let mut talk = program.accept().await;
    talk.head().await;
    talk.say(OK).await;
    assert_eq!(answer.await.unwrap().unwrap().status(), StatusCode::OK);
}

#[tokio::test]
async fn an_upload_ends_when_either_end_hangs_up() {
    let rig = Rig::new().await;
    let id = rig.web_box().await;
    let program = Program::on(&rig, id, 3000).await;
    let head = format!(
        "POST / HTTP/1.1\r\nHost: {}\r\nContent-Length: 9\r\n\r\nhalf",
        host("web", id)
    );
    let mut client = Talk::to(rig.address()).await;
    client.say(&head).await;
    let mut talk = program.accept().await;
    talk.hear("half").await;
    drop(client);
    let (rest, _) = talk.rest().await;
    assert_eq!(rest, "", "half a body is not made whole");

    let mut client = Talk::to(rig.address()).await;
    client.say(&head).await;
    let mut talk = program.accept().await;
    talk.hear("half").await;
    drop(talk);
    assert!(client.head().await.starts_with("http/1.1 502"));
}

#[tokio::test]
async fn a_field_that_http2_forbids_is_refused() {
    let (_rig, id, _program, mut client) = talking().await;
    for value in [" led", "followed\t"] {
        let request = to(id, "/").header("x-mine", value).body(empty()).unwrap();
        let answer = within(client.send_request(request)).await.unwrap();
        assert_eq!(answer.status(), StatusCode::BAD_REQUEST, "{value:?}");
    }
}
