//! `/v1/boxes/{id}/link`: signed links to a box, and their end. Translates only.

use axum::Json;
use axum::extract::{Path, State};
use icebox_wire::rest::{LinkRequest, LinkResponse, OkResponse};

use super::App;
use super::boxes::Nothing;
use super::input::Body;
use crate::commands::trouble::timestamp;
use crate::commands::{Caller, Trouble};

pub(super) async fn make(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
    Body(request): Body<LinkRequest>,
) -> Result<Json<LinkResponse>, Trouble> {
    let link = app.commands.link(&caller, &id, &request).await?;
    let url = app.edge.urls().of_link(link.id, &link.place, &link.token);
    Ok(Json(LinkResponse {
        url,
        expires_at: timestamp(link.end),
    }))
}

pub(super) async fn revoke(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
    Body(Nothing {}): Body<Nothing>,
) -> Result<Json<OkResponse>, Trouble> {
    app.commands.revoke_links(&caller, &id).await?;
    Ok(Json(OkResponse { ok: true }))
}
