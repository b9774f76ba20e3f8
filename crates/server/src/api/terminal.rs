//! A terminal over a WebSocket. From the client, bytes are typed and `{"cols", "rows"}` resizes; to it, bytes are what the
//! terminal shows, and a text says `{"pid"}` first, `{"asleep": true|false}` as the box freezes and thaws, `{"error"}` of what
//! was typed in vain, and `{"ended": {"exitCode"}}` last. Translates only.

use std::ops::ControlFlow;

use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::extract::{Path, State};
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt as _, StreamExt as _};
use serde::Deserialize;
use serde_json::json;
use tokio::sync::{mpsc, watch};

use super::input::Params;
use super::operations::{Answer, Answers, Like, Param, Query};
use super::who::SameOrigin;
use super::{App, error};
use crate::commands::check::unfit;
use crate::commands::{Caller, Heard, Keyboard, Kind, Screen, Terminal, TerminalSize, Trouble};

/// The most that is typed at once, in bytes.
const TYPED: usize = 64 * 1024;
const CELLS_MAX: u64 = 1_000;

/// What a terminal is asked.
pub(super) struct Size;

impl Query for Size {
    const PARAMS: &'static [Param] = &[
        Param::number("cols", 1, CELLS_MAX, "How wide it is; 80 when absent."),
        Param::number("rows", 1, CELLS_MAX, "How high it is; 24 when absent."),
    ];
}

/// What goes on over a WebSocket.
pub(super) struct Socket;

impl Answers for Socket {
    fn forms() -> Vec<Answer> {
        vec![Answer::nothing(error::SWITCHING).about("The WebSocket is open.")]
    }
}

pub(super) async fn open(
    State(app): State<App>,
    // A browser sends its cookie along with a WebSocket that any site opens.
    _: SameOrigin,
    caller: Caller,
    Path(id): Path<String>,
    params: Params<Size>,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Like<Socket>, Trouble> {
    let cells = |name, default| {
        let cells = params.number(name)?.unwrap_or(default);
        u16::try_from(cells).map_err(|_| unfit(name))
    };
    let size = TerminalSize {
        cols: cells("cols", 80)?,
        rows: cells("rows", 24)?,
    };
    let upgrade = upgrade.map_err(|_| {
        let text = "a terminal is a WebSocket: send `Connection: Upgrade` and what belongs to it";
        Trouble::new(Kind::BadRequest, text)
    })?;
    let terminal = app.commands.open_terminal(&caller, &id, size).await?;
    let ending = app.commands.ending();
    let upgrade = upgrade.max_message_size(TYPED).max_frame_size(TYPED);
    let upgraded = upgrade.on_upgrade(move |socket| serve(socket, terminal, ending));
    Ok(Like::new(upgraded))
}

async fn serve(socket: WebSocket, terminal: Terminal, mut ending: watch::Receiver<bool>) {
    let Terminal { keys, screen } = terminal;
    let (sink, stream) = socket.split();
    let (complain, complaints) = mpsc::channel(4);
    let closer = keys.clone();
    tokio::select! {
        () = show(sink, screen, keys.pid(), complaints) => {}
        () = listen(stream, keys, complain) => {}
        _ = ending.wait_for(|ending| *ending) => {}
    }
    closer.close().await;
}

/// Sends what the terminal shows, to its end.
async fn show(
    mut sink: SplitSink<WebSocket, Message>,
    mut screen: Screen,
    pid: u32,
    mut complaints: mpsc::Receiver<Trouble>,
) {
    let text = |value: serde_json::Value| Message::text(value.to_string());
    let mut next = text(json!({ "pid": pid }));
    loop {
        if sink.send(next).await.is_err() {
            return;
        }
        next = tokio::select! {
            heard = screen.hear() => match heard {
                Some(Heard::Output(bytes)) => Message::Binary(bytes),
                Some(Heard::Asleep) => text(json!({ "asleep": true })),
                Some(Heard::Awake) => text(json!({ "asleep": false })),
                Some(Heard::Ended { exit_code }) => {
                    let ended = json!({ "ended": { "exitCode": exit_code } });
                    // The other end may be gone already.
                    let _ = sink.send(text(ended)).await;
                    let _ = sink.close().await;
                    return;
                }
                None => return,
            },
            Some(trouble) = complaints.recv() => text(json!({ "error": trouble.text })),
        };
    }
}

/// Does what the client says, in order, until it goes.
async fn listen(
    mut stream: SplitStream<WebSocket>,
    keys: Keyboard,
    complain: mpsc::Sender<Trouble>,
) {
    while let Some(Ok(message)) = stream.next().await {
        let done = match message {
            Message::Binary(bytes) => keys.typed(bytes.into()).await,
            Message::Text(text) => match serde_json::from_str(&text) {
                Ok(Resize { cols, rows }) => {
                    keys.resize(TerminalSize { cols, rows }).await;
                    Ok(())
                }
                Err(_) => Err(Trouble::new(
                    Kind::BadRequest,
                    "a text is {\"cols\", \"rows\"}; what is typed goes as bytes",
                )),
            },
            Message::Close(_) => return,
            Message::Ping(_) | Message::Pong(_) => Ok(()),
        };
        let gone = match done {
            Ok(()) => ControlFlow::Continue(()),
            Err(trouble) => match complain.send(trouble).await {
                Ok(()) => ControlFlow::Continue(()),
                Err(_) => ControlFlow::Break(()),
            },
        };
        if gone.is_break() {
            return;
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Resize {
    cols: u16,
    rows: u16,
}
