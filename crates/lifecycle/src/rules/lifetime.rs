//! Rules 12.4 and 6.10: how long a box may be up. Owns the end of a lifetime and what is left of it.

use crate::policy::{AtEnd, LifetimeFrom, Policy};
use crate::rules::{Clock, Rule, pause};
use crate::sandbox::Sandbox;
use crate::state::{End, FreezeCause, State};
use crate::time::{Ms, Time};

/// The rule.
pub const RULE: Rule = Rule {
    number: "12.4",
    also: &["6.10", "12.0"],
    name: "lifetime",
    elsewhere: None,
    title: "Lifetime and hard cap",
    sentence: "A lifetime counts from the start of creation, a hard cap from the latest boot; time spent frozen does not \
               count. At its end the box is destroyed, or frozen where it was asked for, whatever holds it. A cap can \
               be raised, not removed.",
};

/// The clock of a lifetime that ends with the box.
pub(crate) const DESTROY: Clock = Clock {
    due: |sb| ends_with(sb, AtEnd::Destroy),
    strike: |turn| {
        turn.because(RULE.number, "its lifetime is over");
        turn.stop_by_rule(End::Lifetime);
    },
};

/// The clock of a lifetime that ends with a freeze. It waits for a box that is not ready; one that froze for being idle
/// is as good as frozen, and is paused from then on (15.1).
pub(crate) const FREEZE: Clock = Clock {
    due: |sb| match &sb.state {
        State::Ready => {
            let retry = sb.freeze_failure.as_ref().and_then(|retry| retry.at);
            let end = ends_with(sb, AtEnd::Freeze).or_else(|| ends_with(sb, AtEnd::KeepFiles));
            end.map(|end| retry.map_or(end, |at| at.max(end)))
        }
        // Something comes for it, or its copy is being checked: whatever comes of that is next.
        State::Frozen(frozen) if frozen.wake || frozen.evicting.is_some() => None,
        State::Frozen(_) => {
            ends_with(sb, AtEnd::Freeze).or_else(|| ends_with(sb, AtEnd::KeepFiles))
        }
        State::Starting { .. }
        | State::Freezing { .. }
        | State::Thawing { .. }
        | State::Releasing { .. }
        | State::Stopping { .. }
        | State::Terminated { .. }
        | State::Interrupted { .. } => None,
    },
    strike: |turn| {
        turn.because(RULE.number, "its lifetime is over, which freezes it");
        let files_only = turn
            .sb
            .policy
            .lifetime
            .is_some_and(|lifetime| lifetime.at_end == AtEnd::KeepFiles);
        pause::pause(turn, FreezeCause::Lifetime, files_only);
    },
};

fn ends_with(sb: &Sandbox, at_end: AtEnd) -> Option<Time> {
    let lifetime = sb.policy.lifetime?;
    (lifetime.at_end == at_end).then(|| ends_at(sb)).flatten()
}

/// The end of its lifetime; `None` while it is not up, or when it has none.
pub(crate) fn ends_at(sb: &Sandbox) -> Option<Time> {
    let lifetime = sb.policy.lifetime?;
    let base = match (lifetime.from, &sb.state) {
        (LifetimeFrom::Moment(from), _) => {
            return pause::counts(sb).then_some(from + lifetime.ms);
        }
        (_, State::Stopping { .. }) | (LifetimeFrom::LatestBoot, State::Starting { .. }) => {
            return None;
        }
        (LifetimeFrom::Creation, _) => sb.meter.life_base_ms,
        (LifetimeFrom::LatestBoot, _) => sb.meter.boot_base_ms,
    };
    let since = sb.meter.since?;
    Some(since + (lifetime.ms - (sb.meter.total_ms - base)))
}

/// What is left of its lifetime; `None` when it has none.
pub(crate) fn remaining_ms(sb: &Sandbox, now: Time) -> Option<Ms> {
    let lifetime = sb.policy.lifetime?;
    let base = match lifetime.from {
        LifetimeFrom::Creation => sb.meter.life_base_ms,
        LifetimeFrom::LatestBoot => sb.meter.boot_base_ms,
        LifetimeFrom::Moment(from) => return Some((from + lifetime.ms).since(now)),
    };
    Some((lifetime.ms - (sb.meter.read(now) - base)).max(0))
}

/// Whether `new` takes away from a hard cap that `old` has.
pub(crate) fn lowers_cap(old: &Policy, new: &Policy) -> bool {
    let cap = |policy: &Policy| {
        policy
            .lifetime
            .filter(|lifetime| lifetime.from == LifetimeFrom::LatestBoot)
            .map(|lifetime| lifetime.ms)
    };
    match (cap(old), cap(new)) {
        (Some(old), Some(new)) => new < old,
        (Some(_), None) => true,
        (None, _) => false,
    }
}
