//! Speaks to the daemon inside each box, over connections that the driver opens. Owns one small pool of idle connections
//! for each running box, and lets go of it, and of those to the box's other programs, when the box stops running. Knows
//! the daemon's protocol; decides nothing.

pub mod raw;

use std::collections::HashMap;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use connectrpc::client::{CallOptions, ClientBody, ClientConfig, ServiceTransport};
use http::Uri;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::Client as Pool;
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use icebox_lifecycle::BoxId;
use icebox_wire::boxd::{
    BoxdClient, ConfigureRequest, ConnectError, ErrorCode, OutputRequest, OutputResponse, ProcInfo,
    ProcsRequest, WaitRequest,
};

use crate::driver::{BOXD_PORT, Driver, Stream};
use crate::edge::forward::Upstreams;
use crate::wires::Wires;

/// Idle connections kept for each running box.
const MOST_IDLE: usize = 4;
/// How long one may stay idle.
const IDLE_LIMIT: Duration = Duration::from_secs(60);
/// How much longer than the daemon's own limit an answer may take.
const SLACK: Duration = Duration::from_secs(10);
/// How long a label of a command is, in characters.
const LABEL_LEN: usize = 80;

/// The connections to one box's daemon. Clones share them.
type Transport = ServiceTransport<Pool<Dialer, ClientBody>>;
/// The client of one box's daemon. A clone shares its connections.
pub type Client = BoxdClient<Transport>;
/// The same daemon's processes on terminals.
pub type Processes = icebox_wire::process::ProcessClient<Transport>;
/// The same daemon's folders.
pub type Folders = icebox_wire::filesystem::FilesystemClient<Transport>;

/// The daemons of all running boxes.
pub struct Boxds {
    driver: Arc<dyn Driver>,
    transports: Mutex<HashMap<BoxId, Transport>>,
    upstreams: Upstreams,
    wires: Wires,
}

/// Why waiting for a command came to nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitError {
    /// The daemon knows no such command.
    Unknown,
    /// The daemon did not answer.
    Silent,
}

impl Boxds {
    /// Nothing is opened before the first call.
    #[must_use]
    pub fn new(driver: Arc<dyn Driver>) -> Self {
        Self {
            upstreams: Upstreams::new(Arc::clone(&driver)),
            wires: Wires::new(Arc::clone(&driver)),
            driver,
            transports: Mutex::default(),
        }
    }

    /// The client for a running box.
    #[must_use]
    pub fn client(&self, id: BoxId) -> Client {
        BoxdClient::new(self.transport(id), config())
    }

    /// The client for the processes of a running box.
    #[must_use]
    pub fn processes(&self, id: BoxId) -> Processes {
        Processes::new(self.transport(id), config())
    }

    /// The client for the folders of a running box.
    #[must_use]
    pub fn folders(&self, id: BoxId) -> Folders {
        Folders::new(self.transport(id), config())
    }

    fn transport(&self, id: BoxId) -> Transport {
        let make = || {
            let pool = Pool::builder(TokioExecutor::new())
                .pool_max_idle_per_host(MOST_IDLE)
                .pool_idle_timeout(IDLE_LIMIT)
                .pool_timer(TokioTimer::new())
                .build(Dialer {
                    driver: Arc::clone(&self.driver),
                    id,
                });
            ServiceTransport::new(pool)
        };
        self.lock().entry(id).or_insert_with(make).clone()
    }

    /// The connections to the other programs in the boxes.
    #[must_use]
    pub fn upstreams(&self) -> &Upstreams {
        &self.upstreams
    }

    /// What is open in the boxes for their own programs.
    #[must_use]
    pub fn wires(&self) -> &Wires {
        &self.wires
    }

    /// Closes the idle connections of a box that does not run any more, and all connections to its programs.
    pub fn forget(&self, id: BoxId) {
        self.lock().remove(&id);
        self.upstreams.close(id);
    }

    /// Tells the daemon of a box that just booted what it has to know.
    pub async fn configure(
        &self,
        id: BoxId,
        settings: ConfigureRequest,
    ) -> Result<(), ConnectError> {
        let options = CallOptions::default().with_timeout(SLACK);
        let client = self.client(id);
        let told = client.configure_with_options(settings, options).await;
        told.map(drop)
    }

    /// Waits at most `limit` for a command's end: the command, if it came.
    pub async fn wait(
        &self,
        id: BoxId,
        exec: &str,
        limit: Duration,
    ) -> Result<Option<ProcInfo>, WaitError> {
        let request = WaitRequest {
            exec_id: exec.to_owned(),
            wait_ms: u64::try_from(limit.as_millis()).unwrap_or(u64::MAX),
            tail_bytes: Some(0),
            ..WaitRequest::default()
        };
        let options = CallOptions::default().with_timeout(limit + SLACK);
        let client = self.client(id);
        match client.wait_with_options(request, options).await {
            Ok(answer) => {
                let proc = ProcInfo::clone(&answer.into_owned().result.proc);
                Ok((!proc.running).then_some(proc))
            }
            Err(error) if error.code == ErrorCode::NotFound => Err(WaitError::Unknown),
            Err(_) => Err(WaitError::Silent),
        }
    }

    /// The commands of a box, those that run and those that have ended and are still known.
    pub async fn procs(&self, id: BoxId) -> Result<Vec<ProcInfo>, ConnectError> {
        let options = CallOptions::default().with_timeout(SLACK);
        let request = ProcsRequest::default();
        let answer = self.client(id).procs_with_options(request, options).await?;
        Ok(answer.into_owned().procs.into_iter().collect())
    }

    /// Kept output of a command, from an offset; waits for it as long as the request says.
    pub async fn output(
        &self,
        id: BoxId,
        request: OutputRequest,
    ) -> Result<OutputResponse, ConnectError> {
        let limit = Duration::from_millis(request.wait_ms) + SLACK;
        let options = CallOptions::default().with_timeout(limit);
        let client = self.client(id);
        let answer = client.output_with_options(request, options).await?;
        Ok(answer.into_owned())
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<BoxId, Transport>> {
        self.transports
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// The authority only fills a header: every connection leads to the box's daemon.
fn config() -> ClientConfig {
    ClientConfig::new(Uri::from_static("http://boxd"))
}

/// A command line, cut to what a person takes in at a glance.
#[must_use]
pub fn label(cmd: &str) -> String {
    let line = cmd.lines().next().unwrap_or_default().trim();
    let mut chars = line.chars();
    let mut label: String = chars.by_ref().take(LABEL_LEN).collect();
    if chars.next().is_some() || cmd.lines().nth(1).is_some() {
        label.push('…');
    }
    label
}

/// Opens connections to one box's daemon.
#[derive(Clone)]
pub struct Dialer {
    driver: Arc<dyn Driver>,
    id: BoxId,
}

impl tower::Service<Uri> for Dialer {
    type Response = Wire;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Wire>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let (driver, id) = (Arc::clone(&self.driver), self.id);
        Box::pin(async move {
            let stream = driver.connect(id, BOXD_PORT).await;
            let stream = stream.map_err(|error| io::Error::other(error.to_string()))?;
            Ok(Wire(TokioIo::new(stream)))
        })
    }
}

/// One connection, as the pool wants it.
pub struct Wire(TokioIo<Stream>);

impl Connection for Wire {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl Read for Wire {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl Write for Wire {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_one_short_line() {
        assert_eq!(label("npm run dev"), "npm run dev");
        assert_eq!(label("a\nb"), "a…");
        assert_eq!(label(&"x".repeat(100)).chars().count(), 81);
    }
}
