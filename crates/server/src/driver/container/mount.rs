//! The filesystem of a box: an overlay of its own upper layer on an id-mapped generation of its image.
//! Owns the mounts under `run/<id>` and nothing of what lies in the layers.

use std::ffi::CString;
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags, openat2, unlinkat};
use rustix::mount::{
    MountFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags, mount, move_mount, open_tree, unmount,
};

use super::namespace::Namespace;
use super::paths::BoxPaths;
use super::userns;

/// Mounts the box's filesystem at `run/<id>/rootfs`. What an earlier try left mounted goes first.
pub(super) fn mount_box(paths: &BoxPaths, image: &Path, uid_base: u32) -> io::Result<()> {
    unmount_box(paths)?;
    let (lower, rootfs) = (paths.lower(), paths.rootfs());
    fs::create_dir_all(&lower)?;
    fs::create_dir_all(&rootfs)?;
    mount_idmapped(image, &lower, uid_base)?;
    // `index` and `nfs_export` make inotify watches dumpable; `work` is emptied by the kernel.
    let options = format!(
        "lowerdir={},upperdir={},workdir={},index=on,nfs_export=on",
        lower.display(),
        paths.upper().display(),
        paths.work().display(),
    );
    let options = CString::new(options).map_err(io::Error::other)?;
    mount(
        "overlay",
        &rootfs,
        "overlay",
        MountFlags::NODEV,
        Some(options.as_c_str()),
    )?;
    Ok(())
}

/// Unmounts what is mounted of the box; nothing mounted is fine.
pub(super) fn unmount_box(paths: &BoxPaths) -> io::Result<()> {
    let mut first_error = Ok(());
    for target in [paths.rootfs(), paths.lower()] {
        first_error = first_error.and(unmount_all_at(&target));
    }
    first_error
}

/// Whether something is mounted at `path`.
pub(super) fn is_mounted(path: &Path) -> io::Result<bool> {
    Ok(mount_points()?.iter().any(|p| Path::new(p) == path))
}

/// All mount points at or under `dir`, deepest first.
pub(super) fn mounts_under(dir: &Path) -> io::Result<Vec<String>> {
    let mut found: Vec<String> = mount_points()?
        .into_iter()
        .filter(|p| Path::new(p).starts_with(dir))
        .collect();
    found.sort_by_key(|p| std::cmp::Reverse(p.len()));
    Ok(found)
}

fn unmount_all_at(target: &Path) -> io::Result<()> {
    // Two mounts may lie on each other after a crash between mount and record.
    for _ in 0..8 {
        match unmount(target, UnmountFlags::NOFOLLOW) {
            Ok(()) => {}
            Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOENT) => return Ok(()),
            Err(rustix::io::Errno::BUSY) => {
                // Something here still looks at it. A lazily detached overlay would make its upper layer
                // unusable for the next mount, so wait for the kernel's delayed work instead.
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
            Err(error) => return Err(error.into()),
        }
    }
    if is_mounted(target)? {
        let text = format!(
            "{} is busy: a program on this host uses it",
            target.display()
        );
        return Err(io::Error::new(io::ErrorKind::ResourceBusy, text));
    }
    Ok(())
}

fn mount_points() -> io::Result<Vec<String>> {
    Ok(points_of(&fs::read("/proc/self/mountinfo")?))
}

fn points_of(mountinfo: &[u8]) -> Vec<String> {
    // Somebody else's mount point need not be text.
    let text = String::from_utf8_lossy(mountinfo);
    let points = text.lines().filter_map(|line| line.split(' ').nth(4));
    // Spaces and the like are written as octal escapes; our own paths have none (see `ContainerDriver::open`).
    points.map(str::to_owned).collect()
}

fn mount_idmapped(image: &Path, target: &Path, uid_base: u32) -> io::Result<()> {
    let tree = open_tree(
        rustix::fs::CWD,
        image,
        OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC,
    )?;
    let userns = userns::open(uid_base)?;
    set_attributes(
        &tree,
        libc::MOUNT_ATTR_IDMAP | libc::MOUNT_ATTR_RDONLY | libc::MOUNT_ATTR_NODEV,
        Some(&userns),
    )
    .map_err(|error| {
        let words = format!(
            "id-mapped mount: {error} (needs Linux 5.19 and a filesystem that supports it)"
        );
        io::Error::new(error.kind(), words)
    })?;
    move_mount(
        tree.as_fd(),
        "",
        rustix::fs::CWD,
        target,
        MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH,
    )?;
    Ok(())
}

