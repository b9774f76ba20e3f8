//! Waiting for room on the host, as callers meet it (rules 5.9, 14.1): how long, and what is said to those who get none.
//! Decides nothing: the engine's queue does.

use std::time::Duration;

use icebox_lifecycle::fleet::{Part, Room, Shortage};
use serde_json::json;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::check;
use super::trouble::{Kind, Trouble};
use crate::engine::{Full, Patience, Tried, WAKE_WAIT_MS, Wanted};

/// The patience of a call that goes on by itself when its caller hangs up: while the guard is there, somebody listens.
pub(super) fn patience_of_listener(
    wait_sec: Option<u32>,
) -> Result<(Patience, DropGuard), Trouble> {
    let gone = CancellationToken::new();
    let patience = Patience {
        gone: Some(gone.clone()),
        ..check::patience(wait_sec)?
    };
    Ok((patience, gone.drop_guard()))
}

/// How long somebody may be in the queue.
pub(super) fn limit(patience: &Patience) -> Duration {
    let ms = patience.wait_ms.unwrap_or(WAKE_WAIT_MS);
    Duration::from_millis(u64::try_from(ms).unwrap_or(0))
}

/// What is said when there is no room, with what would help.
pub(super) fn no_capacity(id: &str, full: &Full) -> Trouble {
    if full.tried == Tried::Never {
        return never(id, full);
    }
    let waited = match full.tried {
        Tried::Waited => ", and none came while it was waited for",
        Tried::AtOnce | Tried::Never => "",
    };
    let kept = match full.wanted {
        Wanted::Wake => format!("; box {id} stays frozen as it is"),
        Wanted::Start | Wanted::Restore => String::new(),
    };
    let text = format!(
        "no box capacity right now{waited}: {}{kept}; {}",
        lack(full),
        advice(full)
    );
    let capacity = &full.capacity;
    let slots = json!({
        "running": capacity.taken.boxes,
        "maximum": capacity.host.boxes,
        "waiting": capacity.queue.len(),
    });
    Trouble::new(Kind::NoCapacity, text).with("slots", slots)
}

/// What there is too little of.
fn lack(full: &Full) -> String {
    let capacity = &full.capacity;
    let (host, taken, account) = (capacity.host, capacity.taken, capacity.account);
    match full.shortage {
        Shortage::Host(Part::Boxes) => {
            let (running, maximum) = (taken.boxes, host.boxes);
            format!("{running} of {maximum} slots on this host are taken")
        }
        Shortage::Host(Part::Memory) => {
            let free = host.memory_mb.saturating_sub(taken.memory_mb);
            let (most, needs) = (host.memory_mb, full.needs.memory_mb);
            format!("it needs {needs} MiB of memory, and {free} of {most} MiB are free")
        }
        Shortage::Host(Part::Cpus) => {
            let free = host.milli_cpus.saturating_sub(taken.milli_cpus);
            let (needs, free) = (cpus(full.needs.milli_cpus), cpus(free));
            let most = cpus(host.milli_cpus);
            format!("it needs {needs} CPUs, and {free} of {most} are free")
        }
        Shortage::Account(part) => {
            format!("this account may have {} at a time", most(account, part))
        }
        Shortage::Others => format!("{} came before and wait for it", capacity.queue.len()),
        Shortage::Queue => format!("{} wait for it, and no more may", capacity.queue.len()),
    }
}

fn most(limit: Room, part: Part) -> String {
    match part {
        Part::Boxes => format!("{} boxes that are up", limit.boxes),
        Part::Memory => format!("boxes with {} MiB of memory together", limit.memory_mb),
        Part::Cpus => format!("boxes with {} CPUs together", cpus(limit.milli_cpus)),
    }
}

fn cpus(milli: u64) -> String {
    if milli.is_multiple_of(1_000) {
        (milli / 1_000).to_string()
    } else {
        format!("{}.{:03}", milli / 1_000, milli % 1_000)
            .trim_end_matches('0')
            .to_owned()
    }
}

fn advice(full: &Full) -> &'static str {
    match full.shortage {
        Shortage::Queue => "try again later",
        Shortage::Account(_) => {
            "freeze or stop one of its boxes, or wait for room with `waitForCapacitySec` (up to 1800)"
        }
        Shortage::Host(_) | Shortage::Others => {
            "freeze or stop a box, or wait for room with `waitForCapacitySec` (up to 1800)"
        }
    }
}

