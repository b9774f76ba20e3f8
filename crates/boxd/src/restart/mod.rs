//! boxd's restart in place: it executes its own program anew, as the same process and the parent of the same commands. Owns
//! the order of it, and what is left from one to the other.
//!
//! The program may be another one: the server gives a box a newer one that way. It is tried out first, with all that it
//! would have to take over, since a box whose first process ends is lost with everything that runs in it.

pub(crate) mod gate;
mod inherited;

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read as _, Seek as _, Write as _};
use std::net::TcpListener;
use std::os::fd::{AsRawFd as _, RawFd};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use buffa::Message as _;
use icebox_wire::handover::Handover;
use rustix::fs::{MemfdFlags, memfd_create};

use self::gate::Gate;
pub(crate) use self::inherited::Inherited;
use crate::args::{Args, TAKE_OVER};
use crate::clock;
use crate::error::Error;
use crate::files::Watchers;
use crate::life::Life;
use crate::table::Table;

/// The newest form of what is left that this boxd knows.
const FORMAT: u32 = 1;

/// How long files that are on their way are waited for.
const QUIET_WITHIN: Duration = Duration::from_secs(10);

/// How long the program may take to look at what it would take over.
const TRIAL: Duration = Duration::from_secs(5);

/// How often it is looked whether it has.
const LOOK: Duration = Duration::from_millis(1);

/// How long connections that are being answered may take to end.
pub(crate) const LAST_ANSWERS: Duration = Duration::from_secs(1);

/// Asks a boxd whether it could take over what lies behind a descriptor.
pub(crate) const COULD_TAKE_OVER: &str = "--could-take-over";

/// Everything that goes on over a restart.
pub(crate) struct Kept {
    pub(crate) listener: TcpListener,
    pub(crate) table: Arc<Table>,
    pub(crate) life: Arc<Life>,
    pub(crate) watchers: Arc<Watchers>,
}

impl Kept {
    /// Of a boxd that starts.
    pub(crate) fn begin(args: &Args) -> io::Result<Self> {
        Ok(Self {
            table: Table::new(&args.state_dir, args.output_cap_bytes),
            life: Arc::new(Life::new()),
            watchers: Arc::default(),
            listener: listen(args)?,
        })
    }

    /// Of one that goes on where the boxd before it stopped. Nothing but a port that is taken keeps it from going on.
    pub(crate) fn take_over(args: &Args, fd: RawFd) -> io::Result<Self> {
        let mut handover = inherited::take_file(fd)
            .and_then(read)
            .unwrap_or_else(|error| {
                eprintln!("boxd: cannot read what the one before left: {error}");
                Handover::default()
            });
        let mut inherited = Inherited::of(&handover);
        let listener = inherited.take(handover.listener_fd).map(TcpListener::from);
        let (dir, cap) = (&args.state_dir, args.output_cap_bytes);
        Ok(Self {
            listener: listener.or_else(|_| listen(args))?,
            table: Table::take_over(dir, cap, &mut handover, &mut inherited),
            life: Arc::new(Life::take_over(&handover)),
            watchers: Arc::new(Watchers::take_over(&mut handover)),
        })
    }

    fn leave(&self) -> Handover {
        let mut handover = Handover {
            format: FORMAT,
            listener_fd: self.listener.as_raw_fd(),
            ..Default::default()
        };
        self.table.leave(&mut handover);
        self.life.leave(&mut handover);
        self.watchers.leave(&mut handover);
        handover
    }
}

