//! An endpoint for webhooks, on loopback: keeps what it is sent, answers what a test tells it to, and checks signatures
//! with code of its own.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, Method, StatusCode};
use axum::response::{IntoResponse as _, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// A message that came in.
#[derive(Clone, Debug)]
pub(crate) struct Got {
    pub(crate) method: Method,
    pub(crate) headers: HeaderMap,
    pub(crate) body: String,
    pub(crate) json: Value,
}

impl Got {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers[name].to_str().unwrap()
    }

    /// The box it is about, and the kind.
    pub(crate) fn event(&self) -> (&str, &str) {
        let text = |field: &str| self.json["data"][field].as_str().unwrap_or_default();
        (text("box"), text("kind"))
    }

    /// Whether the signature is what HMAC-SHA256 (RFC 2104) gives under this secret.
    pub(crate) fn is_signed_by(&self, secret: &str) -> bool {
        let key = STANDARD
            .decode(secret.strip_prefix("whsec_").unwrap())
            .unwrap();
        assert!(key.len() <= 64, "a longer key would be hashed first");
        let pad = |byte: u8| -> Vec<u8> {
            let padded = key.iter().copied().chain(std::iter::repeat(0)).take(64);
            padded.map(|key| key ^ byte).collect()
        };
        let (id, at) = (self.header("webhook-id"), self.header("webhook-timestamp"));
        let inner = Sha256::new()
            .chain_update(pad(0x36))
            .chain_update(format!("{id}.{at}.{}", self.body))
            .finalize();
        let outer = Sha256::new()
            .chain_update(pad(0x5c))
            .chain_update(inner)
            .finalize();
        self.header("webhook-signature") == format!("v1,{}", STANDARD.encode(outer))
    }
}

type Answer = Box<dyn FnMut(&Got) -> Option<Response> + Send>;

/// The endpoint. It ends with the test.
pub(crate) struct Receiver {
    pub(crate) url: String,
    got: mpsc::UnboundedReceiver<Got>,
    answer: Arc<Mutex<Answer>>,
    serving: JoinHandle<()>,
}

#[derive(Clone)]
struct Endpoint {
    got: mpsc::UnboundedSender<Got>,
    answer: Arc<Mutex<Answer>>,
}

impl Receiver {
    /// One that takes everything.
    pub(crate) async fn new() -> Self {
        Self::answering(|_| Some(StatusCode::OK.into_response())).await
    }

    /// One that answers so; `None`: it never answers.
    pub(crate) async fn answering(
        answer: impl FnMut(&Got) -> Option<Response> + Send + 'static,
    ) -> Self {
        let (sender, got) = mpsc::unbounded_channel();
        let answer: Arc<Mutex<Answer>> = Arc::new(Mutex::new(Box::new(answer)));
        let endpoint = Endpoint {
            got: sender,
            answer: Arc::clone(&answer),
        };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/hook?a=b", listener.local_addr().unwrap());
        let router = Router::new().fallback(take).with_state(endpoint);
        let serving = tokio::spawn(async move {
            axum::serve(listener, router).await.unwrap();
        });
        Self {
            url,
            got,
            answer,
            serving,
        }
    }

    /// Answers so from now on.
    pub(crate) fn answer(&self, answer: impl FnMut(&Got) -> Option<Response> + Send + 'static) {
        *self.answer.lock().unwrap() = Box::new(answer);
    }

    /// The next message; waits for it.
    pub(crate) async fn next(&mut self) -> Got {
        self.got.recv().await.unwrap()
    }

    /// The next so many messages about this box, and whatever else comes in between.
    pub(crate) async fn next_of(&mut self, id: &str, count: usize) -> Vec<Got> {
        let mut of_box = Vec::new();
        while of_box.len() < count {
            let got = self.next().await;
            if got.event().0 == id {
                of_box.push(got);
            }
        }
        of_box
    }

    /// What has come in and was not looked at.
    pub(crate) fn rest(&mut self) -> Vec<Got> {
        std::iter::from_fn(|| self.got.try_recv().ok()).collect()
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn take(
    State(endpoint): State<Endpoint>,
    method: Method,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let body = String::from_utf8(body.to_vec()).unwrap();
    let got = Got {
        method,
        headers,
        json: serde_json::from_str(&body).unwrap_or_default(),
        body,
    };
    let answer = (endpoint.answer.lock().unwrap())(&got);
    // The test may be over.
    let _ = endpoint.got.send(got);
    match answer {
        Some(answer) => answer,
        None => std::future::pending().await,
    }
}

/// An answer with this status.
pub(crate) fn status(status: u16) -> Option<Response> {
    Some(StatusCode::from_u16(status).unwrap().into_response())
}
