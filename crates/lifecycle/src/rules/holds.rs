//! Rule 4.2: what holds a box awake without an end. Owns the list, and what a link is worth.

use alloc::vec::Vec;

use crate::forecast::HoldKind;
use crate::id::BoxId;
use crate::rules::Rule;
use crate::sandbox::Sandbox;
use crate::state::State;
use crate::time::Time;
use crate::turn::Turn;

/// The rule.
pub const RULE: Rule = Rule {
    number: "4.2",
    also: &["3.7"],
    name: "holds",
    elsewhere: None,
    title: "What holds a box awake until it ends",
    sentence: "A box stays awake while a person has its screen, while a call that acts on it is under way, and \
               while another box has a link open to it and is awake for something other than links.",
};

/// What holds it until it ends, in the order readers see.
pub(crate) fn endless(sb: &Sandbox) -> Vec<HoldKind> {
    let mut by = Vec::new();
    if sb.holds.takeover.is_some() {
        by.push(HoldKind::Takeover);
    }
    if !sb.holds.calls.is_empty() {
        by.push(HoldKind::Foreground);
    }
    if sb.linked() {
        by.push(HoldKind::Link);
    }
    by
}

/// Whether the box at the other end is awake for something else than links. When that ends, its link no longer
/// holds this one, and that is no use: otherwise two boxes linked to each other would use each other for ever.
pub(crate) fn link_source(turn: &mut Turn<'_>, from: BoxId, awake_by_itself: bool) {
    let links = &mut turn.sb.holds.links;
    let Some(link) = links.iter_mut().find(|link| link.from == from) else {
        return;
    };
    if link.awake_by_itself != awake_by_itself {
        link.awake_by_itself = awake_by_itself;
        turn.touch();
    }
}

impl Sandbox {
    /// When it is no longer awake by itself if nothing else happens; `None`: that moment is not known, or will not come.
    #[must_use]
    pub fn awake_by_itself_until(&self) -> Option<Time> {
        let ready = self.state == State::Ready;
        ready.then(|| super::idle_freeze::moment(self)).flatten()
    }

    /// Whether it is awake for something other than links, so that its own links hold the boxes they lead to (4.2).
    #[must_use]
    pub fn awake_by_itself(&self, now: Time) -> bool {
        match self.state {
            State::Ready => {
                !self.holds.calls.is_empty()
                    || self.holds.takeover.is_some()
                    || super::idle_freeze::moment(self).is_none_or(|at| now < at)
            }
            State::Starting { .. } | State::Releasing { .. } => true,
            State::Freezing { .. }
            | State::Frozen(_)
            | State::Thawing { .. }
            | State::Stopping { .. }
            | State::Terminated { .. }
            | State::Interrupted { .. } => false,
        }
    }
}
