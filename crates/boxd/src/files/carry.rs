//! Moving to another file system, where a rename cannot: a copy beside the destination, a rename, and only then the
//! source is removed. What fails half-way leaves the source whole.

use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::{MetadataExt as _, lchown, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, utimensat};

use super::metadata;
use super::staging::Unfinished;

/// Moves `source`, with all below it, to `destination`.
pub(crate) fn carry(source: &Path, destination: &Path) -> io::Result<()> {
    let unfinished = Unfinished {
        replaces: fs::symlink_metadata(destination).is_ok(),
    };
    let copy = destination.with_file_name(unfinished.fresh_name());
    let carried = copy_tree(source, &copy).and_then(|()| fs::rename(&copy, destination));
    if let Err(error) = carried {
        drop(remove(&copy));
        return Err(error);
    }
    remove(source)
}

fn remove(path: &Path) -> io::Result<()> {
    if fs::symlink_metadata(path)?.is_dir() {
        fs::remove_dir_all(path)
    } else {
        fs::remove_file(path)
    }
}

fn copy_tree(from: &Path, to: &Path) -> io::Result<()> {
    let mut todo: Vec<(PathBuf, PathBuf)> = vec![(from.to_owned(), to.to_owned())];
    let mut dirs = Vec::new();
    while let Some((from, to)) = todo.pop() {
        let meta = fs::symlink_metadata(&from)?;
        let kind = meta.file_type();
        if kind.is_dir() {
            fs::create_dir(&to)?;
            for child in fs::read_dir(&from)? {
                let child = child?;
                todo.push((child.path(), to.join(child.file_name())));
            }
            dirs.push((meta, to));
            continue;
        }
        if kind.is_symlink() {
            symlink(fs::read_link(&from)?, &to)?;
        } else if kind.is_file() {
            fs::copy(&from, &to)?;
            let metadata = metadata::of(&from);
            if !metadata.is_empty() {
                metadata::replace(&File::open(&to)?, &metadata)?;
            }
        } else {
            let words = format!("{} is neither file, directory nor link", from.display());
            return Err(io::Error::new(io::ErrorKind::Unsupported, words));
        }
        keep(&meta, &to)?;
    }
    // Last, because filling a directory changes it, and may need rights that its mode takes away.
    dirs.iter().rev().try_for_each(|(meta, to)| keep(meta, to))
}

/// Gives a copy the owner, mode and time of its original.
fn keep(meta: &Metadata, copy: &Path) -> io::Result<()> {
    match lchown(copy, Some(meta.uid()), Some(meta.gid())) {
        // Only root gives files away; others move what is theirs then.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
        changed => changed?,
    }
    if !meta.is_symlink() {
        // After the owner, whose change takes set-user-id bits away.
        fs::set_permissions(copy, meta.permissions())?;
    }
    let modified = Timespec {
        tv_sec: meta.mtime(),
        tv_nsec: meta.mtime_nsec(),
    };
    let times = Timestamps {
        last_access: modified,
        last_modification: modified,
    };
    utimensat(CWD, copy, &times, AtFlags::SYMLINK_NOFOLLOW)?;
    Ok(())
}
