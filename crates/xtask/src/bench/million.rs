//! A million frozen boxes: what they cost a server in memory, and how quick it stays. Makes a database of them, starts a
//! server on it in a process of its own, and asks. Needs no box, no CRIU and no root. Owns the order and the limits.

mod fill;
mod host;
mod server;

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use icebox_server::store::ADMIN_KEY_FILE;

use super::{Figure, Target, progress, timed};

pub use server::run as serve;

/// Boxes that come due together.
const DUE: usize = 1_000;
/// How long after the start that is.
const DUE_AFTER_MS: i64 = 60_000;
/// Events that come in each second while lists are asked for.
const EVENTS_A_SECOND: u64 = 1_000;
/// How many lists are asked for meanwhile, and the pause between two.
const LISTS: usize = 400;
const PAUSE: Duration = Duration::from_millis(10);

const MEMORY_LIMIT_MIB: u64 = 1024;
const START_LIMIT: Duration = Duration::from_secs(10);
const TURN_LIMIT: Duration = Duration::from_millis(1);
const DUE_LIMIT: Duration = Duration::from_secs(1);
const LIST_LIMIT: Duration = Duration::from_millis(5);

/// Runs it with so many boxes.
pub fn run(boxes: usize) -> anyhow::Result<()> {
    let data = Folder::new()?;
    progress(&format!("a database of {boxes} boxes"));
    let file = fill::fill(&data.0, boxes)?;
    println!("the database has {} MiB", file >> 20);
    progress("start");
    let mut server = Server::start(&data.0)?;
    let loaded = server.memory()?;
    progress("turns with nothing due");
    let turns = server.figures("turns")?;
    progress("lists while events come in");
    server.tell("events")?;
    let lists = server.lists()?;
    let rate = server.figures("quiet")?[0].as_secs_f64();
    progress(&format!("{DUE} boxes due together"));
    let due = server.figures("due")?;
    let memory = server.memory()?;
    let limit = |what, ours, most| Figure {
        what,
        ours,
        baseline: most,
        against: "the limit",
        target: Target::Limit,
    };
    let figures = [
        limit("start until it answers", server.started, START_LIMIT),
        limit("turn with nothing due, 99 %", turns[1], TURN_LIMIT),
        limit("1,000 due, decided, committed", due[0], DUE_LIMIT),
        limit("list of 100 under load, 99 %", at(&lists, 0.99), LIST_LIMIT),
    ];
    println!();
    figures.iter().for_each(Figure::print);
    let ms = |d: Duration| d.as_secs_f64() * 1e3;
    println!(
        "turn: median {:.3} ms, longest {:.3} ms; list: median {:.3} ms, longest {:.3} ms, while {rate:.0} events a second came",
        ms(turns[0]),
        ms(turns[2]),
        ms(at(&lists, 0.5)),
        ms(at(&lists, 1.0)),
    );
    println!(
        "memory of the server: {} MiB once it answers, {} MiB in the end, {} MiB at most (limit {MEMORY_LIMIT_MIB} MiB)",
        loaded.now_mib, memory.now_mib, memory.most_mib
    );
    let small = loaded.now_mib.max(memory.now_mib) < MEMORY_LIMIT_MIB;
    let missed = figures.iter().filter(|figure| !figure.is_reached()).count();
    ensure!(missed == 0, "{missed} figures were missed");
    ensure!(small, "the server takes too much memory");
    ensure!(
        rate > 0.95 * EVENTS_A_SECOND as f64,
        "{rate:.0} events a second came"
    );
    Ok(())
}

/// A server with so many boxes, for those who only want to look at it.
pub(super) struct Many {
    /// Where it is.
    pub(super) url: String,
    /// The admin's key.
    pub(super) key: String,
    _server: Server,
    // After the server, for it goes with it.
    _data: Folder,
}

impl Many {
    /// Fills a database and starts a server on it.
    pub(super) fn start(boxes: usize) -> anyhow::Result<Self> {
        let data = Folder::new()?;
        fill::fill(&data.0, boxes)?;
        let server = Server::start(&data.0)?;
        Ok(Self {
            url: server.url.clone(),
            key: server.key.clone(),
            _server: server,
            _data: data,
        })
    }
}

