//! The kept output of one stream of one process: small in memory, larger in a file, the middle dropped past a cap.
//!
//! Offsets count every byte ever written. Who reads or waits is not known here.

use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use icebox_wire::handover as left;

use crate::id::ExecId;
use crate::proc::STDERR;

/// Up to this many bytes stay in memory.
const IN_MEMORY: u64 = 64 * 1024;

/// One stream's output. The file holds the first half of the cap as it came, then the last half as a ring.
#[derive(Debug)]
pub(crate) struct Kept {
    path: PathBuf,
    /// Half the cap: how much is kept at either end.
    half: u64,
    store: Store,
    total: u64,
    /// Set once the file could not be written: from here on nothing is kept.
    lost_from: Option<u64>,
    discarded: bool,
}

/// Where the bytes are.
#[derive(Debug)]
enum Store {
    Memory(Vec<u8>),
    /// In the file, which still grows.
    Open(File),
    /// In the file, which is complete: opened for each read.
    Closed,
}

/// A piece of kept output.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    /// The offset of its first byte: the asked one, or the end of the dropped range that one fell into.
    pub(crate) start: u64,
    pub(crate) data: Vec<u8>,
}

/// The file for larger output of a process's stream.
pub(crate) fn file_of(output_dir: &Path, id: ExecId, stream: usize) -> PathBuf {
    let name = if stream == STDERR { "stderr" } else { "stdout" };
    output_dir.join(id.to_string()).join(name)
}

impl Kept {
    /// Nothing yet. `path` is made when memory is not enough; its directory too.
    pub(crate) fn new(path: PathBuf, cap_bytes: u64) -> Self {
        let half = (cap_bytes / 2).max(1);
        Self {
            path,
            half,
            store: Store::Memory(Vec::new()),
            total: 0,
            lost_from: None,
            discarded: false,
        }
    }

    /// What the next boxd has to know of it; whether more may come it is told elsewhere.
    pub(crate) fn leave(&self, with_bytes: bool) -> left::Stream {
        left::Stream {
            total: self.total,
            half: self.half,
            lost_from: self.lost_from,
            discarded: self.discarded,
            memory: match &self.store {
                Store::Memory(memory) if with_bytes => Some(memory.clone()),
                Store::Memory(_) => Some(Vec::new()),
                Store::Open(_) | Store::Closed => None,
            },
            ..Default::default()
        }
    }

    /// How much of it is in memory.
    pub(crate) fn bytes_in_memory(&self) -> u64 {
        match &self.store {
            Store::Memory(memory) => memory.len() as u64,
            Store::Open(_) | Store::Closed => 0,
        }
    }

    /// What the boxd before this one kept. If its file cannot be written any more, later output is counted, not kept.
    pub(crate) fn take_over(path: PathBuf, stream: left::Stream) -> Self {
        let mut lost_from = stream.lost_from;
        let store = match stream.memory {
            Some(memory) => Store::Memory(memory),
            None if !stream.open => Store::Closed,
            None => match File::options().read(true).write(true).open(&path) {
                Ok(file) => Store::Open(file),
                Err(_) => {
                    lost_from = lost_from.or(Some(stream.total));
                    Store::Closed
                }
            },
        };
        Self {
            path,
            half: stream.half.max(1),
            store,
            total: stream.total,
            lost_from,
            discarded: stream.discarded,
        }
    }

    /// Every byte ever written.
    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    /// How much the file or the memory holds.
    pub(crate) fn kept_bytes(&self) -> u64 {
        if self.discarded {
            0
        } else {
            self.lost_from.unwrap_or(self.total).min(self.half * 2)
        }
    }

    /// Adds what the process wrote. A full disk does not stop the process: the rest is then counted, not kept.
    pub(crate) fn append(&mut self, data: &[u8]) {
        let offset = self.total;
        self.total += data.len() as u64;
        if self.discarded || self.lost_from.is_some() {
            return;
        }
        if let Store::Memory(memory) = &mut self.store
            && self.total <= IN_MEMORY.min(self.half)
        {
            memory.extend_from_slice(data);
            return;
        }
        if self
            .spill()
            .and_then(|()| self.write(offset, data))
            .is_err()
        {
            self.lost_from = Some(offset);
        }
    }

