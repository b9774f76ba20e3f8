//! How long something takes, and waiting for something with a limit. Owns the only reading of the monotonic clock in
//! this program: it measures and bounds waits, and no rule depends on it.

use std::time::{Duration, Instant};

/// Runs from when it was made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stopwatch(Instant);

impl Stopwatch {
    /// Starts one.
    #[expect(
        clippy::disallowed_methods,
        reason = "it only measures how long something took"
    )]
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    /// How long it has run.
    pub(crate) fn elapsed(self) -> Duration {
        self.0.elapsed()
    }
}

/// Milliseconds, for people: with a digit behind the point below ten.
pub(crate) fn ms(took: Duration) -> String {
    let ms = took.as_secs_f64() * 1_000.0;
    if ms < 10.0 {
        format!("{ms:.1} ms")
    } else {
        format!("{ms:.0} ms")
    }
}
