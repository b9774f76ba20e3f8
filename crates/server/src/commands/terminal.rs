//! A terminal in a box for a person: a shell on a pty of its own. Opening one and typing in it are use; looking at it is
//! not, so that a terminal left open lets its box freeze, shows so, and goes on when the box does (rules 3.3, 4.14). What it
//! shows is read from what the box's daemon keeps, by an offset: nothing that is kept is missed, whatever breaks off in between.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use connectrpc::client::CallOptions;
use icebox_lifecycle::{BoxId, State};
use icebox_wire::boxd::{ConnectError, ErrorCode, OutputRequest, OutputResponse, Stream};
use icebox_wire::process::process_event;
use icebox_wire::process::process_input::Input;
use icebox_wire::process::process_selector::Selector;
use icebox_wire::process::pty::Size;
use icebox_wire::process::{
    PTY, ProcessConfig, ProcessInput, ProcessSelector, SendInputRequest, SendSignalRequest, Signal,
    StartRequest, UpdateRequest,
};
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio_util::task::AbortOnDropHandle;

use super::exec::{QUICK, said};
use super::trouble::{Kind, Trouble};
use super::{Caller, Commands, wait};
use crate::engine::{CallUnderWay, View};

/// Terminals at a time, of all accounts together.
pub(super) const MOST: usize = 128;
/// Pieces of output that wait for a slow reader; the rest waits in the box.
const PIECES: usize = 16;
/// The most output a piece is.
const PIECE_BYTES: u32 = 64 * 1024;
/// How long the daemon waits for more of it before it says that there is none.
const MORE_WITHIN: Duration = Duration::from_secs(30);
/// How long to leave a daemon alone that broke off while its box runs.
const PAUSE: Duration = Duration::from_millis(500);
/// How often such a daemon is asked again in a row.
const TRIES: u32 = 20;

/// How large a terminal is, in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TerminalSize {
    /// Across.
    pub cols: u16,
    /// Down.
    pub rows: u16,
}

/// What comes from a terminal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Heard {
    /// The shell or what runs in it wrote this.
    Output(Bytes),
    /// The box does not run any more; the shell stands still with it.
    Asleep,
    /// It runs again, and the shell goes on.
    Awake,
    /// The shell ended.
    Ended {
        /// Its exit code; absent when a signal ended it.
        exit_code: Option<i32>,
    },
}

/// An open terminal. Dropped, it leaves the shell alone; [`Terminal::close`] ends it.
pub struct Terminal {
    /// Typing into it.
    pub keys: Keyboard,
    /// What it shows.
    pub screen: Screen,
}

/// The input of a terminal.
#[derive(Clone)]
pub struct Keyboard {
    commands: Commands,
    caller: Caller,
    shell: Shell,
}

/// The output of a terminal.
pub struct Screen {
    heard: mpsc::Receiver<Heard>,
    _pump: AbortOnDropHandle<()>,
    _place: OwnedSemaphorePermit,
}

/// Which process it is.
#[derive(Clone)]
struct Shell {
    id: BoxId,
    pid: u32,
    exec_id: Arc<str>,
    /// What the box's daemon asks for, if it asks for anything.
    token: Option<Arc<str>>,
}

impl Shell {
    fn options(&self) -> CallOptions {
        options(self.token.as_deref())
    }

    fn selector(&self) -> ProcessSelector {
        selector(self.pid)
    }
}

fn selector(pid: u32) -> ProcessSelector {
    ProcessSelector {
        selector: Some(Selector::Pid(pid)),
        ..ProcessSelector::default()
    }
}

/// What is shown in the place of output that the daemon does not keep any more.
fn gap(bytes: u64) -> Bytes {
    format!("\r\n[{bytes} bytes of output are not kept any more]\r\n").into()
}

fn options(token: Option<&str>) -> CallOptions {
    let options = CallOptions::default();
    match token {
        Some(token) => options.with_header("x-access-token", token),
        None => options,
    }
}

fn pty(size: TerminalSize) -> PTY {
    PTY {
        size: Size {
            cols: size.cols.into(),
            rows: size.rows.into(),
            ..Size::default()
        }
        .into(),
        ..PTY::default()
    }
}