/// The value below which this part of the times lies.
fn at(sorted: &[Duration], part: f64) -> Duration {
    let last = sorted.len().saturating_sub(1);
    let index = (last as f64 * part).round() as usize;
    sorted.get(index).copied().unwrap_or_default()
}

/// The server under test, and a kept connection to it.
struct Server {
    child: Child,
    orders: ChildStdin,
    said: BufReader<ChildStdout>,
    http: ureq::Agent,
    url: String,
    key: String,
    started: Duration,
}

struct Memory {
    now_mib: u64,
    most_mib: u64,
}

impl Server {
    fn start(data: &Path) -> anyhow::Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("million-server").arg(data);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let http: ureq::Agent = ureq::Agent::config_builder()
            .timeout_global(Some(Duration::from_secs(600)))
            .build()
            .into();
        let mut child = None;
        let mut url = String::new();
        let started = timed(|| {
            let child = child.insert(command.spawn().context("start the server")?);
            let said = child.stdout.as_mut().context("no output")?;
            // It says where it listens before it loads; until it serves, a call waits.
            let mut port = String::new();
            BufReader::with_capacity(1, said).read_line(&mut port)?;
            url = format!("http://127.0.0.1:{}", port.trim());
            let ready = http.get(format!("{url}/readyz")).call();
            ready.context("the server is not ready").map(drop)
        });
        let mut child = child.context("no server")?;
        let (orders, said) = (child.stdin.take(), child.stdout.take());
        let key = std::fs::read_to_string(data.join(ADMIN_KEY_FILE))?;
        let mut server = Self {
            child,
            orders: orders.context("no input")?,
            said: BufReader::new(said.context("no output")?),
            http,
            url,
            key: key.trim().to_owned(),
            started: Duration::ZERO,
        };
        server.started = started?;
        Ok(server)
    }

    /// Times of lists of 100 boxes, in order.
    fn lists(&self) -> anyhow::Result<Vec<Duration>> {
        let url = format!("{}/v1/boxes?limit=100", self.url);
        let list = || {
            let request = self.http.get(&url);
            let mut answer = request
                .header("Authorization", format!("Bearer {}", self.key))
                .call()?;
            Ok(answer.body_mut().read_to_string()?)
        };
        let listed: serde_json::Value = serde_json::from_str(&list()?)?;
        let count = listed["boxes"].as_array().map_or(0, Vec::len);
        ensure!(count == 100, "{count} boxes in a list of 100");
        let mut taken = Vec::new();
        for _ in 0..LISTS {
            taken.push(timed(|| list().map(drop))?);
            std::thread::sleep(PAUSE);
        }
        taken.sort_unstable();
        Ok(taken)
    }

    fn tell(&mut self, order: &str) -> anyhow::Result<()> {
        writeln!(self.orders, "{order}").context("the server is gone")
    }

    /// Asks for figures and waits for them.
    fn figures(&mut self, what: &str) -> anyhow::Result<Vec<Duration>> {
        self.tell(what)?;
        let mut line = String::new();
        self.said.read_line(&mut line)?;
        let seconds = line.split_whitespace().map(str::parse::<f64>);
        let seconds: Vec<f64> = seconds
            .collect::<Result<_, _>>()
            .with_context(|| format!("{what}: {line:?}"))?;
        ensure!(!seconds.is_empty(), "the server said nothing of {what}");
        Ok(seconds.into_iter().map(Duration::from_secs_f64).collect())
    }

    fn memory(&self) -> anyhow::Result<Memory> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let mib = |name: &str| -> anyhow::Result<u64> {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            let Some(line) = line else { bail!("no {name}") };
            Ok(line.trim().trim_end_matches(" kB").parse::<u64>()? >> 10)
        };
        Ok(Memory {
            now_mib: mib("VmRSS:")?,
            most_mib: mib("VmHWM:")?,
        })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself; either way it is waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The data folder, removed in the end.
struct Folder(PathBuf);

impl Folder {
    fn new() -> anyhow::Result<Self> {
        let base =
            std::env::var_os("ICEBOX_TEST_DIR").map_or_else(std::env::temp_dir, PathBuf::from);
        let data = base.join(format!("icebox-million-{}", std::process::id()));
        std::fs::create_dir_all(&data).with_context(|| format!("make {}", data.display()))?;
        Ok(Self(data))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            eprintln!("{} could not be removed: {error}", self.0.display());
        }
    }
}
