//! The filesystem of a box: an overlay of its own upper layer on an id-mapped generation of its image.
//! Owns the mounts under `run/<id>` and nothing of what lies in the layers.

use std::ffi::CString;
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;

use rustix::mount::{
    MountFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags, mount, move_mount, open_tree, unmount,
};

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
    set_idmap(&tree, &userns)?;
    move_mount(
        tree.as_fd(),
        "",
        rustix::fs::CWD,
        target,
        MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH,
    )?;
    Ok(())
}

fn set_idmap(tree: &OwnedFd, userns: &OwnedFd) -> io::Result<()> {
    let attributes = libc::mount_attr {
        attr_set: libc::MOUNT_ATTR_IDMAP | libc::MOUNT_ATTR_RDONLY | libc::MOUNT_ATTR_NODEV,
        attr_clr: 0,
        propagation: 0,
        userns_fd: u64::from(userns.as_raw_fd().unsigned_abs()),
    };
    // SAFETY: both descriptors are open, the path is a NUL-terminated empty string, and the struct
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
    let error = io::Error::last_os_error();
    Err(io::Error::new(
        error.kind(),
        format!("id-mapped mount: {error} (needs Linux 5.19 and a filesystem that supports it)"),
    ))
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
