//! Unpacking an upload on the way, on a thread of its own.

use std::io::{self, Read};
use std::pin::Pin;

use bytes::{Buf as _, Bytes};
use flate2::read::MultiGzDecoder;
use futures_util::{Stream, StreamExt as _, stream};
use tokio::sync::mpsc;

use super::on_thread;
use crate::error::Error;

/// What one piece of unpacked content holds at most.
const PIECE_BYTES: usize = 128 * 1024;

/// How many pieces wait on either side.
const PIECES: usize = 4;

/// Content of an upload as it comes.
pub(crate) type Source = Pin<Box<dyn Stream<Item = Result<Bytes, Error>> + Send>>;

/// The unpacked content of `packed`. What is not gzip, or breaks off, ends in an error.
pub(crate) fn gunzip(mut packed: Source) -> Result<Source, Error> {
    let (packed_in, packed_out) = mpsc::channel(PIECES);
    let (plain_in, mut plain_out) = mpsc::channel(PIECES);
    on_thread("boxd-gunzip", move || unpack(packed_out, &plain_in))?;
    tokio::spawn(async move {
        while let Some(piece) = packed.next().await {
            if packed_in.send(piece).await.is_err() {
                return;
            }
        }
    });
    Ok(Box::pin(stream::poll_fn(move |context| {
        plain_out.poll_recv(context)
    })))
}

fn unpack(
    packed: mpsc::Receiver<Result<Bytes, Error>>,
    plain: &mpsc::Sender<Result<Bytes, Error>>,
) {
    let mut decoder = MultiGzDecoder::new(Packed {
        pieces: packed,
        left: Bytes::new(),
    });
    loop {
        let mut piece = Vec::with_capacity(PIECE_BYTES);
        let read = decoder
            .by_ref()
            .take(PIECE_BYTES as u64)
            .read_to_end(&mut piece);
        let piece = match read {
            Ok(0) => return,
            Ok(_) => Ok(Bytes::from(piece)),
            Err(error) => Err(Error::BadRequest(format!(
                "the body is not the gzip it is said to be: {error}"
            ))),
        };
        let over = piece.is_err();
        // Nobody wants the rest when the other side is gone.
        if plain.blocking_send(piece).is_err() || over {
            return;
        }
    }
}

/// The packed pieces as one reader.
struct Packed {
    pieces: mpsc::Receiver<Result<Bytes, Error>>,
    left: Bytes,
}

impl Read for Packed {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.left.is_empty() {
            match self.pieces.blocking_recv() {
                Some(Ok(piece)) => self.left = piece,
                Some(Err(error)) => return Err(io::Error::other(error.words())),
                None => return Ok(0),
            }
        }
        let len = buffer.len().min(self.left.len());
        self.left.copy_to_slice(&mut buffer[..len]);
        Ok(len)
    }
}
