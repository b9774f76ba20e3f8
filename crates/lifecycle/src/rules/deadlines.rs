//! Rule 12.1: command deadlines. Owns the sentence; the daemon in the box keeps it.

use crate::rules::Rule;

/// The rule.
pub const RULE: Rule = Rule {
    number: "12.1",
    also: &[],
    name: "deadlines",
    elsewhere: Some("crates/boxd/src/proc.rs"),
    title: "The deadline of a command",
    sentence: "At its deadline a command and what it started are asked to end, and a little later made to. The call \
               succeeds, with `timed_out` and the output so far, without an exit code. Time for which the box was \
               frozen does not count, and what has left the group by `setsid` stays. The box goes on.",
};
