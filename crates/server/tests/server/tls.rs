//! TLS on the one listener: with the server's own authority and with certificates in files, HTTP/1.1 and HTTP/2, and
//! everything that worked without.

use std::path::Path;
use std::sync::Arc;

use axum::http::{Method, Request, Version};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper_util::rt::{TokioExecutor, TokioIo};
use icebox_lifecycle::BoxId;
use icebox_server::config::TlsConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::program::{Program, Talk, host, within};
use crate::rig::{Rig, connector};

/// Whoever trusts the authority of this server.
fn trusting(rig: &Rig, protocols: &[&str]) -> TlsConnector {
    connector(&rig.data().join("tls/ca.pem"), protocols)
}

async fn dial(rig: &Rig, tls: &TlsConnector, name: &str) -> std::io::Result<TlsStream<TcpStream>> {
    let stream = TcpStream::connect(rig.address()).await.unwrap();
    let name = ServerName::try_from(name.to_owned()).unwrap();
    within(tls.connect(name, stream)).await
}

type Sender = hyper::client::conn::http2::SendRequest<
    http_body_util::combinators::UnsyncBoxBody<Bytes, std::io::Error>,
>;

/// An HTTP/2 connection to that name.
async fn http2(rig: &Rig, name: &str) -> Sender {
    let tls = trusting(rig, &["h2"]);
    let stream = dial(rig, &tls, name).await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let io = TokioIo::new(stream);
    let (sender, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), io)
        .await
        .unwrap();
    tokio::spawn(connection);
    sender
}

async fn ask(
    sender: &mut Sender,
    request: axum::http::request::Builder,
    body: &str,
) -> hyper::Response<Incoming> {
    let body = Full::new(Bytes::from(body.to_owned())).map_err(|never| match never {});
    let request = request.body(body.boxed_unsync()).unwrap();
    within(sender.send_request(request)).await.unwrap()
}

#[tokio::test]
async fn both_versions_of_http_reach_the_api_and_the_boxes() {
    let rig = Rig::over_tls(TlsConfig::LocalCa).await;
    let id = rig.web_box().await;
    let program = Program::on(&rig, id, 3000).await;
    let web = format!("web-{id}.localhost");
    let mut sender = http2(&rig, &web).await;
    let request =
        Request::get(format!("https://{web}:7070/a?b=c")).header("x-forwarded-proto", "http");
    let (answer, head) = tokio::join!(ask(&mut sender, request, ""), async {
        let mut talk = program.accept().await;
        let head = talk.head().await;
        talk.say(
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: grpc-status\r\n\r\n\
                  2\r\nhi\r\n0\r\ngrpc-status: 0\r\n\r\n",
        )
        .await;
        head
    });
    assert!(head.starts_with("get /a?b=c http/1.1\r\n"), "{head}");
    assert!(head.contains(&format!("host: {web}:7070\r\n")), "{head}");
    assert!(head.contains("x-forwarded-proto: https\r\n"), "{head}");
    assert_eq!(answer.version(), Version::HTTP_2);
    let whole = within(answer.into_body().collect()).await.unwrap();
    assert_eq!(whole.trailers().unwrap()["grpc-status"], "0");
    assert_eq!(&whole.to_bytes()[..], b"hi");

    let tls = trusting(&rig, &["http/1.1"]);
    let mut stream = dial(&rig, &tls, "localhost").await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"http/1.1"[..]));
    let request = "GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    within(stream.read_to_string(&mut answer)).await.unwrap();
    assert!(
        answer.starts_with("HTTP/1.1 200 OK") && answer.ends_with("{\"ok\":true}"),
        "{answer}"
    );
}

