//! Kept output of a command, from an offset, as a stream of pieces that never waits in memory: the next piece is fetched
//! when the last one was taken. Following holds the box in use, and ends with the reader or the command. Offsets count every
//! byte the command ever wrote: what is not kept any more is told beside the bytes, never among them.

use std::ops::Range;
use std::time::Duration;

use bytes::Bytes;
use icebox_lifecycle::BoxId;
use icebox_wire::boxd::{self, OutputResponse, Stream};

use super::trouble::{Kind, Trouble};
use super::{Caller, Commands};
use crate::engine::CallUnderWay;

/// The most one piece carries, in bytes.
const PIECE: u32 = 256 * 1024;
/// How long one question waits for more output.
const FOLLOW_WAIT: Duration = Duration::from_secs(30);

/// What to read.
#[derive(Clone, Debug)]
pub struct OutputRequest {
    /// Of which command.
    pub exec_id: String,
    /// Which stream.
    pub stream: StreamName,
    /// From which byte.
    pub offset: u64,
    /// Go on until the command ends.
    pub follow: bool,
}

/// A stream of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StreamName {
    /// Its standard output.
    Stdout,
    /// Its standard error.
    Stderr,
}

impl StreamName {
    /// What the daemon calls it.
    pub(super) fn on_the_wire(self) -> Stream {
        match self {
            Self::Stdout => Stream::STREAM_STDOUT,
            Self::Stderr => Stream::STREAM_STDERR,
        }
    }
}

/// Output being read.
pub struct OutputPiece {
    /// At which byte of the stream it begins.
    pub offset: u64,
    /// The bytes.
    pub bytes: Bytes,
    /// What is left out at or behind the offset that was asked for: bytes that are not kept any more.
    pub gap: Option<Range<u64>>,
    /// How to go on; `None` after the last piece.
    pub next: Option<Reading>,
}

/// Where reading goes on.
pub struct Reading {
    commands: Commands,
    id: BoxId,
    call: CallUnderWay,
    request: OutputRequest,
    /// Where reading ends if it does not follow.
    end: Option<u64>,
    /// The gap that the reader was told of with the first piece.
    told: Option<Option<Range<u64>>>,
}

impl Commands {
    /// Reads the first piece; so a command that is not known is an error and no empty stream.
    pub async fn output(
        &self,
        caller: &Caller,
        id: &str,
        request: OutputRequest,
    ) -> Result<OutputPiece, Trouble> {
        let id = self.find(caller, id)?.id();
        let (call, _) = self.acting(caller, id, false).await?;
        let reading = Reading {
            commands: self.clone(),
            id,
            call,
            request,
            end: None,
            told: None,
        };
        reading.read(Duration::ZERO).await
    }
}

impl Reading {
    /// Reads the next piece, waiting for it if the reader follows.
    pub async fn next(self) -> Result<OutputPiece, Trouble> {
        let wait = if self.request.follow {
            FOLLOW_WAIT
        } else {
            Duration::ZERO
        };
        self.read(wait).await
    }

    async fn read(mut self, wait: Duration) -> Result<OutputPiece, Trouble> {
        let answer = self.ask(wait).await?;
        let (from, offset) = (self.request.offset, answer.data_offset);
        let gap = match &self.told {
            None => gap(from, &answer),
            Some(told) => {
                let crossed = offset > from && !answer.data.is_empty();
                if crossed && *told != Some(from..offset) {
                    return Err(moved_on(from, offset));
                }
                told.clone()
            }
        };
        self.told = Some(gap.clone());
        let end = *self.end.get_or_insert(answer.total_bytes);
        let read_all = if self.request.follow {
            answer.eof
        } else {
            answer.next_offset >= end || answer.next_offset == from
        };
        self.request.offset = answer.next_offset;
        Ok(OutputPiece {
            offset,
            bytes: answer.data.into(),
            gap,
            next: (!read_all).then_some(self),
        })
    }

    async fn ask(&self, wait: Duration) -> Result<OutputResponse, Trouble> {
        let stream = self.request.stream.on_the_wire();
        let request = boxd::OutputRequest {
            exec_id: self.request.exec_id.clone(),
            stream: stream.into(),
            offset: self.request.offset,
            max_bytes: PIECE,
            wait_ms: u64::try_from(wait.as_millis()).unwrap_or(u64::MAX),
            ..boxd::OutputRequest::default()
        };
        let attempt = || self.commands.0.boxds.output(self.id, request.clone());
        self.commands
            .ask_daemon(&self.call, self.id, false, attempt)
            .await
    }
}

/// What is missing at or behind the offset that was asked for.
pub(super) fn gap(from: u64, answer: &OutputResponse) -> Option<Range<u64>> {
    let missing = if answer.data_offset > from {
        from..answer.data_offset
    } else {
        answer.dropped_from.max(from)..answer.dropped_to
    };
    (!missing.is_empty()).then_some(missing)
}

/// The command wrote so much meanwhile that a reader this slow would miss what it was not told of.
fn moved_on(from: u64, offset: u64) -> Trouble {
    Trouble::new(
        Kind::Busy,
        format!("the bytes from {from} to {offset} are not kept any more; go on at {offset}"),
    )
}
