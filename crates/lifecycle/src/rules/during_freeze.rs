//! Rule 4.7: somebody comes while a box is being frozen. Owns the wish and its fulfilment.

use crate::id::CopyId;
use crate::rules::Rule;
use crate::saving::Save;
use crate::state::State;
use crate::turn::Turn;

/// The rule.
pub const RULE: Rule = Rule {
    number: "4.7",
    also: &[],
    name: "during_freeze",
    elsewhere: None,
    title: "Coming while a box is being frozen",
    sentence: "Whoever needs a box while it is being frozen waits those few seconds; then it runs on, and nothing fails. \
               Reading and messages neither wait nor wake it.",
};

/// Somebody came. That is a use; the box runs on as soon as the freeze is over.
pub(crate) fn came(turn: &mut Turn<'_>, why: &'static str) {
    turn.used();
    if let State::Freezing { wake, .. } = &mut turn.sb.state
        && !*wake
    {
        *wake = true;
        turn.because(RULE.number, why);
        turn.promise();
    }
}

/// Lets the box run on if it still may; its new copy was for nothing then.
pub(crate) fn runs_on(turn: &mut Turn<'_>, copy: Option<CopyId>, save: Option<Save>) -> bool {
    let may = turn.sb.may_wake(turn.now).is_ok();
    if may {
        let why = match save {
            Some(_) => "it stood still for a snapshot: it runs on",
            None => "it was needed while it was being frozen: it runs on",
        };
        turn.because(RULE.number, why);
        turn.release(copy, true);
    }
    may
}
