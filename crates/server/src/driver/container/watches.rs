//! Makes inotify watches dumpable. The kernel names a watched inode only while its name is cached; for a
//! file or folder of the image, which the cache may have let go, it gives nothing and CRIU refuses. So the
//! watched inodes are looked up in the box's files and held open while the dump is tried again.

use std::collections::HashSet;
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirEntryExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

/// Entries that are looked at before the search is given up.
const MOST_ENTRIES: usize = 2_000_000;

/// Folders of a box that are other filesystems, or huge and never watched by inode of the image.
const LEFT_OUT: [&str; 4] = ["proc", "sys", "dev", "tmp"];

/// Whether CRIU refused because of a watch whose inode the kernel gave no name of.
pub(super) fn is_unnamed_watch(reason: &str) -> bool {
    reason.contains("parse_fdinfo") && reason.contains("inotify")
}

/// Opens every file and folder that processes of the box watch, so that the kernel knows their names. They
/// keep them while the result lives.
pub(super) fn hold(first_process: u32, pids: &[u32]) -> Vec<OwnedFd> {
    let mut wanted: HashSet<u64> = pids.iter().flat_map(|pid| watched_inodes(*pid)).collect();
    let root = PathBuf::from(format!("/proc/{first_process}/root"));
    let mut held = Vec::new();
    let mut folders = vec![root.clone()];
    let mut entries_left = MOST_ENTRIES;
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            if wanted.is_empty() || entries_left == 0 {
                return held;
            }
            entries_left -= 1;
            if wanted.remove(&entry.ino()) {
                held.extend(open_path(&entry.path()));
            }
            let is_dir = entry.file_type().is_ok_and(|kind| kind.is_dir());
            let is_left_out =
                folder == root && LEFT_OUT.iter().any(|name| entry.file_name() == *name);
            if is_dir && !is_left_out {
                folders.push(entry.path());
            }
        }
    }
    held
}

fn open_path(path: &Path) -> Option<OwnedFd> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty()).ok()
}

fn watched_inodes(pid: u32) -> Vec<u64> {
    let infos = fs::read_dir(format!("/proc/{pid}/fdinfo"))
        .into_iter()
        .flatten()
        .flatten();
    let texts = infos.filter_map(|entry| fs::read_to_string(entry.path()).ok());
    texts.flat_map(|text| inodes_in(&text)).collect()
}

/// The inodes in the lines `inotify wd:3 ino:52a0f8 sdev:27 …` of an `fdinfo`.
fn inodes_in(text: &str) -> Vec<u64> {
    let lines = text.lines().filter(|line| line.starts_with("inotify "));
    let words = lines.filter_map(|line| line.split(' ').find_map(|word| word.strip_prefix("ino:")));
    words
        .filter_map(|hex| u64::from_str_radix(hex, 16).ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inodes_are_read_from_watch_lines_only() {
        let rows: [(&str, &[u64]); 3] = [
            (
                "pos:\t0\nino:\t26\ninotify wd:3 ino:52a0f8 sdev:27 mask:fff ignored_mask:0 \n",
                &[0x52_a0f8],
            ),
            (
                "inotify wd:1 ino:a sdev:1\ninotify wd:2 ino:b sdev:1",
                &[10, 11],
            ),
            ("eventfd-count: 0\n", &[]),
        ];
        for (text, expected) in rows {
            assert_eq!(inodes_in(text), expected, "{text:?}");
        }
    }
}
