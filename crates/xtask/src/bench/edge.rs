//! The boxes' URLs against nginx as reverse proxy: the same programs in the same box, in the same run, each proxy on one
//! core (0), and what it talks to on the others. Owns what is measured and its goals.
//!
//! A box has no network but its own loopback, so this nginx runs in the box's network namespace, with a socket that listens
//! outside of it: it takes clients where Icebox takes them, and reaches programs where Icebox reaches them.

mod load;
mod nginx;
mod upstream;

use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, ensure};
use serde_json::json;

use super::goal::{Goal, Limit, conclude};
use super::{median_of, progress};
use crate::browser::Browser;
use crate::harness::{Instance, until};
use nginx::Nginx;
use upstream::{Apps, DOWNLOAD_MIB, FILES_PORT, SOCKETS_PORT};

pub use load::run as load;

/// Rounds of each measurement; the median counts.
const ROUNDS: usize = 3;
/// How long requests are sent in one round.
const SECONDS: u64 = 5;
/// Connections that send requests.
const CONNECTIONS: u32 = 32;
/// Sockets that are open and silent.
const IDLE_SOCKETS: usize = 2_000;
/// How many frozen boxes' pages are loaded. Each is loaded once: a second load would be no wake for 15 s (rule 8.3).
const PAGE_LOADS: usize = 15;

/// The core that proxies have for themselves.
const PROXY_CORE: &str = "0";

/// Where requests go: an address, and the host that they name.
struct Target {
    address: String,
    host: String,
}

/// Runs it.
pub fn run() -> anyhow::Result<()> {
    let mut instance = Instance::new("bench-edge", false)?;
    instance.start(&[])?;
    let (address, _) = instance.address()?;
    let id = instance.start_box(json!({}))?;
    let apps = Apps::start(&instance, &id)?;
    let ours = |port: u16| Target {
        address: address.clone(),
        host: format!("{port}-{id}.localhost"),
    };
    pin(instance.server_pid()?, PROXY_CORE)?;
    let nginx = Nginx::start(&instance, &id)?;
    let theirs = Target {
        address: nginx.address.clone(),
        host: "localhost".to_owned(),
    };
    let mut goals = small_answers(&ours(FILES_PORT), &theirs, apps.namespace())?;
    goals.push(download(&ours(FILES_PORT), &theirs)?);
    goals.push(idle_sockets(&instance, &ours(SOCKETS_PORT))?);
    drop(nginx);
    instance.post(&format!("/v1/boxes/{id}/stop"), json!({}))?;
    goals.push(page_load(&instance)?);
    conclude(&goals)?;
    instance.stop()
}

/// Lets a process, with all its threads, run on these cores only.
fn pin(pid: u32, cores: &str) -> anyhow::Result<()> {
    let mut command = Command::new("taskset");
    command.args(["-a", "-c", "-p", cores, &pid.to_string()]);
    let status = command.stdout(Stdio::null()).status();
    ensure!(status.context("run taskset")?.success(), "taskset failed");
    Ok(())
}

fn small_answers(ours: &Target, theirs: &Target, namespace: &str) -> anyhow::Result<Vec<Goal>> {
    progress("small answers, as many as can be");
    let (mut our_rates, mut their_rates) = (vec![], vec![]);
    for _ in 0..ROUNDS {
        our_rates.push(wrk(ours)?);
        their_rates.push(wrk(theirs)?);
    }
    let (our_rate, their_rate) = (median_of(our_rates), median_of(their_rates));
    progress("small answers at half of that");
    let rate = (our_rate / 2.0) as u32;
    let direct = Target {
        address: format!("127.0.0.1:{FILES_PORT}"),
        host: "localhost".to_owned(),
    };
    let (mut through, mut through_nginx, mut straight) = (vec![], vec![], vec![]);
    for _ in 0..ROUNDS {
        through.push(load::p99_ms(ours, rate, SECONDS, None)?);
        through_nginx.push(load::p99_ms(theirs, rate, SECONDS, None)?);
        straight.push(load::p99_ms(&direct, rate, SECONDS, Some(namespace))?);
    }
    let (through, through_nginx, straight) = (
        median_of(through),
        median_of(through_nginx),
        median_of(straight),
    );
    Ok(vec![
        Goal {
            what: "small answers, part of nginx's",
            unit: "%",
            ours: 100.0 * our_rate / their_rate,
            against: format!("{our_rate:.0} a second, nginx {their_rate:.0}, on one core each"),
            limit: Limit::AtLeast(60.0),
        },
        Goal {
            what: "added to the slowest of 100 at half load",
            unit: "ms",
            ours: through - straight,
            against: format!(
                "{rate} a second: {through:.2} ms, {straight:.2} ms without a proxy, {through_nginx:.2} ms with nginx"
            ),
            limit: Limit::AtMost(1.0),
        },
    ])
}

