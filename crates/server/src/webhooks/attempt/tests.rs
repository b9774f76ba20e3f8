//! Tries against endpoints that misbehave, on loopback, in plain and over TLS.

use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{RootCertStore, ServerConfig};

use super::*;

const CA: &[u8] = include_bytes!("../testdata/ca.pem");
const LEAF: &[u8] = include_bytes!("../testdata/leaf.pem");
const LEAF_KEY: &[u8] = include_bytes!("../testdata/leaf.key");

/// An endpoint that reads one message whole and then says this; gives what it read.
async fn endpoint(answer: impl Into<Vec<u8>>) -> (u16, JoinHandle<String>) {
    let answer = answer.into();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let served = tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        serve(stream, &answer).await
    });
    (port, served)
}

async fn serve(mut stream: impl AsyncRead + AsyncWrite + Unpin, answer: &[u8]) -> String {
    let mut read = Vec::new();
    while !read.ends_with(b"{}") {
        let mut some = [0; 1024];
        let n = stream.read(&mut some).await.unwrap();
        assert_ne!(n, 0, "{}", String::from_utf8_lossy(&read));
        read.extend(&some[..n]);
    }
    // The other side may hang up before it took all of it.
    let _ = stream.write_all(answer).await;
    let _ = stream.shutdown().await;
    String::from_utf8(read).unwrap()
}

async fn send_to(url: &str, dialer: &Dialer) -> Outcome {
    let message = Message {
        id: "msg_1".to_owned(),
        body: "{}".to_owned(),
    };
    post(dialer, url, true, &Secret::random(), message).await
}

async fn answered(answer: impl Into<Vec<u8>>) -> Outcome {
    let (port, served) = endpoint(answer).await;
    let outcome = send_to(&format!("http://127.0.0.1:{port}/"), &Dialer::default()).await;
    served.await.unwrap();
    outcome
}

fn why(outcome: Outcome) -> String {
    match outcome {
        Outcome::Failed { why, .. } => why,
        Outcome::Taken { .. } | Outcome::Gone => panic!("{outcome:?}"),
    }
}

#[tokio::test]
async fn an_answer_says_what_became_of_it() {
    let ok = answered("HTTP/1.1 204 No Content\r\n\r\n").await;
    assert_eq!(ok, Outcome::Taken { status: 204 });
    let gone = answered("HTTP/1.1 410 Gone\r\ncontent-length: 0\r\n\r\n").await;
    assert_eq!(gone, Outcome::Gone);
    let redirect = "HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\n\r\n";
    let text = why(answered(redirect).await);
    assert!(text.contains("302") && text.contains("redirects"), "{text}");
    let busy = "HTTP/1.1 503 No\r\nretry-after: 7\r\ncontent-length: 10\r\n\r\nnot\r\n\x1b now";
    let expected = Outcome::Failed {
        status: Some(503),
        why: "it answered 503: not now".to_owned(),
        retry_after_ms: Some(7_000),
    };
    assert_eq!(answered(busy).await, expected);
}

#[test]
fn a_retry_after_may_be_a_date() {
    let header = |value: &str| {
        let mut headers = HeaderMap::new();
        headers.insert(RETRY_AFTER, value.parse().unwrap());
        headers
    };
    let at = machine_now().0 / SEC + 100;
    let date = jiff::Timestamp::from_second(at).unwrap();
    let date = date.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string();
    let ms = retry_after(&header(&date)).unwrap();
    assert!((1..=100_000).contains(&ms), "{ms}");
    for odd in ["", "-1", "soon", "99999999999999999999", "1.5"] {
        assert_eq!(retry_after(&header(odd)), None, "{odd}");
    }
}

#[tokio::test]
async fn an_endpoint_that_misbehaves_is_let_go() {
    let head = "HTTP/1.1 500 No\r\n\r\n".to_owned();
    let text = why(answered(head + &"x".repeat(8 << 20)).await);
    assert!(text.ends_with('…') && text.chars().count() < 250, "{text}");
    let endless = format!("HTTP/1.1 200 OK\r\nx: {}\r\n\r\n", "x".repeat(1 << 20));
    assert!(why(answered(endless).await).contains("broke off"));
    for odd in [
        "",
        "SSH-2.0-OpenSSH\r\n",
        "HTTP/1.1 999999 x\r\n\r\n",
        "\0\0\0\0",
    ] {
        assert!(why(answered(odd).await).contains("broke off"), "{odd:?}");
    }
}

#[tokio::test]
async fn an_endpoint_that_says_nothing_is_waited_for_so_long_and_no_longer() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let message = Message {
        id: "msg_1".to_owned(),
        body: "{}".to_owned(),
    };
    let (limit, url) = (Duration::from_secs(1), format!("http://127.0.0.1:{port}/"));
    let (dialer, secret) = (Dialer::default(), Secret::random());
    let outcome = post_within(limit, &dialer, &url, true, &secret, message).await;
    assert_eq!(why(outcome), "it did not answer within 1 s");
    drop(listener);
}

#[tokio::test]
async fn a_name_that_leads_nowhere_and_a_closed_port_are_told_apart() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let dialer = Dialer::default();
    let closed = why(send_to(&format!("http://127.0.0.1:{port}/"), &dialer).await);
    assert!(closed.contains("no connection to it"), "{closed}");
    let nowhere = why(send_to("http://nowhere.invalid/", &dialer).await);
    assert!(nowhere.contains("leads nowhere"), "{nowhere}");
}

#[tokio::test]
async fn over_tls_only_a_certificate_that_is_trusted_and_names_the_host_will_do() {
    let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
    let server = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![CertificateDer::from_pem_slice(LEAF).unwrap()],
            PrivateKeyDer::from_pem_slice(LEAF_KEY).unwrap(),
        )
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(server));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let served = tokio::spawn(async move {
        let mut whole = 0;
        for _ in 0..3 {
            let (stream, _) = listener.accept().await.unwrap();
            if let Ok(stream) = acceptor.accept(stream).await {
                serve(stream, b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await;
                whole += 1;
            }
        }
        whole
    });
    let mut roots = RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_slice(CA).unwrap())
        .unwrap();
    let trusting = Dialer::trusting(roots);
    let url = format!("https://localhost:{port}/");
    assert_eq!(
        send_to(&url, &trusting).await,
        Outcome::Taken { status: 200 }
    );
    let by_address = why(send_to(&format!("https://127.0.0.1:{port}/"), &trusting).await);
    assert!(by_address.contains("no TLS with it"), "{by_address}");
    let stranger = Dialer::trusting(RootCertStore::empty());
    let untrusted = why(send_to(&url, &stranger).await);
    assert!(untrusted.contains("no TLS with it"), "{untrusted}");
    assert_eq!(served.await.unwrap(), 1, "the message went to nobody else");
}
