//! Who may call, and as whom a call acts.
//!
//! The port is only reachable through the server, which lets in whom it knows. A box of the E2B dialect has a token as
//! well, which its clients send, or use to sign links to files with. boxd's own service is the server's: it asks for no
//! token, and refuses whatever a client of the dialect had passed on.

use std::collections::HashMap;
use std::sync::Arc;

use axum::extract::{Query, Request, State};
use axum::http::{HeaderMap, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD as BASE64, STANDARD_NO_PAD};
use connectrpc::{ConnectError, RequestContext};
use sha2::{Digest as _, Sha256};

use crate::clock;
use crate::settings::Settings;
use crate::users::User;

/// Where boxd's own service and its trees of files are.
const OWN: [&str; 2] = ["/icebox.boxd.v1.Boxd/", "/icebox/"];

/// In every request that a client of the E2B dialect sends to a box.
const BOX_HEADER: &str = "e2b-sandbox-id";

/// Carries the token.
const TOKEN_HEADER: &str = "x-access-token";

/// Lets a request through or refuses it.
pub(crate) async fn guard(
    State(settings): State<Arc<Settings>>,
    request: Request,
    next: Next,
) -> Response {
    let path = request.uri().path();
    if OWN.iter().any(|own| path.starts_with(own)) {
        if request.headers().contains_key(BOX_HEADER) {
            let words = "this service is not for clients of the box";
            return refuse_call(StatusCode::FORBIDDEN, "permission_denied", words);
        }
        return next.run(request).await;
    }
    let token = &settings.now().access_token;
    if token.is_empty() || path == "/health" || has_token(request.headers(), token) {
        return next.run(request).await;
    }
    let refused = match path {
        "/files" => signed(&request, token).err(),
        _ => Some("the access token is missing or not this box's"),
    };
    match refused {
        None => next.run(request).await,
        Some(words) if path.starts_with("/files") => {
            crate::files::refuse(StatusCode::UNAUTHORIZED, words)
        }
        Some(words) => refuse_call(StatusCode::UNAUTHORIZED, "unauthenticated", words),
    }
}

/// A refusal as clients of the services read it.
pub(crate) fn refuse_call(status: StatusCode, code: &str, words: &str) -> Response {
    let body = serde_json::json!({ "code": code, "message": words });
    (status, axum::Json(body)).into_response()
}

fn has_token(headers: &HeaderMap, token: &str) -> bool {
    headers
        .get(TOKEN_HEADER)
        .is_some_and(|sent| same(sent.as_bytes(), token.as_bytes()))
}

/// Compares in a time that says nothing about where the two differ.
fn same(sent: &[u8], known: &[u8]) -> bool {
    let digest = |bytes: &[u8]| Sha256::digest(bytes);
    digest(sent)
        .iter()
        .zip(digest(known))
        .fold(0, |differing, (a, b)| differing | (a ^ b))
        == 0
}

/// Whether the link to a file was signed with the token, for this use of it, and still holds.
fn signed(request: &Request, token: &str) -> Result<(), &'static str> {
    let query = Query::<HashMap<String, String>>::try_from_uri(request.uri());
    let Query(query) = query.map_err(|_| "the query cannot be read")?;
    let of = |name: &str| query.get(name).map_or("", String::as_str);
    let sent = query
        .get("signature")
        .ok_or("the access token is missing or not this box's, and the link is not signed")?;
    let operation = match *request.method() {
        Method::GET | Method::HEAD => "read",
        _ => "write",
    };
    let expiration = query.get("signature_expiration").map(String::as_str);
    let signature = signature(of("path"), operation, of("username"), token, expiration);
    if !same(sent.as_bytes(), signature.as_bytes()) {
        return Err("invalid signature");
    }
    let Some(expiration) = expiration else {
        return Ok(());
    };
    let expiration: i64 = expiration.parse().map_err(|_| "invalid signature")?;
    if clock::unix_ms() / 1000 > expiration {
        return Err("signature is already expired");
    }
    Ok(())
}

fn signature(
    path: &str,
    operation: &str,
    user: &str,
    token: &str,
    expiration: Option<&str>,
) -> String {
    let mut text = format!("{path}:{operation}:{user}:{token}");
    if let Some(expiration) = expiration {
        text = format!("{text}:{expiration}");
    }
    format!("v1_{}", STANDARD_NO_PAD.encode(Sha256::digest(text)))
}

/// The user named by `Authorization: Basic base64("<user>:")`, the settings' default otherwise.
pub(crate) fn acting_user(ctx: &RequestContext, settings: &Settings) -> Result<User, ConnectError> {
    let name = match ctx.header("authorization") {
        None => None,
        Some(header) => {
            let name = header.to_str().ok().and_then(basic_user);
            let refused = "authorization must be Basic with a user name";
            Some(name.ok_or_else(|| ConnectError::unauthenticated(refused))?)
        }
    };
    let user = settings.now().user(name.as_deref());
    user.map_err(|error| ConnectError::unauthenticated(error.to_string()))
}

fn basic_user(header: &str) -> Option<String> {
    let (scheme, encoded) = header.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let decoded = String::from_utf8(BASE64.decode(encoded.trim()).ok()?).ok()?;
    Some(decoded.split(':').next()?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_basic_header_names_a_user() {
        assert_eq!(basic_user("Basic dXNlcjo="), Some("user".to_owned()));
        assert_eq!(basic_user("basic dXNlcg=="), Some("user".to_owned()));
        for header in ["Bearer dXNlcjo=", "Basic", "Basic !", "Basic /w=="] {
            assert_eq!(basic_user(header), None, "{header}");
        }
    }

    /// The digests were made with another program.
    #[test]
    fn signatures_are_those_of_the_clients() {
        assert_eq!(
            signature("a.txt", "read", "", "secret", None),
            "v1_SfWJHbXY99JC+ykKjWo0lq7bU479AzrT7YKGB2EKKss"
        );
        assert_eq!(
            signature("/x", "write", "user", "secret", Some("1700000000")),
            "v1_eFYylADX6YqQK5Bm5/JiUm56hF7NvsqeXUiVG5ohoj4"
        );
    }
}
