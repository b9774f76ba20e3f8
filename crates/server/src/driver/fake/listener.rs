//! A socket of the server's that listens in a fake box: it really listens on this machine and programs of the box reach it
//! while it does. A fake box has one address, whatever is asked for.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use async_trait::async_trait;
use icebox_lifecycle::{BoxId, Processes};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::{Fake, program};
use crate::driver::{Listener, NoListener, Stream};

/// Listens until the box's connections end.
pub(super) async fn listen(
    fake: Fake,
    id: BoxId,
    port: u16,
) -> Result<Box<dyn Listener>, NoListener> {
    let unreachable = |error: io::Error| NoListener::Unreachable(error.to_string());
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await;
    let listener = listener.map_err(unreachable)?;
    let address = listener.local_addr().map_err(unreachable)?;
    let connected = {
        let mut world = fake.world();
        let found = world.boxes.get_mut(&id);
        let found = found.filter(|found| found.processes == Processes::Running);
        let Some(found) = found else {
            return Err(NoListener::Unreachable("it does not run".to_owned()));
        };
        if found.programs.contains_key(&port) || found.listeners.contains_key(&port) {
            return Err(NoListener::Taken(port));
        }
        found.listeners.insert(port, address);
        found.connected.clone()
    };
    Ok(Box::new(Open {
        listener,
        connected,
        fake,
        id,
        port,
        address,
    }))
}

struct Open {
    listener: TcpListener,
    connected: CancellationToken,
    fake: Fake,
    id: BoxId,
    port: u16,
    address: SocketAddr,
}

impl Drop for Open {
    fn drop(&mut self) {
        if let Some(found) = self.fake.world().boxes.get_mut(&self.id)
            && found.listeners.get(&self.port) == Some(&self.address)
        {
            found.listeners.remove(&self.port);
        }
    }
}

#[async_trait]
impl Listener for Open {
    async fn accept(&mut self) -> io::Result<Stream> {
        let (stream, _) = tokio::select! {
            biased;
            () = self.connected.cancelled() => return Err(io::ErrorKind::NotConnected.into()),
            accepted = self.listener.accept() => accepted?,
        };
        Ok(program::until(stream, self.connected.clone()))
    }
}
