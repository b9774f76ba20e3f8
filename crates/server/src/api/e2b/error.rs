//! The only file with status codes of the E2B dialect: which one goes with which kind of trouble, and how an error looks
//! to its clients.

use axum::Json;
use axum::http::header::{HeaderName, HeaderValue, RETRY_AFTER};
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use super::input::KEY_HEADER;
use crate::commands::{Kind, Trouble};

/// The answer to a request that made something, or woke a box.
pub(super) const CREATED: StatusCode = StatusCode::CREATED;
/// The answer to a request that found a box running.
pub(super) const FOUND: StatusCode = StatusCode::OK;
/// Whether clients try again.
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

impl From<Failure> for Trouble {
    fn from(Failure(trouble): Failure) -> Self {
        trouble
    }
}

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
        | Kind::NotReady
        | Kind::RenewFailed => (StatusCode::CONFLICT, false),
        Kind::UnderWay => (StatusCode::CONFLICT, true),
        Kind::KeyReused => (StatusCode::UNPROCESSABLE_ENTITY, false),
        Kind::NoCapacity | Kind::WakeFailed | Kind::FreezeFailed | Kind::EgressFailed => {
            (StatusCode::SERVICE_UNAVAILABLE, true)
        }
        Kind::StartFailed | Kind::Internal => (StatusCode::INTERNAL_SERVER_ERROR, false),
        Kind::TooLarge => (StatusCode::PAYLOAD_TOO_LARGE, false),
        Kind::Busy => (StatusCode::TOO_MANY_REQUESTS, true),
    }
}

/// The machine's word for kinds of trouble that share a status with others, where the clients know one.
const ERROR_CODES: [(Kind, &str); 5] = [
    (Kind::NoCapacity, "sandbox_capacity_unavailable"),
    (Kind::StartFailed, "sandbox_create_failed"),
    (Kind::Internal, "internal_server_error"),
    (Kind::KeyReused, "idempotency_request_mismatch"),
    (Kind::UnderWay, "idempotency_in_progress"),
];

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let Self(trouble) = self;
        let (status, retry) = on_the_wire(trouble.kind);
        let mut response = (status, Json(body(&trouble))).into_response();
        let headers = response.headers_mut();
        if let Some(sec) = trouble.retry_after_sec {
            headers.insert(RETRY_AFTER, sec.into());
        }
        let retry = HeaderValue::from_static(if retry { "true" } else { "false" });
        headers.insert(SHOULD_RETRY, retry);
        response
    }
}

/// Trouble as JSON, which may be inside an answer that is none itself.
pub(super) fn body(trouble: &Trouble) -> Value {
    let (status, _) = on_the_wire(trouble.kind);
    let mut body = json!({"code": status.as_u16(), "message": trouble.text});
    let code = ERROR_CODES.iter().find(|(kind, _)| *kind == trouble.kind);
    if let Some((_, code)) = code {
        body["error_code"] = (*code).into();
    }
    body
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

/// Whether a request that leads nowhere here came from a client of this dialect, and then the answer.
pub(in crate::api) fn no_such_call(
    method: &Method,
    uri: &Uri,
    headers: &HeaderMap,
) -> Option<Response> {
    let text = format!("there is nothing at {method} {}", uri.path());
    let ours = headers.contains_key(KEY_HEADER);
    ours.then(|| error(StatusCode::NOT_FOUND, &text))
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