/// Mounts a file of this host read-only at `place` in the mount namespace of process `pid`, where nothing is mounted yet. What
/// it is mounted on is an empty file of `owner`, which nobody can execute.
pub(super) fn add_file(pid: u32, file: &Path, place: &'static str, owner: u32) -> io::Result<()> {
    let tree = open_tree(
        rustix::fs::CWD,
        file,
        OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC,
    )?;
    let attributes = libc::MOUNT_ATTR_RDONLY | libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV;
    set_attributes(&tree, attributes, None)?;
    Namespace::Mount.within(pid, move || {
        // Whatever the box had there.
        remove_within_box(place)?;
        let target = within_box(place, OFlags::CREATE | OFlags::EXCL | OFlags::RDONLY)?;
        std::os::unix::fs::fchown(&target, Some(owner), Some(owner))?;
        Ok(move_mount(
            tree.as_fd(),
            "",
            target.as_fd(),
            "",
            BY_DESCRIPTORS,
        )?)
    })
}

/// Moves what is mounted at `from` to `to`, where nothing is mounted, in the mount namespace of process `pid`; what it was
/// mounted on goes. Who executes or has opened something of it notices nothing.
pub(super) fn move_file(pid: u32, from: &'static str, to: &'static str) -> io::Result<()> {
    Namespace::Mount.within(pid, move || {
        let (mounted, target) = (
            within_box(from, OFlags::PATH)?,
            within_box(to, OFlags::PATH)?,
        );
        move_mount(mounted.as_fd(), "", target.as_fd(), "", BY_DESCRIPTORS)?;
        remove_within_box(from)
    })
}

/// Unmounts what is mounted at `place` in the mount namespace of process `pid`, if anything is.
pub(super) fn remove_file(pid: u32, place: &'static str) -> io::Result<()> {
    let mountinfo = fs::read(format!("/proc/{pid}/mountinfo"))?;
    let points = points_of(&mountinfo);
    let mounted = points.iter().filter(|point| *point == place).count();
    if mounted == 0 {
        return Ok(());
    }
    Namespace::Mount.within(pid, move || {
        for _ in 0..mounted {
            unmount(place, UnmountFlags::NOFOLLOW | UnmountFlags::DETACH)?;
        }
        Ok(())
    })
}

const BY_DESCRIPTORS: MoveMountFlags =
    MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH.union(MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH);

/// Removes a file of a box from within its mount namespace, if it is there.
fn remove_within_box(place: &str) -> io::Result<()> {
    let (folder, name) = place.rsplit_once('/').unwrap_or(("/", place));
    let folder = within_box(folder, OFlags::PATH | OFlags::DIRECTORY)?;
    match unlinkat(folder, name, AtFlags::empty()) {
        Ok(()) | Err(rustix::io::Errno::NOENT) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Opens a file of a box from within its mount namespace. The box may have made links on the way there: they lead astray.
fn within_box(place: &str, flags: OFlags) -> io::Result<OwnedFd> {
    let mode = if flags.contains(OFlags::CREATE) {
        // Nobody can execute it.
        Mode::from_raw_mode(0o644)
    } else {
        Mode::empty()
    };
    let flags = flags | OFlags::CLOEXEC;
    Ok(openat2(
        rustix::fs::CWD,
        place,
        flags,
        mode,
        ResolveFlags::NO_SYMLINKS,
    )?)
}

fn set_attributes(tree: &OwnedFd, attr_set: u64, userns: Option<&OwnedFd>) -> io::Result<()> {
    let attributes = libc::mount_attr {
        attr_set,
        attr_clr: 0,
        propagation: 0,
        userns_fd: userns.map_or(0, |userns| u64::from(userns.as_raw_fd().unsigned_abs())),
    };
    // SAFETY: all descriptors are open, the path is a NUL-terminated empty string, and the struct
    // outlives the call with its true size.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            tree.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH,
            &raw const attributes,
            size_of::<libc::mount_attr>(),
        )
    };
    if result == 0 {
        return Ok(());
    }
    Err(io::Error::last_os_error())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_of_somebody_elses_hides_none_of_ours() {
        let mountinfo = b"30 1 0:26 / /data/run/a/rootfs rw - overlay overlay rw\n\
            31 1 0:27 / /mnt/\xff\xfe rw - tmpfs tmpfs rw\n";
        assert_eq!(points_of(mountinfo)[0], "/data/run/a/rootfs");
        assert_eq!(points_of(mountinfo).len(), 2);
    }
}
