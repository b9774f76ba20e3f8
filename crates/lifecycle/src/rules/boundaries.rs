//! Rule 3.8: what happens in the very instant of a deadline. Owns that comparison.

use crate::rules::Rule;
use crate::time::Time;

/// The rule.
pub const RULE: Rule = Rule {
    number: "3.8",
    also: &[],
    name: "boundaries",
    elsewhere: None,
    title: "At the very moment",
    sentence: "A deadline is due at its time, not after it. What arrived before a deadline was looked at counts first: a use \
               in the last instant keeps a box.",
};

/// Whether a deadline is due at `now`.
pub(crate) fn is_due(at: Time, now: Time) -> bool {
    at <= now
}
