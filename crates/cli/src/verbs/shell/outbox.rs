//! What goes to the server: it waits here while the connection takes no more, so that whoever puts it in stays free to hear
//! the way out, signals and the server.

use std::collections::VecDeque;
use std::future::pending;

use futures_util::SinkExt as _;
use futures_util::stream::SplitSink;
use serde_json::json;
use tokio::sync::mpsc;
use tokio_tungstenite::tungstenite::Message;

use super::socket::Socket;

/// The most that is sent at once, in bytes: the server takes no more.
const PIECE: usize = 32 << 10;
/// Bytes that wait before the keyboard does: more than anybody pastes, so that the way out is heard behind it.
const WAITING: usize = 4 << 20;
/// Messages on their way to the connection.
const UNDER_WAY: usize = 2;

/// What has been typed and not been sent yet.
pub(super) struct Outbox {
    typed: VecDeque<u8>,
    /// The terminal's size, if the server has not been told.
    size: Option<(u16, u16)>,
    to: mpsc::Sender<Message>,
}

impl Outbox {
    /// One whose task sends over this connection.
    pub(super) fn new(mut sink: SplitSink<Socket, Message>) -> Self {
        let (to, mut messages) = mpsc::channel(UNDER_WAY);
        tokio::spawn(async move {
            while let Some(message) = messages.recv().await {
                // That it broke, whoever listens to the server hears, too.
                if sink.send(message).await.is_err() {
                    return;
                }
            }
        });
        Self {
            typed: VecDeque::new(),
            size: None,
            to,
        }
    }

    /// Whether more may be put in.
    pub(super) fn has_room(&self) -> bool {
        self.typed.len() < WAITING
    }

    pub(super) fn typed(&mut self, bytes: &[u8]) {
        self.typed.extend(bytes);
    }

    /// The latest size is the only one that counts.
    pub(super) fn resized(&mut self, size: (u16, u16)) {
        self.size = Some(size);
    }

    /// Hands the next message over once there is one, and room for it. Nothing is lost when this is given up.
    pub(super) async fn hand_over(&mut self) {
        if self.typed.is_empty() && self.size.is_none() {
            return pending().await;
        }
        let Ok(place) = self.to.reserve().await else {
            return pending().await;
        };
        place.send(match self.size.take() {
            Some((cols, rows)) => Message::text(json!({"cols": cols, "rows": rows}).to_string()),
            None => {
                let len = self.typed.len().min(PIECE);
                Message::binary(self.typed.drain(..len).collect::<Vec<_>>())
            }
        });
    }
}
