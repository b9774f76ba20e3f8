//! What comes from in front of the boxes: the only file of the edge with status codes. Owns how a page for people and an
//! answer for programs look on the wire.

use axum::body::Body;
use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderMap, HeaderValue, LOCATION,
    REFERRER_POLICY, RETRY_AFTER, SET_COOKIE, X_CONTENT_TYPE_OPTIONS,
};
use http::{Response, StatusCode};
use serde_json::json;

use super::page::{Language, Page};
use crate::random;

/// When to come back to a box that wakes, in seconds (rule 8.2).
const RETRY_AFTER_SEC: u32 = 3;

/// An answer of ours.
#[derive(Clone, Debug)]
pub(super) enum Answer {
    /// The box is not awake (rules 8.2 to 8.4).
    NotAwake {
        /// Its status, as programs are told: `frozen` on the way there and back, too.
        status: &'static str,
        page: Page,
    },
    /// The account is out of credits (rule 8.5); programs are told that it is frozen.
    Paused,
    /// The box has ended, or was lost (rule 8.6).
    Ended { status: &'static str },
    /// Nothing listens on the port (rule 8.7).
    NothingListens { port: u16 },
    /// The program or the box broke off (rule 8.7).
    Unreachable { why: String },
    /// As many connections are open as may be.
    Crowded { why: String },
    /// Only who has a link may look (rule 8.8).
    Private,
    /// There is no such box.
    NoBox,
    /// The box has no such service, or the port is not for others.
    NoService { text: String },
    /// The name in the request is not ours (rule 8.8).
    NotOurs,
    /// The request does not say whom it is for, or says two things.
    Unclear,
    /// A field that others may take for another one.
    Doubtful,
    /// A method that is for proxies.
    NoTunnels,
    /// It came in the clear where only TLS is spoken.
    NeedsTls,
    /// The box is awake: load the page again.
    Awake,
}

impl Answer {
    /// The status that the client gets.
    pub(super) fn status(&self) -> StatusCode {
        match self {
            Self::NotAwake { .. }
            | Self::Ended { .. }
            | Self::NothingListens { .. }
            | Self::Crowded { .. } => StatusCode::SERVICE_UNAVAILABLE,
            Self::Paused => StatusCode::PAYMENT_REQUIRED,
            Self::Unreachable { .. } => StatusCode::BAD_GATEWAY,
            Self::Private => StatusCode::FORBIDDEN,
            Self::NoBox | Self::NoService { .. } => StatusCode::NOT_FOUND,
            Self::NotOurs => StatusCode::MISDIRECTED_REQUEST,
            Self::Unclear | Self::Doubtful | Self::NeedsTls => StatusCode::BAD_REQUEST,
            Self::NoTunnels => StatusCode::METHOD_NOT_ALLOWED,
            Self::Awake => StatusCode::NO_CONTENT,
        }
    }

    /// The sentence for programs, and for the failures in the status of a box.
    pub(super) fn text(&self) -> String {
        match self {
            Self::NotAwake { status, .. } | Self::Ended { status } => format!("box is {status}"),
            Self::Paused => "box is paused: the account is out of credits".to_owned(),
            Self::NothingListens { port } => format!("nothing listens on port {port} of this box"),
            Self::Unreachable { why } => format!("box unreachable: {why}"),
            Self::Crowded { why } => why.clone(),
            Self::Private => "box is private: open it with a link that is still good".to_owned(),
            Self::NoBox => "no such box".to_owned(),
            Self::NoService { text } => text.clone(),
            Self::NotOurs => "this server has no such name; its API answers on localhost, its \
                              addresses, its domain and the names in its settings"
                .to_owned(),
            Self::Unclear => "a request names exactly one host".to_owned(),
            Self::Doubtful => {
                "a field could be taken for another one: its name for one that says where the body ends, or \
                 in HTTP/2 its value begins or ends with a space"
                .to_owned()
            }
            Self::NoTunnels => "this is no proxy for CONNECT".to_owned(),
            Self::NeedsTls => {
                "this port speaks TLS: use https:// instead of http://. If a key was sent in the \
                               clear, revoke it"
                    .to_owned()
            }
            Self::Awake => String::new(),
        }
    }

