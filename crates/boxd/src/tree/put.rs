//! Taking one file in, in one step: whoever reads it sees the old one or the new one, whole.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use rustix::fs::{AtFlags, Mode, OFlags, openat, renameat, statat, unlinkat};
use rustix::io::Errno;

use super::Error;
use super::place::{self, Roots, made_folder, shown, split};
use crate::id;

/// The largest file, in bytes.
const FILE: u64 = 16 << 30;
/// The permissions of a file that is new.
const NEW: Mode = Mode::from_raw_mode(0o644);

/// Writes the file at `path`, and makes the folders above it.
pub(super) fn put(roots: &Roots, path: &str, content: impl Read) -> Result<(), Error> {
    let (root, path) = roots.locate_file(path)?;
    let (above, name) = split(&path);
    let above = made_folder(place::root(&root)?, above)?;
    let mode = match statat(&above, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(found) if rustix::fs::FileType::from_raw_mode(found.st_mode).is_dir() => {
            return Err(Error::bad(format!("`{}` is a folder", shown(&path))));
        }
        // A script stays one that can be run.
        Ok(found) if rustix::fs::FileType::from_raw_mode(found.st_mode).is_file() => {
            Mode::from_raw_mode(found.st_mode) & Mode::from_raw_mode(0o777)
        }
        Ok(_) | Err(_) => NEW,
    };
    let failed = |error: io::Error| Error::failed(format!("cannot write {}", shown(&path)))(error);
    let new = format!(".icebox-{:016x}", id::random());
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let file = openat(&above, &new, flags, mode).map_err(|error| failed(error.into()))?;
    let written = write(file.into(), content, mode, &path).and_then(|()| {
        renameat(&above, &new, &above, name).map_err(|error: Errno| failed(error.into()))
    });
    if written.is_err() {
        // The old file is as it was; what cannot be removed now is found by its name.
        let _ = unlinkat(&above, Path::new(&new), AtFlags::empty());
    }
    written
}

fn write(mut file: File, content: impl Read, mode: Mode, path: &Path) -> Result<(), Error> {
    let copied = io::copy(&mut content.take(FILE + 1), &mut file);
    let copied = copied.map_err(Error::failed(format!("cannot write {}", shown(path))))?;
    if copied > FILE {
        return Err(Error::TooLarge(format!(
            "a file may have at most {FILE} bytes"
        )));
    }
    let set = rustix::fs::fchmod(&file, mode);
    set.map_err(|error| Error::failed(format!("cannot write {}", shown(path)))(error.into()))
}
