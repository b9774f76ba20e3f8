//! The one listener: takes connections and reads requests from them within limits. Owns those limits
//! and the good order in which connections end; what a request comes to is [`Front`]'s.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use http::Request;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::GracefulShutdown;
use rustix::net::sockopt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use super::Front;
use super::forward::Arrival;
use super::framing::Framed;
use super::hangup::Hangup;

/// Connections at a time.
const MOST_CONNECTIONS: usize = 20_000;
/// How long a connection may be idle between two requests, or take to send the head of one.
const HEAD_LIMIT: Duration = Duration::from_secs(60);
/// The largest head of a request, in bytes; a longer one is refused with 431.
pub(super) const HEAD_SIZE: usize = 64 * 1024;
/// The most fields in it.
pub(super) const MOST_HEADERS: usize = 128;
/// Requests at a time on one HTTP/2 connection.
const MOST_STREAMS: u32 = 256;
/// What is under way of one HTTP/2 body, in bytes.
const WINDOW: u32 = 1024 * 1024;
/// After this long without a sign of life, the other end is asked for one.
const QUIET: Duration = Duration::from_secs(60);
/// How often it is asked before the connection ends.
const QUESTIONS: u32 = 4;
/// How long to wait when there are no sockets left.
const NO_SOCKETS: Duration = Duration::from_millis(50);

/// What a connection that went away again looks like.
const GONE: [io::ErrorKind; 3] = [
    io::ErrorKind::ConnectionAborted,
    io::ErrorKind::ConnectionReset,
    io::ErrorKind::ConnectionRefused,
];

/// Serves until `shutdown` is over, then until the answers under way are out.
pub async fn serve(
    listener: TcpListener,
    front: Front,
    shutdown: impl Future<Output = ()>,
) -> io::Result<()> {
    let graceful = GracefulShutdown::new();
    let room = Arc::new(Semaphore::new(MOST_CONNECTIONS));
    let http = Arc::new(builder());
    tokio::pin!(shutdown);
    loop {
        let accepted = tokio::select! {
            accepted = accept(&listener, &room) => accepted,
            () = &mut shutdown => break,
        };
        let Some((stream, permit)) = accepted? else {
            continue;
        };
        let (front, http) = (front.clone(), Arc::clone(&http));
        let watcher = graceful.watcher();
        tokio::spawn(async move {
            // Held while the connection is there.
            let _permit = permit;
            let Some(arrival) = greet(&stream) else {
                return;
            };
            let hangup = Hangup::of(&stream);
            let stream = Framed::new(stream);
            let service = service_fn(move |request: Request<Incoming>| {
                let (front, hangup) = (front.clone(), hangup.clone());
                async move {
                    let mut request = request.map(Body::new);
                    request.extensions_mut().insert(arrival);
                    request.extensions_mut().insert(hangup);
                    Ok::<_, Infallible>(front.serve(request).await)
                }
            });
            let connection = http.serve_connection_with_upgrades(TokioIo::new(stream), service);
            // How a connection ends is its client's affair.
            if let Err(error) = watcher.watch(connection.into_owned()).await {
                tracing::debug!(%error, "a connection ended early");
            }
        });
    }
    drop(listener);
    graceful.shutdown().await;
    Ok(())
}

/// The next connection, once there is room for it; `None` when one came to nothing.
async fn accept(
    listener: &TcpListener,
    room: &Arc<Semaphore>,
) -> io::Result<Option<(TcpStream, tokio::sync::OwnedSemaphorePermit)>> {
    let Ok(permit) = Arc::clone(room).acquire_owned().await else {
        return Ok(None);
    };
    match listener.accept().await {
        Ok((stream, _)) => Ok(Some((stream, permit))),
        // The client was gone before it was served.
        Err(error) if GONE.contains(&error.kind()) => Ok(None),
        Err(error) => {
            tracing::warn!(%error, "no connection can be taken right now");
            tokio::time::sleep(NO_SOCKETS).await;
            Ok(None)
        }
    }
}

fn builder() -> Builder<TokioExecutor> {
    let mut http = Builder::new(TokioExecutor::new());
    http.http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_LIMIT)
        .max_headers(MOST_HEADERS)
        .max_buf_size(HEAD_SIZE);
    http.http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(MOST_STREAMS)
        .max_header_list_size(HEAD_SIZE as u32)
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(2 * WINDOW)
        .keep_alive_interval(QUIET)
        .keep_alive_timeout(QUIET);
    http
}

/// Sets up a new connection; `None` when it is gone already.
fn greet(stream: &TcpStream) -> Option<Arrival> {
    let peer = stream.peer_addr().ok()?;
    let set_up = || -> io::Result<()> {
        // Small answers must not wait for more to send.
        stream.set_nodelay(true)?;
        // A laptop that was closed says no goodbye.
        sockopt::set_socket_keepalive(stream, true)?;
        sockopt::set_tcp_keepidle(stream, QUIET)?;
        sockopt::set_tcp_keepintvl(stream, QUIET)?;
        sockopt::set_tcp_keepcnt(stream, QUESTIONS)?;
        Ok(())
    };
    if let Err(error) = set_up() {
        tracing::debug!(%error, "a connection went away before it was served");
        return None;
    }
    Some(Arrival { peer })
}
