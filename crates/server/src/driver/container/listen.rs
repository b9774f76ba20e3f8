//! Listening inside a box's network, so that its programs reach what is elsewhere. The sockets are the server's: they stand
//! in the same table as its connections into the box, are ended with them before a freeze, and no copy knows of them.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};

use async_trait::async_trait;
use icebox_lifecycle::BoxId;
use tokio::io::unix::AsyncFd;

use super::Host;
use super::namespace::Namespace;
use super::netns::Connections;
use crate::driver::{Listener, NoListener, Stream};

/// Begins to listen in a running box. Blocks for a moment; the runtime's threads must be there to hear of connections.
pub(super) fn listen(
    host: &Host,
    id: BoxId,
    address: Ipv4Addr,
    port: u16,
) -> Result<BoxListener, NoListener> {
    let unreachable = |error: io::Error| NoListener::Unreachable(error.to_string());
    let pid = host.require_first_process(id);
    let pid = pid.map_err(|gone| NoListener::Unreachable(gone.to_string()))?;
    let made = Namespace::Network.within(pid, move || {
        let listener = TcpListener::bind(SocketAddr::from((address, port)))?;
        listener.set_nonblocking(true)?;
        Ok(listener)
    });
    let listener = made.map_err(|error| {
        if error.kind() == io::ErrorKind::AddrInUse {
            return NoListener::Taken(port);
        }
        unreachable(error)
    })?;
    let connections = host.connections.clone();
    let held = connections.hold(id, || Ok(listener));
    let (listener, number) = held.map_err(unreachable)?;
    // SAFETY: a `TcpListener` names the same open socket until it is dropped, which is after the registration.
    let listener = unsafe { AsyncFd::register(listener) }.map_err(|error| {
        connections.forget(id, number);
        unreachable(error.into())
    })?;
    Ok(BoxListener {
        listener,
        connections,
        id,
        number,
    })
}

/// A socket of the server's that listens in a box.
pub(super) struct BoxListener {
    listener: AsyncFd<TcpListener>,
    connections: Connections,
    id: BoxId,
    number: u64,
}

impl Drop for BoxListener {
    fn drop(&mut self) {
        self.connections.forget(self.id, self.number);
    }
}

#[async_trait]
impl Listener for BoxListener {
    async fn accept(&mut self) -> io::Result<Stream> {
        loop {
            let mut ready = self.listener.readable().await?;
            let accepted = ready.try_io(|listener| {
                // Into the table as it is taken: a box that stands still must have no connection that nobody ends.
                self.connections.hold(self.id, || {
                    let (stream, _) = listener.get_ref().accept()?;
                    stream.set_nonblocking(true)?;
                    stream.set_nodelay(true)?;
                    Ok(stream)
                })
            });
            match accepted {
                Ok(held) => {
                    let stream = self.connections.stream(self.id, held?)?;
                    return Ok(Box::new(stream));
                }
                Err(_would_block) => {}
            }
        }
    }
}
