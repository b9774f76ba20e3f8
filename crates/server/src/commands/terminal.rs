//! A terminal in a box for a person: a shell on a pty of its own. Opening one and typing in it are use; looking at it is
//! not, so that a terminal left open lets its box freeze, shows so, and goes on when the box does (rules 3.3, 4.14).

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use connectrpc::client::CallOptions;
use icebox_lifecycle::{BoxId, State};
use icebox_wire::process::process_event::data_event::Output;
use icebox_wire::process::process_event::{self, DataEvent, EndEvent};
use icebox_wire::process::process_input::Input;
use icebox_wire::process::process_selector::Selector;
use icebox_wire::process::pty::Size;
use icebox_wire::process::{
    ConnectRequest, PTY, ProcessConfig, ProcessEvent, ProcessInput, ProcessSelector,
    SendInputRequest, SendSignalRequest, Signal, StartRequest, UpdateRequest,
};
use tokio::sync::{OwnedSemaphorePermit, mpsc, watch};
use tokio_util::task::AbortOnDropHandle;

use super::exec::{QUICK, said};
use super::trouble::{Kind, Trouble};
use super::{Caller, Commands, wait};
use crate::engine::View;

/// Terminals at a time, of all accounts together.
pub(super) const MOST: usize = 128;
/// Pieces of output that wait for a slow reader before the shell does.
const PIECES: usize = 16;
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
    /// What the box's daemon asks for, if it asks for anything.
    token: Option<Arc<str>>,
    /// Whether its output is followed: what it says before that is shown to nobody.
    followed: watch::Sender<bool>,
}

impl Shell {
    fn options(&self) -> CallOptions {
        options(self.token.as_deref())
    }

    fn selector(&self) -> ProcessSelector {
        ProcessSelector {
            selector: Some(Selector::Pid(self.pid)),
            ..ProcessSelector::default()
        }
    }
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
        let started = self.0.boxds.processes(id);
        let started = started.start_with_options(request, options(token)).await;
        let begun = async {
            let mut stream = started.map_err(|error| said(&error))?;
            let first = stream.message().await.map_err(|error| said(&error))?;
            let first = first.map(|message| message.to_owned_message());
            let begun = first.and_then(|first| event(&first.event).cloned());
            let Some(process_event::Event::Start(begun)) = begun else {
                return Err(Trouble::internal(&"the daemon began no shell"));
            };
            Ok((stream, begun.pid))
        }
        .await;
        call.end().await;
        let (mut stream, pid) = begun?;
        let shell = Shell {
            id,
            pid,
            token: token.map(Into::into),
            followed: watch::Sender::new(true),
        };
        let (say, heard) = mpsc::channel(PIECES);
        let keys = Keyboard {
            commands: self.clone(),
            caller: caller.clone(),
            shell: shell.clone(),
        };
        let commands = self.clone();
        let pump = tokio::spawn(async move {
            while let Ok(Some(message)) = stream.message().await {
                let message = message.to_owned_message();
                if !tell(event(&message.event), &say).await {
                    return;
                }
            }
            commands.follow_shell(&shell, &say).await;
        });
        Ok(Terminal {
            keys,
            screen: Screen {
                heard,
                _pump: AbortOnDropHandle::new(pump),
                _place: place,
            },
        })
    }

    /// Follows a shell that broke off: until its box runs again, and then on, to its end.
    async fn follow_shell(&self, shell: &Shell, say: &mpsc::Sender<Heard>) {
        let mut tries = 0;
        while tries < TRIES {
            tries += 1;
            shell.followed.send_replace(false);
            let Some(slept) = self.until_running(shell.id, say).await else {
                return;
            };
            if slept {
                tries = 0;
            }
            let request = ConnectRequest {
                process: shell.selector().into(),
                ..ConnectRequest::default()
            };
            let client = self.0.boxds.processes(shell.id);
            match client.connect_with_options(request, shell.options()).await {
                Ok(mut stream) => {
                    while let Ok(Some(message)) = stream.message().await {
                        tries = 0;
                        // The first one says that it is connected.
                        shell.followed.send_replace(true);
                        let message = message.to_owned_message();
                        if !tell(event(&message.event), say).await {
                            return;
                        }
                    }
                }
                Err(error) if said(&error).kind == Kind::NotFound => {
                    let _ = say.send(Heard::Ended { exit_code: None }).await;
                    return;
                }
                Err(_) => {}
            }
            tokio::time::sleep(PAUSE).await;
        }
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

fn event(event: &impl std::ops::Deref<Target = ProcessEvent>) -> Option<&process_event::Event> {
    event.event.as_ref()
}

/// Passes an event on; `false` when it was the last, or nobody listens.
async fn tell(event: Option<&process_event::Event>, say: &mpsc::Sender<Heard>) -> bool {
    let heard = match event {
        Some(process_event::Event::Data(data)) => match output(data) {
            Some(bytes) => Heard::Output(bytes),
            None => return true,
        },
        Some(process_event::Event::End(end)) => {
            let exit_code = exit_code(end);
            let _ = say.send(Heard::Ended { exit_code }).await;
            return false;
        }
        Some(process_event::Event::Start(_) | process_event::Event::Keepalive(_)) | None => {
            return true;
        }
    };
    say.send(heard).await.is_ok()
}

fn output(data: &DataEvent) -> Option<Bytes> {
    match data.output.as_ref()? {
        Output::Pty(bytes) | Output::Stdout(bytes) | Output::Stderr(bytes) => {
            Some(bytes.clone().into())
        }
    }
}

fn exit_code(end: &EndEvent) -> Option<i32> {
    end.exited.then_some(end.exit_code)
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
        let mut followed = self.shell.followed.subscribe();
        // Where nobody comes to follow it, it is typed all the same.
        let _ = tokio::time::timeout(QUICK, followed.wait_for(|followed| *followed)).await;
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
        let Some(client) = self.running() else {
            return;
        };
        let request = SendSignalRequest {
            process: self.shell.selector().into(),
            signal: Signal::SIGNAL_SIGKILL.into(),
            ..SendSignalRequest::default()
        };
        let options = self.shell.options().with_timeout(QUICK);
        // A shell that has ended needs no end.
        let _ = client.send_signal_with_options(request, options).await;
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
