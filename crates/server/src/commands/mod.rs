//! What a user may ask for, whatever dialect they speak: is it theirs, does it fit, send the event, wait for the box to be
//! as it must be, do the work. Owns the waits and their limits. Changes no state itself and knows no HTTP.

pub mod check;
mod downloads;
mod events;
mod exec;
mod files;
mod jobs;
mod life;
mod notices;
mod output;
mod presence;
mod start;
pub mod trouble;
mod wait;

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use icebox_lifecycle::{BoxId, CallKind};

use crate::boxd::Boxds;
use crate::clock::Clock;
use crate::config::Config;
use crate::driver::Driver;
use crate::engine::{Answer, AskError, CallUnderWay, Engine, KEPT_MS, View};
use crate::record::AccountId;
use crate::store::{Reader, StoreError, StoredStep, Why};

pub use events::{EventReader, EventsRequest};
pub use files::{Content, Download, SyncRequest};
pub use jobs::Waited;
pub use output::{OutputPiece, OutputRequest, Reading, StreamName};
pub use presence::{Presences, is_agent_id, no_agent_id};
pub use trouble::{Kind, Trouble};

/// Who asks.
#[derive(Clone, Debug)]
pub struct Caller {
    /// Whose key it was.
    pub account: AccountId,
    /// The conversation, if the call carried a well-formed id (rule 7.1).
    pub agent: Option<Box<str>>,
}

/// Everything commands need. Clones share it.
#[derive(Clone)]
pub struct Commands(Arc<Inner>);

struct Inner {
    engine: Engine,
    boxds: Arc<Boxds>,
    driver: Arc<dyn Driver>,
    clock: Clock,
    config: Config,
    reader: Arc<Reader>,
    outbox: events::Outbox,
    presences: Presences,
    downloads: downloads::Downloads,
    /// Starts that wait for room, in the order they came.
    queue: tokio::sync::Mutex<()>,
    /// How many they are.
    waiting: AtomicUsize,
}

impl Commands {
    /// Puts them together.
    #[must_use]
    pub fn new(
        engine: Engine,
        boxds: Arc<Boxds>,
        driver: Arc<dyn Driver>,
        clock: Clock,
        config: Config,
        reader: Reader,
        outbox: Reader,
    ) -> Self {
        Self(Arc::new(Inner {
            engine,
            boxds,
            driver,
            clock,
            config,
            reader: Arc::new(reader),
            outbox: events::Outbox::new(outbox),
            presences: Presences::default(),
            downloads: downloads::Downloads::default(),
            queue: tokio::sync::Mutex::new(()),
            waiting: AtomicUsize::new(0),
        }))
    }

    /// The engine behind them.
    #[must_use]
    pub fn engine(&self) -> &Engine {
        &self.0.engine
    }

    /// The server's time.
    #[must_use]
    pub fn clock(&self) -> &Clock {
        &self.0.clock
    }

    /// The settings.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.0.config
    }

    /// The runtime's own words about this host.
    #[must_use]
    pub fn driver(&self) -> &dyn Driver {
        &*self.0.driver
    }

    /// Which conversations are there (rule 7.2).
    #[must_use]
    pub fn presences(&self) -> &Presences {
        &self.0.presences
    }

    /// The caller's box of that id.
    pub fn find(&self, caller: &Caller, id: &str) -> Result<Arc<View>, Trouble> {
        BoxId::parse(id)
            .and_then(|id| self.0.engine.views().get(id))
            .filter(|view| view.record.account == caller.account)
            .ok_or_else(|| Trouble::no_such_box(id))
    }

    /// The last decisions about a box, and what the last calls did with it (rule 11.3).
    pub async fn past(&self, id: BoxId) -> Result<(Vec<Why>, Vec<StoredStep>), Trouble> {
        let reader = Arc::clone(&self.0.reader);
        let kept_from = self.0.clock.now() - KEPT_MS;
        let read = move || Ok((reader.why(id)?, reader.steps(id, kept_from)?));
        tokio::task::spawn_blocking(read)
            .await
            .map_err(|error| Trouble::internal(&error))?
            .map_err(|error: StoreError| Trouble::internal(&error))
    }

    /// Begins a call that acts on a box of the caller, and waits until it is ready.
    async fn acting(
        &self,
        caller: &Caller,
        id: BoxId,
        writes: bool,
    ) -> Result<(CallUnderWay, Answer), Trouble> {
        let (call, mut answer) = self.begin(caller, id, writes).await?;
        if !wait::is_ready(&answer.view) {
            answer.view = self.until_ready(id).await?;
        }
        Ok((call, answer))
    }

    /// Begins a call that acts on a box of the caller, which may not be ready yet.
    async fn begin(
        &self,
        caller: &Caller,
        id: BoxId,
        writes: bool,
    ) -> Result<(CallUnderWay, Answer), Trouble> {
        let agent = caller.agent.clone();
        let began = self.0.engine.begin_call(id, CallKind::Acts, writes, agent);
        began.await.map_err(|error| ask(error, id))
    }
}

fn ask(error: AskError, id: BoxId) -> Trouble {
    Trouble::from_ask(error, id.as_str())
}
