//! Housekeeping: what is too old or too much goes, a bounded bite at a time, so that what is logged meanwhile never waits
//! long. Owns when; a search does not depend on it, for it never shows what is too old.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use icebox_lifecycle::time::{DAY, HOUR};
use icebox_lifecycle::{Ms, Time};

use super::Shared;
use crate::store::StoreError;

/// What is too old is looked for as often.
const EVERY: Ms = HOUR;

/// Keeps house for ever.
pub(super) async fn run(shared: Arc<Shared>) {
    let clock = shared.commands.clock().clone();
    loop {
        let swept = tokio::task::spawn_blocking({
            let shared = Arc::clone(&shared);
            move || shared.sweep()
        });
        match swept.await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(
                error = &error as &dyn std::error::Error,
                "logs are not swept"
            ),
            Err(error) => tracing::error!(%error, "logs are not swept"),
        }
        let next = clock.now() + EVERY;
        tokio::select! {
            () = clock.reached(next) => {}
            () = shared.too_much.notified() => {}
        }
    }
}

impl Shared {
    /// Rows that came before this moment are not shown any more.
    pub(super) fn kept_from(&self) -> Time {
        self.commands.clock().now() - Ms::from(self.settings().keep_days) * DAY
    }

    /// The most that the rows of a project may take up.
    pub(super) fn most_bytes(&self) -> u64 {
        self.settings().project_mb << 20
    }

    fn sweep(&self) -> Result<(), StoreError> {
        while self.tables.sweep_gone()? {}
        for project in self.projects.all() {
            loop {
                let (from, most) = (self.kept_from(), self.most_bytes());
                let (left, more) = self.tables.sweep(project.number, from, most)?;
                project.bytes.store(left, Ordering::Relaxed);
                if !more {
                    break;
                }
            }
        }
        Ok(())
    }
}
