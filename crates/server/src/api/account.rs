//! `/v1/account` for everybody, `/v1/accounts` for admins: credits, new accounts and keys. Translates only.

use axum::Json;
use axum::extract::{Path, State};
use icebox_wire::rest::{
    AccountView, AccountsResponse, CreditsRequest, KeyView, KeysResponse, NewAccountRequest,
    NewKeyResponse, OkResponse, RevokeKeyRequest,
};

use super::App;
use super::boxes::Nothing;
use super::input::Body;
use super::operations::Created;
use super::who::Admin;
use crate::commands::trouble::timestamp;
use crate::commands::{Caller, Trouble, key_id};

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
) -> Result<Created<NewKeyResponse>, Trouble> {
    let made = app.commands.new_account(&app.keys, &request);
    made.await.map(Created)
}

pub(super) async fn add_key(
    State(app): State<App>,
    _: Admin,
    Path(name): Path<String>,
    Body(Nothing {}): Body<Nothing>,
) -> Result<Created<NewKeyResponse>, Trouble> {
    let made = app.commands.new_key(&app.keys, &name);
    made.await.map(Created)
}

pub(super) async fn keys(
    State(app): State<App>,
    _: Admin,
    Path(name): Path<String>,
) -> Result<Json<KeysResponse>, Trouble> {
    let keys = app.commands.keys_of(&app.keys, &name).await?.into_iter();
    let keys = keys.map(|holder| KeyView {
        id: key_id(&holder.key),
        created_at: timestamp(holder.created_at),
        admin: holder.admin,
        sessions: app.sessions.count(&holder),
    });
    Ok(Json(KeysResponse {
        account: name,
        keys: keys.collect(),
    }))
}

pub(super) async fn revoke_key(
    State(app): State<App>,
    _: Admin,
    Path(name): Path<String>,
    Body(request): Body<RevokeKeyRequest>,
) -> Result<Json<OkResponse>, Trouble> {
    let account = app.commands.revoke_key(&app.keys, &name, &request).await?;
    app.sessions.forget(account);
    Ok(Json(OkResponse { ok: true }))
}

pub(super) async fn set_credits(
    State(app): State<App>,
    _: Admin,
    Path(name): Path<String>,
    Body(request): Body<CreditsRequest>,
) -> Result<Json<AccountView>, Trouble> {
    app.commands.set_credits(&name, &request).await.map(Json)
}
