//! One process: its state, its input, its kept output, and the task that sees it through to its end.
//!
//! Its output is read without pause and kept, so no client, slow or gone, ever holds the process up. Which processes
//! exist, and reaping them, is `table`'s. Runs on boxd's one thread: an exit is recorded in the same breath as it is
//! reaped, so a process that has no recorded exit may be signalled by its number.

mod handover;

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use bytes::{Buf as _, Bytes};
use rustix::process::{Pid, Signal};
use rustix::termios::Winsize;
use tokio::sync::{mpsc, watch};

use crate::clock::{self, Countdown};
use crate::error::Error;
use crate::id::ExecId;
use crate::kept::{Kept, Piece};
use crate::streams::{Input, Source, Streams};

/// Index of standard output, and of everything a terminal shows.
pub(crate) const STDOUT: usize = 0;
/// Index of standard error.
pub(crate) const STDERR: usize = 1;

/// Between SIGTERM and SIGKILL when a deadline comes (rule 12.1).
pub(crate) const GRACE: Duration = Duration::from_secs(2);

/// How long the end of a killed process waits for output that others hold open.
const DRAIN: Duration = Duration::from_millis(200);

/// How often a group that was told to end is looked at.
const LOOK: Duration = Duration::from_millis(20);

/// How much of the input that came along is offered at once.
const FEED_BYTES: usize = 64 * 1024;

/// How many requests to end may wait.
const STOPS: usize = 4;

/// How a program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// On its own, with this code.
    Code(i32),
    /// By this signal.
    Signal(i32),
}

/// When something was over.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stamp {
    pub(crate) unix_ms: i64,
    pub(crate) at: Instant,
}

impl Stamp {
    fn now() -> Self {
        Self {
            unix_ms: clock::unix_ms(),
            at: clock::now(),
        }
    }
}

/// What changes while a process lives.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct State {
    /// Set when the program itself has ended.
    pub(crate) exit: Option<Exit>,
    /// Per stream: nobody holds it open any more.
    pub(crate) eof: [bool; 2],
    /// Per stream: bytes written.
    pub(crate) totals: [u64; 2],
    pub(crate) timed_out: bool,
    /// Set when its result stands: program and output have ended, or waiting for output is given up.
    pub(crate) ended: Option<Stamp>,
}

impl State {
    fn complete(&self) -> bool {
        self.exit.is_some() && self.eof == [true, true]
    }
}

/// What was asked for, for lists.
#[derive(Debug, Clone)]
pub(crate) struct About {
    pub(crate) words: Vec<String>,
    /// The line it was asked for as, or its words.
    pub(crate) cmd: String,
    pub(crate) env: Vec<(String, String)>,
    pub(crate) cwd: Option<String>,
    pub(crate) tag: Option<String>,
    pub(crate) background: bool,
}

/// A command's deadline.
#[derive(Debug)]
pub(crate) struct Deadline {
    left: Countdown,
    /// Between SIGTERM and SIGKILL; zero skips SIGTERM.
    grace: Duration,
}

impl Deadline {
    /// Comes `after` this long awake.
    pub(crate) fn new(after: Duration, grace: Duration) -> Self {
        Self {
            left: Countdown::new(after),
            grace,
        }
    }
}

/// A process boxd started.
pub(crate) struct Proc {
    pub(crate) id: ExecId,
    pub(crate) pid: i32,
    pub(crate) about: About,
    pub(crate) started: Stamp,
    kept: [Mutex<Kept>; 2],
    state: watch::Sender<State>,
    streams: Mutex<Streams>,
    /// Held by whoever writes to it.
    writing: tokio::sync::Mutex<()>,
    /// Input that came along with it and was not taken yet.
    unfed: Mutex<Option<Bytes>>,
    deadline: Option<Deadline>,
    /// Set when it was told to end: what is left of its grace.
    ending: OnceLock<Countdown>,
    stops: mpsc::Sender<Duration>,
}

/// What looking after a process needs: requests to end it.
pub(crate) type Stops = mpsc::Receiver<Duration>;

impl Proc {
    /// Takes over boxd's ends of a started process. Give the [`Stops`] to [`Proc::look_after`].
    pub(crate) fn new(
        id: ExecId,
        pid: i32,
        streams: Streams,
        about: About,
        kept: [Kept; 2],
        deadline: Option<Deadline>,
    ) -> (Self, Stops) {
        let (stops, stops_in) = mpsc::channel(STOPS);
        let mut state = State::default();
        // A terminal shows everything in one stream.
        state.eof[STDERR] = streams.terminal.is_some();
        let proc = Self {
            id,
            pid,
            about,
            started: Stamp::now(),
            kept: kept.map(Mutex::new),
            state: watch::Sender::new(state),
            streams: Mutex::new(streams),
            writing: tokio::sync::Mutex::default(),
            unfed: Mutex::default(),
            deadline,
            ending: OnceLock::new(),
            stops,
        };
        (proc, stops_in)
    }

