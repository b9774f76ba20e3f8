//! How far a transfer is: told on standard error while it lasts, when that is a terminal and it takes long. Owns the line
//! that is written over.

use std::io::{self, IsTerminal as _, Read, Write as _};
use std::time::Duration;

use crate::stopwatch::Stopwatch;
use crate::text::bytes;

/// What is over before that needs no line.
const QUIET: Duration = Duration::from_secs(1);
/// How often the line changes at most.
const INTERVAL: Duration = Duration::from_millis(200);

/// A reader that tells how much of it has been read. Dropped, it takes the line away.
pub(crate) struct Told<R> {
    inner: R,
    /// What is done with it, as in `sent`.
    verb: &'static str,
    read: u64,
    total: Option<u64>,
    watch: Stopwatch,
    next: Duration,
    shown: bool,
    is_terminal: bool,
}

impl<R> Told<R> {
    /// Tells of `inner`, which has `total` bytes if that is known.
    pub(crate) fn new(inner: R, verb: &'static str, total: Option<u64>) -> Self {
        Self {
            inner,
            verb,
            read: 0,
            total,
            watch: Stopwatch::start(),
            next: QUIET,
            shown: false,
            is_terminal: io::stderr().is_terminal(),
        }
    }

    /// How many bytes have been read.
    pub(crate) fn read_so_far(&self) -> u64 {
        self.read
    }

    fn tell(&mut self) {
        let now = self.watch.elapsed();
        if !self.is_terminal || now < self.next {
            return;
        }
        self.next = now + INTERVAL;
        self.shown = true;
        let line = line(self.verb, self.read, self.total);
        // Nobody is left to be told when this fails.
        let _ = write!(io::stderr(), "\r\x1b[K{line}");
    }
}

fn line(verb: &str, read: u64, total: Option<u64>) -> String {
    match total {
        Some(total) => format!("icebox: {} of {} {verb}", bytes(read), bytes(total)),
        None => format!("icebox: {} {verb}", bytes(read)),
    }
}

impl<R: Read> Read for Told<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let len = self.inner.read(into)?;
        self.read += len as u64;
        self.tell();
        Ok(len)
    }
}

impl<R> Drop for Told<R> {
    fn drop(&mut self) {
        if self.shown {
            // As above.
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_is_counted() {
        let mut told = Told::new(&b"abc"[..], "sent", Some(3));
        let mut text = String::new();
        told.read_to_string(&mut text).unwrap();
        assert_eq!((text.as_str(), told.read_so_far()), ("abc", 3));
        assert_eq!(
            line("sent", 1536, Some(1 << 20)),
            "icebox: 1.5 KiB of 1.0 MiB sent"
        );
        assert_eq!(line("fetched", 3, None), "icebox: 3 B fetched");
    }
}
