//! What a call costs beside the process it starts. Printed, not judged: other work shares the machine.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::harness::{Boxd, line};

const ROUNDS: usize = 100;

#[tokio::test]
async fn exec_of_true_beside_a_plain_start() {
    let boxd = Boxd::start(&[]);
    let (mut plain, mut ours, mut shell) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        plain.push(timed(|| {
            let status = Command::new("true")
                .stdin(Stdio::null())
                .status()
                .expect("true runs");
            assert!(status.success());
        }));
        let began = Instant::now();
        boxd.exec(line("true")).await;
        ours.push(began.elapsed());
        let began = Instant::now();
        boxd.exec(line("true;")).await;
        shell.push(began.elapsed());
    }
    let (plain, ours, shell) = (median(plain), median(ours), median(shell));
    println!(
        "true: plain start {plain:?}, exec {ours:?}, exec through bash {shell:?} (medians of {ROUNDS})"
    );
    assert!(ours > Duration::ZERO);
}

fn timed(work: impl FnOnce()) -> Duration {
    let began = Instant::now();
    work();
    began.elapsed()
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}
