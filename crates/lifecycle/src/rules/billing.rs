//! Rule 14.5: which time is billed. Owns that, for bills and lifetimes alike; the ledger is [`crate::credits`].

use crate::rules::Rule;
use crate::state::State;
use crate::time::Ms;
use crate::turn::Turn;

/// The rule.
pub const RULE: Rule = Rule {
    number: "14.5",
    also: &[],
    name: "billing",
    elsewhere: None,
    title: "Billed time",
    sentence: "A box is billed by its size for the time it is up: from the start of its creation, but not while it is \
               frozen, and no longer once its end is confirmed. Time in which the host slept or was off is free.",
};

/// Whether a box in this state is up; `None`: as it was before, since a box that is being destroyed bills until that
/// is confirmed, and a frozen one does not begin to.
pub(crate) fn is_up(state: &State) -> Option<bool> {
    match state {
        State::Starting { .. }
        | State::Ready
        | State::Freezing { .. }
        | State::Releasing { .. } => Some(true),
        State::Frozen(_)
        | State::Thawing { .. }
        | State::Terminated { .. }
        | State::Interrupted { .. } => Some(false),
        State::Stopping { .. } => None,
    }
}

/// It was up, but did not run for the `ms` that ended just now.
pub(crate) fn stood_still(turn: &mut Turn<'_>, ms: Ms) {
    if ms > 0 && turn.sb.meter.since.is_some() {
        turn.sb.meter.leave_out(turn.now, ms);
        turn.touch();
    }
}
