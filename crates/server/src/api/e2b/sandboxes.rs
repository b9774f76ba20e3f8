//! One box of a client: what is known of it, its end, pause and resume, and its removal.

use axum::Json;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use icebox_lifecycle::policy::{AtEnd, Lifetime, LifetimeFrom};
use icebox_lifecycle::{Ms, Policy, Time};
use serde::Deserialize;

use super::super::App;
use super::error::{CREATED, Done, FOUND, Failure};
use super::input::{Body, Client, find, not_found, timeout_ms};
use super::view;
use crate::commands::{Kind, Resumed, Trouble};
use crate::engine::PolicyChange;

/// Seconds a box gets from a call that names none.
const TIMEOUT_V1_SEC: i64 = 15;
const TIMEOUT_V2_SEC: i64 = 300;
/// The most seconds that keeping alive asks for at a time.
const REFRESH_MAX_SEC: i64 = 3_600;

pub(super) async fn info(
    State(app): State<App>,
    client: Client,
    Path(id): Path<String>,
) -> Result<Response, Failure> {
    let found = find(&app, &client, &id)?;
    Ok(Json(view::detail(&app, &found)).into_response())
}

pub(super) async fn kill(
    State(app): State<App>,
    client: Client,
    Path(id): Path<String>,
) -> Result<Done, Failure> {
    let found = find(&app, &client, &id)?;
    app.commands.stop(&client.0, found.id().as_str()).await?;
    Ok(Done)
}

#[derive(Deserialize)]
pub(super) struct SetTimeout {
    timeout: i64,
}

pub(super) async fn set_timeout(
    State(app): State<App>,
    client: Client,
    Path(id): Path<String>,
    Body(asked): Body<SetTimeout>,
) -> Result<Done, Failure> {
    let found = find(&app, &client, &id)?;
    let ms = timeout_ms("timeout", asked.timeout, 0)?;
    // Its end does not come nearer while it is paused, so there is nothing to set.
    if found.sandbox.is_paused() {
        return Err(not_found(&id));
    }
    let change = ends(app.commands.clock().now(), ms, Sooner::Too);
    let set = app.commands.set_policy(found.id(), change).await;
    set.map_err(|trouble| ended_meanwhile(trouble, &id))?;
    Ok(Done)
}

#[derive(Deserialize)]
pub(super) struct Refresh {
    duration: Option<i64>,
}

pub(super) async fn refresh(
    State(app): State<App>,
    client: Client,
    Path(id): Path<String>,
    Body(asked): Body<Refresh>,
) -> Result<Done, Failure> {
    let found = find(&app, &client, &id)?;
    let sec = asked.duration.unwrap_or(TIMEOUT_V1_SEC);
    if !(0..=REFRESH_MAX_SEC).contains(&sec) {
        let limit = format!("0 to {REFRESH_MAX_SEC} (seconds)");
        return Err(Trouble::bad("duration", limit).into());
    }
    let ms = timeout_ms("duration", sec, 0)?;
    let change = ends(app.commands.clock().now(), ms, Sooner::Never);
    let set = app.commands.set_policy(found.id(), change).await;
    set.map_err(|trouble| ended_meanwhile(trouble, &id))?;
    Ok(Done)
}

#[derive(Deserialize)]
pub(super) struct Pause {
    memory: Option<bool>,
}

pub(super) async fn pause(
    State(app): State<App>,
    client: Client,
    Path(id): Path<String>,
    Body(asked): Body<Pause>,
) -> Result<Done, Failure> {
    let found = find(&app, &client, &id)?;
    let files_only = asked.memory == Some(false);
    let own = found.id();
    let paused = app.commands.pause(&client.0, own.as_str(), files_only);
    paused
        .await
        .map_err(|trouble| ended_meanwhile(trouble, &id))?;
    Ok(Done)
}

#[derive(Deserialize)]
pub(super) struct Connect {
    timeout: Option<i64>,
    memory: Option<bool>,
}

