//! The engine: one loop that owns every box. A turn takes what came in, steps each box at one moment, commits once,
//! carries effects out and shows the new views. Owns the order of these; knows no HTTP, no SQL and no runtime.

mod commit;
mod deadlines;
mod effects;
mod gaps;
mod inbox;
mod recover;
mod run;
mod turn;
mod views;
mod warm;
mod watch;
mod work;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use icebox_lifecycle::{BoxId, CallId, CallKind, Command, Event, Time};
use tokio::sync::oneshot;

use crate::boxd::Boxds;
use crate::clock::Clock;
use crate::config::Limits;
use crate::driver::{Driver, DriverError};
use crate::store::{HistoryStep, Store, StoreError};

pub use inbox::{Admitted, Answer, AskError, NewBox, Patch, PolicyChange};
pub use views::{Cursor, View, Views};

use inbox::{Message, Sender};
pub(crate) use work::KEPT_MS;

/// What the engine is made of.
pub struct Parts {
    /// The one writer of the database.
    pub store: Store,
    /// The time.
    pub clock: Clock,
    /// How boxes are run.
    pub driver: Arc<dyn Driver>,
    /// How to speak to the daemons in them.
    pub boxds: Arc<Boxds>,
    /// What the host gives away.
    pub limits: Limits,
}