    /// What is no longer kept.
    pub(crate) fn dropped(&self) -> Range<u64> {
        if self.discarded {
            return 0..self.total;
        }
        match self.lost_from {
            Some(lost) => lost.min(self.half)..self.total,
            None if self.total > self.half * 2 => self.half..self.total - self.half,
            None => self.total..self.total,
        }
    }

    /// At most `max` bytes from `offset` on, from one side of the dropped range.
    pub(crate) fn read(&self, offset: u64, max: usize) -> io::Result<Piece> {
        let dropped = self.dropped();
        let start = if dropped.contains(&offset) {
            dropped.end
        } else {
            offset.min(self.total)
        };
        let end = if start < dropped.start {
            dropped.start
        } else {
            self.total
        };
        let len = (end - start).min(max as u64);
        let mut data = vec![0; usize::try_from(len).unwrap_or(max)];
        self.fill(start, &mut data)?;
        Ok(Piece { start, data })
    }

    /// The last `max` bytes that are kept in one piece with the end.
    pub(crate) fn tail(&self, max: usize) -> io::Result<Vec<u8>> {
        let from = self.total.saturating_sub(max as u64);
        let piece = self.read(from, max)?;
        // A lost end leaves only the head: its end is then the best there is.
        if piece.data.is_empty() && self.lost_from.is_some() {
            let head = self.dropped().start;
            return Ok(self.read(head.saturating_sub(max as u64), max)?.data);
        }
        Ok(piece.data)
    }

    /// No more will come: gives back the descriptor and spare memory.
    pub(crate) fn close(&mut self) {
        match &mut self.store {
            Store::Memory(memory) => memory.shrink_to_fit(),
            Store::Open(_) => self.store = Store::Closed,
            Store::Closed => {}
        }
    }

    /// Forgets everything; later output is only counted.
    pub(crate) fn discard(&mut self) {
        self.discarded = true;
        match std::mem::replace(&mut self.store, Store::Memory(Vec::new())) {
            Store::Memory(_) => {}
            // The directory may be gone already; nothing depends on this file any more.
            Store::Open(_) | Store::Closed => drop(fs::remove_file(&self.path)),
        }
    }

    /// Moves from memory to the file. On failure everything stays in memory.
    fn spill(&mut self) -> io::Result<()> {
        let Store::Memory(memory) = &self.store else {
            return Ok(());
        };
        if let Some(dir) = self.path.parent() {
            fs::create_dir_all(dir)?;
        }
        let file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(&self.path)?;
        // Memory never outgrows the first half, where offsets are places.
        file.write_all_at(memory, 0)?;
        self.store = Store::Open(file);
        Ok(())
    }

    fn write(&self, mut offset: u64, mut data: &[u8]) -> io::Result<()> {
        let Store::Open(file) = &self.store else {
            return Err(io::ErrorKind::NotSeekable.into());
        };
        while !data.is_empty() {
            let (at, room) = self.place(offset);
            let (now, later) =
                data.split_at(data.len().min(usize::try_from(room).unwrap_or(usize::MAX)));
            file.write_all_at(now, at)?;
            offset += now.len() as u64;
            data = later;
        }
        Ok(())
    }

    fn fill(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        match &self.store {
            Store::Memory(memory) => {
                let start = usize::try_from(offset)
                    .unwrap_or(usize::MAX)
                    .min(memory.len());
                let source = &memory[start..];
                let len = into.len().min(source.len());
                into[..len].copy_from_slice(&source[..len]);
                Ok(())
            }
            Store::Open(file) => self.fill_from(file, offset, into),
            Store::Closed => self.fill_from(&File::open(&self.path)?, offset, into),
        }
    }

