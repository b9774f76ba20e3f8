//! The only file with status codes: which one goes with which kind of trouble, and how an error looks on the wire.

use axum::Json;
use axum::http::header::{HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use icebox_wire::rest::ErrorBody;

use super::e2b;
use crate::commands::{Kind, Trouble};

/// All went well.
pub(super) const OK: u16 = StatusCode::OK.as_u16();
/// The connection goes on in another protocol.
pub(super) const SWITCHING: u16 = StatusCode::SWITCHING_PROTOCOLS.as_u16();
/// The answer to a request that made something.
pub(super) const CREATED: StatusCode = StatusCode::CREATED;
/// There is nothing to say but in the head.
pub(super) const NO_CONTENT: StatusCode = StatusCode::NO_CONTENT;
/// What the client has is what there is.
pub(super) const NOT_MODIFIED: StatusCode = StatusCode::NOT_MODIFIED;
/// The server is not able to work.
pub(super) const NOT_READY: StatusCode = StatusCode::SERVICE_UNAVAILABLE;

/// The status and the machine's word for each kind of trouble.
fn on_the_wire(kind: Kind) -> (StatusCode, &'static str) {
    match kind {
        Kind::BadRequest => (StatusCode::BAD_REQUEST, "bad_request"),
        Kind::Unauthorized => (StatusCode::UNAUTHORIZED, "unauthorized"),
        Kind::NoCredits => (StatusCode::PAYMENT_REQUIRED, "no_credits"),
        Kind::Forbidden => (StatusCode::FORBIDDEN, "forbidden"),
        Kind::NotFound => (StatusCode::NOT_FOUND, "not_found"),
        Kind::TakenOver => (StatusCode::LOCKED, "taken_over"),
        Kind::BoxGone => (StatusCode::GONE, "box_gone"),
        Kind::Interrupted => (StatusCode::CONFLICT, "interrupted"),
        Kind::EventsGone => (StatusCode::GONE, "events_gone"),
        Kind::InUse => (StatusCode::CONFLICT, "in_use"),
        Kind::LifetimeOver => (StatusCode::CONFLICT, "lifetime_over"),
        Kind::Paused => (StatusCode::CONFLICT, "paused"),
        Kind::NoCapacity => (StatusCode::SERVICE_UNAVAILABLE, "no_capacity"),
        Kind::WakeFailed => (StatusCode::SERVICE_UNAVAILABLE, "wake_failed"),
        Kind::FreezeFailed => (StatusCode::SERVICE_UNAVAILABLE, "freeze_failed"),
        Kind::RenewFailed => (StatusCode::CONFLICT, "renew_failed"),
        Kind::EgressFailed => (StatusCode::SERVICE_UNAVAILABLE, "egress_failed"),
        Kind::NotReady => (StatusCode::CONFLICT, "not_ready"),
        Kind::SnapshotFailed => (StatusCode::CONFLICT, "snapshot_failed"),
        Kind::StartFailed => (StatusCode::INTERNAL_SERVER_ERROR, "start_failed"),
        Kind::TooLarge => (StatusCode::PAYLOAD_TOO_LARGE, "too_large"),
        Kind::TooSlow => (StatusCode::REQUEST_TIMEOUT, "too_slow"),
        Kind::TooMany => (StatusCode::CONFLICT, "too_many"),
        Kind::KeyReused => (StatusCode::UNPROCESSABLE_ENTITY, "key_reused"),
        Kind::UnderWay => (StatusCode::CONFLICT, "under_way"),
        Kind::Busy => (StatusCode::TOO_MANY_REQUESTS, "busy"),
        Kind::Internal => (StatusCode::INTERNAL_SERVER_ERROR, "internal"),
    }
}

/// The status for a kind of trouble.
pub(super) fn status(kind: Kind) -> u16 {
    on_the_wire(kind).0.as_u16()
}

/// The machine's word for it.
pub(super) fn code(kind: Kind) -> &'static str {
    on_the_wire(kind).1
}