pub(super) async fn connect_v1(
    State(app): State<App>,
    client: Client,
    Path(id): Path<String>,
    Body(asked): Body<Connect>,
) -> Result<Response, Failure> {
    connect(&app, &client, &id, &asked, TIMEOUT_V1_SEC).await
}

pub(super) async fn connect_v2(
    State(app): State<App>,
    client: Client,
    Path(id): Path<String>,
    Body(asked): Body<Connect>,
) -> Result<Response, Failure> {
    connect(&app, &client, &id, &asked, TIMEOUT_V2_SEC).await
}

async fn connect(
    app: &App,
    client: &Client,
    id: &str,
    asked: &Connect,
    timeout_sec: i64,
) -> Result<Response, Failure> {
    let found = find(app, client, id)?;
    let ms = timeout_ms("timeout", asked.timeout.unwrap_or(timeout_sec), 0)?;
    // A running box never gets less than it has; what a paused one had is over.
    let sooner = if found.sandbox.is_paused() {
        Sooner::Too
    } else {
        Sooner::Never
    };
    let change = ends(app.commands.clock().now(), ms, sooner);
    let cold = asked.memory == Some(false);
    let resumed = app.commands.resume(found.id(), change, cold).await;
    let (how, view) = resumed.map_err(|trouble| ended_meanwhile(trouble, id))?;
    let status = match how {
        Resumed::Ran => FOUND,
        Resumed::Woke => CREATED,
    };
    Ok((status, Json(view::sandbox(app, &view))).into_response())
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Resume {
    timeout: Option<i64>,
    auto_pause: Option<bool>,
    memory: Option<bool>,
}

pub(super) async fn resume(
    State(app): State<App>,
    client: Client,
    Path(id): Path<String>,
    Body(asked): Body<Resume>,
) -> Result<Response, Failure> {
    let found = find(&app, &client, &id)?;
    let ms = timeout_ms("timeout", asked.timeout.unwrap_or(TIMEOUT_V1_SEC), 0)?;
    if !found.sandbox.is_paused() {
        let text = format!("sandbox \"{id}\" is running already");
        return Err(Trouble::new(Kind::InUse, text).into());
    }
    let set_end = ends(app.commands.clock().now(), ms, Sooner::Too);
    let change: PolicyChange = Box::new(move |before| {
        let mut policy = set_end(before);
        if let (Some(lifetime), Some(pauses)) = (&mut policy.lifetime, asked.auto_pause) {
            lifetime.at_end = match (pauses, lifetime.at_end) {
                (false, _) => AtEnd::Destroy,
                (true, AtEnd::KeepFiles) => AtEnd::KeepFiles,
                (true, AtEnd::Destroy | AtEnd::Freeze) => AtEnd::Freeze,
            };
        }
        policy
    });
    let cold = asked.memory == Some(false);
    let resumed = app.commands.resume(found.id(), change, cold).await;
    let (_, view) = resumed.map_err(|trouble| ended_meanwhile(trouble, &id))?;
    Ok((CREATED, Json(view::sandbox(&app, &view))).into_response())
}

/// Whether an end may be moved to an earlier moment.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sooner {
    Too,
    Never,
}

/// Sets the end to so long after `now`. Boxes of other dialects, whose end is counted otherwise, stay as they are.
fn ends(now: Time, ms: Ms, sooner: Sooner) -> PolicyChange {
    Box::new(move |before: &Policy| {
        let mut policy = before.clone();
        if let Some(Lifetime {
            ms: given,
            from: LifetimeFrom::Moment(from),
            ..
        }) = &mut policy.lifetime
            && (sooner == Sooner::Too || *from + *given < now + ms)
        {
            *from = now;
            *given = ms;
        }
        policy
    })
}

/// A box that ended while it was asked for something was not found.
fn ended_meanwhile(trouble: Trouble, id: &str) -> Failure {
    let ended = [Kind::BoxGone, Kind::Interrupted, Kind::NotFound];
    if ended.contains(&trouble.kind) {
        not_found(id)
    } else {
        trouble.into()
    }
}
