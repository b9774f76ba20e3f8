//! Rules 5.9 and 14.1: room on the host. Owns the sentence; the queue, which sees more than one box, is [`crate::fleet`].

use crate::rules::Rule;

/// The rule.
pub const RULE: Rule = Rule {
    number: "5.9",
    also: &["14.1"],
    name: "room",
    elsewhere: Some("crates/lifecycle/src/fleet.rs"),
    title: "When the host is full",
    sentence: "Only boxes that are up take room. Where none is left, a start, a wake or a restore is answered `no \
               box capacity right now`, or waits for up to `waitForCapacitySec`, oldest first; an account that has \
               all it may have is passed over.",
};
