//! Freezing a box and giving its memory back, in the order that loses nothing (rule 4.9).
//!
//! Whatever fails, the box stands still in RAM afterwards, whole. A dump that was killed is repeated to its
//! end before the box may run: it may have left a connection inside the box in repair mode, which a
//! completed dump cures.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use icebox_lifecycle::{BoxId, CopyId};

use super::copy::{self, IMAGES, Manifest};
use super::criu::{Criu, CriuError};
use super::paths::BoxPaths;
use super::record::Record;
use super::{Host, Trouble, While, boot, criu, fsutil, mount, renew, watches, wayout};
use crate::driver::FreezeMode;
use crate::steps::reached;

/// How often a dump is begun again after it was killed.
const DUMP_TRIES: u32 = 3;

/// Disk kept free beside a copy, for the server's own database and for running boxes.
const HEADROOM_BYTES: u64 = 64 << 20;

pub(super) fn freeze(host: &Host, id: BoxId, mode: FreezeMode) -> Result<(), Trouble> {
    let paths = host.paths.of(id);
    let cgroup = host.hierarchies.of(id);
    criu::wait_for_leftover(&paths).when("wait for CRIU")?;
    if let FreezeMode::Copy(copy) = mode
        && copy::is_complete(&paths.copy(copy)).when("look for the copy")?
    {
        // An earlier try came this far. The box has stood still since, or it would not be asked again.
        return Ok(());
    }
    let pid = host.require_first_process(id)?;
    cgroup.freeze().when("stop the box's processes")?;
    reached("freeze.stopped", None);
    host.connections.close(id);
    wayout::disconnect(pid)?;
    reached("freeze.disconnected", None);
    match mode {
        FreezeMode::RamOnly => Ok(()),
        FreezeMode::Copy(copy) => {
            wayout::unplug(&paths, pid)?;
            let record = renew::settled(host, id, pid)?;
            write_copy(host, id, copy, &record)
        }
    }
}

fn write_copy(host: &Host, id: BoxId, copy: CopyId, record: &Record) -> Result<(), Trouble> {
    let criu = host
        .criu
        .as_ref()
        .map_err(|why| Trouble::Refused(why.clone()))?;
    let paths = host.paths.of(id);
    remove_other_copies(&paths, copy)?;
    require_room(host, id)?;
    let tmp = paths.copy_tmp(copy);
    dump(host, id, criu, &tmp)?;
    reached("freeze.dumped", None);
    let files = sync_and_sum(&paths, &tmp)?;
    reached("freeze.synced", None);
    let manifest = Manifest::new(host.facts.clone(), &record.image, &record.boxd, files);
    manifest
        .write(&tmp)
        .map_err(|e| no_room_or("write the manifest", e))?;
    reached("freeze.manifest", None);
    fsutil::rename_durably(&tmp, &paths.copy(copy)).when("name the copy")?;
    reached("freeze.renamed", None);
    Ok(())
}

/// Removes every copy but this one. The box has run since they were made, or it would not be copied again:
/// a crash came between the release and their removal.
fn remove_other_copies(paths: &BoxPaths, copy: CopyId) -> Result<(), Trouble> {
    let (named, tmp) = (paths.copy(copy), paths.copy_tmp(copy));
    for entry in fsutil::entries(&paths.copies()).when("list the box's copies")? {
        let path = entry.path();
        if path != named && path != tmp {
            fsutil::remove_tree(&path).when("remove a copy that is out of date")?;
        }
    }
    Ok(())
}

/// The checksums of a dump, taken while the disk writes it and the box's own files.
fn sync_and_sum(paths: &BoxPaths, tmp: &Path) -> Result<Vec<copy::FileSum>, Trouble> {
    std::thread::scope(|scope| {
        let summing = scope.spawn(|| copy::sums(tmp));
        let synced = sync_files(paths).map_err(|e| no_room_or("sync the copy", e));
        let sums = summing
            .join()
            .map_err(|_| Trouble::Failed("summing the copy failed".to_owned()))?;
        synced?;
        sums.when("read the copy")
    })
}

/// Makes a box's own files durable, and its copies, which may lie on another disk.
fn sync_files(paths: &BoxPaths) -> io::Result<()> {
    fsutil::sync_filesystem(&paths.upper())?;
    if fs::metadata(paths.upper())?.dev() != fs::metadata(paths.copies())?.dev() {
        fsutil::sync_filesystem(&paths.copies())?;
    }
    Ok(())
}

