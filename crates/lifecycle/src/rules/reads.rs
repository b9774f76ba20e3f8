//! Rules 4.14 and 11.1: reading. Owns which calls leave a trace.

use crate::event::CallKind;
use crate::rules::Rule;

/// The rule.
pub const RULE: Rule = Rule {
    number: "11.1",
    also: &["4.14"],
    name: "reads",
    elsewhere: None,
    title: "Reading changes nothing",
    sentence: "Status, lists, dashboards and probes wake no box, hold none awake, do not count as use and do not change whose \
               box it is.",
};

/// Whether a call of this kind changes anything about the box.
pub(crate) fn leaves_a_trace(kind: CallKind) -> bool {
    match kind {
        CallKind::Reads => false,
        CallKind::Acts | CallKind::Wakes => true,
    }
}
