//! Rule 2.2: a box whose processes were lost. Owns its clean-up and the end of its files.

use crate::effect::Effect;
use crate::event::Outcome;
use crate::rules::{Clock, Rule, asked_stop};
use crate::state::State;
use crate::turn::Turn;

/// The rule.
pub const RULE: Rule = Rule {
    number: "2.2",
    also: &[],
    name: "interrupted",
    elsewhere: None,
    title: "A box that was lost",
    sentence: "When the host under a box is gone, or its first process ended by itself, the box is `interrupted`: its status \
               and the next call say why. Its files are kept for 7 days.",
};

/// The clock of the files.
pub(crate) const FILES: Clock = Clock {
    due: |sb| match &sb.state {
        State::Interrupted { files_until, .. } => *files_until,
        State::Starting { .. }
        | State::Ready
        | State::Freezing { .. }
        | State::Frozen(_)
        | State::Thawing { .. }
        | State::Releasing { .. }
        | State::Stopping { .. }
        | State::Terminated { .. } => None,
    },
    strike: |turn| {
        if let State::Interrupted { reason, .. } = &turn.sb.state {
            let reason = reason.clone();
            turn.because(
                RULE.number,
                "the files of the lost box were kept for 7 days",
            );
            asked_stop::lost(turn, reason);
        }
    },
};

/// The clean-up is over, or has to be tried again.
pub(crate) fn cleaned(turn: &mut Turn<'_>, outcome: Outcome) {
    if let State::Interrupted { op, .. } = &mut turn.sb.state {
        *op = None;
    }
    match outcome {
        Outcome::Done | Outcome::Gone { .. } => turn.sb.retry = None,
        Outcome::Failed { reason } | Outcome::Refused { reason } => {
            turn.failed(reason, super::teardown::BACKOFF);
        }
    }
    turn.promise();
}

/// After a server start: cleans up again what was not confirmed.
pub(crate) fn again(turn: &mut Turn<'_>) {
    let unfinished = turn.sb.awaited().is_some() || turn.sb.retry.is_some();
    if unfinished {
        clean(turn);
    }
}

/// Asks for the clean-up.
pub(crate) fn clean(turn: &mut Turn<'_>) {
    let next = turn.next_op();
    if let State::Interrupted { op, .. } = &mut turn.sb.state {
        *op = Some(next);
        turn.promise();
        turn.effect(Effect::Destroy {
            op: next,
            keep_files: true,
        });
    }
}
