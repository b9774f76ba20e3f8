//! Rules 5.9 and 14.1: room on the host. Owns the sentence; the queue, which sees more than one box, is [`crate::fleet`].

use crate::rules::Rule;

/// The rule.
pub const RULE: Rule = Rule {
    number: "5.9",
    also: &["14.1"],
    name: "room",
    elsewhere: Some("crates/lifecycle/src/fleet.rs"),
    title: "When the host is full",
    sentence: "Boxes that are up take room; of a frozen one only the memory that is still in RAM does, and it is given \
               back when somebody needs the room. Where none is left, a start, a wake or a restore waits for up to \
               `waitForCapacitySec` (left out: a call or a wake 30 seconds, a start or a restore not at all), oldest \
               first, and is then answered `no box capacity right now`. An account that has all it may have is passed \
               over. No box is frozen to make room. While a box waits it is frozen as before, and its idle clocks stand \
               still.",
};