#[tokio::test]
async fn what_the_server_says_of_itself_begins_with_https() {
    let rig = Rig::over_tls(TlsConfig::LocalCa).await;
    let id = rig.web_box().await;
    let status = rig.status(id).await;
    let url = status["services"][0]["url"].as_str().unwrap();
    assert!(url.starts_with("https://web-"), "{url}");
    let link = rig
        .post(&format!("/v1/boxes/{id}/link"), json!({}))
        .await
        .expect(200);
    assert!(
        link["url"].as_str().unwrap().starts_with("https://"),
        "{link}"
    );
    let link = rig.post("/v1/session/links", json!({})).await.expect(200);
    let port = rig.address().port();
    let begins = format!("https://localhost:{port}/app#token=");
    assert!(link["url"].as_str().unwrap().starts_with(&begins), "{link}");
    let nobody = rig.client().with_key(None);
    let token = json!({ "token": link["token"] });
    let signed_in = nobody.post("/v1/session", token).await;
    let cookie = signed_in.headers["set-cookie"].to_str().unwrap();
    assert!(cookie.starts_with("__Host-icebox-session=ibs_"), "{cookie}");
    assert!(cookie.ends_with("; Secure"), "{cookie}");
    let cookie = cookie.split(';').next().unwrap();
    let page = nobody.with_header("cookie", cookie);
    page.call(Method::GET, "/v1/session", None)
        .await
        .expect(200);
}

#[tokio::test]
async fn a_head_that_names_two_hosts_is_refused_in_http2_too() {
    let rig = Rig::over_tls(TlsConfig::LocalCa).await;
    let id = rig.web_box().await;
    let web = format!("web-{id}.localhost");
    let mut sender = http2(&rig, "localhost").await;
    // The authority, the `Host` field, and what comes of it.
    let table: &[(&str, Option<&str>, u16)] = &[
        ("localhost", None, 200),
        ("localhost", Some("localhost"), 200),
        ("localhost", Some(&web), 400),
        (&web, Some("localhost"), 400),
        ("evil.example", None, 421),
        ("user@localhost", None, 400),
    ];
    for (authority, field, status) in table {
        let mut request = Request::get(format!("https://{authority}/healthz"));
        if let Some(field) = field {
            request = request.header("host", *field);
        }
        let answer = ask(&mut sender, request, "").await;
        assert_eq!(answer.status().as_u16(), *status, "{authority} {field:?}");
    }
}

#[tokio::test]
async fn a_long_body_goes_through_both_ways_at_once() {
    const PIECES: usize = 512;
    let piece = Bytes::from(vec![7; 64 * 1024]);
    let rig = Rig::over_tls(TlsConfig::LocalCa).await;
    let id = rig.web_box().await;
    let echo = axum::Router::new().fallback(async |body: axum::body::Body| body);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    rig.fake
        .listen(id, 3000, Some(listener.local_addr().unwrap()));
    tokio::spawn(async move { axum::serve(listener, echo).await.unwrap() });
    let web = format!("web-{id}.localhost");
    let mut sender = http2(&rig, &web).await;
    let pieces =
        futures_util::stream::iter((0..PIECES).map(move |_| Ok(Frame::data(piece.clone()))));
    let request = Request::post(format!("https://{web}/"));
    let request = request
        .body(StreamBody::new(pieces).boxed_unsync())
        .unwrap();
    let answer = within(sender.send_request(request)).await.unwrap();
    let mut body = answer.into_body();
    let mut length = 0;
    while let Some(frame) = within(body.frame()).await {
        length += frame.unwrap().into_data().map_or(0, |data| data.len());
    }
    assert_eq!(length, PIECES * 64 * 1024);
}

