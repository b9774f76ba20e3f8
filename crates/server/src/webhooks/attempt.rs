//! One try: a signed POST, and what its answer means. Owns the limits of time and size; follows no redirect and tries
//! nothing twice.

use std::time::Duration;

use axum::body::Body;
use axum::http::header::{CONNECTION, CONTENT_TYPE, HOST, RETRY_AFTER, USER_AGENT};
use axum::http::{HeaderMap, Request, Response};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use icebox_lifecycle::time::{Ms, SEC};
use tokio_util::task::AbortOnDropHandle;

use super::secret::Secret;
use crate::clock::machine_now;
use crate::outside::{Dialer, Target};
use crate::store::cut;

/// How long all of it may take, by the machine's own clock even under a test clock.
const LIMIT: Duration = Duration::from_secs(15);
/// The largest head of an answer, in bytes.
const HEAD_LIMIT: usize = 32 * 1024;
/// How much of the body of an answer is read, in bytes, and only if it is no success.
const BODY_LIMIT: usize = 1024;
/// How much of it is shown, in characters.
const SHOWN: usize = 200;
/// How long the answer's body is waited for.
const BODY_WAIT: Duration = Duration::from_secs(2);

/// The status with which an endpoint says that it is gone for good.
pub(super) const GONE: u16 = 410;
/// The same in words.
pub(super) const GONE_WHY: &str = "it answered 410: it is gone for good";

/// A message to an endpoint.
pub(super) struct Message {
    /// The same at every try.
    pub(super) id: String,
    /// The JSON.
    pub(super) body: String,
}

/// How a try ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The endpoint took it.
    Taken {
        /// With which HTTP status.
        status: u16,
    },
    /// It did not.
    Failed {
        /// The HTTP status, if it answered.
        status: Option<u16>,
        /// In words.
        why: String,
        /// When it wants to be asked again, in milliseconds.
        retry_after_ms: Option<Ms>,
    },
    /// It says that it is gone for good.
    Gone,
}

/// Posts a message, once.
pub(super) async fn post(
    dialer: &Dialer,
    url: &str,
    private_too: bool,
    secret: &Secret,
    message: Message,
) -> Outcome {
    post_within(LIMIT, dialer, url, private_too, secret, message).await
}

async fn post_within(
    limit: Duration,
    dialer: &Dialer,
    url: &str,
    private_too: bool,
    secret: &Secret,
    message: Message,
) -> Outcome {
    let tried = async {
        let target = Target::parse(url).map_err(str::to_owned)?;
        send(dialer, &target, private_too, secret, message).await
    };
    let why = match tokio::time::timeout(limit, tried).await {
        Ok(Ok(outcome)) => return outcome,
        Ok(Err(why)) => why,
        Err(_) => format!("it did not answer within {} s", limit.as_secs()),
    };
    Outcome::Failed {
        status: None,
        why,
        retry_after_ms: None,
    }
}

async fn send(
    dialer: &Dialer,
    target: &Target,
    private_too: bool,
    secret: &Secret,
    message: Message,
) -> Result<Outcome, String> {
    // Verifiers compare it with their own clock, so it is the machine's, even under a test clock.
    let at_sec = machine_now().0 / SEC;
    let request = Request::post(&target.path)
        .header(HOST, &target.authority)
        .header(CONNECTION, "close")
        .header(USER_AGENT, concat!("icebox/", env!("CARGO_PKG_VERSION")))
        .header(CONTENT_TYPE, "application/json")
        .header("webhook-id", &message.id)
        .header("webhook-timestamp", at_sec)
        .header(
            "webhook-signature",
            secret.sign(&message.id, at_sec, &message.body),
        )
        .body(Body::from(message.body))
        .map_err(|error| error.to_string())?;
    let stream = dialer
        .open(target.tls, &target.host, target.port, private_too)
        .await?;
    let broken = |error: hyper::Error| format!("it broke off: {error}");
    let (mut sender, connection) = http1::Builder::new()
        .max_buf_size(HEAD_LIMIT)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(broken)?;
    // Ends with this function, whatever the endpoint still has to say.
    let _connection = AbortOnDropHandle::new(tokio::spawn(connection));
    let response = sender.send_request(request).await.map_err(broken)?;
    Ok(judge(response).await)
}

async fn judge(response: Response<Incoming>) -> Outcome {
    let (head, body) = response.into_parts();
    let status = head.status.as_u16();
    match status {
        200..=299 => Outcome::Taken { status },
        GONE => Outcome::Gone,
        300..=399 => Outcome::Failed {
            status: Some(status),
            why: format!("it answered {status}; redirects are not followed"),
            retry_after_ms: None,
        },
        _ => {
            let said = beginning(body).await;
            let why = if said.is_empty() {
                format!("it answered {status}")
            } else {
                format!("it answered {status}: {said}")
            };
            Outcome::Failed {
                status: Some(status),
                why,
                retry_after_ms: retry_after(&head.headers),
            }
        }
    }
}

/// How the body of an answer begins, as one line of text.
async fn beginning(mut body: Incoming) -> String {
    let mut read = Vec::new();
    let all = async {
        while let Some(Ok(frame)) = body.frame().await {
            if let Ok(data) = frame.into_data() {
                let room = BODY_LIMIT - read.len();
                read.extend(data.into_iter().take(room));
            }
            if read.len() >= BODY_LIMIT {
                return;
            }
        }
    };
    // What came in time is enough.
    let _ = tokio::time::timeout(BODY_WAIT, all).await;
    let text = String::from_utf8_lossy(&read);
    let words: Vec<&str> = text
        .split(|c: char| c.is_whitespace() || c.is_control())
        .filter(|word| !word.is_empty())
        .collect();
    cut(&words.join(" "), SHOWN)
}

/// `Retry-After`, in seconds or as a date by the machine's clock.
fn retry_after(headers: &HeaderMap) -> Option<Ms> {
    let value = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(sec) = value.parse::<u32>() {
        return Some(Ms::from(sec) * SEC);
    }
    let date = jiff::fmt::rfc2822::parse(value).ok()?;
    Some(date.timestamp().as_millisecond() - machine_now().0)
}

#[cfg(test)]
mod tests;
