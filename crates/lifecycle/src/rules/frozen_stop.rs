//! Rule 6.1: a frozen box that nobody uses stops for good. Owns when.

use crate::policy::StopFrozen;
use crate::rules::{Clock, Rule, keep};
use crate::sandbox::Sandbox;
use crate::state::{End, State};
use crate::time::Time;

/// The rule.
pub const RULE: Rule = Rule {
    number: "6.1",
    also: &[],
    name: "frozen_stop",
    elsewhere: None,
    title: "A frozen box stops for good",
    sentence: "Left alone, a frozen box is stopped for good, and its files go with it: 24 hours after its last use \
               or its freeze, whichever came later.",
};

/// The clock.
pub(crate) const CLOCK: Clock = Clock {
    due: |sb| after(sb, sb.idle_since(), frozen_since(sb)?),
    strike: |turn| {
        turn.because(
            RULE.number,
            super::status_reason::of_end(&End::FrozenUnused, &turn.sb.policy),
        );
        turn.stop_by_rule(End::FrozenUnused);
    },
};

/// Since when it is frozen, moved by gaps (3.6); `None` unless it is, and nobody is waking it.
pub(crate) fn frozen_since(sb: &Sandbox) -> Option<Time> {
    match &sb.state {
        State::Frozen(frozen) if !frozen.wake => Some(frozen.at + sb.gaps.since_freeze),
        State::Frozen(_)
        | State::Starting { .. }
        | State::Ready
        | State::Freezing { .. }
        | State::Thawing { .. }
        | State::Releasing { .. }
        | State::Stopping { .. }
        | State::Terminated { .. }
        | State::Interrupted { .. } => None,
    }
}

/// When this rule stops a box that was last used and frozen then. An own limit takes its place (6.2), a pin suspends
/// it (13.5).
pub(crate) fn after(sb: &Sandbox, used: Time, frozen_at: Time) -> Option<Time> {
    if keep::is_pinned(sb) || sb.policy.idle_limit_ms.is_some() {
        return None;
    }
    match sb.policy.stop_frozen {
        StopFrozen::Never => None,
        StopFrozen::AfterUseOrFreeze(ms) => Some(used.max(frozen_at) + ms),
        StopFrozen::AfterFreeze(ms) => Some(frozen_at + ms),
    }
}
