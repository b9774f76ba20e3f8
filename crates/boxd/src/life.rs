//! Who boxd is and what it went through: the same over thaws and over restarts in place.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use icebox_wire::handover::Handover;

use crate::clock;
use crate::id::ExecId;

/// Since boxd first started.
pub(crate) struct Life {
    /// Made then.
    pub(crate) start_id: String,
    pub(crate) started_ms: i64,
    /// How often it has executed itself anew.
    pub(crate) restarts: u32,
    thaws: AtomicU64,
    skew_ms: AtomicI64,
}

impl Life {
    /// One that begins.
    pub(crate) fn new() -> Self {
        Self {
            start_id: ExecId::fresh().to_string(),
            started_ms: clock::unix_ms(),
            restarts: 0,
            thaws: AtomicU64::new(0),
            skew_ms: AtomicI64::new(0),
        }
    }

    /// One that goes on after a restart.
    pub(crate) fn take_over(handover: &Handover) -> Self {
        Self {
            start_id: handover.start_id.clone(),
            started_ms: handover.started_ms,
            restarts: handover.restarts.saturating_add(1),
            thaws: AtomicU64::new(handover.thaws),
            skew_ms: AtomicI64::new(handover.skew_ms),
        }
    }

    /// Adds what the next boxd has to know of it.
    pub(crate) fn leave(&self, to: &mut Handover) {
        to.start_id.clone_from(&self.start_id);
        to.started_ms = self.started_ms;
        to.restarts = self.restarts;
        to.thaws = self.thaws();
        to.skew_ms = self.skew_ms();
    }

    /// The box was thawed, and the host's clock is this far ahead of its own.
    pub(crate) fn thawed(&self, skew_ms: i64) {
        self.skew_ms.store(skew_ms, Ordering::Relaxed);
        self.thaws.fetch_add(1, Ordering::Relaxed);
    }

    /// How often boxd was told of a thaw.
    pub(crate) fn thaws(&self) -> u64 {
        self.thaws.load(Ordering::Relaxed)
    }

    /// As the latest thaw found it.
    pub(crate) fn skew_ms(&self) -> i64 {
        self.skew_ms.load(Ordering::Relaxed)
    }
}
