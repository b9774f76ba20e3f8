//! The benchmarks: figures as ratios against a named baseline, both measured in the same run.
//!
//! Owns what is measured and the table that is printed. It is never part of the test suite.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use icebox_lifecycle::{BoxId, CopyId};
use icebox_server::driver::container::{ContainerDriver, by_hand};
use serde_json::json;

use crate::harness::Instance;

pub mod app;
pub mod e2b;
pub mod edge;
mod goal;
pub mod million;

/// A program that holds 256 MiB of random bytes, and says so once it does.
const HOLD_256_MIB: &str = "exec python3 -c 'import os, time; held = os.urandom(256 << 20); \
                            open(\"/work/holding\", \"w\").close(); time.sleep(10**6)'";

/// Prints the median time of a fork, exec and wait of `true` inside a box, in nanoseconds.
const FORK_EXEC_WAIT: &str = r"python3 - <<'END'
import os, time
taken = []
for _ in range(300):
    begun = time.perf_counter_ns()
    pid = os.posix_spawn('/bin/true', ['true'], {})
    os.waitpid(pid, 0)
    taken.append(time.perf_counter_ns() - begun)
print(sorted(taken)[len(taken) // 2])
END";

/// One line of the result.
struct Figure {
    what: &'static str,
    ours: Duration,
    baseline: Duration,
    against: &'static str,
    target: Target,
}

/// What a figure is to reach.
enum Target {
    /// Ours is at most this many times the baseline.
    Times(f64),
    /// Ours is at most this much above the baseline.
    Above(Duration),
    /// Ours is at most the baseline.
    Limit,
}

impl Figure {
    fn is_reached(&self) -> bool {
        match self.target {
            Target::Times(times) => self.ours <= self.baseline.mul_f64(times),
            Target::Above(more) => self.ours <= self.baseline + more,
            Target::Limit => self.ours <= self.baseline,
        }
    }

    fn print(&self) {
        let ms = |d: Duration| d.as_secs_f64() * 1e3;
        let ratio = self.ours.as_secs_f64() / self.baseline.as_secs_f64();
        let target = match self.target {
            Target::Times(times) => format!("at most {times} times"),
            Target::Above(more) => format!("at most {:.1} ms more", ms(more)),
            Target::Limit => "at most that".to_owned(),
        };
        let mark = if self.is_reached() {
            "reached"
        } else {
            "MISSED"
        };
        let Self { what, against, .. } = self;
        println!(
            "{what:34} {:9.2} ms   {against:34} {:9.2} ms   ratio {ratio:5.2}   {target:22} {mark}",
            ms(self.ours),
            ms(self.baseline)
        );
    }
}

/// Runs every benchmark. `frozen` is how many frozen boxes the memory of the server is measured with.
pub fn run(frozen: u32) -> anyhow::Result<()> {
    let mut instance = Instance::new("bench", false)?;
    instance.start(&[])?;
    let mut figures = freeze_and_thaw(&instance)?;
    figures.push(thaw_from_ram(&mut instance)?);
    figures.extend(starts(&instance)?);
    figures.extend(execs(&instance)?);
    println!();
    figures.iter().for_each(Figure::print);
    server_memory(&instance, frozen)?;
    instance.stop()?;
    let missed = figures.iter().filter(|figure| !figure.is_reached()).count();
    ensure!(
        missed == 0,
        "{missed} of {} figures were missed",
        figures.len()
    );
    Ok(())
}

fn freeze_and_thaw(instance: &Instance) -> anyhow::Result<Vec<Figure>> {
    const ROUNDS: usize = 5;
    progress("freeze and thaw of 256 MiB, against criu by hand");
    let driver = open_driver(&instance.data)?;
    let (mut frozen, mut thawed) = (Vec::new(), Vec::new());
    let (mut dumped, mut restored) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let id = holding_box(instance)?;
        let box_id = BoxId::parse(&id).context("the server gave a bad id")?;
        settle()?;
        frozen.push(timed(|| {
            instance.post(&format!("/v1/boxes/{id}/freeze"), json!({}))
        })?);
        let copy = newest_copy(&instance.data, &id)?;
        restored.push(timed(|| {
            by_hand::restore(&driver, box_id, copy).map_err(anyhow::Error::msg)
        })?);
        by_hand::clear(&driver, box_id).map_err(anyhow::Error::msg)?;
        thawed.push(timed(|| instance.exec(&id, "true"))?);
        settle()?;
        dumped.push(timed(|| {
            by_hand::dump(&driver, box_id).map_err(anyhow::Error::msg)
        })?);
        instance.post(&format!("/v1/boxes/{id}/stop"), json!({}))?;
    }
    Ok(vec![
        Figure {
            what: "thaw from disk to first answer",
            ours: median(thawed),
            baseline: median(restored),
            against: "mount and criu restore by hand",
            target: Target::Times(1.3),
        },
        Figure {
            what: "freeze to disk",
            ours: median(frozen),
            baseline: median(dumped),
            against: "criu dump, sync, unmount by hand",
            target: Target::Times(1.3),
        },
    ])
}

fn thaw_from_ram(instance: &mut Instance) -> anyhow::Result<Figure> {
    const ROUNDS: usize = 21;
    progress("thaw from RAM");
    // Without a CRIU, boxes freeze in RAM: the same path that a warm box takes.
    instance.stop()?;
    instance.start(&[("ICEBOX_CRIU", "/nonexistent")])?;
    let id = holding_box(instance)?;
    let mut taken = Vec::new();
    for _ in 0..ROUNDS {
        instance.post(&format!("/v1/boxes/{id}/freeze"), json!({}))?;
        taken.push(timed(|| {
            instance.post(&format!("/v1/boxes/{id}/wake"), json!({}))
        })?);
    }
    instance.post(&format!("/v1/boxes/{id}/stop"), json!({}))?;
    instance.stop()?;
    instance.start(&[])?;
    Ok(Figure {
        what: "thaw from RAM",
        ours: median(taken),
        baseline: Duration::from_millis(10),
        against: "the limit",
        target: Target::Limit,
    })
}

fn starts(instance: &Instance) -> anyhow::Result<Vec<Figure>> {
    const ROUNDS: usize = 30;
    progress("start to a first command's output, against podman run");
    let rootfs = generation(&instance.data)?;
    let (mut ours, mut podman) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let mut id = String::new();
        ours.push(timed(|| {
            id = instance.start_box(json!({}))?;
            let said = instance.exec(&id, "echo hello")?;
            ensure!(said == "hello\n", "{said:?}");
            Ok(())
        })?);
        instance.post(&format!("/v1/boxes/{id}/stop"), json!({}))?;
        podman.push(timed(|| podman_run(&rootfs))?);
    }
    Ok(vec![Figure {
        what: "start to first output",
        ours: median(ours),
        baseline: median(podman),
        against: "podman run --rm",
        target: Target::Times(0.6),
    }])
}

