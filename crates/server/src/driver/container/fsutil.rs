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

/// Reads what the kernel shows of something; `None` when that is gone. Any other error is one: who takes what could not be
/// looked at for what is not there takes a running box for a lost one, or removes a folder through a mount.
pub(super) fn read_unless_gone(path: &Path) -> io::Result<Option<String>> {
    match fs::read(path) {
        // Names in it need not be text.
        Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
        Err(error) if is_gone(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether a process or a cgroup ended before it was read, or while it was.
fn is_gone(error: &io::Error) -> bool {
    // A zombie has no network any more, which is an invalid argument to the kernel.
    let gone = [libc::ENOENT, libc::ESRCH, libc::ENODEV, libc::EINVAL];
    error
        .raw_os_error()
        .is_some_and(|code| gone.contains(&code))
}

/// Bytes that an unprivileged writer could still store on the filesystem that holds `path`.
pub(super) fn free_bytes(path: &Path) -> io::Result<u64> {
    let stat = rustix::fs::statvfs(path)?;
    Ok(stat.f_bavail * stat.f_frsize)
}

fn parent(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_gone_is_not_there() {
        let dir = tempfile::tempdir().expect("a folder");
        let file = dir.path().join("file");
        assert_eq!(read_unless_gone(&file).expect("it is gone"), None);
        fs::write(&file, b"a\xffb\n").expect("written");
        let read = read_unless_gone(&file).expect("it is there");
        assert_eq!(read.as_deref(), Some("a\u{fffd}b\n"));
        // It cannot be looked at, and so nobody knows.
        assert!(read_unless_gone(dir.path()).is_err());
    }
}
