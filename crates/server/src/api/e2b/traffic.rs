//! Requests into boxes, addressed by headers: to the daemon, or to any other port. Each is a use of its box from its start to
//! the end of its answer, so it wakes a box that froze for being idle and keeps it awake. Owns who may go where, and what
//! is said when nobody is there.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::HeaderMap;
use axum::middleware::Next;
use axum::response::Response;
use hyper::body::{Frame, SizeHint};
use icebox_lifecycle::BoxId;
use tokio::runtime::Handle;

use super::super::App;
use super::error;
use super::input::box_id;
use crate::commands::{Commands, Kind, Trouble};
use crate::driver::BOXD_PORT;
use crate::edge::forward::{ForwardError, Kept, Place, Way};
use crate::edge::hangup::Hangup;
use crate::engine::{CallUnderWay, View};

pub(super) const ID_HEADER: &str = "e2b-sandbox-id";
pub(super) const PORT_HEADER: &str = "e2b-sandbox-port";
pub(super) const TRAFFIC_TOKEN_HEADER: &str = "e2b-traffic-access-token";

/// What the daemon has for clients; the rest of it is the server's own.
const FOR_CLIENTS: [&str; 6] = [
    "/process.Process/",
    "/filesystem.Filesystem/",
    "/files",
    "/health",
    "/metrics",
    "/envs",
];

/// How long something may take to be found listening: the daemon always does.
const DAEMON_PATIENCE: Duration = Duration::from_secs(10);
const PATIENCE: Duration = Duration::from_secs(1);

/// Answers that last as long as a command does, unless its client hangs up before.
const COMMAND_STREAMS: [&str; 2] = ["/process.Process/Start", "/process.Process/Connect"];

/// Takes out of the way of everything else what is for a box.
pub(in crate::api) async fn traffic(
    State(app): State<App>,
    request: Request,
    next: Next,
) -> Response {
    let headers = request.headers();
    let (id, port) = match (text(headers, ID_HEADER), text(headers, PORT_HEADER)) {
        (None, None) => return next.run(request).await,
        (Some(id), Some(port)) => (id.to_owned(), port),
        (Some(_), None) => return error::bad_traffic("E2b-Sandbox-Port is missing"),
        (None, Some(_)) => return error::bad_traffic("E2b-Sandbox-Id is missing"),
    };
    let Some(port) = port.parse().ok().filter(|port| *port != 0) else {
        return error::bad_traffic("E2b-Sandbox-Port must be a port from 1 to 65535");
    };
    let views = app.commands.engine().views();
    let view = box_id(&id).and_then(|id| views.get(id));
    // A box of another dialect has no token that would say who may use it.
    let view = view.filter(|view| view.sandbox.is_live() && view.record.e2b.is_some());
    match view {
        Some(view) => pass(&app, &view, port, request).await,
        None => gone(&id),
    }
}

/// A header's text; one that is none counts as empty.
fn text<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    let value = headers.get(name)?;
    Some(value.to_str().unwrap_or_default())
}