/// Why the engine cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The records cannot be read or brought up to date.
    #[error("cannot load the boxes")]
    Store(#[from] StoreError),
    /// The driver cannot say what exists.
    #[error("cannot find out which boxes there are on this host")]
    List(#[source] DriverError),
    /// What became of the boxes while the server was down could not be recorded.
    #[error("cannot record what became of the boxes while the server was down; is the disk full?")]
    Commit,
    /// No thread for the loop.
    #[error("cannot start the engine's thread")]
    Thread(#[source] std::io::Error),
}

/// The way in for everybody else. Clones lead to the same engine.
#[derive(Clone)]
pub struct Engine {
    inbox: Sender,
    views: Arc<Views>,
    calls: Arc<AtomicU64>,
    counters: Arc<Counters>,
    orphans: Arc<[BoxId]>,
}

/// What the engine counts.
#[derive(Debug, Default)]
pub struct Counters {
    dropped_outcomes: AtomicU64,
    turns: AtomicU64,
}

impl Counters {
    /// Outcomes that answered nothing that was waited for.
    #[must_use]
    pub fn dropped_outcomes(&self) -> u64 {
        self.dropped_outcomes.load(Ordering::Relaxed)
    }

    /// Turns taken.
    #[must_use]
    pub fn turns(&self) -> u64 {
        self.turns.load(Ordering::Relaxed)
    }
}

impl Engine {
    /// Loads the records, asks the driver what exists, lets the boxes take notice of it, and starts the loop.
    pub async fn start(parts: Parts) -> Result<Self, StartError> {
        let (inbox, receiver) = inbox::channel();
        let counters = Arc::new(Counters::default());
        let views = Arc::new(Views::default());
        let seen = parts.driver.list().await.map_err(StartError::List)?;
        let runtime = tokio::runtime::Handle::current();
        let core = turn::Core::new(
            parts,
            runtime,
            inbox.clone(),
            Arc::clone(&views),
            Arc::clone(&counters),
        );
        let (ready, started) = oneshot::channel();
        let work = move || {
            let mut core = core;
            match recover::recover(&mut core, seen) {
                Ok(orphans) => {
                    // Whoever waits for the start is gone only if the whole server is.
                    let _ = ready.send(Ok(orphans));
                    run::run(core, receiver);
                }
                Err(error) => {
                    let _ = ready.send(Err(error));
                }
            }
        };
        std::thread::Builder::new()
            .name("engine".to_owned())
            .spawn(work)
            .map_err(StartError::Thread)?;
        let gone = |_| StartError::Thread(std::io::Error::other("it ended at once"));
        let orphans = started.await.map_err(gone)??;
        Ok(Self {
            inbox,
            views,
            calls: Arc::new(AtomicU64::new(1)),
            counters,
            orphans: orphans.into(),
        })
    }

    /// What readers see.
    #[must_use]
    pub fn views(&self) -> &Arc<Views> {
        &self.views
    }

    /// Whether the loop still takes messages.
    #[must_use]
    pub fn is_running(&self) -> bool {
        !self.inbox.is_closed()
    }

    /// What it counted so far.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Boxes the driver had at the start that no record names.
    #[must_use]
    pub fn orphans(&self) -> &[BoxId] {
        &self.orphans
    }

    /// Makes a box; answers once that is recorded, while it starts.
    pub async fn create(&self, new: NewBox) -> Result<Answer, AskError> {
        self.ask(|reply| Message::Create(Box::new(new), reply))
            .await
    }

    /// Begins a call. It ends when the [`CallUnderWay`] is dropped.
    pub async fn begin_call(
        &self,
        id: BoxId,
        kind: CallKind,
        writes: bool,
        agent: Option<Box<str>>,
    ) -> Result<(CallUnderWay, Answer), AskError> {
        let call = CallId(self.calls.fetch_add(1, Ordering::Relaxed));
        let message = inbox::Call {
            id,
            call,
            kind,
            writes,
            agent,
        };
        // Made first: if the asker goes away meanwhile, the call still ends.
        let under_way = CallUnderWay {
            id,
            call,
            inbox: self.inbox.clone(),
            over: false,
        };
        let answer = self.ask(|reply| Message::Call(message, reply)).await?;
        Ok((under_way, answer))
    }

    /// Asks a box for something, if its state admits it.
    pub async fn command(&self, id: BoxId, command: Command) -> Result<Answer, AskError> {
        self.ask(|reply| Message::Ask(id, command, reply)).await
    }

    /// Changes a record or settings.
    pub async fn patch(&self, id: BoxId, patch: Patch) -> Result<Answer, AskError> {
        self.ask(|reply| Message::Patch(id, Box::new(patch), reply))
            .await
    }

    /// Tells a box that something happened.
    pub async fn tell(&self, id: BoxId, event: Event) -> Result<(), AskError> {
        let sent = self.inbox.send(Message::Event(id, event)).await;
        sent.map_err(|_| AskError::Closed)
    }

    /// Moves a test clock; answers with the new time once every rule that came due has taken effect.
    pub async fn advance(&self, ms: i64) -> Result<Time, AskError> {
        let (reply, answer) = oneshot::channel();
        let sent = self.inbox.send(Message::Advance(ms, reply)).await;
        sent.map_err(|_| AskError::Closed)?;
        answer.await.map_err(|_| AskError::Closed)
    }

    /// Finishes the turn under way and ends the loop. Boxes run on.
    pub async fn shut_down(&self) {
        let (done, over) = oneshot::channel();
        if self.inbox.send(Message::Shutdown(done)).await.is_ok() {
            // An error means that it ended already.
            let _ = over.await;
        }
    }

    async fn ask(&self, message: impl FnOnce(inbox::Reply) -> Message) -> Result<Answer, AskError> {
        let (reply, answer) = oneshot::channel();
        let sent = self.inbox.send(message(reply)).await;
        sent.map_err(|_| AskError::Closed)?;
        answer.await.map_err(|_| AskError::Closed)?
    }
}

/// A call under way. Dropping it ends the call, whoever still listens.
#[derive(Debug)]
pub struct CallUnderWay {
    id: BoxId,
    call: CallId,
    inbox: Sender,
    over: bool,
}

impl CallUnderWay {
    /// Ends the call and waits until that shows, so that whoever is answered afterwards sees the box as it is then.
    pub async fn end(self) {
        self.end_as(None).await;
    }

    /// The same for a call that is a step of its box (rule 11.3): both are written together.
    pub async fn end_with(self, step: HistoryStep) {
        self.end_as(Some(Box::new(step))).await;
    }

    async fn end_as(mut self, step: Option<Box<HistoryStep>>) {
        let (reply, ended) = oneshot::channel();
        let message = Message::Ended(self.id, self.call, step, reply);
        if self.inbox.send(message).await.is_ok() {
            self.over = true;
            // Whatever came of it, there is nothing more to do about this call.
            let _ = ended.await;
        }
    }
}

impl Drop for CallUnderWay {
    fn drop(&mut self) {
        if self.over {
            return;
        }
        let ended = Event::CallEnded { call: self.call };
        let message = Message::Event(self.id, ended);
        if let Err(tokio::sync::mpsc::error::TrySendError::Full(message)) =
            self.inbox.try_send(message)
        {
            // The inbox is full: wait for room elsewhere, for the end of a call must not be lost.
            let inbox = self.inbox.clone();
            if let Ok(runtime) = tokio::runtime::Handle::try_current() {
                runtime.spawn(async move {
                    let _ = inbox.send(message).await;
                });
            }
        }
    }
}
