//! Links to files that a client signed: nothing in them names the box, but only one box's token makes the signature. Owns
//! how that box is found, within a bound on the work.

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::Method;
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use sha2::{Digest, Sha256};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;

use super::super::App;
use super::error::Failure;
use super::traffic;
use crate::commands::{Kind, Trouble};
use crate::driver::BOXD_PORT;
use crate::engine::View;

const VERSION: &str = "v1_";
/// The characters of a signature without its version.
const SIGNATURE_LEN: usize = 43;
/// What the parts of a link may be together, in bytes.
const LINK_LEN: usize = 16 * 1024;

/// Who looks through the boxes, and how long others wait for it.
static SEARCH: Semaphore = Semaphore::const_new(1);
const SEARCH_WAIT: Duration = Duration::from_secs(5);

/// What a link says.
#[derive(Default)]
struct Link {
    path: String,
    user: String,
    signature: String,
    expiration: Option<String>,
}

/// `/files` without the headers that name a box.
pub(super) async fn signed(State(app): State<App>, request: Request<Body>) -> Response {
    let link = read(request.uri().query().unwrap_or_default());
    let operation = if request.method() == Method::POST {
        "write"
    } else {
        "read"
    };
    match find(&app, link, operation).await {
        Ok(view) => traffic::pass(&app, &view, BOXD_PORT, request).await,
        Err(failure) => failure.into_response(),
    }
}

async fn find(
    app: &App,
    link: Option<Link>,
    operation: &'static str,
) -> Result<Arc<View>, Failure> {
    let link = link.ok_or_else(|| no_box("this link is not signed"))?;
    // Looking through all boxes is work that anybody may ask for: one at a time.
    let turn = tokio::time::timeout(SEARCH_WAIT, SEARCH.acquire()).await;
    let Ok(_turn) = turn else {
        return Err(Trouble::new(Kind::Busy, "too many links at once; try again").into());
    };
    let views = Arc::clone(app.commands.engine().views());
    let search = move || {
        let fits = |view: &View| {
            let e2b = view.record.e2b.as_deref();
            let token = e2b.and_then(|e2b| e2b.access_token.as_deref());
            let signed = |token| link.sign(operation, token) == link.signature;
            view.sandbox.is_live() && token.is_some_and(signed)
        };
        views.all().find(|view| fits(view))
    };
    let found = tokio::task::spawn_blocking(search).await;
    let found = found.map_err(|error| Trouble::internal(&error))?;
    found.ok_or_else(|| no_box("the signature of this link fits no sandbox that is there"))
}

fn read(query: &str) -> Option<Link> {
    if query.len() > LINK_LEN {
        return None;
    }
    let mut link = Link::default();
    for (name, value) in form_urlencoded::parse(query.as_bytes()) {
        match &*name {
            "path" => link.path = value.into_owned(),
            "username" => link.user = value.into_owned(),
            "signature" => link.signature = value.into_owned(),
            "signature_expiration" => link.expiration = Some(value.into_owned()),
            _ => {}
        }
    }
    let code = link.signature.strip_prefix(VERSION)?;
    (code.len() == SIGNATURE_LEN).then_some(link)
}

impl Link {
    /// The signature that this link has if it was made with `token`.
    fn sign(&self, operation: &str, token: &str) -> String {
        let Self { path, user, .. } = self;
        let mut text = format!("{path}:{operation}:{user}:{token}");
        if let Some(expiration) = &self.expiration {
            text.push(':');
            text.push_str(expiration);
        }
        let hash = Sha256::digest(text.as_bytes());
        format!("{VERSION}{}", STANDARD_NO_PAD.encode(hash))
    }
}

fn no_box(text: &str) -> Failure {
    Trouble::new(Kind::Unauthorized, text).into()
}
