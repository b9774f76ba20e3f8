//! How simulated people behave: which policies their boxes have and how long they are away. Owns those odds.

use super::random::Random;
use crate::policy::{AtEnd, Keeps, LifetimeFrom, Policy, StopFrozen, WokenBy};
use crate::time::{DAY, HOUR, MIN, Ms, SEC, Time};

/// A policy that somebody might choose at `now`.
pub(crate) fn policy(random: &mut Random, now: Time) -> Policy {
    let mut policy = match random.below(10) {
        0..5 => Policy::AGENT,
        5..7 => Policy::ROUTER,
        7 => Policy::TASK,
        _ => e2b(random, now),
    };
    if random.one_in(4) {
        policy.idle_limit_ms = Some(random.ms(1, 600) * MIN);
    }
    if random.one_in(8) {
        policy.freeze_after_ms = Some(random.ms(1, 60) * MIN);
    }
    if random.one_in(16) {
        // Two clocks that are due in the same instant.
        policy.idle_limit_ms = policy.freeze_after_ms;
    }
    if random.one_in(8) {
        policy.keeps = Keeps::Files;
    }
    if random.one_in(8) {
        policy.stop_frozen = StopFrozen::AfterFreeze(random.ms(1, 100) * HOUR);
    }
    if random.one_in(8) {
        policy.restorable_ms = random.ms(0, 2 * DAY);
    }
    if let Some(lifetime) = &mut policy.lifetime {
        if random.one_in(2) {
            lifetime.at_end = AtEnd::Freeze;
        }
        if random.one_in(2) {
            lifetime.ms = random.ms(1, 10_000) * SEC;
        }
    }
    policy
}

/// What an E2B client may ask for.
fn e2b(random: &mut Random, now: Time) -> Policy {
    let mut policy = Policy::E2B;
    if let Some(lifetime) = &mut policy.lifetime {
        lifetime.from = LifetimeFrom::Moment(now);
        if random.one_in(4) {
            lifetime.at_end = AtEnd::KeepFiles;
        }
    }
    match random.below(3) {
        0 => policy.woken_by = WokenBy::AnyCallFor(5 * MIN),
        1 => policy.woken_by = WokenBy::AnyCall,
        _ => {}
    }
    policy
}

/// How long until the next thing happens.
pub(crate) fn pause_ms(random: &mut Random) -> Ms {
    match random.below(20) {
        0..8 => random.ms(0, MIN),
        8..16 => random.ms(MIN, 20 * MIN),
        16..19 => random.ms(20 * MIN, 5 * HOUR),
        _ => random.ms(5 * HOUR, 40 * HOUR),
    }
}
