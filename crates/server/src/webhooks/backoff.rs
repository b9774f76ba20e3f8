//! When a delivery that failed is tried again, and when no more. Pure: the time and the chance are parameters.

use icebox_lifecycle::Time;
use icebox_lifecycle::time::{DAY, HOUR, Ms, SEC};

/// The wait after the first failure; each further one is four times as long.
const FIRST_MS: Ms = 5 * SEC;
const FACTOR: Ms = 4;
/// The longest wait of our own.
const LONGEST_MS: Ms = 4 * HOUR;
/// The longest wait that an endpoint may ask for.
const ASKED_MOST_MS: Ms = DAY;
/// An event is tried until it is so old.
const GIVE_UP_MS: Ms = DAY;
/// And at least so often, for it may be old when it is tried first.
const TRIES_LEAST: u32 = 3;

/// The moment of the next try; `None`: no more. `tries` have failed, `asked_ms` is the endpoint's `Retry-After`, and
/// `chance` (any number) spreads the waits from three to five quarters, so that what failed together does not come back
/// together.
pub(super) fn next(
    now: Time,
    event_at: Time,
    tries: u32,
    asked_ms: Option<Ms>,
    chance: u64,
) -> Option<Time> {
    if tries >= TRIES_LEAST && now.since(event_at) >= GIVE_UP_MS {
        return None;
    }
    let times = FACTOR.saturating_pow(tries.saturating_sub(1));
    let wait = FIRST_MS.saturating_mul(times).min(LONGEST_MS);
    let spread = wait / 2;
    let chance = i64::try_from(chance >> 1).unwrap_or(0) % (spread + 1);
    let asked = asked_ms.unwrap_or(0).clamp(0, ASKED_MOST_MS);
    Some(now + (wait - spread / 2 + chance).max(asked))
}

#[cfg(test)]
mod tests {
    use super::*;

    const T: Time = Time(1_000_000_000);

    fn wait(tries: u32, asked_ms: Option<Ms>, chance: u64) -> Ms {
        next(T, T, tries, asked_ms, chance).unwrap().since(T)
    }

    #[test]
    fn waits_grow_to_a_limit_and_are_spread() {
        assert_eq!(wait(1, None, 0), 3_750);
        assert_eq!(wait(1, None, 2 * 2_500), 6_250);
        for (tries, middle) in [
            (1, 5 * SEC),
            (2, 20 * SEC),
            (4, 320 * SEC),
            (6, 5_120 * SEC),
            (7, 4 * HOUR),
            (u32::MAX, 4 * HOUR),
        ] {
            for chance in [0, 1, 77, u64::MAX / 3, u64::MAX] {
                let wait = wait(tries, None, chance);
                assert!((middle * 3 / 4..=middle * 5 / 4).contains(&wait), "{wait}");
            }
        }
    }

    #[test]
    fn an_endpoint_may_ask_for_longer_and_not_for_shorter() {
        assert_eq!(wait(1, Some(60 * SEC), 0), 60 * SEC);
        assert_eq!(wait(1, Some(1), 0), 3_750);
        assert_eq!(wait(1, Some(-1), 0), 3_750);
        assert_eq!(wait(1, Some(Ms::MAX), 0), DAY);
    }

    #[test]
    fn after_a_day_and_three_tries_it_is_given_up() {
        let old = |age, tries| next(T + age, T, tries, None, 0);
        assert!(old(DAY - 1, 20).is_some());
        assert_eq!(old(DAY, 20), None);
        assert!(old(9 * DAY, 2).is_some());
        assert_eq!(old(9 * DAY, 3), None);
    }
}
