//! Following one process as a stream of the E2B protocol's events.
//!
//! Owns the order of events and the words for an end. Holds nothing up: it reads what is kept, at its own pace.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use connectrpc::ConnectError;
use futures_util::{Stream, stream};
use icebox_wire::process::__buffa::oneof::process_event::Event;
use icebox_wire::process::__buffa::oneof::process_event::data_event::Output;
use icebox_wire::process::ProcessEvent;
use icebox_wire::process::process_event::{DataEvent, EndEvent, KeepAlive, StartEvent};
use tokio::sync::watch;

use crate::clock;
use crate::proc::{Exit, Proc, STDOUT, State};
use crate::restart::gate::{AWAY, Gate};

/// The most one event carries.
const CHUNK: usize = 32 * 1024;

/// The most one event of a terminal carries.
const TERMINAL_CHUNK: usize = 16 * 1024;

/// How to follow.
pub(crate) struct Follow {
    /// Per stream, where to begin.
    pub(crate) offsets: [u64; 2],
    /// Silence after which a keepalive is sent.
    pub(crate) keepalive: Duration,
    /// How long to follow at most; the process is left alone.
    pub(crate) limit: Option<Duration>,
    /// Closed when boxd restarts.
    pub(crate) gate: Arc<Gate>,
}

struct Follower {
    proc: Arc<Proc>,
    state: watch::Receiver<State>,
    offsets: [u64; 2],
    keepalive: Duration,
    limit: Pin<Box<dyn Future<Output = ()> + Send>>,
    gate: Arc<Gate>,
    /// The stream to look at first, so that neither starves the other.
    first: usize,
    phase: Phase,
}

enum Phase {
    Starting,
    Running,
    Over,
}

type Item = Result<ProcessEvent, ConnectError>;

/// Start, then output and keepalives, then the end: an event, or an error when a limit or deadline came first.
pub(crate) fn follow(proc: Arc<Proc>, how: Follow) -> impl Stream<Item = Item> + Send {
    let limit: Pin<Box<dyn Future<Output = ()> + Send>> = match how.limit {
        Some(limit) => Box::pin(clock::awake(limit)),
        None => Box::pin(std::future::pending()),
    };
    let follower = Follower {
        state: proc.watch(),
        proc,
        offsets: how.offsets,
        keepalive: how.keepalive,
        limit,
        gate: how.gate,
        first: STDOUT,
        phase: Phase::Starting,
    };
    stream::unfold(follower, |mut follower| async move {
        let item = follower.next().await?;
        if item.is_err() {
            follower.phase = Phase::Over;
        }
        Some((item, follower))
    })
}

impl Follower {
    async fn next(&mut self) -> Option<Item> {
        match self.phase {
            Phase::Over => return None,
            Phase::Starting => {
                self.phase = Phase::Running;
                let start = StartEvent {
                    pid: self.proc.pid.unsigned_abs(),
                    ..Default::default()
                };
                return Some(Ok(event(start)));
            }
            Phase::Running => {}
        }
        loop {
            let state = *self.state.borrow_and_update();
            if let Some(item) = self.output(&state) {
                return Some(item);
            }
            if state.ended.is_some() {
                self.phase = Phase::Over;
                return Some(end(&state));
            }
            tokio::select! {
                // The sender lives as long as the process this follower holds.
                _ = self.state.changed() => {}
                () = &mut self.limit => return Some(Err(ConnectError::deadline_exceeded("following timed out"))),
                () = self.gate.closed() => return Some(Err(ConnectError::unavailable(AWAY))),
                () = tokio::time::sleep(self.keepalive) => return Some(Ok(event(KeepAlive::default()))),
            }
        }
    }

    /// The next piece of output there is.
    fn output(&mut self, state: &State) -> Option<Item> {
        let order = [self.first, 1 - self.first];
        let stream = order
            .into_iter()
            .find(|&stream| self.offsets[stream] < state.totals[stream])?;
        let max = if self.proc.has_terminal() {
            TERMINAL_CHUNK
        } else {
            CHUNK
        };
        let piece = match self.proc.read(stream, self.offsets[stream], max) {
            Ok(piece) => piece,
            Err(error) => return Some(Err(error.into())),
        };
        if piece.start > self.offsets[stream] {
            let missed = piece.start - self.offsets[stream];
            return Some(Err(ConnectError::resource_exhausted(format!(
                "this client fell so far behind that {missed} bytes of output are no longer kept; the process runs on"
            ))));
        }
        self.offsets[stream] = piece.start + piece.data.len() as u64;
        self.first = 1 - stream;
        let output = match (self.proc.has_terminal(), stream) {
            (true, _) => Output::Pty(piece.data),
            (false, STDOUT) => Output::Stdout(piece.data),
            (false, _) => Output::Stderr(piece.data),
        };
        Some(Ok(event(DataEvent {
            output: Some(output),
            ..Default::default()
        })))
    }
}

fn event(event: impl Into<Event>) -> ProcessEvent {
    ProcessEvent {
        event: Some(event.into()),
        ..Default::default()
    }
}

/// The last event, in the words clients know.
fn end(state: &State) -> Item {
    if state.timed_out {
        return Err(ConnectError::deadline_exceeded(
            "the process ran into its deadline and was killed",
        ));
    }
    let end = match state.exit {
        Some(Exit::Code(code)) => {
            let status = format!("exit status {code}");
            EndEvent {
                exit_code: code,
                exited: true,
                error: (code != 0).then(|| status.clone()),
                status,
                ..Default::default()
            }
        }
        Some(Exit::Signal(signal)) => {
            let status = format!("signal: {}", signal_words(signal));
            EndEvent {
                exit_code: -1,
                exited: false,
                error: Some(status.clone()),
                status,
                ..Default::default()
            }
        }
        None => EndEvent {
            exit_code: -1,
            status: "unknown".to_owned(),
            ..Default::default()
        },
    };
    Ok(event(end))
}

/// A signal as E2B's daemon words it.
fn signal_words(signal: i32) -> String {
    match signal {
        libc::SIGHUP => "hangup".to_owned(),
        libc::SIGINT => "interrupt".to_owned(),
        libc::SIGQUIT => "quit".to_owned(),
        libc::SIGILL => "illegal instruction".to_owned(),
        libc::SIGABRT => "aborted".to_owned(),
        libc::SIGBUS => "bus error".to_owned(),
        libc::SIGFPE => "floating point exception".to_owned(),
        libc::SIGKILL => "killed".to_owned(),
        libc::SIGSEGV => "segmentation fault".to_owned(),
        libc::SIGPIPE => "broken pipe".to_owned(),
        libc::SIGALRM => "alarm clock".to_owned(),
        libc::SIGTERM => "terminated".to_owned(),
        other => format!("signal {other}"),
    }
}
