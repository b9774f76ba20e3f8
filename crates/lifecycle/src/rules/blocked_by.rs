//! Rule 4.6: what keeps a box awake, for readers. Owns the list.

use alloc::boxed::Box;
use alloc::format;
use alloc::vec::Vec;

use crate::forecast::{Hold, HoldKind};
use crate::rules::{Rule, background, holds, recording, requests};
use crate::sandbox::Sandbox;
use crate::time::Time;

/// The rule.
pub const RULE: Rule = Rule {
    number: "4.6",
    also: &["4.15"],
    name: "blocked_by",
    elsewhere: None,
    title: "What keeps a box awake",
    sentence: "`freeze` says when a ready box will freeze, and `blockedBy` what keeps it awake beyond the usual time: \
               `background`, `url` and `recording` until when, `takeover`, `foreground`, `link` and `phone` until they \
               end, and then there is no `at`.",
};

/// What keeps it awake at `now` beyond the usual time.
pub(crate) fn list(sb: &Sandbox, now: Time) -> Vec<Hold> {
    let endless = holds::endless(sb).into_iter().map(|kind| Hold {
        kind,
        until: None,
        label: None,
    });
    let mut list: Vec<Hold> = endless.collect();
    if sb.after_phones.is_some() && sb.holds.phones > 0 {
        list.push(Hold {
            kind: HoldKind::Phone,
            until: None,
            label: None,
        });
    }
    let Some(freeze_after_ms) = sb.policy.freeze_after_ms else {
        return list;
    };
    // In use, its idle time begins at the earliest now, and what holds for a while counts from there.
    let ahead = if sb.in_use() {
        now.since(sb.idle_since())
    } else {
        0
    };
    let usual = sb.idle_since() + ahead + freeze_after_ms;
    let bounded = [
        (
            HoldKind::Background,
            background::until(sb).map(|until| until + ahead),
            commands(sb),
        ),
        (HoldKind::Url, requests::until(sb), None),
        (
            HoldKind::Recording,
            recording::until(sb).map(|until| until + ahead),
            None,
        ),
    ];
    for (kind, until, label) in bounded {
        if until.is_some_and(|until| until > usual && until > now) {
            list.push(Hold { kind, until, label });
        }
    }
    // A freeze that failed holds the box once its usual time is over, or when it has no right to be awake.
    if let Some(failure) = &sb.freeze_failure
        && (!sb.credits || failure.at.is_some_and(|at| at > usual))
    {
        list.push(Hold {
            kind: HoldKind::FreezeFailed,
            until: failure.at,
            label: Some(failure.reason.clone()),
        });
    }
    list
}

/// What to call the background commands: the first by its name, the others by their number.
fn commands(sb: &Sandbox) -> Option<Box<str>> {
    match &*sb.holds.background {
        [] => None,
        [one] => Some(one.label.clone()),
        [first, others @ ..] => {
            Some(format!("{} and {} more", first.label, others.len()).into_boxed_str())
        }
    }
}
