//! Rule 4.3: background commands. Owns their list and how long they hold a box.

use alloc::boxed::Box;

use crate::rules::Rule;
use crate::sandbox::{Background, Sandbox};
use crate::time::Time;
use crate::turn::Turn;

/// The rule.
pub const RULE: Rule = Rule {
    number: "4.3",
    also: &[],
    name: "background",
    elsewhere: None,
    title: "Background commands",
    sentence: "A command started in the background keeps the box awake until 1 hour after its last use. Then the box freezes \
               anyway, and the command goes on after the next wake.",
};

/// Until when a background command holds it.
pub(crate) fn until(sb: &Sandbox) -> Option<Time> {
    (!sb.holds.background.is_empty()).then(|| sb.idle_since() + sb.policy.background_hold_ms)
}

/// One began. That is no use: the call that started it is.
pub(crate) fn began(turn: &mut Turn<'_>, exec: Box<str>, label: Box<str>) {
    let background = &turn.sb.holds.background;
    let known = background.iter().any(|command| command.exec == exec);
    if !known && turn.sb.is_live() {
        turn.sb.holds.background.push(Background { exec, label });
        turn.touch();
    }
}

/// One ended. That is no use either: a box does not renew its own lease (3.5).
pub(crate) fn ended(turn: &mut Turn<'_>, exec: &str) {
    let background = &mut turn.sb.holds.background;
    let before = background.len();
    background.retain(|command| &*command.exec != exec);
    if background.len() != before {
        turn.touch();
    }
}