fn execs(instance: &Instance) -> anyhow::Result<Vec<Figure>> {
    const ROUNDS: usize = 200;
    progress("exec of true, against fork, exec and wait in the box, and podman exec");
    let id = instance.start_box(json!({}))?;
    let inside = instance.exec(&id, FORK_EXEC_WAIT)?;
    let inside = Duration::from_nanos(inside.trim().parse().context("the box's own figure")?);
    let mut ours = Vec::new();
    for _ in 0..ROUNDS {
        ours.push(timed(|| instance.exec(&id, "true"))?);
    }
    instance.post(&format!("/v1/boxes/{id}/stop"), json!({}))?;
    let podman = podman_execs(&generation(&instance.data)?)?;
    let ours = median(ours);
    Ok(vec![
        Figure {
            what: "exec of true over REST",
            ours,
            baseline: inside,
            against: "fork, exec and wait in the box",
            target: Target::Above(Duration::from_millis(1)),
        },
        Figure {
            what: "exec of true over REST",
            ours,
            baseline: podman,
            against: "podman exec",
            target: Target::Times(0.05),
        },
    ])
}

fn server_memory(instance: &Instance, frozen: u32) -> anyhow::Result<()> {
    progress(&format!("memory of the server with {frozen} frozen boxes"));
    let small = json!({"size": {"cpus": 1, "memoryMb": 128, "diskGb": 1}});
    let mut ids = Vec::new();
    for number in 1..=frozen {
        let id = instance.start_box(small.clone())?;
        instance.post(&format!("/v1/boxes/{id}/freeze"), json!({}))?;
        ids.push(id);
        if number % 100 == 0 {
            progress(&format!("{number} of {frozen} frozen"));
        }
    }
    let mib = instance.server_rss_kib()? / 1024;
    println!("memory of the server with {frozen} frozen boxes: {mib} MiB (limit 64 MiB)");
    for id in ids {
        instance.post(&format!("/v1/boxes/{id}/stop"), json!({}))?;
    }
    ensure!(mib < 64, "the server uses {mib} MiB");
    Ok(())
}

