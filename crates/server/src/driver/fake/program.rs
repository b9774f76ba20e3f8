//! A program in a fake box: one that really listens on this machine, reached through a stream that ends with the box's
//! other connections.

use std::net::SocketAddr;

use tokio::io::copy_bidirectional;
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

use crate::driver::{NoConnection, Stream};

/// How much is on the way in one direction, in bytes.
const BUFFER: usize = 64 * 1024;

/// A connection to the program; it ends with `connected`.
pub(super) async fn connection(
    program: SocketAddr,
    connected: CancellationToken,
) -> Result<Stream, NoConnection> {
    let stream = TcpStream::connect(program).await;
    let stream = stream.map_err(|_| NoConnection::NothingListens)?;
    Ok(until(stream, connected))
}

/// A connection that ends with `connected`.
pub(super) fn until(mut stream: TcpStream, connected: CancellationToken) -> Stream {
    let (ours, mut theirs) = tokio::io::duplex(BUFFER);
    tokio::spawn(async move {
        // Whichever way it ends, both sides see their streams end.
        tokio::select! {
            biased;
            () = connected.cancelled() => {}
            _ = copy_bidirectional(&mut stream, &mut theirs) => {}
        }
    });
    Box::new(ours)
}
