//! The server's listener, and a way to end a client's connection with a reset: clients tell a box that is gone from a server
//! that hung up by it.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;

use axum::extract::connect_info::Connected;
use axum::serve::{IncomingStream, Listener};
use tokio::net::{TcpListener, TcpStream};

/// Where connections come in. Small answers do not wait for more to send.
pub(crate) struct Door(pub(crate) TcpListener);

impl Listener for Door {
    type Io = TcpStream;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (TcpStream, SocketAddr) {
        let (stream, peer) = Listener::accept(&mut self.0).await;
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "a connection went away before it was served");
        }
        (stream, peer)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }
}

/// The connection that a request came over.
#[derive(Clone, Debug)]
pub(crate) struct Hangup(Option<Arc<OwnedFd>>);

impl Connected<IncomingStream<'_, Door>> for Hangup {
    fn connect_info(stream: IncomingStream<'_, Door>) -> Self {
        // Without a descriptor to spare, connections end as they do elsewhere.
        let own = stream.io().as_fd().try_clone_to_owned();
        Self(own.ok().map(Arc::new))
    }
}

impl Hangup {
    /// Ends the connection at once, whatever was still to be sent.
    pub(super) fn reset(&self) {
        let Some(socket) = &self.0 else { return };
        let unspecified = libc::sockaddr {
            sa_family: libc::AF_UNSPEC.unsigned_abs() as libc::sa_family_t,
            sa_data: [0; 14],
        };
        // SAFETY: the descriptor is open and the address is valid for its whole length. Connecting to the unspecified
        // address disconnects; a connection that is closed already has nothing to be told.
        unsafe {
            libc::connect(
                socket.as_raw_fd(),
                &raw const unspecified,
                size_of::<libc::sockaddr>() as libc::socklen_t,
            );
        }
    }
}
