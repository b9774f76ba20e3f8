//! The record of one box: everything the rules look at, and nothing that can be derived.
//! Owns the fields and what is read straight off them; changes are made in [`crate::step`] only.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::{Deref, DerefMut};

use crate::decision::Decision;
use crate::id::{BoxId, CallId, OpId};
use crate::policy::Policy;
use crate::saving::Save;
use crate::state::{FreezeCause, Kept, State, TakeoverCause};
use crate::time::{Ms, Time};
use crate::turn::Turn;

/// One box. Every field has to be stored and loaded again; none is derived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sandbox {
    /// Its id.
    pub id: BoxId,
    /// Its durations and switches; boxes that have the same may share them.
    pub policy: Arc<Policy>,
    /// Where it is in its life.
    pub state: State,
    /// When its creation began.
    pub created_at: Time,
    /// `lastUsedAt`: the latest start or end of a call that acts on it, or wake (3.3).
    pub last_use: Time,
    /// The latest request through one of its URLs (3.4).
    pub last_request: Option<Time>,
    /// Time that passed while nobody could use it, and that no idle clock counts (3.6).
    pub gaps: Gaps,
    /// What is under way.
    pub holds: Held,
    /// Whose box it is at the moment (7.3).
    pub agent: Agent,
    /// Pinned against being stopped while frozen (13.5).
    pub keep: bool,
    /// The host keeps its memory in RAM while it is frozen (4.11).
    pub warm: bool,
    /// Whether its account has credits (4.12).
    pub credits: bool,
    /// A freeze that waits until the attached phones are frozen (14.4).
    pub after_phones: Option<FreezeCause>,
    /// Why the last freeze failed, and when the next may start. A use forgets it.
    pub freeze_failure: Option<Box<Retry>>,
    /// Why it reaches nothing outside although it should, and when its way out is tried again; only while it runs.
    pub way_out: Option<Box<Retry>>,
    /// Why the operation that the state waits for failed last time, and when it is tried again.
    pub retry: Option<Box<Retry>>,
    /// How long it has been up.
    pub meter: Meter,
    /// The `restorableUntil` it had when the rules stopped it, remembered after the copy went (6.5).
    pub kept_until: Option<Time>,
    /// The number of the latest operation.
    pub ops: u64,
    /// The number of the latest copy.
    pub copies: u32,
}

/// Gaps in milliseconds since each mark. A gap is added to all of them and a mark that moves begins again at 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gaps {
    /// Since the last use.
    pub since_use: Ms,
    /// Since the last request.
    pub since_request: Ms,
    /// Since it was frozen.
    pub since_freeze: Ms,
}

/// The [`Holds`] of a box. Most boxes are frozen and have none, and then they take no room.
#[derive(Clone, Debug, Default)]
pub struct Held(Option<Box<Holds>>);

static NO_HOLDS: Holds = Holds {
    calls: Vec::new(),
    takeover: None,
    links: Vec::new(),
    background: Vec::new(),
    recording: false,
    phones: 0,
};

impl Held {
    /// Gives the room back if nothing is under way any more.
    pub(crate) fn settle(&mut self) {
        if **self == NO_HOLDS {
            self.0 = None;
        }
    }
}

impl From<Holds> for Held {
    fn from(holds: Holds) -> Self {
        let mut held = Self(Some(Box::new(holds)));
        held.settle();
        held
    }
}

impl Deref for Held {
    type Target = Holds;
    fn deref(&self) -> &Holds {
        self.0.as_deref().unwrap_or(&NO_HOLDS)
    }
}

impl DerefMut for Held {
    fn deref_mut(&mut self) -> &mut Holds {
        self.0.get_or_insert_default()
    }
}

impl PartialEq for Held {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Held {}

/// What is under way in or around a box.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holds {
    /// Calls that act on it (3.7).
    pub calls: Vec<Call>,
    /// A person has its screen (9.1).
    pub takeover: Option<Takeover>,
    /// Other boxes connected to it (4.2).
    pub links: Vec<Link>,
    /// Background commands (4.3).
    pub background: Vec<Background>,
    /// It is being recorded (4.4).
    pub recording: bool,
    /// Attached phones that are awake (14.4).
    pub phones: u16,
}

/// A call under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// Which.
    pub id: CallId,
    /// Since when.
    pub since: Time,
}

/// A person at the screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Takeover {
    /// Why they have it.
    pub cause: TakeoverCause,
    /// Since when.
    pub since: Time,
    /// The latest time it comes back (9.2).
    pub until: Time,
}

/// Another box that has a link open to this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// The box at the other end.
    pub from: BoxId,
    /// It is awake for something other than links, so that its link holds this one.
    pub awake_by_itself: bool,
}

/// A background command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Background {
    /// Its `execId`.
    pub exec: Box<str>,
    /// Its command line, cut short.
    pub label: Box<str>,
}

/// The conversation that last called a tool on a box.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Agent {
    /// Its id, if any call ever carried one.
    pub id: Option<Box<str>>,
    /// The latest call carried none (7.7).
    pub untracked: bool,
}

/// A failed operation and when it is tried again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retry {
    /// Failed tries in a row.
    pub failures: u16,
    /// No try before this moment; `None` while a try is under way.
    pub at: Option<Time>,
    /// What went wrong last.
    pub reason: Box<str>,
}

/// How long a box was up, which lifetimes and bills are counted from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Meter {
    /// Milliseconds it was up before `since`.
    pub total_ms: Ms,
    /// Up since; `None` while it is not.
    pub since: Option<Time>,
    /// The reading when its lifetime began: 0, or that of its restore.
    pub life_base_ms: Ms,
    /// The reading at its latest boot.
    pub boot_base_ms: Ms,
    /// Milliseconds of `total_ms` that are free: the host slept or was off, and it did not run (14.5).
    pub free_ms: Ms,
}

