//! HTTP on a listener: takes connections, hands their requests to the router, and ends in good order. Owns how long a head
//! may take to arrive and how long requests may go on at the end; knows no path. How long a body may take is for whoever
//! reads it, since an upload may take its time.

use std::io;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// How long the head of a request may take, and how long a connection without one may stay open.
const HEAD_LIMIT: Duration = Duration::from_secs(60);
/// How long requests under way may go on after the server was told to end.
const GRACE: Duration = Duration::from_secs(5);
/// How long to wait when no connection can be taken: there are too many open files.
const PAUSE: Duration = Duration::from_millis(500);

/// Serves until `shutdown` is over, and what is under way then for a moment more.
pub(crate) async fn serve(
    listener: TcpListener,
    router: Router,
    shutdown: impl Future<Output = ()> + Send,
) {
    serve_within(HEAD_LIMIT, listener, router, shutdown).await;
}

async fn serve_within(
    head_limit: Duration,
    listener: TcpListener,
    router: Router,
    shutdown: impl Future<Output = ()> + Send,
) {
    // Becomes true at the end. Every connection has a receiver, so it is closed when the last connection is.
    let ending = watch::Sender::new(false);
    let mut shutdown = std::pin::pin!(shutdown);
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => take(stream, head_limit, router.clone(), ending.subscribe()),
                Err(error) if is_of_one(&error) => {}
                Err(error) => {
                    tracing::error!(%error, "no connection can be taken");
                    tokio::time::sleep(PAUSE).await;
                }
            },
            () = &mut shutdown => break,
        }
    }
    drop(listener);
    ending.send_replace(true);
    // Whoever is not done by then is cut off.
    let _ = tokio::time::timeout(GRACE, ending.closed()).await;
}

fn take(
    stream: TcpStream,
    head_limit: Duration,
    router: Router,
    mut ending: watch::Receiver<bool>,
) {
    // Small answers must not wait for more to send.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "a connection went away before it was served");
        return;
    }
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(head_limit)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router))
        .with_upgrades();
    tokio::spawn(async move {
        let mut connection = std::pin::pin!(connection);
        let served = tokio::select! {
            served = connection.as_mut() => served,
            _ = ending.changed() => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        if let Err(error) = served {
            tracing::debug!(%error, "a connection broke off");
        }
    });
}

/// Whether an error is about the one connection that was to be taken.
fn is_of_one(error: &io::Error) -> bool {
    let kinds = [
        io::ErrorKind::ConnectionRefused,
        io::ErrorKind::ConnectionAborted,
        io::ErrorKind::ConnectionReset,
    ];
    kinds.contains(&error.kind())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use axum::routing::get;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::sync::{Notify, oneshot};
    use tokio::task::JoinHandle;

    use super::*;

    struct Serving {
        address: std::net::SocketAddr,
        end: oneshot::Sender<()>,
        served: JoinHandle<()>,
    }

    async fn serving(head_limit: Duration, router: Router) -> Serving {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (end, ended) = oneshot::channel::<()>();
        let served = tokio::spawn(serve_within(head_limit, listener, router, async {
            ended.await.unwrap();
        }));
        Serving {
            address,
            end,
            served,
        }
    }

    async fn read_all(mut stream: TcpStream) -> String {
        let mut all = String::new();
        stream.read_to_string(&mut all).await.unwrap();
        all
    }

    #[tokio::test]
    async fn a_head_that_never_comes_whole_ends_its_connection() {
        let router = Router::new().route("/", get(|| async { "here" }));
        let serving = serving(Duration::from_millis(50), router).await;
        for beginning in [
            "",
            "G",
            "GET / HTTP/1.1\r\n",
            "GET / HTTP/1.1\r\nhost: x\r\nx: ",
        ] {
            let mut stream = TcpStream::connect(serving.address).await.unwrap();
            stream.write_all(beginning.as_bytes()).await.unwrap();
            assert_eq!(read_all(stream).await, "", "{beginning:?}");
        }
    }

    #[tokio::test]
    async fn requests_under_way_are_answered_and_no_more_are_taken() {
        let go = Arc::new(Notify::new());
        let begun = Arc::new(Notify::new());
        let slow = get({
            let (go, begun) = (Arc::clone(&go), Arc::clone(&begun));
            move || async move {
                begun.notify_one();
                go.notified().await;
                "done"
            }
        });
        let serving = serving(HEAD_LIMIT, Router::new().route("/", slow)).await;
        let mut stream = TcpStream::connect(serving.address).await.unwrap();
        let request = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n";
        stream.write_all(request).await.unwrap();
        begun.notified().await;
        serving.end.send(()).unwrap();
        // It has stopped to listen once nobody can connect.
        while TcpStream::connect(serving.address).await.is_ok() {
            tokio::task::yield_now().await;
        }
        go.notify_one();
        let answer = read_all(stream).await;
        assert!(answer.ends_with("done"), "{answer}");
        serving.served.await.unwrap();
    }
}
