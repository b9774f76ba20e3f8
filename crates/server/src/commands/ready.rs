//! Waiting for a command in the background to be up: a port that takes connections, a line in its output, or both. Owns
//! what counts as up, and the words for a program that ended first.

use std::time::Duration;

use icebox_lifecycle::BoxId;
use icebox_wire::boxd::{self, OutputResponse, Stream};

use super::jobs::Waited;
use super::trouble::{Kind, Trouble};
use super::{Caller, Commands, check};
use crate::clock::monotonic_now;
use crate::engine::CallUnderWay;

/// How long to wait when the caller does not say, in seconds.
pub const READY_SEC: u32 = 60;
/// The longest text that a line may be asked to hold, in bytes.
const READY_LOG_LEN: usize = 1_000;
/// How often a port is tried.
const KNOCK: Duration = Duration::from_millis(100);
/// How long a single look may take.
const ONE_LOOK: Duration = Duration::from_secs(1);
/// How long one question waits for more output.
const LISTEN: Duration = Duration::from_secs(20);
/// The most that is read at a time, in bytes.
const PIECE: u32 = 256 * 1024;

/// What counts as up. At least one of both is there, and what is there has to hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Readiness {
    /// A port in the box that takes connections.
    pub port: Option<u16>,
    /// A text in one line of either stream.
    pub log: Option<String>,
}

impl Readiness {
    /// What a caller asked for, if they asked for anything.
    pub fn of(port: Option<u16>, log: Option<&str>) -> Result<Option<Self>, Trouble> {
        if port.is_some_and(|port| port == 0 || port == crate::driver::BOXD_PORT) {
            return Err(check::unfit("readyPort"));
        }
        let fits = |log: &str| {
            (1..=READY_LOG_LEN).contains(&log.len()) && !log.contains(['\n', '\r', '\0'])
        };
        if log.is_some_and(|log| !fits(log)) {
            return Err(check::unfit("readyLog"));
        }
        let asked = port.is_some() || log.is_some();
        Ok(asked.then(|| Self {
            port,
            log: log.map(str::to_owned),
        }))
    }

    fn in_words(&self) -> String {
        let port = self.port.map(|port| format!("port {port} is open"));
        let log = self.log.as_ref();
        let log = log.map(|log| format!("it wrote a line with `{log}`"));
        let both: Vec<_> = port.into_iter().chain(log).collect();
        both.join(" and ")
    }
}

impl Commands {
    /// Waits at most `wait` until a command is up; how it is then, and whether it is. A command that ends first is
    /// trouble, with the end of what it wrote.
    pub async fn wait_ready(
        &self,
        caller: &Caller,
        id: &str,
        exec_id: &str,
        when: &Readiness,
        wait: Duration,
    ) -> Result<Waited, Trouble> {
        let id = self.find(caller, id)?.id();
        let (call, _) = self.acting(caller, id, false).await?;
        let ready = self.up(&call, id, exec_id, when, wait).await?;
        self.as_it_is(&call, id, exec_id, ready).await
    }

    /// Whether the command came up within `wait`.
    pub(super) async fn up(
        &self,
        call: &CallUnderWay,
        id: BoxId,
        exec_id: &str,
        when: &Readiness,
        wait: Duration,
    ) -> Result<bool, Trouble> {
        // Even without any wait there is one look.
        let until = monotonic_now() + wait.max(ONE_LOOK);
        let up = async {
            tokio::try_join!(
                self.port_opens(id, when.port),
                self.line_comes(call, id, exec_id, when.log.as_deref()),
            )
        };
        let ends = async {
            loop {
                let left = until.saturating_duration_since(monotonic_now());
                let ended = self.waited(call, id, exec_id, left).await?;
                if !ended.proc.running {
                    return Ok::<_, Trouble>(ended);
                }
                if left.is_zero() {
                    std::future::pending::<()>().await;
                }
            }
        };
        let ended = tokio::select! {
            biased;
            up = up => return up.map(|_| true),
            ended = ends => ended?,
            () = tokio::time::sleep_until(until) => return Ok(false),
        };
        // Its last line may have been the one, and a server may have gone into the background.
        if self.looks_up(call, id, exec_id, when).await? {
            return Ok(true);
        }
        Err(ended_first(&ended, when))
    }

