//! Rules 5.6, 5.10 and 5.11: the last step of every wake, letting a standing box run. Owns its repeats.

use alloc::format;

use crate::effect::Effect;
use crate::event::Outcome;
use crate::rules::{Clock, Rule};
use crate::state::State;
use crate::time::{MIN, SEC};
use crate::turn::{Backoff, Turn};

/// The rule.
pub const RULE: Rule = Rule {
    number: "5.10",
    also: &["5.6", "5.11"],
    name: "release",
    elsewhere: None,
    title: "Right before it runs again",
    sentence: "Before the first call runs after a wake, the box's clock, its old connections to the outside and its \
               declared services are set right: clients outside have to connect anew. A box that cannot be made to \
               run in 5 tries counts as lost, and keeps its files.",
};

/// Tries before it counts as lost.
const MOST_TRIES: u8 = 5;
/// The waits between them.
const BACKOFF: Backoff = Backoff {
    first_ms: SEC,
    most_ms: MIN,
};

/// The clock of the next try.
pub(crate) const CLOCK: Clock = Clock {
    due: |sb| match &sb.state {
        State::Releasing { .. } => sb.retry.as_ref().and_then(|retry| retry.at),
        State::Starting { .. }
        | State::Ready
        | State::Freezing { .. }
        | State::Frozen(_)
        | State::Thawing { .. }
        | State::Stopping { .. }
        | State::Terminated { .. }
        | State::Interrupted { .. } => None,
    },
    strike: |turn| {
        if let Some(retry) = &mut turn.sb.retry {
            retry.at = None;
        }
        if let State::Releasing { op, .. } = turn.sb.state {
            turn.promise();
            turn.effect(Effect::Release { op });
        }
    },
};

/// A release is over.
pub(crate) fn over(turn: &mut Turn<'_>, outcome: Outcome) {
    let State::Releasing { failures, wake, .. } = turn.sb.state else {
        return;
    };
    match outcome {
        Outcome::Done => {
            if wake {
                turn.used();
                turn.because("5.2", "it is awake");
            }
            turn.ready();
        }
        Outcome::Gone { reason } => turn.interrupt(reason),
        Outcome::Refused { reason } | Outcome::Failed { reason } => {
            let failures = failures + 1;
            if failures >= MOST_TRIES {
                let reason = format!("it could not be made to run again: {reason}");
                return turn.interrupt(reason.into());
            }
            turn.because(
                RULE.number,
                format!("it does not run yet, trying again: {reason}"),
            );
            turn.failed(reason, BACKOFF);
            // The next try has its number already, so that a repeated answer to this one fits nothing.
            let op = turn.next_op();
            turn.go(State::Releasing { op, failures, wake });
        }
    }
}
