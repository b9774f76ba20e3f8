//! Rule 4.5: requests through a box's URLs. Owns how long the latest one holds it.

use crate::rules::Rule;
use crate::sandbox::Sandbox;
use crate::time::Time;

/// The rule.
pub const RULE: Rule = Rule {
    number: "4.5",
    also: &[],
    name: "requests",
    elsewhere: None,
    title: "Requests through URLs",
    sentence: "Each request through one of a box's URLs keeps it awake for another 10 minutes, until 2 hours after its last \
               use. After that it may freeze under somebody who still uses a page; their next page load wakes it.",
};

/// Until when the latest request holds it: a usual idle time from then, and not past the limit since the last use.
pub(crate) fn until(sb: &Sandbox) -> Option<Time> {
    let request = sb.last_request? + sb.gaps.since_request;
    let until = request + sb.policy.freeze_after_ms?;
    Some(until.min(sb.idle_since() + sb.policy.url_hold_ms))
}
