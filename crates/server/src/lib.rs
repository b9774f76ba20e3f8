//! The Icebox server: one engine that owns every box, the drivers it acts through, the store it commits
//! to, and the dialects people and programs speak to it. [`build`] is the one place where the parts are put together.

pub mod api;
pub mod boxd;
pub mod clock;
pub mod commands;
pub mod config;
pub mod driver;
pub mod engine;
pub mod random;
pub mod record;
mod serving;
mod shared;
pub mod steps;
pub mod store;
pub mod webhooks;

use std::future::Future;
use std::sync::Arc;

use axum::Router;
use tokio::net::TcpListener;

use crate::boxd::Boxds;
use crate::clock::{Clock, machine_now};
use crate::commands::Commands;
use crate::config::Config;
use crate::driver::Driver;
use crate::engine::{Engine, Parts, StartError};
use crate::store::{Store, StoreError};
use crate::webhooks::Webhooks;

/// Why the server does not run.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The data folder or the database cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The engine cannot start.
    #[error(transparent)]
    Engine(#[from] StartError),
    /// The address cannot be listened on.
    #[error("cannot listen on {address}; is another server running there?")]
    Listen {
        /// Which address.
        address: std::net::SocketAddr,
        /// Why not.
        source: std::io::Error,
    },
}

/// A server that is put together and whose boxes are up to date.
pub struct Server {
    /// Every path it serves.
    pub router: Router,
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
    let last_seen = store.last_seen()?;
    let clock = if config.test_clock {
        // A test clock stands still while the server is down, too.
        Clock::test(last_seen.unwrap_or_else(machine_now))
    } else {
        Clock::system(last_seen.unwrap_or_default())
    };
    let keys = store.keys(&config.data, clock.now())?;
    let (reader, outbox, hooks) = (store.reader()?, store.reader()?, store.hooks()?);
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
    let commands = Commands::new(
        engine.clone(),
        boxds,
        driver,
        clock.clone(),
        config,
        reader,
        outbox,
    );
    let webhooks = Webhooks::start(commands.clone(), hooks)?;
    let host = rustix::system::uname();
    let host = host.nodename().to_string_lossy();
    let app = api::App::new(commands.clone(), webhooks, keys, &host);
    Ok(Server {
        router: api::router(app),
        engine,
        commands,
        clock,
    })
}

/// Listens on the address of the settings. Before anything else: a server that cannot be reached must not touch a box.
pub async fn listen(config: &Config) -> Result<TcpListener, ServeError> {
    let address = config.listen;
    let listener = TcpListener::bind(address).await;
    listener.map_err(|source| ServeError::Listen { address, source })
}

/// Serves until `shutdown` is over. Boxes run on afterwards; the next server finds them.
pub async fn serve(
    listener: TcpListener,
    config: Config,
    driver: Arc<dyn Driver>,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> Result<(), ServeError> {
    let address = config.listen;
    let server = build(config, driver).await?;
    tracing::info!(%address, "serving");
    let commands = server.commands.clone();
    let shutdown = async move {
        shutdown.await;
        commands.end_streams();
    };
    serving::serve(listener, server.router, shutdown).await;
    server.engine.shut_down().await;
    Ok(())
}
