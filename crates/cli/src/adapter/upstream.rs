//! The server behind the adapter: MCP requests to `/mcp` and file transfers, over connections of their own. Owns telling
//! apart what was never sent, what may have run, and what the server said; decides nothing about repeating.

use std::io::{BufRead as _, BufReader, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use icebox_wire::rest::{AGENT_HEADER, CONFIRMS_HEADER, ErrorBody};
use serde_json::{Value, json};
use ureq::http::{Request, Response};
use ureq::{Agent, AsSendBody, Body, SendBody};

use crate::settings::Server;

/// The version of the protocol that is spoken to the server.
const PROTOCOL: &str = "2025-06-18";
/// How long any call may take: a command's own limit is an hour.
const CALL_LIMIT: Duration = Duration::from_secs(65 * 60);
/// The largest answer, in bytes.
const ANSWER: u64 = 64 << 20;

/// Why a request came to nothing.
#[derive(Debug)]
pub(super) enum Failure {
    /// The server was not reached: nothing ran.
    NotSent(String),
    /// The connection broke: it may have run.
    Lost(String),
    /// The server answered, and said no.
    Said {
        /// Its status.
        status: u16,
        /// Its words.
        text: String,
    },
    /// Nobody waits for it any more.
    Cancelled,
}

impl Failure {
    /// In words for an agent.
    pub(super) fn text(&self) -> String {
        match self {
            Self::NotSent(why) => {
                format!("the Icebox server is not reached, so nothing ran: {why}")
            }
            Self::Lost(why) => format!("the connection to the Icebox server broke: {why}"),
            Self::Said { text, .. } => text.clone(),
            Self::Cancelled => "the call was cancelled".to_owned(),
        }
    }
}

/// One server, and who asks it.
pub(super) struct Upstream {
    agent: Agent,
    base: String,
    key: Option<String>,
    /// The conversation.
    conversation: String,
    ids: AtomicU64,
}

impl Upstream {
    pub(super) fn new(server: Server, conversation: String) -> Self {
        // A connection of a server that is gone would look like a call that may have run.
        let config = server.trust.agent().max_idle_connections(0);
        Self {
            agent: config.build().into(),
            base: server.base,
            key: server.key.ok(),
            conversation,
            ids: AtomicU64::new(1),
        }
    }

    /// The conversation's id.
    pub(super) fn conversation(&self) -> &str {
        &self.conversation
    }

    /// One MCP request: its result. Signs of life go to `alive`; `cancelled` is looked at whenever one comes.
    pub(super) fn ask(
        &self,
        method: &str,
        params: &Value,
        cancelled: &Arc<AtomicBool>,
        alive: &dyn Fn(),
    ) -> Result<Value, Failure> {
        let id = self.ids.fetch_add(1, Ordering::Relaxed);
        let body = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        let request = self
            .request("POST", "/mcp")
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream")
            .header("mcp-protocol-version", PROTOCOL)
            .header(CONFIRMS_HEADER, "1");
        let response = self.send(request, body.to_string(), CALL_LIMIT)?;
        let response = said_no(response)?;
        let kind = response.headers().get("content-type");
        let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        if !kind.starts_with("text/event-stream") {
            let mut body = response.into_body();
            let text = body.with_config().limit(ANSWER).read_to_string();
            let text = text.map_err(|error| Failure::Lost(error.to_string()))?;
            return result(&text);
        }
        let body = response
            .into_body()
            .into_with_config()
            .limit(ANSWER)
            .reader();
        for line in BufReader::new(body).lines() {
            let line = line.map_err(|error| Failure::Lost(error.to_string()))?;
            if cancelled.load(Ordering::Acquire) {
                return Err(Failure::Cancelled);
            }
            let Some(data) = line.strip_prefix("data:") else {
                continue;
            };
            let message: Value = serde_json::from_str(data.trim()).unwrap_or_default();
            if message["id"] == id {
                return result(data);
            }
            if message["method"].is_string() {
                alive();
            }
        }
        Err(Failure::Lost("it ended without a result".to_owned()))
    }

    /// Posts JSON to a path of REST.
    pub(super) fn post(&self, path: &str, body: &Value, limit: Duration) -> Result<Value, Failure> {
        let request = self
            .request("POST", path)
            .header("content-type", "application/json");
        let response = self.send(request, body.to_string(), limit)?;
        let mut body = said_no(response)?.into_body();
        let text = body.with_config().limit(ANSWER).read_to_string();
        let text = text.map_err(|error| Failure::Lost(error.to_string()))?;
        serde_json::from_str(&text).map_err(|error| Failure::Lost(error.to_string()))
    }

    /// Streams a body to a path of REST.
    pub(super) fn upload(&self, path: &str, body: &mut dyn Read) -> Result<Value, Failure> {
        let request = self
            .request("POST", path)
            .header("content-type", "application/gzip");
        let response = self.send(request, SendBody::from_reader(body), CALL_LIMIT)?;
        let mut body = said_no(response)?.into_body();
        let text = body.with_config().limit(ANSWER).read_to_string();
        let text = text.map_err(|error| Failure::Lost(error.to_string()))?;
        serde_json::from_str(&text).map_err(|error| Failure::Lost(error.to_string()))
    }

    /// The body at a path of REST.
    pub(super) fn download(&self, path: &str) -> Result<Response<Body>, Failure> {
        said_no(self.send(self.request("GET", path), (), CALL_LIMIT)?)
    }

    fn request(&self, method: &str, path: &str) -> ureq::http::request::Builder {
        let request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.base))
            .header(AGENT_HEADER, &self.conversation);
        match &self.key {
            Some(key) => request.header("authorization", format!("Bearer {key}")),
            None => request,
        }
    }

    fn send(
        &self,
        request: ureq::http::request::Builder,
        body: impl AsSendBody,
        limit: Duration,
    ) -> Result<Response<Body>, Failure> {
        let request = request.body(body);
        let request = request.map_err(|error| Failure::NotSent(error.to_string()))?;
        let request = self
            .agent
            .configure_request(request)
            .timeout_recv_response(Some(limit));
        self.agent.run(request.build()).map_err(|error| {
            if was_not_sent(&error) {
                Failure::NotSent(error.to_string())
            } else {
                Failure::Lost(error.to_string())
            }
        })
    }
}