    /// Reads its output and waits for its end; returns when the result stands. Output that others still hold open
    /// goes on being kept afterwards.
    pub(crate) async fn look_after(self: Arc<Self>, mut stops: Stops) {
        self.read_on();
        // One that was told to end by the boxd before this one is not told again.
        if self.ending.get().is_none() {
            let grace = tokio::select! {
                () = self.natural_end() => None,
                Some(grace) = stops.recv() => Some(grace),
                grace = self.deadline() => {
                    self.state.send_modify(|state| state.timed_out = true);
                    Some(grace)
                }
            };
            if let Some(grace) = grace {
                self.tell_to_end(grace);
            }
        }
        if let Some(grace) = self.ending.get() {
            self.end_group(grace, &mut stops).await;
        }
        self.state
            .send_modify(|state| state.ended = Some(Stamp::now()));
        self.close_input().await;
    }

    /// Reads what it writes, from every stream that is open.
    fn read_on(self: &Arc<Self>) {
        for stream in [STDOUT, STDERR] {
            let source = self.streams().sources[stream].clone();
            if let Some(source) = source {
                tokio::spawn(Arc::clone(self).pump(stream, source));
            }
        }
    }

    /// What it is like now.
    pub(crate) fn state(&self) -> State {
        *self.state.borrow()
    }

    /// Follows its state.
    pub(crate) fn watch(&self) -> watch::Receiver<State> {
        self.state.subscribe()
    }

    /// Waits until `done` says so.
    pub(crate) async fn until(&self, done: impl FnMut(&State) -> bool) {
        // An error would mean that the sender is gone, and `self` holds it.
        drop(self.state.subscribe().wait_for(done).await);
    }

    /// Waits until its result stands.
    pub(crate) async fn ended(&self) {
        self.until(|state| state.ended.is_some()).await;
    }

    /// Whether it runs on a terminal.
    pub(crate) fn has_terminal(&self) -> bool {
        self.streams().terminal.is_some()
    }

    /// Its kept output of one stream.
    pub(crate) fn kept(&self, stream: usize) -> MutexGuard<'_, Kept> {
        self.kept[stream]
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// At most `max` bytes of one stream from `offset`.
    pub(crate) fn read(&self, stream: usize, offset: u64, max: usize) -> Result<Piece, Error> {
        self.kept(stream)
            .read(offset, max)
            .map_err(Error::ReadOutput)
    }

    /// Records how its program ended.
    pub(crate) fn exited(&self, exit: Exit) {
        self.state.send_modify(|state| state.exit = Some(exit));
    }

    /// Asks for its end: SIGTERM to the group, SIGKILL after `grace`. Does nothing when it has ended.
    pub(crate) fn stop(&self, grace: Duration) {
        // A full queue means that it is being ended already.
        let _ = self.stops.try_send(grace);
    }

    /// Signals the process alone.
    pub(crate) fn signal(&self, signal: Signal) -> Result<(), Error> {
        if self.state().exit.is_some() {
            return Err(Error::NoProc(format!("with pid {} running", self.pid)));
        }
        let pid = Pid::from_raw(self.pid).ok_or(Error::NotNow("the process has no number"))?;
        rustix::process::kill_process(pid, signal).map_err(|errno| Error::Signal(errno.into()))
    }

    /// Signals the group. Whether anyone was there is not an error. The group's number cannot have been given to
    /// others while it has members; a group that just emptied is safe for as long as a grace lasts.
    pub(crate) fn signal_group(&self, signal: Signal) {
        if let Some(pid) = Pid::from_raw(self.pid) {
            let _ = rustix::process::kill_process_group(pid, signal);
        }
    }

    /// Sets the size of its terminal.
    pub(crate) fn resize(&self, size: Winsize) -> Result<(), Error> {
        let terminal = self.streams().terminal.clone();
        let terminal = terminal.ok_or(Error::NotNow("the process has no terminal to resize"))?;
        rustix::termios::tcsetwinsize(terminal.get_ref(), size)
            .map_err(|errno| Error::WriteInput(errno.into()))
    }

    /// Delivers input to its terminal or to its standard input; waits while the process reads nothing.
    pub(crate) async fn write_input(&self, data: &[u8], to_terminal: bool) -> Result<(), Error> {
        let write = async {
            let _turn = self.writing.lock().await;
            let input = self.input(to_terminal)?;
            input.write_all(data).await.map_err(Error::WriteInput)
        };
        tokio::select! {
            written = write => written,
            () = self.ended() => Err(Error::NotNow("the process ended before it read its input")),
        }
    }

    fn input(&self, to_terminal: bool) -> Result<Arc<Input>, Error> {
        let input = self.streams().input.clone();
        let words = match (input.as_deref(), to_terminal) {
            (Some(Input::Pipe(_)), true) => "the process has no terminal; send to its stdin",
            (Some(Input::Pty(_)), false) => "the process has a terminal; send to the pty",
            (Some(_), _) | (None, _) => {
                "the process was started without stdin, or its stdin is closed"
            }
        };
        let fits = |input: &Arc<Input>| matches!(**input, Input::Pty(_)) == to_terminal;
        input.filter(fits).ok_or(Error::NotNow(words))
    }

