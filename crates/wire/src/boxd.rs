//! boxd's own protocol, and a client that reaches boxd over connections its caller opens.
//!
//! Owns the pairing of the generated client with a connection pool. How a connection into a box comes about (in which
//! network namespace, to which port) is the caller's business: it hands over a [`Dial`].

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use connectrpc::client::{ClientBody, ClientConfig, ServiceTransport};
use http::Uri;
use hyper_util::client::legacy::Client as Pool;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::net::TcpStream;

pub use crate::generated::icebox::boxd::v1::*;
pub use connectrpc::{ConnectError, ErrorCode};

/// The TCP port boxd listens on in every box.
pub const PORT: u16 = 49983;

/// Where boxd is in a box.
pub const PLACE: &str = "/usr/lib/icebox/boxd";

/// Where its successor is while it takes over.
pub const NEXT_PLACE: &str = "/usr/lib/icebox/boxd-next";

/// What a boxd says that could take over.
pub const TAKES_OVER: &str = "boxd takes over\n";

/// The exit code of a program that ended while boxd restarted, if it cannot be known any more. Programs have none below 0.
pub const UNKNOWN_EXIT: i32 = -1;

/// How many idle connections a [`Transport`] keeps.
const MAX_IDLE: usize = 8;

/// How long a connection may stay idle before it is closed.
const MAX_IDLE_TIME: Duration = Duration::from_secs(60);

/// What a [`Dial`] answers with.
pub type Dialing = Pin<Box<dyn Future<Output = io::Result<TcpStream>> + Send>>;

/// Opens one connection to the boxd of one box. It should bound its own time.
pub type Dial = Arc<dyn Fn() -> Dialing + Send + Sync>;

/// HTTP/1.1 to one boxd: a small pool that dials when no idle connection is left. Clones share the pool; dropping the
/// last one closes what is idle. Make a new one after every thaw, because the box's side of old connections is gone.
pub type Transport = ServiceTransport<Pool<Dialer, ClientBody>>;

/// The client of boxd's own service.
pub type Client = BoxdClient<Transport>;

/// The client of the E2B process service, on the same connections.
pub type ProcessClient = crate::process::ProcessClient<Transport>;

/// The client of the E2B filesystem service, on the same connections.
pub type FilesystemClient = crate::filesystem::FilesystemClient<Transport>;

/// Turns a [`Dial`] into the connector the pool asks for.
#[derive(Clone)]
pub struct Dialer(Dial);

impl tower::Service<Uri> for Dialer {
    type Response = TokioIo<TcpStream>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<TokioIo<TcpStream>>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let dialing = (self.0)();
        Box::pin(async move {
            let stream = dialing.await?;
            stream.set_nodelay(true)?;
            Ok(TokioIo::new(stream))
        })
    }
}

/// A transport over connections from `dial`. Nothing is opened before the first call.
pub fn transport(dial: Dial) -> Transport {
    let pool = Pool::builder(TokioExecutor::new())
        .pool_max_idle_per_host(MAX_IDLE)
        .pool_idle_timeout(MAX_IDLE_TIME)
        .pool_timer(TokioTimer::new())
        .build(Dialer(dial));
    ServiceTransport::new(pool)
}

/// The client of boxd's own service over `transport`, in binary protobuf and without deadlines of its own.
pub fn client(transport: &Transport) -> Client {
    BoxdClient::new(transport.clone(), config())
}

/// The client of the E2B process service over `transport`.
pub fn process_client(transport: &Transport) -> ProcessClient {
    crate::process::ProcessClient::new(transport.clone(), config())
}

/// The client of the E2B filesystem service over `transport`.
pub fn filesystem_client(transport: &Transport) -> FilesystemClient {
    crate::filesystem::FilesystemClient::new(transport.clone(), config())
}

/// The authority only fills the `Host` header: every connection leads to the one boxd its `Dial` knows.
fn config() -> ClientConfig {
    ClientConfig::new(Uri::from_static("http://boxd"))
}