fn was_not_sent(error: &ureq::Error) -> bool {
    use std::io::ErrorKind::{
        AddrNotAvailable, ConnectionRefused, HostUnreachable, NetworkUnreachable,
    };
    let kinds = [
        ConnectionRefused,
        HostUnreachable,
        NetworkUnreachable,
        AddrNotAvailable,
    ];
    matches!(
        error,
        ureq::Error::HostNotFound
            | ureq::Error::ConnectionFailed
            | ureq::Error::Timeout(ureq::Timeout::Connect | ureq::Timeout::Resolve)
    ) || matches!(error, ureq::Error::Io(error) if kinds.contains(&error.kind()))
}

fn said_no(response: Response<Body>) -> Result<Response<Body>, Failure> {
    let status = response.status().as_u16();
    if (200..300).contains(&status) {
        return Ok(response);
    }
    let mut body = response.into_body();
    let text = body.with_config().limit(ANSWER).lossy_utf8(true);
    let text = text.read_to_string().unwrap_or_default();
    let text = match serde_json::from_str::<ErrorBody>(&text) {
        Ok(body) => body.error,
        Err(_) => format!("the server answered with HTTP status {status}"),
    };
    Err(Failure::Said { status, text })
}

/// The result in an answer, or what went wrong with the request as a whole.
fn result(text: &str) -> Result<Value, Failure> {
    let answer: Result<Value, _> = serde_json::from_str(text.trim());
    let mut answer = answer.map_err(|error| Failure::Lost(error.to_string()))?;
    if let Some(message) = answer["error"]["message"].as_str() {
        return Err(Failure::Said {
            status: 200,
            text: message.to_owned(),
        });
    }
    Ok(answer["result"].take())
}
