//! One process: its state, its input, its kept output, and the task that sees it through to its end.
//!
//! Its output is read without pause and kept, so no client, slow or gone, ever holds the process up. Which processes
//! exist, and reaping them, is `table`'s. Runs on boxd's one thread: an exit is recorded in the same breath as it is
//! reaped, so a process that has no recorded exit may be signalled by its number.

use std::cell::RefCell;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};
use rustix::termios::Winsize;
use tokio::io::AsyncWriteExt as _;
use tokio::io::unix::AsyncFd;
use tokio::net::unix::pipe;
use tokio::sync::{mpsc, watch};

use crate::clock;
use crate::error::Error;
use crate::id::ExecId;
use crate::kept::{Kept, Piece};
use crate::spawn::Ends;

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

/// How many bytes one read takes.
const READ_BYTES: usize = 64 * 1024;

/// How many requests to end may wait.
const STOPS: usize = 4;

thread_local! {
    /// One buffer for all readers: it is only used between two waits.
    static SCRATCH: RefCell<Box<[u8]>> = RefCell::new(vec![0; READ_BYTES].into_boxed_slice());
}

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
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deadline {
    pub(crate) after: Duration,
    /// Between SIGTERM and SIGKILL; zero skips SIGTERM.
    pub(crate) grace: Duration,
}

enum Input {
    Pipe(pipe::Sender),
    Pty(Arc<AsyncFd<OwnedFd>>),
}

enum Source {
    Pipe(pipe::Receiver),
    Pty(Arc<AsyncFd<OwnedFd>>),
}

/// A process boxd started.
pub(crate) struct Proc {
    pub(crate) id: ExecId,
    pub(crate) pid: i32,
    pub(crate) about: About,
    pub(crate) started: Stamp,
    kept: [Mutex<Kept>; 2],
    state: watch::Sender<State>,
    input: tokio::sync::Mutex<Option<Input>>,
    terminal: Option<Arc<AsyncFd<OwnedFd>>>,
    stops: mpsc::Sender<Duration>,
}

/// What a new process needs to be looked after.
pub(crate) struct Care {
    sources: Vec<(usize, Source)>,
    stops: mpsc::Receiver<Duration>,
    deadline: Option<Deadline>,
}

impl Proc {
    /// Takes over boxd's ends of a started process. Give the [`Care`] to [`Proc::look_after`].
    pub(crate) fn new(
        id: ExecId,
        pid: i32,
        ends: Ends,
        about: About,
        kept: [Kept; 2],
        deadline: Option<Deadline>,
    ) -> Result<(Self, Care), Error> {
        let (stops, stops_in) = mpsc::channel(STOPS);
        let mut state = State::default();
        let (input, terminal, sources) = match ends {
            Ends::Pipes {
                stdin,
                stdout,
                stderr,
            } => {
                let stdin = stdin
                    .map(pipe::Sender::from_owned_fd)
                    .transpose()
                    .map_err(Error::Plumbing)?;
                let out = pipe::Receiver::from_owned_fd(stdout).map_err(Error::Plumbing)?;
                let err = pipe::Receiver::from_owned_fd(stderr).map_err(Error::Plumbing)?;
                let sources = vec![(STDOUT, Source::Pipe(out)), (STDERR, Source::Pipe(err))];
                (stdin.map(Input::Pipe), None, sources)
            }
            Ends::Pty(master) => {
                // SAFETY: an `OwnedFd` names one and the same descriptor until it is dropped, and nobody takes this one
                // out of the `AsyncFd`.
                let master = unsafe { AsyncFd::register(master) };
                let master = Arc::new(master.map_err(|error| Error::Plumbing(error.into()))?);
                state.eof[STDERR] = true;
                let sources = vec![(STDOUT, Source::Pty(Arc::clone(&master)))];
                (Some(Input::Pty(Arc::clone(&master))), Some(master), sources)
            }
        };
        let proc = Self {
            id,
            pid,
            about,
            started: Stamp::now(),
            kept: kept.map(Mutex::new),
            state: watch::Sender::new(state),
            input: tokio::sync::Mutex::new(input),
            terminal,
            stops,
        };
        Ok((
            proc,
            Care {
                sources,
                stops: stops_in,
                deadline,
            },
        ))
    }

