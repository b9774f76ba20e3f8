//! Connections to the programs in boxes, and to servers elsewhere that their services lead to: opened, kept for a moment between two requests, and ended
//! when the box stops running. Owns their limits and why there is none. Knows HTTP's framing, not what is asked for.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::body::Body;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use icebox_lifecycle::BoxId;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use crate::driver::{Driver, NoConnection, Stream};
use crate::outside::Dialer;

/// Connections into one box at a time, idle ones and tunnels included.
const MOST_OPEN: usize = 4_096;
/// Idle connections kept to one place.
const MOST_IDLE: usize = 32;
/// How often idle connections are looked at.
const TICK: Duration = Duration::from_secs(1);
/// Ticks after which an idle connection is closed: many programs serve one connection at a time, and an idle one must
/// not keep the others out for long.
const IDLE_TICKS: u8 = 3;
/// The largest head of an answer, and how much of its body is in memory at a time.
const BUFFER: usize = 128 * 1024;
/// How often it is looked whether something listens by now.
const LISTENS_BY_NOW: Duration = Duration::from_millis(100);

/// Why a request did not get through to the program in the box.
#[derive(Debug, thiserror::Error)]
pub enum ForwardError {
    /// The box runs, and nothing listens on that port.
    #[error("nothing listens on port {0} of this box")]
    NothingListens(u16),
    /// There is no way into the box: it does not run, or stands still.
    #[error("the box cannot be reached: {0}")]
    Unreachable(String),
    /// The connection ended before there was an answer.
    #[error("the connection ended before there was an answer: {0}")]
    BrokeOff(String),
    /// What listens there does not speak HTTP, or its answer is out of all bounds.
    #[error("what listens on port {0} gave no HTTP answer: {1}")]
    NoHttp(u16, String),
    /// A server elsewhere, which the service leads to, was not reached.
    #[error("{0} cannot be reached: {1}")]
    Elsewhere(String, String),
    /// The request came back here.
    #[error("the request goes round in a circle: what the service leads to leads back here")]
    Circle,
    /// As many connections into the box are open as may be.
    #[error("{MOST_OPEN} connections into this box are open, which is the most there may be")]
    Crowded,
}

/// What is at the other end of a connection.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Spot {
    /// A program in the box, on this port.
    Port(u16),
    /// A server elsewhere, and whether it may be at a private address.
    Elsewhere {
        tls: bool,
        host: String,
        port: u16,
        private_too: bool,
    },
}

impl Spot {
    fn no_http(&self, why: String) -> ForwardError {
        match self {
            Self::Port(port) => ForwardError::NoHttp(*port, why),
            Self::Elsewhere { host, .. } => {
                ForwardError::Elsewhere(host.clone(), format!("it gave no HTTP answer: {why}"))
            }
        }
    }
}

/// The ways into all running boxes, and from them to servers elsewhere.
pub struct Upstreams {
    driver: Arc<dyn Driver>,
    dialer: Dialer,
    pools: Mutex<HashMap<BoxId, Arc<Pool>>>,
}

impl Upstreams {
    /// Nothing is opened before the first request.
    #[must_use]
    pub fn new(driver: Arc<dyn Driver>) -> Self {
        Self {
            driver,
            dialer: Dialer::default(),
            pools: Mutex::default(),
        }
    }

    /// Ends every connection into a box that stops running, tunnels and answers under way included.
    pub fn close(&self, id: BoxId) {
        let pool = lock(&self.pools).remove(&id);
        if let Some(pool) = pool {
            pool.closed.cancel();
        }
    }

    fn pool(&self, id: BoxId) -> Arc<Pool> {
        let mut pools = lock(&self.pools);
        let pool = pools.entry(id).or_insert_with(|| Arc::new(Pool::new()));
        Arc::clone(pool)
    }

