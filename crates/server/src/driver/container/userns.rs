//! User namespaces for id-mapped mounts: a handle to a namespace that maps root to a box's first uid.

use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

/// Ids in the range of one box.
pub(super) const IDS: u32 = 65_536;

/// Where the ranges of boxes begin: above what distributions give to users and to systemd's containers.
pub(super) const FIRST: u32 = 0x7000_0000;

/// Ranges there are before they are shared.
pub(super) const RANGES: u32 = 4_096;

/// Opens a user namespace in which 0..65536 are the ids from `base` on.
pub(super) fn open(base: u32) -> io::Result<OwnedFd> {
    let (mut ours, theirs) = UnixStream::pair()?;
    // SAFETY: between fork and _exit the child calls only async-signal-safe functions (unshare, write,
    // read, _exit), which is what a fork of a threaded program allows.
    let pid = unsafe { libc::fork() };
    match pid {
        -1 => Err(io::Error::last_os_error()),
        0 => hold_namespace(theirs, ours),
        pid => {
            drop(theirs);
            let opened = map_and_open(pid, base, &mut ours);
            drop(ours);
            let mut status = 0;
            // SAFETY: `pid` is our own child and nobody else waits for it.
            unsafe { libc::waitpid(pid, &raw mut status, 0) };
            opened
        }
    }
}

fn hold_namespace(mut socket: UnixStream, parent_end: UnixStream) -> ! {
    // The child's copy of the parent's end must go, or its read would never see the end.
    drop(parent_end);
    // SAFETY: plain system calls on this single-threaded child.
    unsafe {
        let made = u8::from(libc::unshare(libc::CLONE_NEWUSER) == 0);
        drop(socket.write(&[made]));
        drop(socket.read(&mut [0_u8; 1]));
        libc::_exit(0)
    }
}

fn map_and_open(pid: i32, base: u32, socket: &mut UnixStream) -> io::Result<OwnedFd> {
    let mut made = [0_u8; 1];
    socket.read_exact(&mut made)?;
    if made[0] == 0 {
        return Err(io::Error::other(
            "this host allows no user namespaces (sysctl user.max_user_namespaces)",
        ));
    }
    let map = format!("0 {base} {IDS}\n");
    fs::write(format!("/proc/{pid}/uid_map"), &map)?;
    fs::write(format!("/proc/{pid}/gid_map"), &map)?;
    Ok(fs::File::open(format!("/proc/{pid}/ns/user"))?.into())
}
