//! Snapshots: copies of a box's files, and of its memory, that belong to no box any more; and boxes made from them.
//!
//! A snapshot is a folder that got its name when everything in it was durable. Anything else is debris. Images of memory
//! never change, so that they are shared by hard links.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};

use icebox_lifecycle::{BoxId, CopyId, SnapshotId};
use serde::{Deserialize, Serialize};

use super::paths::{Paths, SnapshotPaths};
use super::record::Record;
use super::{Host, Trouble, While, boot, copy, copytree, fsutil, thaw};
use crate::driver::{BoxSpec, Egress, Origin, Reaches};
use crate::steps::reached;

/// Disk kept free beside a copy of files, for the server's own database and for running boxes.
const HEADROOM_BYTES: u64 = 64 << 20;

/// What is known of a snapshot beside its files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Kept {
    /// What the box was made of. Its ids are those of the files, and of the memory.
    record: Record,
    /// Its memory is there as well.
    memory: bool,
    /// What it took up, in bytes. What it shares with others counts in full.
    bytes: u64,
}

/// Copies a box that stands still. Gives what that takes up, in bytes.
pub(super) fn save(
    host: &Host,
    id: BoxId,
    copy: Option<CopyId>,
    snapshot: SnapshotId,
) -> Result<u64, Trouble> {
    let lock = lock(host, snapshot);
    let _whole = lock.write().unwrap_or_else(PoisonError::into_inner);
    let paths = host.paths.of(id);
    let places = host.paths.snapshot(snapshot);
    if let Some(kept) = load(&places).when("read the snapshot")? {
        // An earlier try came this far.
        return Ok(kept.bytes);
    }
    let record = host.record(id)?;
    let stands = || host.hierarchies.of(id).is_frozen();
    if host.first_process(id)?.is_some() && !stands().when("look at the box's cgroup")? {
        return Err(Trouble::Failed(format!(
            "box {id} runs: a snapshot is made of one that stands still"
        )));
    }
    let memory = copy.map(|copy| paths.copy(copy));
    if let Some(memory) = &memory
        && !copy::is_complete(memory).when("look for the copy")?
    {
        return Err(Trouble::Gone(format!("box {id} has no such copy")));
    }
    let tmp = &places.tmp;
    fsutil::remove_tree(tmp).when("remove an unfinished snapshot")?;
    let bytes = require_room(&paths.upper(), &host.paths)?;
    make_closed(tmp).when("make the snapshot's folder")?;
    reached("save.begun", None);
    let copied = copytree::copy_tree(&paths.upper(), &SnapshotPaths::upper(tmp));
    copied.map_err(|error| no_room_or("copy the files", error))?;
    reached("save.files", None);
    let mut kept = Kept {
        record,
        memory: memory.is_some(),
        bytes,
    };
    if let Some(memory) = memory {
        let images = copytree::disk_bytes(&memory).when("measure the memory")?;
        let linked = copytree::link_files(&memory, &SnapshotPaths::memory(tmp));
        linked.map_err(|error| no_room_or("copy the memory", error))?;
        kept.bytes += images;
    }
    reached("save.memory", None);
    let text = serde_json::to_vec_pretty(&kept).map_err(io::Error::other);
    text.and_then(|text| fsutil::write_atomic(&SnapshotPaths::record(tmp), &text))
        .and_then(|()| fsutil::sync_filesystem(tmp))
        .map_err(|error| no_room_or("sync the snapshot", error))?;
    reached("save.synced", None);
    fsutil::rename_durably(tmp, &places.dir).when("name the snapshot")?;
    reached("save.renamed", None);
    Ok(kept.bytes)
}

/// Removes a snapshot, if it is there.
pub(super) fn drop_snapshot(host: &Host, snapshot: SnapshotId) -> Result<(), Trouble> {
    let lock = lock(host, snapshot);
    let _unused = lock.write().unwrap_or_else(PoisonError::into_inner);
    let places = host.paths.snapshot(snapshot);
    // The name goes first and at once: what is left of a half-removed snapshot must not look complete.
    if places.dir.try_exists().when("look for the snapshot")? {
        fsutil::remove_tree(&places.tmp).when("remove an unfinished snapshot")?;
        fsutil::rename_durably(&places.dir, &places.tmp).when("take the snapshot's name away")?;
    }
    reached("unsave.renamed", None);
    fsutil::remove_tree(&places.tmp).when("remove the snapshot")?;
    boot::sweep_images(host)
}

/// Every snapshot there is anything of, whole or not.
pub(super) fn list(host: &Host) -> Result<Vec<SnapshotId>, Trouble> {
    let mut ids = names(&host.paths).when("list the snapshots")?;
    ids.sort_unstable();
    ids.dedup();
    Ok(ids)
}

/// The records of all snapshots that are whole: what they are made of must stay.
pub(super) fn records(paths: &Paths) -> io::Result<Vec<Record>> {
    let mut records = Vec::new();
    for id in names(paths)? {
        records.extend(load(&paths.snapshot(id))?.map(|kept| kept.record));
    }
    Ok(records)
}

