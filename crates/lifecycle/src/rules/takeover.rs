//! Rules 9.1 and 9.2: a person at the screen. Owns the end of a takeover; what a taken-over box refuses is decided
//! in [`crate::admit`].

use crate::rules::{Clock, Rule};
use crate::state::State;

/// The rule.
pub const RULE: Rule = Rule {
    number: "9.2",
    also: &["9.1"],
    name: "takeover",
    elsewhere: None,
    title: "A person at the screen",
    sentence: "While a person has the screen, calls that write to the box are turned away; they are told since \
               when, why and until when at the latest. Every takeover has such an end, and that end is a use.",
};

/// The clock.
pub(crate) const CLOCK: Clock = Clock {
    due: |sb| match sb.state {
        State::Ready => sb.holds.takeover.map(|takeover| takeover.until),
        State::Starting { .. }
        | State::Freezing { .. }
        | State::Frozen(_)
        | State::Thawing { .. }
        | State::Releasing { .. }
        | State::Stopping { .. }
        | State::Terminated { .. }
        | State::Interrupted { .. } => None,
    },
    strike: |turn| {
        turn.sb.holds.takeover = None;
        turn.because(RULE.number, "the time of the person at the screen is over");
        turn.used();
    },
};
