//! Rule 3.6: time in which nobody could use a box. Owns how it moves the idle clocks.

use crate::rules::{Rule, billing};
use crate::state::State;
use crate::step::moved;
use crate::time::Ms;
use crate::turn::Turn;

/// The rule.
pub const RULE: Rule = Rule {
    number: "3.6",
    also: &[],
    name: "gaps",
    elsewhere: None,
    title: "When the server was down",
    sentence: "Time in which the server was down or the host slept is not idle time: freezing and stopping for disuse \
               move by it. What was promised for a certain time does not: lifetimes, caps and the time a copy is kept.",
};

/// Adds a gap that ended just now to every idle clock, and takes it off the bill if the box did not run meanwhile.
pub(crate) fn gap(turn: &mut Turn<'_>, ms: Ms, ran: bool) {
    if !ran {
        billing::stood_still(turn, ms);
    }
    if ms <= 0 || !turn.sb.is_live() {
        return;
    }
    let now = turn.now;
    let sb = &mut *turn.sb;
    sb.gaps.since_use = moved(sb.gaps.since_use, sb.last_use, ms, now);
    if let Some(request) = sb.last_request {
        sb.gaps.since_request = moved(sb.gaps.since_request, request, ms, now);
    }
    if let State::Frozen(frozen) = &sb.state {
        sb.gaps.since_freeze = moved(sb.gaps.since_freeze, frozen.at, ms, now);
    }
    turn.touch();
}
