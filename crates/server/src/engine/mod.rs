//! The engine: one loop that owns every box. A turn takes what came in, steps each box at one moment, commits once,
//! carries effects out and shows the new views. Owns the order of these; knows no HTTP, no SQL and no runtime.

mod accounts;
mod behind;
mod commit;
mod credits;
mod deadlines;
mod effects;
mod ends;
mod gaps;
mod inbox;
mod links;
mod patch;
mod recover;
mod room;
mod run;
mod saves;
mod show;
mod turn;
mod versions;
mod views;
mod warm;
mod watch;
mod way_out;
mod wiring;
mod work;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use icebox_lifecycle::credits::Prices;
use icebox_lifecycle::{Ask, BoxId, CallId, CallKind, Command, Event, Ms, SnapshotId, Time};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::boxd::Boxds;
use crate::clock::Clock;
use crate::config::Limits;
use crate::driver::{Driver, DriverError};
use crate::snapshot::Snapshots;
use crate::store::{HistoryStep, Store, StoreError};

pub use accounts::{Account, Accounts};
pub(crate) use credits::MOST_CREDITS;
pub use credits::{AccountChange, CreditsChange};
pub use inbox::{Admitted, Answer, AskError, NewBox, Patch, PolicyChange, WiringChange};
pub use room::{Capacity, Full, Queued, Tried, Wanted};
pub use saves::{NewSnapshot, Saved};
pub use views::{Cursor, View, Views};

use ends::Ends;
use inbox::{Asker, Message, Sender};
pub(crate) use room::WAKE_WAIT_MS;
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
    /// What box time costs.
    pub prices: Prices,
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
    accounts: Arc<Accounts>,
    snapshots: Arc<Snapshots>,
    calls: Arc<AtomicU64>,
    ends: Arc<Ends>,
    counters: Arc<Counters>,
    orphans: Arc<[BoxId]>,
    patience: Patience,
}

/// For how long, and for whom, what is asked waits when the host is full (rules 5.9, 14.1).
#[derive(Clone, Debug, Default)]
pub struct Patience {
    /// How long; when absent as long as is usual for what is asked.
    pub wait_ms: Option<Ms>,
    /// Cancelled when nobody waits any more although the asker goes on: what is asked then leaves the queue, if it is in
    /// it. An asker that is dropped leaves it anyway.
    pub gone: Option<CancellationToken>,
}

/// What the engine counts.
#[derive(Debug, Default)]
pub struct Counters {
    dropped_outcomes: AtomicU64,
    turns: AtomicU64,
    commits: AtomicU64,
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

    /// Turns that were written, with what was put off before them.
    #[must_use]
    pub fn commits(&self) -> u64 {
        self.commits.load(Ordering::Relaxed)
    }
}

/// What the engine shows and others read.
#[derive(Clone, Default)]
struct Shown {
    views: Arc<Views>,
    accounts: Arc<Accounts>,
    snapshots: Arc<Snapshots>,
    ends: Arc<Ends>,
    counters: Arc<Counters>,
}

