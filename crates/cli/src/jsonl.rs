//! Output of a command as JSON lines: each piece with its stream and the offset it begins at. Owns that form, and that a
//! character which two pieces share is not cut.

use std::io::{self, Write};

use serde_json::json;

use crate::client::Stream;

/// Turns the bytes of one stream into lines; `end` gives out what it still holds.
pub(crate) struct JsonLines<W> {
    stream: Stream,
    /// Where `held` begins, in bytes of the stream.
    offset: u64,
    /// The beginning of a character whose end has not come yet.
    held: Vec<u8>,
    to: W,
}

impl<W: Write> JsonLines<W> {
    /// For one stream, from an offset on.
    pub(crate) fn new(stream: Stream, offset: u64, to: W) -> Self {
        Self {
            stream,
            offset,
            held: Vec::new(),
            to,
        }
    }

    /// What comes next begins at this offset: bytes between are not kept.
    pub(crate) fn skip_to(&mut self, offset: u64) -> io::Result<()> {
        if offset != self.offset + self.held.len() as u64 {
            self.end()?;
            self.offset = offset;
        }
        Ok(())
    }

    /// Nothing more comes.
    pub(crate) fn end(&mut self) -> io::Result<()> {
        self.tell(self.held.len())
    }

    /// Gives out so many of the bytes it holds.
    fn tell(&mut self, len: usize) -> io::Result<()> {
        if len == 0 {
            return Ok(());
        }
        let text = String::from_utf8_lossy(&self.held[..len]);
        let line = json!({"stream": self.stream.as_str(), "offset": self.offset, "text": text});
        // In one piece: the other stream writes to the same place.
        self.to.write_all(format!("{line}\n").as_bytes())?;
        self.offset += len as u64;
        self.held.drain(..len);
        Ok(())
    }
}

impl<W: Write> Write for JsonLines<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.held.extend_from_slice(bytes);
        let cut = match std::str::from_utf8(&self.held) {
            Err(error) if error.error_len().is_none() => error.valid_up_to(),
            // Bytes that are no text anyway may be followed by the beginning of a character, too.
            Err(_) => self.held.len() - unfinished(&self.held),
            Ok(_) => self.held.len(),
        };
        self.tell(cut)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

/// How many bytes at the end are the beginning of a character.
fn unfinished(bytes: &[u8]) -> usize {
    let tails = 1..=bytes.len().min(3);
    let begins = |n: &usize| {
        let tail = std::str::from_utf8(&bytes[bytes.len() - n..]);
        tail.is_err_and(|error| error.error_len().is_none() && error.valid_up_to() == 0)
    };
    tails.rev().find(begins).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pieces of bytes, and the offsets and texts they come out as.
    type Case<'a> = (&'a [&'a [u8]], &'a [(u64, &'a str)]);

    #[test]
    fn pieces_are_lines_and_characters_stay_whole() {
        let table: [Case<'_>; 5] = [
            (&[b"a\n", b"b"], &[(7, "a\n"), (9, "b")]),
            (&[b"a\xc3", b"\xa9b"], &[(7, "a"), (8, "\u{e9}b")]),
            (&[b"\xe7\xae", b"\xb1"], &[(7, "\u{7bb1}")]),
            (&[b"\xff\xc3", b"\xa9"], &[(7, "\u{fffd}"), (8, "\u{e9}")]),
            (&[b"a\xc3"], &[(7, "a"), (8, "\u{fffd}")]),
        ];
        for (pieces, expected) in table {
            let mut lines = JsonLines::new(Stream::Stdout, 7, Vec::new());
            for piece in pieces {
                lines.write_all(piece).unwrap();
            }
            lines.end().unwrap();
            let told = String::from_utf8(lines.to).unwrap();
            let expected: String = expected
                .iter()
                .map(|(offset, text)| {
                    json!({"stream": "stdout", "offset": offset, "text": text}).to_string() + "\n"
                })
                .collect();
            assert_eq!(told, expected, "{pieces:?}");
        }
    }

    #[test]
    fn a_gap_shows_in_the_offset() {
        let mut lines = JsonLines::new(Stream::Stderr, 0, Vec::new());
        lines.write_all(b"a").unwrap();
        lines.skip_to(1).unwrap();
        lines.skip_to(100).unwrap();
        lines.write_all(b"b").unwrap();
        let told = String::from_utf8(lines.to).unwrap();
        assert!(
            told.ends_with("{\"offset\":100,\"stream\":\"stderr\",\"text\":\"b\"}\n"),
            "{told}"
        );
    }
}
