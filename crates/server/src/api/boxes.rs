//! `/v1/boxes`: start, list, status, freeze, wake, stop, change. Translates only.

use axum::Json;
use axum::extract::{Path, State};
use icebox_lifecycle::BoxId;
use icebox_wire::rest::{BoxView, ListResponse, PatchRequest, StartRequest, WakeRequest};

use super::input::{Body, Params};
use super::operations::{Created, Either, Param, Query};
use super::view::SomeFields;
use super::{App, capacity};
use crate::commands::check::unfit;
use crate::commands::trouble::timestamp;
use crate::commands::{Caller, Trouble};
use crate::engine::Cursor;

const LIST_LIMIT: u64 = 100;
const LIST_LIMIT_MAX: u64 = 1_000;

/// What a list is asked.
pub(super) struct Listing;

impl Query for Listing {
    const PARAMS: &'static [Param] = &[
        Param::flag("all", "Also boxes that were stopped in the last 7 days."),
        Param::number(
            "limit",
            1,
            LIST_LIMIT_MAX,
            "How many at most; 100 when absent.",
        ),
        Param::text("cursor", "The `nextCursor` of the page before."),
    ];
}

/// What a look at one box is asked.
pub(super) struct Fields;

impl Query for Fields {
    const PARAMS: &'static [Param] = &[Param::text(
        "fields",
        "Only these fields, separated by commas; `id` and `status` come anyway. Those that no box has are named in `unknownFields`.",
    )];
}

pub(super) async fn start(
    State(app): State<App>,
    caller: Caller,
    Body(request): Body<StartRequest>,
) -> Result<Created<BoxView>, Trouble> {
    let view = app.commands.start(&caller, request).await?;
    app.describe(&caller, &view).await.map(Created)
}

pub(super) async fn list(
    State(app): State<App>,
    caller: Caller,
    params: Params<Listing>,
) -> Result<Json<ListResponse>, Trouble> {
    let all = params.flag("all")?;
    let limit = params.number("limit")?;
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
    params: Params<Fields>,
) -> Result<Either<Json<BoxView>, Json<SomeFields>>, Trouble> {
    let found = app.commands.look(&caller, &id).await?;
    let shown = app.look(&caller, &found, params.get("fields")).await?;
    Ok(match params.get("fields") {
        Some(fields) => Either::Other(Json(SomeFields::of(shown, fields)?)),
        None => Either::One(Json(shown)),
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

pub(super) async fn renew(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
    Body(Nothing {}): Body<Nothing>,
) -> Result<Json<BoxView>, Trouble> {
    let view = app.commands.renew(&caller, &id).await?;
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
#[derive(serde::Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Nothing {}
