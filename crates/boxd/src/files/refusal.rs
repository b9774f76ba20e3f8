//! Errors of plain HTTP: a status and the JSON object that E2B's clients read.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use connectrpc::ErrorCode;

use crate::error::Error;

/// The answer to a call that failed with `error`.
pub(crate) fn refusal(error: &Error) -> Response {
    refuse(status(error), &error.words())
}

/// An answer with these words.
pub(crate) fn refuse(status: StatusCode, words: &str) -> Response {
    let body = serde_json::json!({ "code": status.as_u16(), "message": words });
    (status, Json(body)).into_response()
}

fn status(error: &Error) -> StatusCode {
    match error {
        Error::NoUser(_) => return StatusCode::UNAUTHORIZED,
        Error::File { source, .. }
            if matches!(source.raw_os_error(), Some(libc::ENOSPC | libc::EDQUOT)) =>
        {
            return StatusCode::INSUFFICIENT_STORAGE;
        }
        _ => {}
    }
    match error.code() {
        ErrorCode::InvalidArgument => StatusCode::BAD_REQUEST,
        ErrorCode::PermissionDenied => StatusCode::FORBIDDEN,
        ErrorCode::NotFound => StatusCode::NOT_FOUND,
        ErrorCode::AlreadyExists | ErrorCode::FailedPrecondition => StatusCode::CONFLICT,
        ErrorCode::ResourceExhausted => StatusCode::TOO_MANY_REQUESTS,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}
