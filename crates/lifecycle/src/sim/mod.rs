//! A seeded simulation: boxes live through random days of use, driver failures, crashes and clock gaps, and after
//! every event everything that was promised is checked against a model of what really exists.
//!
//! Owns the loop and the report. What people and programs do is in `people`, what exists in `world`, what must hold in
//! `checks`. The same seed gives the same run, so a failure can be looked at again.

mod actor;
mod bill;
mod checks;
mod crash;
mod habits;
mod people;
mod random;
mod world;

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::time::{DAY, Time};
use actor::Life;

/// What a simulation came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Events handled.
    pub events: u64,
    /// Boxes that lived.
    pub boxes: u64,
    /// Freezes, wakes, rule-made stops, restores, crashes and losses, to see that all of them happened.
    pub counts: Counts,
    /// What was broken, at most [`MOST_VIOLATIONS`].
    pub violations: Vec<String>,
}

/// How often things happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Freezes begun.
    pub freezes: u64,
    /// Thaws and releases begun.
    pub wakes: u64,
    /// Boots from files begun.
    pub cold_starts: u64,
    /// Boxes that ended.
    pub stops: u64,
    /// Boxes that were restored.
    pub restores: u64,
    /// Crashes of the server.
    pub crashes: u64,
    /// Boxes that were lost.
    pub interruptions: u64,
    /// Forecasts that were played through.
    pub forecasts: u64,
    /// Outcomes of operations that nobody waited for any more.
    pub stale: u64,
}

/// After so many violations a run ends.
pub const MOST_VIOLATIONS: usize = 20;

/// Lets `boxes` boxes live for `days` days each. A box that has ended makes room for a new one.
#[must_use]
pub fn run(seed: u64, boxes: u64, days: u64) -> Report {
    let mut report = Report::default();
    let days = i64::try_from(days).unwrap_or(i64::MAX / DAY).min(100_000);
    for number in 0..boxes {
        let mut now = Time(1_700_000_000_000);
        let end = now + days * DAY;
        let mut generation = 0;
        while now < end && report.violations.len() < MOST_VIOLATIONS {
            let stream = number.wrapping_mul(1_000_003).wrapping_add(generation);
            generation += 1;
            report.boxes += 1;
            let mut life = Life::new(seed, stream, now);
            let outcome = life.live(end);
            now = life.now();
            life.add_to(&mut report);
            if let Err(what) = outcome {
                report.violations.push(format!(
                    "seed {seed} box {number} generation {}: {what}",
                    generation - 1
                ));
            }
        }
    }
    report
}
