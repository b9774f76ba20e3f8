//! boxd's ends of what it shares with a process: pipes or one pseudo terminal, read and written without blocking.
//!
//! What is read is kept by `proc`; who writes when is its business, too.

use std::cell::RefCell;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd, RawFd};
use std::sync::Arc;

use tokio::io::unix::AsyncFd;
use tokio::net::unix::pipe;

use crate::error::Error;
use crate::spawn::Ends;

/// How many bytes one read takes.
const READ_BYTES: usize = 64 * 1024;

thread_local! {
    /// One buffer for all readers: it is only used between two waits.
    static SCRATCH: RefCell<Box<[u8]>> = RefCell::new(vec![0; READ_BYTES].into_boxed_slice());
}

/// boxd's end of a pseudo terminal.
pub(crate) type Terminal = Arc<AsyncFd<OwnedFd>>;

/// What a process reads from.
pub(crate) enum Input {
    Pipe(pipe::Sender),
    Pty(Terminal),
}

/// What a process writes to.
pub(crate) enum Source {
    Pipe(pipe::Receiver),
    Pty(Terminal),
}

/// All of it, of one process.
#[derive(Default)]
pub(crate) struct Streams {
    pub(crate) input: Option<Arc<Input>>,
    pub(crate) terminal: Option<Terminal>,
    /// Standard output, or all that a terminal shows, and standard error.
    pub(crate) sources: [Option<Arc<Source>>; 2],
}

impl Streams {
    /// Those of a process that was just started.
    pub(crate) fn of_started(ends: Ends) -> Result<Self, Error> {
        match ends {
            Ends::Pipes {
                stdin,
                stdout,
                stderr,
            } => Self::of_pipes(stdin, [Some(stdout), Some(stderr)]),
            Ends::Pty(master) => Self::of_terminal(master),
        }
        .map_err(Error::Plumbing)
    }

    /// Pipes. Those that are absent are closed.
    pub(crate) fn of_pipes(
        stdin: Option<OwnedFd>,
        [stdout, stderr]: [Option<OwnedFd>; 2],
    ) -> io::Result<Self> {
        let input = stdin.map(pipe::Sender::from_owned_fd).transpose()?;
        let source = |end: Option<OwnedFd>| {
            let receiver = end.map(pipe::Receiver::from_owned_fd).transpose()?;
            io::Result::Ok(receiver.map(|pipe| Arc::new(Source::Pipe(pipe))))
        };
        Ok(Self {
            input: input.map(|pipe| Arc::new(Input::Pipe(pipe))),
            terminal: None,
            sources: [source(stdout)?, source(stderr)?],
        })
    }

    /// One pseudo terminal, which must not block.
    pub(crate) fn of_terminal(master: OwnedFd) -> io::Result<Self> {
        // SAFETY: an `OwnedFd` names one and the same descriptor until it is dropped, and nobody takes this one out of the
        // `AsyncFd`.
        let master = unsafe { AsyncFd::register(master) };
        let master = Arc::new(master.map_err(io::Error::from)?);
        Ok(Self {
            input: Some(Arc::new(Input::Pty(Arc::clone(&master)))),
            sources: [Some(Arc::new(Source::Pty(Arc::clone(&master)))), None],
            terminal: Some(master),
        })
    }
}

impl Input {
    /// Waits until something fits and writes it; returns how much it was. What was written when this is dropped is none.
    pub(crate) async fn write(&self, data: &[u8]) -> io::Result<usize> {
        loop {
            let written = match self {
                Self::Pipe(pipe) => {
                    pipe.writable().await?;
                    pipe.try_write(data)
                }
                Self::Pty(master) => {
                    let mut ready = master.writable().await?;
                    let write =
                        |master: &AsyncFd<OwnedFd>| Ok(rustix::io::write(master.get_ref(), data)?);
                    match ready.try_io(write) {
                        Ok(written) => written,
                        Err(_not_ready) => continue,
                    }
                }
            };
            match written {
                Err(error) if passes(&error) => {}
                written => return written,
            }
        }
    }

    /// Writes all of it.
    pub(crate) async fn write_all(&self, mut data: &[u8]) -> io::Result<()> {
        while !data.is_empty() {
            let written = self.write(data).await?;
            data = &data[written..];
        }
        Ok(())
    }

    /// Its descriptor, where it is no terminal's.
    pub(crate) fn pipe_fd(&self) -> Option<RawFd> {
        match self {
            Self::Pipe(pipe) => Some(pipe.as_raw_fd()),
            Self::Pty(_) => None,
        }
    }
}

impl Source {
    /// Waits for something to read and hands it to `take`; returns how much it was, zero at the end.
    pub(crate) async fn read(&self, mut take: impl FnMut(&[u8])) -> io::Result<usize> {
        loop {
            let read = match self {
                Self::Pipe(pipe) => {
                    pipe.readable().await?;
                    SCRATCH.with_borrow_mut(|buffer| {
                        pipe.try_read(buffer).inspect(|&len| take(&buffer[..len]))
                    })
                }
                Self::Pty(master) => {
                    let mut ready = master.readable().await?;
                    let read = ready.try_io(|master| {
                        SCRATCH.with_borrow_mut(|buffer| {
                            let len = rustix::io::read(master.get_ref(), &mut buffer[..])?;
                            take(&buffer[..len]);
                            Ok(len)
                        })
                    });
                    match read {
                        Ok(read) => read,
                        Err(_not_ready) => continue,
                    }
                }
            };
            match read {
                Err(error) if passes(&error) => {}
                read => return read,
            }
        }
    }

    /// Its descriptor, where it is no terminal's.
    pub(crate) fn pipe_fd(&self) -> Option<RawFd> {
        match self {
            Self::Pipe(pipe) => Some(pipe.as_raw_fd()),
            Self::Pty(_) => None,
        }
    }
}

/// Whether to try again.
fn passes(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
    )
}
