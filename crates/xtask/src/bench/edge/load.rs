//! Requests at a steady rate, and sockets that stay open. The first in a process of its own, so that it can be where the
//! program is, too: in the box's network.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::Instant;

use super::Target;
use crate::harness::until;

/// The cores of whoever is no proxy.
pub(super) const CORES: &str = "1";
/// Connections that share the rate.
const CONNECTIONS: u32 = 16;
/// Requests before those that count.
const WARM_UP: Duration = Duration::from_secs(1);

/// The time within which 99 of 100 requests are answered, in milliseconds, at so many a second.
pub(super) fn p99_ms(
    target: &Target,
    rate: u32,
    seconds: u64,
    namespace: Option<&str>,
) -> anyhow::Result<f64> {
    let mut command = match namespace {
        Some(path) => {
            let mut command = Command::new("nsenter");
            command.arg(format!("--net={path}"));
            command.args(["taskset", "-c", CORES]);
            command
        }
        None => {
            let mut command = Command::new("taskset");
            command.args(["-c", CORES]);
            command
        }
    };
    let output = command
        .arg(std::env::current_exe()?)
        .args(["edge-load", &target.address, &target.host])
        .args([rate.to_string(), seconds.to_string()])
        .output()
        .context("run the load")?;
    ensure!(
        output.status.success(),
        "the load: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(String::from_utf8(output.stdout)?.trim().parse()?)
}

/// Sends requests at a rate, and prints the time within which 99 of 100 were answered.
pub fn run(address: &str, host: &str, rate: u32, seconds: u64) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let mut taken = runtime.block_on(async {
        let interval = Duration::from_secs(1) * CONNECTIONS / rate;
        let begun = now() + Duration::from_millis(50);
        let mut running = Vec::new();
        for n in 0..CONNECTIONS {
            let client = Client {
                stream: tokio::net::TcpStream::connect(address).await?,
                request: format!("GET /small HTTP/1.1\r\nHost: {host}\r\n\r\n"),
            };
            client.stream.set_nodelay(true)?;
            let first = begun + interval * n / CONNECTIONS;
            let end = begun + WARM_UP + Duration::from_secs(seconds);
            running.push(tokio::spawn(client.run(
                first,
                interval,
                begun + WARM_UP,
                end,
            )));
        }
        let mut taken = Vec::new();
        for client in running {
            taken.extend(client.await??);
        }
        anyhow::Ok(taken)
    })?;
    let wanted = u64::from(rate) * seconds;
    ensure!(
        taken.len() as u64 * 10 > wanted * 9,
        "{} of {wanted} requests were answered",
        taken.len()
    );
    taken.sort_unstable();
    let p99 = taken[taken.len() * 99 / 100];
    println!("{}", p99.as_secs_f64() * 1e3);
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
fn now() -> Instant {
    Instant::now()
}

struct Client {
    stream: tokio::net::TcpStream,
    request: String,
}

impl Client {
    /// How long each request from `from` on took. One that cannot be sent in time, for the one before is not answered,
    /// counts from when it should have been sent.
    async fn run(
        mut self,
        first: Instant,
        interval: Duration,
        from: Instant,
        end: Instant,
    ) -> anyhow::Result<Vec<Duration>> {
        let mut taken = Vec::new();
        let mut due = first;
        let mut answer = Vec::with_capacity(4096);
        while due < end {
            let late = now() > due;
            tokio::time::sleep_until(due).await;
            // A timer that is late is not the proxy's fault.
            let begun = if late { due } else { now() };
            self.stream.write_all(self.request.as_bytes()).await?;
            answer.clear();
            while !is_whole(&answer)? {
                let some = self.stream.read_buf(&mut answer).await?;
                ensure!(some > 0, "the connection ended");
            }
            if due >= from {
                taken.push(begun.elapsed());
            }
            due += interval;
        }
        Ok(taken)
    }
}

/// Whether a small answer is there.
fn is_whole(answer: &[u8]) -> anyhow::Result<bool> {
    const BODY: &[u8] = b"a small answer";
    if answer.len() < 12 {
        return Ok(false);
    }
    ensure!(
        answer.starts_with(b"HTTP/1.1 200"),
        "{}",
        answer.escape_ascii()
    );
    Ok(answer.ends_with(BODY))
}

/// Opens WebSockets, one after the other.
pub(super) fn open_sockets(target: &Target, count: usize) -> anyhow::Result<Vec<TcpStream>> {
    let open = || -> anyhow::Result<TcpStream> {
        let mut stream = TcpStream::connect(&target.address)?;
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        write!(
            stream,
            "GET / HTTP/1.1\r\nHost: {}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n",
            target.host
        )?;
        let mut answer = [0; 12];
        stream.read_exact(&mut answer)?;
        if &answer != b"HTTP/1.1 101" {
            bail!("no WebSocket: {}", answer.escape_ascii());
        }
        Ok(stream)
    };
    (0..count).map(|_| open()).collect()
}

/// Waits until a small answer comes.
pub(super) fn wait_until_answered(target: &Target) -> anyhow::Result<()> {
    let ask = || -> anyhow::Result<bool> {
        let mut stream = TcpStream::connect(&target.address)?;
        stream.set_read_timeout(Some(Duration::from_secs(1)))?;
        let host = &target.host;
        write!(
            stream,
            "GET /small HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
        )?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer)?;
        is_whole(&answer)
    };
    until(Duration::from_secs(20), || {
        Ok(ask().is_ok_and(|whole| whole).then_some(()))
    })
}
