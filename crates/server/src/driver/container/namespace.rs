//! Doing something inside a namespace of a box, on a thread of its own.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;

use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};

/// Which one.
#[derive(Clone, Copy)]
pub(super) enum Namespace {
    Network,
    Mount,
}

impl Namespace {
    /// Does something in this one of process `pid`. Blocks.
    pub(super) fn within<T: Send + 'static>(
        self,
        pid: u32,
        work: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let (name, kind) = match self {
            Self::Network => ("net", LinkNameSpaceType::Network),
            Self::Mount => ("mnt", LinkNameSpaceType::Mount),
        };
        let namespace = File::open(format!("/proc/{pid}/ns/{name}"))?;
        // A thread of its own: one that changed its namespace must not go back to a pool.
        let thread = std::thread::Builder::new().name(format!("icebox-{name}ns"));
        let working = thread.spawn(move || {
            if kind == LinkNameSpaceType::Mount {
                // SAFETY: only what this thread shares of its root and its working directory becomes its own; memory and
                // descriptors stay shared.
                unsafe { unshare_unsafe(UnshareFlags::FS) }?;
            }
            move_into_link_name_space(namespace.as_fd(), Some(kind))?;
            work()
        })?;
        working
            .join()
            .map_err(|_| io::Error::other("the thread in the box's namespace panicked"))?
    }
}