/// The files of a new box that begins as a snapshot.
pub(super) fn make_files(host: &Host, spec: &BoxSpec, origin: Origin) -> Result<Record, Trouble> {
    let lock = lock(host, origin.snapshot);
    let _stays = lock.read().unwrap_or_else(PoisonError::into_inner);
    let places = host.paths.snapshot(origin.snapshot);
    let paths = host.paths.of(spec.id);
    let kept = load(&places).when("read the snapshot")?.ok_or_else(|| {
        Trouble::Gone(format!(
            "snapshot {} is not there any more",
            origin.snapshot
        ))
    })?;
    if origin.memory && !kept.memory {
        let text = format!("snapshot {} has no memory", origin.snapshot);
        return Err(Trouble::Refused(text));
    }
    // What comes back from memory brings its own boxd along.
    let boxd = if origin.memory {
        kept.record.boxd.clone()
    } else {
        host.boxd.clone()
    };
    // The ids are in the files, and the memory knows them. Only boxes of one account share them like this.
    let mut record = Record::new(spec, kept.record.image.clone(), boxd, kept.record.uid_base);
    if origin.memory {
        record.boot_id.clone_from(&kept.record.boot_id);
    }
    let files = SnapshotPaths::upper(&places.dir);
    require_room(&files, &host.paths)?;
    make_closed(&paths.dir).when("make the box's folder")?;
    record.save(&paths).when("write box.json")?;
    for dir in [paths.work(), paths.copies()] {
        fs::create_dir_all(&dir).when("make the box's folders")?;
    }
    copytree::copy_tree(&files, &paths.upper())
        .map_err(|error| no_room_or("copy the files", error))?;
    reached("seed.files", None);
    if origin.memory {
        copytree::link_files(&SnapshotPaths::memory(&places.dir), &paths.origin())
            .map_err(|error| no_room_or("copy the memory", error))?;
        reached("seed.memory", None);
    }
    Ok(record)
}

/// Brings a new box to life from the memory it was given; its daemon answers then.
pub(super) fn wake(
    host: &Host,
    id: BoxId,
    record: &Record,
    egress: &Egress,
) -> Result<Reaches, Trouble> {
    let origin = host.paths.of(id).origin();
    thaw::restore_standing(host, id, &origin, record)?;
    reached("seed.restored", None);
    let reaches = thaw::release(host, id, egress)?;
    fsutil::remove_tree(&origin).when("remove the memory that it began with")?;
    Ok(reaches)
}

/// The lock of a snapshot. One that nobody holds is not kept.
fn lock(host: &Host, id: SnapshotId) -> Arc<RwLock<()>> {
    let locks = host.snapshot_locks.lock();
    let mut locks = locks.unwrap_or_else(PoisonError::into_inner);
    locks.retain(|_, lock| Arc::strong_count(lock) > 1);
    Arc::clone(locks.entry(id).or_default())
}

fn load(places: &SnapshotPaths) -> io::Result<Option<Kept>> {
    match fs::read(SnapshotPaths::record(&places.dir)) {
        Ok(bytes) => serde_json::from_slice(&bytes)
            .map(Some)
            .map_err(io::Error::other),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn names(paths: &Paths) -> io::Result<Vec<SnapshotId>> {
    let mut ids = Vec::new();
    for entry in fs::read_dir(paths.snapshots())? {
        let name = entry?.file_name();
        let name = name.to_str().unwrap_or_default();
        ids.extend(SnapshotId::parse(name.strip_suffix(".tmp").unwrap_or(name)));
    }
    Ok(ids)
}

/// Only root on the host looks into a box's files from outside: they may hold set-user-id programs.
fn make_closed(dir: &Path) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    fs::set_permissions(dir, fs::Permissions::from_mode(0o700))
}

/// Errors when a copy of `files` certainly does not fit. Gives what they take up.
fn require_room(files: &Path, paths: &Paths) -> Result<u64, Trouble> {
    let needed = copytree::disk_bytes(files).when("measure the box's files")?;
    let free = fsutil::free_bytes(&paths.snapshots()).when("ask for free disk")?;
    if free < needed.saturating_add(HEADROOM_BYTES) && !shares(paths) {
        return Err(disk_full(&format!(
            "{} MiB are needed, {} MiB are free",
            needed >> 20,
            free >> 20
        )));
    }
    Ok(needed)
}

/// Whether copies share their data with the original here, and take next to no room.
fn shares(paths: &Paths) -> bool {
    const BTRFS: u64 = 0x9123_683e;
    const XFS: u64 = 0x5846_5342;
    let kind = rustix::fs::statfs(paths.snapshots()).map(|stat| u64::try_from(stat.f_type));
    matches!(kind, Ok(Ok(BTRFS | XFS)))
}

fn no_room_or(what: &'static str, error: io::Error) -> Trouble {
    Trouble::of_disk(what, error, disk_full)
}

fn disk_full(detail: &str) -> Trouble {
    Trouble::Refused(format!(
        "the disk is too full for a copy of the box's files ({detail}): free some space, or remove snapshots"
    ))
}
