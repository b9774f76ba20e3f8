//! Who is under way when boxd restarts: files are waited for, whoever waits for something is sent away to ask again.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, HttpBody as _};
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::Response;
use http_body_util::BodyExt as _;
use tokio::sync::watch;

use crate::access::refuse_call;
use crate::error::Error;

/// What those are told who wait for something.
pub(crate) const AWAY: &str = "boxd restarts; ask again";

/// The call that closes the gate, which must get its answer.
const RESTART: &str = "/icebox.boxd.v1.Boxd/Restart";

/// Where calls are that can be asked again, and may wait for long: for commands, for events, for input to be taken.
const REPEATABLE: [&str; 3] = [
    "/icebox.boxd.v1.Boxd/",
    "/process.Process/",
    "/filesystem.Filesystem/WatchDir",
];

/// Lets requests in, until boxd is about to restart.
pub(crate) struct Gate {
    closed: watch::Sender<bool>,
    /// How many requests are under way that must come to their end.
    at_work: watch::Sender<usize>,
}

/// One of them.
struct AtWork(Arc<Gate>);

impl Gate {
    /// An open one.
    pub(crate) fn new() -> Self {
        Self {
            closed: watch::Sender::new(false),
            at_work: watch::Sender::new(0),
        }
    }

    /// Waits until it is closed.
    pub(crate) async fn closed(&self) {
        // An error would mean that the sender is gone, and `self` holds it.
        drop(self.closed.subscribe().wait_for(|closed| *closed).await);
    }

    /// Waits at most `limit` until no files are on their way. It then is so until the caller waits for something.
    pub(crate) async fn quiet(&self, limit: Duration) -> Result<(), Error> {
        let mut at_work = self.at_work.subscribe();
        let quiet = at_work.wait_for(|count| *count == 0);
        if tokio::time::timeout(limit, quiet).await.is_ok() {
            return Ok(());
        }
        let count = *self.at_work.borrow();
        Err(Error::Limit(format!(
            "{count} transfers or other calls for files have not come to their end for {} s; boxd cannot restart under them: \
             try again after them",
            limit.as_secs()
        )))
    }

    /// Sends away whoever waits, and whoever comes.
    pub(crate) fn close(&self) {
        self.closed.send_replace(true);
    }

    /// Lets in again.
    pub(crate) fn open(&self) {
        self.closed.send_replace(false);
    }

    fn is_closed(&self) -> bool {
        *self.closed.borrow()
    }
}

impl AtWork {
    fn begin(gate: &Arc<Gate>) -> Self {
        gate.at_work.send_modify(|count| *count += 1);
        Self(Arc::clone(gate))
    }
}

impl Drop for AtWork {
    fn drop(&mut self) {
        self.0.at_work.send_modify(|count| *count -= 1);
    }
}

/// Lets a request through, or sends it away.
pub(crate) async fn pass(State(gate): State<Arc<Gate>>, request: Request, next: Next) -> Response {
    let away = || refuse_call(StatusCode::SERVICE_UNAVAILABLE, "unavailable", AWAY);
    if gate.is_closed() {
        return away();
    }
    let path = request.uri().path();
    if path == RESTART {
        return next.run(request).await;
    }
    if REPEATABLE.iter().any(|start| path.starts_with(start)) {
        return tokio::select! {
            response = next.run(request) => response,
            () = gate.closed() => away(),
        };
    }
    let at_work = AtWork::begin(&gate);
    let response = next.run(request).await;
    if response.body().size_hint().exact().is_some() {
        return response;
    }
    // A stream is under way until its last piece.
    response.map(|body| {
        Body::new(body.map_frame(move |frame| {
            let _under_way = &at_work;
            frame
        }))
    })
}
