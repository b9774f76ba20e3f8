//! Descriptors that stay open from one boxd to the next.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::fd::{BorrowedFd, FromRawFd as _, OwnedFd, RawFd};

use icebox_wire::handover::Handover;
use rustix::io::FdFlags;

/// The first that is none of the standard streams.
const FIRST: RawFd = 3;

/// What the boxd before this one left open and nobody took yet.
pub(crate) struct Inherited(BTreeSet<RawFd>);

impl Inherited {
    /// All that are named there.
    pub(crate) fn of(handover: &Handover) -> Self {
        Self(named(handover).collect())
    }

    /// Takes one. Errors when it is not among them, was taken before, or is not open.
    pub(crate) fn take(&mut self, fd: RawFd) -> io::Result<OwnedFd> {
        if !self.0.remove(&fd) {
            return Err(io::Error::other(format!("descriptor {fd} was not left")));
        }
        own(fd)
    }
}

/// Takes the file in which everything is written.
pub(super) fn take_file(fd: RawFd) -> io::Result<File> {
    own(fd).map(File::from)
}

/// Keeps every descriptor that is named open over an exec. They must be those of the handover's own maker.
pub(super) fn leave_open(handover: &Handover) -> io::Result<()> {
    named(handover).try_for_each(|fd| set(fd, FdFlags::empty()))
}

/// The opposite, after an exec that failed.
pub(super) fn close_on_exec(handover: &Handover) {
    for fd in named(handover) {
        if let Err(error) = set(fd, FdFlags::CLOEXEC) {
            eprintln!("boxd: descriptor {fd} stays open for programs: {error}");
        }
    }
}

fn named(handover: &Handover) -> impl Iterator<Item = RawFd> + '_ {
    let of_processes = handover.processes.iter().flat_map(|process| {
        let streams = process.streams.iter().filter_map(|stream| stream.fd);
        streams.chain(process.terminal_fd).chain(process.stdin_fd)
    });
    of_processes.chain([handover.listener_fd])
}

fn set(fd: RawFd, flags: FdFlags) -> io::Result<()> {
    // SAFETY: the descriptor is one of this process, whose owner outlives the handover that names it.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    Ok(rustix::io::fcntl_setfd(fd, flags)?)
}

fn own(fd: RawFd) -> io::Result<OwnedFd> {
    if fd < FIRST {
        return Err(io::Error::other(format!(
            "descriptor {fd} is not one that is left"
        )));
    }
    // Fails when it is not open.
    set(fd, FdFlags::CLOEXEC)?;
    // SAFETY: it is open, and it came over an exec: nothing in this program has opened it or knows it by its number.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
