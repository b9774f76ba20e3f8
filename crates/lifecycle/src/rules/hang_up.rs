//! Rule 12.2: clients that wait no longer. Owns the sentence; the server keeps what was asked of it.

use crate::rules::Rule;

/// The rule.
pub const RULE: Rule = Rule {
    number: "12.2",
    also: &[],
    name: "hang_up",
    elsewhere: Some("crates/server/src/commands/exec.rs"),
    title: "A caller that hangs up",
    sentence: "Whoever stops waiting for a command has not ended it: it runs on, and its `execId` says later how it \
               went and what it printed.",
};
