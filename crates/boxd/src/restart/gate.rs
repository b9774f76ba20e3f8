//! Who is under way when boxd restarts: files and input that are on their way are waited for, whoever waits for something is
//! sent away to ask again.

use std::sync::{Arc, LazyLock};
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

/// How much is under way that must come to its end. One for all of boxd: work goes on in threads after its caller left.
static AT_WORK: LazyLock<watch::Sender<usize>> = LazyLock::new(|| watch::Sender::new(0));

/// Something that must come to its end before boxd restarts.
pub(crate) struct AtWork(());

impl AtWork {
    /// It is under way until this is dropped.
    pub(crate) fn begin() -> Self {
        AT_WORK.send_modify(|count| *count += 1);
        Self(())
    }

    /// The same work, which is under way from now to its end, wherever it is done.
    pub(crate) fn over<T>(work: impl FnOnce() -> T) -> impl FnOnce() -> T {
        let at_work = Self::begin();
        move || {
            let _until_the_end = at_work;
            work()
        }
    }
}

impl Drop for AtWork {
    fn drop(&mut self) {
        AT_WORK.send_modify(|count| *count -= 1);
    }
}

/// Lets requests in, until boxd is about to restart.
pub(crate) struct Gate {
    closed: watch::Sender<bool>,
}

impl Gate {
    /// An open one.
    pub(crate) fn new() -> Self {
        Self {
            closed: watch::Sender::new(false),
        }
    }

    /// Waits until it is closed.
    pub(crate) async fn closed(&self) {
        // An error would mean that the sender is gone, and `self` holds it.
        drop(self.closed.subscribe().wait_for(|closed| *closed).await);
    }

    /// Waits at most `limit` until nothing is under way that must come to its end. It then is so until the caller waits for
    /// something.
    pub(crate) async fn quiet(&self, limit: Duration) -> Result<(), Error> {
        let mut at_work = AT_WORK.subscribe();
        let quiet = at_work.wait_for(|count| *count == 0);
        if tokio::time::timeout(limit, quiet).await.is_ok() {
            return Ok(());
        }
        Err(Error::Limit(format!(
            "files or input have been on their way for {} s, and boxd cannot restart under them: try again after them",
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

    /// Whether it is closed now.
    pub(crate) fn is_closed(&self) -> bool {
        *self.closed.borrow()
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
    let at_work = AtWork::begin();
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
