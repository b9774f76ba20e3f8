//! `icebox shell`: an interactive terminal in a box, over the server's WebSocket. Owns what is said and done as the two ends
//! of it talk; the local terminal is in `terminal`, the connection in `socket`, what waits for it in
//! `outbox`, and the way out in `escape`.

mod escape;
mod outbox;
mod socket;
mod terminal;

use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;

use clap::Args;
use futures_util::StreamExt as _;
use icebox_wire::rest::Status;
use serde::Deserialize;
use tokio_tungstenite::tungstenite::{self, Message};

use self::escape::{Escape, Typed};
use self::outbox::Outbox;
use self::terminal::{News, Raw};
use super::exec::OWN_ERROR;
use crate::error::CliError;
use crate::printer::note;
use crate::select::box_id;
use crate::settings::Remote;

/// What is said to who leaves.
const LEFT: &str = "icebox: left, and the shell is ended";
/// The same when the box sleeps, which is not woken to end something in it.
const LEFT_ASLEEP: &str = "icebox: left; the box is asleep, and the shell stays in it";

/// Open a terminal in a box: a shell, for a person
///
/// A frozen box wakes first. Opening it and typing are use of the box, looking is not: left alone, the box freezes, which is
/// said, and the next key wakes it and the shell goes on. It is bash, in /work, as the box's user.
///
/// To leave, end the shell (`exit`, or Ctrl-D), or type `~.` at the beginning of a line, also when nothing answers any more.
/// `~~` types one `~` there. Leaving ends the shell and what runs in its foreground, but for a box that is asleep: it is not
/// woken for that, and both stay in it. What should run on belongs in `icebox exec --background`.
///
/// Exit code: the shell's; 0 when it was left with `~.`; 128 and the signal's number when a signal ended this program; 125 when Icebox could not open the
/// terminal, the connection broke, or somebody else ended the shell or the box.
#[derive(Args)]
#[command(after_help = "\
Examples:
  icebox shell web
  icebox exec web -- ls -la               one command, also without a terminal")]
pub(crate) struct Shell {
    /// Its name, its id, or the beginning of its id
    #[arg(value_name = "BOX")]
    word: String,
    #[command(flatten)]
    pub(super) remote: Remote,
}

/// A text from the server.
#[derive(Deserialize)]
#[serde(untagged)]
enum Said {
    Asleep { asleep: bool },
    Ended { ended: Ended },
    Error { error: String },
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Ended {
    exit_code: Option<i32>,
}

impl Shell {
    pub(crate) fn run(self) -> Result<ExitCode, CliError> {
        if !std::io::stdin().is_terminal() || !std::io::stdout().is_terminal() {
            return Err(CliError::Usage(format!(
                "a shell needs a terminal, and there is none here; run commands with `icebox exec {} -- COMMAND`",
                self.word
            )));
        }
        let client = self.remote.client()?;
        let id = box_id(&client, &self.word)?;
        let (view, _) = client.get_box(&id)?;
        if view.status == Status::Frozen {
            note("icebox: the box is frozen; it wakes");
        }
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(CliError::io("begin to wait for several things at once"))?;
        runtime.block_on(talk(&self.remote, &id))
    }
}

/// Passes on what is typed and what is shown, to the end of either side.
async fn talk(remote: &Remote, id: &str) -> Result<ExitCode, CliError> {
    let server = remote.server()?;
    let size = terminal::size()?;
    let (sink, mut stream) = socket::open(&server, id, size).await?.split();
    let mut outbox = Outbox::new(sink);
    let mut watched = terminal::watch()?;
    let raw = Raw::enter()?;
    let (mut escape, mut asleep) = (Escape::default(), false);
    let lost = |error: tungstenite::Error| CliError::Lost {
        url: server.base.clone(),
        // As a text, so that its causes are not told twice.
        source: std::io::Error::other(error.to_string()),
    };
    // Nothing here waits for the connection to take something: it may never do so.
    loop {
        tokio::select! {
            message = stream.next() => {
                let Some(message) = message else {
                    return Err(lost(tungstenite::Error::ConnectionClosed));
                };
                if let Some(code) = hear(message.map_err(lost)?, &mut asleep)? {
                    drop(raw);
                    return Ok(code);
                }
            }
            () = outbox.hand_over() => {}
            Some(bytes) = watched.typed.recv(), if outbox.has_room() => {
                let Typed { bytes, leaves } = escape.take(&bytes);
                if leaves {
                    drop(raw);
                    note(if asleep { LEFT_ASLEEP } else { LEFT });
                    return Ok(ExitCode::SUCCESS);
                }
                outbox.typed(&bytes);
            }
            heard = watched.news.recv() => match heard {
                Some(News::Resized) => outbox.resized(terminal::size()?),
                // A terminal that is gone is left like one that hangs up.
                Some(News::Signal(number)) => return Ok(ExitCode::from(128 + number)),
                None => return Ok(ExitCode::from(OWN_ERROR)),
            },
        }
    }
}

/// Shows what the server sends. With the shell's end comes the exit code.
fn hear(message: Message, asleep: &mut bool) -> Result<Option<ExitCode>, CliError> {
    let text = match message {
        Message::Binary(bytes) => {
            let mut out = std::io::stdout().lock();
            let shown = out.write_all(&bytes).and_then(|()| out.flush());
            shown.map_err(CliError::io("write to the terminal"))?;
            return Ok(None);
        }
        Message::Text(text) => text,
        Message::Ping(_) | Message::Pong(_) | Message::Close(_) | Message::Frame(_) => {
            return Ok(None);
        }
    };
    match serde_json::from_str(&text) {
        Ok(Said::Asleep { asleep: now }) => {
            *asleep = now;
            terminal::say(if now {
                "the box fell asleep; the next key wakes it"
            } else {
                "the box is awake again"
            });
        }
        Ok(Said::Error { error }) => terminal::say(&format!("that was not typed: {error}")),
        Ok(Said::Ended { ended }) => return Ok(Some(exit_code(&ended))),
        // What this version does not need to know.
        Err(_) => {}
    }
    Ok(None)
}

fn exit_code(ended: &Ended) -> ExitCode {
    match ended.exit_code {
        // A shell, too, keeps the lowest eight bits.
        Some(code) => ExitCode::from((code & 0xff) as u8),
        None => {
            terminal::say("the shell was ended, or its box was");
            ExitCode::from(OWN_ERROR)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shells_end_is_told_apart_from_the_rest() {
        let hear = |text: &str| hear(Message::text(text), &mut false).unwrap();
        let code = |code: u8| Some(ExitCode::from(code));
        for (text, expected) in [
            (r#"{"pid":7}"#, None),
            (r#"{"asleep":true}"#, None),
            (r#"{"error":"no"}"#, None),
            ("nonsense", None),
            (r#"{"ended":{"exitCode":3}}"#, code(3)),
            (r#"{"ended":{"exitCode":null}}"#, code(OWN_ERROR)),
        ] {
            assert_eq!(
                format!("{:?}", hear(text)),
                format!("{expected:?}"),
                "{text}"
            );
        }
    }
}