    /// Whether a command that ended is up all the same: what it left behind is.
    async fn looks_up(
        &self,
        call: &CallUnderWay,
        id: BoxId,
        exec_id: &str,
        when: &Readiness,
    ) -> Result<bool, Trouble> {
        if let Some(port) = when.port
            && self.0.driver.connect(id, port).await.is_err()
        {
            return Ok(false);
        }
        let Some(log) = &when.log else {
            return Ok(true);
        };
        for stream in [Stream::STREAM_STDOUT, Stream::STREAM_STDERR] {
            if self.search(call, id, exec_id, stream, log).await? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    pub(super) async fn port_opens(&self, id: BoxId, port: Option<u16>) -> Result<(), Trouble> {
        let Some(port) = port else {
            return Ok(());
        };
        while self.0.driver.connect(id, port).await.is_err() {
            tokio::time::sleep(KNOCK).await;
        }
        Ok(())
    }

    /// Resolves when a line with the text came, and never when the output ended without it.
    async fn line_comes(
        &self,
        call: &CallUnderWay,
        id: BoxId,
        exec_id: &str,
        log: Option<&str>,
    ) -> Result<(), Trouble> {
        let Some(log) = log else {
            return Ok(());
        };
        let out = self.found(call, id, exec_id, Stream::STREAM_STDOUT, log);
        let err = self.found(call, id, exec_id, Stream::STREAM_STDERR, log);
        tokio::select! {
            found = out => found,
            found = err => found,
        }
    }

    async fn found(
        &self,
        call: &CallUnderWay,
        id: BoxId,
        exec_id: &str,
        stream: Stream,
        log: &str,
    ) -> Result<(), Trouble> {
        if self.search(call, id, exec_id, stream, log).await? {
            return Ok(());
        }
        std::future::pending().await
    }

    /// Reads a stream from its beginning until a line holds the text, or until it ends.
    async fn search(
        &self,
        call: &CallUnderWay,
        id: BoxId,
        exec_id: &str,
        stream: Stream,
        log: &str,
    ) -> Result<bool, Trouble> {
        let mut offset = 0;
        let mut rest = Vec::new();
        loop {
            let piece = self.piece(call, id, exec_id, stream, offset).await?;
            if piece.data_offset > offset {
                // What was between is not kept; a line does not go on over it.
                rest.clear();
            }
            rest.extend_from_slice(&piece.data);
            if contains(&rest, log.as_bytes()) {
                return Ok(true);
            }
            // A text may be cut between two pieces, but not one with a line's end in it: it has none.
            let keep = rest.len().saturating_sub(log.len().saturating_sub(1));
            rest.drain(..keep);
            offset = piece.next_offset;
            if piece.eof {
                return Ok(false);
            }
        }
    }

    async fn piece(
        &self,
        call: &CallUnderWay,
        id: BoxId,
        exec_id: &str,
        stream: Stream,
        offset: u64,
    ) -> Result<OutputResponse, Trouble> {
        let request = boxd::OutputRequest {
            exec_id: exec_id.to_owned(),
            stream: stream.into(),
            offset,
            max_bytes: PIECE,
            wait_ms: u64::try_from(LISTEN.as_millis()).unwrap_or(u64::MAX),
            ..boxd::OutputRequest::default()
        };
        let attempt = || self.0.boxds.output(id, request.clone());
        self.ask_daemon(call, id, false, attempt).await
    }

    /// A command as it is now, with whether it is up.
    async fn as_it_is(
        &self,
        call: &CallUnderWay,
        id: BoxId,
        exec_id: &str,
        ready: bool,
    ) -> Result<Waited, Trouble> {
        let mut now = self.waited(call, id, exec_id, Duration::ZERO).await?;
        now.ready = Some(ready);
        Ok(now)
    }
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

/// A program that ended before it was up.
fn ended_first(ended: &Waited, when: &Readiness) -> Trouble {
    let proc = &ended.proc;
    let how = match (proc.exit_code, &proc.signal) {
        (_, _) if proc.timed_out => "its deadline ended it".to_owned(),
        (Some(code), _) => format!("it exited with code {code}"),
        (None, Some(signal)) => format!("{signal} ended it"),
        (None, None) => "it ended".to_owned(),
    };
    let last = last_line(&ended.stderr).or_else(|| last_line(&ended.stdout));
    let last = last.map(|line| format!("; its last line: {line}"));
    let text = format!(
        "the command ended before {}: {how}{}",
        when.in_words(),
        last.unwrap_or_default()
    );
    let mut trouble = Trouble::new(Kind::NotReady, text)
        .with("execId", proc.exec_id.as_str())
        .with("bgId", proc.exec_id.as_str())
        .with("ready", false)
        .with("stdout", ended.stdout.as_str())
        .with("stderr", ended.stderr.as_str())
        .with("outputUrl", proc.output_url.as_str());
    if let Some(code) = proc.exit_code {
        trouble = trouble.with("exitCode", code);
    }
    if let Some(signal) = &proc.signal {
        trouble = trouble.with("signal", signal.as_str());
    }
    trouble
}

/// The last line that says anything, cut to what fits a sentence.
fn last_line(text: &str) -> Option<String> {
    let mut lines = text.lines().rev().map(str::trim);
    let line = lines.find(|line| !line.is_empty())?;
    Some(line.chars().take(300).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_counts_as_up_has_its_limits() {
        let of = |port, log| Readiness::of(port, log);
        assert_eq!(of(None, None).unwrap(), None);
        let long = "x".repeat(READY_LOG_LEN + 1);
        assert!(of(Some(0), None).is_err());
        assert!(of(Some(crate::driver::BOXD_PORT), None).is_err());
        for log in ["", "a\nb", "a\0", &long] {
            assert!(of(None, Some(log)).is_err(), "{log:?}");
        }
        let both = of(Some(80), Some("up")).unwrap().unwrap();
        assert_eq!(
            both.in_words(),
            "port 80 is open and it wrote a line with `up`"
        );
    }

    #[test]
    fn the_last_line_that_says_anything_is_told() {
        assert_eq!(last_line("a\n b \n\n").as_deref(), Some("b"));
        assert_eq!(last_line(" \n"), None);
    }
}