    /// Gives it what came along with it, and then the end of its input. It may end, or close its input, without taking all of
    /// it: that is its own choice.
    pub(crate) fn feed(self: &Arc<Self>, data: Vec<u8>) {
        *self.unfed() = Some(data.into());
        tokio::spawn(Arc::clone(self).go_on_feeding());
    }

    async fn go_on_feeding(self: Arc<Self>) {
        let feeding = async {
            let _turn = self.writing.lock().await;
            let Ok(input) = self.input(false) else {
                return;
            };
            while let Some(piece) = self.next_unfed() {
                // Nothing is awaited between a write and its note: whoever takes over begins behind it.
                match input.write(&piece).await {
                    Ok(written) => {
                        if let Some(unfed) = self.unfed().as_mut() {
                            unfed.advance(written);
                        }
                    }
                    Err(_) => return,
                }
            }
        };
        tokio::select! {
            () = feeding => {}
            () = self.ended() => {}
        }
        self.unfed().take();
        self.close_input().await;
    }

    fn next_unfed(&self) -> Option<Bytes> {
        let unfed = self.unfed();
        let left = unfed.as_ref().filter(|left| !left.is_empty())?;
        Some(left.slice(..left.len().min(FEED_BYTES)))
    }

    /// Ends its standard input.
    pub(crate) async fn close_stdin(&self) -> Result<(), Error> {
        if self.has_terminal() {
            return Err(Error::NotNow(
                "a terminal's input cannot be closed; send ^D instead",
            ));
        }
        self.close_input().await;
        Ok(())
    }

    async fn close_input(&self) {
        let _turn = self.writing.lock().await;
        self.streams().input.take();
    }

    async fn pump(self: Arc<Self>, stream: usize, source: Arc<Source>) {
        loop {
            match source.read(|data| self.kept(stream).append(data)).await {
                Ok(0) | Err(_) => break,
                Ok(read) => self
                    .state
                    .send_modify(|state| state.totals[stream] += read as u64),
            }
            tokio::task::yield_now().await;
        }
        self.streams().sources[stream] = None;
        self.kept(stream).close();
        self.state.send_modify(|state| state.eof[stream] = true);
    }

    fn streams(&self) -> MutexGuard<'_, Streams> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn unfed(&self) -> MutexGuard<'_, Option<Bytes>> {
        self.unfed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the end of program and output; when a signal ended the program, output gets a short time only.
    async fn natural_end(&self) {
        self.until(|state| state.exit.is_some()).await;
        let complete = self.until(State::complete);
        match self.state().exit {
            Some(Exit::Signal(_)) => drop(tokio::time::timeout(DRAIN, complete).await),
            Some(Exit::Code(_)) | None => complete.await,
        }
    }

    /// Waits for the deadline, if there is one, and says how much grace it gives.
    async fn deadline(&self) -> Duration {
        match &self.deadline {
            Some(deadline) => {
                deadline.left.run().await;
                deadline.grace
            }
            None => std::future::pending().await,
        }
    }

    fn tell_to_end(&self, grace: Duration) {
        // Told once: nobody else sets it.
        drop(self.ending.set(Countdown::new(grace)));
        if !grace.is_zero() {
            self.signal_group(Signal::TERM);
        }
    }

    /// Sees to the end of a group that was told to: SIGKILL after the grace. A member that left it by `setsid` survives
    /// (rule 12.1).
    async fn end_group(&self, grace: &Countdown, stops: &mut Stops) {
        if !grace.left().is_zero() {
            tokio::select! {
                () = self.group_gone() => return,
                () = grace.run() => {}
                () = impatience(stops) => {}
            }
        }
        self.signal_group(Signal::KILL);
        self.until(|state| state.exit.is_some()).await;
        drop(tokio::time::timeout(DRAIN, self.until(State::complete)).await);
    }

    /// Waits until program and output have ended, or nobody is left in the group to end.
    async fn group_gone(&self) {
        let empty = async {
            self.until(|state| state.exit.is_some()).await;
            while Pid::from_raw(self.pid)
                .is_some_and(|pid| rustix::process::test_kill_process_group(pid).is_ok())
            {
                tokio::time::sleep(LOOK).await;
            }
            drop(tokio::time::timeout(DRAIN, self.until(State::complete)).await);
        };
        tokio::select! {
            () = self.until(State::complete) => {}
            () = empty => {}
        }
    }
}

/// Waits for a request to end without grace.
async fn impatience(stops: &mut Stops) {
    while let Some(grace) = stops.recv().await {
        if grace.is_zero() {
            return;
        }
    }
    std::future::pending::<()>().await;
}
