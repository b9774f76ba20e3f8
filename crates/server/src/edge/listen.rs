//! The one listener: takes connections, over TLS where the settings want that, and reads requests from them within
//! limits. Owns those limits and the good order in which connections end; what a request comes to is [`Front`]'s.
//!
//! A port speaks either TLS or plain HTTP. Whoever comes to the former in the clear is told so and no more: a redirect
//! would hide that a key crossed the network for all to read.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use http::{Request, Version};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use rustix::net::sockopt;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::server::TlsStream;

use super::Front;
use super::answer::Answer;
use super::forward::Arrival;
use super::framing::Framed;
use super::hangup::Hangup;
use crate::tls::Tls;

/// Connections at a time.
const MOST_CONNECTIONS: usize = 20_000;
/// How long a connection may be idle between two requests, or take to send the head of one.
const HEAD_LIMIT: Duration = Duration::from_secs(60);
/// The largest head of a request, in bytes; a longer one is refused with 431.
pub(super) const HEAD_SIZE: usize = 64 * 1024;
/// The most fields in it: what the HTTP library has room for without asking for memory with each request.
pub(super) const MOST_HEADERS: usize = 100;
/// Requests at a time on one HTTP/2 connection.
const MOST_STREAMS: u32 = 256;
/// What is under way of one HTTP/2 body, in bytes.
const WINDOW: u32 = 1024 * 1024;
/// After this long without a sign of life, the other end is asked for one.
const QUIET: Duration = Duration::from_secs(60);
/// How often it is asked before the connection ends.
const QUESTIONS: u32 = 4;
/// How long a client may take to agree on TLS.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(10);
/// Handshakes at a time; more wait, within that limit.
const MOST_HANDSHAKES: usize = 256;
/// How TLS begins.
const TLS_HANDSHAKE: u8 = 0x16;
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
    tls: Option<Tls>,
    shutdown: impl Future<Output = ()>,
) -> io::Result<()> {
    let graceful = GracefulShutdown::new();
    let room = Arc::new(Semaphore::new(MOST_CONNECTIONS));
    let handshakes = Arc::new(Semaphore::new(MOST_HANDSHAKES));
    let http = Arc::new(builder(HEAD_LIMIT));
    tokio::pin!(shutdown);
    loop {
        let accepted = tokio::select! {
            accepted = accept(&listener, &room) => accepted,
            () = &mut shutdown => break,
        };
        let Some((stream, permit)) = accepted? else {
            continue;
        };
        let Some(connection) = Connection::greet(&stream, &front, &http, graceful.watcher()) else {
            continue;
        };
        let (tls, handshakes) = (tls.clone(), Arc::clone(&handshakes));
        tokio::spawn(async move {
            // Held while the connection is there.
            let _permit = permit;
            let Some(tls) = tls else {
                return connection.speak(stream).await;
            };
            match secure(&tls, &handshakes, stream, HANDSHAKE_LIMIT).await {
                Ok(Secured::Tls(stream)) => connection.speak(stream).await,
                Ok(Secured::Plain(stream)) => connection.refuse(stream).await,
                Err(error) => tracing::debug!(%error, "no TLS with a client"),
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

fn builder(head_limit: Duration) -> Builder<TokioExecutor> {
    let mut http = Builder::new(TokioExecutor::new());
    http.http1()
        .timer(TokioTimer::new())
        .header_read_timeout(head_limit)
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

/// A connection that was taken.
struct Connection {
    front: Front,
    http: Arc<Builder<TokioExecutor>>,
    watcher: Watcher,
    arrival: Arrival,
    hangup: Hangup,
}

impl Connection {
    /// Sets up a new connection; `None` when it is gone already.
    fn greet(
        stream: &TcpStream,
        front: &Front,
        http: &Arc<Builder<TokioExecutor>>,
        watcher: Watcher,
    ) -> Option<Self> {
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
        Some(Self {
            front: front.clone(),
            http: Arc::clone(http),
            watcher,
            arrival: Arrival { peer },
            hangup: Hangup::of(stream),
        })
    }

    /// Answers requests to the end of the connection.
    async fn speak<S>(self, stream: S)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let Self {
            front,
            http,
            watcher,
            arrival,
            hangup,
        } = self;
        let service = service_fn(move |request: Request<Incoming>| {
            let (front, hangup) = (front.clone(), hangup.clone());
            async move {
                let mut request = request.map(Body::new);
                // Others have requests on an HTTP/2 connection, too: a reset would cut them off.
                let alone = request.version() != Version::HTTP_2;
                request.extensions_mut().insert(arrival);
                if alone {
                    request.extensions_mut().insert(hangup);
                }
                Ok::<_, Infallible>(front.serve(request).await)
            }
        });
        let stream = TokioIo::new(Framed::new(stream, HEAD_LIMIT));
        let connection = http.serve_connection_with_upgrades(stream, service);
        // How a connection ends is its client's affair.
        if let Err(error) = watcher.watch(connection.into_owned()).await {
            tracing::debug!(%error, "a connection ended early");
        }
    }

    /// Tells a client that it should have come over TLS.
    async fn refuse(self, stream: TcpStream) {
        let service = service_fn(|request: Request<Incoming>| async move {
            let answer = super::refused(Answer::NeedsTls, request.version());
            Ok::<_, Infallible>(answer)
        });
        let stream = TokioIo::new(Framed::new(stream, HEAD_LIMIT));
        let connection = self.http.serve_connection(stream, service);
        if let Err(error) = self.watcher.watch(connection.into_owned()).await {
            tracing::debug!(%error, "a connection ended early");
        }
    }
}

/// What a client came with to a port that speaks TLS.
enum Secured {
    Tls(Box<TlsStream<TcpStream>>),
    Plain(TcpStream),
}

async fn secure(
    tls: &Tls,
    handshakes: &Semaphore,
    stream: TcpStream,
    limit: Duration,
) -> io::Result<Secured> {
    let agree = async {
        let mut first = [0];
        if stream.peek(&mut first).await? == 1 && first[0] != TLS_HANDSHAKE {
            return Ok(Secured::Plain(stream));
        }
        // Only for those who said something: the silent ones keep nobody out.
        let _place = handshakes.acquire().await.map_err(io::Error::other)?;
        let stream = tls.accept(stream).await?;
        Ok::<_, io::Error>(Secured::Tls(Box::new(stream)))
    };
    let agreed = tokio::time::timeout(limit, agree).await;
    agreed.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

#[cfg(test)]
mod tests {
    use http::Response;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    const SHORT: Duration = Duration::from_millis(20);

    /// What a client hears that says this and no more, until the connection ends.
    async fn hears(said: &str) -> String {
        let (mut client, server) = tokio::io::duplex(64 * 1024);
        let service = service_fn(|_: Request<Incoming>| async {
            Ok::<_, Infallible>(Response::new(Body::from("answer")))
        });
        let http = builder(SHORT);
        let stream = TokioIo::new(Framed::new(server, SHORT));
        client.write_all(said.as_bytes()).await.unwrap();
        // It ends by itself, for the client does not go away.
        let _ = http.serve_connection_with_upgrades(stream, service).await;
        let mut heard = String::new();
        client.read_to_string(&mut heard).await.unwrap();
        heard
    }

    #[tokio::test]
    async fn a_head_that_does_not_come_is_not_waited_for() {
        let whole = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
        assert_eq!(hears("").await, "");
        assert_eq!(hears("PRI * HT").await, "");
        let half = hears("GET / HTTP/1.1\r\nHost: a").await;
        assert!(!half.contains("200 OK"), "{half}");
        let idle = hears(whole).await;
        assert!(idle.ends_with("answer"), "{idle}");
        let then_half = hears(&format!("{whole}GET / HT")).await;
        assert_eq!(then_half.matches("200 OK").count(), 1, "{then_half}");
    }
}
