//! `icebox shell`: an interactive terminal in a box, over the server's WebSocket. Owns what is said and done as the two ends
//! of it talk; the local terminal is in `terminal`, the connection in `socket`, and the way out in `escape`.

mod escape;
mod socket;
mod terminal;

use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;

use clap::Args;
use futures_util::{SinkExt as _, StreamExt as _};
use icebox_wire::rest::Status;
use serde::Deserialize;
use serde_json::json;
use tokio_tungstenite::tungstenite::{self, Message};

use self::escape::{Escape, Typed};
use self::socket::Socket;
use self::terminal::{News, Raw};
use super::exec::OWN_ERROR;
use crate::error::CliError;
use crate::printer::note;
use crate::select::box_id;
use crate::settings::Remote;

/// The most that is sent at once, in bytes: the server takes no more.
const PIECE: usize = 32 << 10;

/// Open a terminal in a box: a shell, for a person
///
/// A frozen box wakes first. Opening it and typing are use of the box, looking is not: left alone, the box freezes, which is
/// said, and the next key wakes it and the shell goes on. It is bash, in /work, as the box's user.
///
/// To leave, end the shell (`exit`, or Ctrl-D), or type `~.` at the beginning of a line, also when nothing answers any more.
/// `~~` types one `~` there. Leaving ends the shell and what runs in its foreground; what should run on belongs in
/// `icebox exec --background`.
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
    let mut socket = socket::open(&server, id, size).await?;
    let mut news = terminal::watch()?;
    let raw = Raw::enter()?;
    let mut escape = Escape::default();
    let lost = |error: tungstenite::Error| CliError::Lost {
        url: server.base.clone(),
        // As a text, so that its causes are not told twice.
        source: std::io::Error::other(error.to_string()),
    };
    loop {
        tokio::select! {
            message = socket.next() => {
                let Some(message) = message else {
                    return Err(lost(tungstenite::Error::ConnectionClosed));
                };
                if let Some(code) = hear(message.map_err(lost)?)? {
                    drop(raw);
                    return Ok(code);
                }
            }
            heard = news.recv() => match heard {
                Some(News::Typed(bytes)) => {
                    let Typed { bytes, leaves } = escape.take(&bytes);
                    send(&mut socket, &bytes).await.map_err(lost)?;
                    if leaves {
                        drop(raw);
                        note("icebox: left, and the shell is ended");
                        return Ok(ExitCode::SUCCESS);
                    }
                }
                Some(News::Resized) => {
                    let (cols, rows) = terminal::size()?;
                    let text = json!({"cols": cols, "rows": rows}).to_string();
                    socket.send(Message::text(text)).await.map_err(lost)?;
                }
                // A terminal that is gone is left like one that hangs up.
                Some(News::Signal(number)) => return Ok(ExitCode::from(128 + number)),
                None => return Ok(ExitCode::from(OWN_ERROR)),
            },
        }
    }
}

async fn send(socket: &mut Socket, bytes: &[u8]) -> Result<(), tungstenite::Error> {
    for piece in bytes.chunks(PIECE) {
        socket.send(Message::binary(piece.to_vec())).await?;
    }
    Ok(())
}

/// Shows what the server sends. With the shell's end comes the exit code.
fn hear(message: Message) -> Result<Option<ExitCode>, CliError> {
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
        Ok(Said::Asleep { asleep: true }) => {
            terminal::say("the box fell asleep; the next key wakes it");
        }
        Ok(Said::Asleep { asleep: false }) => terminal::say("the box is awake again"),
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
        let hear = |text: &str| hear(Message::text(text)).unwrap();
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
