//! What is left from one boxd to the next, as a file.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read as _, Seek as _, Write as _};

use buffa::Message;
use icebox_wire::handover::{Handover, Process};
use rustix::fs::{MemfdFlags, memfd_create};

/// The newest form of what is left that this boxd knows.
pub(super) const FORMAT: u32 = 1;

/// The longest single message: a process with the output that is kept in memory, and input that it did not take.
const MESSAGE_MAX: usize = 64 << 20;

/// Writes it into an anonymous file, which an exec leaves open. One process at a time is in memory twice.
pub(super) fn write(head: &Handover, processes: impl Iterator<Item = Process>) -> io::Result<File> {
    let mut file = BufWriter::new(File::from(memfd_create("boxd", MemfdFlags::empty())?));
    put(&mut file, head)?;
    for process in processes {
        put(&mut file, &process)?;
    }
    file.into_inner().map_err(io::IntoInnerError::into_error)
}

fn put(file: &mut BufWriter<File>, message: &impl Message) -> io::Result<()> {
    let bytes = message.encode_to_vec();
    let length = u32::try_from(bytes.len()).map_err(io::Error::other)?;
    file.write_all(&length.to_le_bytes())?;
    file.write_all(&bytes)
}

/// What the boxd before this one left.
pub(super) struct Left {
    /// All but the processes.
    pub(super) head: Handover,
    file: BufReader<File>,
}

impl Left {
    /// Begins to read. Errors when it is of a form that this boxd does not know.
    pub(super) fn open(mut file: File) -> io::Result<Self> {
        file.rewind()?;
        let mut file = BufReader::new(file);
        let head: Handover = get(&mut file)?.ok_or(io::ErrorKind::UnexpectedEof)?;
        if head.format == 0 || head.format > FORMAT {
            return Err(io::Error::other(format!(
                "what is left has the form {}, and this boxd knows forms up to {FORMAT}",
                head.format
            )));
        }
        Ok(Self { head, file })
    }

    /// The next process; `None` after the last.
    pub(super) fn process(&mut self) -> io::Result<Option<Process>> {
        get(&mut self.file)
    }
}

fn get<M: Message>(file: &mut BufReader<File>) -> io::Result<Option<M>> {
    let mut length = [0; 4];
    if file.read(&mut length[..1])? == 0 {
        return Ok(None);
    }
    file.read_exact(&mut length[1..])?;
    let length = u32::from_le_bytes(length) as usize;
    if length > MESSAGE_MAX {
        return Err(io::Error::other(format!("a message of {length} bytes")));
    }
    let mut bytes = vec![0; length];
    file.read_exact(&mut bytes)?;
    M::decode_from_slice(&bytes)
        .map(Some)
        .map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let head = Handover {
            format: FORMAT,
            start_id: "id".to_owned(),
            ..Default::default()
        };
        let process = |pid| Process {
            pid,
            ..Default::default()
        };
        let file = write(&head, [process(7), process(8)].into_iter()).expect("written");
        let mut left = Left::open(file).expect("read");
        assert_eq!(left.head, head);
        let mut pids = Vec::new();
        while let Some(process) = left.process().expect("read") {
            pids.push(process.pid);
        }
        assert_eq!(pids, [7, 8]);
    }

    #[test]
    fn other_forms_and_what_is_cut_off_are_refused() {
        for format in [0, FORMAT + 1] {
            let head = Handover {
                format,
                ..Default::default()
            };
            let file = write(&head, std::iter::empty()).expect("written");
            assert!(Left::open(file).is_err(), "form {format}");
        }
        let head = Handover {
            format: FORMAT,
            ..Default::default()
        };
        let process = Process {
            pid: 7,
            ..Default::default()
        };
        let file = write(&head, std::iter::once(process)).expect("written");
        file.set_len(file.metadata().expect("a file").len() - 1)
            .expect("shorter");
        let mut left = Left::open(file).expect("its head is whole");
        assert!(left.process().is_err());
    }
}
