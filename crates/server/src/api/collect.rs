//! What apps send, and the script with which pages do: the only paths that pages of other origins may use. Owns what browsers
//! have to be told for that; who may send is said in [`crate::logs`].

use std::sync::LazyLock;

use axum::extract::{Request, State};
use axum::http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_MAX_AGE, AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE, ETAG, IF_NONE_MATCH,
    ORIGIN, VARY, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use axum::response::{IntoResponse, Response};
use axum::{Json, body};
use icebox_wire::rest::{LogBatch, LogsTaken};
use sha2::{Digest as _, Sha256};

use super::input::{Params, parse, read_whole};
use super::operations::{Answer, Answers, Like, Param, Query};
use super::{App, error};
use crate::commands::{Kind, Trouble};
use crate::logs::{BODY_LIMIT, COLLECTOR, Sender};

/// How long a batch may take to arrive.
const BODY_WAIT: std::time::Duration = std::time::Duration::from_secs(15);
/// A page asks whether it may at most as often.
const ASK_AGAIN_SEC: &str = "600";

/// Same bytes, same mark.
static TAG: LazyLock<String> = LazyLock::new(|| {
    let hash = Sha256::digest(COLLECTOR);
    let first = hash.iter().take(8);
    let hex: Vec<String> = first.map(|byte| format!("{byte:02x}")).collect();
    format!("\"{}\"", hex.concat())
});

/// What may be in the query of what apps send.
pub(super) struct WithKey;

impl Query for WithKey {
    const PARAMS: &'static [Param] = &[Param::text(
        "key",
        "The write key, unless it is in `Authorization` or in the body.",
    )];
}

/// The answer to a page that asks whether it may send.
pub(super) struct Preflight;

impl Answers for Preflight {
    fn forms() -> Vec<Answer> {
        let about = "The page may send if the headers for that are there.";
        vec![Answer::nothing(error::NO_CONTENT.as_u16()).about(about)]
    }
}

/// The collector, for any page.
pub(super) async fn script(headers: HeaderMap) -> Response {
    let known = headers.get(IF_NONE_MATCH);
    let is_known = known.is_some_and(|known| known.as_bytes() == TAG.as_bytes());
    let mut response = if is_known {
        error::NOT_MODIFIED.into_response()
    } else {
        COLLECTOR.into_response()
    };
    let set = [
        (CONTENT_TYPE, "text/javascript; charset=utf-8"),
        (CACHE_CONTROL, "public, max-age=300"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (ACCESS_CONTROL_ALLOW_ORIGIN, "*"),
        (
            HeaderName::from_static("cross-origin-resource-policy"),
            "cross-origin",
        ),
    ];
    for (name, value) in set {
        response
            .headers_mut()
            .insert(name, HeaderValue::from_static(value));
    }
    if let Ok(tag) = HeaderValue::from_str(&TAG) {
        response.headers_mut().insert(ETAG, tag);
    }
    response
}

/// A page asks whether it may send something that is not plain text.
pub(super) async fn preflight(
    State(app): State<App>,
    params: Params<WithKey>,
    headers: HeaderMap,
) -> Like<Preflight> {
    let sender = sender(&headers, Some(&params));
    let mut response = error::NO_CONTENT.into_response();
    if app.logs.may_see(&sender) {
        let set = [
            (ACCESS_CONTROL_ALLOW_METHODS, "POST"),
            (ACCESS_CONTROL_ALLOW_HEADERS, "authorization, content-type"),
            (ACCESS_CONTROL_MAX_AGE, ASK_AGAIN_SEC),
        ];
        for (name, value) in set {
            response
                .headers_mut()
                .insert(name, HeaderValue::from_static(value));
        }
        for_page(&mut response, &headers);
    }
    Like::new(response)
}

/// Takes a batch in, whatever the sender calls its type: pages that close can send plain text only.
pub(super) async fn take(
    State(app): State<App>,
    params: Result<Params<WithKey>, Trouble>,
    headers: HeaderMap,
    request: Request,
) -> Like<Json<LogsTaken>> {
    let mut sender = sender(&headers, params.as_ref().ok());
    let taken = match params {
        Ok(_) => taken(&app, &mut sender, request.into_body()).await,
        Err(trouble) => Err(trouble),
    };
    let mut response = taken.map(Json).into_response();
    if app.logs.may_see(&sender) {
        for_page(&mut response, &headers);
    }
    Like::new(response)
}

async fn taken(app: &App, sender: &mut Sender, body: body::Body) -> Result<LogsTaken, Trouble> {
    let body = read_whole(body, BODY_WAIT, BODY_LIMIT).await?;
    if body.trim_ascii().is_empty() {
        let text = "the body must be a JSON object with `events`";
        return Err(Trouble::new(Kind::BadRequest, text));
    }
    let batch: LogBatch = parse(&body)?;
    sender.key = sender.key.take().or_else(|| batch.key.clone());
    app.logs.take(sender, batch, body.len()).await
}

/// Who sends, as far as it is said outside the body.
fn sender(headers: &HeaderMap, params: Option<&Params<WithKey>>) -> Sender {
    let text = |name: &HeaderName| {
        headers
            .get(name)
            .map(|value| value.to_str().unwrap_or_default())
    };
    let bearer = text(&AUTHORIZATION).map(|value| {
        let (scheme, key) = value.split_once(' ').unwrap_or_default();
        let is_bearer = scheme.eq_ignore_ascii_case("bearer");
        if is_bearer { key.trim() } else { "" }
    });
    Sender {
        key: bearer
            .or_else(|| params.and_then(|params| params.get("key")))
            .map(str::to_owned),
        origin: text(&ORIGIN).map(str::to_owned),
    }
}

/// Lets the page that asked read the answer.
fn for_page(response: &mut Response, headers: &HeaderMap) {
    if let Some(origin) = headers.get(ORIGIN) {
        let set = response.headers_mut();
        set.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
        set.insert(VARY, HeaderValue::from_static("origin"));
    }
}
