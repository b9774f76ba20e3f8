//! Between requests, which come in pieces, and files, which are read and written by waiting: bounded channels.

use std::io::{self, Read, Write};

use axum::body::{Body, Bytes};
use futures_util::{StreamExt as _, stream};
use tokio::sync::mpsc;

/// Pieces that wait at a time.
const WAITING: usize = 8;
/// The largest piece that is sent.
const PIECE: usize = 64 * 1024;

/// A body as something to read from a thread that may wait.
pub(super) fn reader(body: Body) -> BodyReader {
    let (sender, pieces) = mpsc::channel(WAITING);
    tokio::spawn(async move {
        let mut body = body.into_data_stream();
        while let Some(piece) = body.next().await {
            if sender
                .send(Some(piece.map_err(io::Error::other)))
                .await
                .is_err()
            {
                return;
            }
        }
        // A body that was cut off never gets here, nor does its reader see an end.
        let _ = sender.send(None).await;
    });
    BodyReader {
        pieces,
        piece: Bytes::new(),
        over: false,
    }
}

/// Reads a body. The end of one that was cut off is an error.
pub(super) struct BodyReader {
    pieces: mpsc::Receiver<Option<io::Result<Bytes>>>,
    piece: Bytes,
    over: bool,
}

impl Read for BodyReader {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while self.piece.is_empty() && !self.over {
            match self.pieces.blocking_recv() {
                Some(Some(piece)) => self.piece = piece?,
                Some(None) => self.over = true,
                None => return Err(io::ErrorKind::UnexpectedEof.into()),
            }
        }
        let len = into.len().min(self.piece.len());
        into[..len].copy_from_slice(&self.piece.split_to(len));
        Ok(len)
    }
}

/// A body that a thread writes. When it fails the body ends early, which the other side sees.
pub(super) fn body(write: impl FnOnce(&mut BodyWriter) -> io::Result<()> + Send + 'static) -> Body {
    let (sender, pieces) = mpsc::channel(WAITING);
    tokio::task::spawn_blocking(move || {
        let mut writer = BodyWriter {
            sender: sender.clone(),
            piece: Vec::with_capacity(PIECE),
        };
        let written = write(&mut writer).and_then(|()| writer.flush());
        if let Err(error) = written {
            // Nobody listens any more if this fails.
            let _ = sender.blocking_send(Err(error));
        }
    });
    Body::from_stream(stream::unfold(pieces, async |mut pieces| {
        let piece = pieces.recv().await?;
        Some((piece, pieces))
    }))
}

/// Writes a body.
pub(super) struct BodyWriter {
    sender: mpsc::Sender<io::Result<Bytes>>,
    piece: Vec<u8>,
}

impl Write for BodyWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let len = bytes.len().min(PIECE - self.piece.len());
        self.piece.extend_from_slice(&bytes[..len]);
        if self.piece.len() == PIECE {
            self.flush()?;
        }
        Ok(len)
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.piece.is_empty() {
            return Ok(());
        }
        let piece = std::mem::replace(&mut self.piece, Vec::with_capacity(PIECE));
        let sent = self.sender.blocking_send(Ok(piece.into()));
        sent.map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}
