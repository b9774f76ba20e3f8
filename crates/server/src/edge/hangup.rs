//! A way to end a client's connection with a reset: some clients tell a box that is gone from a server that hung up by it.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;

use tokio::net::TcpStream;

/// The connection that a request came over; the listener notes it on each request.
#[derive(Clone, Debug)]
pub struct Hangup(Option<Arc<OwnedFd>>);

impl Hangup {
    /// For a connection. Without a descriptor to spare, it ends as connections do elsewhere.
    #[must_use]
    pub fn of(stream: &TcpStream) -> Self {
        let own = stream.as_fd().try_clone_to_owned();
        Self(own.ok().map(Arc::new))
    }

    /// Ends the connection at once, whatever was still to be sent.
    pub fn reset(&self) {
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
