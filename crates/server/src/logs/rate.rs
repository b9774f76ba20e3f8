//! How much a project may send: an allowance that is used up and comes back with time. Owns its size.

use icebox_lifecycle::Time;

/// Events a project may send at once, and how many of them come back each second.
pub(super) const EVENTS: u64 = 5_000;
const EVENTS_A_SEC: u64 = 100;
/// The same in bytes.
pub(super) const BYTES: u64 = 16 << 20;
const BYTES_A_SEC: u64 = 1 << 20;
const SEC: u64 = 1_000;

/// What was used of the allowance, in thousandths.
#[derive(Debug, Default)]
pub(super) struct Rate {
    at: Time,
    events: u64,
    bytes: u64,
}

impl Rate {
    /// Uses some of it; when that is more than there is, uses nothing and says after how many seconds it will fit.
    pub(super) fn take(&mut self, now: Time, events: u64, bytes: u64) -> Result<(), u32> {
        let passed = u64::try_from(now.since(self.at)).unwrap_or(0);
        self.at = now;
        self.events = self
            .events
            .saturating_sub(passed.saturating_mul(EVENTS_A_SEC));
        self.bytes = self
            .bytes
            .saturating_sub(passed.saturating_mul(BYTES_A_SEC));
        let (used_events, used_bytes) = (self.events + events * SEC, self.bytes + bytes * SEC);
        let wait = |used: u64, most: u64, a_sec: u64| {
            let over = used.saturating_sub(most * SEC);
            over.div_ceil(a_sec * SEC)
        };
        let wait =
            wait(used_events, EVENTS, EVENTS_A_SEC).max(wait(used_bytes, BYTES, BYTES_A_SEC));
        if wait > 0 {
            return Err(u32::try_from(wait).unwrap_or(u32::MAX));
        }
        (self.events, self.bytes) = (used_events, used_bytes);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_used_comes_back() {
        let mut rate = Rate::default();
        let now = Time(1_000_000);
        assert_eq!(rate.take(now, EVENTS, 10), Ok(()));
        assert_eq!(rate.take(now, 1, 10), Err(1));
        assert_eq!(rate.take(now, 250, 10), Err(3));
        assert_eq!(rate.take(now + 1_000, 101, 10), Err(1));
        assert_eq!(rate.take(now + 1_000, 100, 10), Ok(()));
        assert_eq!(rate.take(now + 1_000, 0, BYTES), Err(1));
        assert_eq!(rate.take(now + 2_000, 0, BYTES), Ok(()));
        assert_eq!(rate.take(now + 3_600_000, EVENTS, BYTES), Ok(()));
    }
}
