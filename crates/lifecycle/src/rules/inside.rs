//! Rules 11.4 and 11.6: what goes on in a box. Owns the sentence; the server looks inside.

use crate::rules::Rule;

/// The rule.
pub const RULE: Rule = Rule {
    number: "11.4",
    also: &["11.6"],
    name: "inside",
    elsewhere: Some("crates/server/src/commands/inside.rs"),
    title: "What goes on in a box",
    sentence: "A look at one running box says which commands and databases run in it, whether its daemon answers and of which \
               version it is, and what takes up room. A look waits at most 5 seconds for sizes: what is not measured by then \
               is named in `notMeasured` and goes on being measured. Sizes are good for 30 seconds, and nothing is cleaned up.",
};
