//! Writing a turn: one transaction with the boxes that changed, why, what is told of it and what calls came to. Owns what
//! goes in and when old things go; what happens when it fails is the turn's.

use icebox_lifecycle::Change;
use icebox_lifecycle::time::{HOUR, Ms};

use super::turn::{Core, HEARTBEAT_MS, Turn};
use super::work::KEPT_MS;
use crate::store::{Batch, Gap, StoreError};

/// How often events and steps that were kept long enough are removed. Often, so that a turn does not have many to remove.
const SWEEP_MS: Ms = HOUR;

impl Core {
    pub(super) fn commit(&mut self, turn: &Turn) -> Result<(), StoreError> {
        let now = turn.now;
        let mut batch = Batch {
            removed: turn.removed.clone(),
            steps: turn.steps.clone(),
            gap: turn.gap_ms.map(|ms| Gap { at: now, ms }),
            ..Batch::default()
        };
        self.put_accounts(turn, &mut batch);
        Self::put_snapshots(turn, &mut batch);
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
        if now.since(self.last_heartbeat) >= HEARTBEAT_MS {
            batch.last_seen = Some(now);
        }
        if now.since(self.last_sweep) >= SWEEP_MS {
            batch.kept_from = Some(now - KEPT_MS);
        }
        let nothing = batch.puts.is_empty()
            && batch.removed.is_empty()
            && batch.steps.is_empty()
            && batch.accounts.is_empty()
            && batch.snapshots.is_empty()
            && batch.last_seen.is_none()
            && batch.gap.is_none()
            && batch.kept_from.is_none();
        if nothing {
            return Ok(());
        }
        self.store.commit(&batch)?;
        if batch.last_seen.is_some() {
            self.last_heartbeat = now;
        }
        if batch.kept_from.is_some() {
            self.last_sweep = now;
        }
        Ok(())
    }
}
