//! A way to end a client's connection with a reset: clients tell a box that is gone from a server that hung up by it.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;

use axum::extract::connect_info::Connected;
use axum::serve::{IncomingStream, Listener};
use tokio::net::TcpStream;

/// The connection that a request came over.
#[derive(Clone, Debug)]
pub(crate) struct Hangup(Option<Arc<OwnedFd>>);

impl<L> Connected<IncomingStream<'_, L>> for Hangup
where
    L: Listener<Io = TcpStream>,
{
    fn connect_info(stream: IncomingStream<'_, L>) -> Self {
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
