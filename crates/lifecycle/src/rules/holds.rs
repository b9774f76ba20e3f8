//! Rule 4.2: what holds a box awake without an end. Owns the list, and what a link is worth.

use alloc::vec::Vec;

use crate::event::Event;
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
    /// What it is to the boxes that it has links to (4.2), and when that is to be asked again; `None`: that moment is not known,
    /// or will not come. The link of a box that has ended is over, and that end is a use; one that froze goes on to have a link
    /// that holds nothing, until its connections are closed.
    #[must_use]
    pub fn as_link_source(&self, now: Time) -> (Event, Option<Time>) {
        let from = self.id;
        match self.state {
            State::Stopping { .. } | State::Terminated { .. } | State::Interrupted { .. } => {
                (Event::LinkClosed { from }, None)
            }
            State::Starting { .. }
            | State::Ready
            | State::Freezing { .. }
            | State::Frozen(_)
            | State::Thawing { .. }
            | State::Releasing { .. } => {
                let awake_by_itself = self.awake_by_itself(now);
                let until = (self.state == State::Ready).then(|| super::idle_freeze::moment(self));
                let until = until.flatten().filter(|at| *at > now);
                let news = Event::LinkSource {
                    from,
                    awake_by_itself,
                };
                (news, until)
            }
        }
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
