//! Runs the simulation and prints how fast it went: `cargo run --release --features sim --example sim -- SEED BOXES DAYS`.
//! Owns nothing but that.

use std::time::Instant;

#[expect(
    clippy::disallowed_methods,
    reason = "measures how fast the simulation is"
)]
fn main() {
    let mut numbers = std::env::args()
        .skip(1)
        .filter_map(|text| text.parse().ok());
    let seed = numbers.next().unwrap_or(1);
    let boxes = numbers.next().unwrap_or(1_000);
    let days = numbers.next().unwrap_or(30);
    let began = Instant::now();
    let report = icebox_lifecycle::sim::run(seed, boxes, days);
    let seconds = began.elapsed().as_secs_f64();
    for violation in &report.violations {
        eprintln!("{violation}\n");
    }
    let per_second = report.events as f64 / seconds;
    println!(
        "{} events in {seconds:.2} s, {per_second:.0} a second",
        report.events
    );
    println!("{} boxes, {:?}", report.boxes, report.counts);
    if !report.violations.is_empty() {
        std::process::exit(1);
    }
}