    /// A connection for one request. Waits at most `patience` for something to listen.
    pub(super) async fn line(
        &self,
        id: BoxId,
        spot: &Spot,
        reuse: Reuse,
        patience: Duration,
    ) -> Result<Line, ForwardError> {
        let pool = self.pool(id);
        if let Some(line) = pool.take(spot, reuse) {
            return Ok(line);
        }
        let permit = Arc::clone(&pool.permits).try_acquire_owned();
        let permit = permit.map_err(|_| ForwardError::Crowded)?;
        let stream = tokio::select! {
            connected = self.connect(id, spot, patience) => connected?,
            () = pool.closed.cancelled() => {
                return Err(ForwardError::Unreachable("it stopped running".to_owned()));
            }
        };
        let mut http = http1::Builder::new();
        http.max_buf_size(BUFFER);
        let handshake = http.handshake::<_, Body>(TokioIo::new(stream)).await;
        let (sender, connection) =
            handshake.map_err(|error| ForwardError::BrokeOff(error.to_string()))?;
        let end = pool.closed.child_token();
        let ended = end.clone();
        tokio::spawn(async move {
            tokio::select! {
                biased;
                () = ended.cancelled() => {}
                // Whichever way it ends, whoever waits for an answer hears of it.
                _ = connection.with_upgrades() => {}
            }
        });
        Ok(Line {
            inner: Some(Inner {
                sender,
                end,
                _permit: permit,
            }),
            pool,
            spot: spot.clone(),
            used_before: false,
        })
    }

    async fn connect(
        &self,
        id: BoxId,
        spot: &Spot,
        patience: Duration,
    ) -> Result<Stream, ForwardError> {
        let connecting = async {
            match spot {
                Spot::Port(port) => self.program(id, *port).await,
                Spot::Elsewhere {
                    tls,
                    host,
                    port,
                    private_too,
                } => {
                    let open = self.dialer.open(*tls, host, *port, *private_too).await;
                    open.map_err(|why| ForwardError::Elsewhere(host.clone(), why))
                }
            }
        };
        match tokio::time::timeout(patience, connecting).await {
            Ok(connected) => connected,
            Err(_) => Err(match spot {
                Spot::Port(port) => ForwardError::NothingListens(*port),
                Spot::Elsewhere { host, .. } => {
                    let why = format!("no connection within {} s", patience.as_secs());
                    ForwardError::Elsewhere(host.clone(), why)
                }
            }),
        }
    }

    /// A connection to a program in a box, as soon as it listens.
    async fn program(&self, id: BoxId, port: u16) -> Result<Stream, ForwardError> {
        loop {
            match self.driver.connect(id, port).await {
                Ok(stream) => return Ok(stream),
                Err(NoConnection::NothingListens) => tokio::time::sleep(LISTENS_BY_NOW).await,
                Err(NoConnection::Unreachable(why)) => return Err(ForwardError::Unreachable(why)),
            }
        }
    }
}

/// Which idle connections will do for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reuse {
    /// Any: should it have ended meanwhile, the request is repeated on a new one.
    Any,
    /// Only one that was in use a moment ago, which its other end hardly closes just now: the request must not be
    /// repeated.
    Fresh,
    /// None.
    None,
}

/// The connections into one box, for one stretch of running.
struct Pool {
    closed: CancellationToken,
    permits: Arc<Semaphore>,
    idle: Mutex<IdleLines>,
}

#[derive(Default)]
struct IdleLines {
    spots: HashMap<Spot, Vec<Idle>>,
    /// Somebody looks after them already.
    tended: bool,
}

struct Idle {
    inner: Inner,
    ticks: u8,
}

struct Inner {
    sender: SendRequest<Body>,
    /// Ends the connection.
    end: CancellationToken,
    _permit: OwnedSemaphorePermit,
}

impl Pool {
    fn new() -> Self {
        Self {
            closed: CancellationToken::new(),
            permits: Arc::new(Semaphore::new(MOST_OPEN)),
            idle: Mutex::default(),
        }
    }