/// Passes a request on to a port of a box.
pub(super) async fn pass(app: &App, view: &Arc<View>, port: u16, mut request: Request) -> Response {
    let id = view.id();
    if let Some(refused) = refuse(view, port, &request) {
        return refused;
    }
    let call = match app.commands.reach(id).await {
        Ok(call) => Arc::new(call),
        Err(trouble) => return not_there(id.as_str(), &trouble),
    };
    // A WebSocket is a call until it closes.
    let kept = Kept(Arc::<CallUnderWay>::clone(&call));
    request.extensions_mut().insert(kept);
    let hangup = request.extensions().get::<Hangup>().cloned();
    let stream = port == BOXD_PORT && COMMAND_STREAMS.contains(&request.uri().path());
    let way = Way {
        id,
        place: Place::Port(port),
        scheme: app.edge.urls().scheme(),
        patience: if port == BOXD_PORT {
            DAEMON_PATIENCE
        } else {
            PATIENCE
        },
    };
    match app.commands.upstreams().forward(way, request).await {
        Ok(response) => response.map(|body| {
            Body::new(Held {
                body,
                id,
                _call: call,
                hangup,
                stream: stream.then(|| app.commands.clone()),
            })
        }),
        Err(ForwardError::NothingListens(_)) => {
            let text = format!("The sandbox is running but port is not open: {port}");
            error::unreachable(id.as_str(), &text)
        }
        Err(ForwardError::Crowded) => {
            let text = "too many connections into this sandbox are open";
            error::unreachable(id.as_str(), text)
        }
        Err(
            broke @ (ForwardError::BrokeOff(_)
            | ForwardError::NoHttp(..)
            | ForwardError::Elsewhere(..)
            | ForwardError::Circle),
        ) => match still_there(app, id) {
            true => error::unreachable(id.as_str(), &broke.to_string()),
            false => cut_off(id.as_str(), hangup),
        },
        Err(ForwardError::Unreachable(_)) => gone(id.as_str()),
    }
}

/// Why a request may not go there at all.
fn refuse(view: &View, port: u16, request: &Request) -> Option<Response> {
    let id = view.id();
    if port == BOXD_PORT {
        let path = request.uri().path();
        let known = FOR_CLIENTS
            .iter()
            .any(|known| match known.strip_suffix('/') {
                Some(_) => path.starts_with(known),
                None => path == *known,
            });
        return (!known).then(|| error::no_such_path(path));
    }
    let e2b = view.record.e2b.as_deref();
    let token = e2b.and_then(|e2b| e2b.traffic_token.as_deref())?;
    let given = text(request.headers(), TRAFFIC_TOKEN_HEADER);
    match given {
        Some(given) if given == token => None,
        Some(_) => Some(error::forbidden(
            id.as_str(),
            "Invalid traffic access token",
        )),
        None => Some(error::forbidden(
            id.as_str(),
            "Missing traffic access token",
        )),
    }
}

fn still_there(app: &App, id: BoxId) -> bool {
    let view = app.commands.engine().views().get(id);
    view.is_some_and(|view| view.sandbox.is_live() && !view.sandbox.is_paused())
}

/// The box went away under a request: its client learns it as it would from a machine that is gone.
fn cut_off(id: &str, hangup: Option<Hangup>) -> Response {
    if let Some(hangup) = hangup {
        hangup.reset();
    }
    gone(id)
}

/// Clients take these words for a box that is paused, or not there any more.
fn gone(id: &str) -> Response {
    error::unreachable(id, "The sandbox was not found")
}

fn not_there(id: &str, trouble: &Trouble) -> Response {
    let away = [
        Kind::NotFound,
        Kind::BoxGone,
        Kind::Interrupted,
        Kind::Paused,
        Kind::LifetimeOver,
    ];
    if away.contains(&trouble.kind) {
        gone(id)
    } else {
        error::unreachable(id, &trouble.text)
    }
}

/// The body of an answer. While it lasts, its request is a call under way; when the box ends under it, so does the
/// client's connection.
struct Held {
    body: Body,
    id: BoxId,
    _call: Arc<CallUnderWay>,
    hangup: Option<Hangup>,
    /// It is the stream of a command, and has not come to its end.
    stream: Option<Commands>,
}

impl Drop for Held {
    fn drop(&mut self) {
        let id = self.id;
        // Without a runtime the server ends; the next one finds the commands by itself.
        if let Some(commands) = self.stream.take()
            && let Ok(runtime) = Handle::try_current()
        {
            runtime.spawn(async move { commands.left_alone(id).await });
        }
    }
}

impl hyper::body::Body for Held {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        match &frame {
            Some(Ok(_)) => {}
            Some(Err(_)) => {
                self.stream = None;
                if let Some(hangup) = &self.hangup {
                    hangup.reset();
                }
            }
            None => self.stream = None,
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
