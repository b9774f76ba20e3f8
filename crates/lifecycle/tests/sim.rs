//! Fixed seeds of the simulation. What it finds becomes a row of a table.

use icebox_lifecycle::sim;

fn lives_well(seed: u64) {
    let report = sim::run(seed, 400, 60);
    assert!(
        report.violations.is_empty(),
        "{}",
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
        assert!(count > 0, "seed {seed} saw no {what}");
    }
}

#[test]
fn seed_1() {
    lives_well(1);
}

#[test]
fn seed_2() {
    lives_well(2);
}

#[test]
fn seed_3() {
    lives_well(3);
}

#[test]
fn seed_2026() {
    lives_well(2026);
}

#[test]
fn the_same_seed_gives_the_same_run() {
    assert_eq!(sim::run(7, 5, 20), sim::run(7, 5, 20));
}
