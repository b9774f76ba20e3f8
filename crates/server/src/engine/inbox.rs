//! The one way in: everything that may change a box, as a message. Bounded, so that a flood waits outside.

use std::sync::Arc;

use icebox_lifecycle::fleet::Ticket;
use icebox_lifecycle::{
    Ask, BoxId, CallId, Command, Event, Ms, OpId, Outcome, Policy, Refusal, SnapshotId, Time,
};
use tokio::sync::{mpsc, oneshot};

use super::credits::{AccountChange, AccountReply};
use super::room::Full;
use super::saves::{NewSnapshot, SaveReply, UnsaveReply};
use super::views::View;
use super::way_out::Heard;
use crate::driver::Egress;
use crate::record::{E2b, Record};
use crate::store::HistoryStep;

/// How many messages may wait.
const CAPACITY: usize = 4096;

pub(super) type Sender = mpsc::Sender<Message>;
pub(super) type Receiver = mpsc::Receiver<Message>;

pub(super) fn channel() -> (Sender, Receiver) {
    mpsc::channel(CAPACITY)
}

/// Something for the engine.
pub(super) enum Message {
    /// A new box.
    Create(Box<NewBox>, Asker, Reply),
    /// A call, or a link, begins.
    Call(Call, Reply),
    /// Somebody asks for something.
    Ask(BoxId, Command, Asker, Reply),
    /// Whoever asked this of a box does not listen any more: a place in the queue for room is given up.
    HungUp(BoxId, Ticket),
    /// The record or the settings change.
    Patch(BoxId, Box<Patch>, Reply),
    /// A call ends; with what it came to, if that is a step (rule 11.3), and with what begins as it ends.
    Ended(BoxId, CallId, Option<Box<HistoryStep>>, Option<Box<Event>>),
    /// A step that could not be written yet.
    Step(BoxId, Box<HistoryStep>),
    /// An account changes.
    Account(Box<AccountChange>, AccountReply),
    /// Make a snapshot.
    Save(Box<NewSnapshot>, SaveReply),
    /// A snapshot was made, of so many bytes, or could not be.
    Saved(SnapshotId, Result<u64, String>),
    /// Remove a snapshot.
    Unsave(SnapshotId, UnsaveReply),
    /// The bytes of a snapshot are gone.
    Unsaved(SnapshotId),
    /// Something happened; nobody waits for it.
    Event(BoxId, Event),
    /// What became of the way out of a box, and who waits to hear of it.
    WayOut(BoxId, Option<Box<str>>, Vec<Heard>),
    /// An effect came to its end; with the operation that it answers, if any.
    Done(BoxId, Option<OpId>, Outcome),
    /// The first process of a running box ended, as the watch with this number saw.
    Exited(BoxId, u64, String),
    /// Move the test clock by this many milliseconds.
    Advance(i64, oneshot::Sender<Time>),
    /// Finish the turn and end.
    Shutdown(oneshot::Sender<()>),
}

/// Where an answer goes.
pub(super) type Reply = oneshot::Sender<Result<Answer, AskError>>;

/// What was asked for is done, is so already, or has to wait; and the box as it was committed.
#[derive(Debug)]
pub struct Answer {
    /// How it was taken.
    pub admitted: Admitted,
    /// The box afterwards.
    pub view: Arc<View>,
}

/// How something was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admitted {
    /// It happened.
    Accepted,
    /// It was so already, or on its way.
    AlreadySo,
    /// Not at this moment; ask again when the box changes.
    Wait,
}

/// Why something was not taken.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// There is no such box.
    #[error("there is no such box")]
    NotFound,
    /// The box's state forbids it.
    #[error("the box is in no state for that")]
    Refused(Box<Refusal>, Arc<View>),
    /// The account has no credits (rule 5.3).
    #[error("the account is out of credits")]
    NoCredits,
    /// The account would have more credits than it may.
    #[error("the account would have too many credits")]
    TooManyCredits,
    /// There are as many accounts as there may be.
    #[error("there are too many accounts")]
    TooManyAccounts,
    /// The host is full (rule 14.1).
    #[error("no box capacity right now")]
    NoCapacity(Box<Full>),
    /// The snapshot that the new box should begin with is not there.
    #[error("there is no such snapshot")]
    NoSnapshot,
    /// The account has as many snapshots as it may have.
    #[error("the account has {most} snapshots already")]
    TooManySnapshots {
        /// How many that is.
        most: usize,
    },
    /// A call froze the box for which this one waited for room.
    #[error("the box was frozen while it waited for room")]
    CalledOff,
    /// The database did not take it; nothing happened.
    #[error("the record could not be written")]
    Store,
    /// The server is going down.
    #[error("the server is shutting down")]
    Closed,
}

/// A box to be made.
#[derive(Clone, Debug)]
pub struct NewBox {
    /// Its id.
    pub id: BoxId,
    /// What it is.
    pub record: Record,
    /// Its durations and switches.
    pub policy: Policy,
    /// The conversation that asks for it.
    pub agent: Option<Box<str>>,
}

/// Who asks for something that may need room.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asker {
    /// Their number, which nobody else has.
    pub(super) ticket: Ticket,
    /// How long they wait for room; when absent as long as is usual for what they ask.
    pub(super) wait_ms: Option<Ms>,
}

/// A call, or a link of another box, that begins.
#[derive(Clone, Debug)]
pub(super) struct Call {
    pub(super) id: BoxId,
    pub(super) asker: Asker,
    /// What has to be admitted.
    pub(super) ask: Ask,
    /// What happens to the box then.
    pub(super) began: Event,
}

/// Changes to a record; `Some(None)` clears a field.
#[derive(Default)]
pub struct Patch {
    /// Its name for people.
    pub name: Option<Option<String>>,
    /// What it is for.
    pub goal: Option<Option<String>>,
    /// What becomes of its policy.
    pub policy: Option<PolicyChange>,
    /// Pinned or not (rule 13.5).
    pub keep: Option<bool>,
    /// What the E2B dialect keeps of it.
    pub e2b: Option<Box<E2b>>,
    /// Only who has a link may look at its URLs (rule 8.8).
    pub private: Option<bool>,
    /// What it may reach outside, and who hears how that went if it has to be carried out at once.
    pub egress: Option<(Egress, Heard)>,
    /// A secret for its links, and whether it takes the place of one that is there.
    pub link_secret: Option<(String, bool)>,
    /// What becomes of its services and its scene.
    pub wiring: Option<WiringChange>,
}

/// Makes the new policy out of the one the box has when the change is applied.
pub type PolicyChange = Box<dyn FnOnce(&Policy) -> Policy + Send>;

/// Changes the services and the scene of the record that the box has when the change is applied.
pub type WiringChange = Box<dyn FnOnce(&mut Record) + Send>;
