//! The demo's own server: this same program, run as `icebox serve` on a free port of the loopback. Owns its process:
//! whoever drops a [`Server`] has ended it.

use std::fs::File;
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal};

use super::folder::{Folder, is_server};
use crate::client::Client;
use crate::error::CliError;
use crate::interrupt::Interrupt;
use crate::settings::{self, KEY_FILE, read_key};
use crate::stopwatch::Stopwatch;
use crate::trust::Trust;

/// How long a server may take until it answers.
const START_LIMIT: Duration = Duration::from_secs(120);
/// How long a server may take to end by itself.
const STOP_LIMIT: Duration = Duration::from_secs(60);
/// How often is looked.
const PAUSE: Duration = Duration::from_millis(20);
/// Lines of its log that are shown when it does not start.
const SHOWN_LINES: usize = 5;

/// A running server.
pub(super) struct Server {
    child: Child,
    /// Where it answers.
    pub(super) url: String,
    /// A client with its admin key.
    pub(super) client: Client,
}

impl Server {
    /// Starts one on the folder and waits until it answers. What it says goes to `log`.
    pub(super) fn start(
        folder: &mut Folder,
        log: &Path,
        interrupt: &Interrupt,
    ) -> Result<Self, CliError> {
        let address = free_address()?;
        let url = format!("http://{address}");
        let output = File::options().create(true).append(true).open(log);
        let output = output.map_err(CliError::io(format!("write {}", log.display())))?;
        let errors = output.try_clone().map_err(CliError::io("share the log"))?;
        // This very program, even when its file was replaced meanwhile.
        let mut command = Command::new("/proc/self/exe");
        command.arg0("icebox");
        command.arg("serve").arg("--data").arg(folder.path());
        command.args(["--listen", &address]);
        command.stdin(Stdio::null()).stdout(output).stderr(errors);
        // Ctrl-C is for the demo, which ends its server in its own time.
        command.process_group(0);
        let child = command.spawn().map_err(CliError::io("start the server"))?;
        let mut server = Self {
            child,
            client: client(&url, Err(String::new())),
            url,
        };
        folder.note_server(server.child.id())?;
        server.wait_until_it_answers(log, interrupt)?;
        let key = read_key(&folder.path().join(KEY_FILE)).map_err(CliError::NoKey)?;
        server.client = client(&server.url, Ok(key));
        Ok(server)
    }

    fn wait_until_it_answers(&mut self, log: &Path, interrupt: &Interrupt) -> Result<(), CliError> {
        let watch = Stopwatch::start();
        while self.client.get("/healthz").is_err() {
            interrupt.check()?;
            let ended = self
                .child
                .try_wait()
                .map_err(CliError::io("look at the server"))?;
            if let Some(status) = ended {
                let last = last_lines(log);
                return Err(CliError::Host(format!(
                    "the server ended at once ({status}): {last}"
                )));
            }
            if watch.elapsed() > START_LIMIT {
                let limit_s = START_LIMIT.as_secs();
                return Err(CliError::Host(format!(
                    "the server did not answer within {limit_s} s"
                )));
            }
            std::thread::sleep(PAUSE);
        }
        Ok(())
    }

    /// Asks it to end and waits until it has.
    pub(super) fn stop(mut self) -> Result<(), CliError> {
        let asked = rustix::process::kill_process(Pid::from_child(&self.child), Signal::TERM);
        asked.map_err(|errno| CliError::io("end the server")(errno.into()))?;
        let watch = Stopwatch::start();
        while watch.elapsed() < STOP_LIMIT {
            if let Some(status) = self
                .child
                .try_wait()
                .map_err(CliError::io("look at the server"))?
            {
                if status.success() {
                    return Ok(());
                }
                return Err(CliError::Host(format!("the server ended badly ({status})")));
            }
            std::thread::sleep(PAUSE);
        }
        let limit_s = STOP_LIMIT.as_secs();
        Err(CliError::Host(format!(
            "the server did not end within {limit_s} s and was killed"
        )))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            // It is ours and was not reaped, so its number is still its own.
            drop(self.child.kill());
            drop(self.child.wait());
        }
    }
}

/// Ends the server that a killed demo left running.
pub(super) fn end_leftover(pid: Pid, folder: &Path) -> Result<(), CliError> {
    let asked = rustix::process::kill_process(pid, Signal::TERM);
    asked.map_err(|errno| CliError::io("end the server of an earlier demo")(errno.into()))?;
    let watch = Stopwatch::start();
    while is_server(pid, folder) {
        if watch.elapsed() > STOP_LIMIT {
            let pid = pid.as_raw_nonzero();
            return Err(CliError::Host(format!(
                "the server of an earlier demo (process {pid}) does not end: end it, then try again"
            )));
        }
        std::thread::sleep(PAUSE);
    }
    Ok(())
}

/// Where the log of a demo in this folder goes: beside it, since the folder is removed in the end.
pub(super) fn log_path(folder: &Path) -> PathBuf {
    folder.with_extension("log")
}

/// An address of the loopback that nobody listens on.
fn client(url: &str, key: Result<String, String>) -> Client {
    Client::new(settings::Server {
        base: url.to_owned(),
        key,
        trust: Trust::default(),
    })
}

fn free_address() -> Result<String, CliError> {
    let free = TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr());
    let free = free.map_err(CliError::io("find a free port"))?;
    Ok(free.to_string())
}

/// The end of a log, in one line.
fn last_lines(log: &Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<_> = text.lines().collect();
    lines[lines.len().saturating_sub(SHOWN_LINES)..].join(" | ")
}
