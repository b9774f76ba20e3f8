//! Starting a process: pipes or a pseudo terminal, a session of its own, default signals, no leaked descriptors.
//!
//! Uses `posix_spawn`, which shares boxd's memory with the child until it execs and so costs nothing for boxd's size.
//! It cannot change users, so this thread is the user meanwhile, and the child gets its credentials. Reaping and output
//! are not done here.

use std::ffi::{CStr, CString};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd as _, OwnedFd, RawFd};
use std::ptr;

use rustix::pipe::{PipeFlags, pipe_with};
use rustix::pty::OpenptFlags;
use rustix::termios::Winsize;

use crate::error::Error;
use crate::launch::Launch;
use crate::turned::Turned;

/// How a process talks to boxd.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Wiring {
    /// Separate pipes for its output, and for its input if it gets any.
    Pipes {
        /// False: it reads `/dev/null`.
        stdin: bool,
    },
    /// One pseudo terminal.
    Pty(Winsize),
}

/// A started process and boxd's ends of its wiring, all close-on-exec.
#[derive(Debug)]
pub(crate) struct Started {
    pub(crate) pid: i32,
    pub(crate) ends: Ends,
}

/// boxd's ends.
#[derive(Debug)]
pub(crate) enum Ends {
    /// Of pipes.
    Pipes {
        stdin: Option<OwnedFd>,
        stdout: OwnedFd,
        stderr: OwnedFd,
    },
    /// Of a pseudo terminal, non-blocking.
    Pty(OwnedFd),
}

/// Starts `launch` as the leader of a new session. Blocks until it has execed, well under a millisecond.
pub(crate) fn spawn(launch: &Launch, wiring: Wiring) -> Result<Started, Error> {
    let failed = |source| Error::Spawn {
        program: launch.program.to_string_lossy().into_owned(),
        source,
    };
    let mut actions = Actions::new().map_err(failed)?;
    actions.chdir(&launch.cwd).map_err(failed)?;
    let (ends, _child_ends) = match wiring {
        Wiring::Pipes { stdin } => pipes(&mut actions, stdin),
        Wiring::Pty(size) => pty(&mut actions, size, launch),
    }
    .map_err(Error::Plumbing)?;
    actions.close_from(3).map_err(failed)?;
    let _turns_back = become_user(launch)?;
    let pid = actions.run(launch).map_err(failed)?;
    Ok(Started { pid, ends })
}

/// Becomes the user of `launch` where that is not root, and makes sure that the user may be where it starts.
fn become_user(launch: &Launch) -> Result<Option<Turned>, Error> {
    let user = &launch.user;
    if user.uid == 0 {
        return Ok(None);
    }
    let turned = Turned::for_programs(user).map_err(Error::ActAs)?;
    if rustix::fs::access(&launch.cwd, rustix::fs::Access::EXEC_OK).is_err() {
        return Err(Error::ClosedCwd {
            cwd: launch.cwd.to_string_lossy().into_owned(),
            user: user.name.clone(),
        });
    }
    Ok(Some(turned))
}

/// Pipes, and the child's ends, which must stay open until the child has its copies.
fn pipes(actions: &mut Actions, stdin: bool) -> io::Result<(Ends, Vec<OwnedFd>)> {
    let mut keep = Vec::with_capacity(3);
    let stdin = if stdin {
        let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
        actions.dup(read.as_raw_fd(), 0)?;
        keep.push(read);
        Some(write)
    } else {
        actions.open(0, c"/dev/null", libc::O_RDONLY)?;
        None
    };
    let (stdout, write_out) = pipe_with(PipeFlags::CLOEXEC)?;
    let (stderr, write_err) = pipe_with(PipeFlags::CLOEXEC)?;
    actions.dup(write_out.as_raw_fd(), 1)?;
    actions.dup(write_err.as_raw_fd(), 2)?;
    keep.extend([write_out, write_err]);
    Ok((
        Ends::Pipes {
            stdin,
            stdout,
            stderr,
        },
        keep,
    ))
}

/// A pseudo terminal. The child opens it by path: a session leader without a terminal gets it as its own that way.
fn pty(actions: &mut Actions, size: Winsize, launch: &Launch) -> io::Result<(Ends, Vec<OwnedFd>)> {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let master = rustix::pty::openpt(flags)?;
    rustix::io::ioctl_fionbio(&master, true)?;
    rustix::pty::grantpt(&master)?;
    rustix::pty::unlockpt(&master)?;
    rustix::termios::tcsetwinsize(&master, size)?;
    let name = rustix::pty::ptsname(&master, Vec::new())?;
    if launch.user.uid != 0 {
        let owner = rustix::fs::Uid::from_raw(launch.user.uid);
        rustix::fs::chown(&name, Some(owner), None)?;
    }
    actions.open(0, &name, libc::O_RDWR)?;
    actions.dup(0, 1)?;
    actions.dup(0, 2)?;
    Ok((Ends::Pty(master), Vec::new()))
}

