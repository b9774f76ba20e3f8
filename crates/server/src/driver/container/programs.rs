//! Programs of this host that the driver runs and waits for, each within a time limit. Owns the waiting, and what is said of
//! one that cannot be run or does not end; which programs these are, and what their answers mean, is known where they are run.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::fd::AsFd;
use std::process::{Child, Command, ExitStatus};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::clock::monotonic_now;

/// How long one may take that only looks, or configures something.
pub(super) const SHORT: Duration = Duration::from_secs(10);

/// How long one that was killed may take to be gone.
const KILL_LIMIT: Duration = Duration::from_secs(5);

/// What is read of what a program says, in bytes.
const MOST_SAID: u64 = 16 << 20;

/// What a program said, and how it ended.
#[derive(Debug)]
pub(super) struct Output {
    pub(super) status: ExitStatus,
    pub(super) stdout: String,
    pub(super) stderr: String,
}

/// Runs a program to its end, with `input` to read. It reads from memory and writes to memory, so that neither side ever waits
/// for the other. Blocks.
///
/// # Errors
/// It cannot be started, or was not over within `limit` and was killed; not for how it ended.
pub(super) fn run(command: &mut Command, input: &str, limit: Duration) -> io::Result<Output> {
    let mut stdin = memory()?;
    stdin.write_all(input.as_bytes())?;
    stdin.rewind()?;
    let (stdout, stderr) = (memory()?, memory()?);
    command
        .stdin(stdin)
        .stdout(stdout.try_clone()?)
        .stderr(stderr.try_clone()?);
    let status = status(command, limit)?;
    Ok(Output {
        status,
        stdout: said(stdout)?,
        stderr: said(stderr)?,
    })
}

/// The same with the files that the command has been given. Blocks.
///
/// # Errors
/// As above.
pub(super) fn status(command: &mut Command, limit: Duration) -> io::Result<ExitStatus> {
    let ended = wait(command.spawn()?, limit)?;
    ended.ok_or_else(|| {
        let name = command.get_program().display();
        let text = format!(
            "{name} was not over after {} s and was ended",
            limit.as_secs()
        );
        io::Error::new(io::ErrorKind::TimedOut, text)
    })
}

/// Waits until a child ends. One that does not within `limit` is killed, and then there is no status. Blocks.
pub(super) fn wait(mut child: Child, limit: Duration) -> io::Result<Option<ExitStatus>> {
    let watched = pidfd_open(Pid::from_child(&child), PidfdFlags::empty())
        .map_err(io::Error::from)
        .and_then(|pidfd| Ok((wait_readable(&pidfd, limit)?, pidfd)));
    match watched {
        Ok((true, _)) => child.wait().map(Some),
        Ok((false, pidfd)) => {
            child.kill()?;
            if wait_readable(&pidfd, KILL_LIMIT)? {
                child.wait()?;
            } else {
                // It is stuck in the kernel, and nobody else is to be.
                std::thread::spawn(move || child.wait());
            }
            Ok(None)
        }
        Err(error) => {
            child.kill()?;
            child.wait()?;
            Err(error)
        }
    }
}

/// Waits until there is something to read; for a process: until it has ended. `false` when the time is over. Blocks.
pub(super) fn wait_readable(fd: &impl AsFd, limit: Duration) -> io::Result<bool> {
    let until = monotonic_now() + limit;
    loop {
        let left = until.duration_since(monotonic_now());
        let timeout = Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: left.subsec_nanos().into(),
        };
        match poll(&mut [PollFd::new(fd, PollFlags::IN)], Some(&timeout)) {
            Ok(ready) => return Ok(ready > 0),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

fn memory() -> io::Result<File> {
    Ok(memfd_create("icebox-program", MemfdFlags::CLOEXEC)?.into())
}

fn said(mut memory: File) -> io::Result<String> {
    memory.rewind()?;
    let mut bytes = Vec::new();
    memory.take(MOST_SAID).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn a_program_reads_and_says_as_much_as_it_likes() {
        // More than any pipe holds, in both directions, and said before anything is read.
        let input = "line\n".repeat(100_000);
        let script = "head -c 300000 /dev/zero >&2; cat; exit 3";
        let output = run(&mut shell(script), &input, SHORT).expect("it runs");
        assert_eq!(output.status.code(), Some(3));
        assert_eq!(output.stdout, input);
        assert_eq!(output.stderr.len(), 300_000);
    }

    #[test]
    fn one_that_does_not_end_is_ended() {
        let limit = Duration::from_millis(50);
        let error = run(&mut shell("exec sleep 600"), "", limit).expect_err("it does not end");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(error.to_string().starts_with("sh was not over"), "{error}");
        let child = shell("exec sleep 600").spawn().expect("it starts");
        let pid = child.id();
        assert!(wait(child, limit).expect("it is waited for").is_none());
        let gone = std::path::Path::new("/proc").join(pid.to_string());
        assert!(!gone.exists(), "it is there still");
    }

    #[test]
    fn one_that_is_not_there_says_so() {
        let error = run(&mut Command::new("no-such-program"), "", SHORT);
        assert_eq!(error.expect_err("no").kind(), io::ErrorKind::NotFound);
    }
}