    fn take(self: &Arc<Self>, spot: &Spot, reuse: Reuse) -> Option<Line> {
        let mut idle = lock(&self.idle);
        let lines = idle.spots.get_mut(spot)?;
        while let Some(last) = lines.last() {
            let old = reuse == Reuse::Fresh && last.ticks > 0;
            if old || reuse == Reuse::None {
                return None;
            }
            let Idle { inner, .. } = lines.pop()?;
            if inner.sender.is_ready() {
                return Some(Line {
                    inner: Some(inner),
                    pool: Arc::clone(self),
                    spot: spot.clone(),
                    used_before: true,
                });
            }
        }
        None
    }

    fn keep(self: &Arc<Self>, spot: Spot, inner: Inner) {
        let mut idle = lock(&self.idle);
        let lines = idle.spots.entry(spot).or_default();
        if self.closed.is_cancelled() || lines.len() >= MOST_IDLE {
            return;
        }
        lines.push(Idle { inner, ticks: 0 });
        if !idle.tended {
            idle.tended = true;
            tokio::spawn(tend(Arc::clone(self)));
        }
    }

    /// Closes what was idle for long; whether there is more to look after.
    fn tick(&self) -> bool {
        let mut idle = lock(&self.idle);
        for lines in idle.spots.values_mut() {
            for line in lines.iter_mut() {
                line.ticks += 1;
            }
            lines.retain(|line| line.ticks < IDLE_TICKS && !line.inner.sender.is_closed());
        }
        idle.spots.retain(|_, lines| !lines.is_empty());
        idle.tended = !idle.spots.is_empty();
        idle.tended
    }
}

async fn tend(pool: Arc<Pool>) {
    loop {
        tokio::select! {
            () = pool.closed.cancelled() => {
                lock(&pool.idle).spots.clear();
                return;
            }
            () = tokio::time::sleep(TICK) => {}
        }
        if !pool.tick() {
            return;
        }
    }
}

/// A connection that carries one request at a time. Dropping it ends it; [`Line::give_back`] keeps it for the next.
pub(super) struct Line {
    inner: Option<Inner>,
    pool: Arc<Pool>,
    spot: Spot,
    /// It has carried a request before, so its other end may be about to close it.
    pub(super) used_before: bool,
}

impl Line {
    /// Sends the request and waits for the head of its answer.
    pub(super) async fn send(
        &mut self,
        request: Request<Body>,
    ) -> Result<Response<Incoming>, SendFailed> {
        let Some(inner) = &mut self.inner else {
            let error = ForwardError::BrokeOff("it has ended".to_owned());
            return Err(SendFailed {
                error,
                unsent: Some(Box::new(request)),
            });
        };
        let sent = inner.sender.try_send_request(request).await;
        sent.map_err(|mut failed| {
            let unsent = failed.take_message().map(Box::new);
            let error = failed.into_error();
            let text = error.to_string();
            let error = if error.is_parse() || error.is_parse_too_large() {
                self.spot.no_http(text)
            } else {
                ForwardError::BrokeOff(text)
            };
            SendFailed { error, unsent }
        })
    }

    /// When the connection is to end, whatever it carries.
    pub(super) fn ended(&self) -> CancellationToken {
        match &self.inner {
            Some(inner) => inner.end.clone(),
            None => self.pool.closed.clone(),
        }
    }

    /// Keeps the connection, as soon as it is done with the request.
    pub(super) fn give_back(mut self) {
        let Some(mut inner) = self.inner.take() else {
            return;
        };
        let (pool, spot) = (Arc::clone(&self.pool), self.spot.clone());
        if inner.sender.is_ready() {
            return pool.keep(spot, inner);
        }
        tokio::spawn(async move {
            // An error means that it ended.
            if inner.sender.ready().await.is_ok() {
                pool.keep(spot, inner);
            }
        });
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        if let Some(inner) = &self.inner {
            inner.end.cancel();
        }
    }
}

/// A request that came to nothing; with the request, if not a byte of it was sent.
pub(super) struct SendFailed {
    pub(super) error: ForwardError,
    pub(super) unsent: Option<Box<Request<Body>>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
