//! Rule 5.8: a wake that fails. Owns the retry of a thaw.

use alloc::format;

use crate::event::Outcome;
use crate::rules::Rule;
use crate::state::{Frozen, State};
use crate::turn::Turn;

/// The rule.
pub const RULE: Rule = Rule {
    number: "5.8",
    also: &[],
    name: "failed_wake",
    elsewhere: None,
    title: "A wake that fails",
    sentence: "Everybody who wakes a box at the same time joins one wake. When it fails it is tried once more; after \
               that the box is frozen as before, its copy whole, and the answer says why and when to try again.",
};

/// A thaw is over. Nothing ran yet, so the copy is as good as before unless it is gone.
pub(crate) fn thaw_over(turn: &mut Turn<'_>, outcome: Outcome) {
    let State::Thawing { from, retried, .. } = &turn.sb.state else {
        return;
    };
    let (from, retried) = (from.clone(), *retried);
    let reason = match outcome {
        Outcome::Done => return turn.release(from.copy, true),
        Outcome::Gone { reason } => return turn.interrupt(reason),
        Outcome::Failed { reason } if !retried => {
            turn.because(
                RULE.number,
                format!("it could not be woken, trying once more: {reason}"),
            );
            return turn.thaw(from, true);
        }
        Outcome::Failed { reason } | Outcome::Refused { reason } => reason,
    };
    turn.because(
        RULE.number,
        format!("it could not be woken and is frozen as before: {reason}"),
    );
    turn.frozen(Frozen {
        wake_error: Some(reason),
        ..from
    });
}
