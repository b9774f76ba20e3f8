//! `cargo xtask sim`: runs the simulation of the lifecycle by seed and prints what it came to, how fast it went, and
//! every broken promise with the command that shows it again. What is simulated and checked is the lifecycle's.

use std::time::{Duration, Instant};

use anyhow::ensure;
use icebox_lifecycle::sim::{self, Report};

/// What to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The first seed.
    pub seed: u64,
    /// How many boxes live at a time.
    pub boxes: u64,
    /// How many days each of them is followed.
    pub days: u64,
    /// For how many seconds further seeds are begun; `None`: only the first is run.
    pub seconds: Option<u64>,
}

impl Plan {
    /// The command that shows again what `seed` showed.
    fn again(&self, seed: u64) -> String {
        let Self { boxes, days, .. } = self;
        format!("cargo xtask sim --seed {seed} --boxes {boxes} --days {days}")
    }
}

/// Runs it, a line a seed, and ends with the first seed that breaks a promise.
///
/// # Errors
/// A promise was broken; each one was printed before.
pub fn run(plan: Plan) -> anyhow::Result<()> {
    let began = now();
    let mut seed = plan.seed;
    let mut events = 0;
    loop {
        let report = measured(seed, plan);
        events += report.events;
        ensure!(
            report.violations.is_empty(),
            "broken promises: {}; to see them again: {}",
            report.violations.len(),
            plan.again(seed)
        );
        let over = plan
            .seconds
            .is_none_or(|seconds| began.elapsed() >= Duration::from_secs(seconds));
        if over {
            break;
        }
        seed = seed.wrapping_add(1);
    }
    if seed != plan.seed {
        let seeds = seed.wrapping_sub(plan.seed).saturating_add(1);
        let speed = speed(events, began.elapsed());
        println!("{seeds} seeds, {events} events, {speed}, nothing broken");
    }
    Ok(())
}

/// Runs one seed and prints its line and what it broke.
fn measured(seed: u64, plan: Plan) -> Report {
    let began = now();
    let report = sim::run(seed, plan.boxes, plan.days);
    for violation in &report.violations {
        eprintln!("{violation}\n");
    }
    println!("{}", line(seed, &report, began.elapsed()));
    report
}

/// What a seed came to.
fn line(seed: u64, report: &Report, took: Duration) -> String {
    let counts = report.counts;
    let what = [
        (report.boxes, "boxes"),
        (counts.freezes, "freezes"),
        (counts.wakes, "wakes"),
        (counts.cold_starts, "cold starts"),
        (counts.stops, "stops"),
        (counts.restores, "restores"),
        (counts.crashes, "crashes"),
        (counts.interruptions, "losses"),
        (counts.stale, "stale answers"),
        (counts.forecasts, "forecasts"),
    ];
    let counts = what.map(|(count, name)| format!("{count} {name}"));
    let speed = speed(report.events, took);
    let events = report.events;
    format!(
        "seed {seed}: {events} events, {speed}; {}",
        counts.join(", ")
    )
}

/// Events a second, for people.
fn speed(events: u64, took: Duration) -> String {
    let seconds = took.as_secs_f64();
    let millions = events as f64 / seconds.max(1e-9) / 1e6;
    format!("{seconds:.2} s, {millions:.2} million a second")
}

#[expect(
    clippy::disallowed_methods,
    reason = "measures how fast the simulation is"
)]
fn now() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAN: Plan = Plan {
        seed: 5,
        boxes: 2,
        days: 3,
        seconds: None,
    };

    #[test]
    fn a_seed_names_what_it_did_and_how_to_see_it_again() {
        let report = sim::run(PLAN.seed, PLAN.boxes, PLAN.days);
        let line = line(PLAN.seed, &report, Duration::from_secs(2));
        let expected = format!("seed 5: {} events, 2.00 s, ", report.events);
        assert!(line.starts_with(&expected), "{line}");
        assert!(report.events > 100, "{line}");
        assert_eq!(PLAN.again(6), "cargo xtask sim --seed 6 --boxes 2 --days 3");
        run(PLAN).expect("nothing is broken");
    }
}