impl Engine {
    /// Loads the records, asks the driver what exists, lets the boxes take notice of it, and starts the loop.
    pub async fn start(parts: Parts) -> Result<Self, StartError> {
        let (inbox, receiver) = inbox::channel();
        let shown = Shown::default();
        let seen = parts.driver.list().await.map_err(StartError::List)?;
        let saved = parts.driver.snapshots().await.map_err(StartError::List)?;
        let runtime = tokio::runtime::Handle::current();
        let core = turn::Core::new(parts, runtime, inbox.clone(), shown.clone());
        let (ready, started) = oneshot::channel();
        let work = move || {
            let mut core = core;
            match recover::recover(&mut core, seen, saved) {
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
        let Shown {
            views,
            accounts,
            snapshots,
            ends,
            counters,
        } = shown;
        Ok(Self {
            inbox,
            views,
            accounts,
            snapshots,
            calls: Arc::new(AtomicU64::new(1)),
            ends,
            counters,
            orphans: orphans.into(),
            patience: Patience::default(),
        })
    }

    /// What readers see.
    #[must_use]
    pub fn views(&self) -> &Arc<Views> {
        &self.views
    }

    /// What readers see of accounts.
    #[must_use]
    pub fn accounts(&self) -> &Arc<Accounts> {
        &self.accounts
    }

    /// What readers see of snapshots.
    #[must_use]
    pub fn snapshots(&self) -> &Arc<Snapshots> {
        &self.snapshots
    }

    /// Makes a snapshot of a box; answers when it is whole or came to nothing. It is made even if the asker goes away,
    /// unless it is only for forks.
    pub async fn save(&self, new: NewSnapshot) -> Result<Saved, AskError> {
        let (reply, answer) = oneshot::channel();
        let sent = self.inbox.send(Message::Save(Box::new(new), reply)).await;
        sent.map_err(|_| AskError::Closed)?;
        answer.await.map_err(|_| AskError::Closed)?
    }

    /// Removes a snapshot; answers once that is recorded. Boxes that begin with it at the moment may finish that.
    pub async fn unsave(&self, id: SnapshotId) -> Result<(), AskError> {
        let (reply, answer) = oneshot::channel();
        let sent = self.inbox.send(Message::Unsave(id, reply)).await;
        sent.map_err(|_| AskError::Closed)?;
        answer.await.map_err(|_| AskError::Closed)?
    }

    /// Makes or changes an account; answers once that is recorded.
    pub async fn change_account(&self, change: AccountChange) -> Result<Account, AskError> {
        let (reply, answer) = oneshot::channel();
        let message = Message::Account(Box::new(change), reply);
        let sent = self.inbox.send(message).await;
        sent.map_err(|_| AskError::Closed)?;
        answer.await.map_err(|_| AskError::Closed)?
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

    /// The same way in, with a patience of one's own.
    #[must_use]
    pub fn patient(&self, patience: Patience) -> Self {
        Self {
            patience,
            ..self.clone()
        }
    }

    /// Makes a box; answers once that is recorded, while it starts.
    pub async fn create(&self, new: NewBox) -> Result<Answer, AskError> {
        let (id, asker) = (new.id, self.asker());
        let create = |reply| Message::Create(Box::new(new), asker, reply);
        self.ask_in_queue(id, asker, create).await
    }

    /// Begins a call. It ends when the [`CallUnderWay`] is dropped.
    pub async fn begin_call(
        &self,
        id: BoxId,
        kind: CallKind,
        writes: bool,
        agent: Option<Box<str>>,
    ) -> Result<(CallUnderWay, Answer), AskError> {
        let asker = self.asker();
        let call = CallId(asker.ticket);
        let message = inbox::Call {
            id,
            asker,
            ask: Ask::Call { kind, writes },
            began: Event::CallBegan { call, kind, agent },
        };
        // Made first: if the asker goes away meanwhile, the call still ends.
        let under_way = CallUnderWay {
            id,
            call,
            inbox: self.inbox.clone(),
            ends: Arc::clone(&self.ends),
            over: false,
        };
        let begin = |reply| Message::Call(message, reply);
        let answer = self.ask_in_queue(id, asker, begin).await?;
        Ok((under_way, answer))
    }

    /// Another box opens a link to a box, or has one more connection over it, which is use and wakes (rules 3.1, 5.1). It
    /// ends with [`Engine::link_ended`], also when this was refused or given up.
    pub async fn begin_link(&self, id: BoxId, from: BoxId) -> Result<Answer, AskError> {
        let asker = self.asker();
        let message = inbox::Call {
            id,
            asker,
            ask: Ask::Call {
                kind: CallKind::Acts,
                writes: false,
            },
            began: Event::LinkOpened { from },
        };
        self.ask_in_queue(id, asker, |reply| Message::Call(message, reply))
            .await
    }

    /// The last connection over a link has ended.
    pub fn link_ended(&self, id: BoxId, from: BoxId) {
        send_for_sure(&self.inbox, Message::Event(id, Event::LinkClosed { from }));
    }

    /// Waits until the ends of all calls that were answered before now show in the views, and all of any turn that is
    /// being shown. A caller that was answered and then looks sees its box as it is after the call, although no answer
    /// waits for the commit of its end.
    pub async fn settled(&self) {
        tokio::select! {
            () = self.ends.shown() => {}
            // The server goes down; what shows by now is all that will.
            () = self.inbox.closed() => {}
        }
        self.views.whole_turns();
    }

    /// Asks a box for something, if its state admits it.
    pub async fn command(&self, id: BoxId, command: Command) -> Result<Answer, AskError> {
        let asker = self.asker();
        let ask = |reply| Message::Ask(id, command, asker, reply);
        self.ask_in_queue(id, asker, ask).await
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

    fn asker(&self) -> Asker {
        Asker {
            ticket: self.calls.fetch_add(1, Ordering::Relaxed),
            wait_ms: self.patience.wait_ms,
        }
    }

    /// Asks for what may have to wait for room, and leaves the queue when nobody waits for it any more.
    async fn ask_in_queue(
        &self,
        id: BoxId,
        asker: Asker,
        message: impl FnOnce(inbox::Reply) -> Message,
    ) -> Result<Answer, AskError> {
        let mut place = PlaceInQueue {
            id,
            ticket: asker.ticket,
            inbox: self.inbox.clone(),
            over: false,
        };
        let mut answer = std::pin::pin!(self.ask(message));
        let answered = match &self.patience.gone {
            None => answer.await,
            Some(gone) => tokio::select! {
                answered = &mut answer => answered,
                () = gone.cancelled() => {
                    place.give_up();
                    answer.await
                }
            },
        };
        place.over = true;
        answered
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
    ends: Arc<Ends>,
    over: bool,
}

impl CallUnderWay {
    /// Ends the call. That shows once [`Engine::settled`] returns.
    pub async fn end(self) {
        self.end_as(None, None).await;
    }

    /// The same for a call that is a step of its box (rule 11.3): both are written together.
    pub async fn end_with(self, step: HistoryStep) {
        self.end_as(Some(Box::new(step)), None).await;
    }

    /// The same for a call that leaves a command running, as `began` says: that holds the box from where the call does not,
    /// and its end cannot come before the step that says how it began.
    pub async fn end_leaving(self, step: Option<HistoryStep>, began: Event) {
        self.end_as(step.map(Box::new), Some(Box::new(began))).await;
    }

    async fn end_as(mut self, step: Option<Box<HistoryStep>>, began: Option<Box<Event>>) {
        // Nothing is waited for between the counting and the sending, so that neither is done without the other.
        if let Ok(place) = self.inbox.reserve().await {
            self.ends.expect();
            place.send(Message::Ended(self.id, self.call, step, began));
            self.over = true;
        }
    }
}

impl Drop for CallUnderWay {
    fn drop(&mut self) {
        if self.over {
            return;
        }
        let ended = Event::CallEnded { call: self.call };
        send_for_sure(&self.inbox, Message::Event(self.id, ended));
    }
}

/// Somebody's place in the queue for room, if they are in it. Dropping it gives it up.
struct PlaceInQueue {
    id: BoxId,
    ticket: u64,
    inbox: Sender,
    over: bool,
}

impl PlaceInQueue {
    fn give_up(&self) {
        send_for_sure(&self.inbox, Message::HungUp(self.id, self.ticket));
    }
}

impl Drop for PlaceInQueue {
    fn drop(&mut self) {
        if !self.over {
            self.give_up();
        }
    }
}

/// Sends without waiting. When the inbox is full that is done elsewhere, for the end of a call must not be lost.
fn send_for_sure(inbox: &Sender, message: Message) {
    if let Err(tokio::sync::mpsc::error::TrySendError::Full(message)) = inbox.try_send(message) {
        let inbox = inbox.clone();
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                let _ = inbox.send(message).await;
            });
        }
    }
}