    fn fill_from(&self, file: &File, mut offset: u64, mut into: &mut [u8]) -> io::Result<()> {
        while !into.is_empty() {
            let (at, room) = self.place(offset);
            let len = into.len().min(usize::try_from(room).unwrap_or(usize::MAX));
            let (now, later) = into.split_at_mut(len);
            file.read_exact_at(now, at)?;
            offset += len as u64;
            into = later;
        }
        Ok(())
    }

    /// Where the byte at `offset` lies in the file, and how many follow it there in order.
    fn place(&self, offset: u64) -> (u64, u64) {
        if offset < self.half {
            return (offset, self.half - offset);
        }
        let in_ring = (offset - self.half) % self.half;
        (self.half + in_ring, self.half - in_ring)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The byte every test writes at `offset`.
    fn byte(offset: u64) -> u8 {
        (offset % 251) as u8
    }

    fn filled(cap: u64, total: u64, step: u64) -> (tempfile::TempDir, Kept) {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let mut kept = Kept::new(dir.path().join("procs/x/stdout"), cap);
        let mut at = 0;
        while at < total {
            let end = (at + step).min(total);
            kept.append(&(at..end).map(byte).collect::<Vec<_>>());
            at = end;
        }
        (dir, kept)
    }

    fn assert_piece(kept: &Kept, offset: u64, max: usize, expect: Range<u64>) {
        let piece = kept.read(offset, max).expect("readable");
        assert_eq!(
            (piece.start, piece.data.len() as u64),
            (expect.start, expect.end - expect.start)
        );
        assert_eq!(piece.data, expect.map(byte).collect::<Vec<_>>());
    }

    #[test]
    fn small_output_stays_in_memory() {
        let (dir, kept) = filled(1 << 20, 60_000, 999);
        assert_piece(&kept, 59_990, 100, 59_990..60_000);
        assert_piece(&kept, 60_000, 100, 60_000..60_000);
        assert_piece(&kept, 99_999, 100, 60_000..60_000);
        assert!(!dir.path().join("procs").exists());
    }

    #[test]
    fn larger_output_goes_to_a_file_and_reads_the_same_after_the_end() {
        let (_dir, mut kept) = filled(1 << 20, 300_000, 7_000);
        assert_piece(&kept, 65_000, 2_000, 65_000..67_000);
        kept.close();
        assert_piece(&kept, 299_000, 2_000, 299_000..300_000);
        assert_eq!(
            kept.tail(3).expect("readable"),
            [byte(299_997), byte(299_998), byte(299_999)]
        );
    }

    #[test]
    fn past_the_cap_the_middle_is_dropped_whatever_the_write_sizes() {
        for step in [1, 37, 100, 4_096] {
            let (_dir, kept) = filled(1_000, 3_333, step);
            assert_eq!(kept.dropped(), 500..2_833);
            assert_eq!(kept.kept_bytes(), 1_000);
            assert_piece(&kept, 400, 10_000, 400..500);
            assert_piece(&kept, 500, 10_000, 2_833..3_333);
            assert_piece(&kept, 3_000, 100, 3_000..3_100);
        }
    }

    #[test]
    fn a_file_that_cannot_be_made_loses_only_what_memory_does_not_hold() {
        let mut kept = Kept::new(PathBuf::from("/proc/no/such/stdout"), 1 << 20);
        kept.append(&[1; 60_000]);
        kept.append(&[2; 60_000]);
        kept.append(&[3; 10]);
        assert_eq!((kept.total(), kept.dropped()), (120_010, 60_000..120_010));
        assert_eq!(kept.read(0, 1 << 20).expect("memory").data, vec![1; 60_000]);
        assert_eq!(kept.read(70_000, 10).expect("nothing").start, 120_010);
        assert_eq!(kept.tail(4).expect("the head's end"), [1; 4]);
    }

    #[test]
    fn discarding_removes_the_file_and_keeps_counting() {
        let (dir, mut kept) = filled(1 << 20, 200_000, 50_000);
        kept.discard();
        kept.append(b"more");
        assert_eq!(
            (kept.total(), kept.kept_bytes(), kept.dropped()),
            (200_004, 0, 0..200_004)
        );
        assert!(!dir.path().join("procs/x/stdout").exists());
    }
}
