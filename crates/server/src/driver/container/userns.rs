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
    // SAFETY: between fork and _exit the child calls only async-signal-safe functions (unshare, prctl, write,
    // read, _exit), which is what a fork of a threaded program allows.
    let pid = unsafe { libc::fork() };
    match pid {
        -1 => Err(io::Error::last_os_error()),
        0 => hold_namespace(theirs),
        pid => {
            drop(theirs);
            let opened = map_and_open(pid, base, &mut ours);
            let mut status = 0;
            // Ended, not left to see the end of the socket: children that were forked meanwhile have its ends as well,
            // and would wait for each other for ever.
            // SAFETY: `pid` is our own child and nobody else waits for it.
            unsafe {
                libc::kill(pid, libc::SIGKILL);
                libc::waitpid(pid, &raw mut status, 0);
            }
            opened
        }
    }
}

fn hold_namespace(mut socket: UnixStream) -> ! {
    // SAFETY: plain system calls on this single-threaded child.
    unsafe {
        let made = u8::from(libc::unshare(libc::CLONE_NEWUSER) == 0);
        // It does not outlive the server.
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn box_namespaces_are_opened_side_by_side() {
        std::thread::scope(|scope| {
            for thread in 0..8 {
                scope.spawn(move || {
                    for _ in 0..25 {
                        open(FIRST + thread * IDS).unwrap();
                    }
                });
            }
        });
    }
}
