//! The boot id of a box, which programs read to tell one boot from the next. The kernel has one for the whole machine, so a
//! file of the box's own is mounted over it: another one at each boot, the same after each thaw.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::fs::PermissionsExt as _;

use rustix::fs::CWD;
use rustix::mount::{MoveMountFlags, OpenTreeFlags, move_mount, open_tree};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};

use super::paths::BoxPaths;
use crate::random;

/// Where programs read it.
pub(super) const IN_BOX: &str = "/proc/sys/kernel/random/boot_id";

/// One that no boot had yet, in the form of a random UUID.
pub(super) fn fresh() -> String {
    let mut bytes = random::bytes::<16>();
    bytes[6] = (bytes[6] & 0x0f) | 0x40;
    bytes[8] = (bytes[8] & 0x3f) | 0x80;
    let mut text = String::with_capacity(36);
    for (n, byte) in bytes.iter().enumerate() {
        if [4, 6, 8, 10].contains(&n) {
            text.push('-');
        }
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// Puts the file there that is mounted. Boxes from before there were boot ids have none.
pub(super) fn place(paths: &BoxPaths, id: &str) -> io::Result<()> {
    if id.is_empty() {
        return Ok(());
    }
    let file = paths.boot_id();
    fs::write(&file, format!("{id}\n"))?;
    fs::set_permissions(&file, fs::Permissions::from_mode(0o444))
}

/// Mounts the file in the mount namespace of process `pid`. runc mounts nothing there, nor may the box. Blocks.
pub(super) fn mount(paths: &BoxPaths, pid: u32) -> io::Result<()> {
    let namespace = File::open(format!("/proc/{pid}/ns/mnt"))?;
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    let file = open_tree(CWD, paths.boot_id(), flags)?;
    // A thread of its own: one that changed its namespace must not go back to a pool.
    let thread = std::thread::Builder::new().name("icebox-mntns".to_owned());
    let mounting = thread.spawn(move || -> io::Result<()> {
        // SAFETY: the thread stops sharing its working directory and root with the others, which do not notice.
        unsafe { unshare_unsafe(UnshareFlags::FS)? };
        move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Mount))?;
        let whole = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
        Ok(move_mount(&file, "", CWD, IN_BOX, whole)?)
    })?;
    let panicked = |_| io::Error::other("the mounting thread panicked");
    mounting.join().map_err(panicked)?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_look_like_the_kernels() {
        let (one, other) = (fresh(), fresh());
        assert_ne!(one, other);
        let parts: Vec<usize> = one.split('-').map(str::len).collect();
        assert_eq!(parts, [8, 4, 4, 4, 12], "{one}");
        assert_eq!(one.as_bytes()[14], b'4', "{one}");
        assert!(one.chars().all(|c| c == '-' || c.is_ascii_hexdigit()));
    }
}
