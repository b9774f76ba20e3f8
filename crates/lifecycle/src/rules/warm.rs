//! Rule 4.11: whether a frozen box keeps its memory in RAM. Owns giving it back.

use alloc::format;

use crate::effect::Effect;
use crate::event::Outcome;
use crate::rules::{AT_ONCE, Clock, Rule, idle_freeze};
use crate::sandbox::Sandbox;
use crate::state::{Frozen, State};
use crate::time::Time;
use crate::turn::Turn;

/// The rule.
pub const RULE: Rule = Rule {
    number: "4.11",
    also: &[],
    name: "warm",
    elsewhere: None,
    title: "Frozen boxes that stay warm",
    sentence: "Once its copy is safe, the memory of a frozen box is given back, unless the host has room to keep it: then \
               it wakes without a restore. `tier` says `ram` or `disk`. The least recently used gives way first.",
};

/// The clock.
pub(crate) const CLOCK: Clock = Clock { due, strike };

fn due(sb: &Sandbox) -> Option<Time> {
    match &sb.state {
        State::Frozen(frozen) if !sb.warm && may_go(frozen) && frozen.evicting.is_none() => {
            let retry = sb.retry.as_ref().and_then(|retry| retry.at);
            Some(retry.unwrap_or(AT_ONCE))
        }
        State::Frozen(_)
        | State::Starting { .. }
        | State::Ready
        | State::Freezing { .. }
        | State::Thawing { .. }
        | State::Releasing { .. }
        | State::Stopping { .. }
        | State::Terminated { .. }
        | State::Interrupted { .. } => None,
    }
}

/// Its memory is in RAM and need not be: there is a copy, or only the files are kept.
fn may_go(frozen: &Frozen) -> bool {
    frozen.resident && (frozen.copy.is_some() || frozen.keeps_files_only())
}

fn strike(turn: &mut Turn<'_>) {
    let op = turn.next_op();
    if let State::Frozen(frozen) = &mut turn.sb.state {
        frozen.evicting = Some(op);
        turn.promise();
        turn.effect(Effect::Evict { op });
    }
}

/// The memory was given back, or could not be. Either way whoever came meanwhile is served now.
pub(crate) fn evicted(turn: &mut Turn<'_>, outcome: Outcome) {
    let State::Frozen(frozen) = &turn.sb.state else {
        return;
    };
    let mut frozen = frozen.clone();
    let wake = frozen.wake;
    frozen.evicting = None;
    frozen.wake = false;
    match outcome {
        Outcome::Done => {
            frozen.resident = false;
            turn.sb.retry = None;
        }
        Outcome::Gone { reason } => {
            if !may_go(&frozen) {
                return turn.interrupt(reason);
            }
            frozen.resident = false;
            turn.sb.retry = None;
        }
        Outcome::Failed { reason } | Outcome::Refused { reason } => {
            turn.because(
                RULE.number,
                format!("its memory could not be given back yet: {reason}"),
            );
            turn.failed(reason, idle_freeze::BACKOFF);
        }
    }
    if wake && turn.sb.may_wake(turn.now).is_ok() {
        turn.used();
        return turn.wake_from(frozen, false);
    }
    if wake {
        turn.end_holds();
    }
    turn.go(State::Frozen(frozen));
}