/// Requests a second, as many as can be.
fn wrk(target: &Target) -> anyhow::Result<f64> {
    let output = Command::new("taskset")
        .args(["-c", load::CORES, "wrk", "-t1"])
        .arg(format!("-c{CONNECTIONS}"))
        .arg(format!("-d{SECONDS}s"))
        .args(["-H", &format!("Host: {}", target.host)])
        .arg(format!("http://{}/small", target.address))
        .output()
        .context("run wrk: scripts/bootstrap --bench installs it")?;
    let text = String::from_utf8_lossy(&output.stdout);
    ensure!(
        output.status.success() && !text.contains("Non-2xx") && !text.contains("Socket errors"),
        "wrk: {text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let rate = text
        .lines()
        .find_map(|line| line.trim().strip_prefix("Requests/sec:"));
    Ok(rate.context("wrk said nothing")?.trim().parse()?)
}

fn download(ours: &Target, theirs: &Target) -> anyhow::Result<Goal> {
    progress("a download of 1 GiB");
    let (mut our_speeds, mut their_speeds) = (vec![], vec![]);
    for _ in 0..ROUNDS {
        our_speeds.push(fetch(ours)?);
        their_speeds.push(fetch(theirs)?);
    }
    let (our_speed, their_speed) = (median_of(our_speeds), median_of(their_speeds));
    Ok(Goal {
        what: "download of 1 GiB, part of nginx's speed",
        unit: "%",
        ours: 100.0 * our_speed / their_speed,
        against: format!("{our_speed:.0} MiB/s, nginx {their_speed:.0} MiB/s"),
        limit: Limit::AtLeast(80.0),
    })
}

/// The speed of a download, in MiB a second.
fn fetch(target: &Target) -> anyhow::Result<f64> {
    let output = Command::new("taskset")
        .args(["-c", load::CORES, "curl", "-sS", "-f", "-o", "/dev/null"])
        .args(["-w", "%{size_download} %{speed_download}"])
        .args(["-H", &format!("Host: {}", target.host)])
        .arg(format!("http://{}/large", target.address))
        .output()
        .context("run curl")?;
    let said = String::from_utf8_lossy(&output.stdout);
    let (size, speed) = said.split_once(' ').context("curl said nothing")?;
    ensure!(
        size.parse::<u64>()? == DOWNLOAD_MIB << 20,
        "{size} bytes: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(speed.trim().parse::<f64>()? / f64::from(1 << 20))
}

fn idle_sockets(instance: &Instance, target: &Target) -> anyhow::Result<Goal> {
    progress("idle WebSockets");
    // What the first ones make the server set up once is not what one costs.
    let first = load::open_sockets(target, 50)?;
    let before = instance.server_rss_kib()?;
    let sockets = load::open_sockets(target, IDLE_SOCKETS)?;
    let after = instance.server_rss_kib()?;
    let each = after.saturating_sub(before) as f64 / sockets.len() as f64;
    drop((first, sockets));
    Ok(Goal {
        what: "memory of an idle WebSocket",
        unit: "KiB",
        ours: each,
        against: format!("{before} KiB before, {after} KiB with {IDLE_SOCKETS}"),
        limit: Limit::AtMost(40.0),
    })
}

fn page_load(instance: &Instance) -> anyhow::Result<Goal> {
    progress("the page of a frozen box");
    // It has the machine for itself, as it has with its users.
    let cores = format!("0-{}", std::thread::available_parallelism()?.get() - 1);
    pin(instance.server_pid()?, &cores)?;
    let (mut taken, mut tiers) = (vec![], vec![]);
    for _ in 0..PAGE_LOADS {
        let (ms, tier) = load_frozen(instance)?;
        taken.push(ms);
        tiers.push(tier);
    }
    tiers.dedup();
    let longest = taken.iter().copied().fold(0.0, f64::max);
    Ok(Goal {
        what: "frozen box's page to its app visible",
        unit: "ms",
        ours: median_of(taken),
        against: format!(
            "{PAGE_LOADS} loads from {}, the longest {longest:.0} ms",
            tiers.join(", ")
        ),
        limit: Limit::AtMost(1_500.0),
    })
}

/// Makes a box with a page, freezes it and loads the page; gives how long that took, in milliseconds, and from where the box
/// came back.
fn load_frozen(instance: &Instance) -> anyhow::Result<(f64, String)> {
    let services = json!([{ "name": "web", "port": upstream::PAGE_PORT, "web": true }]);
    let id = instance.start_box(json!({ "services": services }))?;
    upstream::start_page(instance, &id)?;
    instance.post(&format!("/v1/boxes/{id}/freeze"), json!({}))?;
    let frozen = until(Duration::from_secs(60), || {
        let view = instance.get(&format!("/v1/boxes/{id}"))?;
        Ok((view["status"] == "frozen").then_some(view))
    })?;
    let url = frozen["webUrl"].as_str().context("no URL")?;
    let mut browser = Browser::open(url, "en-GB")?;
    browser.ask(&json!({ "do": "goto", "path": "about:blank" }))?;
    let seen = browser.visit("/", "#app")?;
    ensure!(seen["statuses"][0] == 503, "it was not frozen: {seen}");
    instance.post(&format!("/v1/boxes/{id}/stop"), json!({}))?;
    let tier = frozen["tier"].as_str().unwrap_or_default().to_owned();
    Ok((seen["ms"].as_f64().context("no time")?, tier))
}
