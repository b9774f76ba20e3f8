//! `boxd exec-as UID GID GROUPS PROGRAM ARG0 [ARG…]`: becomes another user, then the program.
//!
//! Only boxd starts it, after every check; session, terminal, descriptors and directory are already right.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};

/// What a shell exits with when a program was found and could not be run.
const CANNOT_RUN: u8 = 126;

/// Does not return unless something fails, which it says on standard error.
pub(crate) fn run(args: impl Iterator<Item = OsString>) -> ExitCode {
    let args: Vec<OsString> = args.collect();
    let error = match parse(&args) {
        Some((uid, gid, groups, program)) => become_user(uid, gid, &groups)
            .err()
            .unwrap_or_else(|| Command::new(program).arg0(&args[4]).args(&args[5..]).exec()),
        None => io::Error::other("usage: boxd exec-as UID GID GROUPS PROGRAM ARG0 [ARG…]"),
    };
    eprintln!(
        "boxd: cannot run {:?}: {error}",
        args.get(3).cloned().unwrap_or_default()
    );
    ExitCode::from(CANNOT_RUN)
}

fn parse(args: &[OsString]) -> Option<(u32, u32, Vec<u32>, &OsString)> {
    let [uid, gid, groups, program, _arg0, ..] = args else {
        return None;
    };
    let number = |text: &OsString| text.to_str()?.parse().ok();
    let groups = groups
        .to_str()?
        .split(',')
        .map(|group| group.parse().ok())
        .collect::<Option<Vec<u32>>>()?;
    Some((number(uid)?, number(gid)?, groups, program))
}

fn become_user(uid: u32, gid: u32, groups: &[u32]) -> io::Result<()> {
    // SAFETY: `groups` is valid for its length; this process has one thread, so the calls cannot race.
    let failed = unsafe {
        libc::setgroups(groups.len(), groups.as_ptr()) != 0
            || libc::setresgid(gid, gid, gid) != 0
            || libc::setresuid(uid, uid, uid) != 0
    };
    if failed {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}
