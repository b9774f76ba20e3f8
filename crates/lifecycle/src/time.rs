//! Time as the lifecycle knows it: milliseconds since the epoch, always handed in by the caller.
//! Nothing here can read a clock.

use core::ops::{Add, Sub};

/// A moment, in milliseconds since the Unix epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(pub i64);

/// A length of time in milliseconds.
pub type Ms = i64;

/// One second, in milliseconds.
pub const SEC: Ms = 1_000;
/// One minute, in milliseconds.
pub const MIN: Ms = 60 * SEC;
/// One hour, in milliseconds.
pub const HOUR: Ms = 60 * MIN;
/// One day, in milliseconds.
pub const DAY: Ms = 24 * HOUR;

impl Time {
    /// Milliseconds from `earlier` to `self`; zero when `earlier` is later.
    #[must_use]
    pub fn since(self, earlier: Self) -> Ms {
        (self.0 - earlier.0).max(0)
    }
}

impl Add<Ms> for Time {
    type Output = Self;
    fn add(self, ms: Ms) -> Self {
        Self(self.0.saturating_add(ms))
    }
}

impl Sub<Ms> for Time {
    type Output = Self;
    fn sub(self, ms: Ms) -> Self {
        Self(self.0.saturating_sub(ms))
    }
}
