//! Small file work that has to survive a power cut: atomic writes, fsync of folders, whole-tree removal.
//! Every fsync goes through here and is told to the step trace, so that tests can assert their order.

use std::fs::{self, DirEntry, File};
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

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

/// Locks a file or a folder for whoever else does so, of whichever server on this machine, until it is dropped. Blocks.
pub(super) fn lock(path: &Path) -> io::Result<File> {
    let file = File::open(path)?;
    loop {
        match flock(&file, FlockOperation::LockExclusive) {
            Ok(()) => return Ok(file),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
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

/// What is in a folder; nothing when it is not there.
pub(super) fn entries(dir: &Path) -> io::Result<Vec<DirEntry>> {
    match fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        entries => entries?.collect(),
    }
}

/// What is said of a name that nothing has.
const ABSENT: [io::ErrorKind; 2] = [io::ErrorKind::NotFound, io::ErrorKind::NotADirectory];

/// Whether there is a file of that name. As everywhere here, what cannot be looked at is an error: who takes it for not there
/// gives up a good copy.
pub(super) fn is_file(path: &Path) -> io::Result<bool> {
    match fs::metadata(path) {
        Ok(found) => Ok(found.is_file()),
        Err(error) if ABSENT.contains(&error.kind()) => Ok(false),
        Err(error) => Err(error),
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

/// A handle on a process; `None` when it has ended.
pub(super) fn open_pidfd(pid: u32) -> io::Result<Option<OwnedFd>> {
    let pid = i32::try_from(pid)
        .ok()
        .and_then(rustix::process::Pid::from_raw);
    let opened =
        pid.map(|pid| rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()));
    match opened.transpose() {
        Err(rustix::io::Errno::SRCH) => Ok(None),
        opened => Ok(opened?),
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
        let endless = dir.path().join("endless");
        std::os::unix::fs::symlink(&endless, &endless).expect("a link to itself");
        assert!(is_file(&endless).is_err());
        assert!(entries(&endless).is_err());
        assert!(is_file(&file).expect("it is there"));
        for absent in [dir.path().join("none"), file.join("below a file")] {
            assert!(!is_file(&absent).expect("it is not there"));
        }
        assert!(entries(&dir.path().join("none")).expect("none").is_empty());
        assert_eq!(entries(dir.path()).expect("two").len(), 2);
    }
}
