//! Lists of boxes: filters, order and pages.

use axum::Json;
use axum::extract::{RawQuery, State};
use axum::http::HeaderMap;
use axum::http::header::{HeaderName, HeaderValue};
use icebox_lifecycle::{BoxId, Time};
use percent_encoding::percent_decode_str;
use serde_json::Value;
use std::sync::Arc;

use super::super::App;
use super::error::Failure;
use super::input::Client;
use super::view;
use crate::commands::{Kind, Trouble};
use crate::engine::View;

/// The most boxes on a page.
pub(super) const PAGE: usize = 100;
pub(super) const NEXT_TOKEN: HeaderName = HeaderName::from_static("x-next-token");
const TOTAL_RUNNING: HeaderName = HeaderName::from_static("x-total-running");

/// What a list is cut down to.
#[derive(Default)]
struct Filter {
    metadata: Vec<(String, String)>,
    running: bool,
    paused: bool,
    started_after: Option<Time>,
    template: Option<String>,
}

/// Where a page begins: after the box that was started then.
type Mark = (i64, BoxId);

/// The query of a list, read.
struct Asked {
    filter: Filter,
    oldest_first: bool,
    limit: usize,
    after: Option<Mark>,
}

/// `GET /sandboxes`: the running ones, all at once.
pub(super) async fn running(
    State(app): State<App>,
    client: Client,
    RawQuery(query): RawQuery,
) -> Result<Json<Vec<Value>>, Failure> {
    let mut asked = read(query.as_deref().unwrap_or_default())?;
    asked.filter.paused = false;
    let boxes = found(&app, &client, &asked.filter);
    Ok(Json(show(&app, &boxes)))
}

/// `GET /v2/sandboxes`: a page.
pub(super) async fn paged(
    State(app): State<App>,
    client: Client,
    RawQuery(query): RawQuery,
) -> Result<(HeaderMap, Json<Vec<Value>>), Failure> {
    let asked = read(query.as_deref().unwrap_or_default())?;
    let mut boxes = found(&app, &client, &asked.filter);
    let running = boxes.iter().filter(|view| view::state(view) == "running");
    let running = running.count();
    if asked.oldest_first {
        boxes.reverse();
    }
    if let Some(after) = asked.after {
        boxes.retain(|view| {
            if asked.oldest_first {
                mark(view) > after
            } else {
                mark(view) < after
            }
        });
    }
    let more = boxes.len() > asked.limit;
    boxes.truncate(asked.limit);
    let mut headers = HeaderMap::new();
    headers.insert(TOTAL_RUNNING, running.into());
    if let Some((at, id)) = boxes.last().filter(|_| more).map(|view| mark(view))
        && let Ok(token) = HeaderValue::from_str(&format!("{at}-{id}"))
    {
        headers.insert(NEXT_TOKEN, token);
    }
    Ok((headers, Json(show(&app, &boxes))))
}

fn show(app: &App, boxes: &[Arc<View>]) -> Vec<Value> {
    let shown = boxes.iter().map(|view| view::listed(app, view).into());
    shown.collect()
}

/// The caller's live boxes that pass, newest first.
fn found(app: &App, client: &Client, filter: &Filter) -> Vec<Arc<View>> {
    let views = app.commands.engine().views();
    let mut boxes = views.list(client.0.account, false, None, usize::MAX);
    boxes.retain(|view| view.sandbox.is_live() && filter.passes(view));
    boxes.sort_by_key(|view| std::cmp::Reverse(mark(view)));
    boxes
}

fn mark(view: &View) -> Mark {
    (view.sandbox.created_at.0, view.id())
}

impl Filter {
    fn passes(&self, view: &View) -> bool {
        let metadata = &view.record.metadata;
        let state = if view.sandbox.is_paused() {
            self.paused
        } else {
            self.running
        };
        let after = self.started_after;
        let template = self.template.as_deref();
        state
            && after.is_none_or(|after| view.sandbox.created_at >= after)
            && template.is_none_or(|template| view::template(view) == template)
            && self
                .metadata
                .iter()
                .all(|(key, value)| metadata.get(key) == Some(value))
    }
}

fn read(query: &str) -> Result<Asked, Failure> {
    let mut asked = Asked {
        filter: Filter::default(),
        oldest_first: false,
        limit: PAGE,
        after: None,
    };
    for (name, value) in form_urlencoded::parse(query.as_bytes()) {
        match &*name {
            "metadata" => asked.filter.metadata = metadata(&value),
            "state" => {
                for state in value.split(',').filter(|state| !state.is_empty()) {
                    match state {
                        "running" => asked.filter.running = true,
                        "paused" => asked.filter.paused = true,
                        _ => return Err(bad("state", "`running`, `paused`, or both")),
                    }
                }
            }
            "order" => {
                asked.oldest_first = match &*value {
                    "asc" => true,
                    "desc" => false,
                    _ => return Err(bad("order", "`asc` or `desc`")),
                };
            }
            "startedAfter" => {
                let read: Result<jiff::Timestamp, _> = value.parse();
                let at = read.map_err(|_| bad("startedAfter", "a time as in RFC 3339"))?;
                asked.filter.started_after = Some(Time(at.as_millisecond()));
            }
            "template" => asked.filter.template = Some(value.into_owned()),
            "limit" => {
                let limit = value
                    .parse()
                    .ok()
                    .filter(|limit| (1..=PAGE).contains(limit));
                asked.limit = limit.ok_or_else(|| bad("limit", "a whole number from 1 to 100"))?;
            }
            "nextToken" => asked.after = Some(token(&value)?),
            _ => {}
        }
    }
    if !asked.filter.running && !asked.filter.paused {
        (asked.filter.running, asked.filter.paused) = (true, true);
    }
    Ok(asked)
}

/// Names and values that were percent-encoded one by one before the whole was.
fn metadata(value: &str) -> Vec<(String, String)> {
    let plain = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
    let pairs = form_urlencoded::parse(value.as_bytes());
    pairs
        .map(|(key, value)| (plain(&key), plain(&value)))
        .collect()
}

fn token(text: &str) -> Result<Mark, Failure> {
    let read = || {
        let (at, id) = text.rsplit_once('-')?;
        Some((at.parse().ok()?, BoxId::parse(id)?))
    };
    read().ok_or_else(|| bad("nextToken", "the `X-Next-Token` of an earlier page"))
}

pub(super) fn bad(field: &str, limit: &str) -> Failure {
    Trouble::new(Kind::BadRequest, format!("`{field}` must be {limit}")).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_is_encoded_three_times() {
        let query = "metadata=a%252520b%3Dx%252526y%26key%3Dvalue&limit=7&state=paused";
        let asked = read(query).unwrap_or_else(|_| panic!("it reads"));
        let pairs = [("a b", "x&y"), ("key", "value")];
        let pairs = pairs.map(|(key, value)| (key.to_owned(), value.to_owned()));
        assert_eq!(asked.filter.metadata, pairs);
        assert_eq!(asked.limit, 7);
        assert!(asked.filter.paused && !asked.filter.running);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        for query in [
            "limit=0",
            "limit=101",
            "order=up",
            "state=gone",
            "nextToken=x",
        ] {
            assert!(read(query).is_err(), "{query}");
        }
        assert!(read("").is_ok_and(|asked| asked.filter.running && asked.filter.paused));
    }
}