    fn page(&self) -> Page {
        match self {
            Self::NotAwake { page, .. } => *page,
            Self::Paused => Page::Paused,
            Self::Ended { .. } => Page::Ended,
            Self::NothingListens { port } => Page::NothingListens { port: *port },
            Self::Unreachable { .. } | Self::Crowded { .. } => Page::Unreachable,
            Self::Private => Page::Private,
            Self::NoBox
            | Self::NoService { .. }
            | Self::NotOurs
            | Self::Unclear
            | Self::Doubtful
            | Self::NoTunnels
            | Self::NeedsTls
            | Self::Awake => Page::Nothing,
        }
    }

    /// The answer for somebody who loads a page.
    pub(super) fn for_people(&self, language: Language) -> Response<Body> {
        let (status, page) = (self.status(), self.page());
        let nonce = random::hex::<16>();
        let says = format!("{} {}", status.as_u16(), self.text());
        let mut response = Response::new(Body::from(page.html(language, &says, &nonce)));
        *response.status_mut() = status;
        let headers = response.headers_mut();
        ours(headers, "text/html; charset=utf-8");
        let policy = format!(
            "default-src 'none'; style-src 'nonce-{nonce}'; script-src 'nonce-{nonce}'; connect-src 'self'"
        );
        if let Ok(policy) = HeaderValue::from_str(&policy) {
            headers.insert(CONTENT_SECURITY_POLICY, policy);
        }
        if page.reload_sec().is_some() {
            headers.insert(RETRY_AFTER, RETRY_AFTER_SEC.into());
        }
        response
    }

    /// The answer for programs.
    pub(super) fn for_programs(&self) -> Response<Body> {
        let body = match self {
            Self::Awake => Body::empty(),
            Self::NotAwake { status, .. } | Self::Ended { status } => {
                json_body(&json!({ "error": self.text(), "status": status }))
            }
            Self::NeedsTls => json_body(&json!({ "error": self.text(), "code": "bad_request" })),
            // To programs it is frozen like any other (rule 8.4).
            Self::Paused => json_body(&json!({ "error": "box is frozen", "status": "frozen" })),
            Self::NothingListens { .. }
            | Self::Unreachable { .. }
            | Self::Crowded { .. }
            | Self::Private
            | Self::NoBox
            | Self::NoService { .. }
            | Self::NotOurs
            | Self::Unclear
            | Self::Doubtful
            | Self::NoTunnels => json_body(&json!({ "error": self.text() })),
        };
        let mut response = Response::new(body);
        *response.status_mut() = if matches!(self, Self::Paused) {
            StatusCode::SERVICE_UNAVAILABLE
        } else {
            self.status()
        };
        ours(response.headers_mut(), "application/json");
        response
    }
}

/// Sends a browser that brought a good link to the program, with a cookie in place of the link.
pub(super) fn entered(cookie: &str) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SEE_OTHER;
    let headers = response.headers_mut();
    ours(headers, "text/plain");
    headers.insert(LOCATION, HeaderValue::from_static("/"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    if let Ok(cookie) = HeaderValue::from_str(cookie) {
        headers.insert(SET_COOKIE, cookie);
    }
    response
}

/// Sends somebody on to the box that a service leads to. The method stays what it is.
pub(super) fn lives_at(url: &str) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::TEMPORARY_REDIRECT;
    let headers = response.headers_mut();
    ours(headers, "text/plain");
    if let Ok(url) = HeaderValue::from_str(url) {
        headers.insert(LOCATION, url);
    }
    response
}

/// The answer to a program in a box whose request could not be passed on to where its service leads.
pub(crate) fn not_passed_on(why: &str) -> Response<Body> {
    let mut response = Response::new(json_body(&json!({ "error": why })));
    *response.status_mut() = StatusCode::BAD_GATEWAY;
    ours(response.headers_mut(), "application/json");
    response
}

/// Whether the program itself says that something is wrong with it.
pub(super) fn is_failure<B>(response: &Response<B>) -> bool {
    response.status().is_server_error()
}

fn json_body(json: &serde_json::Value) -> Body {
    Body::from(json.to_string())
}

fn ours(headers: &mut HeaderMap, content_type: &'static str) {
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
}