#[tokio::test]
async fn websockets_are_tunnelled() {
    let rig = Rig::over_tls(TlsConfig::LocalCa).await;
    let id = rig.web_box().await;
    let program = Program::on(&rig, id, 3000).await;
    let tls = trusting(&rig, &["http/1.1"]);
    let web = format!("web-{id}.localhost");
    let mut stream = dial(&rig, &tls, &web).await.unwrap();
    let head = format!(
        "GET /ws HTTP/1.1\r\nHost: {}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
        host("web", id)
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut talk = program.accept().await;
    talk.head().await;
    talk.say("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nhello").await;
    let mut heard = Vec::new();
    while !heard.ends_with(b"hello") {
        assert!(within(stream.read_buf(&mut heard)).await.unwrap() > 0);
    }
    stream.write_all(b"and back").await.unwrap();
    talk.hear("and back").await;
}

#[tokio::test]
async fn plain_http_is_told_to_come_over_tls() {
    let rig = Rig::over_tls(TlsConfig::LocalCa).await;
    let mut talk = Talk::to(rig.address()).await;
    talk.say("POST /v1/boxes HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}")
        .await;
    let (answer, _) = talk.rest().await;
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
    assert!(answer.contains("https://"), "{answer}");
    let mut nonsense = Talk::to(rig.address()).await;
    nonsense.say("\u{16}\u{3}\u{1}nonsense").await;
    let (answer, _) = nonsense.rest().await;
    assert!(!answer.contains("HTTP"), "{answer}");
}

#[tokio::test]
async fn an_authority_stays_the_same_and_vouches_for_no_other_names() {
    let mut rig = Rig::over_tls(TlsConfig::LocalCa).await;
    let path = rig.data().join("tls/ca.pem");
    let before = std::fs::read(&path).unwrap();
    let tls = trusting(&rig, &[]);
    rig.restart().await;
    assert_eq!(std::fs::read(&path).unwrap(), before);
    let id = BoxId::from_random([7; 20]);
    for (name, fits) in [
        ("localhost", true),
        ("127.0.0.1", true),
        ("::1", true),
        ("icebox.example", true),
        (&*format!("web-{id}.localhost"), true),
        (&*format!("WEB-{id}.localhost"), true),
        (&*format!("a.web-{id}.localhost"), false),
        ("elsewhere.localhost", false),
        ("evil.example", false),
        ("10.0.0.1", false),
    ] {
        let dialed = dial(&rig, &tls, name).await;
        assert_eq!(dialed.is_ok(), fits, "{name}: {:?}", dialed.err());
    }
    use std::os::unix::fs::PermissionsExt as _;
    let mode = |file: &str| {
        let meta = std::fs::metadata(rig.data().join("tls").join(file)).unwrap();
        meta.permissions().mode() & 0o777
    };
    assert_eq!((mode("ca.key"), mode("ca.pem")), (0o600, 0o644));
}

/// A certificate for `localhost` in these files, which nobody but itself vouches for.
fn self_signed(cert: &Path, key: &Path) -> CertificateDer<'static> {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    std::fs::write(key, made.signing_key.serialize_pem()).unwrap();
    std::fs::write(cert, made.cert.pem()).unwrap();
    made.cert.der().clone()
}

#[tokio::test]
async fn a_certificate_in_files_is_read_again_when_it_changes() {
    let dir = tempfile::tempdir().unwrap();
    let (cert, key) = (dir.path().join("cert.pem"), dir.path().join("key.pem"));
    let first = self_signed(&cert, &key);
    let files = TlsConfig::Files {
        cert: cert.clone(),
        key: key.clone(),
    };
    let rig = Rig::over_tls(files).await;
    let shown = async || {
        let mut roots = RootCertStore::empty();
        roots
            .add(CertificateDer::from_pem_file(&cert).unwrap())
            .unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let stream = dial(&rig, &Arc::new(config).into(), "localhost")
            .await
            .unwrap();
        stream.get_ref().1.peer_certificates().unwrap()[0]
            .clone()
            .into_owned()
    };
    assert_eq!(shown().await, first);
    let second = self_signed(&cert, &key);
    assert_ne!(first, second);
    assert_eq!(shown().await, second);
    // Half a change: the certificate before stays until the other half is there.
    let third = dir.path().join("third.pem");
    let other = dir.path().join("other.pem");
    let third_der = self_signed(&third, &other);
    let kept = std::fs::read(&cert).unwrap();
    std::fs::copy(&other, &key).unwrap();
    assert_eq!(shown().await, second);
    std::fs::write(&cert, "nonsense").unwrap();
    let trusts_second = dir.path().join("second.pem");
    std::fs::write(&trusts_second, kept).unwrap();
    let tls = connector(&trusts_second, &[]);
    dial(&rig, &tls, "localhost").await.unwrap();
    std::fs::copy(&third, &cert).unwrap();
    assert_eq!(shown().await, third_der);
}
