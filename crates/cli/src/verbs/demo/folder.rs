//! The folder of a demo: claimed so that nothing of anybody else is ever removed, and removed only when nothing is
//! mounted in it. Owns the marker file, which also names the demo's server while it runs.

use std::fs::{self, File};
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;
use rustix::process::Pid;

use crate::error::CliError;

/// A folder with this file in it was made by a demo.
const MARKER: &str = ".icebox-demo";

/// A claimed folder.
pub(super) struct Folder {
    path: PathBuf,
    /// Locked as long as this demo runs.
    marker: File,
}

impl Folder {
    /// Makes the folder, or takes over one that an earlier demo left.
    pub(super) fn claim(path: &Path) -> Result<Self, CliError> {
        let shown = path.display();
        let usable = |what: &str| CliError::io(format!("{what} the folder {shown}"));
        fs::create_dir_all(path).map_err(usable("make"))?;
        let path = path.canonicalize().map_err(usable("use"))?;
        let mut entries = fs::read_dir(&path).map_err(usable("read"))?;
        if !path.join(MARKER).exists() && entries.next().is_some() {
            return Err(CliError::Usage(format!(
                "the folder {shown} holds something that is no demo's, and a demo removes its folder in the end: name \
                 another with --data"
            )));
        }
        let mut how = File::options();
        how.read(true).write(true).create(true).truncate(false);
        let marker = how.open(path.join(MARKER)).map_err(usable("write into"))?;
        if rustix::fs::flock(&marker, FlockOperation::NonBlockingLockExclusive).is_err() {
            return Err(CliError::Usage(format!(
                "another demo is at work in {shown}: wait for it, or name another folder with --data"
            )));
        }
        Ok(Self { path, marker })
    }

    /// Where it is.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether a server left boxes in it.
    pub(super) fn has_boxes(&self) -> bool {
        fs::read_dir(self.path.join("boxes")).is_ok_and(|mut boxes| boxes.next().is_some())
    }

    /// Notes which process the demo's server is, so that a demo after a killed one can end it.
    pub(super) fn note_server(&mut self, pid: u32) -> Result<(), CliError> {
        let noted = self.marker.rewind().and_then(|()| self.marker.set_len(0));
        let noted = noted.and_then(|()| write!(self.marker, "{pid}"));
        noted.map_err(CliError::io("note which process the server is"))
    }

    /// The server that a killed demo left running here.
    pub(super) fn leftover_server(&mut self) -> Option<Pid> {
        let mut noted = String::new();
        self.marker.rewind().ok()?;
        Read::by_ref(&mut self.marker)
            .take(16)
            .read_to_string(&mut noted)
            .ok()?;
        let pid = Pid::from_raw(noted.parse().ok()?)?;
        is_server(pid, &self.path).then_some(pid)
    }

    /// Removes it with all that is in it. Refuses while something is mounted in it: what is mounted is not ours.
    pub(super) fn remove(self) -> Result<(), CliError> {
        let shown = self.path.display();
        let mounts = fs::read_to_string("/proc/self/mountinfo");
        let mounts = mounts.map_err(CliError::io("read /proc/self/mountinfo"))?;
        if let Some(place) = mounted_below(&mounts, &self.path) {
            return Err(CliError::Host(format!(
                "{place} is still mounted, so {shown} is not removed: umount it, then remove the folder"
            )));
        }
        fs::remove_dir_all(&self.path).map_err(CliError::io(format!("remove {shown}")))
    }
}

/// Whether a process is an `icebox serve` on this folder, and not whoever has its number now.
pub(super) fn is_server(pid: Pid, folder: &Path) -> bool {
    let pid = pid.as_raw_nonzero();
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words: Vec<&[u8]> = line.split(|byte| *byte == 0).collect();
    words.contains(&b"serve".as_slice()) && words.contains(&folder.as_os_str().as_encoded_bytes())
}

/// The first mount point in or below a folder, in what `/proc/self/mountinfo` says.
fn mounted_below<'a>(mountinfo: &'a str, folder: &Path) -> Option<&'a str> {
    let places = mountinfo.lines().filter_map(|line| line.split(' ').nth(4));
    places
        .into_iter()
        .find(|place| Path::new(place).starts_with(folder))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_with_something_of_somebody_in_it_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("thesis.tex"), "").unwrap();
        let refused = Folder::claim(dir.path()).err().unwrap();
        assert!(refused.line().contains("no demo's"), "{}", refused.line());
        assert!(dir.path().join("thesis.tex").exists());
    }

    #[test]
    fn a_folder_is_claimed_once_at_a_time_and_taken_over_later() {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().join("a/demo");
        let mut first = Folder::claim(&place).unwrap();
        first.note_server(std::process::id()).unwrap();
        let second = Folder::claim(&place).err().unwrap();
        assert!(second.line().contains("another demo"), "{}", second.line());
        drop(first);
        fs::write(place.join("left behind"), "").unwrap();
        let mut third = Folder::claim(&place).unwrap();
        assert_eq!(third.leftover_server(), None, "this test is no server");
        third.remove().unwrap();
        assert!(!place.exists());
    }

    #[test]
    fn a_mount_below_the_folder_is_found_and_one_beside_it_is_not() {
        let info = "29 1 0:25 / / rw - ext4 /dev/x rw\n30 29 0:26 / /d/demo2 rw - tmpfs t rw\n";
        assert_eq!(mounted_below(info, Path::new("/d/demo")), None);
        let info = format!("{info}31 29 0:27 / /d/demo/run/x rw - tmpfs t rw\n");
        assert_eq!(
            mounted_below(&info, Path::new("/d/demo")),
            Some("/d/demo/run/x")
        );
    }
}
