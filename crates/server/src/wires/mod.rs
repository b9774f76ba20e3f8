//! Where the names in a box lead. For each service that is not the box's own program on that port, and for what the box's
//! environment lets it reach, the server listens in the box's network and carries what comes to the other end: another port
//! of the box, another box, a server elsewhere, an endpoint in the host's own networks. Names are lines in `/etc/hosts`.
//!
//! Owns what is open in which running box. It follows from the record alone: opened before a box's first call runs after a
//! boot or a thaw (rule 5.10), closed before a freeze, opened again by the next server. Decides nothing about a box's life:
//! that a link is use and wakes is asked of the engine like everything else.

mod carry;
mod hosts;
mod link;
mod networks;
mod port;

use std::collections::{BTreeMap, HashMap};
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use icebox_lifecycle::{BoxId, State};
use tokio::sync::SetOnce;

use crate::boxd::Boxds;
use crate::driver::Driver;
use crate::engine::Engine;
use crate::outside::{Reach, Target};
use crate::record::{AccountId, Leads, Record};
use crate::store::{Beside, StoreError};

pub use networks::{Connection, Endpoint, Endpoints, Look, MOST_ENDPOINTS, Networks};
pub use port::Shown;

use port::Port;

/// How long a box that comes up waits for the rest of a server that is just starting.
const START_LIMIT: Duration = Duration::from_secs(5);

/// What is open in all running boxes. Clones share it.
#[derive(Clone)]
pub struct Wires(Arc<Inner>);

struct Inner {
    driver: Arc<dyn Driver>,
    rest: SetOnce<Rest>,
    boxes: Mutex<HashMap<BoxId, Arc<Wired>>>,
    links: link::Open,
    networks: Networks,
}

/// What exists only once the server is put together.
struct Rest {
    engine: Engine,
    boxds: Weak<Boxds>,
    beside: Arc<Beside>,
    reach: Reach,
}

/// One box.
#[derive(Default)]
struct Wired {
    /// One at a time brings it up to date.
    turn: tokio::sync::Mutex<()>,
    ports: Mutex<BTreeMap<Spot, Port>>,
    /// The names that were written last.
    names: Mutex<Option<String>>,
    /// Why they could not be.
    names_error: Mutex<Option<String>>,
}

/// A loopback address and a port in a box.
type Spot = (Ipv4Addr, u16);

/// Where a connection in a box goes.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Way {
    /// A program in the box, on this port.
    Own(u16),
    /// A port of another box.
    Link { id: BoxId, port: u16 },
    /// A server elsewhere that speaks HTTP.
    External(Target),
    /// What the environment names, in a network that the host reaches.
    Endpoint(Endpoint),
}

/// Whose box it is, and which.
#[derive(Clone, Copy, Debug)]
struct Source {
    id: BoxId,
    account: AccountId,
}

impl Wires {
    /// Nothing is open yet.
    #[must_use]
    pub fn new(driver: Arc<dyn Driver>) -> Self {
        Self(Arc::new(Inner {
            driver,
            rest: SetOnce::new(),
            boxes: Mutex::default(),
            links: link::Open::default(),
            networks: Networks::default(),
        }))
    }

    /// The server is put together: what an earlier one left running is opened again.
    pub fn attach(
        &self,
        engine: Engine,
        boxds: &Arc<Boxds>,
        beside: Arc<Beside>,
        reach: Reach,
    ) -> Result<(), StoreError> {
        self.0.networks.load(&beside)?;
        let views = Arc::clone(engine.views());
        let rest = Rest {
            engine,
            boxds: Arc::downgrade(boxds),
            beside,
            reach,
        };
        if self.0.rest.set(rest).is_err() {
            return Ok(());
        }
        let wires = self.clone();
        tokio::spawn(async move {
            for id in views.ready(usize::MAX) {
                wires.renew(id).await;
            }
        });
        Ok(())
    }

    /// What environments let their boxes reach.
    #[must_use]
    pub fn networks(&self) -> &Networks {
        &self.0.networks
    }

    /// A box has just begun to run: opens what it has, before its first call.
    pub(crate) async fn open(&self, id: BoxId, record: &Arc<Record>) {
        if !self.concerns(record) {
            return;
        }
        let waited = tokio::time::timeout(START_LIMIT, self.0.rest.wait()).await;
        if waited.is_ok() {
            self.wired(id).close().await;
            self.bring_up(id, record).await;
        }
    }

    /// Brings a box up to date with its record, if it runs.
    pub async fn renew(&self, id: BoxId) {
        let Some(rest) = self.0.rest.get() else {
            return;
        };
        let Some(view) = rest.engine.views().get(id) else {
            return;
        };
        let concerns = self.concerns(&view.record) || self.lock().contains_key(&id);
        if view.sandbox.state == State::Ready && concerns {
            self.bring_up(id, &view.record).await;
        }
    }

