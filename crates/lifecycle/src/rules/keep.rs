//! Rule 13.5: keeping a box. Owns what a pin protects from.

use crate::rules::Rule;
use crate::sandbox::Sandbox;

/// The rule.
pub const RULE: Rule = Rule {
    number: "13.5",
    also: &[],
    name: "keep",
    elsewhere: None,
    title: "Keeping a box",
    sentence: "Keep pins a box: while it is frozen, disuse does not stop it. Its own idle limit, its lifetime and its hard \
               cap still hold.",
};

/// Whether disuse leaves it alone while it is frozen.
pub(crate) fn is_pinned(sb: &Sandbox) -> bool {
    sb.keep
}
