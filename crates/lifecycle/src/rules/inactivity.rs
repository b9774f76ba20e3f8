//! Rule 12.3: inactivity in the preset `router`. Owns the sentence: what it asks for is made of the settings of other rules.

use crate::rules::Rule;

/// The rule.
pub const RULE: Rule = Rule {
    number: "12.3",
    also: &[],
    name: "inactivity",
    elsewhere: None,
    title: "Inactivity in the preset `router`",
    sentence: "Without a setting for it, a box of the preset `router` is never idle. With a time to freeze after it is paused \
               with its memory or, where it keeps files only, stopped; with a limit of its own it is destroyed. What counts \
               is what counts for every other box, and its lifetime ends it all the same.",
};
