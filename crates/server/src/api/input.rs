//! Reading requests strictly: JSON bodies, and queries. Owns the words for input that cannot be read; what a
//! value may be is said in [`crate::commands::check`].

use std::marker::PhantomData;
use std::time::Duration;

use axum::extract::{FromRequest, FromRequestParts, Query as UriQuery, Request};
use axum::http::request::Parts;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::App;
use super::operations::{Param, Query, Takes};
use crate::commands::check::{takes, unfit};
use crate::commands::{Kind, Trouble};
use crate::store::cut;

/// The largest body, in bytes.
const BODY_LIMIT: usize = 8 * 1024 * 1024;
/// How long it may take to arrive.
const BODY_WAIT: Duration = Duration::from_secs(60);

/// A JSON body of which every field is known. An empty body reads as `{}`.
pub(super) struct Body<T>(pub(super) T);

impl<T: DeserializeOwned> FromRequest<App> for Body<T> {
    type Rejection = Trouble;

    async fn from_request(request: Request, _: &App) -> Result<Self, Trouble> {
        let bytes = read_whole(request.into_body(), BODY_WAIT, BODY_LIMIT).await?;
        let json: &[u8] = if bytes.trim_ascii().is_empty() {
            b"{}"
        } else {
            &bytes
        };
        parse(json).map(Self)
    }
}

/// A body that is text.
pub(super) struct Text(pub(super) String);

impl FromRequest<App> for Text {
    type Rejection = Trouble;

    async fn from_request(request: Request, _: &App) -> Result<Self, Trouble> {
        let bytes = read_whole(request.into_body(), BODY_WAIT, BODY_LIMIT).await?;
        let text = String::from_utf8(bytes.into());
        let text = text.map_err(|_| Trouble::new(Kind::BadRequest, "the body must be UTF-8 text"));
        text.map(Self)
    }
}

/// All of a body that is not larger, and not slower.
pub(super) async fn read_whole(
    body: axum::body::Body,
    wait: Duration,
    most: usize,
) -> Result<axum::body::Bytes, Trouble> {
    let bytes = axum::body::to_bytes(body, most);
    let bytes = tokio::time::timeout(wait, bytes).await.map_err(|_| {
        let limit = wait.as_secs();
        let text = format!("the body must arrive whole within {limit} s");
        Trouble::new(Kind::TooSlow, text)
    })?;
    bytes.map_err(|_| {
        Trouble::new(
            Kind::TooLarge,
            format!("the body must be at most {most} bytes, and arrive whole"),
        )
    })
}

/// Reads JSON of which every field is known.
pub(super) fn parse<T: DeserializeOwned>(json: &[u8]) -> Result<T, Trouble> {
    // Lists would fill the fields in their order, which nobody means.
    let is_list = json.trim_ascii_start().starts_with(b"[");
    if is_list && serde_json::from_slice::<serde::de::IgnoredAny>(json).is_ok() {
        return Err(explain(".", &serde::de::Error::custom("a list")));
    }
    let mut reader = serde_json::Deserializer::from_slice(json);
    let value = serde_path_to_error::deserialize(&mut reader).map_err(|error| {
        let path = error.path().to_string();
        explain(&path, error.inner())
    })?;
    reader.end().map_err(|error| explain(".", &error))?;
    Ok(value)
}

/// The arguments of a tool, of which every one is known.
pub(super) fn arguments<T: DeserializeOwned>(given: Map<String, Value>) -> Result<T, Trouble> {
    serde_path_to_error::deserialize(Value::Object(given)).map_err(|error| {
        let path = error.path().to_string();
        explain(&path, error.inner())
    })
}

/// How much is said of what was sent, in characters.
const SAID: usize = 300;

/// Says which field is wrong and what it takes.
fn explain(path: &str, error: &serde_json::Error) -> Trouble {
    let said = error.to_string();
    // The position says nothing to somebody whose client made the JSON.
    let said = said.split(" at line ").next().unwrap_or(&said);
    // It quotes what was sent, however much that was.
    let said = &*cut(said, SAID);
    if error.is_syntax() || error.is_eof() {
        return Trouble::new(Kind::BadRequest, format!("the body is not JSON: {error}"));
    }
    if let Some(rest) = said.strip_prefix("unknown field `") {
        let (field, known) = rest.split_once('`').unwrap_or((rest, ""));
        let known = known
            .trim_start_matches(", expected one of ")
            .trim_start_matches(", expected ")
            .trim_start_matches(", there are no fields");
        let known = if known.is_empty() { "none" } else { known };
        return Trouble::new(
            Kind::BadRequest,
            format!("there is no field `{field}`; known here: {known}"),
        )
        .with("field", field);
    }
    if let Some(rest) = said.strip_prefix("missing field `") {
        let field = rest.trim_end_matches('`');
        let what = takes(field).unwrap_or("given");
        let text = format!("`{field}` is required: {what}");
        return Trouble::new(Kind::BadRequest, text).with("field", field);
    }
    if path == "." {
        return Trouble::new(Kind::BadRequest, "the body must be a JSON object");
    }
    match takes(path) {
        Some(what) => Trouble::bad(path, format!("{what} ({said})")),
        None => Trouble::new(Kind::BadRequest, format!("`{path}` does not fit: {said}"))
            .with("field", path),
    }
}

