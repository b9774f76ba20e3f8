//! Who asks: by a key in `Authorization`, or by the cookie of a browser that is signed in. Owns what has to hold besides
//! before a cookie counts, for a browser sends it along whoever made it send the request.

use axum::extract::FromRequestParts;
use axum::http::header::{AUTHORIZATION, HOST, HeaderMap, HeaderName, ORIGIN};
use axum::http::request::Parts;
use axum::http::uri::Authority;
use axum::http::{Method, Uri};
use icebox_wire::rest::{AGENT_HEADER, CSRF_HEADER};

use super::App;
use crate::commands::{Caller, Kind, Trouble, is_agent_id};
use crate::cookies;
use crate::sessions::{Session, cookie_name};
use crate::store::Holder;

const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

impl FromRequestParts<App> for Caller {
    type Rejection = Trouble;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Trouble> {
        Ok(caller(holder(parts, app)?, parts))
    }
}

/// Whoever calls has an admin's key.
pub(super) struct Admin;

impl FromRequestParts<App> for Admin {
    type Rejection = Trouble;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Trouble> {
        if holder(parts, app)?.admin {
            return Ok(Self);
        }
        Err(Trouble::new(
            Kind::Forbidden,
            "only the admin key may do that: it manages accounts and opens the host's networks to boxes; it is in `admin.key` in the \
             server's data folder",
        ))
    }
}

/// Whoever calls showed a key; a browser that is signed in is not let in.
pub(super) struct WithKey {
    /// Whose key it is.
    pub(super) holder: Holder,
    /// The same, for commands.
    pub(super) caller: Caller,
}

impl FromRequestParts<App> for WithKey {
    type Rejection = Trouble;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Trouble> {
        let holder = by_key(&parts.headers, app).ok_or_else(no_key)?;
        let caller = caller(holder, parts);
        Ok(Self { holder, caller })
    }
}

/// A browser that is signed in, and the secret in its cookie.
pub(super) struct SignedIn {
    pub(super) session: Session,
    pub(super) secret: String,
}

impl FromRequestParts<App> for SignedIn {
    type Rejection = Trouble;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Trouble> {
        by_cookie(parts, app)
    }
}

/// The request does not come from a page of somebody else's.
pub(super) struct SameOrigin;

impl FromRequestParts<App> for SameOrigin {
    type Rejection = Trouble;

    async fn from_request_parts(parts: &mut Parts, _: &App) -> Result<Self, Trouble> {
        same_origin(parts).map(|()| Self)
    }
}

fn caller(holder: Holder, parts: &Parts) -> Caller {
    let agent = parts.headers.get(AGENT_HEADER);
    let agent = agent
        .and_then(|value| value.to_str().ok())
        .filter(|id| is_agent_id(id));
    Caller {
        account: holder.account,
        agent: agent.map(Into::into),
    }
}

fn holder(parts: &Parts, app: &App) -> Result<Holder, Trouble> {
    // Who shows a key means that one, and no page of somebody else's can.
    if parts.headers.contains_key(AUTHORIZATION) {
        return by_key(&parts.headers, app).ok_or_else(no_key);
    }
    by_cookie(parts, app).map(|signed_in| signed_in.session.holder)
}

fn by_key(headers: &HeaderMap, app: &App) -> Option<Holder> {
    let header = headers.get(AUTHORIZATION)?;
    let (scheme, key) = header.to_str().ok()?.split_once(' ')?;
    let is_bearer = scheme.eq_ignore_ascii_case("bearer");
    app.keys.holder(key.trim()).filter(|_| is_bearer)
}

fn by_cookie(parts: &Parts, app: &App) -> Result<SignedIn, Trouble> {
    let mut secrets = cookies::values(&parts.headers, cookie_name(app.edge.urls().scheme()));
    let Some(secret) = secrets.pop() else {
        return Err(no_key());
    };
    if !secrets.is_empty() {
        // One of them was planted, and nobody can tell which.
        let text = "the browser sent two sessions at once; remove its cookies for this site and sign in again";
        return Err(Trouble::new(Kind::Unauthorized, text));
    }
    let Some(session) = app.sessions.find(&secret) else {
        let text =
            "the session is over; sign in again with a key, or with a link from `icebox dashboard`";
        return Err(Trouble::new(Kind::Unauthorized, text));
    };
    same_origin(parts)?;
    let only_reads = [Method::GET, Method::HEAD].contains(&parts.method);
    let header = parts.headers.get(CSRF_HEADER);
    if !only_reads && header.is_none_or(|value| value != "1") {
        let text = format!(
            "a browser that is signed in sends `{CSRF_HEADER}: 1` with every request other than GET and HEAD"
        );
        return Err(Trouble::new(Kind::Forbidden, text));
    }
    Ok(SignedIn { session, secret })
}

