//! Small file work that has to survive a power cut: atomic writes, fsync of folders, whole-tree removal.
//! Every fsync goes through here and is told to the step trace, so that tests can assert their order.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::steps;

/// Writes a file so that after a crash either the old or the new content is there, whole.
pub(super) fn write_atomic(path: &Path, content: &[u8]) -> io::Result<()> {
    // Another server, or another thread, may be writing the same file.
    static WRITES: AtomicU64 = AtomicU64::new(0);
    let number = WRITES.fetch_add(1, Ordering::Relaxed);
    let tmp = path.with_extension(format!("tmp-{}-{number}", std::process::id()));
    let mut file = File::create(&tmp)?;
    file.write_all(content)?;
    sync_file(&file, &tmp)?;
    fs::rename(&tmp, path)?;
    sync_dir(parent(path))
}

/// Makes an open file's content durable.
pub(super) fn sync_file(file: &File, path: &Path) -> io::Result<()> {
    file.sync_all()?;
    steps::trace("fsync", path);
    Ok(())
}

/// Makes the entries of a folder durable.
pub(super) fn sync_dir(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()?;
    steps::trace("fsync-dir", path);
    Ok(())
}

/// Makes everything on the filesystem that holds `path` durable.
pub(super) fn sync_filesystem(path: &Path) -> io::Result<()> {
    let dir = File::open(path)?;
    rustix::fs::syncfs(dir.as_fd())?;
    steps::trace("syncfs", path);
    Ok(())
}

/// Renames and makes the new name durable.
pub(super) fn rename_durably(from: &Path, to: &Path) -> io::Result<()> {
    fs::rename(from, to)?;
    steps::trace("rename", to);
    sync_dir(parent(to))
}

/// Removes a tree; nothing there is fine.
pub(super) fn remove_tree(path: &Path) -> io::Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Removes a file; nothing there is fine.
pub(super) fn remove_file(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Bytes that an unprivileged writer could still store on the filesystem that holds `path`.
pub(super) fn free_bytes(path: &Path) -> io::Result<u64> {
    let stat = rustix::fs::statvfs(path)?;
    Ok(stat.f_bavail * stat.f_frsize)
}

fn parent(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new("/"))
}
