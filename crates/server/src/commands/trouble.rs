//! Why a command came to nothing: a kind, a sentence a person can act on, and what else the kind promises. Owns those
//! sentences; the status codes that go with the kinds are the API's.

use icebox_lifecycle::sandbox::Takeover;
use icebox_lifecycle::state::{End, State, TakeoverCause};
use icebox_lifecycle::{NoRestore, Refusal, Time};
use serde_json::{Map, Value, json};

use super::room;
use crate::engine::{AskError, View};
use crate::random;
use crate::store::cut;

/// The kinds of trouble, by what the caller can do about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The request does not fit.
    BadRequest,
    /// No key, or none of ours.
    Unauthorized,
    /// The account has no credits (rule 5.3).
    NoCredits,
    /// The key is not an admin's.
    Forbidden,
    /// There is no such thing, or it is somebody else's.
    NotFound,
    /// A person has the screen (rule 9.1).
    TakenOver,
    /// The box has ended (rule 6.9).
    BoxGone,
    /// The box was lost (rule 2.2).
    Interrupted,
    /// Events that were asked for are not kept any more.
    EventsGone,
    /// The box is being used (rule 4.2).
    InUse,
    /// Nothing of its lifetime is left (rule 12.4).
    LifetimeOver,
    /// The box is paused (rule 15.2).
    Paused,
    /// The host is full (rule 14.1).
    NoCapacity,
    /// The wake failed; the copy is whole (rule 5.8).
    WakeFailed,
    /// The freeze failed; the box runs on (rule 4.9).
    FreezeFailed,
    /// The box's daemon could not be exchanged; all in the box goes on.
    RenewFailed,
    /// What a box may reach could not be made; it reaches nothing (rule 5.12).
    EgressFailed,
    /// A command ended before it was up.
    NotReady,
    /// The box could not be started.
    StartFailed,
    /// A snapshot could not be made; the box goes on as before.
    SnapshotFailed,
    /// More than fits.
    TooLarge,
    /// It did not arrive in time.
    TooSlow,
    /// Too much at once.
    Busy,
    /// No more of these fit.
    TooMany,
    /// The key of this request was another one's.
    KeyReused,
    /// The same request is under way already.
    UnderWay,
    /// Our fault; the id is in the log.
    Internal,
}

/// A command that came to nothing.
#[derive(Clone, Debug, PartialEq)]
pub struct Trouble {
    /// What kind of trouble.
    pub kind: Kind,
    /// A sentence a person can act on.
    pub text: String,
    /// What else the kind promises.
    pub more: Map<String, Value>,
    /// When to try again, in seconds.
    pub retry_after_sec: Option<u32>,
}

/// How much of a name that means nothing is shown, in characters.
const SHOWN: usize = 64;
/// When to come back after a wake that failed, or a way out that could not be made.
const RETRY_WAKE_SEC: u32 = 5;
/// When to come back after a freeze that failed.
const RETRY_FREEZE_SEC: u32 = 60;
/// When to come back to a full host.
const RETRY_CAPACITY_SEC: u32 = 15;
/// When to come back to a busy one.
const RETRY_BUSY_SEC: u32 = 2;

/// What helps an account that is out of credits.
pub(super) const ADD_CREDITS: &str =
    "have some added (`icebox key credits ACCOUNT --add N` on the server)";

impl Trouble {
    /// Trouble of a kind, in words.
    #[must_use]
    pub fn new(kind: Kind, text: impl Into<String>) -> Self {
        Self {
            kind,
            text: text.into(),
            more: Map::new(),
            retry_after_sec: match kind {
                Kind::WakeFailed | Kind::EgressFailed => Some(RETRY_WAKE_SEC),
                Kind::FreezeFailed => Some(RETRY_FREEZE_SEC),
                Kind::NoCapacity => Some(RETRY_CAPACITY_SEC),
                Kind::Busy | Kind::UnderWay => Some(RETRY_BUSY_SEC),
                Kind::BadRequest
                | Kind::Unauthorized
                | Kind::NoCredits
                | Kind::Forbidden
                | Kind::NotFound
                | Kind::TakenOver
                | Kind::BoxGone
                | Kind::Interrupted
                | Kind::EventsGone
                | Kind::InUse
                | Kind::LifetimeOver
                | Kind::Paused
                | Kind::NotReady
                | Kind::RenewFailed
                | Kind::StartFailed
                | Kind::SnapshotFailed
                | Kind::TooLarge
                | Kind::TooSlow
                | Kind::TooMany
                | Kind::KeyReused
                | Kind::Internal => None,
            },
        }
    }

