//! What is not about one box: health, the host, conversations, and the test clock.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use icebox_lifecycle::time::SEC;
use icebox_wire::rest::{AdvanceRequest, ClockResponse, HostView, OkResponse};
use schemars::JsonSchema;
use serde::Deserialize;

use super::input::Body;
use super::operations::{self, Answer, Answers, Like};
use super::{App, capacity, error};
use crate::commands::check::unfit;
use crate::commands::trouble::timestamp;
use crate::commands::{Caller, Trouble, is_agent_id, no_agent_id};
use crate::sessions::cookie_name;

/// The furthest one call moves the test clock, in seconds: ten years.
const ADVANCE_MAX_SEC: u64 = 315_360_000;

pub(super) async fn healthz() -> Json<OkResponse> {
    Json(OkResponse { ok: true })
}

/// Whether the server serves.
pub(super) struct Readiness(bool);

impl IntoResponse for Readiness {
    fn into_response(self) -> Response {
        let Self(ok) = self;
        let said = Json(OkResponse { ok });
        if ok {
            said.into_response()
        } else {
            (error::NOT_READY, said).into_response()
        }
    }
}

impl Answers for Readiness {
    fn forms() -> Vec<Answer> {
        vec![
            Answer::json::<OkResponse>(error::OK).about("It serves."),
            Answer::json::<OkResponse>(error::NOT_READY.as_u16()).about("It does not serve now."),
        ]
    }
}

pub(super) async fn readyz(State(app): State<App>) -> Readiness {
    Readiness(app.commands.engine().is_running())
}

pub(super) async fn openapi(State(app): State<App>) -> Like<Document> {
    let document = app.document.get_or_init(|| {
        let is_test = app.commands.clock().is_test();
        let cookie = cookie_name(app.edge.urls().scheme());
        operations::document(&operations::table(is_test), cookie)
            .to_string()
            .into()
    });
    Like::new(([(CONTENT_TYPE, "application/json")], document.clone()))
}

/// A document of OpenAPI.
pub(super) struct Document;

impl Answers for Document {
    fn forms() -> Vec<Answer> {
        vec![Answer::of("application/json").about("OpenAPI 3.1.")]
    }
}

pub(super) async fn host(State(app): State<App>, caller: Caller) -> Json<HostView> {
    let host = app.commands.driver().capabilities();
    let engine = app.commands.engine();
    engine.settled().await;
    let counts = engine.views().counts().into_iter();
    let boxes: BTreeMap<String, u64> = counts.map(|(status, n)| (status.to_owned(), n)).collect();
    Json(HostView {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        driver: host.name.to_owned(),
        checkpoint_error: host.checkpoint.err(),
        cpus: host.cpus,
        memory_mb: host.memory_mb,
        disk_gb: host.disk_gb,
        egress_error: host.egress.err(),
        boxes,
        capacity: Some(capacity::shown(&engine.views().capacity(), caller.account)),
        orphans: engine.orphans().iter().map(ToString::to_string).collect(),
        dropped_outcomes: engine.counters().dropped_outcomes(),
    })
}

pub(super) async fn read_clock(State(app): State<App>, _: Caller) -> Json<ClockResponse> {
    Json(ClockResponse {
        now: timestamp(app.commands.clock().now()),
    })
}

pub(super) async fn advance_clock(
    State(app): State<App>,
    _: Caller,
    Body(request): Body<AdvanceRequest>,
) -> Result<Json<ClockResponse>, Trouble> {
    if request.advance_sec > ADVANCE_MAX_SEC {
        return Err(unfit("advanceSec"));
    }
    let sec = i64::try_from(request.advance_sec).map_err(|_| unfit("advanceSec"))?;
    let now = app.commands.engine().advance(sec * SEC).await;
    let now = now.map_err(|error| Trouble::from_ask(error, ""))?;
    Ok(Json(ClockResponse {
        now: timestamp(now),
    }))
}

/// The body of a heartbeat or leave. Adapters of other versions may say more, which is no reason to call them gone.
#[derive(Deserialize, JsonSchema)]
pub(super) struct Sign {}

pub(super) async fn heartbeat(
    State(app): State<App>,
    caller: Caller,
    Path(agent): Path<String>,
    Body(Sign {}): Body<Sign>,
) -> Result<Json<OkResponse>, Trouble> {
    if !is_agent_id(&agent) {
        return Err(no_agent_id());
    }
    let now = app.commands.clock().now();
    app.commands.presences().beat(caller.account, &agent, now);
    Ok(Json(OkResponse { ok: true }))
}

pub(super) async fn leave(
    State(app): State<App>,
    caller: Caller,
    Path(agent): Path<String>,
    Body(Sign {}): Body<Sign>,
) -> Result<Json<OkResponse>, Trouble> {
    if !is_agent_id(&agent) {
        return Err(no_agent_id());
    }
    let now = app.commands.clock().now();
    app.commands.presences().leave(caller.account, &agent, now);
    Ok(Json(OkResponse { ok: true }))
}
