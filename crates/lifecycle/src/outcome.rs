//! What becomes of a box when the driver answers. Owns which rule hears it; an answer to anything but the
//! awaited operation is dropped, so that late and repeated ones change nothing.

use crate::event::Outcome;
use crate::id::OpId;
use crate::rules;
use crate::state::State;
use crate::turn::Turn;

/// Applies an answer.
pub(crate) fn apply(turn: &mut Turn<'_>, op: OpId, outcome: Outcome) {
    if turn.sb.awaited() != Some(op) {
        return;
    }
    match turn.sb.state {
        State::Ready => {}
        State::Starting { keep_files, .. } => rules::start::booted(turn, keep_files, outcome),
        State::Freezing { .. } => rules::freeze_commit::over(turn, outcome),
        State::Frozen(_) => rules::warm::evicted(turn, outcome),
        State::Thawing { .. } => rules::failed_wake::thaw_over(turn, outcome),
        State::Releasing { .. } => rules::release::over(turn, outcome),
        State::Stopping { .. } | State::Terminated { .. } => {
            rules::teardown::destroyed(turn, outcome);
        }
        State::Interrupted { .. } => rules::interrupted::cleaned(turn, outcome),
    }
}
