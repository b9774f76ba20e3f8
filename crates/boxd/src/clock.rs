//! Time inside the box: the wall clock for records, and waiting that does not count frozen time.
//!
//! Does not set clocks: a user namespace may not. The server is told the skew instead.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How often a wait looks at the clock.
const TICK: Duration = Duration::from_millis(250);

/// The most one look may count. A box frozen in RAM finds its monotonic clock jumped ahead at the thaw; one frozen to
/// disk does not. Counting at most this much makes both the same without anyone telling boxd.
const MOST_A_TICK: Duration = Duration::from_secs(1);

/// Milliseconds since the Unix epoch by the box's clock.
#[expect(
    clippy::disallowed_methods,
    reason = "this file is the box's only reader of clocks"
)]
pub(crate) fn unix_ms() -> i64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// A moment to measure lengths from.
#[expect(
    clippy::disallowed_methods,
    reason = "this file is the box's only reader of clocks"
)]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Waits until the box has been awake for `length`: time spent frozen does not count (rule 12.1), whichever tier kept
/// the memory. Each freeze may add up to a second of error.
pub(crate) async fn awake(length: Duration) {
    Countdown::new(length).run().await;
}

/// A length of time awake that runs down, and says meanwhile what is left of it, a quarter of a second too much at most.
#[derive(Debug)]
pub(crate) struct Countdown {
    left_us: AtomicU64,
}

impl Countdown {
    /// Of this length.
    pub(crate) fn new(length: Duration) -> Self {
        let us = u64::try_from(length.as_micros()).unwrap_or(u64::MAX);
        Self {
            left_us: AtomicU64::new(us),
        }
    }

    /// What is left of it.
    pub(crate) fn left(&self) -> Duration {
        Duration::from_micros(self.left_us.load(Ordering::Relaxed))
    }

    /// Waits for its end, as [`awake`] does.
    pub(crate) async fn run(&self) {
        while !self.left().is_zero() {
            let before = now();
            tokio::time::sleep(self.left().min(TICK)).await;
            let left = self.left().saturating_sub(counted(before.elapsed()));
            let us = u64::try_from(left.as_micros()).unwrap_or(u64::MAX);
            self.left_us.store(us, Ordering::Relaxed);
        }
    }
}

/// What one look at the clock counts.
fn counted(elapsed: Duration) -> Duration {
    elapsed.min(MOST_A_TICK)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_jump_of_an_hour_counts_a_second_at_most() {
        assert_eq!(counted(Duration::from_secs(3600)), MOST_A_TICK);
        assert_eq!(counted(TICK), TICK);
    }

    #[tokio::test]
    async fn an_undisturbed_wait_is_exact() {
        let before = now();
        awake(Duration::from_millis(60)).await;
        let took = before.elapsed();
        assert!(took >= Duration::from_millis(60), "{took:?}");
        assert!(
            took < Duration::from_millis(250),
            "a short wait must not be rounded up to a tick: {took:?}"
        );
    }
}
