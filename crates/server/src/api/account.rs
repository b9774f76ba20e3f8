//! `/v1/account` for everybody, `/v1/accounts` for admins: credits, new accounts and keys. Translates only.

use axum::Json;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use icebox_wire::rest::{AccountView, AccountsResponse, CreditsRequest, NewAccountRequest};

use super::boxes::Nothing;
use super::input::{Admin, Body};
use super::{App, error};
use crate::commands::{Caller, Trouble};

pub(super) async fn own(
    State(app): State<App>,
    caller: Caller,
) -> Result<Json<AccountView>, Trouble> {
    app.commands.account(&caller).await.map(Json)
}

pub(super) async fn list(State(app): State<App>, _: Admin) -> Json<AccountsResponse> {
    Json(app.commands.accounts().await)
}

pub(super) async fn one(
    State(app): State<App>,
    _: Admin,
    Path(name): Path<String>,
) -> Result<Json<AccountView>, Trouble> {
    app.commands.account_named(&name).await.map(Json)
}

pub(super) async fn make(
    State(app): State<App>,
    _: Admin,
    Body(request): Body<NewAccountRequest>,
) -> Result<Response, Trouble> {
    let made = app.commands.new_account(&app.keys, &request).await?;
    Ok((error::CREATED, Json(made)).into_response())
}

pub(super) async fn add_key(
    State(app): State<App>,
    _: Admin,
    Path(name): Path<String>,
    Body(Nothing {}): Body<Nothing>,
) -> Result<Response, Trouble> {
    let made = app.commands.new_key(&app.keys, &name).await?;
    Ok((error::CREATED, Json(made)).into_response())
}

pub(super) async fn set_credits(
    State(app): State<App>,
    _: Admin,
    Path(name): Path<String>,
    Body(request): Body<CreditsRequest>,
) -> Result<Json<AccountView>, Trouble> {
    app.commands.set_credits(&name, &request).await.map(Json)
}
