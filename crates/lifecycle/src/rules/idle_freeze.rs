//! Rule 4.1: an idle box freezes. Owns the moment.

use alloc::format;

use crate::rules::{AT_ONCE, Clock, Rule, background, recording, requests};
use crate::sandbox::Sandbox;
use crate::state::{FreezeCause, State};
use crate::time::{MIN, Time};
use crate::turn::{Backoff, Turn};
use crate::words;

/// The rule.
pub const RULE: Rule = Rule {
    number: "4.1",
    also: &["4.8", "14.4"],
    name: "idle_freeze",
    elsewhere: None,
    title: "An idle box freezes",
    sentence: "A box freezes after 10 minutes without activity: its memory is saved, its files stay, and its time \
               is no longer billed. Attached phones freeze first. A use that comes in the same instant keeps it \
               awake.",
};

/// The wait after a freeze that failed.
pub(crate) const BACKOFF: Backoff = Backoff {
    first_ms: MIN,
    most_ms: 16 * MIN,
};

/// The clock.
pub(crate) const CLOCK: Clock = Clock { due: at, strike };

/// When it freezes, leaving aside what holds it without an end; `None`: never.
pub(crate) fn moment(sb: &Sandbox) -> Option<Time> {
    let usual = sb.idle_since() + sb.policy.freeze_after_ms?;
    let held = [
        background::until(sb),
        requests::until(sb),
        recording::until(sb),
        sb.freeze_failure.as_ref().and_then(|retry| retry.at),
    ];
    held.into_iter().flatten().chain([usual]).max()
}

/// When it freezes; `None`: never, or not while something holds it.
pub(crate) fn at(sb: &Sandbox) -> Option<Time> {
    if sb.state != State::Ready || sb.in_use() {
        return None;
    }
    match sb.after_phones {
        // Its turn has come, and it waits for its phones, whose end is not known.
        Some(_) if sb.holds.phones > 0 => None,
        Some(_) => Some(AT_ONCE),
        None => moment(sb),
    }
}

/// While a box waited for its phones, something may have come that moves the moment: then it waits no more.
pub(crate) fn reconsider(turn: &mut Turn<'_>) {
    if turn.sb.after_phones != Some(FreezeCause::Idle) {
        return;
    }
    if moment(turn.sb).is_none_or(|at| at > turn.now) {
        turn.sb.after_phones = None;
        turn.promise();
    }
}

fn strike(turn: &mut Turn<'_>) {
    if let Some(cause) = turn.sb.after_phones {
        turn.because("14.4", "its phones are frozen");
        return turn.freeze(cause);
    }
    let idle_ms = turn.now.since(turn.sb.idle_since());
    turn.because(
        RULE.number,
        format!(
            "nothing keeps it awake, last used {} ago",
            words::duration(idle_ms)
        ),
    );
    turn.freeze(FreezeCause::Idle);
}