impl Meter {
    /// The reading at `now`, in milliseconds. Never goes back.
    #[must_use]
    pub fn read(&self, now: Time) -> Ms {
        self.total_ms + self.since.map_or(0, |since| now.since(since))
    }

    /// What is billed of the time before `since`, in milliseconds. Never goes back.
    #[must_use]
    pub fn settled_ms(&self) -> Ms {
        self.total_ms - self.free_ms
    }

    /// What is billed up to `now`, in milliseconds (14.5).
    #[must_use]
    pub fn billed_ms(&self, now: Time) -> Ms {
        self.read(now) - self.free_ms
    }

    /// The last `ms` before `now` are free, as far as it was up.
    pub(crate) fn leave_out(&mut self, now: Time, ms: Ms) {
        let Some(since) = self.since else { return };
        self.free_ms += ms.min(now.since(since));
        self.total_ms = self.read(now);
        self.since = Some(now);
    }
}

impl Sandbox {
    /// A new box, being started at `now` for the conversation `agent`.
    #[must_use]
    pub fn new(
        id: BoxId,
        policy: impl Into<Arc<Policy>>,
        now: Time,
        agent: Option<Box<str>>,
    ) -> (Self, Decision) {
        let mut sandbox = Self {
            id,
            policy: policy.into(),
            state: State::Ready,
            created_at: now,
            last_use: now,
            last_request: None,
            gaps: Gaps::default(),
            holds: Held::default(),
            agent: Agent {
                untracked: agent.is_none(),
                id: agent,
            },
            keep: false,
            warm: false,
            credits: true,
            after_phones: None,
            freeze_failure: None,
            way_out: None,
            retry: None,
            meter: Meter::default(),
            kept_until: None,
            ops: 0,
            copies: 0,
        };
        let mut turn = Turn::new(&mut sandbox, now);
        turn.boot(false);
        turn.because("2.1", "it was asked for");
        let decision = turn.out;
        (sandbox, decision)
    }

    /// The operation whose outcome is awaited, if any. Outcomes of others change nothing.
    #[must_use]
    pub fn awaited(&self) -> Option<OpId> {
        match &self.state {
            State::Ready => None,
            State::Starting { op, .. }
            | State::Freezing { op, .. }
            | State::Thawing { op, .. }
            | State::Releasing { op, .. }
            | State::Stopping { op, .. } => Some(*op),
            State::Frozen(frozen) => frozen.evicting,
            State::Terminated { kept, .. } => kept.as_ref().and_then(|kept| kept.dropping),
            State::Interrupted { op, .. } => *op,
        }
    }

    /// The snapshot that is made of it once it stands still.
    #[must_use]
    pub fn saving(&self) -> Option<Save> {
        match &self.state {
            State::Freezing { save, .. } => *save,
            State::Starting { .. }
            | State::Ready
            | State::Frozen(_)
            | State::Thawing { .. }
            | State::Releasing { .. }
            | State::Stopping { .. }
            | State::Terminated { .. }
            | State::Interrupted { .. } => None,
        }
    }

    /// A call, a person or a link is using it right now: its idle time is 0 (3.7).
    #[must_use]
    pub fn in_use(&self) -> bool {
        !self.holds.calls.is_empty() || self.holds.takeover.is_some() || self.linked()
    }

    /// A link of a box that is awake for something else holds it (4.2).
    #[must_use]
    pub fn linked(&self) -> bool {
        self.holds.links.iter().any(|link| link.awake_by_itself)
    }

    /// What idle clocks count from: the last use, moved by the gaps since (3.6).
    #[must_use]
    pub fn idle_since(&self) -> Time {
        self.last_use + self.gaps.since_use
    }

    /// Whether box time is billed at the moment (14.5).
    #[must_use]
    pub fn billed(&self) -> bool {
        self.meter.since.is_some()
    }

    /// A box that is starting, ready, taken over, frozen or between these (2.7).
    #[must_use]
    pub fn is_live(&self) -> bool {
        match self.state {
            State::Starting { .. }
            | State::Ready
            | State::Freezing { .. }
            | State::Frozen(_)
            | State::Thawing { .. }
            | State::Releasing { .. } => true,
            State::Stopping { .. } | State::Terminated { .. } | State::Interrupted { .. } => false,
        }
    }

    /// What is left of an ended box to restore it from, unless it is being removed (6.5).
    #[must_use]
    pub fn kept(&self) -> Option<&Kept> {
        match &self.state {
            State::Terminated { kept, .. } => {
                kept.as_deref().filter(|kept| kept.dropping.is_none())
            }
            State::Starting { .. }
            | State::Ready
            | State::Freezing { .. }
            | State::Frozen(_)
            | State::Thawing { .. }
            | State::Releasing { .. }
            | State::Stopping { .. }
            | State::Interrupted { .. } => None,
        }
    }

    /// `restorableUntil`: until when it can be restored, while that is still to come (6.5).
    #[must_use]
    pub fn restorable_until(&self, now: Time) -> Option<Time> {
        self.kept()
            .map(|kept| kept.until)
            .filter(|until| now < *until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frozen_box_costs_a_few_hundred_bytes() {
        // A million of them have to fit in less than 1 GiB, with everything else that is kept of them.
        assert!(size_of::<Sandbox>() <= 312, "{}", size_of::<Sandbox>());
    }

    #[test]
    fn what_was_under_way_takes_no_room_once_it_is_over() {
        let mut held = Held::default();
        held.calls.clear();
        held.recording = true;
        held.settle();
        assert!(held.0.is_some() && held.recording);
        held.recording = false;
        assert_eq!(held, Held::default());
        held.settle();
        assert!(held.0.is_none());
    }
}
