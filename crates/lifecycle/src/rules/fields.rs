//! Rules 11.2 and 11.5: which fields readers get. Owns the sentence; the fields are picked by the API.

use crate::rules::Rule;

/// The rule.
pub const RULE: Rule = Rule {
    number: "11.5",
    also: &["11.2"],
    name: "fields",
    elsewhere: Some("crates/server/src/api/view.rs"),
    title: "Asking for some fields only",
    sentence: "`fields` picks what a status says; id and status always come, and names that no box has are listed \
               in `unknownFields`. A `goal` is there when the box was given one.",
};
