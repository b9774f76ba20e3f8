//! Rule 1: the three sets of durations. Owns their names; the numbers and their limits are in [`crate::policy`].

use crate::policy::Preset;
use crate::rules::Rule;

/// The rule.
pub const RULE: Rule = Rule {
    number: "1",
    also: &[],
    name: "policies",
    elsewhere: None,
    title: "One engine, four presets",
    sentence: "Every duration belongs to the box: it begins as the set `agent`, `router`, `task` or `e2b`, and each field \
               can be changed within its limits. A value out of range is refused with its limit, never shortened.",
};

impl Preset {
    /// Every preset.
    pub const ALL: [Self; 4] = [Self::Agent, Self::Router, Self::Task, Self::E2b];

    /// Its name in the API.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Agent => "agent",
            Self::Router => "router",
            Self::Task => "task",
            Self::E2b => "e2b",
        }
    }

    /// The preset of that name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|preset| preset.as_str() == name)
    }
}