/// `posix_spawn`'s file actions. Strings given to it are copied by the C library.
struct Actions(Box<libc::posix_spawn_file_actions_t>);

impl Actions {
    fn new() -> io::Result<Self> {
        let mut raw = Box::new(MaybeUninit::<libc::posix_spawn_file_actions_t>::uninit());
        // SAFETY: the pointer is to writable memory of the right type, which the call initialises.
        check(unsafe { libc::posix_spawn_file_actions_init(raw.as_mut_ptr()) })?;
        // SAFETY: the call above succeeded, so the value is initialised.
        Ok(Self(unsafe { raw.assume_init() }))
    }

    fn dup(&mut self, from: RawFd, to: RawFd) -> io::Result<()> {
        // SAFETY: `self.0` is initialised; descriptors are plain numbers here.
        check(unsafe { libc::posix_spawn_file_actions_adddup2(&raw mut *self.0, from, to) })
    }

    fn open(&mut self, fd: RawFd, path: &CStr, flags: i32) -> io::Result<()> {
        // SAFETY: `self.0` is initialised and `path` ends in NUL.
        check(unsafe {
            libc::posix_spawn_file_actions_addopen(&raw mut *self.0, fd, path.as_ptr(), flags, 0)
        })
    }

    fn chdir(&mut self, path: &CStr) -> io::Result<()> {
        // SAFETY: `self.0` is initialised and `path` ends in NUL.
        check(unsafe {
            libc::posix_spawn_file_actions_addchdir_np(&raw mut *self.0, path.as_ptr())
        })
    }

    fn close_from(&mut self, fd: RawFd) -> io::Result<()> {
        // SAFETY: `self.0` is initialised.
        check(unsafe { libc::posix_spawn_file_actions_addclosefrom_np(&raw mut *self.0, fd) })
    }

    fn run(&self, launch: &Launch) -> io::Result<i32> {
        let attributes = Attributes::new()?;
        let args = pointers(&launch.args);
        let env = pointers(&launch.env);
        let mut pid = 0;
        // SAFETY: all structures are initialised; both arrays end in a null pointer and outlive the call, as do the
        // strings they point to.
        check(unsafe {
            libc::posix_spawn(
                &raw mut pid,
                launch.program.as_ptr(),
                &raw const *self.0,
                &raw const attributes.0,
                args.as_ptr(),
                env.as_ptr(),
            )
        })?;
        Ok(pid)
    }
}

impl Drop for Actions {
    fn drop(&mut self) {
        // SAFETY: initialised in `new` and destroyed once.
        unsafe { libc::posix_spawn_file_actions_destroy(&raw mut *self.0) };
    }
}

/// A new session, every signal at its default, none blocked.
struct Attributes(libc::posix_spawnattr_t);

impl Attributes {
    fn new() -> io::Result<Self> {
        let mut raw = MaybeUninit::uninit();
        let mut none = MaybeUninit::uninit();
        let mut all = MaybeUninit::<libc::sigset_t>::uninit();
        let flags = libc::POSIX_SPAWN_SETSIGMASK | libc::POSIX_SPAWN_SETSIGDEF;
        let flags =
            libc::c_short::try_from(flags).map_err(io::Error::other)? | libc::POSIX_SPAWN_SETSID;
        // SAFETY: every pointer is to writable memory of the right type; each value is initialised by the first call
        // that takes it and only read by later ones.
        unsafe {
            check(libc::posix_spawnattr_init(raw.as_mut_ptr()))?;
            let mut attributes = Self(raw.assume_init());
            libc::sigemptyset(none.as_mut_ptr());
            // Not `sigfillset`: it leaves out the two signals the C library keeps for itself, which it would then set
            // to ignored in the child.
            ptr::write_bytes(all.as_mut_ptr(), 0xff, 1);
            check(libc::posix_spawnattr_setsigmask(
                &raw mut attributes.0,
                none.as_ptr(),
            ))?;
            check(libc::posix_spawnattr_setsigdefault(
                &raw mut attributes.0,
                all.as_ptr(),
            ))?;
            check(libc::posix_spawnattr_setflags(&raw mut attributes.0, flags))?;
            Ok(attributes)
        }
    }
}

impl Drop for Attributes {
    fn drop(&mut self) {
        // SAFETY: initialised in `new` and destroyed once.
        unsafe { libc::posix_spawnattr_destroy(&raw mut self.0) };
    }
}

fn pointers(strings: &[CString]) -> Vec<*mut libc::c_char> {
    strings
        .iter()
        .map(|string| string.as_ptr().cast_mut())
        .chain([ptr::null_mut()])
        .collect()
}

/// These calls return their errno.
fn check(errno: i32) -> io::Result<()> {
    if errno == 0 {
        Ok(())
    } else {
        Err(io::Error::from_raw_os_error(errno))
    }
}
