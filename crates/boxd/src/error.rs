//! What can go wrong with a call, in words for its caller, and the Connect code each becomes.

use std::io;
use std::path::Path;

use connectrpc::{ConnectError, ErrorCode};

/// A call boxd could not carry out.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// A chosen id that is not one.
    #[error("exec_id must be 16 lowercase hex digits, got {0:?}")]
    BadExecId(String),
    /// No such process, running or kept.
    #[error(
        "no process {0} here: it never ran, or its record is gone (the newest 200 ended ones are kept)"
    )]
    NoProc(String),
    /// The id ran once, so it must not run again, but its result is gone.
    #[error(
        "exec_id {0} ran before and its result is no longer kept; use a new id to run the command again"
    )]
    Evicted(String),
    /// Not in `/etc/passwd`.
    #[error("there is no user {0:?} in /etc/passwd of this box")]
    NoUser(String),
    /// The working directory is missing or something else.
    #[error("cwd {0:?} is not a directory in this box")]
    NoCwd(String),
    /// The working directory is closed to the user.
    #[error("the user {user:?} may not enter {cwd:?}; choose another cwd or user")]
    ClosedCwd {
        /// The directory.
        cwd: String,
        /// The user's name.
        user: String,
    },
    /// The program is missing or not executable.
    #[error("no executable program {0:?} in this box")]
    NoProgram(String),
    /// A string that no program can be given.
    #[error("{0} contains a NUL byte, which no program can be given")]
    NulByte(&'static str),
    /// One string is larger than the kernel takes.
    #[error(
        "{what} is {len} bytes; at most {max} fit: put a long script into a file or send it on stdin"
    )]
    TooLong {
        /// Which string.
        what: &'static str,
        /// Its length.
        len: usize,
        /// The longest that fits.
        max: usize,
    },
    /// Something a request may not leave out or exceed.
    #[error("{0}")]
    BadRequest(String),
    /// The process is in no state for this call.
    #[error("{0}")]
    NotNow(&'static str),
    /// Too much runs already.
    #[error("{0} processes run already, which is the most boxd starts; stop some first")]
    TooMany(usize),
    /// The kernel refused to start it.
    #[error("cannot start {program:?}")]
    Spawn {
        /// The program's path.
        program: String,
        /// Why.
        source: io::Error,
    },
    /// Pipes or the pseudo terminal could not be made.
    #[error("cannot open pipes or a terminal for the process")]
    Plumbing(#[source] io::Error),
    /// Kept output could not be read back.
    #[error("cannot read kept output")]
    ReadOutput(#[source] io::Error),
    /// Input could not be delivered.
    #[error("the process does not take input any more")]
    WriteInput(#[source] io::Error),
    /// Settings could not be written down.
    #[error("cannot keep the settings")]
    KeepSettings(#[source] io::Error),
    /// A helper thread could not take on a user.
    #[error("cannot act as the user")]
    ActAs(#[source] io::Error),
    /// Something with a file went wrong.
    #[error("cannot {what} {path}")]
    File {
        /// What was being done.
        what: &'static str,
        /// To which file.
        path: String,
        /// Why.
        source: io::Error,
    },
    /// An upload ended before its end.
    #[error("the upload broke off; nothing of it was kept")]
    Abandoned,
    /// What was to be made is there.
    #[error("{0} exists already")]
    Exists(String),
    /// Not the id of a watcher.
    #[error("there is no watcher {0:?}")]
    NoWatcher(String),
    /// A limit of boxd's own.
    #[error("{0}")]
    Limit(String),
    /// The program would not go on where this one stops.
    #[error("the new boxd would not take over: {0}")]
    NoTakeOver(String),
    /// boxd itself could not get ready for its restart.
    #[error("boxd cannot restart")]
    Restart(#[source] io::Error),
    /// A signal could not be sent.
    #[error("cannot signal the process")]
    Signal(#[source] io::Error),
}

impl Error {
    /// For `map_err`: `what` could not be done to `path`.
    pub(crate) fn file<E: Into<io::Error>>(
        what: &'static str,
        path: &Path,
    ) -> impl FnOnce(E) -> Self {
        let path = path.to_string_lossy().into_owned();
        move |source| Self::File {
            what,
            path,
            source: source.into(),
        }
    }

    /// All of it in one line.
    pub(crate) fn words(&self) -> String {
        match std::error::Error::source(self) {
            Some(source) => format!("{self}: {source}"),
            None => self.to_string(),
        }
    }

    /// The Connect code for it.
    pub(crate) fn code(&self) -> ErrorCode {
        match self {
            Self::NoProc(_) | Self::NoWatcher(_) => ErrorCode::NotFound,
            Self::Evicted(_) | Self::NotNow(_) | Self::WriteInput(_) | Self::NoTakeOver(_) => {
                ErrorCode::FailedPrecondition
            }
            Self::BadExecId(_)
            | Self::NoUser(_)
            | Self::NoCwd(_)
            | Self::ClosedCwd { .. }
            | Self::NoProgram(_)
            | Self::NulByte(_)
            | Self::TooLong { .. }
            | Self::Abandoned
            | Self::BadRequest(_) => ErrorCode::InvalidArgument,
            Self::TooMany(_) | Self::Limit(_) => ErrorCode::ResourceExhausted,
            Self::File { source, .. } => file_code(source),
            Self::Exists(_) => ErrorCode::AlreadyExists,
            Self::Spawn { source, .. } => spawn_code(source),
            Self::Plumbing(_)
            | Self::ReadOutput(_)
            | Self::KeepSettings(_)
            | Self::ActAs(_)
            | Self::Restart(_)
            | Self::Signal(_) => ErrorCode::Internal,
        }
    }
}

/// What a failed file operation means to its caller, by its errno.
fn file_code(source: &io::Error) -> ErrorCode {
    if source.kind() == io::ErrorKind::Unsupported {
        return ErrorCode::InvalidArgument;
    }
    match source.raw_os_error() {
        Some(libc::ENOENT) => ErrorCode::NotFound,
        Some(libc::EACCES | libc::EPERM | libc::EROFS) => ErrorCode::PermissionDenied,
        Some(libc::EEXIST) => ErrorCode::AlreadyExists,
        Some(
            libc::ENOTDIR
            | libc::EISDIR
            | libc::EINVAL
            | libc::ELOOP
            | libc::ENAMETOOLONG
            | libc::ENXIO
            | libc::EOPNOTSUPP,
        ) => ErrorCode::InvalidArgument,
        Some(libc::ENOTEMPTY | libc::EBUSY | libc::ETXTBSY | libc::EXDEV) => {
            ErrorCode::FailedPrecondition
        }
        Some(
            libc::ENOSPC | libc::EDQUOT | libc::EFBIG | libc::ENOMEM | libc::EMFILE | libc::ENFILE,
        ) => ErrorCode::ResourceExhausted,
        _ => ErrorCode::Internal,
    }
}

/// Whose fault a failed start is, by its errno.
fn spawn_code(source: &io::Error) -> ErrorCode {
    match source.raw_os_error() {
        Some(
            libc::E2BIG
            | libc::EACCES
            | libc::ENOENT
            | libc::ENOEXEC
            | libc::ENOTDIR
            | libc::EISDIR
            | libc::ELOOP,
        ) => ErrorCode::InvalidArgument,
        Some(libc::EAGAIN | libc::ENOMEM | libc::EMFILE | libc::ENFILE) => {
            ErrorCode::ResourceExhausted
        }
        _ => ErrorCode::Internal,
    }
}

impl From<Error> for ConnectError {
    fn from(error: Error) -> Self {
        Self::new(error.code(), error.words())
    }
}
