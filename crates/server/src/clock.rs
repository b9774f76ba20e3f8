//! The only file that reads the time. Owns "now" for the whole server: milliseconds since the epoch, never going
//! backwards. Knows no deadlines: the engine asks, and in a test moves the clock itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use icebox_lifecycle::Time;

/// A clock; clones show the same time.
#[derive(Clone, Debug)]
pub struct Clock(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    source: Source,
    /// The latest moment that was given out, so that a clock set back is not followed.
    latest_ms: AtomicI64,
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
            }
            Source::System => {}
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
