//! Rule 2.8: why a box ended, in words. Owns those words.

use alloc::format;
use alloc::string::{String, ToString};

use crate::policy::{LifetimeFrom, Policy, StopFrozen};
use crate::rules::Rule;
use crate::state::{End, FreezeCause};
use crate::time::MIN;
use crate::words::duration;

/// The rule.
pub const RULE: Rule = Rule {
    number: "2.8",
    also: &[],
    name: "status_reason",
    elsewhere: None,
    title: "Why it was stopped",
    sentence: "A box that these rules stopped says so in `statusReason`: that it was frozen and unused, or unused for longer \
               than its own limit, and for how long.",
};

/// Why it ended.
pub(crate) fn of_end(end: &End, policy: &Policy) -> String {
    match end {
        End::Asked => "stopped by a call".to_string(),
        End::Unneeded => "the box that it worked for has no use for it any more".to_string(),
        End::FrozenUnused => match policy.stop_frozen {
            StopFrozen::AfterUseOrFreeze(ms) | StopFrozen::AfterFreeze(ms) => {
                format!("frozen and unused for {}", duration(ms))
            }
            StopFrozen::Never => "frozen and unused for too long".to_string(),
        },
        End::OwnIdleLimit => {
            let ms = policy.idle_limit_ms.unwrap_or(0);
            if ms % MIN == 0 {
                format!(
                    "unused for {}, over idleTimeoutMin {}",
                    duration(ms),
                    ms / MIN
                )
            } else {
                format!("unused for {}, over its own idle limit", duration(ms))
            }
        }
        End::Lifetime => match policy.lifetime {
            Some(lifetime) if matches!(lifetime.from, LifetimeFrom::Moment(_)) => {
                "the time it was given was over".to_string()
            }
            lifetime => {
                let ms = lifetime.map_or(0, |lifetime| lifetime.ms);
                format!("up for {}, its whole lifetime", duration(ms))
            }
        },
        End::StartFailed(reason) => format!("it could not be started: {reason}"),
        End::Interrupted(reason) => format!("{reason}; its files were kept for 7 days"),
    }
}

/// Why it was lost, and what to do about it (2.2).
pub(crate) fn of_interruption(reason: &str) -> String {
    format!("{reason}; start a new box")
}

/// Why it is frozen, when that is not for being idle.
pub(crate) fn of_freeze(cause: FreezeCause) -> Option<&'static str> {
    match cause {
        FreezeCause::Idle => None,
        FreezeCause::Asked => Some("frozen by a call"),
        FreezeCause::NoCredits => Some("frozen because the account is out of credits"),
        FreezeCause::Lifetime => Some("frozen at the end of its lifetime"),
    }
}
