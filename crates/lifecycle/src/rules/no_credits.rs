//! Rules 4.12 and 5.3: an account without credits. Owns the freeze of its boxes.

use crate::rules::{AT_ONCE, Clock, Rule};
use crate::state::{FreezeCause, State};

/// The rule.
pub const RULE: Rule = Rule {
    number: "4.12",
    also: &["5.3"],
    name: "no_credits",
    elsewhere: None,
    title: "Out of credits",
    sentence: "When an account has no credits left, each of its ready boxes freezes and keeps its memory, no matter \
               what holds it awake. Waking one needs credits; nothing is lost meanwhile but the usual time until it \
               stops for good. From 30 minutes before, every result says when the credits run out.",
};

/// The clock. After a freeze that failed it waits as the idle rule does.
pub(crate) const CLOCK: Clock = Clock {
    due: |sb| match sb.state {
        State::Ready if !sb.credits => {
            let retry = sb.freeze_failure.as_ref().and_then(|retry| retry.at);
            Some(retry.unwrap_or(AT_ONCE))
        }
        State::Ready
        | State::Starting { .. }
        | State::Freezing { .. }
        | State::Frozen(_)
        | State::Thawing { .. }
        | State::Releasing { .. }
        | State::Stopping { .. }
        | State::Terminated { .. }
        | State::Interrupted { .. } => None,
    },
    strike: |turn| {
        turn.because(RULE.number, "the account is out of credits");
        turn.freeze(FreezeCause::NoCredits);
    },
};
