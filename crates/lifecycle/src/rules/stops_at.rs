//! Rules 6.3 and 4.6: when a box will freeze and stop if nothing happens. Owns the order in which its ends are
//! weighed; each end's moment is asked of the rule that brings it.

use crate::policy::AtEnd;
use crate::rules::{Rule, frozen_stop, idle_freeze, lifetime, no_credits, own_limit, pause};
use crate::sandbox::Sandbox;
use crate::state::State;
use crate::time::Time;

/// The rule.
pub const RULE: Rule = Rule {
    number: "6.3",
    also: &[],
    name: "stops_at",
    elsewhere: None,
    title: "When it will stop",
    sentence: "`stopsAt` is the moment at which these rules end the box if nobody uses it until then. For a ready \
               box it looks through the freeze that comes first; it is absent while something without an end holds \
               the box, and where nothing ever ends it.",
};

/// When it stops for good, and the number of the rule that does it.
pub(crate) type Stop = (Time, &'static str);

/// What is ahead of a box.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ahead {
    /// It freezes then.
    pub(crate) freeze_at: Option<Time>,
    /// It stops for good then.
    pub(crate) stop: Option<Stop>,
}

/// What is ahead of it at `now`. Nothing is said of a box that is on its way to running.
pub(crate) fn ahead(sb: &Sandbox, now: Time) -> Ahead {
    match &sb.state {
        State::Ready => of_ready(sb),
        State::Freezing { wake: false, .. } => of_freezing(sb, now),
        State::Frozen(_) => frozen_stop::frozen_since(sb)
            .map_or_else(Ahead::default, |frozen_at| {
                of_frozen(sb, frozen_at, !pause::counts(sb))
            }),
        State::Freezing { wake: true, .. }
        | State::Starting { .. }
        | State::Thawing { .. }
        | State::Releasing { .. }
        | State::Stopping { .. }
        | State::Terminated { .. }
        | State::Interrupted { .. } => Ahead::default(),
    }
}

/// Its own limit or lifetime ends it first, or it freezes and stops from there.
fn of_ready(sb: &Sandbox) -> Ahead {
    let destroyed = (lifetime::DESTROY.due)(sb).map(|at| (at, lifetime::RULE.number));
    let own = own_limit::at(sb).map(|at| (at, own_limit::RULE.number));
    let awake = destroyed.into_iter().chain(own).min_by_key(|(at, _)| *at);
    let idle_at = idle_freeze::at(sb);
    let pauses = [(lifetime::FREEZE.due)(sb), (no_credits::CLOCK.due)(sb)];
    let paused_at = pauses.into_iter().flatten().min();
    let Some(freeze_at) = idle_at.into_iter().chain(paused_at).min() else {
        return Ahead {
            freeze_at: None,
            stop: awake,
        };
    };
    match awake {
        // In the same instant the end goes first.
        Some((at, rule)) if at <= freeze_at => Ahead {
            freeze_at: None,
            stop: Some((at, rule)),
        },
        Some(_) | None => Ahead {
            freeze_at: Some(freeze_at),
            ..of_frozen(sb, freeze_at, paused_at == Some(freeze_at))
        },
    }
}

/// As if the freeze were over now; what used it until then has ended with that. A limit that passed during the freeze
/// strikes when it is over, so the end is never in the past.
fn of_freezing(sb: &Sandbox, now: Time) -> Ahead {
    let ahead = of_frozen(sb, now, !pause::counts(sb));
    Ahead {
        stop: ahead.stop.map(|(at, rule)| (at.max(now), rule)),
        ..ahead
    }
}

/// From a freeze on; while it is paused, no end that was set counts (15.1). What uses the box until then is ended by it, which is its last use.
fn of_frozen(sb: &Sandbox, frozen_at: Time, paused: bool) -> Ahead {
    let used = if sb.in_use() {
        frozen_at
    } else {
        sb.idle_since()
    };
    let own = own_limit::after(sb, used).map(|at| (at, own_limit::RULE.number));
    let then = || frozen_stop::after(sb, used, frozen_at).map(|at| (at, frozen_stop::RULE.number));
    let end = pause::end(sb, AtEnd::Destroy)
        .filter(|_| !paused)
        .map(|at| (at, lifetime::RULE.number));
    Ahead {
        freeze_at: None,
        stop: own
            .or_else(then)
            .into_iter()
            .chain(end)
            .min_by_key(|(at, _)| *at),
    }
}

/// Whether it can freeze by itself at all: then readers show `freeze` (4.6).
pub(crate) fn can_freeze(sb: &Sandbox) -> bool {
    let pauses = sb
        .policy
        .lifetime
        .is_some_and(|lifetime| lifetime.at_end != AtEnd::Destroy);
    sb.state == State::Ready && (sb.policy.freeze_after_ms.is_some() || pauses)
}
