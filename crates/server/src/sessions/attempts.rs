//! Tries to sign in that failed, by address. Owns how many there may be, and for how long an address then waits.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Mutex, PoisonError};

use icebox_lifecycle::Time;
use icebox_lifecycle::time::{MIN, SEC};

/// Failures within [`WINDOW_MS`] after which an address waits.
pub(crate) const MOST: u32 = 20;
const WINDOW_MS: i64 = MIN;
/// Addresses that are remembered; beyond them all others count as one.
const MOST_ADDRESSES: usize = 10_000;

/// What failed lately.
#[derive(Debug, Default)]
pub(super) struct Attempts(Mutex<HashMap<IpAddr, Failures>>);

#[derive(Debug)]
struct Failures {
    since: Time,
    count: u32,
}

impl Attempts {
    /// How many seconds an address has to wait, if it has to.
    pub(super) fn wait_sec(&self, from: Option<IpAddr>, now: Time) -> Option<u32> {
        let mut failures = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let place = place(&mut failures, from, now);
        let failed = failures.get(&place)?;
        let wait_ms = WINDOW_MS - now.since(failed.since);
        if failed.count < MOST || wait_ms <= 0 {
            return None;
        }
        let wait_sec = wait_ms.max(0).unsigned_abs().div_ceil(SEC.unsigned_abs());
        Some(u32::try_from(wait_sec).unwrap_or(u32::MAX))
    }

    /// Takes note of a failure.
    pub(super) fn failed(&self, from: Option<IpAddr>, now: Time) {
        let mut failures = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let place = place(&mut failures, from, now);
        let entry = failures.entry(place);
        let failed = entry.or_insert(Failures {
            since: now,
            count: 0,
        });
        if now.since(failed.since) >= WINDOW_MS {
            (failed.since, failed.count) = (now, 0);
        }
        failed.count = failed.count.saturating_add(1);
    }
}

/// Under what an address is remembered: a network of IPv6 addresses is one subscriber's.
fn place(failures: &mut HashMap<IpAddr, Failures>, from: Option<IpAddr>, now: Time) -> IpAddr {
    const ALL_OTHERS: IpAddr = IpAddr::V6(Ipv6Addr::UNSPECIFIED);
    let place = match from.map(|from| from.to_canonical()) {
        Some(IpAddr::V6(address)) => {
            let network = address.to_bits() & !u128::from(u64::MAX);
            IpAddr::V6(Ipv6Addr::from_bits(network))
        }
        Some(address @ IpAddr::V4(_)) => address,
        None => ALL_OTHERS,
    };
    if failures.contains_key(&place) || failures.len() < MOST_ADDRESSES {
        return place;
    }
    failures.retain(|_, failed| now.since(failed.since) < WINDOW_MS);
    if failures.len() < MOST_ADDRESSES {
        place
    } else {
        ALL_OTHERS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Time = Time(1_000_000);

    fn fail(attempts: &Attempts, from: &str, times: u32) {
        for _ in 0..times {
            attempts.failed(Some(from.parse().unwrap()), NOW);
        }
    }

    #[test]
    fn an_address_waits_until_its_minute_is_over_and_others_do_not() {
        let attempts = Attempts::default();
        let wait = |from: &str, now| attempts.wait_sec(Some(from.parse().unwrap()), now);
        fail(&attempts, "192.0.2.1", MOST - 1);
        assert_eq!(wait("192.0.2.1", NOW), None);
        fail(&attempts, "192.0.2.1", 1);
        assert_eq!(wait("192.0.2.1", NOW), Some(60));
        assert_eq!(wait("::ffff:192.0.2.1", NOW + 59_001), Some(1));
        assert_eq!(wait("192.0.2.1", NOW + MIN), None);
        assert_eq!(wait("192.0.2.2", NOW), None);
        fail(&attempts, "2001:db8::1", MOST);
        assert_eq!(wait("2001:db8::2:3", NOW), Some(60), "the same network");
        assert_eq!(wait("2001:db8:0:1::1", NOW), None);
    }

    #[test]
    fn what_is_remembered_has_a_limit() {
        let attempts = Attempts::default();
        for n in 0..MOST_ADDRESSES as u32 + MOST {
            attempts.failed(Some(IpAddr::V4(n.into())), NOW);
        }
        let known = attempts.0.lock().unwrap().len();
        assert_eq!(known, MOST_ADDRESSES + 1);
        let new = Some(IpAddr::V4(u32::MAX.into()));
        assert_eq!(attempts.wait_sec(new, NOW), Some(60), "all others are one");
        assert_eq!(attempts.wait_sec(new, NOW + MIN), None);
    }
}
