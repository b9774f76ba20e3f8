//! Rule 5.7: starting anew from the files. Owns what a cold wake does.

use crate::rules::Rule;
use crate::state::State;
use crate::turn::Turn;

/// The rule.
pub const RULE: Rule = Rule {
    number: "5.7",
    also: &[],
    name: "cold_start",
    elsewhere: None,
    title: "Starting from the files",
    sentence: "A box that kept only its files, or that is asked to, starts its programs anew on those files; the answer \
               then says `cold_restart`. A box whose processes were lost can be brought back this way while its files \
               are kept.",
};

/// Boots from the files. Admission has made sure that they are there.
pub(crate) fn asked(turn: &mut Turn<'_>) {
    turn.because(
        RULE.number,
        "a call asked for it to start anew from its files",
    );
    turn.used();
    match &turn.sb.state {
        State::Frozen(frozen) => {
            let copy = frozen.copy;
            turn.cold_start(copy);
        }
        State::Interrupted { .. } => turn.cold_start(None),
        State::Starting { .. }
        | State::Ready
        | State::Freezing { .. }
        | State::Thawing { .. }
        | State::Releasing { .. }
        | State::Stopping { .. }
        | State::Terminated { .. } => {}
    }
}