/// What it means, whatever was asked.
pub(super) fn meaning(kind: Kind) -> &'static str {
    match kind {
        Kind::BadRequest => {
            "The request does not fit; `field` names what, and the sentence the limit."
        }
        Kind::Unauthorized => "No key, or one that is not valid.",
        Kind::NoCredits => "The account is out of credits.",
        Kind::Forbidden => "Who asks may not do that.",
        Kind::NotFound => "There is no such thing in this account.",
        Kind::TakenOver => "A person has the screen, until `until` at the latest.",
        Kind::BoxGone => {
            "The box was stopped; until `restorableUntil`, if that is there, it can be brought back."
        }
        Kind::Interrupted => "The box was lost, or the command with it.",
        Kind::EventsGone => "Events that old are not kept any more.",
        Kind::InUse => "It is being used.",
        Kind::LifetimeOver => "Nothing of the box's lifetime is left.",
        Kind::Paused => "The box is paused.",
        Kind::NoCapacity => "The host is full.",
        Kind::WakeFailed => "The box could not be woken; its copy is whole.",
        Kind::FreezeFailed => "The box could not be frozen; it runs on.",
        Kind::EgressFailed => {
            "What the box may reach outside could not be made; it runs and reaches nothing outside."
        }
        Kind::RenewFailed => "The box's daemon could not be exchanged; all in the box goes on.",
        Kind::NotReady => "The command ended before it was up.",
        Kind::SnapshotFailed => "The snapshot could not be made; the box goes on as before.",
        Kind::StartFailed => "The box could not be started.",
        Kind::TooLarge => "More than fits.",
        Kind::TooSlow => "The body did not arrive in time.",
        Kind::TooMany => "There are as many as there may be.",
        Kind::KeyReused => "The key of the request was another one's.",
        Kind::UnderWay => "The same request is under way.",
        Kind::Busy => "Too much at once.",
        Kind::Internal => "A mistake of the server's; `id` is in its log.",
    }
}

impl IntoResponse for Trouble {
    fn into_response(self) -> Response {
        let (status, code) = on_the_wire(self.kind);
        respond(status, code, self)
    }
}

/// How trouble looks inside an answer whose status line is out already.
pub(super) fn body(trouble: Trouble) -> ErrorBody {
    let (_, code) = on_the_wire(trouble.kind);
    in_words(code, trouble)
}

fn in_words(code: &str, trouble: Trouble) -> ErrorBody {
    ErrorBody {
        error: trouble.text,
        code: code.to_owned(),
        more: trouble.more,
    }
}

fn respond(status: StatusCode, code: &str, trouble: Trouble) -> Response {
    let retry_after_sec = trouble.retry_after_sec;
    let mut response = (status, Json(in_words(code, trouble))).into_response();
    if let Some(sec) = retry_after_sec {
        response.headers_mut().insert(RETRY_AFTER, sec.into());
    }
    if status == StatusCode::UNAUTHORIZED {
        let scheme = HeaderValue::from_static("Bearer");
        response.headers_mut().insert(WWW_AUTHENTICATE, scheme);
    }
    response
}

/// The answer to a path that is none, in the words of the dialect that the client speaks.
pub(super) async fn nowhere(method: Method, uri: Uri, headers: HeaderMap) -> Response {
    match e2b::no_such_call(&method, &uri, &headers) {
        Some(answer) => answer,
        None => no_such_path(method, uri).await,
    }
}

/// The answer to a path that is none.
pub(super) async fn no_such_path(method: Method, uri: Uri) -> Response {
    let text = format!("there is nothing at {method} {}", uri.path());
    Trouble::new(Kind::NotFound, text).into_response()
}

/// The answer to a method that a path does not have.
pub(super) async fn no_such_method(method: Method, uri: Uri, headers: HeaderMap) -> Response {
    if let Some(answer) = e2b::no_such_call(&method, &uri, &headers) {
        return answer;
    }
    let text = format!("{} does not take {method}", uri.path());
    let trouble = Trouble::new(Kind::BadRequest, text);
    respond(StatusCode::METHOD_NOT_ALLOWED, "bad_request", trouble)
}
