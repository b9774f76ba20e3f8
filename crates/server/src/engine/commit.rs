//! Writing a turn: one transaction with the boxes that changed, why, what is told of it and what calls came to. Owns what
//! goes in, what may wait for a later one, and when old things go; what happens when it fails is the turn's.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use icebox_lifecycle::time::{HOUR, Ms};
use icebox_lifecycle::{BoxId, Change};

use super::turn::{Core, HEARTBEAT_MS, Turn};
use super::views::View;
use super::work::{KEPT_MS, Work, deadline};
use crate::store::{Batch, Gap, Put, StoreError};

/// How often events and steps that were kept long enough are removed. Often, so that a turn does not have many to remove.
const SWEEP_MS: Ms = HOUR;

impl Core {
    pub(super) fn commit(&mut self, turn: &Turn) -> Result<(), StoreError> {
        let now = turn.now;
        let late = self.late(turn);
        let mut batch = Batch {
            removed: turn.removed.clone(),
            steps: turn.steps.clone(),
            gap: turn.gap_ms.map(|ms| Gap { at: now, ms }),
            puts: late.iter().map(|view| put(view)).collect(),
            ..Batch::default()
        };
        self.put_accounts(turn, &mut batch);
        Self::put_snapshots(turn, &mut batch);
        if now.since(self.last_heartbeat) >= HEARTBEAT_MS {
            batch.last_seen = Some(now);
        }
        if now.since(self.last_sweep) >= SWEEP_MS {
            batch.kept_from = Some(now - KEPT_MS);
        }
        let only_activity = turn.work.values().all(Work::may_be_written_later);
        let nothing_else = batch.removed.is_empty()
            && batch.steps.is_empty()
            && batch.accounts.is_empty()
            && batch.snapshots.is_empty()
            && batch.last_seen.is_none()
            && batch.gap.is_none()
            && batch.kept_from.is_none();
        let may_wait = only_activity && nothing_else && !turn.closing && !self.behind.is_due();
        let nothing = nothing_else && turn.work.is_empty() && late.is_empty();
        if may_wait || nothing {
            self.behind.add(turn.work.keys().copied());
            return Ok(());
        }
        for (id, work) in &turn.work {
            batch.durable |= work.changed == Change::Transition;
            batch.puts.push(work.put(now));
            batch
                .reasons
                .extend(work.reasons.iter().map(|reason| (*id, reason)));
            batch.events.extend(work.told.iter().cloned());
            batch
                .steps
                .extend(work.steps.iter().map(|step| (*id, step.clone())));
        }
        self.store.commit(&batch)?;
        self.counters.commits.fetch_add(1, Ordering::Relaxed);
        self.behind.written();
        if batch.last_seen.is_some() {
            self.last_heartbeat = now;
        }
        if batch.kept_from.is_some() {
            self.last_sweep = now;
        }
        Ok(())
    }

    /// Marks stopped boxes that were kept long enough to be forgotten (rule 6.8).
    pub(super) fn sweep(&mut self, turn: &mut Turn) {
        let over = |id: &BoxId| {
            let at = turn.work.get(id).and_then(|work| work.sandbox.forget_at());
            at.is_some_and(|at| at <= turn.now)
        };
        turn.removed = turn.due.iter().filter(|id| over(id)).copied().collect();
        for id in &turn.removed {
            turn.work.remove(id);
        }
    }

    /// The boxes whose activity was shown before this turn, is not written yet, and is not written as part of it.
    fn late(&self, turn: &Turn) -> Vec<Arc<View>> {
        let elsewhere = |id: &BoxId| turn.work.contains_key(id) || turn.removed.contains(id);
        let ids = self.behind.boxes().filter(|id| !elsewhere(id));
        ids.filter_map(|id| self.views.get(id)).collect()
    }
}

/// A box as it is shown; its record is written already.
fn put(view: &View) -> Put<'_> {
    Put {
        sandbox: &view.sandbox,
        record: None,
        account: view.record.account,
        generation: view.generation,
        recorded_at: view.recorded_at,
        status: view.sandbox.status().as_str(),
        deadline: deadline(&view.sandbox),
    }
}
