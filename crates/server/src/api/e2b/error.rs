//! The only file with status codes of the E2B dialect: which one goes with which kind of trouble, and how an error looks
//! to its clients.

use axum::Json;
use axum::http::header::{HeaderName, HeaderValue, RETRY_AFTER};
use axum::http::{Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use crate::commands::{Kind, Trouble};

/// The answer to a request that made something, or woke a box.
pub(super) const CREATED: StatusCode = StatusCode::CREATED;
/// The answer to a request that found a box running.
pub(super) const FOUND: StatusCode = StatusCode::OK;
/// Clients with this header and `false` do not try again.
const SHOULD_RETRY: HeaderName = HeaderName::from_static("should-retry");

/// The answer to a request that only did something.
pub(super) struct Done;

impl IntoResponse for Done {
    fn into_response(self) -> Response {
        StatusCode::NO_CONTENT.into_response()
    }
}

/// Trouble, as this dialect says it.
pub(super) struct Failure(Trouble);

impl From<Trouble> for Failure {
    fn from(trouble: Trouble) -> Self {
        Self(trouble)
    }
}

/// The status of each kind of trouble, and whether the same request may go better later.
fn on_the_wire(kind: Kind) -> (StatusCode, bool) {
    match kind {
        Kind::BadRequest => (StatusCode::BAD_REQUEST, false),
        Kind::Unauthorized => (StatusCode::UNAUTHORIZED, false),
        Kind::Forbidden => (StatusCode::FORBIDDEN, false),
        Kind::TooSlow => (StatusCode::REQUEST_TIMEOUT, false),
        Kind::NoCredits => (StatusCode::PAYMENT_REQUIRED, false),
        // A box that is not there any more never comes back here.
        Kind::NotFound | Kind::BoxGone | Kind::Interrupted | Kind::EventsGone => {
            (StatusCode::NOT_FOUND, false)
        }
        Kind::TakenOver
        | Kind::InUse
        | Kind::LifetimeOver
        | Kind::Paused
        | Kind::SnapshotFailed
        | Kind::TooMany
        | Kind::NotReady => (StatusCode::CONFLICT, false),
        Kind::NoCapacity | Kind::WakeFailed | Kind::FreezeFailed => {
            (StatusCode::SERVICE_UNAVAILABLE, true)
        }
        Kind::StartFailed | Kind::Internal => (StatusCode::INTERNAL_SERVER_ERROR, false),
        Kind::TooLarge => (StatusCode::PAYLOAD_TOO_LARGE, false),
        Kind::Busy => (StatusCode::TOO_MANY_REQUESTS, true),
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let Self(trouble) = self;
        let (status, retry) = on_the_wire(trouble.kind);
        let mut response = error(status, &trouble.text);
        if let Some(sec) = trouble.retry_after_sec {
            response.headers_mut().insert(RETRY_AFTER, sec.into());
        }
        if retry {
            response.headers_mut().remove(SHOULD_RETRY);
        }
        response
    }
}

/// Trouble inside an answer that is none itself.
pub(super) fn body(trouble: &Trouble) -> Value {
    let (status, _) = on_the_wire(trouble.kind);
    json!({"code": status.as_u16(), "message": trouble.text})
}

/// An error that stays one.
fn error(status: StatusCode, message: &str) -> Response {
    let body = json!({"code": status.as_u16(), "message": message});
    definite(status, body)
}

fn definite(status: StatusCode, body: Value) -> Response {
    let mut response = (status, Json(body)).into_response();
    let headers = response.headers_mut();
    headers.insert(SHOULD_RETRY, HeaderValue::from_static("false"));
    response
}

/// The daemon has nothing there for clients.
pub(super) fn no_such_path(path: &str) -> Response {
    error(
        StatusCode::NOT_FOUND,
        &format!("there is nothing at {path}"),
    )
}

/// What this server does not do yet.
pub(super) async fn not_yet(method: Method, uri: Uri) -> Response {
    let text = format!(
        "{method} {} is not implemented by this server yet",
        uri.path()
    );
    error(StatusCode::NOT_IMPLEMENTED, &text)
}

/// A part of a request that this server does not do yet.
pub(super) fn cannot_yet(what: &str) -> Response {
    let text = format!("{what}: not implemented by this server yet");
    error(StatusCode::NOT_IMPLEMENTED, &text)
}

/// A request to a box that does not fit.
pub(super) fn bad_traffic(message: &str) -> Response {
    error(StatusCode::BAD_REQUEST, message)
}

/// Traffic without the token that the box's ports ask for.
pub(super) fn forbidden(id: &str, message: &str) -> Response {
    let status = StatusCode::FORBIDDEN;
    let body = json!({"sandboxId": id, "message": message, "code": status.as_u16()});
    definite(status, body)
}

/// A box that traffic does not reach. Clients read the words.
pub(super) fn unreachable(id: &str, message: &str) -> Response {
    let status = StatusCode::BAD_GATEWAY;
    let body = json!({"sandboxId": id, "message": message, "code": status.as_u16()});
    definite(status, body)
}
