//! Reading this dialect's requests: the key, JSON bodies, ids and times. Fields that are not known are passed over, as its
//! clients expect; the ones that are known have to fit.

use axum::body::Bytes;
use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::request::Parts;
use icebox_lifecycle::time::{DAY, SEC};
use icebox_lifecycle::{BoxId, Ms};
use serde::de::DeserializeOwned;
use sha2::{Digest as _, Sha256};
use std::sync::Arc;
use std::time::Duration;

use super::super::App;
use super::error::Failure;
use crate::commands::{Caller, Kind, OnceKey, Trouble};
use crate::engine::View;

/// The largest body, in bytes.
const BODY_LIMIT: usize = 1024 * 1024;
/// How long it may take to arrive.
const BODY_WAIT: Duration = Duration::from_secs(60);
/// The latest end a box may get, from now.
const TIMEOUT_MAX_SEC: i64 = 30 * DAY / SEC;
pub(super) const KEY_HEADER: &str = "x-api-key";
/// Under which key of its own a client asks for something once.
const IDEMPOTENCY_KEY: &str = "idempotency-key";

/// Who asks, by the key in `X-API-Key`.
pub(super) struct Client(pub(super) Caller);

impl FromRequestParts<App> for Client {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Failure> {
        let header = parts.headers.get(KEY_HEADER);
        let key = header.and_then(|value| value.to_str().ok());
        match key.and_then(|key| app.keys.holder(key.trim())) {
            Some(holder) => Ok(Self(Caller {
                account: holder.account,
                agent: None,
            })),
            None => Err(Trouble::new(
                Kind::Unauthorized,
                "no valid API key: send one as `X-API-Key`",
            )
            .into()),
        }
    }
}

/// A JSON body; an empty one reads as `{}`.
pub(super) struct Body<T>(pub(super) T);

impl<T: DeserializeOwned> FromRequest<App> for Body<T> {
    type Rejection = Failure;

    async fn from_request(request: Request, _: &App) -> Result<Self, Failure> {
        parse(&whole(request).await?).map(Self)
    }
}

/// A JSON body, and under which key of the client's it is asked for, if under any.
pub(super) struct Keyed<T> {
    pub(super) body: T,
    pub(super) key: Option<OnceKey>,
}

impl<T: DeserializeOwned> FromRequest<App> for Keyed<T> {
    type Rejection = Failure;

    async fn from_request(request: Request, app: &App) -> Result<Self, Failure> {
        let (mut parts, body) = request.into_parts();
        let client = Client::from_request_parts(&mut parts, app).await?;
        let bytes = whole(Request::from_parts(parts.clone(), body)).await?;
        let key = parts.headers.get(IDEMPOTENCY_KEY).map(|key| {
            let asked = Sha256::digest(&bytes).into();
            OnceKey::new(client.0.account, key.to_str().unwrap_or_default(), asked)
        });
        Ok(Self {
            body: parse(&bytes)?,
            key: key.transpose()?,
        })
    }
}

async fn whole(request: Request) -> Result<Bytes, Failure> {
    let bytes = axum::body::to_bytes(request.into_body(), BODY_LIMIT);
    let bytes = tokio::time::timeout(BODY_WAIT, bytes).await.map_err(|_| {
        let limit = BODY_WAIT.as_secs();
        let text = format!("the body must arrive whole within {limit} s");
        Trouble::new(Kind::TooSlow, text)
    })?;
    bytes.map_err(|_| {
        let text = format!("the body must be at most {BODY_LIMIT} bytes, and arrive whole");
        Trouble::new(Kind::TooLarge, text).into()
    })
}

fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Failure> {
    let json: &[u8] = if bytes.trim_ascii().is_empty() {
        b"{}"
    } else {
        bytes
    };
    let mut reader = serde_json::Deserializer::from_slice(json);
    let read = serde_path_to_error::deserialize(&mut reader);
    read.map_err(|error| {
        let path = error.path().to_string();
        let what = error.into_inner();
        let text = match path.as_str() {
            "." => format!("the body does not fit: {what}"),
            path => format!("`{path}` does not fit: {what}"),
        };
        Trouble::new(Kind::BadRequest, text).into()
    })
}

/// The id in a path or header, which may have the id of a client behind it.
pub(super) fn box_id(text: &str) -> Option<BoxId> {
    BoxId::parse(text.split('-').next().unwrap_or(text))
}

/// The caller's live box of that id.
pub(super) fn find(app: &App, client: &Client, id: &str) -> Result<Arc<View>, Failure> {
    let own = id.split('-').next().unwrap_or(id);
    let found = app.commands.find(&client.0, own);
    match found {
        Ok(view) if view.sandbox.is_live() => Ok(view),
        Ok(_) | Err(_) => Err(not_found(id)),
    }
}

/// No such box, or not any more.
pub(super) fn not_found(id: &str) -> Failure {
    Trouble::new(Kind::NotFound, format!("sandbox \"{id}\" was not found")).into()
}

/// A time to live, in seconds from now.
pub(super) fn timeout_ms(field: &str, sec: i64, least_sec: i64) -> Result<Ms, Failure> {
    if (least_sec..=TIMEOUT_MAX_SEC).contains(&sec) {
        Ok(sec * SEC)
    } else {
        let limit = format!("{least_sec} to {TIMEOUT_MAX_SEC} (seconds)");
        Err(Trouble::bad(field, limit).into())
    }
}
