//! Reaching the places in the box that a call may name without ever leaving them: every path is resolved by the kernel
//! below a folder that is open already, so no `..` and no link leads out, whatever a program in the box does meanwhile.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use icebox_wire::place;
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, mkdirat, openat, openat2};
use rustix::io::Errno;

use super::Error;

/// The places that a call may name.
#[derive(Clone)]
pub(crate) struct Roots {
    work_dir: Arc<Path>,
}

impl Roots {
    pub(super) fn new(work_dir: PathBuf) -> Self {
        Self {
            work_dir: work_dir.into(),
        }
    }

    /// The working directory.
    pub(super) fn work_dir(&self) -> &Path {
        &self.work_dir
    }

    /// The folder in which a path lies that may be named, and the rest of it.
    pub(super) fn locate(&self, path: &str) -> Result<(PathBuf, PathBuf), Error> {
        place::locate(&self.work_dir, path).map_err(Error::Bad)
    }

    /// Like [`Roots::locate`], for a file that is to be written.
    pub(super) fn locate_file(&self, path: &str) -> Result<(PathBuf, PathBuf), Error> {
        place::locate_file(&self.work_dir, path).map_err(Error::Bad)
    }

    /// The folder that an archive is merged into, relative to the working directory.
    pub(super) fn destination(&self, dest: &str) -> Result<PathBuf, Error> {
        place::destination(&self.work_dir, dest).map_err(Error::Bad)
    }
}

/// A path in words.
pub(super) fn shown(path: &Path) -> String {
    let text = String::from_utf8_lossy(path.as_os_str().as_bytes());
    text.chars().take(200).collect()
}

/// Opens a folder by its whole path, without looking below.
pub(super) fn root(path: &Path) -> Result<OwnedFd, Error> {
    let flags = OFlags::DIRECTORY | OFlags::PATH | OFlags::CLOEXEC;
    openat(CWD, path, flags, Mode::empty())
        .map_err(|error| Error::failed(format!("cannot open {}", shown(path)))(error.into()))
}

/// Opens what is at `path` below `root`, which must not lead out of it.
pub(super) fn open(root: impl AsFd, path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    let path = if path.as_os_str().is_empty() {
        Path::new(".")
    } else {
        path
    };
    let flags = flags | OFlags::CLOEXEC;
    openat2(root, path, flags, Mode::empty(), ResolveFlags::BENEATH)
}

/// Opens a folder below `root`, if it is there.
pub(super) fn folder(root: impl AsFd, path: &Path) -> Result<Option<OwnedFd>, Error> {
    match open(root, path, OFlags::DIRECTORY | OFlags::PATH) {
        Ok(folder) => Ok(Some(folder)),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(refused(path, error)),
    }
}

/// Opens a folder below `root`, and makes it with those above it if it is not there.
pub(super) fn made_folder(root: impl AsFd, path: &Path) -> Result<OwnedFd, Error> {
    let root = root.as_fd();
    if let Some(folder) = folder(root, path)? {
        return Ok(folder);
    }
    let (above, name) = split(path);
    let parent = made_folder(root, above)?;
    match mkdirat(&parent, name, Mode::from_raw_mode(0o755)) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(error) => {
            let what = format!("cannot make the folder {}", shown(path));
            return Err(Error::failed(what)(error.into()));
        }
    }
    let made = open(root, path, OFlags::DIRECTORY | OFlags::PATH);
    made.map_err(|error| refused(path, error))
}

/// The folder and the name of a path that is not empty.
pub(super) fn split(path: &Path) -> (&Path, &OsStr) {
    let above = path.parent().unwrap_or(Path::new(""));
    (above, path.file_name().unwrap_or_default())
}

/// What the kernel did not let pass, in words.
pub(super) fn refused(path: &Path, error: Errno) -> Error {
    let path = shown(path);
    if error == Errno::XDEV || error == Errno::LOOP {
        return Error::bad(format!("`{path}` leads out of the folder by a link"));
    }
    if error == Errno::NOTDIR {
        return Error::bad(format!("a folder of `{path}` is a file in the box"));
    }
    if error == Errno::NAMETOOLONG {
        return Error::bad(format!("`{path}` has a name longer than 255 bytes"));
    }
    if error == Errno::NOENT {
        return Error::Missing(format!("there is no `{path}` in the box"));
    }
    Error::failed(format!("cannot open {path}"))(io::Error::from(error))
}
