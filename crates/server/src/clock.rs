//! The only file that reads the time. Owns "now" for the whole server: milliseconds since the epoch, never going
//! backwards. Knows no deadlines: the engine asks, and in a test moves the clock itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use icebox_lifecycle::Time;
use tokio::sync::watch;
use tokio::time::Instant;

/// How long is slept at most before the clock is looked at again: a host that slept wakes with another time.
const LOOK_AGAIN: Duration = Duration::from_secs(30);

/// A clock; clones show the same time.
#[derive(Clone, Debug)]
pub struct Clock(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    source: Source,
    /// The latest moment that was given out, so that a clock set back is not followed.
    latest_ms: AtomicI64,
    /// Changes when a test clock was moved.
    moved: watch::Sender<()>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    System,
    Test,
}

impl Clock {
    /// The time of the machine, never before `floor`.
    #[must_use]
    pub fn system(floor: Time) -> Self {
        Self::new(Source::System, floor)
    }

    /// A clock that stands still at `start` until it is moved (`--test-clock`).
    #[must_use]
    pub fn test(start: Time) -> Self {
        Self::new(Source::Test, start)
    }

    fn new(source: Source, floor: Time) -> Self {
        Self(Arc::new(Inner {
            source,
            latest_ms: AtomicI64::new(floor.0),
            moved: watch::Sender::new(()),
        }))
    }

    /// The current time.
    #[must_use]
    pub fn now(&self) -> Time {
        let latest = &self.0.latest_ms;
        match self.0.source {
            Source::Test => Time(latest.load(Ordering::Acquire)),
            Source::System => {
                let wall = wall_ms();
                Time(latest.fetch_max(wall, Ordering::AcqRel).max(wall))
            }
        }
    }

    /// Whether time moves only when it is told to.
    #[must_use]
    pub fn is_test(&self) -> bool {
        self.0.source == Source::Test
    }

    /// Moves a test clock forward to `to`; earlier moments change nothing. A system clock is left alone.
    pub fn move_to(&self, to: Time) {
        match self.0.source {
            Source::Test => {
                self.0.latest_ms.fetch_max(to.0, Ordering::AcqRel);
                self.0.moved.send_replace(());
            }
            Source::System => {}
        }
    }

    /// Waits until it is `at`; under a test clock until somebody moves it there.
    pub async fn reached(&self, at: Time) {
        let mut moved = self.0.moved.subscribe();
        while self.now() < at {
            match self.until(at) {
                Some(wait) => tokio::time::sleep(wait.min(LOOK_AGAIN)).await,
                // The sender lives as long as this clock.
                None => drop(moved.changed().await),
            }
        }
    }

    /// How long until `at`, in real time. A test clock never gets there by itself.
    #[must_use]
    pub fn until(&self, at: Time) -> Option<Duration> {
        match self.0.source {
            Source::Test => None,
            Source::System => {
                let ms = u64::try_from(at.since(self.now())).unwrap_or(0);
                Some(Duration::from_millis(ms))
            }
        }
    }
}

/// The machine's time, for the moment the first clock is made.
#[must_use]
pub fn machine_now() -> Time {
    Time(wall_ms())
}

/// The monotonic clock: for waits, and for how old an answer is, within one run of the server. No rule depends on it, and
/// a test clock does not move it.
#[must_use]
pub fn monotonic_now() -> Instant {
    #[expect(
        clippy::disallowed_methods,
        reason = "this is the one place where time is read"
    )]
    Instant::now()
}

fn wall_ms() -> i64 {
    #[expect(
        clippy::disallowed_methods,
        reason = "this is the one place where time is read"
    )]
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_never_goes_back() {
        let ahead = machine_now() + 3_600_000;
        let clock = Clock::system(ahead);
        assert_eq!(clock.now(), ahead);
        clock.move_to(ahead + 1);
        assert_eq!(clock.now(), ahead, "a system clock cannot be moved");
    }

    #[tokio::test]
    async fn a_moment_is_reached_when_the_clock_was_moved_there() {
        let clock = Clock::test(Time(1_000));
        clock.reached(Time(1_000)).await;
        let waiting = tokio::spawn({
            let clock = clock.clone();
            async move {
                clock.reached(Time(3_000)).await;
                clock.now()
            }
        });
        clock.move_to(Time(2_000));
        tokio::task::yield_now().await;
        clock.move_to(Time(3_000));
        assert_eq!(waiting.await.unwrap(), Time(3_000));
        let system = Clock::system(Time(0));
        let soon = system.now() + 20;
        system.reached(soon).await;
        assert!(system.now() >= soon);
    }

    #[test]
    fn a_test_clock_stands_still_until_moved_and_only_forward() {
        let clock = Clock::test(Time(1_000));
        assert_eq!(clock.now(), Time(1_000));
        clock.move_to(Time(5_000));
        clock.move_to(Time(2_000));
        assert_eq!(clock.now(), Time(5_000));
        assert_eq!(clock.until(Time(9_000)), None);
    }
}
