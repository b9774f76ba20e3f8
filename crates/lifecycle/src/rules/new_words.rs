//! Rule 2.3: words that readers do not know. Owns the sentence; the types that readers use take them.

use crate::rules::Rule;

/// The rule.
pub const RULE: Rule = Rule {
    number: "2.3",
    also: &[],
    name: "new_words",
    elsewhere: Some("crates/wire/src/rest/view.rs"),
    title: "Words that are new",
    sentence: "Later versions may add statuses, kinds of steps and fields. Whoever reads them goes on: a status that it does \
               not know is `unknown`, and neither live nor gone.",
};
