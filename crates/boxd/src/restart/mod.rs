//! boxd's restart in place: it executes its own program anew, as the same process and the parent of the same commands. Owns
//! the order of it, and what is left from one to the other.
//!
//! The program may be another one: the server gives a box a newer one that way. It is tried out first, with all that it
//! would have to take over, since a box whose first process ends is lost with everything that runs in it.

pub(crate) mod gate;
mod inherited;
mod lasting;
mod left;
mod trial;

use std::convert::Infallible;
use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use icebox_wire::boxd::NEXT_PLACE;

use self::gate::Gate;
pub(crate) use self::inherited::Inherited;
pub(crate) use self::lasting::Lasting;
pub(crate) use self::trial::{COULD_TAKE_OVER, could_take_over};
use crate::args::{TAKE_OVER, TakeOver};
use crate::error::Error;

/// How long files and input that are on their way are waited for.
const QUIET_WITHIN: Duration = Duration::from_secs(10);

/// How long connections that are being answered may take to end.
pub(crate) const LAST_ANSWERS: Duration = Duration::from_secs(1);

/// The most output and input of commands that is carried over in memory, where it is twice for a moment: 64 MiB.
const MEMORY_MAX: u64 = 64 << 20;

/// Restarts boxd.
pub(crate) struct Restarter {
    lasting: Lasting,
    gate: Arc<Gate>,
    /// What is executed next.
    program: Mutex<OsString>,
}

impl Restarter {
    /// For what there is.
    pub(crate) fn new(lasting: Lasting) -> Self {
        Self {
            lasting,
            gate: Arc::new(Gate::new()),
            program: Mutex::default(),
        }
    }

    /// What goes on over a restart.
    pub(crate) fn lasting(&self) -> &Lasting {
        &self.lasting
    }

    /// Closed when boxd is about to restart.
    pub(crate) fn gate(&self) -> &Arc<Gate> {
        &self.gate
    }

    /// Sees that nothing is in the way and that the program (the next one, or the one that boxd was called by) would take over,
    /// then closes the gate; whoever waits for that goes on with [`execute`](Self::execute).
    pub(crate) async fn prepare(&self, next: bool) -> Result<(), Error> {
        let program = match next {
            // No other path: anyone in the box can ask for this.
            true => NEXT_PLACE.into(),
            false => called().map_err(Error::Restart)?,
        };
        self.gate.quiet(QUIET_WITHIN).await?;
        // From here to the end nothing is waited for, so nothing can come between.
        if self.gate.is_closed() {
            return Err(Error::Limit("boxd restarts already".to_owned()));
        }
        let in_memory = self.lasting.table.bytes_in_memory();
        if in_memory > MEMORY_MAX {
            return Err(Error::Limit(format!(
                "commands have {} MiB of input that they have not read and of output that is in memory; boxd restarts with {} at most: \
                 let some end first",
                in_memory >> 20,
                MEMORY_MAX >> 20
            )));
        }
        trial::try_out(&program, &self.lasting)?;
        *self.program() = program;
        self.gate.close();
        Ok(())
    }

    /// Becomes the program. Only comes back when that fails; everything is as it was before then.
    pub(crate) fn execute(&self) -> io::Error {
        let Err(error) = self.become_program();
        error
    }

    fn become_program(&self) -> io::Result<Infallible> {
        let mut open = self.lasting.table.descriptors();
        let file = self.lasting.leave(true)?;
        let from = TakeOver {
            left_fd: file.as_raw_fd(),
            listener_fd: self.lasting.listener.as_raw_fd(),
        };
        open.push(from.listener_fd);
        let program = self.program().clone();
        let kept_open = inherited::keep_open(&open, true);
        let failed = kept_open
            .and_then(|()| arguments(from))
            .and_then(|arguments| execute(&program, &arguments));
        inherited::keep_open(&open, false)?;
        failed
    }

    fn program(&self) -> MutexGuard<'_, OsString> {
        self.program.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Executes a program in place of this one, with the same variables. Only comes back with an error. Not by `Command`: that has
/// the C library search for it, which makes a shell run a file that is no program, and changes how signals are handled.
fn execute(program: &OsStr, arguments: &[OsString]) -> io::Result<Infallible> {
    let strings = arguments
        .iter()
        .map(|argument| CString::new(argument.clone().into_vec()))
        .collect::<Result<Vec<_>, _>>()?;
    let program = CString::new(program.as_bytes())?;
    let mut pointers: Vec<_> = strings.iter().map(|string| string.as_ptr()).collect();
    pointers.push(std::ptr::null());
    // SAFETY: the path and every argument end in NUL, the array ends in a null pointer, and all of them outlive the call.
    unsafe { libc::execv(program.as_ptr(), pointers.as_ptr()) };
    Err(io::Error::last_os_error())
}

/// The path by which boxd was called: what lies there now, not what was executed then.
fn called() -> io::Result<OsString> {
    let called = std::env::args_os().next();
    called.ok_or_else(|| io::Error::other("boxd was called without its name"))
}

/// Those it was called with, its name among them, and where everything is.
fn arguments(from: TakeOver) -> io::Result<Vec<OsString>> {
    let mut all = vec![called()?];
    let mut before = std::env::args_os().skip(1);
    while let Some(argument) = before.next() {
        if argument == TAKE_OVER {
            before.next();
        } else {
            all.push(argument);
        }
    }
    all.extend([TAKE_OVER.into(), from.to_string().into()]);
    Ok(all)
}
