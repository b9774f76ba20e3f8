//! Rules 4.10 and 4.13: a freeze without a copy of the memory. Owns what that means for the box.

use alloc::boxed::Box;
use alloc::format;

use crate::rules::Rule;
use crate::turn::Turn;

/// The rule.
pub const RULE: Rule = Rule {
    number: "4.10",
    also: &["4.13"],
    name: "ram_only",
    elsewhere: None,
    title: "Memory that cannot be saved",
    sentence: "When the memory of a box cannot be copied, the box stands still in RAM and `snapshotError` says why; it is \
               neither killed nor left running. A box whose policy keeps files only gives its memory up when it freezes.",
};

/// The checkpointer refused. Gives the reason to keep; where no copy was wanted, there is nothing to explain.
pub(crate) fn refused(turn: &mut Turn<'_>, ram_only: bool, reason: Box<str>) -> Option<Box<str>> {
    if ram_only {
        return None;
    }
    turn.because(
        RULE.number,
        format!("its memory cannot be copied, so it stands still in RAM: {reason}"),
    );
    Some(reason)
}