    /// Reads its output and waits for its end; returns when the result stands. Output that others still hold open
    /// goes on being kept afterwards.
    pub(crate) async fn look_after(self: Arc<Self>, care: Care) {
        for (stream, source) in care.sources {
            tokio::spawn(Arc::clone(&self).pump(stream, source));
        }
        let mut stops = care.stops;
        let grace = tokio::select! {
            () = self.natural_end() => None,
            Some(grace) = stops.recv() => Some(grace),
            grace = deadline(care.deadline) => {
                self.state.send_modify(|state| state.timed_out = true);
                Some(grace)
            }
        };
        if let Some(grace) = grace {
            self.end_group(grace, &mut stops).await;
        }
        self.state
            .send_modify(|state| state.ended = Some(Stamp::now()));
        self.close_input().await;
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
        self.terminal.is_some()
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
        let terminal = self
            .terminal
            .as_ref()
            .ok_or(Error::NotNow("the process has no terminal to resize"))?;
        rustix::termios::tcsetwinsize(terminal.get_ref(), size)
            .map_err(|errno| Error::WriteInput(errno.into()))
    }

    /// Delivers input to its terminal or to its standard input; waits while the process reads nothing.
    pub(crate) async fn write_input(&self, data: &[u8], to_terminal: bool) -> Result<(), Error> {
        let write = async {
            match (self.input.lock().await.as_mut(), to_terminal) {
                (Some(Input::Pipe(pipe)), false) => {
                    pipe.write_all(data).await.map_err(Error::WriteInput)
                }
                (Some(Input::Pty(master)), true) => {
                    write_all(master, data).await.map_err(Error::WriteInput)
                }
                (Some(Input::Pipe(_)), true) => Err(Error::NotNow(
                    "the process has no terminal; send to its stdin",
                )),
                (Some(Input::Pty(_)), false) => {
                    Err(Error::NotNow("the process has a terminal; send to the pty"))
                }
                (None, _) => Err(Error::NotNow(
                    "the process was started without stdin, or its stdin is closed",
                )),
            }
        };
        tokio::select! {
            written = write => written,
            () = self.ended() => Err(Error::NotNow("the process ended before it read its input")),
        }
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
        self.input.lock().await.take();
    }

    async fn pump(self: Arc<Self>, stream: usize, mut source: Source) {
        loop {
            match source.read(|data| self.kept(stream).append(data)).await {
                Ok(0) | Err(_) => break,
                Ok(read) => self
                    .state
                    .send_modify(|state| state.totals[stream] += read as u64),
            }
            tokio::task::yield_now().await;
        }
        self.kept(stream).close();
        self.state.send_modify(|state| state.eof[stream] = true);
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

    /// SIGTERM, then SIGKILL to the group; a member that left it by `setsid` survives (rule 12.1).
    async fn end_group(&self, grace: Duration, stops: &mut mpsc::Receiver<Duration>) {
        if !grace.is_zero() {
            self.signal_group(Signal::TERM);
            tokio::select! {
                () = self.group_gone() => return,
                () = clock::awake(grace) => {}
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

impl Source {
    /// Waits for something to read and hands it to `take`; returns how much it was, zero at the end.
    async fn read(&mut self, mut take: impl FnMut(&[u8])) -> io::Result<usize> {
        loop {
            let read = match self {
                Self::Pipe(pipe) => {
                    pipe.readable().await?;
                    SCRATCH.with_borrow_mut(|buffer| {
                        pipe.try_read(buffer).inspect(|&len| take(&buffer[..len]))
                    })
                }
                Self::Pty(master) => {
                    let mut ready = master.readable().await?;
                    let read = ready.try_io(|master| {
                        SCRATCH.with_borrow_mut(|buffer| {
                            let len = rustix::io::read(master.get_ref(), &mut buffer[..])?;
                            take(&buffer[..len]);
                            Ok(len)
                        })
                    });
                    match read {
                        Ok(read) => read,
                        Err(_not_ready) => continue,
                    }
                }
            };
            match read {
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
                    ) => {}
                read => return read,
            }
        }
    }
}

async fn write_all(master: &AsyncFd<OwnedFd>, mut data: &[u8]) -> io::Result<()> {
    while !data.is_empty() {
        let mut ready = master.writable().await?;
        match ready.try_io(|master| Ok(rustix::io::write(master.get_ref(), data)?)) {
            Ok(Ok(written)) => data = &data[written..],
            Ok(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
            Ok(Err(error)) => return Err(error),
            Err(_not_ready) => {}
        }
    }
    Ok(())
}

/// Waits for the deadline, if there is one, and says how much grace it gives.
async fn deadline(deadline: Option<Deadline>) -> Duration {
    match deadline {
        Some(Deadline { after, grace }) => {
            clock::awake(after).await;
            grace
        }
        None => std::future::pending().await,
    }
}

/// Waits for a request to end without grace.
async fn impatience(stops: &mut mpsc::Receiver<Duration>) {
    while let Some(grace) = stops.recv().await {
        if grace.is_zero() {
            return;
        }
    }
    std::future::pending::<()>().await;
}
