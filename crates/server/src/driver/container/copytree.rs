//! Copies the files of a box that stands still, whole and as they are: owners, times, extended attributes (an overlay
//! keeps its own words there), hard links, holes, devices, whiteouts. Data is shared with the original where the
//! filesystem can do that, and copied where it cannot. Knows nothing of boxes.

use std::collections::HashMap;
use std::ffi::CStr;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, lchown, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, SeekFrom, Timespec, Timestamps, XattrFlags, chmodat,
    copy_file_range, ioctl_ficlone, lgetxattr, llistxattr, lsetxattr, mknodat, seek, utimensat,
};
use rustix::io::Errno;

/// The unit of `st_blocks`, in bytes.
const BLOCK: u64 = 512;
/// The most that one attribute, or all their names, take up in Linux.
const MOST_XATTR: usize = 64 * 1024;
/// How much is copied in one go.
const CHUNK: usize = 64 << 20;

/// What a folder and everything in it takes up on disk, in bytes.
pub(super) fn disk_bytes(root: &Path) -> io::Result<u64> {
    let mut folders = vec![root.to_path_buf()];
    let mut bytes = 0;
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let meta = entry.metadata()?;
            bytes += meta.blocks() * BLOCK;
            if meta.is_dir() {
                folders.push(entry.path());
            }
        }
    }
    Ok(bytes)
}

/// Copies the folder `from` and everything in it to `to`, which is not there yet.
pub(super) fn copy_tree(from: &Path, to: &Path) -> io::Result<()> {
    let mut copying = Copying::default();
    let mut folders = vec![(from.to_path_buf(), to.to_path_buf())];
    // The times of a folder change while it is filled: they are set at the end.
    let mut times = Vec::new();
    while let Some((source, target)) = folders.pop() {
        let meta = fs::symlink_metadata(&source)?;
        fs::create_dir(&target)?;
        copying.attributes(&source, &meta, &target)?;
        for entry in fs::read_dir(&source)? {
            let entry = entry?;
            let (source, target) = (entry.path(), target.join(entry.file_name()));
            if entry.file_type()?.is_dir() {
                folders.push((source, target));
            } else {
                copying.one(&source, &target)?;
            }
        }
        times.push((target, meta));
    }
    for (target, meta) in &times {
        set_times(target, meta)?;
    }
    Ok(())
}

/// Hard links a folder of files that never change, or copies them where that is not possible.
pub(super) fn link_files(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        if entry.file_type()?.is_dir() {
            link_files(&source, &target)?;
        } else if fs::hard_link(&source, &target).is_err() {
            fs::copy(&source, &target)?;
        }
    }
    Ok(())
}

/// A copy under way.
#[derive(Default)]
struct Copying {
    /// Where files with several names were copied to, by device and inode.
    linked: HashMap<(u64, u64), PathBuf>,
    /// The filesystem has said that it cannot share data.
    cannot_share: bool,
}

impl Copying {
    /// Copies what is not a folder.
    fn one(&mut self, source: &Path, target: &Path) -> io::Result<()> {
        let meta = fs::symlink_metadata(source)?;
        if meta.nlink() > 1 {
            let inode = (meta.dev(), meta.ino());
            if let Some(first) = self.linked.get(&inode) {
                return fs::hard_link(first, target);
            }
            self.linked.insert(inode, target.to_path_buf());
        }
        let kind = meta.file_type();
        if kind.is_file() {
            self.file(source, &meta, target)?;
        } else if kind.is_symlink() {
            symlink(fs::read_link(source)?, target)?;
        } else {
            let special = if kind.is_char_device() {
                FileType::CharacterDevice
            } else if kind.is_block_device() {
                FileType::BlockDevice
            } else if kind.is_fifo() {
                FileType::Fifo
            } else {
                FileType::Socket
            };
            mknodat(CWD, target, special, Mode::empty(), meta.rdev())?;
        }
        self.attributes(source, &meta, target)?;
        set_times(target, &meta)
    }

    fn file(&mut self, source: &Path, meta: &Metadata, target: &Path) -> io::Result<()> {
        let from = File::open(source)?;
        let to = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(target)?;
        if !self.cannot_share && meta.len() > 0 {
            match ioctl_ficlone(&to, &from) {
                Ok(()) => return Ok(()),
                Err(
                    Errno::OPNOTSUPP | Errno::XDEV | Errno::NOTTY | Errno::INVAL | Errno::NOSYS,
                ) => {
                    self.cannot_share = true;
                }
                Err(error) => return Err(error.into()),
            }
        }
        copy_data(&from, &to, meta.len())
    }