/// The query of a request, read once; every name has to be one that `Q` knows.
pub(super) struct Params<Q>(Vec<(String, String)>, PhantomData<Q>);

impl<Q: Query> FromRequestParts<App> for Params<Q> {
    type Rejection = Trouble;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Trouble> {
        let query = UriQuery::<Vec<(String, String)>>::from_request_parts(parts, app).await;
        let query = query.map_err(|error| {
            Trouble::new(
                Kind::BadRequest,
                format!("the query cannot be read: {error}"),
            )
        })?;
        let known = |name: &str| Q::PARAMS.iter().any(|param| param.name == name);
        match query.0.iter().find(|(name, _)| !known(name)) {
            Some((stranger, _)) => Err(no_parameter(stranger, Q::PARAMS)),
            None => Ok(Self(query.0, PhantomData)),
        }
    }
}

/// Says which parameters there are instead of this one.
fn no_parameter(stranger: &str, known: &[Param]) -> Trouble {
    let known: Vec<&str> = known.iter().map(|param| param.name).collect();
    let known = if known.is_empty() {
        "none".to_owned()
    } else {
        format!("`{}`", known.join("`, `"))
    };
    let text = format!("there is no query parameter `{stranger}`; known here: {known}");
    Trouble::new(Kind::BadRequest, text).with("field", stranger)
}

impl<Q: Query> Params<Q> {
    /// A value, if it was given.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        debug_assert!(
            takes_of::<Q>(name).is_some(),
            "`{name}` is not in the table"
        );
        let mut given = self.0.iter().rev();
        given
            .find(|(other, _)| other == name)
            .map(|(_, value)| &**value)
    }

    /// The same, as a text of its own.
    pub(super) fn owned(&self, name: &str) -> Option<String> {
        self.get(name).map(str::to_owned)
    }

    /// A value that may not be left out.
    pub(super) fn required(&self, name: &str) -> Result<&str, Trouble> {
        self.get(name).ok_or_else(|| {
            let text = format!("the query parameter `{name}` is required");
            Trouble::new(Kind::BadRequest, text).with("field", name)
        })
    }

    /// Yes or no.
    pub(super) fn flag(&self, name: &str) -> Result<bool, Trouble> {
        match self.get(name) {
            None | Some("0" | "false") => Ok(false),
            Some("1" | "true" | "") => Ok(true),
            Some(_) => Err(unfit(name)),
        }
    }

    /// A whole number, in the range that the table says.
    pub(super) fn number(&self, name: &str) -> Result<Option<u64>, Trouble> {
        let Some(given) = self.get(name) else {
            return Ok(None);
        };
        let given = given.parse().ok();
        match takes_of::<Q>(name) {
            Some(Takes::Number { least, most }) => {
                let fits = given.filter(|given| (least..=most).contains(given));
                let unit = if name.ends_with("Sec") {
                    " (seconds)"
                } else {
                    ""
                };
                let limit = || format!("a whole number from {least} to {most}{unit}");
                fits.map(Some).ok_or_else(|| Trouble::bad(name, limit()))
            }
            Some(Takes::Count | Takes::Flag | Takes::Text | Takes::Word(_)) | None => {
                let fits = given.filter(|given| i64::try_from(*given).is_ok());
                fits.map(Some).ok_or_else(|| unfit(name))
            }
        }
    }
}

fn takes_of<Q: Query>(name: &str) -> Option<Takes> {
    let known = Q::PARAMS.iter().find(|param| param.name == name);
    known.map(|param| param.takes)
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use futures_util::{StreamExt as _, stream};

    use super::*;

    #[tokio::test]
    async fn a_body_that_never_comes_whole_is_not_waited_for() {
        let beginning = stream::iter([Ok::<_, std::io::Error>("{\"cmd\": ")]);
        let body = Body::from_stream(beginning.chain(stream::pending()));
        let slow = read_whole(body, Duration::from_millis(20), BODY_LIMIT)
            .await
            .unwrap_err();
        assert_eq!(slow.kind, Kind::TooSlow);
        let whole = read_whole(Body::from("{}"), BODY_WAIT, BODY_LIMIT)
            .await
            .unwrap();
        assert_eq!(&whole[..], b"{}");
    }
}