fn listen(args: &Args) -> io::Result<TcpListener> {
    let listener = TcpListener::bind(args.listen)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Restarts boxd.
pub(crate) struct Restarter {
    kept: Kept,
    gate: Arc<Gate>,
    /// What is executed next.
    program: Mutex<OsString>,
}

impl Restarter {
    /// For what there is.
    pub(crate) fn new(kept: Kept) -> Self {
        Self {
            kept,
            gate: Arc::new(Gate::new()),
            program: Mutex::default(),
        }
    }

    /// What goes on over a restart.
    pub(crate) fn kept(&self) -> &Kept {
        &self.kept
    }

    /// Closed when boxd is about to restart.
    pub(crate) fn gate(&self) -> &Arc<Gate> {
        &self.gate
    }

    /// Sees that nothing is in the way and that the program would take over (the one boxd was called by, without another), then
    /// closes the gate; whoever waits for that goes on with [`execute`](Self::execute).
    pub(crate) async fn prepare(&self, program: Option<&str>) -> Result<(), Error> {
        let program = program.map_or_else(called, |other| Ok(other.into()));
        let program = program.map_err(failed)?;
        self.gate.quiet(QUIET_WITHIN).await?;
        // From here to the end nothing is waited for, so nothing can come between.
        let file = write(&self.kept.leave()).map_err(failed)?;
        try_out(&program, &file)?;
        *self.program() = program;
        self.gate.close();
        Ok(())
    }

    /// Becomes the program. Only comes back when that fails; all is as it was before then.
    pub(crate) fn execute(&self) -> io::Error {
        let handover = self.kept.leave();
        let file = match write(&handover) {
            Ok(file) => file,
            Err(error) => return error,
        };
        let error = match inherited::leave_open(&handover) {
            Ok(()) => Command::new(&*self.program())
                .args(arguments())
                .arg(TAKE_OVER)
                .arg(file.as_raw_fd().to_string())
                .exec(),
            Err(error) => error,
        };
        inherited::close_on_exec(&handover);
        error
    }

    fn program(&self) -> MutexGuard<'_, OsString> {
        self.program.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether this boxd could go on with what lies behind the descriptor; an error says why not.
pub(crate) fn could_take_over(fd: RawFd) -> io::Result<()> {
    inherited::take_file(fd).and_then(read).map(drop)
}

/// Writes what is left into an anonymous file, which is not closed by an exec.
fn write(handover: &Handover) -> io::Result<File> {
    let mut file = File::from(memfd_create("boxd", MemfdFlags::empty())?);
    file.write_all(&handover.encode_to_vec())?;
    Ok(file)
}

fn read(mut file: File) -> io::Result<Handover> {
    let mut bytes = Vec::new();
    file.rewind()?;
    file.read_to_end(&mut bytes)?;
    let handover = Handover::decode_from_slice(&bytes).map_err(io::Error::other)?;
    if handover.format == 0 || handover.format > FORMAT {
        return Err(io::Error::other(format!(
            "it has the form {}, and this boxd knows forms up to {FORMAT}",
            handover.format
        )));
    }
    Ok(handover)
}

/// Has the program look at what it would take over. Blocks: nothing may change meanwhile, and nobody else may reap it.
fn try_out(program: &OsStr, file: &File) -> Result<(), Error> {
    let mut child = Command::new(program)
        .arg(COULD_TAKE_OVER)
        .arg(file.as_raw_fd().to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    let began = clock::now();
    let status = loop {
        if let Some(status) = child.try_wait().map_err(failed)? {
            break status;
        }
        if began.elapsed() > TRIAL {
            child.kill().and_then(|()| child.wait()).map_err(failed)?;
            let limit = TRIAL.as_secs();
            return Err(Error::NoTakeOver(format!(
                "it has not answered for {limit} s"
            )));
        }
        std::thread::sleep(LOOK);
    };
    if status.success() {
        return Ok(());
    }
    let mut said = String::new();
    if let Some(mut stderr) = child.stderr {
        // What cannot be read is not there to be told.
        drop(stderr.read_to_string(&mut said));
    }
    let line = said.lines().next().unwrap_or("it gave no reason");
    Err(Error::NoTakeOver(format!("{status}: {line}")))
}

fn failed(error: io::Error) -> Error {
    Error::NoTakeOver(error.to_string())
}

/// The path by which boxd was called: what lies there now, not what was executed then.
fn called() -> io::Result<OsString> {
    let called = std::env::args_os().next();
    called.ok_or_else(|| io::Error::other("boxd was called without its name"))
}

/// Those it was called with, apart from what the one before left.
fn arguments() -> Vec<OsString> {
    let mut kept = Vec::new();
    let mut arguments = std::env::args_os().skip(1);
    while let Some(argument) = arguments.next() {
        if argument == TAKE_OVER {
            arguments.next();
        } else {
            kept.push(argument);
        }
    }
    kept
}
