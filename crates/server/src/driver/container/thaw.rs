//! Thawing: from the copy into RAM, standing still; then running again.
//!
//! Everything before the release can be repeated: until then nothing of the box has run and the copy is
//! good.

use std::fs;
use std::path::Path;

use icebox_lifecycle::{BoxId, CopyId};

use super::copy::{CopyError, IMAGES, Manifest};
use super::criu::CriuError;
use super::record::Record;
use super::{Host, Trouble, While, boot, bootid, criu, fsutil, mount, wayout};
use crate::driver::{Egress, Reaches};
use crate::steps::reached;

pub(super) fn thaw(host: &Host, id: BoxId, copy: CopyId) -> Result<(), Trouble> {
    let paths = host.paths.of(id);
    let cgroup = host.hierarchies.of(id);
    criu::wait_for_leftover(&paths).when("wait for CRIU")?;
    let dir = paths.copy(copy);
    if !dir.try_exists().when("look for the copy")? {
        return Err(Trouble::Gone(format!("box {id} has no copy {}", copy.0)));
    }
    let half = paths.is_half_restored().when("look at the box's folder")?;
    if !half && host.first_process(id)?.is_some() {
        // Standing: there is nothing to do. Running: the copy is older than the box and must not meet it.
        return match cgroup.is_frozen().when("look at the box's cgroup")? {
            true => Ok(()),
            false => Err(Trouble::Refused(format!(
                "box {id} runs: its copy is out of date"
            ))),
        };
    }
    let record = host.record(id)?;
    restore_standing(host, id, &dir, &record)
}

/// Brings a box whose memory is in `dir` into RAM, standing still.
pub(super) fn restore_standing(
    host: &Host,
    id: BoxId,
    dir: &Path,
    record: &Record,
) -> Result<(), Trouble> {
    let paths = host.paths.of(id);
    let cgroup = host.hierarchies.of(id);
    let manifest = Manifest::read(dir, &host.facts).map_err(damaged)?;
    reached("thaw.checked", None);
    // What a killed restore left: processes, mounts, CRIU's own folders.
    boot::clear_running_parts(host, id)?;
    fs::create_dir_all(&paths.run).when("make the run folder")?;
    let image = host.images.dir(&record.image);
    mount::mount_box(&paths, &image, record.uid_base).when("mount the box's files")?;
    cgroup
        .create(record.size())
        .when("make the box's cgroups")?;
    bootid::place(&paths, &record.boot_id).when("keep the box's boot id")?;
    fs::write(paths.restoring(), "").when("mark the restore as begun")?;
    remove_criu_leftovers(&paths.restoring());
    reached("thaw.mounted", None);
    let restored = restore_while_verifying(host, id, dir, &manifest, record);
    if restored.is_err() {
        // The copy is good or not, but these processes must not be taken for the box.
        boot::clear_running_parts(host, id)?;
    }
    restored?;
    fs::write(paths.restored(), "").when("mark the box as restored")?;
    reached("thaw.restored", None);
    Ok(())
}

fn restore_while_verifying(
    host: &Host,
    id: BoxId,
    dir: &Path,
    manifest: &Manifest,
    record: &Record,
) -> Result<(), Trouble> {
    std::thread::scope(|scope| {
        let verifying = scope.spawn(|| manifest.verify(dir));
        let restored = restore(host, id, dir, record);
        let verified = verifying
            .join()
            .map_err(|_| Trouble::Failed("checking the copy failed".to_owned()))?;
        // A damaged copy explains a failed restore better than CRIU does.
        verified.map_err(damaged)?;
        restored
    })
}

fn restore(host: &Host, id: BoxId, dir: &Path, record: &Record) -> Result<(), Trouble> {
    let paths = host.paths.of(id);
    let cgroup = host.hierarchies.of(id);
    let criu = host
        .criu
        .as_ref()
        .map_err(|why| Trouble::Refused(why.clone()))?;
    let images = dir.join(IMAGES);
    let boxd = host.images.boxd(&record.boxd);
    let outside = host.hierarchies.outside();
    let running = criu
        .restore(&paths, &cgroup, Some(&outside), &images, &boxd)
        .when("start CRIU")?;
    reached("thaw.restoring", Some(running.pid()));
    match running.wait() {
        Ok(()) if cgroup.is_frozen().when("look at the box's cgroup")? => Ok(()),
        Ok(()) => Err(Trouble::Failed(
            "the restored box did not stand still".to_owned(),
        )),
        Err(CriuError::Killed) => Err(Trouble::Failed("the restore was killed".to_owned())),
        Err(CriuError::Said(reason)) => Err(Trouble::Failed(format!(
            "CRIU could not restore the box: {reason}"
        ))),
        Err(CriuError::Io(source)) => Err(Trouble::Io {
            what: "run CRIU",
            source,
        }),
    }
}

fn damaged(error: CopyError) -> Trouble {
    match error {
        CopyError::Io(source) => Trouble::Io {
            what: "read the copy",
            source,
        },
        CopyError::Damaged(_) | CopyError::Unfit(_) => Trouble::Refused(format!(
            "{error}; it is kept, and the box can be started cold from its files"
        )),
    }
}

/// Removes the empty folders that killed restores left in `/tmp`, once they are older than any restore may
/// take: younger ones may belong to one that is under way. `now` is the age of a file just written.
fn remove_criu_leftovers(now: &Path) {
    let modified = |path: &Path| fs::metadata(path).and_then(|meta| meta.modified());
    let Ok(now) = modified(now) else { return };
    for entry in fs::read_dir("/tmp").into_iter().flatten().flatten() {
        let is_criu = entry
            .file_name()
            .to_string_lossy()
            .starts_with(".criu.mntns.");
        let age = modified(&entry.path())
            .ok()
            .and_then(|then| now.duration_since(then).ok());
        if is_criu && age.is_some_and(|age| age > criu::LIMIT) {
            // A folder that is not empty is not what we think it is, and stays.
            if let Err(error) = fs::remove_dir(entry.path()) {
                tracing::debug!(%error, folder = %entry.path().display(), "left by a killed restore");
            }
        }
    }
}

pub(super) fn release(host: &Host, id: BoxId, egress: &Egress) -> Result<Reaches, Trouble> {
    let paths = host.paths.of(id);
    let cgroup = host.hierarchies.of(id);
    criu::wait_for_leftover(&paths).when("wait for CRIU")?;
    let pid = host.require_first_process(id)?;
    reached("release.begun", None);
    // Programs that cannot reach outside for a while are better than a box that cannot be woken.
    let reaches = wayout::settle(host, id, pid, egress)?;
    // In this order: a restored box must not look half restored after a crash between the two.
    fsutil::remove_file(&paths.restoring()).when("unmark the restored box")?;
    fsutil::remove_file(&paths.restored()).when("unmark the restored box")?;
    cgroup.unfreeze().when("let the box's processes run")?;
    reached("release.running", None);
    boot::wait_for_boxd(host, id)?;
    host.connections.allow(id);
    reached("release.answered", None);
    Ok(reaches)
}
