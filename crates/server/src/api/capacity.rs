//! Room on the host as it is shown: slots, parts and the queue (rules 5.9, 13.6). Translates only.

use icebox_lifecycle::State;
use icebox_wire::rest;

use crate::commands::trouble::timestamp;
use crate::engine::{Capacity, Queued, View, Views, Wanted};
use crate::record::AccountId;

/// Places in the queue that one answer shows.
const SHOWN: usize = 100;

/// The room of the host, as one of its accounts sees it.
pub(super) fn shown(capacity: &Capacity, account: AccountId) -> rest::CapacityView {
    let (host, taken, most) = (capacity.host, capacity.taken, capacity.account);
    let queue = capacity.queue.iter().enumerate();
    let own = queue.filter(|(_, queued)| queued.account == account);
    let limit = |limit: u64| (limit != u64::MAX).then_some(limit);
    rest::CapacityView {
        slots: slots(capacity),
        memory_mb: rest::PartView {
            taken: taken.memory_mb,
            maximum: host.memory_mb,
        },
        cpus: rest::PartView {
            taken: cpus(taken.milli_cpus),
            maximum: cpus(host.milli_cpus),
        },
        account: rest::AccountLimitsView {
            boxes: limit(most.boxes),
            memory_mb: limit(most.memory_mb),
            cpus: limit(most.milli_cpus).map(cpus),
        },
        queue: own
            .take(SHOWN)
            .map(|(before, queued)| rest::QueuedView {
                id: queued.id.to_string(),
                wanted: match queued.wanted {
                    Wanted::Start => "start",
                    Wanted::Restore => "restore",
                    Wanted::Wake => "wake",
                }
                .to_owned(),
                place: wait_view(before, queued),
            })
            .collect(),
    }
}

/// The places for boxes that are up.
pub(super) fn slots(capacity: &Capacity) -> rest::SlotsView {
    rest::SlotsView {
        running: capacity.taken.boxes,
        maximum: capacity.host.boxes,
        waiting: count(capacity.queue.len()),
    }
}

/// The place of a box that waits for room.
pub(super) fn place(views: &Views, view: &View) -> Option<rest::WaitView> {
    match view.sandbox.state {
        State::Frozen(_) | State::Terminated { .. } | State::Interrupted { .. } => {}
        State::Starting { .. }
        | State::Ready
        | State::Freezing { .. }
        | State::Thawing { .. }
        | State::Releasing { .. }
        | State::Stopping { .. } => return None,
    }
    let capacity = views.capacity();
    let (before, queued) = capacity.place(view.id())?;
    Some(wait_view(before, queued))
}

/// That it waits, as its reason.
pub(super) fn in_words(place: &rest::WaitView) -> String {
    format!("waits for room on the host, {} before it", place.before)
}

/// That it waits, as the latest decision about it.
pub(super) fn why(shown: &rest::BoxView) -> Option<rest::WhyView> {
    let place = shown.waits_for_room.as_ref()?;
    Some(rest::WhyView {
        at: place.since,
        rule: "5.9".to_owned(),
        text: format!(
            "it {} at the moment; it gives up at {}",
            in_words(place),
            place.until
        ),
    })
}

fn wait_view(before: usize, queued: &Queued) -> rest::WaitView {
    rest::WaitView {
        before: count(before),
        since: timestamp(queued.since),
        until: timestamp(queued.until),
    }
}

fn count(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

#[expect(clippy::cast_precision_loss, reason = "nobody has so many")]
fn cpus(milli: u64) -> f64 {
    milli as f64 / 1_000.0
}
