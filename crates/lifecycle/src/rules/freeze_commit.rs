//! Rule 4.9: what a freeze comes to. Owns the commit, and what is done about one that failed.

use alloc::boxed::Box;
use alloc::format;

use crate::event::Outcome;
use crate::id::CopyId;
use crate::rules::{Rule, during_freeze, idle_freeze, ram_only};
use crate::sandbox::Retry;
use crate::saving;
use crate::state::{FreezeCause, Frozen, State};
use crate::turn::{Turn, next_failure};

/// The rule.
pub const RULE: Rule = Rule {
    number: "4.9",
    also: &[],
    name: "freeze_commit",
    elsewhere: None,
    title: "A freeze is whole or did not happen",
    sentence: "Nothing of a box is lost when a freeze fails: either it goes on as before, or it is frozen and its \
               copy is good. A freeze that failed is tried again after 1 minute, then after longer and longer waits \
               up to 16 minutes. A copy is never used once anything in the box has run again.",
};

/// The freeze under way is over.
pub(crate) fn over(turn: &mut Turn<'_>, outcome: Outcome) {
    let State::Freezing {
        copy,
        cause,
        ram_only,
        wake,
        save,
        ..
    } = turn.sb.state
    else {
        return;
    };
    let (copy, snapshot_error) = match outcome {
        Outcome::Done => ((!ram_only).then_some(copy), None),
        Outcome::Refused { reason } => (None, ram_only::refused(turn, ram_only, reason)),
        Outcome::Failed { reason } => return failed(turn, copy, wake, reason),
        Outcome::Gone { reason } => return turn.interrupt(reason),
    };
    turn.sb.freeze_failure = None;
    saving::stands(turn, save, copy);
    if wake && during_freeze::runs_on(turn, copy, save) {
        return;
    }
    commit(turn, cause, true, copy, snapshot_error);
}

/// It is frozen from now on.
pub(crate) fn commit(
    turn: &mut Turn<'_>,
    cause: FreezeCause,
    resident: bool,
    copy: Option<CopyId>,
    snapshot_error: Option<Box<str>>,
) {
    turn.because(RULE.number, "it is frozen");
    turn.sb.freeze_failure = None;
    turn.sb.gaps.since_freeze = 0;
    turn.frozen(Frozen {
        at: turn.now,
        cause,
        resident,
        copy,
        snapshot_error,
        evicting: None,
        wake: false,
        wake_error: None,
    });
}

/// The box runs on, and unless somebody came for it anyway, the next try waits.
fn failed(turn: &mut Turn<'_>, copy: CopyId, wake: bool, reason: Box<str>) {
    turn.because(
        RULE.number,
        format!("it could not be frozen and runs on: {reason}"),
    );
    let failures = next_failure(turn.sb.freeze_failure.as_deref());
    turn.sb.freeze_failure = (!wake).then(|| {
        Box::new(Retry {
            failures,
            at: Some(turn.now + idle_freeze::BACKOFF.after(failures)),
            reason,
        })
    });
    turn.release(Some(copy), wake);
}
