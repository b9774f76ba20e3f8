//! `/v1/session`: a browser signs in and out, and links with which it may. Translates only; who may is
//! [`crate::sessions`]'s.

use axum::Json;
use axum::extract::State;
use axum::http::Uri;
use axum::http::header::{CACHE_CONTROL, HOST, HeaderMap, SET_COOKIE};
use axum::response::AppendHeaders;
use icebox_lifecycle::Time;
use icebox_wire::rest::{OkResponse, SessionView, SignInLink, SignInRequest};
use serde::Serialize;

use super::boxes::Nothing;
use super::input::Body;
use super::operations::Like;
use super::who::{SameOrigin, SignedIn, WithKey};
use super::{App, Peer};
use crate::commands::trouble::timestamp;
use crate::commands::{Kind, Trouble};
use crate::cookies;
use crate::sessions::{Credential, Session, cookie, cookie_name};

/// Where the dashboard is, and what it finds the token by. Behind `#` it is sent nowhere and is in no log.
const DASHBOARD: &str = "/app#token=";

pub(super) async fn sign_in(
    State(app): State<App>,
    _: SameOrigin,
    Peer(from): Peer,
    headers: HeaderMap,
    Body(request): Body<SignInRequest>,
) -> Result<Like<Json<SessionView>>, Trouble> {
    let credential = match (&request.key, &request.token) {
        (Some(key), None) => Credential::Key(key),
        (None, Some(token)) => Credential::Token(token),
        (Some(_), Some(_)) | (None, None) => {
            let text = "exactly one of `key` and `token` has to be given";
            return Err(Trouble::new(Kind::BadRequest, text));
        }
    };
    let scheme = app.edge.urls().scheme();
    let before = cookies::values(&headers, cookie_name(scheme));
    let before = before.first().map(String::as_str);
    let signed_in = app.sessions.sign_in(credential, from, before).await?;
    let view = view(&app, &signed_in.session)?;
    let (now, end) = (app.commands.clock().now(), signed_in.session.expires_at);
    Ok(with_cookie(
        &cookie(scheme, Some(&signed_in.secret), now, end),
        Json(view),
    ))
}

pub(super) async fn show(
    State(app): State<App>,
    signed_in: SignedIn,
) -> Result<Like<Json<SessionView>>, Trouble> {
    let view = view(&app, &signed_in.session)?;
    Ok(Like::new(([(CACHE_CONTROL, "no-store")], Json(view))))
}

pub(super) async fn sign_out(
    State(app): State<App>,
    signed_in: SignedIn,
    Body(Nothing {}): Body<Nothing>,
) -> Result<Like<Json<OkResponse>>, Trouble> {
    app.sessions.sign_out(&signed_in.secret).await?;
    let gone = cookie(app.edge.urls().scheme(), None, Time(0), Time(0));
    Ok(with_cookie(&gone, Json(OkResponse { ok: true })))
}

pub(super) async fn link(
    State(app): State<App>,
    who: WithKey,
    uri: Uri,
    headers: HeaderMap,
    Body(Nothing {}): Body<Nothing>,
) -> Result<Like<Json<SignInLink>>, Trouble> {
    let link = app.sessions.link(&who.holder).await?;
    let host = headers.get(HOST).and_then(|host| host.to_str().ok());
    let asked = uri.authority().map(|authority| authority.as_str()).or(host);
    let base = app.edge.urls().of_server(asked.unwrap_or_default());
    let made = SignInLink {
        url: format!("{base}{DASHBOARD}{}", link.token),
        token: link.token,
        expires_at: timestamp(link.expires_at),
    };
    Ok(Like::new(([(CACHE_CONTROL, "no-store")], Json(made))))
}

fn view(app: &App, session: &Session) -> Result<SessionView, Trouble> {
    let holder = &session.holder;
    let account = app.commands.engine().accounts().get(holder.account);
    let account = account.ok_or_else(|| Trouble::internal(&"the account has no record"))?;
    Ok(SessionView {
        account: account.name.to_string(),
        admin: holder.admin,
        expires_at: timestamp(session.expires_at),
    })
}

fn with_cookie<T: Serialize>(cookie: &str, answer: Json<T>) -> Like<Json<T>> {
    let headers = AppendHeaders([(SET_COOKIE, cookie), (CACHE_CONTROL, "no-store")]);
    Like::new((headers, answer))
}
