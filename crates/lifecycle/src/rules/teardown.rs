//! Rule 6.11: stopping never half-happens. Owns the repeats of what removes a box.

use crate::effect::Effect;
use crate::event::{Outcome, Processes, Seen};
use crate::rules::{Clock, Rule, restore};
use crate::sandbox::Sandbox;
use crate::state::{Kept, State};
use crate::time::{MIN, SEC, Time};
use crate::turn::{Backoff, Turn};

/// The rule.
pub const RULE: Rule = Rule {
    number: "6.11",
    also: &[],
    name: "teardown",
    elsewhere: None,
    title: "Nothing is left behind",
    sentence: "Stopping removes everything of a box. What cannot be removed at once is tried again, after a second first \
               and then less and less often up to every 5 minutes, and is visible until it is done.",
};

/// The waits between tries.
pub(crate) const BACKOFF: Backoff = Backoff {
    first_ms: SEC,
    most_ms: 5 * MIN,
};

/// The clock of the next try.
pub(crate) const CLOCK: Clock = Clock { due, strike };

fn due(sb: &Sandbox) -> Option<Time> {
    match &sb.state {
        State::Stopping { retry_at, .. } => *retry_at,
        State::Interrupted { op: None, .. } => sb.retry.as_ref().and_then(|retry| retry.at),
        State::Interrupted { .. }
        | State::Starting { .. }
        | State::Ready
        | State::Freezing { .. }
        | State::Frozen(_)
        | State::Thawing { .. }
        | State::Releasing { .. }
        | State::Terminated { .. } => None,
    }
}

fn strike(turn: &mut Turn<'_>) {
    match turn.sb.state {
        State::Interrupted { .. } => super::interrupted::clean(turn),
        State::Stopping { .. } => try_again(turn),
        State::Starting { .. }
        | State::Ready
        | State::Freezing { .. }
        | State::Frozen(_)
        | State::Thawing { .. }
        | State::Releasing { .. }
        | State::Terminated { .. } => {}
    }
}

/// Asks again for what a stopping box waits for.
fn try_again(turn: &mut Turn<'_>) {
    let next = turn.next_op();
    if let State::Stopping {
        op, keep, retry_at, ..
    } = &mut turn.sb.state
    {
        *op = next;
        *retry_at = None;
        let effect = if keep.is_some() {
            Effect::Evict { op: next }
        } else {
            Effect::Destroy {
                op: next,
                keep_files: false,
            }
        };
        turn.promise();
        turn.effect(effect);
    }
}

/// A destroy, or the eviction of a box whose copy is kept, is over.
pub(crate) fn destroyed(turn: &mut Turn<'_>, outcome: Outcome) {
    let reason = match outcome {
        Outcome::Done | Outcome::Gone { .. } => None,
        Outcome::Failed { reason } | Outcome::Refused { reason } => Some(reason),
    };
    let next = turn.next_op();
    match (&mut turn.sb.state, reason) {
        (State::Stopping { end, keep, .. }, None) => {
            let (end, keep) = (end.clone(), keep.take());
            if keep.is_some() {
                turn.because(
                    restore::RULE.number,
                    "its memory is given back, its copy is kept for a while",
                );
            } else {
                turn.because(RULE.number, "everything of it is removed");
            }
            turn.terminated(end, keep.map(|keep| *keep));
        }
        (
            State::Stopping {
                op,
                failures,
                retry_at,
                ..
            },
            Some(reason),
        ) => {
            // The number of the next try is taken now, so that a repeated answer to this one fits nothing.
            *op = next;
            *failures = failures.saturating_add(1);
            *retry_at = Some(turn.now + BACKOFF.after(*failures));
            turn.failed(reason, BACKOFF);
            turn.promise();
        }
        (State::Terminated { kept, .. }, None) => {
            *kept = None;
            turn.sb.retry = None;
            turn.promise();
        }
        (State::Terminated { kept, .. }, Some(reason)) => {
            if let Some(kept) = kept {
                kept.dropping = None;
            }
            turn.failed(reason, BACKOFF);
            turn.promise();
        }
        (
            State::Starting { .. }
            | State::Ready
            | State::Freezing { .. }
            | State::Frozen(_)
            | State::Thawing { .. }
            | State::Releasing { .. }
            | State::Interrupted { .. },
            _,
        ) => {}
    }
}

/// After a server start: asks again for what was not confirmed, and lets go of a copy that is not there any more.
pub(crate) fn again(turn: &mut Turn<'_>, seen: &Seen) {
    match &turn.sb.state {
        State::Stopping { .. } => try_again(turn),
        State::Terminated {
            kept: Some(kept), ..
        } => {
            if lost(kept, seen) {
                restore::cut_short(turn);
            } else if kept.dropping.is_some() {
                restore::drop_kept(turn);
            }
        }
        State::Terminated { kept: None, .. }
        | State::Starting { .. }
        | State::Ready
        | State::Freezing { .. }
        | State::Frozen(_)
        | State::Thawing { .. }
        | State::Releasing { .. }
        | State::Interrupted { .. } => {}
    }
}

/// Whether what was kept cannot be restored: its copy is gone, or something of it runs.
fn lost(kept: &Kept, seen: &Seen) -> bool {
    seen.copy != kept.frozen.copy || seen.processes == Processes::Running
}
