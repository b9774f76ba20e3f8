//! The way into a box's network: connections made inside its network namespace, and ended before a freeze.

use std::collections::HashMap;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream as StdTcpStream};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll};
use std::time::Duration;

use icebox_lifecycle::BoxId;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use super::namespace::Namespace;

/// How long a connection inside one machine may take to be made.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Connects to `localhost:port` in the network namespace of process `pid`. Blocks.
pub(super) fn connect(pid: u32, port: u16) -> io::Result<StdTcpStream> {
    let stream = Namespace::Network.within(pid, move || {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        match StdTcpStream::connect_timeout(&address, CONNECT_TIMEOUT) {
            Err(refused) if refused.kind() == io::ErrorKind::ConnectionRefused => {
                // Some programs take `localhost` for its IPv6 address alone.
                let address = SocketAddr::from((Ipv6Addr::LOCALHOST, port));
                StdTcpStream::connect_timeout(&address, CONNECT_TIMEOUT).map_err(|_| refused)
            }
            connected => connected,
        }
    })?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// The server's own connections into boxes. A box that is about to stand still takes no new ones.
#[derive(Clone, Default)]
pub(super) struct Connections {
    table: Arc<Mutex<HashMap<BoxId, Gate>>>,
}

/// The connections into one box.
#[derive(Default)]
struct Gate {
    open: bool,
    next: u64,
    sockets: HashMap<u64, OwnedFd>,
}

impl Connections {
    /// Allows connections into a box.
    pub(super) fn allow(&self, id: BoxId) {
        self.lock().entry(id).or_default().open = true;
    }

    /// Ends every connection into a box at once and allows no new ones. The peer inside sees a reset, so
    /// that no half-open socket gets into the copy.
    pub(super) fn close(&self, id: BoxId) {
        let Some(gate) = self.lock().remove(&id) else {
            return;
        };
        for socket in gate.sockets.values() {
            abort(socket);
        }
    }

    /// Keeps a new connection in the table while it lives. Errors when the box takes none now.
    pub(super) fn register(&self, id: BoxId, stream: StdTcpStream) -> io::Result<BoxStream> {
        stream.set_nonblocking(true)?;
        let held = self.hold(id, || Ok(stream))?;
        self.stream(id, held)
    }

    /// Keeps a socket in the table until it is forgotten. It is made while the table is locked, so that none of a box that
    /// is about to stand still is missed.
    pub(super) fn hold<S: AsFd>(
        &self,
        id: BoxId,
        make: impl FnOnce() -> io::Result<S>,
    ) -> io::Result<(S, u64)> {
        let mut table = self.lock();
        let gate = table.get_mut(&id).filter(|gate| gate.open).ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::NotConnected,
                "the box takes no connections now",
            )
        })?;
        let made = make()?;
        let socket = made.as_fd().try_clone_to_owned()?;
        let number = gate.next;
        gate.next += 1;
        gate.sockets.insert(number, socket);
        Ok((made, number))
    }

    /// A connection that [`Connections::hold`] took in.
    pub(super) fn stream(
        &self,
        id: BoxId,
        (stream, number): (StdTcpStream, u64),
    ) -> io::Result<BoxStream> {
        Ok(BoxStream {
            stream: TcpStream::from_std(stream)?,
            connections: self.clone(),
            id,
            number,
        })
    }

    pub(super) fn forget(&self, id: BoxId, number: u64) {
        if let Some(gate) = self.lock().get_mut(&id) {
            gate.sockets.remove(&number);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<BoxId, Gate>> {
        // The table is whole after any panic: each change is a single insert or remove.
        self.table.lock().unwrap_or_else(|e| e.into_inner())
    }
}

/// Ends a TCP connection with a reset, whoever else holds the socket.
fn abort(socket: &OwnedFd) {
    let unspecified = libc::sockaddr {
        sa_family: libc::AF_UNSPEC.unsigned_abs() as libc::sa_family_t,
        sa_data: [0; 14],
    };
    // SAFETY: the descriptor is open and the address is valid for its whole length. Connecting to the
    // unspecified address disconnects; a connection that is closed already has nothing to be told.
    unsafe {
        libc::connect(
            socket.as_raw_fd(),
            &raw const unspecified,
            size_of::<libc::sockaddr>() as libc::socklen_t,
        );
    }
}

/// A connection into a box.
pub(super) struct BoxStream {
    stream: TcpStream,
    connections: Connections,
    id: BoxId,
    number: u64,
}

impl Drop for BoxStream {
    fn drop(&mut self) {
        self.connections.forget(self.id, self.number);
    }
}

impl AsyncRead for BoxStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for BoxStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, data)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
