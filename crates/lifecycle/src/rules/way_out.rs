//! Rule 5.12: what a box may reach outside. What that is is not the lifecycle's business; when it has to be made, and what is
//! done when it cannot be, is. Owns the repeats.

use alloc::boxed::Box;
use alloc::format;

use crate::effect::Effect;
use crate::rules::{Clock, Rule};
use crate::sandbox::Retry;
use crate::state::State;
use crate::time::{MIN, SEC};
use crate::turn::{Backoff, Turn, next_failure};

/// The rule.
pub const RULE: Rule = Rule {
    number: "5.12",
    also: &[],
    name: "way_out",
    elsewhere: None,
    title: "A way out that cannot be made",
    sentence: "Where what a box may reach outside cannot be made, it runs and reaches nothing outside, and `egress.failure` \
               says why. It is tried again after 5 seconds, then after longer and longer waits up to 5 minutes, for as long \
               as the box is awake, and whenever it wakes or is asked to be changed.",
};

/// The waits between tries.
const BACKOFF: Backoff = Backoff {
    first_ms: 5 * SEC,
    most_ms: 5 * MIN,
};

/// The clock of the next try.
pub(crate) const CLOCK: Clock = Clock {
    due: |sb| match &sb.state {
        State::Ready => sb.way_out.as_ref().and_then(|failure| failure.at),
        State::Starting { .. }
        | State::Freezing { .. }
        | State::Frozen(_)
        | State::Thawing { .. }
        | State::Releasing { .. }
        | State::Stopping { .. }
        | State::Terminated { .. }
        | State::Interrupted { .. } => None,
    },
    strike: make,
};

/// Whether it runs, or is about to: only then it has a way out.
pub(crate) fn has_one(state: &State) -> bool {
    match state {
        State::Starting { .. } | State::Ready | State::Releasing { .. } => true,
        State::Freezing { .. }
        | State::Frozen(_)
        | State::Thawing { .. }
        | State::Stopping { .. }
        | State::Terminated { .. }
        | State::Interrupted { .. } => false,
    }
}

/// Its record says something else by now, or somebody asks for the same again. What runs, or is about to, gets it at once;
/// anything else when it next runs.
pub(crate) fn changed(turn: &mut Turn<'_>) {
    turn.promise();
    if has_one(&turn.sb.state) {
        make(turn);
    }
}

fn make(turn: &mut Turn<'_>) {
    if let Some(failure) = &mut turn.sb.way_out {
        failure.at = None;
    }
    turn.promise();
    turn.effect(Effect::Reach);
}

/// It has the way out that its record says, or none for this reason. Each reason is told once.
pub(crate) fn settled(turn: &mut Turn<'_>, failure: Option<Box<str>>) {
    if !has_one(&turn.sb.state) {
        return;
    }
    let before = turn.sb.way_out.take();
    let Some(reason) = failure else {
        if before.is_some() {
            turn.because(RULE.number, "it reaches outside what it may");
            turn.promise();
        }
        return;
    };
    let failures = next_failure(before.as_deref());
    if before.is_none_or(|before| before.reason != reason) {
        turn.because(
            RULE.number,
            format!("it reaches nothing outside, trying again: {reason}"),
        );
    }
    turn.sb.way_out = Some(Box::new(Retry {
        failures,
        at: Some(turn.now + BACKOFF.after(failures)),
        reason,
    }));
    turn.promise();
}
