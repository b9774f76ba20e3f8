//! What the benchmarks compare a freeze and a thaw with: the same mounts and the same CRIU options, and
//! nothing else. No manifest, no checksums, no order that survives a crash.

use std::fs;

use icebox_lifecycle::{BoxId, CopyId};

use super::copy::IMAGES;
use super::criu::CriuError;
use super::{ContainerDriver, Host, boot, bootid, fsutil, mount, renew};

/// Mounts a frozen box's files and restores its images. Ends when CRIU does; the box runs.
///
/// # Errors
/// What went wrong, for the person at the benchmark.
pub fn restore(driver: &ContainerDriver, id: BoxId, copy: CopyId) -> Result<(), String> {
    let host: &Host = &driver.host;
    let paths = host.paths.of(id);
    let cgroup = host.hierarchies.of(id);
    let record = host.record(id).map_err(|e| e.to_string())?;
    let criu = host.criu.as_ref().map_err(Clone::clone)?;
    fs::create_dir_all(&paths.run).map_err(|e| e.to_string())?;
    let image = host.images.dir(&record.image);
    mount::mount_box(&paths, &image, record.uid_base).map_err(|e| e.to_string())?;
    cgroup.create(record.size()).map_err(|e| e.to_string())?;
    bootid::place(&paths, &record.boot_id).map_err(|e| e.to_string())?;
    let images = paths.copy(copy).join(IMAGES);
    let boxd = host.images.boxd(&record.boxd);
    let running = criu.restore(&paths, &cgroup, None, &images, &boxd);
    running.map_err(|e| e.to_string())?.wait().map_err(said)
}

/// Dumps a running box, syncs the disk, ends its processes and unmounts its files. The dump is thrown away.
///
/// # Errors
/// What went wrong, for the person at the benchmark.
pub fn dump(driver: &ContainerDriver, id: BoxId) -> Result<(), String> {
    let host: &Host = &driver.host;
    let paths = host.paths.of(id);
    let cgroup = host.hierarchies.of(id);
    let criu = host.criu.as_ref().map_err(Clone::clone)?;
    let pid = host.require_first_process(id).map_err(|e| e.to_string())?;
    renew::settled(host, id, pid).map_err(|e| e.to_string())?;
    let images = paths.dir.join("by-hand");
    fs::create_dir_all(&images).map_err(|e| e.to_string())?;
    cgroup.freeze().map_err(|e| e.to_string())?;
    let running = criu.dump(&paths, &cgroup, pid, &images);
    running.map_err(|e| e.to_string())?.wait().map_err(said)?;
    fsutil::sync_filesystem(&images).map_err(|e| e.to_string())?;
    clear(driver, id)
}

/// Ends and unmounts what [`restore`] began.
///
/// # Errors
/// What could not be removed.
pub fn clear(driver: &ContainerDriver, id: BoxId) -> Result<(), String> {
    boot::clear_running_parts(&driver.host, id).map_err(|e| e.to_string())
}

fn said(error: CriuError) -> String {
    match error {
        CriuError::Killed => "CRIU was killed".to_owned(),
        CriuError::Said(reason) => reason,
        CriuError::Io(error) => error.to_string(),
    }
}