    /// Owner, mode and extended attributes, in this order: a new owner takes set-user-id bits and capabilities away.
    fn attributes(&self, source: &Path, meta: &Metadata, target: &Path) -> io::Result<()> {
        lchown(target, Some(meta.uid()), Some(meta.gid()))?;
        if !meta.file_type().is_symlink() {
            let mode = Mode::from_raw_mode(meta.mode() & 0o7777);
            chmodat(CWD, target, mode, AtFlags::empty())?;
        }
        let mut names = vec![0_u8; MOST_XATTR];
        let length = match llistxattr(source, names.as_mut_slice()) {
            Ok(length) => length,
            Err(Errno::OPNOTSUPP) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        let mut value = vec![0_u8; if length > 0 { MOST_XATTR } else { 0 }];
        for name in names[..length].split_inclusive(|byte| *byte == 0) {
            let name = CStr::from_bytes_with_nul(name).map_err(io::Error::other)?;
            let length = lgetxattr(source, name, value.as_mut_slice())?;
            lsetxattr(target, name, &value[..length], XattrFlags::empty())?;
        }
        Ok(())
    }
}

/// Copies what is there of a file; holes stay holes.
fn copy_data(from: &File, to: &File, length: u64) -> io::Result<()> {
    to.set_len(length)?;
    let mut at = 0;
    while at < length {
        let data = match seek(from, SeekFrom::Data(at)) {
            Ok(data) => data,
            // Nothing but a hole is left.
            Err(Errno::NXIO) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        let end = seek(from, SeekFrom::Hole(data))?.min(length);
        copy_range(from.as_fd(), to.as_fd(), data, end)?;
        at = end;
    }
    Ok(())
}

fn copy_range(
    from: std::os::fd::BorrowedFd<'_>,
    to: std::os::fd::BorrowedFd<'_>,
    start: u64,
    end: u64,
) -> io::Result<()> {
    let (mut read_at, mut write_at) = (start, start);
    while read_at < end {
        let most = usize::try_from(end - read_at).map_or(CHUNK, |left| left.min(CHUNK));
        let copied = copy_file_range(from, Some(&mut read_at), to, Some(&mut write_at), most)?;
        if copied == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(())
}

fn set_times(target: &Path, meta: &Metadata) -> io::Result<()> {
    let time = |sec, nsec| Timespec {
        tv_sec: sec,
        tv_nsec: nsec,
    };
    let times = Timestamps {
        last_access: time(meta.atime(), meta.atime_nsec()),
        last_modification: time(meta.mtime(), meta.mtime_nsec()),
    };
    utimensat(CWD, target, &times, AtFlags::SYMLINK_NOFOLLOW)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_tree_is_copied_as_it_is() {
        let dir = tempfile::tempdir().expect("a folder");
        let (from, to) = (dir.path().join("from"), dir.path().join("to"));
        fs::create_dir_all(from.join("a/b")).expect("folders");
        fs::write(from.join("a/file"), "content").expect("a file");
        fs::set_permissions(from.join("a/file"), fs::Permissions::from_mode(0o4751)).expect("mode");
        fs::hard_link(from.join("a/file"), from.join("a/b/same")).expect("a link");
        symlink("/nowhere/at all", from.join("link")).expect("a link");
        let sparse = File::create(from.join("sparse")).expect("a file");
        sparse.set_len(64 << 20).expect("a hole");
        drop(sparse);
        mknodat(CWD, from.join("fifo"), FileType::Fifo, Mode::RUSR, 0).expect("a fifo");
        set_times(&from.join("a"), &fs::metadata("/etc").expect("a folder")).expect("times");
        copy_tree(&from, &to).expect("a copy");
        let meta = |path: &str| fs::symlink_metadata(to.join(path)).expect(path);
        assert_eq!(
            fs::read_to_string(to.join("a/file")).expect("read"),
            "content"
        );
        assert_eq!(meta("a/file").mode() & 0o7777, 0o4751);
        assert_eq!(meta("a/file").ino(), meta("a/b/same").ino());
        assert_eq!(
            fs::read_link(to.join("link")).expect("a link"),
            Path::new("/nowhere/at all")
        );
        assert_eq!(meta("sparse").len(), 64 << 20);
        assert!(meta("sparse").blocks() < 128, "the hole was filled");
        assert!(meta("fifo").file_type().is_fifo());
        let etc = fs::metadata("/etc").expect("a folder");
        assert_eq!(meta("a").mtime(), etc.mtime());
        assert!(disk_bytes(&to).expect("a size") < 1 << 20);
        assert!(copy_tree(&from, &to).is_err(), "copied over what was there");
    }
}