impl Commands {
    /// Opens a terminal with a new shell. It is a call that acts: it wakes the box and is use of it.
    pub async fn open_terminal(
        &self,
        caller: &Caller,
        id: &str,
        size: TerminalSize,
    ) -> Result<Terminal, Trouble> {
        let id = self.find(caller, id)?.id();
        let place = Arc::clone(&self.0.terminals);
        let place = place.try_acquire_owned().map_err(|_| {
            let text = format!("{MOST} terminals are open; close one of yours");
            Trouble::new(Kind::Busy, text)
        })?;
        let (call, answer) = self.acting(caller, id, true).await?;
        let e2b = answer.view.record.e2b.as_deref();
        let token = e2b.and_then(|e2b| e2b.access_token.as_deref());
        let request = StartRequest {
            process: ProcessConfig {
                cmd: "/bin/bash".to_owned(),
                args: vec!["-i".to_owned(), "-l".to_owned()],
                envs: [("TERM", "xterm-256color"), ("LANG", "C.UTF-8")]
                    .map(|(name, value)| (name.to_owned(), value.to_owned()))
                    .into_iter()
                    .collect(),
                cwd: Some("/work".to_owned()),
                ..ProcessConfig::default()
            }
            .into(),
            pty: pty(size).into(),
            ..StartRequest::default()
        };
        let begun = self.begin_shell(&call, id, request, token).await;
        call.end().await;
        let shell = begun?;
        let (say, heard) = mpsc::channel(PIECES);
        let keys = Keyboard {
            commands: self.clone(),
            caller: caller.clone(),
            shell: shell.clone(),
        };
        let commands = self.clone();
        let pump = tokio::spawn(async move { commands.follow_shell(&shell, &say).await });
        Ok(Terminal {
            keys,
            screen: Screen {
                heard,
                _pump: AbortOnDropHandle::new(pump),
                _place: place,
            },
        })
    }

    /// Starts it, and finds out what the daemon calls it.
    async fn begin_shell(
        &self,
        call: &CallUnderWay,
        id: BoxId,
        request: StartRequest,
        token: Option<&str>,
    ) -> Result<Shell, Trouble> {
        // Without a limit in the call itself: of a start that is the shell's own deadline.
        let pid = tokio::time::timeout(QUICK, self.start_shell(id, request, token)).await;
        let pid = pid.map_err(|_| Trouble::internal(&"the daemon began no shell in time"))??;
        let token = token.map(Into::into);
        match self.named(call, id, pid).await {
            Ok(exec_id) => Ok(Shell {
                id,
                pid,
                exec_id,
                token,
            }),
            Err(trouble) => {
                // Nobody would ever end it.
                self.kill_shell(id, pid, token.as_deref()).await;
                Err(trouble)
            }
        }
    }

    async fn start_shell(
        &self,
        id: BoxId,
        request: StartRequest,
        token: Option<&str>,
    ) -> Result<u32, Trouble> {
        let processes = self.0.boxds.processes(id);
        let started = processes.start_with_options(request, options(token)).await;
        let mut stream = started.map_err(|error| said(&error))?;
        let first = stream.message().await.map_err(|error| said(&error))?;
        let first = first.map(|message| message.to_owned_message());
        match first.as_ref().and_then(|first| first.event.event.as_ref()) {
            Some(process_event::Event::Start(begun)) => Ok(begun.pid),
            Some(_) | None => Err(Trouble::internal(&"the daemon began no shell")),
        }
    }

    /// What the daemon calls a process.
    async fn named(&self, call: &CallUnderWay, id: BoxId, pid: u32) -> Result<Arc<str>, Trouble> {
        let procs = self.ask_daemon(call, id, false, || self.0.boxds.procs(id));
        // The newest comes first.
        let found = procs.await?.into_iter().find(|proc| proc.pid == pid);
        let found = found.ok_or_else(|| Trouble::internal(&"the daemon knows no such shell"))?;
        Ok(found.exec_id.into())
    }

    async fn kill_shell(&self, id: BoxId, pid: u32, token: Option<&str>) {
        let request = SendSignalRequest {
            process: selector(pid).into(),
            signal: Signal::SIGNAL_SIGKILL.into(),
            ..SendSignalRequest::default()
        };
        let client = self.0.boxds.processes(id);
        let options = options(token).with_timeout(QUICK);
        // A shell that has ended needs no end.
        let _ = client.send_signal_with_options(request, options).await;
    }

    /// Follows a shell to its end, through everything that breaks off meanwhile.
    async fn follow_shell(&self, shell: &Shell, say: &mpsc::Sender<Heard>) {
        let (mut offset, mut tries) = (0, 0);
        while tries < TRIES {
            let more = tokio::select! {
                more = self.more_of(shell, offset) => more,
                () = say.closed() => return,
            };
            match more {
                Ok(more) => {
                    let missing = more.data_offset.saturating_sub(offset);
                    (offset, tries) = (more.next_offset, 0);
                    let over = more.eof;
                    let hole = (missing > 0).then(|| gap(missing));
                    let piece = (!more.data.is_empty()).then(|| more.data.into());
                    for bytes in hole.into_iter().chain(piece) {
                        if say.send(Heard::Output(bytes)).await.is_err() {
                            return;
                        }
                    }
                    if over {
                        let exit_code = self.exit_code(shell).await;
                        let _ = say.send(Heard::Ended { exit_code }).await;
                        return;
                    }
                }
                Err(error) if error.code == ErrorCode::NotFound => {
                    let _ = say.send(Heard::Ended { exit_code: None }).await;
                    return;
                }
                Err(_) => match self.until_running(shell.id, say).await {
                    None => return,
                    Some(true) => tries = 0,
                    Some(false) => {
                        tries += 1;
                        tokio::time::sleep(PAUSE).await;
                    }
                },
            }
        }
    }

