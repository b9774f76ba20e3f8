//! The Icebox server: one engine that owns every box, the drivers it acts through, the store it commits
//! to, and the dialects people and programs speak to it. [`build`] is the one place where the parts are put together.

pub mod address;
pub mod api;
pub mod boxd;
pub mod builds;
pub mod clock;
pub mod commands;
pub mod config;
pub mod cookies;
pub mod driver;
pub mod edge;
pub mod engine;
pub mod logs;
pub mod outside;
pub mod random;
pub mod record;
pub mod sessions;
mod shared;
pub mod snapshot;
pub mod steps;
pub mod store;
pub mod tls;
pub mod usage;
pub mod vault;
pub mod webhooks;
mod whole_file;
pub mod wires;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;

use crate::boxd::Boxds;
use crate::builds::Builds;
use crate::clock::{Clock, machine_now};
use crate::commands::{Commands, Keep};
use crate::config::Config;
use crate::driver::Driver;
use crate::edge::{Edge, Front};
use crate::engine::{Engine, Parts, StartError};
use crate::logs::Logs;
use crate::outside::Reach;
use crate::sessions::Sessions;
use crate::store::{Store, StoreError};
use crate::tls::{Tls, TlsError};
use crate::vault::{Vault, VaultError};
use crate::webhooks::Webhooks;

/// How long requests under way may go on after the server was told to end.
const GRACE: Duration = Duration::from_secs(5);

/// Why the server does not run.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The data folder or the database cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The engine cannot start.
    #[error(transparent)]
    Engine(#[from] StartError),
    /// The key of secrets cannot be used.
    #[error(transparent)]
    Vault(#[from] VaultError),
    /// The folder of what builds made cannot be used.
    #[error("cannot use the folder of what builds made")]
    Builds(#[source] std::io::Error),
    /// The address cannot be listened on.
    #[error("cannot listen on {address}; is another server running there?")]
    Listen {
        /// Which address.
        address: std::net::SocketAddr,
        /// Why not.
        source: std::io::Error,
    },
    /// There is no TLS, although the settings want it.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The listener broke.
    #[error("cannot serve any more")]
    Serve(#[source] std::io::Error),
}

/// A server that is put together and whose boxes are up to date.
pub struct Server {
    /// Takes every request, for the API and for the boxes' URLs.
    pub front: Front,
    /// With what it is to be listened for it, if over TLS.
    pub tls: Option<Tls>,
    /// Its engine.
    pub engine: Engine,
    /// Its commands, for dialects and tests.
    pub commands: Commands,
    /// Its clock.
    pub clock: Clock,
}

/// Puts a server together: takes the data folder, loads the boxes, and lets them take notice of what is there.
pub async fn build(config: Config, driver: Arc<dyn Driver>) -> Result<Server, ServeError> {
    let mut store = Store::open(&config.data)?;
    // Before anything else, for what is wrong in the settings shows here; but not beside another server.
    let tls = Tls::load(&config)?;
    let last_seen = store.last_seen()?;
    let clock = if config.test_clock {
        // A test clock stands still while the server is down, too.
        Clock::test(last_seen.unwrap_or_else(machine_now))
    } else {
        Clock::system(last_seen.unwrap_or_default())
    };
    let keys = Arc::new(store.keys(&config.data, clock.now())?);
    let sessions = Sessions::load(Arc::clone(&keys), clock.clone(), store.sessions()?)?;
    let keep = keep(&config, &store)?;
    let beside = Arc::clone(keep.beside());
    let (reader, outbox, hooks) = (store.reader()?, store.reader()?, store.hooks()?);
    let log_tables = store.logs()?;
    let boxds = Arc::new(Boxds::new(Arc::clone(&driver)));
    let engine = Engine::start(Parts {
        store,
        clock: clock.clone(),
        driver: Arc::clone(&driver),
        boxds: Arc::clone(&boxds),
        limits: config.limits.clone(),
        prices: config.prices,
    })
    .await?;
    let reach = Reach::new(config.webhooks.private_addresses, hooks.admin()?);
    boxds
        .wires()
        .attach(engine.clone(), &boxds, beside, reach)?;
    let commands = Commands::new(
        engine.clone(),
        boxds,
        Arc::clone(&driver),
        clock.clone(),
        config,
        reader,
        outbox,
        keep,
        hooks.admin()?,
        reach,
    );
    let webhooks = Webhooks::start(commands.clone(), hooks, reach);
    let logs = Logs::start(commands.clone(), log_tables)?;
    let (usage, views) = (commands.usage().clone(), Arc::clone(engine.views()));
    tokio::spawn(usage.run(views, driver, clock.clone()));
    let edge = Edge::new(commands.clone());
    let host = rustix::system::uname();
    let host = host.nodename().to_string_lossy();
    let app = api::App::new(
        commands.clone(),
        edge.clone(),
        webhooks,
        logs,
        keys,
        sessions,
        &host,
    );
    Ok(Server {
        front: Front::new(api::router(app), edge),
        tls,
        engine,
        commands,
        clock,
    })
}

/// What accounts keep for their boxes.
fn keep(config: &Config, store: &Store) -> Result<Keep, ServeError> {
    let builds = Builds::open(&config.data, config.limits.builds());
    let builds = builds.map_err(ServeError::Builds)?;
    let vault = Vault::open(&config.data)?;
    Ok(Keep::open(store.beside()?, vault, builds)?)
}

/// Listens on the address of the settings. Before anything else: a server that cannot be reached must not touch a box.
pub async fn listen(config: &Config) -> Result<TcpListener, ServeError> {
    let address = config.listen;
    let listener = TcpListener::bind(address).await;
    listener.map_err(|source| ServeError::Listen { address, source })
}

/// Serves until `shutdown` is over. Boxes run on afterwards; the next server finds them. `ready` is called when everything
/// is there and the first call is about to be answered.
pub async fn serve(
    listener: TcpListener,
    mut config: Config,
    driver: Arc<dyn Driver>,
    ready: impl FnOnce(),
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> Result<(), ServeError> {
    if let Ok(address) = listener.local_addr() {
        // Port 0 is any free one, and the boxes' URLs have to say which it became.
        config.listen = address;
    }
    let address = config.listen;
    let found_at = address::FoundAt::of(&config);
    let server = build(config, Arc::clone(&driver)).await?;
    found_at.write();
    tracing::info!(%address, tls = server.tls.is_some(), "serving");
    ready();
    let commands = server.commands.clone();
    let shutdown = async move {
        shutdown.await;
        commands.end_streams();
    };
    let served = serve_on(listener, server.front, server.tls, shutdown).await;
    server.engine.shut_down().await;
    driver.leave().await;
    served
}

async fn serve_on(
    listener: TcpListener,
    front: Front,
    tls: Option<Tls>,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> Result<(), ServeError> {
    let (told, end) = tokio::sync::watch::channel(false);
    let graceful = async move {
        shutdown.await;
        told.send_replace(true);
    };
    let serving = edge::listen::serve(listener, front, tls, graceful);
    let too_long = async move {
        let mut end = end;
        // An error means that the server ended by itself.
        if end.wait_for(|told| *told).await.is_ok() {
            tokio::time::sleep(GRACE).await;
        } else {
            std::future::pending::<()>().await;
        }
    };
    tokio::select! {
        served = serving => served.map_err(ServeError::Serve),
        () = too_long => Ok(()),
    }
}
