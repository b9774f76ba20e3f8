//! Rule 6.5: a box that the rules stopped can be brought back for a while. Owns the restore and the end of the copy.

use crate::effect::Effect;
use crate::rules::{Clock, Rule, wake};
use crate::state::State;
use crate::turn::Turn;

/// The rule.
pub const RULE: Rule = Rule {
    number: "6.5",
    also: &[],
    name: "restore",
    elsewhere: None,
    title: "Bringing a stopped box back",
    sentence: "A frozen box that these rules stopped keeps its copy for 24 hours: until `restorableUntil` it can be \
               started again with `restore` as the same box, with its id, URLs, files and running programs. Phones are \
               not kept. Its clocks start again.",
};

/// The clock of a kept copy.
pub(crate) const CLOCK: Clock = Clock {
    due: |sb| {
        let until = sb.kept()?.until;
        let retry = sb.retry.as_ref().and_then(|retry| retry.at);
        Some(retry.map_or(until, |at| at.max(until)))
    },
    strike: |turn| {
        if turn.sb.retry.is_none() {
            turn.because(RULE.number, "its copy was kept as long as promised");
        }
        drop_kept(turn);
    },
};

/// Removes what was kept.
pub(crate) fn drop_kept(turn: &mut Turn<'_>) {
    let op = turn.next_op();
    if let State::Terminated {
        kept: Some(kept), ..
    } = &mut turn.sb.state
    {
        kept.dropping = Some(op);
        turn.promise();
        turn.effect(Effect::Destroy {
            op,
            keep_files: false,
        });
    }
}

/// Removes what was kept before its time: it cannot be restored any more, or nobody wants it.
pub(crate) fn cut_short(turn: &mut Turn<'_>) {
    let now = turn.now;
    if let State::Terminated {
        kept: Some(kept), ..
    } = &mut turn.sb.state
    {
        kept.until = kept.until.min(now);
        turn.sb.kept_until = Some(kept.until);
        drop_kept(turn);
    }
}

/// Brings it back. Admission has made sure that the copy is there; a box that is only frozen wakes.
pub(crate) fn asked(turn: &mut Turn<'_>) {
    let State::Terminated {
        kept: Some(kept), ..
    } = &turn.sb.state
    else {
        return wake::arrived(turn, "a call asked for it back");
    };
    let frozen = kept.frozen.clone();
    turn.because(RULE.number, "a call brought it back");
    turn.sb.kept_until = None;
    turn.sb.retry = None;
    turn.sb.meter.life_base_ms = turn.sb.meter.total_ms;
    turn.sb.meter.boot_base_ms = turn.sb.meter.total_ms;
    turn.sb.last_request = None;
    turn.used();
    turn.thaw(frozen, false);
}
