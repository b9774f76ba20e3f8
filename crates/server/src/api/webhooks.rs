//! Webhooks over REST: make, list, change, remove, try, and what became of deliveries. Translates only.

use axum::Json;
use axum::extract::{Path, State};
use icebox_wire::rest::{
    DeliveriesResponse, DeliveryView, OkResponse, WebhookPatch, WebhookRequest,
    WebhookTestResponse, WebhookView, WebhooksResponse,
};

use super::App;
use super::boxes::Nothing;
use super::input::{Body, Params};
use super::operations::{Created, NoQuery, Param, Query};
use crate::commands::trouble::timestamp;
use crate::commands::{Caller, Trouble};
use crate::store::{Delivery, Hook};
use crate::webhooks::delivery_id;

/// Deliveries in an answer unless the caller says how many.
const DELIVERIES: u64 = 100;
const DELIVERIES_MAX: u64 = 1_000;

/// What a list of deliveries is asked.
pub(super) struct Latest;

impl Query for Latest {
    const PARAMS: &'static [Param] = &[Param::number(
        "limit",
        1,
        DELIVERIES_MAX,
        "How many at most; 100 when absent.",
    )];
}

pub(super) async fn create(
    State(app): State<App>,
    caller: Caller,
    Body(request): Body<WebhookRequest>,
) -> Result<Created<WebhookView>, Trouble> {
    let made_here = request.secret.is_none();
    let hook = app.webhooks.create(&caller, request).await?;
    Ok(Created(view(hook, made_here)))
}

pub(super) async fn list(
    State(app): State<App>,
    caller: Caller,
    _: Params<NoQuery>,
) -> Result<Json<WebhooksResponse>, Trouble> {
    let list = app.webhooks.list(&caller).await?;
    let webhooks = list.into_iter().map(|hook| view(hook, false)).collect();
    Ok(Json(WebhooksResponse { webhooks }))
}

pub(super) async fn get(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Json<WebhookView>, Trouble> {
    let hook = app.webhooks.get(&caller, &id).await?;
    Ok(Json(view(hook, false)))
}

pub(super) async fn patch(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
    Body(request): Body<WebhookPatch>,
) -> Result<Json<WebhookView>, Trouble> {
    let made_here = request.secret == Some(None);
    let hook = app.webhooks.change(&caller, &id, request).await?;
    Ok(Json(view(hook, made_here)))
}

pub(super) async fn remove(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Json<OkResponse>, Trouble> {
    app.webhooks.remove(&caller, &id).await?;
    Ok(Json(OkResponse { ok: true }))
}

pub(super) async fn test(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
    Body(Nothing {}): Body<Nothing>,
) -> Result<Json<WebhookTestResponse>, Trouble> {
    let tested = app.webhooks.test(&caller, &id).await?;
    Ok(Json(WebhookTestResponse {
        ok: tested.error.is_none(),
        id: tested.id,
        status: tested.status,
        error: tested.error,
    }))
}

pub(super) async fn deliveries(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
    params: Params<Latest>,
) -> Result<Json<DeliveriesResponse>, Trouble> {
    let limit = params.number("limit")?;
    let limit = usize::try_from(limit.unwrap_or(DELIVERIES)).unwrap_or(usize::MAX);
    let (hook, list) = app.webhooks.deliveries(&caller, &id, limit).await?;
    let deliveries = list.into_iter().map(|one| delivery(&hook.id, one));
    Ok(Json(DeliveriesResponse {
        deliveries: deliveries.collect(),
    }))
}

/// How a webhook looks; with its secret only where the server made it in this very request.
fn view(hook: Hook, with_secret: bool) -> WebhookView {
    WebhookView {
        secret: with_secret.then(|| hook.secret.reveal()),
        id: hook.id,
        url: hook.url,
        kinds: hook.kinds,
        of_box: hook.of_box,
        enabled: hook.enabled,
        disabled_reason: hook.disabled_reason,
        created_at: timestamp(hook.created_at),
        waiting: hook.waiting,
    }
}

fn delivery(hook: &str, one: Delivery) -> DeliveryView {
    DeliveryView {
        id: delivery_id(hook, one.seq),
        seq: one.seq,
        of_box: one.of_box,
        kind: one.kind,
        state: one.state,
        tries: one.tries,
        tried_at: one.tried_at.map(timestamp),
        status: one.status,
        error: one.error,
        next_try_at: one.next_at.map(timestamp),
    }
}
