//! Rules 15.1 to 15.3: an end that a client sets and moves, and boxes that are paused. Owns what is paused, what counts
//! meanwhile, and what a pause does to a box that stands still already.

use alloc::sync::Arc;

use crate::effect::Effect;
use crate::policy::{AtEnd, Keeps, Lifetime, LifetimeFrom, WokenBy};
use crate::rules::Rule;
use crate::sandbox::Sandbox;
use crate::state::{FreezeCause, State};
use crate::time::Time;
use crate::turn::Turn;

/// The rule.
pub const RULE: Rule = Rule {
    number: "15.1",
    also: &["15.2", "15.3"],
    name: "pause",
    elsewhere: None,
    title: "An end that is set, and boxes that are paused",
    sentence: "The end of an E2B client's box is a moment that the client sets and moves. A freeze for being idle does not \
               put it off; a pause, by a call or at that end, does until the box is resumed with a new one. A pause holds \
               for nothing, and only a resume ends it, or any call where that was asked for, which gives the box at least 5 \
               minutes. A pause that keeps files only gives the memory up, and only a resume ends it.",
};

/// Whether it is paused, or about to be: frozen on purpose, and nobody is waking it.
pub(crate) fn is_paused(sb: &Sandbox) -> bool {
    let cause = match &sb.state {
        State::Freezing {
            cause, wake: false, ..
        } => *cause,
        State::Frozen(frozen) if !frozen.wake => frozen.cause,
        State::Freezing { .. }
        | State::Frozen(_)
        | State::Starting { .. }
        | State::Ready
        | State::Thawing { .. }
        | State::Releasing { .. }
        | State::Stopping { .. }
        | State::Terminated { .. }
        | State::Interrupted { .. } => return false,
    };
    match cause {
        FreezeCause::Asked | FreezeCause::Lifetime => true,
        FreezeCause::Idle | FreezeCause::NoCredits => false,
    }
}

/// Whether it is paused in such a way that calls do not wake it.
pub(crate) fn is_closed(sb: &Sandbox) -> bool {
    let files_only = match &sb.state {
        State::Frozen(frozen) => frozen.keeps() == Keeps::Files,
        State::Freezing { ram_only, .. } => *ram_only,
        State::Starting { .. }
        | State::Ready
        | State::Thawing { .. }
        | State::Releasing { .. }
        | State::Stopping { .. }
        | State::Terminated { .. }
        | State::Interrupted { .. } => false,
    };
    is_paused(sb)
        && match sb.policy.woken_by {
            WokenBy::AnyCall => false,
            WokenBy::AnyCallFor(_) => files_only,
            WokenBy::Resume => true,
        }
}

/// Whether an end that was set comes nearer: the box runs, or could at any moment.
pub(crate) fn counts(sb: &Sandbox) -> bool {
    match &sb.state {
        State::Starting { .. } | State::Ready | State::Thawing { .. } | State::Releasing { .. } => {
            true
        }
        State::Freezing { cause, wake, .. } => *wake || *cause == FreezeCause::Idle,
        State::Frozen(frozen) => frozen.wake || frozen.cause == FreezeCause::Idle,
        State::Stopping { .. } | State::Terminated { .. } | State::Interrupted { .. } => false,
    }
}

/// The end that was set, if the box is to end like that.
pub(crate) fn end(sb: &Sandbox, at_end: AtEnd) -> Option<Time> {
    match sb.policy.lifetime {
        Some(Lifetime {
            ms,
            from: LifetimeFrom::Moment(from),
            at_end: then,
        }) if then == at_end => Some(from + ms),
        Some(_) | None => None,
    }
}

/// A call asked for it. Admission has made sure that it runs, or froze for being idle.
pub(crate) fn asked(turn: &mut Turn<'_>, files_only: bool) {
    turn.because("15.2", "a call asked for it to be paused");
    pause(turn, FreezeCause::Asked, files_only);
}

/// Pauses it: it freezes, or goes on standing still for another reason.
pub(crate) fn pause(turn: &mut Turn<'_>, cause: FreezeCause, files_only: bool) {
    let State::Frozen(frozen) = &mut turn.sb.state else {
        return if files_only {
            turn.freeze_files(cause);
        } else {
            turn.freeze(cause);
        };
    };
    frozen.cause = cause;
    let given_up = if files_only {
        frozen.snapshot_error = None;
        frozen.copy.take()
    } else {
        None
    };
    turn.promise();
    if let Some(copy) = given_up {
        turn.effect(Effect::DropCopy { copy });
    }
}

/// Somebody wakes it from a pause: where any call may, that gives it more time.
pub(crate) fn resumed(turn: &mut Turn<'_>) {
    let WokenBy::AnyCallFor(ms) = turn.sb.policy.woken_by else {
        return;
    };
    if !is_paused(turn.sb) {
        return;
    }
    let now = turn.now;
    if let Some(lifetime) = &mut Arc::make_mut(&mut turn.sb.policy).lifetime
        && let LifetimeFrom::Moment(from) = lifetime.from
        && from + lifetime.ms < now + ms
    {
        lifetime.from = LifetimeFrom::Moment(now);
        lifetime.ms = ms;
        turn.promise();
    }
}

impl Sandbox {
    /// It is paused (15.2), or about to be. A box that froze for being idle is not: whoever needs it wakes it.
    #[must_use]
    pub fn is_paused(&self) -> bool {
        is_paused(self)
    }

    /// It is paused in such a way that only being asked to wakes it, and no call does (15.2).
    #[must_use]
    pub fn is_closed(&self) -> bool {
        is_closed(self)
    }

    /// When the end that was set for it comes, whether or not it counts at the moment (15.1).
    #[must_use]
    pub fn set_end(&self) -> Option<Time> {
        let lifetime = self.policy.lifetime?;
        end(self, lifetime.at_end)
    }
}
