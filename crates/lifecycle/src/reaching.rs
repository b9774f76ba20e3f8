//! What a box may reach outside is not the lifecycle's business; when a change of it has to be carried out is.

use crate::effect::Effect;
use crate::state::State;
use crate::turn::Turn;

/// Its record says something else by now. What runs, or is about to, gets it at once; anything else when it next runs.
pub(crate) fn changed(turn: &mut Turn<'_>) {
    turn.promise();
    match &turn.sb.state {
        State::Starting { .. } | State::Ready | State::Releasing { .. } => {
            turn.effect(Effect::Reach);
        }
        State::Freezing { .. }
        | State::Frozen(_)
        | State::Thawing { .. }
        | State::Stopping { .. }
        | State::Terminated { .. }
        | State::Interrupted { .. } => {}
    }
}
