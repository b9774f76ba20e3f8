//! Activity that is shown and not yet written. That a call began moves a clock and nothing else, and losing its last moment
//! is harmless (`Change::Activity`), so nobody waits for the disk with it: it is written together with the next turn that
//! has more to say, and at the latest [`LONGEST`] later. Owns which boxes that are.

use std::collections::BTreeSet;
use std::time::Duration;

use icebox_lifecycle::{BoxId, Change};
use tokio::time::Instant;

use super::work::Work;
use crate::clock::monotonic_now;

/// How much activity a server that is killed may have shown and not written, by the age of the oldest.
const LONGEST: Duration = Duration::from_millis(500);
/// The most boxes that wait to be written.
const MOST: usize = 10_000;

/// The boxes whose records are older than what is shown of them.
#[derive(Debug, Default)]
pub(super) struct Behind {
    boxes: BTreeSet<BoxId>,
    /// When the first of them came in.
    since: Option<Instant>,
}

impl Behind {
    /// Puts the writing of these boxes off.
    pub(super) fn add(&mut self, ids: impl Iterator<Item = BoxId>) {
        self.boxes.extend(ids);
        if !self.boxes.is_empty() {
            self.since.get_or_insert_with(monotonic_now);
        }
    }

    /// The boxes that wait to be written.
    pub(super) fn boxes(&self) -> impl Iterator<Item = BoxId> {
        self.boxes.iter().copied()
    }

    /// Everything that waited is written.
    pub(super) fn written(&mut self) {
        self.boxes.clear();
        self.since = None;
    }

    /// In how much time they have to be written; `None` when none waits.
    pub(super) fn due_in(&self) -> Option<Duration> {
        let since = self.since?;
        if self.boxes.len() >= MOST {
            return Some(Duration::ZERO);
        }
        Some(LONGEST.saturating_sub(monotonic_now().duration_since(since)))
    }

    /// Whether they have to be written now.
    pub(super) fn is_due(&self) -> bool {
        self.due_in().is_some_and(|left| left.is_zero())
    }
}

impl Work {
    /// Whether all that came of it is activity.
    pub(super) fn may_be_written_later(&self) -> bool {
        self.changed <= Change::Activity
            && !self.record_changed
            && self.effects.is_empty()
            && self.reasons.is_empty()
            && self.told.is_empty()
            && self.steps.is_empty()
    }
}
