//! What running boxes use, over time: one sampler for all of them, and a bounded memory of what it saw. Looking never wakes
//! a box and is no use of it (rule 4.14): it reads the host's counters.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use icebox_lifecycle::{BoxId, Ms, Time};

use crate::clock::{Clock, machine_now};
use crate::driver::{Counters, Driver};
use crate::engine::Views;

/// How often the boxes are looked at.
const INTERVAL: Duration = Duration::from_secs(5);
/// How many looks pass between two at the disk, which take longer.
const DISK_LOOKS: u32 = 12;
/// What is kept of a box: an hour.
const SAMPLES: usize = 720;
/// Boxes that something is kept of.
const BOXES: usize = 4_096;

/// What a box used at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sample {
    /// When.
    pub at: Time,
    /// Of one CPU, in percent.
    pub cpu_percent: f64,
    /// Memory in use, without the page cache, in bytes.
    pub memory_bytes: u64,
    /// Page cache, in bytes.
    pub cache_bytes: u64,
    /// Its own files, in bytes; 0 until they were counted.
    pub disk_bytes: u64,
}

/// The samples of all boxes. Clones share them.
#[derive(Clone, Default)]
pub struct Usage(Arc<Mutex<HashMap<BoxId, Kept>>>);

/// What is kept of one box.
#[derive(Default)]
struct Kept {
    samples: VecDeque<Sample>,
    last: Option<(Time, Counters)>,
    disk_bytes: u64,
    looks: u32,
}

impl Usage {
    /// The samples of a box, oldest first.
    #[must_use]
    pub fn of(&self, id: BoxId) -> Vec<Sample> {
        let kept = self.lock();
        kept.get(&id)
            .map_or_else(Vec::new, |kept| kept.samples.iter().copied().collect())
    }

    /// Samples until the server ends.
    pub(crate) async fn run(self, views: Arc<Views>, driver: Arc<dyn Driver>, clock: Clock) {
        let mut ticks = tokio::time::interval(INTERVAL);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            for id in views.ready(BOXES) {
                let disk = self.counts_disk(id);
                // A box that stopped running meanwhile has nothing to be counted.
                if let Ok(counters) = driver.usage(id, disk).await {
                    self.note(id, clock.now(), machine_now(), counters);
                }
            }
            self.forget(|id| views.get(id).is_none_or(|view| !view.sandbox.is_live()));
        }
    }

    /// Whether the next look at a box includes its disk.
    fn counts_disk(&self, id: BoxId) -> bool {
        let kept = self.lock();
        kept.get(&id)
            .is_none_or(|kept| kept.looks % DISK_LOOKS == 0)
    }

    /// Takes a sample in: `at` is the server's time, `now` the machine's, which its counters go by.
    fn note(&self, id: BoxId, at: Time, now: Time, counters: Counters) {
        let mut boxes = self.lock();
        if boxes.len() >= BOXES && !boxes.contains_key(&id) {
            return;
        }
        let kept = boxes.entry(id).or_default();
        let cpu_percent = kept.last.map_or(0.0, |(before, last)| {
            let used_us = counters.cpu_us.saturating_sub(last.cpu_us);
            percent(used_us, now.since(before))
        });
        kept.disk_bytes = counters.disk_bytes.unwrap_or(kept.disk_bytes);
        kept.last = Some((now, counters));
        kept.looks = kept.looks.wrapping_add(1);
        if kept.samples.len() >= SAMPLES {
            kept.samples.pop_front();
        }
        kept.samples.push_back(Sample {
            at,
            cpu_percent,
            memory_bytes: counters.memory_bytes.saturating_sub(counters.cache_bytes),
            cache_bytes: counters.cache_bytes,
            disk_bytes: kept.disk_bytes,
        });
    }

    fn forget(&self, is_over: impl Fn(BoxId) -> bool) {
        self.lock().retain(|id, _| !is_over(*id));
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<BoxId, Kept>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Rounded to hundredths.
fn percent(used_us: u64, elapsed_ms: Ms) -> f64 {
    let elapsed_ms = elapsed_ms.max(1).unsigned_abs();
    let hundredths = used_us.saturating_mul(10) / elapsed_ms;
    f64::from(u32::try_from(hundredths).unwrap_or(u32::MAX)) / 100.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_of_the_time_between_two_looks() {
        let usage = Usage::default();
        let id = BoxId::parse(&"a".repeat(20)).unwrap();
        let counters = |cpu_us, disk_bytes| Counters {
            cpu_us,
            memory_bytes: 300,
            cache_bytes: 100,
            disk_bytes,
        };
        usage.note(id, Time(0), Time(5_000), counters(1_000_000, Some(7)));
        usage.note(id, Time(2_000), Time(7_000), counters(2_000_000, None));
        let samples = usage.of(id);
        assert_eq!(samples[0].cpu_percent.to_bits(), 0.0_f64.to_bits());
        let second = Sample {
            at: Time(2_000),
            cpu_percent: 50.0,
            memory_bytes: 200,
            cache_bytes: 100,
            disk_bytes: 7,
        };
        assert_eq!(samples[1], second);
    }

    #[test]
    fn an_hour_is_kept_and_nothing_of_boxes_that_are_gone() {
        let usage = Usage::default();
        let id = BoxId::parse(&"a".repeat(20)).unwrap();
        for n in 0..SAMPLES + 5 {
            let at = Time(i64::try_from(n).unwrap());
            usage.note(id, at, at, Counters::default());
        }
        let samples = usage.of(id);
        assert_eq!((samples.len(), samples[0].at), (SAMPLES, Time(5)));
        usage.forget(|_| true);
        assert!(usage.of(id).is_empty());
    }
}
