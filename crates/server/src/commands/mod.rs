//! What a user may ask for, whatever dialect they speak: is it theirs, does it fit, send the event, wait for the box to be
//! as it must be, do the work. Owns the waits and their limits. Changes no state itself and knows no HTTP.

mod account;
mod askers;
mod build;
pub mod check;
mod connections;
mod downloads;
mod egress;
mod ends;
mod environments;
mod events;
mod exec;
mod files;
mod folder;
mod handover;
mod inside;
mod jobs;
mod keep;
mod keys;
mod life;
mod link;
mod look;
mod messages;
mod notices;
mod once;
mod output;
mod pause;
mod presence;
mod reach;
mod ready;
mod room;
mod scene;
mod secrets;
mod snapshots;
mod start;
mod terminal;
pub mod trouble;
mod versions;
mod wait;
mod wire;

use std::sync::Arc;

use icebox_lifecycle::{BoxId, CallKind};
use icebox_wire::rest::ProcView;
use tokio::sync::Semaphore;

use crate::boxd::Boxds;
use crate::clock::Clock;
use crate::config::Config;
use crate::driver::Driver;
use crate::edge::forward::Upstreams;
use crate::engine::{Answer, AskError, CallUnderWay, Engine, KEPT_MS, Patience, View};
use crate::outside::Reach;
use crate::record::AccountId;
use crate::store::{Reader, StoreError, StoredStep, Why};
use crate::usage::Usage;

pub use events::{EventReader, EventsRequest, event_view};
pub use files::{Content, Download, SyncRequest};
pub use handover::Receipt;
pub use inside::Inside;
pub use jobs::Waited;
pub use keep::Keep;
pub use keys::key_id;
pub use link::Link;
pub use look::Look;
pub use once::OnceKey;
pub use output::{OutputPiece, OutputRequest, Reading, StreamName};
pub use pause::Resumed;
pub use presence::{Presences, is_agent_id, no_agent_id};
pub use ready::{READY_SEC, Readiness};
pub use snapshots::{ForkPolicy, continues};
pub use terminal::{Heard, Keyboard, Screen, Terminal, TerminalSize};
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
    usage: Usage,
    downloads: downloads::Downloads,
    looks: look::Looks,
    /// Free places for terminals.
    terminals: Arc<Semaphore>,
    keep: Keep,
    /// Whose services may lead into private networks.
    reach: Reach,
    /// Held while somebody changes where a name leads, so that what was looked at for that is still so.
    wiring: tokio::sync::Mutex<()>,
    disks: inside::Disks,
    /// The account that the first start made.
    admin: AccountId,
    turns: Arc<once::Turns>,
    askers: askers::Askers,
}

impl Commands {
    /// Puts them together.
    #[must_use]
    #[expect(
        clippy::too_many_arguments,
        reason = "each is another part of the server"
    )]
    pub fn new(
        engine: Engine,
        boxds: Arc<Boxds>,
        driver: Arc<dyn Driver>,
        clock: Clock,
        config: Config,
        reader: Reader,
        outbox: Reader,
        keep: Keep,
        admin: AccountId,
        reach: Reach,
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
            usage: Usage::default(),
            downloads: downloads::Downloads::default(),
            looks: look::Looks::default(),
            terminals: Arc::new(Semaphore::new(terminal::MOST)),
            keep,
            reach,
            wiring: tokio::sync::Mutex::default(),
            disks: inside::Disks::default(),
            admin,
            turns: Arc::default(),
            askers: askers::Askers::default(),
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

    /// The ways into the boxes.
    #[must_use]
    pub fn boxds(&self) -> &Boxds {
        &self.0.boxds
    }

    /// Whether the services of an account may lead into private networks.
    #[must_use]
    pub fn private_too(&self, account: AccountId) -> bool {
        self.0.reach.private_too(account)
    }

    /// Which conversations are there (rule 7.2).
    #[must_use]
    pub fn presences(&self) -> &Presences {
        &self.0.presences
    }

    /// What running boxes use.
    #[must_use]
    pub fn usage(&self) -> &Usage {
        &self.0.usage
    }

    /// The ways to the programs in running boxes.
    #[must_use]
    pub fn upstreams(&self) -> &Upstreams {
        self.0.boxds.upstreams()
    }

    /// The caller's box of that id.
    pub fn find(&self, caller: &Caller, id: &str) -> Result<Arc<View>, Trouble> {
        BoxId::parse(id)
            .and_then(|id| self.0.engine.views().get(id))
            .filter(|view| view.record.account == caller.account)
            .ok_or_else(|| Trouble::no_such_box(id))
    }

    /// The same for readers: with the end of every call that was answered before.
    pub async fn look(&self, caller: &Caller, id: &str) -> Result<Arc<View>, Trouble> {
        self.0.engine.settled().await;
        self.find(caller, id)
    }

    /// The last decisions about a box, and what the last calls did with it (rule 11.3).
    pub async fn past(&self, id: BoxId) -> Result<(Vec<Why>, Vec<StoredStep>), Trouble> {
        // The step of a call that was answered before belongs to the past.
        self.0.engine.settled().await;
        let reader = Arc::clone(&self.0.reader);
        let kept_from = self.0.clock.now() - KEPT_MS;
        let read = move || Ok((reader.why(id)?, reader.steps(id, kept_from)?));
        tokio::task::spawn_blocking(read)
            .await
            .map_err(|error| Trouble::internal(&error))?
            .map_err(|error: StoreError| Trouble::internal(&error))
    }

    /// What the record says of a command.
    async fn recorded(&self, id: BoxId, exec_id: &str) -> Result<Option<ProcView>, Trouble> {
        let (reader, exec) = (Arc::clone(&self.0.reader), exec_id.to_owned());
        let step = tokio::task::spawn_blocking(move || reader.step_of(id, &exec)).await;
        let step = step
            .map_err(|error| Trouble::internal(&error))?
            .map_err(|error| Trouble::internal(&error))?;
        Ok(step.map(|step| ends::recorded_view(id, exec_id, step)))
    }

    /// Begins a call that acts on a box of the caller, and waits until it is ready.
    async fn acting(
        &self,
        caller: &Caller,
        id: BoxId,
        writes: bool,
    ) -> Result<(CallUnderWay, Answer), Trouble> {
        let patience = Patience::default();
        let (call, mut answer) = self.begin(caller, id, writes, patience).await?;
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
        patience: Patience,
    ) -> Result<(CallUnderWay, Answer), Trouble> {
        let agent = caller.agent.clone();
        let engine = self.0.engine.patient(patience);
        let began = engine.begin_call(id, CallKind::Acts, writes, agent);
        began.await.map_err(|error| ask(error, id))
    }
}

/// Does this to its end, even if the caller goes away meanwhile.
async fn to_its_end<T: Send + 'static>(
    work: impl Future<Output = Result<T, Trouble>> + Send + 'static,
) -> Result<T, Trouble> {
    let done = tokio::spawn(work).await;
    done.unwrap_or_else(|error| Err(Trouble::internal(&error)))
}

fn ask(error: AskError, id: BoxId) -> Trouble {
    Trouble::from_ask(error, id.as_str())
}