    /// Closes everything in a box that is about to stand still. What is open now ends; the driver sees to it that nothing
    /// of it is left by then.
    pub(crate) async fn close(&self, id: BoxId) {
        let wired = self.lock().get(&id).map(Arc::clone);
        if let Some(wired) = wired {
            wired.close().await;
        }
    }

    /// The same for a box that is no more.
    pub(crate) async fn forget(&self, id: BoxId) {
        let wired = self.lock().remove(&id);
        if let Some(wired) = wired {
            wired.close().await;
        }
    }

    /// How the port of a service is at the moment; `None` while nothing has to be open for it, or is.
    #[must_use]
    pub fn shown(&self, id: BoxId, port: u16) -> Option<Shown> {
        let wired = self.lock().get(&id).map(Arc::clone)?;
        let ports = lock(&wired.ports);
        ports.get(&(Ipv4Addr::LOCALHOST, port)).map(Port::shown)
    }

    /// Why the names are not in a box's `/etc/hosts`.
    #[must_use]
    pub fn names_error(&self, id: BoxId) -> Option<String> {
        let wired = self.lock().get(&id).map(Arc::clone)?;
        lock(&wired.names_error).clone()
    }

    /// Whether a box may have anything to open, without a look at the disk.
    fn concerns(&self, record: &Record) -> bool {
        !record.services.is_empty() || self.0.networks.has_any(record.account)
    }

    async fn bring_up(&self, id: BoxId, record: &Arc<Record>) {
        let Some(rest) = self.0.rest.get() else {
            return;
        };
        let wired = self.wired(id);
        let _turn = wired.turn.lock().await;
        // Whoever had the turn before may have waited for it: the record of now counts.
        let view = rest.engine.views().get(id);
        let record = view.as_ref().map_or(record, |view| &view.record);
        let source = Source {
            id,
            account: record.account,
        };
        let endpoints = self.0.networks.of_box(&rest.beside, source).await;
        let endpoints = endpoints.unwrap_or_else(|error| {
            tracing::warn!(%id, %error, "its environment could not be read");
            None
        });
        let has_nothing = lock(&wired.names).is_none() && lock(&wired.ports).is_empty();
        if endpoints.is_none() && record.services.is_empty() && has_nothing {
            return;
        }
        let (names, wanted) = plan(record, &endpoints.unwrap_or_default());
        wired.keep_only(&wanted).await;
        for (spot, way) in wanted {
            if lock(&wired.ports).contains_key(&spot) {
                continue;
            }
            let port = Port::open(self, source, spot, way).await;
            lock(&wired.ports).insert(spot, port);
        }
        if lock(&wired.names).as_deref() == Some(&*names) {
            return;
        }
        let written = match rest.boxds.upgrade() {
            Some(boxds) => hosts::write(&boxds, id, &names).await,
            None => return,
        };
        *lock(&wired.names) = written.is_ok().then_some(names);
        *lock(&wired.names_error) = written.err();
    }

    fn wired(&self, id: BoxId) -> Arc<Wired> {
        Arc::clone(self.lock().entry(id).or_default())
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<BoxId, Arc<Wired>>> {
        lock(&self.0.boxes)
    }
}

impl Wired {
    async fn close(&self) {
        let ports = std::mem::take(&mut *lock(&self.ports));
        for port in ports.into_values() {
            port.close().await;
        }
    }

    /// Closes what is not wanted any more.
    async fn keep_only(&self, wanted: &BTreeMap<Spot, Way>) {
        let (kept, gone): (BTreeMap<_, _>, BTreeMap<_, _>) =
            std::mem::take(&mut *lock(&self.ports))
                .into_iter()
                .partition(|(spot, port)| wanted.get(spot) == Some(port.way()));
        *lock(&self.ports) = kept;
        for port in gone.into_values() {
            port.close().await;
        }
    }
}

/// The names of a box, and what has to be open in it.
fn plan(record: &Record, endpoints: &[(Ipv4Addr, Endpoint)]) -> (String, BTreeMap<Spot, Way>) {
    let mut wanted = BTreeMap::new();
    for service in &record.services {
        let way = match &service.leads {
            Leads::Own => continue,
            Leads::OwnAt(port) => Some(Way::Own(*port)),
            Leads::External(url) => Target::parse(url).ok().map(Way::External),
            Leads::Link { .. } => service.link().map(|(id, port)| Way::Link { id, port }),
        };
        if let Some(way) = way {
            wanted.insert((Ipv4Addr::LOCALHOST, service.port), way);
        }
    }
    let services = record.services.iter();
    let mut names: BTreeMap<&str, Ipv4Addr> = services
        .map(|service| (&*service.name, Ipv4Addr::LOCALHOST))
        .collect();
    for (address, endpoint) in endpoints {
        // A service of the box's own goes before what its environment calls the same.
        if *names.entry(&endpoint.name).or_insert(*address) == *address {
            let way = Way::Endpoint(endpoint.clone());
            wanted.insert((*address, endpoint.port), way);
        }
    }
    (hosts::lines(&names), wanted)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What is in them is whole after any panic: each change is a single insert or remove.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
