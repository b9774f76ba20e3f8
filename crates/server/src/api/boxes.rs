//! `/v1/boxes`: start, list, status, freeze, wake, stop, change. Translates only.

use axum::Json;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use icebox_lifecycle::BoxId;
use icebox_wire::rest::{BoxView, ListResponse, PatchRequest, StartRequest, WakeRequest};

use super::input::{Body, Params};
use super::{App, capacity, error, view};
use crate::commands::check::unfit;
use crate::commands::trouble::timestamp;
use crate::commands::{Caller, Trouble};
use crate::engine::Cursor;

const LIST_LIMIT: u64 = 100;
const LIST_LIMIT_MAX: u64 = 1_000;

pub(super) async fn start(
    State(app): State<App>,
    caller: Caller,
    Body(request): Body<StartRequest>,
) -> Result<Response, Trouble> {
    let view = app.commands.start(&caller, request).await?;
    let shown = app.describe(&caller, &view).await?;
    Ok((error::CREATED, Json(shown)).into_response())
}

pub(super) async fn list(
    State(app): State<App>,
    caller: Caller,
    params: Params,
) -> Result<Json<ListResponse>, Trouble> {
    let params = params.only(&["all", "limit", "cursor"])?;
    let all = params.flag("all")?;
    let limit = params.number("limit", 1..=LIST_LIMIT_MAX)?;
    let limit = usize::try_from(limit.unwrap_or(LIST_LIMIT)).unwrap_or(usize::MAX);
    let after = params.get("cursor").map(read_cursor).transpose()?;
    app.commands.engine().settled().await;
    let views = app.commands.engine().views();
    let mut page = views.list(caller.account, all, after, limit + 1);
    let more = page.len() > limit;
    page.truncate(limit);
    let next_cursor = page
        .last()
        .filter(|_| more)
        .map(|view| format!("{}-{}", view.sandbox.last_use.0, view.id()));
    let boxes = page.iter().map(|view| app.show(&caller, view)).collect();
    Ok(Json(ListResponse {
        boxes,
        next_cursor,
        at: Some(timestamp(app.commands.clock().now())),
        slots: Some(capacity::slots(&views.capacity())),
        notices: app.commands.notices(&caller, None),
    }))
}

fn read_cursor(text: &str) -> Result<Cursor, Trouble> {
    let read = || {
        let (at, id) = text.rsplit_once('-')?;
        Some((at.parse().ok()?, BoxId::parse(id)?))
    };
    read().ok_or_else(|| unfit("cursor"))
}

pub(super) async fn status(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
    params: Params,
) -> Result<Response, Trouble> {
    let params = params.only(&["fields"])?;
    let found = app.commands.look(&caller, &id).await?;
    let shown = app.look(&caller, &found, params.get("fields")).await?;
    Ok(match params.get("fields") {
        Some(fields) => Json(view::only(shown, fields)?).into_response(),
        None => Json(shown).into_response(),
    })
}

pub(super) async fn freeze(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
    Body(Nothing {}): Body<Nothing>,
) -> Result<Json<BoxView>, Trouble> {
    let view = app.commands.freeze(&caller, &id).await?;
    app.describe(&caller, &view).await.map(Json)
}

pub(super) async fn wake(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
    Body(request): Body<WakeRequest>,
) -> Result<Json<BoxView>, Trouble> {
    let view = app.commands.wake(&caller, &id, &request).await?;
    app.describe(&caller, &view).await.map(Json)
}

pub(super) async fn stop(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
    Body(Nothing {}): Body<Nothing>,
) -> Result<Json<BoxView>, Trouble> {
    let view = app.commands.stop(&caller, &id).await?;
    app.describe(&caller, &view).await.map(Json)
}

pub(super) async fn patch(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
    Body(request): Body<PatchRequest>,
) -> Result<Json<BoxView>, Trouble> {
    let view = app.commands.patch(&caller, &id, request).await?;
    app.describe(&caller, &view).await.map(Json)
}

/// A body without fields.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Nothing {}
