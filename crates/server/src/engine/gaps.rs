//! Time in which nobody could use a box (rule 3.6): while the server was down, and while the host slept. Owns that every
//! box counts it in, whether or not anything else happens to it in the turn that finds it.

use std::sync::Arc;

use icebox_lifecycle::{BoxId, Change, Event, Ms, Time};

use super::turn::{Core, Turn};
use super::work::Work;
use crate::store::{Batch, Gap, StoreError};

impl Core {
    /// Writes down for how long no server ran until `now`, before anything else: one that ends before it has looked at
    /// every box must not leave some with it and some without.
    pub(super) fn record_gap(&mut self, now: Time) -> Result<(), StoreError> {
        let last_seen = self.store.last_seen()?;
        let ms = last_seen.map_or(0, |last| now.since(last));
        self.store.commit(&Batch {
            gap: (ms > 0).then_some(Gap { at: now, ms }),
            last_seen: Some(now),
            ..Batch::default()
        })?;
        self.last_turn = now;
        Ok(())
    }

    /// The host slept, up to this very moment: no box ran (rules 3.6, 14.5). Every box that this turn touches counts it in,
    /// and those that are billed are touched, so that they are charged right; and those that are yet to be written, for a row
    /// that is written with this turn counts the gap in.
    pub(super) fn slept(&mut self, turn: &mut Turn, ms: Ms) {
        turn.gap_ms = Some(ms);
        let behind: Vec<BoxId> = self.behind.boxes().collect();
        for id in self.billing.all_up().into_iter().chain(behind) {
            self.work(turn, id);
        }
    }

    /// Tells a box that was loaded of the time it has missed while no server ran. Before anything else, for with any event
    /// the due clocks strike. One that did not run meanwhile is not billed for it, up to this moment.
    pub(super) fn missed(&mut self, turn: &mut Turn, id: BoxId, gap: Gap, ran: bool) {
        let at = if ran { gap.at } else { turn.now };
        if let Some(work) = self.work(turn, id) {
            work.handle(at, Event::Gap { ms: gap.ms, ran });
        }
    }

    /// Shows a gap that was committed with this turn, for every box that had no work in it. Their entries among the
    /// deadlines are too early now, which is set right as they come up.
    pub(super) fn show_gap(&self, turn: &Turn, ms: Ms) {
        let others = self.views.all();
        for view in others.filter(|view| !turn.work.contains_key(&view.id())) {
            let work = Work::on(view, turn.now, Some(ms));
            if work.changed > Change::None {
                self.views.publish(Arc::new(work.view(turn.now)));
            }
        }
    }
}
