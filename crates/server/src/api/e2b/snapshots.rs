//! Snapshots and forks in this dialect. Owns the names that snapshots have here: `account/name:tag`, or the id and a tag.

use axum::Json;
use axum::extract::{Path, RawQuery, State};
use axum::http::HeaderMap;
use axum::http::header::HeaderValue;
use axum::response::{IntoResponse, Response};
use icebox_lifecycle::Policy;
use icebox_lifecycle::policy::{Lifetime, LifetimeFrom};
use icebox_wire::rest::{ForkRequest, SnapshotRequest};
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;

use super::super::App;
use super::error::{self, CREATED, Failure};
use super::input::{Body, Client, find, timeout_ms};
use super::list::{NEXT_TOKEN, PAGE, bad};
use super::view;
use crate::record::AccountId;
use crate::snapshot::Snapshot;

/// The tag that goes without saying.
const TAG: &str = "default";
/// Seconds a fork gets from a call that names none.
const TIMEOUT_SEC: i64 = 15;

#[derive(Deserialize)]
pub(super) struct NewSnapshot {
    name: Option<String>,
    memory: Option<bool>,
}

pub(super) async fn make(
    State(app): State<App>,
    client: Client,
    Path(id): Path<String>,
    Body(asked): Body<NewSnapshot>,
) -> Result<Response, Failure> {
    let found = find(&app, &client, &id)?;
    let name = asked.name.as_deref().filter(|name| !name.is_empty());
    let request = SnapshotRequest {
        name: name.map(|name| own_name(&app, client.0.account, name).to_owned()),
        memory: asked.memory.filter(|memory| !memory),
    };
    let own = found.id();
    let made = app
        .commands
        .snapshot(&client.0, own.as_str(), request)
        .await?;
    Ok((CREATED, Json(shown(&app, &made))).into_response())
}

/// A snapshot by one of its names here.
pub(super) fn named(app: &App, client: &Client, name: &str) -> Option<Arc<Snapshot>> {
    let name = own_name(app, client.0.account, name);
    app.commands.find_snapshot(&client.0, name).ok()
}

/// A name without the account before it.
fn own_name<'n>(app: &App, account: AccountId, name: &'n str) -> &'n str {
    match name.split_once('/') {
        Some((of, own)) if of == account_name(app, account) => own,
        Some(_) | None => name,
    }
}

fn account_name(app: &App, account: AccountId) -> String {
    let found = app.commands.engine().accounts().get(account);
    found.map_or_else(String::new, |account| account.name.to_string())
}

fn shown(app: &App, snapshot: &Snapshot) -> Value {
    let tagged = |name: &str| {
        if name.contains(':') {
            name.to_owned()
        } else {
            format!("{name}:{TAG}")
        }
    };
    let account = account_name(app, snapshot.account);
    let name = snapshot.name.as_deref();
    let name = name.map(|name| format!("{account}/{}", tagged(name)));
    let id = name.clone();
    let id = id.unwrap_or_else(|| tagged(snapshot.id.as_str()));
    json!({"snapshotID": id, "names": Vec::from_iter(name)})
}

/// `GET /snapshots`: a page, the newest first.
pub(super) async fn list(
    State(app): State<App>,
    client: Client,
    RawQuery(query): RawQuery,
) -> Result<(HeaderMap, Json<Vec<Value>>), Failure> {
    let (mut limit, mut after) = (PAGE, None);
    let mut snapshots = app.commands.snapshots(&client.0);
    for (field, value) in form_urlencoded::parse(query.unwrap_or_default().as_bytes()) {
        match &*field {
            "sandboxID" => {
                let own = value.split('-').next().unwrap_or(&value);
                snapshots.retain(|it| it.source.as_str() == own);
            }
            "name" => {
                let wanted = own_name(&app, client.0.account, &value);
                snapshots.retain(|it| has_name(it, wanted));
            }
            "limit" => {
                let read = value
                    .parse()
                    .ok()
                    .filter(|limit| (1..=PAGE).contains(limit));
                limit = read.ok_or_else(|| bad("limit", "a whole number from 1 to 100"))?;
            }
            "nextToken" => after = Some(value.into_owned()),
            _ => {}
        }
    }
    if let Some(after) = after {
        let known = app.commands.snapshots(&client.0);
        let at = known.iter().find(|it| it.id.as_str() == after);
        let at = at.ok_or_else(|| bad("nextToken", "the `X-Next-Token` of an earlier page"))?;
        snapshots.retain(|it| it.number < at.number);
    }
    let more = snapshots.len() > limit;
    snapshots.truncate(limit);
    let mut headers = HeaderMap::new();
    if let Some(last) = snapshots.last().filter(|_| more)
        && let Ok(token) = HeaderValue::from_str(last.id.as_str())
    {
        headers.insert(NEXT_TOKEN, token);
    }
    let page = snapshots.iter().map(|it| shown(&app, it)).collect();
    Ok((headers, Json(page)))
}

/// Whether a snapshot is meant by a name, which may leave the tag out, or an id.
fn has_name(snapshot: &Snapshot, wanted: &str) -> bool {
    let (name, tag) = wanted.split_once(':').unwrap_or((wanted, ""));
    if snapshot.id.as_str() == name {
        return tag.is_empty() || tag == TAG;
    }
    let Some(known) = &snapshot.name else {
        return false;
    };
    let (known, known_tag) = known.split_once(':').unwrap_or((known, TAG));
    known == name && (tag.is_empty() || tag == known_tag)
}

#[derive(Deserialize)]
pub(super) struct Fork {
    count: Option<u32>,
    timeout: Option<i64>,
}

pub(super) async fn fork(
    State(app): State<App>,
    client: Client,
    Path(id): Path<String>,
    Body(asked): Body<Fork>,
) -> Result<Response, Failure> {
    let found = find(&app, &client, &id)?;
    let ms = timeout_ms("timeout", asked.timeout.unwrap_or(TIMEOUT_SEC), 1)?;
    let now = app.commands.clock().now();
    let ends = move |mut policy: Policy| {
        // Boxes of other dialects, whose end is counted otherwise, keep what they have.
        if let Some(Lifetime {
            ms: given,
            from: LifetimeFrom::Moment(from),
            ..
        }) = &mut policy.lifetime
        {
            (*from, *given) = (now, ms);
        }
        policy
    };
    let request = ForkRequest {
        count: asked.count,
        name: None,
    };
    let own = found.id();
    let forks = app
        .commands
        .fork(&client.0, own.as_str(), request, Box::new(ends))
        .await?;
    let forks: Vec<Value> = forks
        .into_iter()
        .map(|fork| match fork {
            Ok(view) => json!({"sandbox": view::sandbox(&app, &view)}),
            Err(trouble) => json!({"error": error::body(&trouble)}),
        })
        .collect();
    Ok((CREATED, Json(forks)).into_response())
}
