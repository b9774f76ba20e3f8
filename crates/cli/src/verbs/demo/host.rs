//! What the demo sees of a box from outside, without asking Icebox: its processes and its copy on disk. Owns evidence
//! only, and knows of the driver nothing but that a box's id is in the name of its cgroup and of its folder.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// How many processes of a box this machine has, running or standing still. One that has ended and only waits to be
/// reaped by its parent is none.
pub(super) fn processes(id: &str) -> usize {
    let Ok(entries) = fs::read_dir("/proc") else {
        return 0;
    };
    let of_box = |entry: &fs::DirEntry| {
        let read = |name: &str| fs::read_to_string(entry.path().join(name)).unwrap_or_default();
        read("cgroup").contains(id) && !is_over(&read("stat"))
    };
    entries.flatten().filter(of_box).count()
}

/// Whether `/proc/<pid>/stat` is that of a process that has ended, or is gone.
fn is_over(stat: &str) -> bool {
    // The name before it may hold anything, brackets too.
    let state = stat
        .rsplit_once(") ")
        .and_then(|(_, rest)| rest.chars().next());
    matches!(state, None | Some('Z' | 'X'))
}

/// The bytes on disk of the copies of a box, in the server's folder.
pub(super) fn copy_bytes(data: &Path, id: &str) -> u64 {
    disk_usage(&data.join("boxes").join(id).join("copies"))
}

fn disk_usage(path: &Path) -> u64 {
    let Ok(found) = fs::symlink_metadata(path) else {
        return 0;
    };
    let mut bytes = found.blocks() * 512;
    if found.is_dir() {
        let entries = fs::read_dir(path).into_iter().flatten().flatten();
        bytes += entries.map(|entry| disk_usage(&entry.path())).sum::<u64>();
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disk_usage_counts_what_lies_below() {
        let dir = tempfile::tempdir().unwrap();
        let copies = dir.path().join("boxes/x/copies/1/img");
        fs::create_dir_all(&copies).unwrap();
        fs::write(copies.join("pages-1.img"), vec![1; 300_000]).unwrap();
        let bytes = copy_bytes(dir.path(), "x");
        assert!((300_000..2_000_000).contains(&bytes), "{bytes}");
        assert_eq!(copy_bytes(dir.path(), "y"), 0);
    }

    #[test]
    fn an_ended_process_is_told_from_one_that_stands_still() {
        for (stat, over) in [
            ("7 (bash) S 1 7", false),
            ("7 (a) Z b) D 1 7", false),
            ("7 (bash) Z 1 7", true),
            ("", true),
        ] {
            assert_eq!(is_over(stat), over, "{stat}");
        }
    }

    #[test]
    fn a_box_that_does_not_exist_has_no_process() {
        assert_eq!(processes("no-box-has-this-id"), 0);
    }
}