/// Refuses a request that a page of another origin made a browser send. Boxes' pages are such, on the same site even.
fn same_origin(parts: &Parts) -> Result<(), Trouble> {
    let headers = &parts.headers;
    // A person may type an address, but only pages send anything else.
    let typed = [Method::GET, Method::HEAD].contains(&parts.method);
    let site_fits = headers
        .get_all(FETCH_SITE)
        .iter()
        .all(|site| site == "same-origin" || (typed && site == "none"));
    let origin_fits = headers.get_all(ORIGIN).iter().all(|origin| {
        let origin = origin.to_str().ok().and_then(|origin| origin.parse().ok());
        let own = own_authority(parts);
        origin.is_some_and(|origin: Uri| own.is_some_and(|own| is_at(&origin, &own)))
    });
    if site_fits && origin_fits {
        return Ok(());
    }
    Err(Trouble::new(
        Kind::Forbidden,
        "a page of another origin sent this; only the dashboard itself acts for who is signed in",
    ))
}

/// The host and port that the request names.
fn own_authority(parts: &Parts) -> Option<Authority> {
    if let Some(authority) = parts.uri.authority() {
        return Some(authority.clone());
    }
    Authority::try_from(parts.headers.get(HOST)?.as_bytes()).ok()
}

/// Whether an origin is that of a host and port.
fn is_at(origin: &Uri, own: &Authority) -> bool {
    let usual = match origin.scheme_str() {
        Some("http") => 80,
        Some("https") => 443,
        Some(_) | None => return false,
    };
    let port = origin.port_u16().unwrap_or(usual);
    let host = origin.host().unwrap_or_default();
    host.eq_ignore_ascii_case(own.host()) && port == own.port_u16().unwrap_or(usual)
}

fn no_key() -> Trouble {
    Trouble::new(
        Kind::Unauthorized,
        "no valid key: send `Authorization: Bearer <key>`; \
         the first one is in `admin.key` in the server's data folder",
    )
}

#[cfg(test)]
mod tests {
    use axum::http::Request;

    use super::*;

    /// Method, the host asked, `Origin`, `Sec-Fetch-Site`, and whether it may pass.
    const TABLE: &[(&str, &str, &str, &str, bool)] = &[
        ("GET", "ice.example", "", "", true),
        ("GET", "ice.example", "", "none", true),
        ("POST", "ice.example", "", "none", false),
        ("GET", "ice.example", "", "same-origin", true),
        ("GET", "ice.example", "", "same-site", false),
        ("GET", "ice.example", "", "cross-site", false),
        ("GET", "ice.example", "", "new-word", false),
        (
            "POST",
            "ice.example",
            "http://ice.example",
            "same-origin",
            true,
        ),
        ("POST", "ice.example", "http://ICE.example", "", true),
        ("POST", "ice.example", "http://ice.example:80", "", true),
        ("POST", "ice.example:443", "https://ice.example", "", true),
        (
            "POST",
            "ice.example:7070",
            "http://ice.example:7070",
            "",
            true,
        ),
        ("POST", "[::1]:7070", "http://[::1]:7070", "", true),
        ("POST", "ice.example:7070", "http://ice.example", "", false),
        (
            "POST",
            "ice.example:7070",
            "http://ice.example:7071",
            "",
            false,
        ),
        ("POST", "ice.example", "http://ice.example:7070", "", false),
        ("POST", "ice.example", "http://web-a.ice.example", "", false),
        (
            "POST",
            "ice.example",
            "http://evil.example",
            "same-origin",
            false,
        ),
        (
            "POST",
            "ice.example",
            "http://ice.example",
            "same-site",
            false,
        ),
        ("POST", "ice.example", "null", "", false),
        ("POST", "ice.example", "ice.example", "", false),
        ("POST", "ice.example", "ftp://ice.example", "", false),
        ("POST", "ice.example", "", "", true),
    ];

    #[test]
    fn pages_of_others_are_refused() {
        for (method, host, origin, site, fits) in TABLE {
            let mut request = Request::builder().method(*method).uri("/v1/boxes");
            for (name, value) in [("host", host), ("origin", origin), ("sec-fetch-site", site)] {
                if !value.is_empty() {
                    request = request.header(name, *value);
                }
            }
            let (parts, ()) = request.body(()).unwrap().into_parts();
            let passed = same_origin(&parts);
            assert_eq!(passed.is_ok(), *fits, "{method} {host} {origin} {site}");
        }
    }
}
