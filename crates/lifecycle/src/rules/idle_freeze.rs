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

/// What decides the moment.
struct Deciding {
    at: Time,
    /// The rule that says so.
    number: &'static str,
    why: &'static str,
}

/// When it freezes, leaving aside what holds it without an end; `None`: never.
pub(crate) fn moment(sb: &Sandbox) -> Option<Time> {
    deciding(sb).map(|deciding| deciding.at)
}

/// What ends last of the usual time and of what holds it for longer; `None`: it never freezes.
fn deciding(sb: &Sandbox) -> Option<Deciding> {
    let usual = sb.idle_since() + sb.policy.freeze_after_ms?;
    let retry = sb.freeze_failure.as_ref().and_then(|retry| retry.at);
    let times = [
        (
            background::until(sb),
            background::RULE.number,
            "its background commands keep it awake no longer",
        ),
        (
            requests::until(sb),
            requests::RULE.number,
            "requests through its URLs keep it awake no longer",
        ),
        (
            recording::until(sb),
            recording::RULE.number,
            "its recording keeps it awake no longer",
        ),
        (retry, RULE.number, "it is tried once more"),
        (Some(usual), RULE.number, "nothing keeps it awake"),
    ];
    let times = times
        .into_iter()
        .filter_map(|(at, number, why)| at.map(|at| Deciding { at, number, why }));
    times.max_by_key(|deciding| deciding.at)
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
    let idle = words::duration(turn.now.since(turn.sb.idle_since()));
    if let Some(Deciding { number, why, .. }) = deciding(turn.sb) {
        turn.because(number, format!("{why}, last used {idle} ago"));
    }
    turn.freeze(FreezeCause::Idle);
}
