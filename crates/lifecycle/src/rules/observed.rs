//! Rule 2.6: how fresh a reading is. Owns the sentence; the API says the times.

use crate::rules::Rule;

/// The rule.
pub const RULE: Rule = Rule {
    number: "2.6",
    also: &[],
    name: "observed",
    elsewhere: Some("crates/server/src/api/view.rs"),
    title: "How fresh a reading is",
    sentence: "`observedAt` says when the box itself was asked, which a look at one running box does, and `stateRecordedAt` \
               when its state was recorded. Lists show what was recorded and ask nobody; so do looks at boxes that have \
               ended.",
};
