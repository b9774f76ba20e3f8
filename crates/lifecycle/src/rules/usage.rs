//! Rules 3.1 to 3.3, 3.5 and 3.7: what counts as use. Owns calls, takeovers and links, from their start to their end.

use alloc::boxed::Box;
use core::mem;

use crate::admit::{Admission, Ask};
use crate::event::CallKind;
use crate::id::{BoxId, CallId};
use crate::rules::{Rule, conversation, reads, wake};
use crate::sandbox::{Call, Link, Takeover};
use crate::state::TakeoverCause;
use crate::time::Time;
use crate::turn::Turn;

/// The rule.
pub const RULE: Rule = Rule {
    number: "3.1",
    also: &["3.2", "3.3", "3.5", "3.7"],
    name: "usage",
    elsewhere: None,
    title: "What counts as use",
    sentence: "Using a box means a call that acts on it, from its start to its end, a person at its screen, a connection \
               from another box, or waking it. Status, list, say and feedback are not use, nor is anything the box does \
               by itself.",
};

/// A call that names the box. Reads leave no trace at all, not even of who made them (11.1).
pub(crate) fn call_began(
    turn: &mut Turn<'_>,
    call: CallId,
    kind: CallKind,
    agent: Option<Box<str>>,
) {
    if !reads::leaves_a_trace(kind) {
        return;
    }
    let ask = Ask::Call {
        kind,
        writes: false,
    };
    if turn.sb.admit(turn.now, &ask) != Admission::Accept {
        return;
    }
    conversation::called(turn, agent);
    if kind == CallKind::Acts {
        turn.used();
        if !turn.sb.holds.calls.iter().any(|under| under.id == call) {
            let since = turn.now;
            turn.sb.holds.calls.push(Call { id: call, since });
        }
    }
    wake::arrived(turn, "a call named it");
}

/// Its end is a use, whether or not its caller still listens. The end of a call that is not under way is nothing.
pub(crate) fn call_ended(turn: &mut Turn<'_>, call: CallId) {
    let calls = &mut turn.sb.holds.calls;
    let before = calls.len();
    calls.retain(|under| under.id != call);
    if calls.len() != before {
        turn.used();
    }
}

/// A person at the screen is use, so it wakes (3.1); without credits it changes nothing (5.3).
pub(crate) fn takeover_began(turn: &mut Turn<'_>, cause: TakeoverCause, until: Time) {
    if !may_use(turn) {
        return;
    }
    turn.used();
    let before = turn.sb.holds.takeover;
    turn.sb.holds.takeover = Some(Takeover {
        cause,
        since: before.map_or(turn.now, |takeover| takeover.since),
        until,
    });
    wake::arrived(turn, "a person took the screen");
}

/// Typing and clicking is use.
pub(crate) fn takeover_input(turn: &mut Turn<'_>) {
    if turn.sb.holds.takeover.is_some() {
        turn.used();
    }
}

/// Handing the screen back is use.
pub(crate) fn takeover_ended(turn: &mut Turn<'_>) {
    if mem::take(&mut turn.sb.holds.takeover).is_some() {
        turn.used();
    }
}

/// A connection from another box is use, and wakes. One box is one link, however many connections it has.
pub(crate) fn link_opened(turn: &mut Turn<'_>, from: BoxId) {
    if !may_use(turn) {
        return;
    }
    turn.used();
    turn.sb.holds.links.retain(|link| link.from != from);
    turn.sb.holds.links.push(Link {
        from,
        awake_by_itself: true,
    });
    wake::arrived(turn, "another box connected to it");
}

/// The end of a link is a use only if the link was one: see [`super::holds::link_source`].
pub(crate) fn link_closed(turn: &mut Turn<'_>, from: BoxId) {
    let links = &mut turn.sb.holds.links;
    let Some(at) = links.iter().position(|link| link.from == from) else {
        return;
    };
    if links.swap_remove(at).awake_by_itself {
        turn.used();
    } else {
        turn.touch();
    }
}

/// Whether a use of any kind may begin at the moment.
fn may_use(turn: &Turn<'_>) -> bool {
    let ask = Ask::Call {
        kind: CallKind::Acts,
        writes: false,
    };
    turn.sb.admit(turn.now, &ask) == Admission::Accept
}
