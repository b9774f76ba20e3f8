//! Rule 2.1: the way from being asked for to being ready. Owns what a boot comes to.

use alloc::boxed::Box;
use alloc::format;

use crate::event::Outcome;
use crate::rules::Rule;
use crate::sandbox::Retry;
use crate::state::{End, FreezeCause, Frozen};
use crate::turn::Turn;

/// The rule.
pub const RULE: Rule = Rule {
    number: "2.1",
    also: &[],
    name: "start",
    elsewhere: None,
    title: "From asked for to ready",
    sentence: "A box is `claimed` until work on it begins, then `starting`, then `ready`; from there it freezes and wakes until \
               it is stopped. A start that fails is tried once more; a box that still does not start ends, except that one \
               which has files keeps them and stays frozen.",
};

/// A boot is over.
pub(crate) fn booted(turn: &mut Turn<'_>, keep_files: bool, outcome: Outcome) {
    let (reason, again) = match outcome {
        Outcome::Done => return started(turn, keep_files),
        Outcome::Failed { reason } => (reason, turn.sb.retry.is_none()),
        Outcome::Refused { reason } | Outcome::Gone { reason } => (reason, false),
    };
    if again {
        turn.because(
            RULE.number,
            format!("it did not start, trying once more: {reason}"),
        );
        turn.sb.retry = Some(Box::new(Retry {
            failures: 1,
            at: None,
            reason,
        }));
        return turn.boot(keep_files);
    }
    turn.because(RULE.number, format!("it did not start: {reason}"));
    if keep_files {
        turn.sb.gaps.since_freeze = 0;
        turn.frozen(Frozen {
            at: turn.now,
            cause: FreezeCause::Asked,
            resident: false,
            copy: None,
            snapshot_error: None,
            evicting: None,
            wake: false,
            wake_error: Some(reason),
        });
    } else {
        turn.destroy(End::StartFailed(reason));
    }
}

/// It runs. A start is use, and a cap that counts from the latest boot begins (6.10).
fn started(turn: &mut Turn<'_>, keep_files: bool) {
    turn.sb.meter.boot_base_ms = turn.sb.meter.read(turn.now);
    turn.used();
    turn.ready();
    let text = if keep_files {
        "it runs again, its programs started anew on its files"
    } else {
        "it started"
    };
    turn.because(RULE.number, text);
}
