//! Rule 6.8: how long a box that has ended stays listed. Owns when its record may be forgotten.

use crate::rules::Rule;
use crate::sandbox::Sandbox;
use crate::state::State;
use crate::time::{DAY, Ms, Time};

/// The rule.
pub const RULE: Rule = Rule {
    number: "6.8",
    also: &[],
    name: "listed",
    elsewhere: None,
    title: "Stopped boxes stay listed",
    sentence: "A box that has stopped stays in the list of stopped boxes for 7 days.",
};

/// How long an ended box stays listed.
pub const LISTED_MS: Ms = 7 * DAY;

impl Sandbox {
    /// From when on its record may be forgotten; `None` while there is anything of it.
    #[must_use]
    pub fn forget_at(&self) -> Option<Time> {
        match &self.state {
            State::Terminated { at, kept: None, .. } => Some(*at + LISTED_MS),
            State::Terminated { .. }
            | State::Starting { .. }
            | State::Ready
            | State::Freezing { .. }
            | State::Frozen(_)
            | State::Thawing { .. }
            | State::Releasing { .. }
            | State::Stopping { .. }
            | State::Interrupted { .. } => None,
        }
    }
}