    /// A value that does not fit, with the field and its limit.
    #[must_use]
    pub fn bad(field: &str, limit: impl std::fmt::Display) -> Self {
        Self::new(Kind::BadRequest, format!("`{field}` must be {limit}")).with("field", field)
    }

    /// No such box, or somebody else's.
    #[must_use]
    pub fn no_such_box(id: &str) -> Self {
        let id = cut(id, SHOWN);
        Self::new(Kind::NotFound, format!("there is no box `{id}`"))
    }

    /// Nothing runs without credits (rule 5.3).
    #[must_use]
    pub fn no_credits() -> Self {
        Self::new(
            Kind::NoCredits,
            format!(
                "the account is out of credits: nothing starts or wakes, and frozen boxes stay as they are; {ADD_CREDITS}, \
                 then try again"
            ),
        )
    }

    /// Our own fault: the caller gets an id, the log the reason.
    #[must_use]
    pub fn internal(reason: &dyn std::fmt::Display) -> Self {
        let id = random::hex::<8>();
        tracing::error!(%id, %reason, "internal error");
        let text = format!("something went wrong on the server; its log says more under {id}");
        Self::new(Kind::Internal, text).with("id", id)
    }

    /// Adds a field to the answer.
    #[must_use]
    pub fn with(mut self, field: &str, value: impl Into<Value>) -> Self {
        self.more.insert(field.to_owned(), value.into());
        self
    }

    /// A command was under way, and nobody knows how far it got (rule 6.9).
    #[must_use]
    pub fn outcome_unknown(self) -> Self {
        self.with("outcome", "unknown")
    }

    /// Why the engine did not take it.
    #[must_use]
    pub fn from_ask(error: AskError, id: &str) -> Self {
        match error {
            AskError::NotFound => Self::no_such_box(id),
            AskError::Refused(refusal, view) => Self::from_refusal(*refusal, &view),
            AskError::NoCapacity(full) => room::no_capacity(id, &full),
            AskError::CalledOff => room::called_off(id),
            AskError::NoCredits => Self::no_credits(),
            AskError::NoSnapshot => Self::new(
                Kind::NotFound,
                "the snapshot that the box should begin with is not there any more",
            ),
            AskError::TooManySnapshots { most } => Self::new(
                Kind::TooMany,
                format!(
                    "the account has {most} snapshots, which is as many as it may have; remove some"
                ),
            ),
            AskError::TooManyCredits => {
                let text = "an account has at most 1000000000 credits, and this would be more";
                Self::new(Kind::BadRequest, text)
            }
            AskError::TooManyAccounts => {
                let text = "there are as many accounts as there may be";
                Self::new(Kind::Busy, text)
            }
            AskError::Store => {
                Self::internal(&"the record could not be written; is the disk full?")
            }
            AskError::Closed => {
                Self::new(Kind::Busy, "the server is shutting down; try again soon")
            }
        }
    }

    /// What a box says that has ended or was lost; `None` for a live one.
    #[must_use]
    pub fn of_ended(view: &View, now: Time) -> Option<Self> {
        let ask = icebox_lifecycle::Ask::Call {
            kind: icebox_lifecycle::CallKind::Acts,
            writes: false,
        };
        match view.sandbox.state {
            State::Stopping { .. } | State::Terminated { .. } | State::Interrupted { .. } => {}
            State::Starting { .. }
            | State::Ready
            | State::Freezing { .. }
            | State::Frozen(_)
            | State::Thawing { .. }
            | State::Releasing { .. } => return None,
        }
        match view.sandbox.admit(now, &ask) {
            icebox_lifecycle::Admission::Refuse(refusal) => Some(Self::from_refusal(refusal, view)),
            icebox_lifecycle::Admission::Accept
            | icebox_lifecycle::Admission::AlreadySo
            | icebox_lifecycle::Admission::Wait => None,
        }
    }

