//! What a box uses: the counters of its cgroups, and the size of its own files.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use icebox_lifecycle::BoxId;

use super::{Host, While};
use crate::driver::{Counters, DriverError};

/// Files and folders that are counted at most; a box with more uses at least what these take up.
const MOST_FILES: usize = 100_000;
/// The unit of `st_blocks`, in bytes.
const BLOCK: u64 = 512;

pub(super) fn count(host: &Host, id: BoxId, disk: bool) -> Result<Counters, DriverError> {
    let cgroup = host.hierarchies.of(id);
    if !cgroup.is_populated().when("look at the box's cgroup")? {
        return Err(DriverError::Gone("the box does not run".to_owned()));
    }
    let upper = host.paths.of(id).upper();
    Ok(Counters {
        cpu_us: cgroup.cpu_us(),
        memory_bytes: cgroup.memory_bytes(),
        cache_bytes: cgroup.cache_bytes(),
        disk_bytes: disk.then(|| size_of_tree(upper)),
    })
}

/// What a folder takes up. What goes away meanwhile is not counted.
fn size_of_tree(root: PathBuf) -> u64 {
    let mut folders = vec![root];
    let (mut bytes, mut seen) = (0, 0);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            seen += 1;
            if seen > MOST_FILES {
                return bytes;
            }
            let Ok(meta) = entry.metadata() else { continue };
            bytes += meta.blocks() * BLOCK;
            if meta.is_dir() {
                folders.push(entry.path());
            }
        }
    }
    bytes
}
