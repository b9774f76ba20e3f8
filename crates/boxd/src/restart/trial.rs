//! Whether a program could go on where this boxd stops: it is asked, before there is no way back.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read as _, Seek as _};
use std::os::fd::{AsRawFd as _, RawFd};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use icebox_wire::boxd::TAKES_OVER;
use rustix::fs::{MemfdFlags, memfd_create};

use super::inherited::take;
use super::lasting::Lasting;
use super::left::Left;
use crate::clock;
use crate::error::Error;

/// Asks a boxd whether it could take over what lies behind a descriptor.
pub(crate) const COULD_TAKE_OVER: &str = "--could-take-over";

/// How long the program may take to look.
const LIMIT: Duration = Duration::from_secs(5);

/// How often it is looked whether it has.
const LOOK: Duration = Duration::from_millis(1);

/// How much is read of what it says.
const SAID_BYTES: u64 = 1024;

/// Whether this boxd could go on with what lies behind the descriptor; an error says why not.
pub(crate) fn could_take_over(fd: RawFd) -> io::Result<()> {
    let mut left = Left::open(File::from(take(fd)?))?;
    while left.process()?.is_some() {}
    Ok(())
}

/// Has the program look at what it would take over. Blocks: nothing may change meanwhile, and nobody else may reap it.
pub(super) fn try_out(program: &OsStr, lasting: &Lasting) -> Result<(), Error> {
    let file = lasting.leave(false).map_err(Error::Restart)?;
    let said = memfd_create("boxd-said", MemfdFlags::CLOEXEC);
    let said = said
        .map(File::from)
        .map_err(|errno| Error::Restart(errno.into()))?;
    let [stdout, stderr] = [said.try_clone(), said.try_clone()];
    let child = Command::new(program)
        .arg(COULD_TAKE_OVER)
        .arg(file.as_raw_fd().to_string())
        .stdin(Stdio::null())
        .stdout(stdout.map_err(Error::Restart)?)
        .stderr(stderr.map_err(Error::Restart)?)
        .spawn();
    let mut child = child.map_err(|error| Error::NoTakeOver(error.to_string()))?;
    match ended(&mut child).map_err(Error::Restart)? {
        Some(status) => {
            let said = text(said);
            // Any program may end well; only a boxd says this.
            if status.success() && said == TAKES_OVER {
                return Ok(());
            }
            let line = said.lines().next().unwrap_or("it said nothing");
            Err(Error::NoTakeOver(format!("{status}: {line}")))
        }
        None => {
            let limit = LIMIT.as_secs();
            Err(Error::NoTakeOver(format!("no answer for {limit} s")))
        }
    }
}

/// How it ended; `None` when it did not in time, and was ended.
fn ended(child: &mut Child) -> io::Result<Option<ExitStatus>> {
    let began = clock::now();
    while began.elapsed() < LIMIT {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        std::thread::sleep(LOOK);
    }
    child.kill()?;
    child.wait()?;
    Ok(None)
}

/// The beginning of what it said.
fn text(mut said: File) -> String {
    let mut bytes = Vec::new();
    let read = said
        .rewind()
        .and_then(|()| said.take(SAID_BYTES).read_to_end(&mut bytes));
    // What cannot be read is not there to be told.
    drop(read);
    String::from_utf8_lossy(&bytes).into_owned()
}
