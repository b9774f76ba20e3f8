//! Descriptors that stay open from one boxd to the next.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::{BorrowedFd, FromRawFd as _, OwnedFd, RawFd};

use rustix::io::FdFlags;

/// The first that is none of the standard streams.
const FIRST: RawFd = 3;

/// What the boxd before this one left open and nobody took yet. What nobody takes is closed in the end: a program that writes
/// there is told then, instead of waiting for a reader for ever.
pub(crate) struct Inherited(BTreeSet<RawFd>);

impl Inherited {
    /// These.
    pub(super) fn new(descriptors: &[RawFd]) -> Self {
        Self(descriptors.iter().copied().collect())
    }

    /// Takes one. Errors when it is not among them, was taken before, or is not open.
    pub(crate) fn take(&mut self, fd: RawFd) -> io::Result<OwnedFd> {
        if !self.0.remove(&fd) {
            return Err(io::Error::other(format!("descriptor {fd} was not left")));
        }
        take(fd)
    }
}

impl Drop for Inherited {
    fn drop(&mut self) {
        for fd in std::mem::take(&mut self.0) {
            // It is closed at once, or was not open.
            drop(take(fd));
        }
    }
}

/// Keeps descriptors open over an exec, or not. They must be open, and stay so meanwhile.
pub(super) fn keep_open(descriptors: &[RawFd], over_exec: bool) -> io::Result<()> {
    let flags = if over_exec {
        FdFlags::empty()
    } else {
        FdFlags::CLOEXEC
    };
    descriptors.iter().try_for_each(|fd| set(*fd, flags))
}

fn set(fd: RawFd, flags: FdFlags) -> io::Result<()> {
    // SAFETY: the flags of whatever has this number are changed, and nothing else is done with it; one that is not open is an
    // error.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    Ok(rustix::io::fcntl_setfd(fd, flags)?)
}

/// Takes one that came over an exec. It must be taken once only. Errors when it is not open.
pub(super) fn take(fd: RawFd) -> io::Result<OwnedFd> {
    if fd < FIRST {
        let words = format!("descriptor {fd} is not one that is left");
        return Err(io::Error::other(words));
    }
    // Fails when it is not open.
    set(fd, FdFlags::CLOEXEC)?;
    // SAFETY: it is open, and it came over an exec: nothing in this program has opened it or knows it by its number.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
