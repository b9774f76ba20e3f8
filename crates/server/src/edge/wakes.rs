//! Page loads that wake (rule 8.3): at most one wake for a box every 15 seconds, whoever loads what. Owns how long people
//! have been waiting, from which the waiting page takes its pace.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use icebox_lifecycle::time::{MIN, Ms, SEC};
use icebox_lifecycle::{BoxId, Time};

/// No second wake within this time.
const ONE_EACH_MS: Ms = 15 * SEC;
/// After this long without a page load nobody has been waiting.
const FORGOTTEN_MS: Ms = MIN;
/// Boxes that are remembered at a time.
const MOST: usize = 10_000;
/// How often the page reloads itself, by how long people have been waiting already.
const PACE: [(Ms, u32); 4] = [(15 * SEC, 3), (MIN, 5), (3 * MIN, 15), (10 * MIN, 30)];

/// What is known of the page loads of boxes that are not awake.
#[derive(Default)]
pub(super) struct Wakes(Mutex<HashMap<BoxId, Wait>>);

struct Wait {
    since: Time,
    latest: Time,
    asked: Option<Time>,
}

/// What a page load comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Load {
    /// It may wake the box.
    pub(super) may_wake: bool,
    /// When the page reloads itself, in seconds; `None`: not any more.
    pub(super) reload_sec: Option<u32>,
}

impl Wakes {
    /// Somebody loads a page of a box that is not awake; `sleeps`: nothing has woken it yet.
    pub(super) fn load(&self, id: BoxId, now: Time, sleeps: bool) -> Load {
        let mut waits = self.lock();
        if waits.len() >= MOST {
            waits.retain(|_, wait| now.since(wait.latest) < FORGOTTEN_MS);
        }
        let wait = waits.entry(id).or_insert(Wait {
            since: now,
            latest: now,
            asked: None,
        });
        if now.since(wait.latest) >= FORGOTTEN_MS {
            wait.since = now;
        }
        wait.latest = now;
        let recent = wait.asked.is_some_and(|at| now.since(at) < ONE_EACH_MS);
        let may_wake = sleeps && !recent;
        if may_wake {
            wait.asked = Some(now);
        }
        let waited = now.since(wait.since);
        let mut pace = PACE.iter();
        Load {
            may_wake,
            reload_sec: pace.find(|(until, _)| waited < *until).map(|(_, sec)| *sec),
        }
    }

    /// The box is awake: nobody waits any more.
    pub(super) fn is_awake(&self, id: BoxId) {
        let mut waits = self.lock();
        if let Some(wait) = waits.get_mut(&id) {
            // The next wait begins anew; when it was last woken still counts.
            wait.latest = Time(0);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<BoxId, Wait>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_wake_every_15_seconds_and_the_reloads_slow_down() {
        let wakes = Wakes::default();
        let id = BoxId::from_random([7; 20]);
        let start = Time(1_000_000);
        let load = |sec: i64, sleeps: bool| {
            let load = wakes.load(id, start + sec * SEC, sleeps);
            (load.may_wake, load.reload_sec)
        };
        assert_eq!(load(0, true), (true, Some(3)));
        assert_eq!(load(0, true), (false, Some(3)));
        assert_eq!(load(14, true), (false, Some(3)));
        assert_eq!(load(15, true), (true, Some(5)));
        assert_eq!(load(20, false), (false, Some(5)));
        assert_eq!(load(40, true), (true, Some(5)));
        for (sec, reload) in [
            (60, Some(15)),
            (110, Some(15)),
            (165, Some(15)),
            (180, Some(30)),
        ] {
            assert_eq!(load(sec, false).1, reload, "{sec}");
        }
        for sec in (190..600).step_by(30) {
            assert_eq!(load(sec, false).1, Some(30), "{sec}");
        }
        assert_eq!(load(600, true), (true, None), "nobody looks at it any more");
        assert_eq!(load(659, true).1, None);
        assert_eq!(load(720, true), (true, Some(3)), "somebody came back");
        let other = BoxId::from_random([8; 20]);
        assert!(wakes.load(other, start, true).may_wake);
    }

    #[test]
    fn a_box_that_was_awake_is_waited_for_anew() {
        let wakes = Wakes::default();
        let id = BoxId::from_random([7; 20]);
        let start = Time(1_000_000);
        wakes.load(id, start, true);
        wakes.load(id, start + 50 * SEC, true);
        wakes.is_awake(id);
        let load = wakes.load(id, start + 51 * SEC, true);
        assert_eq!((load.may_wake, load.reload_sec), (false, Some(3)));
    }
}