    fn from_refusal(refusal: Refusal, view: &View) -> Self {
        match refusal {
            Refusal::NoCredits => Self::no_credits(),
            Refusal::Gone {
                at,
                end,
                restorable_until,
            } => gone(view, at, &end, restorable_until),
            Refusal::Interrupted {
                reason,
                files_until,
            } => interrupted(view, &reason, files_until),
            Refusal::RestoreTooLate { until } => Self::new(
                Kind::BoxGone,
                format!(
                    "box {} could be restored until {}; its copy is gone, start a new box",
                    view.id(),
                    stamp(until)
                ),
            ),
            Refusal::CannotRestore(why) => Self::new(
                Kind::BoxGone,
                match why {
                    NoRestore::StoppedByCall => format!(
                        "box {} was stopped by a call, which keeps no copy; start a new box",
                        view.id()
                    ),
                    NoRestore::Unneeded => format!(
                        "box {} worked for another box, which had no use for it any more; that keeps no copy",
                        view.id()
                    ),
                    NoRestore::NeverFrozen => format!(
                        "box {} was not frozen when it ended, so there is no copy; start a new box",
                        view.id()
                    ),
                },
            ),
            Refusal::TakenOver(takeover) => taken_over(&takeover),
            Refusal::Held { by } => {
                let kinds: Vec<&str> = by.iter().map(|kind| kind.as_str()).collect();
                Self::new(
                    Kind::InUse,
                    format!(
                        "it is being used ({}); freeze it when that is over",
                        kinds.join(", ")
                    ),
                )
                .with("blockedBy", json!(kinds))
            }
            Refusal::LifetimeOver => Self::new(
                Kind::LifetimeOver,
                "nothing of its lifetime is left; extend it first",
            ),
            Refusal::Paused => Self::new(
                Kind::Paused,
                format!("box {} is paused; wake it first", view.id()),
            ),
            Refusal::NoMemory { error } => Self::new(
                Kind::SnapshotFailed,
                match error {
                    Some(error) => format!(
                        "the memory of box {} cannot be copied ({error}); ask for its files alone with `\"memory\": false`",
                        view.id()
                    ),
                    None => format!(
                        "box {} keeps its files only; ask for them with `\"memory\": false`",
                        view.id()
                    ),
                },
            ),
            Refusal::Policy(error) => Self::bad(error.field, error.limits),
            Refusal::CapLowered => Self::new(
                Kind::BadRequest,
                "`policy.lifetimeSec` can be raised only, not lowered or removed",
            ),
        }
    }
}

fn gone(view: &View, at: Option<Time>, end: &End, restorable_until: Option<Time>) -> Trouble {
    let id = view.id();
    let why = view.sandbox.status_reason().unwrap_or_default();
    let Some(at) = at else {
        return Trouble::new(Kind::BoxGone, format!("box {id} is being stopped ({why})"));
    };
    let what_next = match (restorable_until, end) {
        (Some(until), _) => format!(
            "until {} it can be brought back: start with `\"restore\": \"{id}\"`",
            stamp(until)
        ),
        (None, _) => "start a new box".to_owned(),
    };
    let text = format!("box {id} was stopped at {} ({why}); {what_next}", stamp(at));
    let trouble = Trouble::new(Kind::BoxGone, text)
        .with("stoppedAt", stamp(at))
        .with("statusReason", why);
    match restorable_until {
        Some(until) => trouble.with("restorableUntil", stamp(until)),
        None => trouble,
    }
}

fn taken_over(takeover: &Takeover) -> Trouble {
    let why = match takeover.cause {
        TakeoverCause::Person => "they took it over",
        TakeoverCause::Asked => "they were asked to",
        TakeoverCause::Review => "they are trying a review",
    };
    let (since, until) = (stamp(takeover.since), stamp(takeover.until));
    let text = format!(
        "a person has the screen since {since} ({why}); it comes back by {until} at the latest; \
         go on in another box meanwhile"
    );
    Trouble::new(Kind::TakenOver, text)
        .with("since", since)
        .with("why", why)
        .with("until", until)
}

fn interrupted(view: &View, reason: &str, files_until: Option<Time>) -> Trouble {
    let id = view.id();
    let files = match files_until {
        Some(until) => format!(
            "; its files are kept until {}: wake it with `\"coldRestart\": true` to go on with them, or start a new box",
            stamp(until)
        ),
        None => "; start a new box".to_owned(),
    };
    let text = format!("box {id} was interrupted: {reason}{files}");
    Trouble::new(Kind::Interrupted, text).with("statusReason", reason)
}

/// A moment as text: RFC 3339, UTC.
#[must_use]
pub fn stamp(at: Time) -> String {
    timestamp(at).to_string()
}

/// A moment as the wire has it.
#[must_use]
pub fn timestamp(at: Time) -> jiff::Timestamp {
    jiff::Timestamp::from_millisecond(at.0).unwrap_or(jiff::Timestamp::MAX)
}