    async fn more_of(&self, shell: &Shell, offset: u64) -> Result<OutputResponse, ConnectError> {
        let request = OutputRequest {
            exec_id: shell.exec_id.to_string(),
            stream: Stream::STREAM_STDOUT.into(),
            offset,
            max_bytes: PIECE_BYTES,
            wait_ms: u64::try_from(MORE_WITHIN.as_millis()).unwrap_or(u64::MAX),
            ..OutputRequest::default()
        };
        self.0.boxds.output(shell.id, request).await
    }

    async fn exit_code(&self, shell: &Shell) -> Option<i32> {
        let ended = self.0.boxds.wait(shell.id, &shell.exec_id, QUICK).await;
        ended.ok().flatten()?.exit_code
    }

    /// Waits until the box runs: whether it did not before. `None` when it never will, or nobody listens any more.
    async fn until_running(&self, id: BoxId, say: &mpsc::Sender<Heard>) -> Option<bool> {
        let running = |view: &View| match &view.sandbox.state {
            State::Ready => Some(true),
            State::Starting { .. }
            | State::Freezing { .. }
            | State::Frozen(_)
            | State::Thawing { .. }
            | State::Releasing { .. } => Some(false),
            State::Stopping { .. } | State::Terminated { .. } | State::Interrupted { .. } => None,
        };
        let views = self.0.engine.views();
        let now = views.get(id).and_then(|view| running(&view));
        match now {
            Some(true) => return Some(false),
            Some(false) => say.send(Heard::Asleep).await.ok()?,
            None => {
                let _ = say.send(Heard::Ended { exit_code: None }).await;
                return None;
            }
        }
        let woken = views.wait_for(id, |view| match running(view) {
            Some(false) => ControlFlow::Continue(()),
            now => ControlFlow::Break(now),
        });
        let woken = tokio::select! {
            woken = woken => woken.flatten(),
            () = say.closed() => return None,
        };
        let news = if woken.is_some() {
            Heard::Awake
        } else {
            Heard::Ended { exit_code: None }
        };
        say.send(news).await.ok()?;
        woken.map(|_| true)
    }
}

impl Keyboard {
    /// The shell's process id in the box.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.shell.pid
    }

    /// Types. It is use of the box, and wakes it.
    pub async fn typed(&self, bytes: Vec<u8>) -> Result<(), Trouble> {
        let Shell { id, .. } = self.shell;
        let (call, _) = self.commands.acting(&self.caller, id, true).await?;
        let request = SendInputRequest {
            process: self.shell.selector().into(),
            input: ProcessInput {
                input: Some(Input::Pty(bytes)),
                ..ProcessInput::default()
            }
            .into(),
            ..SendInputRequest::default()
        };
        let options = self.shell.options().with_timeout(QUICK);
        let client = self.commands.0.boxds.processes(id);
        let sent = client.send_input_with_options(request, options).await;
        call.end().await;
        sent.map(drop).map_err(|error| said(&error))
    }

    /// Changes how large it is. That is no use, so a box that does not run is left alone.
    pub async fn resize(&self, size: TerminalSize) {
        let Some(client) = self.running() else {
            return;
        };
        let request = UpdateRequest {
            process: self.shell.selector().into(),
            pty: pty(size).into(),
            ..UpdateRequest::default()
        };
        let options = self.shell.options().with_timeout(QUICK);
        // A shell that has ended has no size.
        let _ = client.update_with_options(request, options).await;
    }

    /// Ends the shell, if its box runs; one that sleeps is not woken for it.
    pub async fn close(&self) {
        if self.running().is_none() {
            return;
        }
        let Shell { id, pid, .. } = self.shell;
        let token = self.shell.token.as_deref();
        self.commands.kill_shell(id, pid, token).await;
    }

    fn running(&self) -> Option<crate::boxd::Processes> {
        let Commands(inner) = &self.commands;
        let view = inner.engine.views().get(self.shell.id)?;
        wait::is_ready(&view).then(|| inner.boxds.processes(self.shell.id))
    }
}

impl Screen {
    /// The next that comes; `None` at the end.
    pub async fn hear(&mut self) -> Option<Heard> {
        self.heard.recv().await
    }
}
