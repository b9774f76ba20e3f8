//! Fixed seeds of the simulation, for about twenty seconds of one core. What it finds becomes a row of a table.
//! A failure names the seed; `cargo xtask sim` with the seed, boxes and days it names shows it again.

use icebox_lifecycle::sim;

/// Runs a seed, and checks that it met everything that can happen.
fn lives_well(seed: u64, boxes: u64, days: u64) {
    let again = format!("cargo xtask sim --seed {seed} --boxes {boxes} --days {days}");
    let report = sim::run(seed, boxes, days);
    assert!(
        report.violations.is_empty(),
        "{again}\n\n{}",
        report.violations.join("\n\n")
    );
    let counts = report.counts;
    for (what, count) in [
        ("freezes", counts.freezes),
        ("wakes", counts.wakes),
        ("cold starts", counts.cold_starts),
        ("stops", counts.stops),
        ("restores", counts.restores),
        ("crashes", counts.crashes),
        ("interruptions", counts.interruptions),
        ("forecasts", counts.forecasts),
        ("stale answers", counts.stale),
    ] {
        assert!(count > 0, "no {what} in: {again}");
    }
}

#[test]
fn many_boxes_for_two_months() {
    for seed in 1..=5 {
        lives_well(seed, 800, 60);
    }
}

#[test]
fn a_few_boxes_for_years() {
    for seed in 101..=110 {
        lives_well(seed, 20, 1_200);
    }
}

#[test]
fn a_crowd_for_a_week() {
    for seed in 201..=205 {
        lives_well(seed, 6_000, 7);
    }
}

#[test]
fn many_seeds_for_a_season() {
    for seed in 2_001..=2_016 {
        lives_well(seed, 160, 90);
    }
}

#[test]
fn the_same_seed_gives_the_same_run() {
    assert_eq!(sim::run(7, 5, 20), sim::run(7, 5, 20));
}
