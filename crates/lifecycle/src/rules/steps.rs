//! Rule 11.3: the steps of a box. Owns the sentence; they are recorded by the server.

use crate::rules::Rule;

/// The rule.
pub const RULE: Rule = Rule {
    number: "11.3",
    also: &[],
    name: "steps",
    elsewhere: Some("crates/server/src/store/history.rs"),
    title: "What was done with a box",
    sentence: "`steps` has the last 30 things that were done with the box, oldest first, each with its time, its \
               kind and a line of at most 200 characters, how long it took and how it ended. What commands print is \
               never in it. A step is kept for 7 days.",
};
