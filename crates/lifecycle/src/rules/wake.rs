//! Rules 5.1, 5.2 and 5.5: what wakes a box. Owns what an arrival does in each state.

use crate::rules::{Rule, during_freeze, pause};
use crate::state::State;
use crate::turn::Turn;

/// The rule.
pub const RULE: Rule = Rule {
    number: "5.1",
    also: &["5.2", "5.5"],
    name: "wake",
    elsewhere: None,
    title: "What wakes a box",
    sentence: "A frozen box wakes when a call names it (but not for status, say, feedback, stop or the list of \
               devices), when another box connects to it, when one of its pages is loaded, or when it is asked to. \
               A wake is use. The box is then as it was: its id, its URLs, its files, and what ran in it, if its \
               memory was kept.",
};

/// Somebody came who needs it awake. Whether they may has been decided.
pub(crate) fn arrived(turn: &mut Turn<'_>, why: &'static str) {
    pause::resumed(turn);
    match &turn.sb.state {
        State::Frozen(_) => {
            turn.because(RULE.number, why);
            turn.wake();
        }
        State::Freezing { .. } => during_freeze::came(turn, why),
        State::Starting { .. }
        | State::Ready
        | State::Thawing { .. }
        | State::Releasing { .. }
        | State::Stopping { .. }
        | State::Terminated { .. }
        | State::Interrupted { .. } => {}
    }
}
