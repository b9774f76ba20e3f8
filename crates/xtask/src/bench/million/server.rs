//! The server under test, as a process of its own: serves REST like any other, and measures from inside what cannot be
//! seen from outside. Orders come as lines on standard input, figures go as lines of seconds to standard output.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use icebox_lifecycle::credits::Prices;
use icebox_lifecycle::{BoxId, CallId, CallKind, Command, Event};
use icebox_server::clock::Clock;
use icebox_server::config::{Config, EdgeConfig, EgressSettings, Limits, WebhookSettings};
use icebox_server::edge;
use icebox_server::engine::Engine;
use icebox_server::logs::LogSettings;
use tokio::io::AsyncBufReadExt as _;
use tokio::net::TcpListener;

use super::{EVENTS_A_SECOND, at, host};

/// Turns that are measured.
const TURNS: usize = 2_000;
/// How often events are sent.
const BEAT: Duration = Duration::from_millis(10);

/// Runs until standard input ends.
pub fn run(data: &Path) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()?;
    runtime.block_on(serve(data))
}

async fn serve(data: &Path) -> anyhow::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("{}", listener.local_addr()?.port());
    let config = Config {
        data: data.to_owned(),
        listen: listener.local_addr()?,
        domain: "localhost".to_owned(),
        test_clock: false,
        limits: Limits::default(),
        prices: Prices::default(),
        webhooks: WebhookSettings::default(),
        egress: EgressSettings::default(),
        logs: LogSettings::default(),
        edge: EdgeConfig::default(),
        tls: None,
    };
    let server = icebox_server::build(config, Arc::new(host::Host(data.to_owned()))).await?;
    let serving = tokio::spawn(edge::listen::serve(
        listener,
        server.front,
        server.tls,
        std::future::pending(),
    ));
    let (due, ready) = host::chosen(data)?;
    let clock = server.clock;
    let mut sending = None;
    let mut orders = tokio::io::BufReader::new(tokio::io::stdin()).lines();
    while let Some(order) = orders.next_line().await? {
        match order.as_str() {
            "turns" => say(&turns(&server.engine, &ready).await?),
            "events" => {
                let stop = Arc::new(AtomicBool::new(false));
                let events = events(server.engine.clone(), ready.clone(), Arc::clone(&stop));
                sending = Some((stop, tokio::spawn(events)));
            }
            "quiet" => {
                let (stop, sending) = sending.take().context("no events are being sent")?;
                stop.store(true, Ordering::Release);
                say(&[sending.await??]);
            }
            "due" => say(&[until_stopped(&server.engine, &clock, &due).await?]),
            other => anyhow::bail!("no such order: {other}"),
        }
    }
    serving.abort();
    server.engine.shut_down().await;
    Ok(())
}

fn say(figures: &[Duration]) {
    let words: Vec<String> = figures
        .iter()
        .map(|figure| figure.as_secs_f64().to_string())
        .collect();
    println!("{}", words.join(" "));
}

/// How long a turn takes in which nothing is due and nothing changes, with the way to the engine and back: the median,
/// what 99 of 100 stay below, and the longest.
async fn turns(engine: &Engine, ids: &[BoxId]) -> anyhow::Result<[Duration; 3]> {
    let mut taken = Vec::new();
    for id in ids.iter().cycle().take(TURNS) {
        let begun = now();
        engine.command(*id, Command::Keep(false)).await?;
        taken.push(begun.elapsed());
    }
    taken.sort_unstable();
    Ok([0.5, 0.99, 1.0].map(|part| at(&taken, part)))
}

/// Sends begins and ends of calls; gives how many events came in each second.
async fn events(
    engine: Engine,
    ids: Vec<BoxId>,
    stop: Arc<AtomicBool>,
) -> anyhow::Result<Duration> {
    let calls = EVENTS_A_SECOND / 2 * u64::try_from(BEAT.as_millis())? / 1_000;
    let mut ids = ids.iter().cycle();
    let mut beat = tokio::time::interval(BEAT);
    let (begun, mut sent) = (now(), 0_u32);
    while !stop.load(Ordering::Acquire) {
        beat.tick().await;
        for id in ids.by_ref().take(usize::try_from(calls)?) {
            // No caller of the API has this number.
            let call = CallId(u64::MAX);
            let began = Event::CallBegan {
                call,
                kind: CallKind::Acts,
                agent: None,
            };
            engine.tell(*id, began).await?;
            engine.tell(*id, Event::CallEnded { call }).await?;
            sent += 2;
        }
    }
    Ok(Duration::from_secs_f64(
        f64::from(sent) / begun.elapsed().as_secs_f64(),
    ))
}

/// Waits until all of these boxes, which come due at the same moment, show as stopped: how long after that moment.
async fn until_stopped(engine: &Engine, clock: &Clock, ids: &[BoxId]) -> anyhow::Result<Duration> {
    let views = engine.views();
    let first = ids
        .first()
        .and_then(|id| views.get(*id))
        .context("no box comes due")?;
    let due = first.sandbox.next_deadline().context("nothing is due")?;
    anyhow::ensure!(clock.now() < due, "they were due before it was measured");
    let mut told = views.told();
    let is_stopped = |id: &BoxId| views.get(*id).is_some_and(|view| view.is_stopped());
    while !ids.iter().all(is_stopped) {
        told.changed().await?;
    }
    Ok(Duration::from_millis(clock.now().since(due).unsigned_abs()))
}

fn now() -> Instant {
    #[expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
    Instant::now()
}
