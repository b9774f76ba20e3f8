//! Rule 3.4: what counts as activity. Owns requests through URLs; use itself is [`super::usage`].

use crate::rules::Rule;
use crate::state::State;
use crate::turn::Turn;

/// The rule.
pub const RULE: Rule = Rule {
    number: "3.4",
    also: &[],
    name: "activity",
    elsewhere: None,
    title: "What counts as activity",
    sentence: "Activity is any use of the box, and any request that comes through one of its URLs in the first 2 \
               hours after its last use. A WebSocket counts as one request, made when it opens. Watching the live \
               picture is not activity.",
};

/// A request came through. Where nothing runs there is nothing to keep awake, so it leaves no trace.
pub(crate) fn request(turn: &mut Turn<'_>) {
    match turn.sb.state {
        State::Starting { .. } | State::Ready | State::Releasing { .. } => {
            turn.sb.last_request = Some(turn.now);
            turn.sb.gaps.since_request = 0;
            turn.touch();
        }
        State::Freezing { .. }
        | State::Frozen(_)
        | State::Thawing { .. }
        | State::Stopping { .. }
        | State::Terminated { .. }
        | State::Interrupted { .. } => {}
    }
}
