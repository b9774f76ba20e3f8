//! Rules 6.6, 6.9 and 5.4: a stop that a call asks for. Owns what it does in each state.

use alloc::boxed::Box;

use crate::rules::{Rule, restore};
use crate::state::End;
use crate::turn::Turn;

/// The rule.
pub const RULE: Rule = Rule {
    number: "6.6",
    also: &["5.4", "6.9"],
    name: "asked_stop",
    elsewhere: None,
    title: "Stopping a box yourself",
    sentence: "A stop works in every state, frozen ones included, and can be repeated safely. It wins over a wake or \
               a freeze that is under way, and nothing is kept: no files, no copy. A box that runs a version for another \
               one stops in the same way once that one has no use for it any more.",
};

/// Stops it now. Admission has made sure that there is something to stop.
pub(crate) fn asked(turn: &mut Turn<'_>) {
    turn.because(RULE.number, "a call stopped it for good");
    stop(turn, End::Asked);
}

/// Stops it now: the box that it worked for has no use for it any more. Admission has made sure of the same.
pub(crate) fn unneeded(turn: &mut Turn<'_>) {
    turn.because(
        RULE.number,
        "the box that it worked for has no use for it any more",
    );
    stop(turn, End::Unneeded);
}

fn stop(turn: &mut Turn<'_>, end: End) {
    if turn.sb.kept().is_some() {
        // Ended by a rule before: what ended it stays, only the copy goes.
        return restore::cut_short(turn);
    }
    turn.destroy(end);
}

/// The end of a box whose processes were lost and whose files have reached their end.
pub(crate) fn lost(turn: &mut Turn<'_>, reason: Box<str>) {
    turn.destroy(End::Interrupted(reason));
}