/// It needs more than there is altogether. Whoever starts a box can ask for less; a box that exists is as it is.
fn never(id: &str, full: &Full) -> Trouble {
    let (limit, part, of) = match full.shortage {
        Shortage::Account(part) => (full.capacity.account, part, "for one account"),
        Shortage::Host(part) => (full.capacity.host, part, "on this host"),
        // These pass.
        Shortage::Others | Shortage::Queue => (full.capacity.host, Part::Boxes, "on this host"),
    };
    let (field, setting, asked, most) = match part {
        Part::Boxes => (
            "size",
            "running_boxes",
            "1".to_owned(),
            limit.boxes.to_string(),
        ),
        Part::Memory => (
            "size.memoryMb",
            "memory_mb",
            format!("{} MiB of memory", full.needs.memory_mb),
            format!("{} MiB", limit.memory_mb),
        ),
        Part::Cpus => (
            "size.cpus",
            "cpus",
            format!("{} CPUs", cpus(full.needs.milli_cpus)),
            cpus(limit.milli_cpus),
        ),
    };
    match full.wanted {
        Wanted::Start => Trouble::bad(field, format!("at most {most}, which is all there is {of}")),
        Wanted::Restore | Wanted::Wake => Trouble::new(
            Kind::NoCapacity,
            format!(
                "no box capacity: box {id} needs {asked}, and all there is {of} is {most}; it stays as it is until \
                 the server is started with a higher `limits.{setting}`"
            ),
        ),
    }
}

/// What is said to somebody whose box a call froze while they waited.
pub(super) fn called_off(id: &str) -> Trouble {
    Trouble::new(
        Kind::WakeFailed,
        format!(
            "box {id} was frozen by a call while it waited for room; try again if it is needed"
        ),
    )
}

#[cfg(test)]
mod tests {
    use icebox_lifecycle::fleet::Shortage::{Account, Host, Others, Queue};

    use super::*;
    use crate::engine::Capacity;

    fn full(wanted: Wanted, shortage: Shortage, tried: Tried) -> Full {
        let room = |boxes, memory_mb, milli_cpus| Room {
            boxes,
            memory_mb,
            milli_cpus,
        };
        Full {
            wanted,
            shortage,
            tried,
            needs: room(1, 2_048, 2_500),
            capacity: Capacity {
                host: room(4, 8_192, 8_000),
                account: room(2, 1_024, 1_000),
                taken: room(4, 7_168, 6_000),
                queue: Vec::new(),
            },
        }
    }

    #[test]
    fn each_shortage_is_told_with_what_would_help() {
        let table = [
            (Host(Part::Boxes), "4 of 4 slots on this host are taken"),
            (
                Host(Part::Memory),
                "it needs 2048 MiB of memory, and 1024 of 8192 MiB are free",
            ),
            (Host(Part::Cpus), "it needs 2.5 CPUs, and 2 of 8 are free"),
            (
                Account(Part::Boxes),
                "this account may have 2 boxes that are up at a time; freeze or stop one of its boxes",
            ),
            (
                Others,
                "0 came before and wait for it; freeze or stop a box",
            ),
            (Queue, "no more may; try again later"),
        ];
        for (shortage, expected) in table {
            let trouble = no_capacity("b", &full(Wanted::Start, shortage, Tried::AtOnce));
            let text = &trouble.text;
            assert!(text.starts_with("no box capacity right now: "), "{text}");
            assert!(text.contains(expected), "{text}");
            assert_eq!(trouble.kind, Kind::NoCapacity);
            assert!(trouble.retry_after_sec.is_some());
            let slots = json!({ "running": 4, "maximum": 4, "waiting": 0 });
            assert_eq!(trouble.more["slots"], slots);
        }
        let wake = no_capacity("b", &full(Wanted::Wake, Others, Tried::Waited)).text;
        assert!(wake.contains("none came while it was waited for"), "{wake}");
        assert!(wake.contains("box b stays frozen as it is"), "{wake}");
    }

    #[test]
    fn what_never_fits_names_the_limit() {
        let start = no_capacity(
            "b",
            &full(Wanted::Start, Account(Part::Memory), Tried::Never),
        );
        assert_eq!(start.kind, Kind::BadRequest);
        assert_eq!(
            start.text,
            "`size.memoryMb` must be at most 1024 MiB, which is all there is for one account"
        );
        let wake = no_capacity("b", &full(Wanted::Wake, Host(Part::Cpus), Tried::Never));
        assert_eq!(wake.kind, Kind::NoCapacity);
        let text = &wake.text;
        assert!(text.contains("box b needs 2.5 CPUs"), "{text}");
        assert!(text.contains("`limits.cpus`"), "{text}");
    }
}