fn holding_box(instance: &Instance) -> anyhow::Result<String> {
    let id = instance.start_box(json!({"size": {"cpus": 2, "memoryMb": 1024, "diskGb": 4}}))?;
    let run = json!({"cmd": HOLD_256_MIB, "background": true});
    instance.post(&format!("/v1/boxes/{id}/exec"), run)?;
    crate::harness::until(Duration::from_secs(60), || {
        Ok(instance.exec(&id, "test -e /work/holding").ok())
    })?;
    Ok(id)
}

fn podman(arguments: &[&str]) -> anyhow::Result<()> {
    let mut command = Command::new("podman");
    command
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let status = command
        .status()
        .context("podman is not installed: make bench installs it")?;
    ensure!(status.success(), "podman {arguments:?} failed");
    Ok(())
}

/// Options without which podman fails where CAP_SYS_RESOURCE is missing, and with which it is fastest.
const PODMAN: [&str; 8] = [
    "--runtime",
    "runc",
    "--network",
    "none",
    "--ulimit",
    "nofile=20000:20000",
    "--ulimit",
    "nproc=1000:1000",
];

fn podman_run(rootfs: &str) -> anyhow::Result<()> {
    let arguments = [
        &["run", "--rm"],
        &PODMAN[..],
        &["--rootfs", rootfs, "echo", "hello"],
    ]
    .concat();
    podman(&arguments)
}

fn podman_execs(rootfs: &str) -> anyhow::Result<Duration> {
    const NAME: &str = "icebox-bench";
    let run = [
        &["run", "--rm", "--detach", "--name", NAME],
        &PODMAN[..],
        &["--rootfs", rootfs, "sleep", "600"],
    ];
    podman(&run.concat())?;
    let mut taken = Vec::new();
    for _ in 0..20 {
        taken.push(timed(|| podman(&["exec", NAME, "true"])));
    }
    podman(&["kill", NAME])?;
    Ok(median(taken.into_iter().collect::<anyhow::Result<_>>()?))
}

/// The generation that the boxes are made of, as podman takes it: with an overlay of its own above.
fn generation(data: &Path) -> anyhow::Result<String> {
    let images = std::fs::read_dir(data.join("images"))?.flatten();
    let newest = images.max_by_key(|entry| entry.metadata().and_then(|m| m.modified()).ok());
    let path = newest.context("the server made no image yet")?.path();
    Ok(format!("{}:O", path.display()))
}

fn newest_copy(data: &Path, id: &str) -> anyhow::Result<CopyId> {
    let entries = std::fs::read_dir(data.join("boxes").join(id).join("copies"))?.flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers.max().map(CopyId).context("the box has no copy")
}

fn open_driver(data: &Path) -> anyhow::Result<ContainerDriver> {
    ContainerDriver::open(data, &ContainerDriver::find_boxd()).map_err(anyhow::Error::msg)
}

fn timed<T>(act: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<Duration> {
    #[expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
    let begun = Instant::now();
    act()?;
    Ok(begun.elapsed())
}

/// Writes out what other work left to be written, so that it is not charged to the next sync.
fn settle() -> anyhow::Result<()> {
    let status = Command::new("sync").status().context("run sync")?;
    ensure!(status.success(), "sync failed");
    Ok(())
}

fn median(mut taken: Vec<Duration>) -> Duration {
    taken.sort_unstable();
    taken.get(taken.len() / 2).copied().unwrap_or_default()
}

/// The same of plain numbers.
fn median_of(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or_default()
}

fn progress(text: &str) {
    eprintln!("… {text}");
}
