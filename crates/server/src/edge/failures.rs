//! What went wrong at the boxes' URLs lately (rule 8.7): for each service, and for URLs that match none. Kept in memory for
//! half an hour; owns what counts as the same failure again.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

use icebox_lifecycle::time::{MIN, Ms};
use icebox_lifecycle::{BoxId, Time};

/// How long a failure is shown.
const SHOWN_MS: Ms = 30 * MIN;
/// Boxes with failures that are remembered at a time.
const MOST_BOXES: usize = 10_000;
/// Places of one box that are remembered at a time; the oldest goes first.
const MOST_PLACES: usize = 64;

/// The failures of all boxes, by the first part of the URL: a service's name, or a port.
#[derive(Default)]
pub(super) struct Failures(Mutex<HashMap<BoxId, BTreeMap<String, Failure>>>);

/// The latest failure at one place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// When.
    pub at: Time,
    /// The status the client got.
    pub status: u16,
    /// What went wrong, in words.
    pub error: String,
    /// Failures there since the last time there was none for half an hour.
    pub count: u64,
}

impl Failures {
    /// Another one.
    pub(super) fn record(&self, id: BoxId, place: &str, now: Time, status: u16, error: String) {
        let mut all = self.lock();
        if all.len() >= MOST_BOXES && !all.contains_key(&id) {
            all.retain(|_, places| places.values().any(|failure| is_shown(failure, now)));
        }
        if all.len() >= MOST_BOXES && !all.contains_key(&id) {
            return;
        }
        let places = all.entry(id).or_default();
        let before = places.get(place).filter(|failure| is_shown(failure, now));
        let count = before.map_or(0, |failure| failure.count) + 1;
        let failure = Failure {
            at: now,
            status,
            error,
            count,
        };
        places.insert(place.to_owned(), failure);
        if places.len() > MOST_PLACES {
            let oldest = places.iter().min_by_key(|(_, failure)| failure.at);
            if let Some(oldest) = oldest.map(|(place, _)| place.clone()) {
                places.remove(&oldest);
            }
        }
    }

    /// The failures of a box, by place.
    pub(super) fn of(&self, id: BoxId, now: Time) -> BTreeMap<String, Failure> {
        let all = self.lock();
        let places = all.get(&id).into_iter().flatten();
        places
            .filter(|(_, failure)| is_shown(failure, now))
            .map(|(place, failure)| (place.clone(), failure.clone()))
            .collect()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<BoxId, BTreeMap<String, Failure>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_shown(failure: &Failure, now: Time) -> bool {
    now.since(failure.at) < SHOWN_MS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_counted_and_forgotten() {
        let failures = Failures::default();
        let id = BoxId::from_random([7; 20]);
        let start = Time(1_000_000);
        let at = |min: i64| start + min * MIN;
        failures.record(id, "web", at(0), 503, "first".into());
        failures.record(id, "web", at(29), 502, "second".into());
        failures.record(id, "9000", at(5), 500, "other".into());
        let shown = failures.of(id, at(30));
        assert_eq!(shown["web"].count, 2);
        assert_eq!((shown["web"].status, &*shown["web"].error), (502, "second"));
        assert!(failures.of(id, at(34)).contains_key("9000"));
        assert!(!failures.of(id, at(35)).contains_key("9000"));
        assert!(failures.of(id, at(59)).is_empty());
        failures.record(id, "web", at(70), 503, "anew".into());
        assert_eq!(failures.of(id, at(70))["web"].count, 1);
    }

    #[test]
    fn there_is_a_limit() {
        let failures = Failures::default();
        let id = BoxId::from_random([7; 20]);
        for n in 0..200_i64 {
            let now = Time(1_000 + n);
            failures.record(id, &n.to_string(), now, 503, String::new());
        }
        let shown = failures.of(id, Time(2_000));
        assert_eq!(shown.len(), MOST_PLACES);
        assert!(shown.contains_key("199") && !shown.contains_key("0"));
    }
}
