//! Rule 6.4: the warning before a box is stopped. Owns when it is said; the engine says it.

use crate::forecast::Warning;
use crate::rules::stops_at::Stop;
use crate::rules::{Rule, lifetime};
use crate::time::{MIN, Ms, Time};

/// The rule.
pub const RULE: Rule = Rule {
    number: "6.4",
    also: &[],
    name: "warning",
    elsewhere: None,
    title: "The warning before it stops",
    sentence: "From 30 minutes before the idle rules stop a box, every result of a conversation that used it or names it \
               ends with a line that says when, and that a use pushes it back. Status and list do not.",
};

/// How long before the end it is said.
pub const BEFORE_MS: Ms = 30 * MIN;

/// The warning to be said at `now`. The end of a lifetime is not one: a use does not push it back.
pub(crate) fn due(stop: Option<Stop>, now: Time) -> Option<Warning> {
    let (stops_at, rule) = stop?;
    if rule == lifetime::RULE.number || now < stops_at - BEFORE_MS {
        return None;
    }
    let minutes = (stops_at.since(now) + MIN - 1) / MIN;
    Some(Warning { stops_at, minutes })
}