fn dump(host: &Host, id: BoxId, criu: &Criu, tmp: &Path) -> Result<(), Trouble> {
    let paths = host.paths.of(id);
    let cgroup = host.hierarchies.of(id);
    let mut held_watches = Vec::new();
    for attempt in 1..=DUMP_TRIES {
        fsutil::remove_tree(tmp).when("remove an unfinished copy")?;
        let images = tmp.join(IMAGES);
        fs::create_dir_all(&images).map_err(|e| no_room_or("make the copy's folder", e))?;
        let pid1 = host.require_first_process(id)?;
        let running = criu
            .dump(&paths, &cgroup, pid1, &images)
            .when("start CRIU")?;
        reached("freeze.dumping", Some(running.pid()));
        let dumped = running.wait();
        // CRIU leaves the group as it found it, unless it was killed.
        cgroup.freeze().when("keep the box's processes stopped")?;
        match dumped {
            Ok(()) => return Ok(()),
            Err(CriuError::Killed) => tracing::warn!(%id, attempt, "the dump was killed, again"),
            Err(CriuError::Io(error)) => return Err(no_room_or("run CRIU", error)),
            Err(CriuError::Said(reason))
                if held_watches.is_empty() && watches::is_unnamed_watch(&reason) =>
            {
                let pids = cgroup.pids().when("list the box's processes")?;
                held_watches = watches::hold(pid1, &pids);
            }
            Err(CriuError::Said(reason)) => {
                let full = is_full(&paths);
                fsutil::remove_tree(tmp).when("remove an unfinished copy")?;
                return Err(if full {
                    disk_full(&reason)
                } else {
                    Trouble::Refused(format!("CRIU cannot copy this box's memory: {reason}"))
                });
            }
        }
    }
    Err(Trouble::Refused(format!(
        "the dump failed {DUMP_TRIES} times"
    )))
}

fn require_room(host: &Host, id: BoxId) -> Result<(), Trouble> {
    let paths = host.paths.of(id);
    let memory = host.hierarchies.of(id).memory_bytes();
    let free = fsutil::free_bytes(&paths.copies()).when("ask for free disk")?;
    // Page cache counts as the box's memory too, so this only catches what cannot possibly fit.
    if free < HEADROOM_BYTES.max(memory / 8) {
        return Err(disk_full(&format!("{} MiB are free", free >> 20)));
    }
    Ok(())
}

fn is_full(paths: &BoxPaths) -> bool {
    fsutil::free_bytes(&paths.copies()).is_ok_and(|free| free < HEADROOM_BYTES)
}

fn no_room_or(what: &'static str, error: io::Error) -> Trouble {
    Trouble::of_disk(what, error, disk_full)
}

fn disk_full(detail: &str) -> Trouble {
    Trouble::Failed(format!(
        "the disk is too full for a copy of the box ({detail}): free some space; the box goes on as before"
    ))
}

/// Ends the processes of a box whose copy is recorded, and everything else of it that lives.
pub(super) fn evict(host: &Host, id: BoxId, copy: CopyId) -> Result<(), Trouble> {
    let paths = host.paths.of(id);
    if !copy::is_complete(&paths.copy(copy)).when("look for the copy")? {
        return Err(Trouble::Refused(format!(
            "copy {} of box {id} is not complete: its processes are kept",
            copy.0
        )));
    }
    let cgroup = host.hierarchies.of(id);
    host.connections.close(id);
    cgroup.kill().when("end the box's processes")?;
    reached("evict.killed", None);
    wayout::remove(&paths, None)?;
    mount::unmount_box(&paths).when("unmount the box's files")?;
    reached("evict.unmounted", None);
    cgroup.remove().when("remove the box's cgroups")?;
    boot::remove_run_folder(&paths)
}

pub(super) fn drop_copy(host: &Host, id: BoxId, copy: CopyId) -> Result<(), Trouble> {
    let paths = host.paths.of(id);
    // The name goes first and at once: what is left of a half-removed copy must not look complete.
    let (named, tmp) = (paths.copy(copy), paths.copy_tmp(copy));
    if named.try_exists().when("look for the copy")? {
        fsutil::remove_tree(&tmp).when("remove an unfinished copy")?;
        fs::rename(&named, &tmp).when("take the copy's name away")?;
    }
    fsutil::remove_tree(&tmp).when("remove the copy")
}
