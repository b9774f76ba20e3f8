//! Rule 14.5: which time is billed. Owns that, for bills and lifetimes alike; the ledger is [`crate::credits`].

use crate::rules::Rule;
use crate::state::State;

/// The rule.
pub const RULE: Rule = Rule {
    number: "14.5",
    also: &[],
    name: "billing",
    elsewhere: None,
    title: "Billed time",
    sentence: "A box is billed for the time it is up: from the start of its creation, but not while it is frozen, and no \
               longer once its end is confirmed.",
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
