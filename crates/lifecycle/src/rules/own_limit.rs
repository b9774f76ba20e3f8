//! Rule 6.2: `idleTimeoutMin`, a box's own idle limit. Owns when it ends the box.

use crate::rules::{Clock, Rule, status_reason};
use crate::sandbox::Sandbox;
use crate::state::{End, State};
use crate::time::Time;

/// The rule.
pub const RULE: Rule = Rule {
    number: "6.2",
    also: &[],
    name: "own_limit",
    elsewhere: None,
    title: "A box's own idle limit",
    sentence: "`idleTimeoutMin` takes the place of the 24 hours: once nobody has used the box for so many minutes, \
               it is stopped for good, frozen or not. While a call, a person or a link uses it the time has not \
               begun. Requests, background commands and recordings do not extend it. At most 10080 minutes.",
};

/// The clock.
pub(crate) const CLOCK: Clock = Clock {
    due: at,
    strike: |turn| {
        turn.because(
            RULE.number,
            status_reason::of_end(&End::OwnIdleLimit, &turn.sb.policy),
        );
        turn.stop_by_rule(End::OwnIdleLimit);
    },
};

/// When it stops; `None` without a limit, in use, or while it is on the way from one state to another.
pub(crate) fn at(sb: &Sandbox) -> Option<Time> {
    let settled = match &sb.state {
        State::Ready => true,
        State::Frozen(frozen) => !frozen.wake,
        State::Starting { .. }
        | State::Freezing { .. }
        | State::Thawing { .. }
        | State::Releasing { .. }
        | State::Stopping { .. }
        | State::Terminated { .. }
        | State::Interrupted { .. } => false,
    };
    if settled && !sb.in_use() {
        after(sb, sb.idle_since())
    } else {
        None
    }
}

/// When it stops if it was last used then.
pub(crate) fn after(sb: &Sandbox, used: Time) -> Option<Time> {
    sb.policy.idle_limit_ms.map(|limit_ms| used + limit_ms)
}
