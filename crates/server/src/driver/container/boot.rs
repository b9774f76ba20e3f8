//! Making a box, and removing it: the order of each, and what a half-done one leaves to be cleaned.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::{PermissionsExt, lchown};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use icebox_lifecycle::BoxId;

use super::paths::BoxPaths;
use super::record::{self, Record};
use super::{
    Host, Trouble, While, bootid, criu, fsutil, image::Images, mount, netns, oci, programs,
    snapshot, wayout,
};
use crate::clock::monotonic_now;
use crate::driver::{BOXD_PORT, BoxSpec, Reaches};
use crate::steps::reached;

/// How often boxd is asked whether it is there, how long it may take to answer, and how long all of that may take before the
/// box counts as broken.
const ANSWER_INTERVAL: Duration = Duration::from_millis(2);
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
const ANSWER_LIMIT: Duration = Duration::from_secs(20);

/// How long one run of runc may take.
const RUNC_LIMIT: Duration = Duration::from_secs(60);

pub(super) fn boot(host: &Host, spec: &BoxSpec, keep_files: bool) -> Result<Reaches, Trouble> {
    let id = spec.id;
    if spec.image != "host" {
        return Err(Trouble::Refused(format!(
            "image {:?} is not known: this server has the image \"host\"",
            spec.image
        )));
    }
    let paths = host.paths.of(id);
    clear_running_parts(host, id)?;
    let record = if keep_files {
        renew_record(host, spec)?
    } else {
        fsutil::remove_tree(&paths.dir).when("remove leftovers of the box")?;
        match spec.origin {
            None => make_files(host, spec)?,
            Some(origin) => {
                let record = snapshot::make_files(host, spec, origin)?;
                if origin.memory {
                    return snapshot::wake(host, id, &record, &spec.egress);
                }
                record
            }
        }
    };
    reached("boot.recorded", None);
    let image = host.images.dir(&record.image);
    fs::create_dir_all(&paths.run).when("make the run folder")?;
    mount::mount_box(&paths, &image, record.uid_base).when("mount the box's files")?;
    reached("boot.mounted", None);
    host.hierarchies
        .of(id)
        .create(record.size())
        .when("make the box's cgroups")?;
    reached("boot.cgroups", None);
    run(host, id, &record)?;
    reached("boot.created", None);
    let reaches = wayout::settle(host, id, host.require_first_process(id)?, &spec.egress)?;
    wait_for_boxd(host, id)?;
    host.connections.allow(id);
    reached("boot.answered", None);
    Ok(reaches)
}

/// The record and the empty upper layer of a new box.
fn make_files(host: &Host, spec: &BoxSpec) -> Result<Record, Trouble> {
    let paths = host.paths.of(spec.id);
    let image = host.images.current_host().when("make the image host")?;
    let record = {
        let _one_at_a_time = host.choosing_ids.lock().unwrap_or_else(|e| e.into_inner());
        let boxes = record::all(&host.paths).when("list the boxes")?;
        let snapshots = snapshot::records(&host.paths).when("list the snapshots")?;
        let taken: Vec<u32> = boxes
            .into_iter()
            .filter_map(|(_, record)| record)
            .chain(snapshots)
            .map(|record| record.uid_base)
            .collect();
        let uid_base = record::free_uid_base(&taken, spec.id);
        fs::create_dir_all(&paths.dir).when("make the box's folder")?;
        let record = Record::new(spec, image, host.boxd.clone(), uid_base);
        record.save(&paths).when("write box.json")?;
        record
    };
    for dir in [paths.upper(), paths.work(), paths.copies()] {
        fs::create_dir_all(&dir).when("make the box's folders")?;
    }
    // Only root on the host looks into a box's files from outside: they may hold set-user-id programs.
    fs::set_permissions(&paths.dir, fs::Permissions::from_mode(0o700))
        .when("close the box's folder")?;
    let upper = paths.upper();
    fs::set_permissions(&upper, fs::Permissions::from_mode(0o755)).when("open the box's root")?;
    lchown(&upper, Some(record.uid_base), Some(record.uid_base)).when("hand the box its root")?;
    Ok(record)
}

/// A cold start: same image and ids, today's boxd. Its copies went when its memory did.
fn renew_record(host: &Host, spec: &BoxSpec) -> Result<Record, Trouble> {
    let mut record = host.record(spec.id)?;
    let copies = host.paths.of(spec.id).copies();
    fs::create_dir_all(copies).when("make the folder of the box's copies")?;
    record.boxd.clone_from(&host.boxd);
    record.boot_id = bootid::fresh();
    record
        .save(&host.paths.of(spec.id))
        .when("write box.json")?;
    Ok(record)
}

fn run(host: &Host, id: BoxId, record: &Record) -> Result<(), Trouble> {
    let paths = host.paths.of(id);
    let bundle = oci::Bundle {
        id,
        rootfs: &paths.rootfs(),
        boxd: &host.images.boxd(&record.boxd),
        uid_base: record.uid_base,
        env: environment(record),
    };
    let config = oci::config(&bundle).to_string();
    fs::write(paths.run.join("config.json"), config).when("write config.json")?;
    runc(
        &paths,
        &["create", "--bundle", &paths.run.to_string_lossy()],
        id,
    )?;
    let pid_text = fs::read_to_string(paths.run.join("pid")).when("read the box's pid")?;
    let pid: u32 = pid_text
        .trim()
        .parse()
        .map_err(|_| Trouble::Failed(format!("runc wrote {pid_text:?} as the box's pid")))?;
    let shown = bootid::place(&paths, &record.boot_id).and_then(|()| bootid::mount(&paths, pid));
    if let Err(error) = shown {
        // Few programs read it, and none needs it to be the box's own.
        tracing::warn!(%id, %error, "the box shows the machine's boot id");
    }
    host.hierarchies
        .of(id)
        .adopt(pid)
        .when("move the box into its cgroups")?;
    runc(&paths, &["start"], id)
}

fn environment(record: &Record) -> Vec<String> {
    let path = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".to_owned();
    let own = record
        .env
        .iter()
        .map(|(name, value)| format!("{name}={value}"));
    std::iter::once(path).chain(own).collect()
}

/// Runs runc for one box; what it says on failure is the reason.
fn runc(paths: &BoxPaths, arguments: &[&str], id: BoxId) -> Result<(), Trouble> {
    let log = paths.run.join("runc.log");
    let mut command = Command::new("runc");
    command
        .arg("--root")
        .arg(paths.runc_state())
        .arg("--log")
        .arg(&log);
    command.args(arguments);
    if arguments[0] == "create" {
        command.arg("--pid-file").arg(paths.run.join("pid"));
    }
    // The box's first process inherits these: /dev/null, so that nothing outside is part of its copy.
    command
        .arg(id.as_str())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let status = programs::status(&mut command, RUNC_LIMIT).when("run runc")?;
    if status.success() {
        return Ok(());
    }
    let said = fs::read_to_string(&log).unwrap_or_default();
    let last = said.lines().last().unwrap_or("it gave no reason");
    Err(Trouble::Failed(format!(
        "runc {} failed: {last}",
        arguments[0]
    )))
}

/// Waits until boxd answers that it is well. Errors when the box ends or the time is over.
pub(super) fn wait_for_boxd(host: &Host, id: BoxId) -> Result<(), Trouble> {
    let until = monotonic_now() + ANSWER_LIMIT;
    loop {
        let pid = host.require_first_process(id)?;
        let Err(error) = ask_health(pid) else {
            return Ok(());
        };
        if monotonic_now() > until {
            return Err(Trouble::Failed(format!(
                "boxd has not answered for {} s: {error}",
                ANSWER_LIMIT.as_secs()
            )));
        }
        std::thread::sleep(ANSWER_INTERVAL);
    }
}

fn ask_health(pid: u32) -> std::io::Result<()> {
    let mut stream = netns::connect(pid, BOXD_PORT)?;
    stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
    stream.write_all(b"GET /health HTTP/1.1\r\nHost: box\r\nConnection: close\r\n\r\n")?;
    let mut answer = [0_u8; 12];
    stream.read_exact(&mut answer)?;
    if &answer == b"HTTP/1.1 204" {
        return Ok(());
    }
    Err(std::io::Error::other(
        String::from_utf8_lossy(&answer).into_owned(),
    ))
}

/// Removes everything of a box that lives: connections, processes, mounts, cgroups, the run folder. Every
/// step is tried; the first error is the result.
pub(super) fn clear_running_parts(host: &Host, id: BoxId) -> Result<(), Trouble> {
    let paths = host.paths.of(id);
    let cgroup = host.hierarchies.of(id);
    host.connections.close(id);
    let waited = criu::wait_for_leftover(&paths).when("wait for CRIU");
    let killed = cgroup.kill().when("end the box's processes");
    reached("destroy.killed", None);
    let cut_off = wayout::remove(&paths, None);
    let unmounted = mount::unmount_box(&paths).when("unmount the box's files");
    reached("destroy.unmounted", None);
    let removed = cgroup.remove().when("remove the box's cgroups");
    waited
        .and(killed)
        .and(cut_off)
        .and(unmounted)
        .and(removed)?;
    remove_run_folder(&paths)
}

/// Removes `run/<id>`, once it is sure that nothing is mounted in it.
pub(super) fn remove_run_folder(paths: &BoxPaths) -> Result<(), Trouble> {
    let mounted = mount::mounts_under(&paths.run).when("look at what is mounted")?;
    if let Some(point) = mounted.first() {
        return Err(Trouble::Failed(format!("{point} is still mounted")));
    }
    fsutil::remove_tree(&paths.run).when("remove the run folder")
}

pub(super) fn destroy(host: &Host, id: BoxId, keep_files: bool) -> Result<(), Trouble> {
    let paths = host.paths.of(id);
    let cleared = clear_running_parts(host, id);
    if keep_files {
        let copies = fsutil::remove_tree(&paths.copies()).when("remove the box's copies");
        return cleared.and(copies);
    }
    // Files go only once nothing runs on them any more.
    cleared?;
    remove_box_folder(&paths.dir)?;
    reached("destroy.removed", None);
    sweep_images(host)
}

fn remove_box_folder(dir: &Path) -> Result<(), Trouble> {
    // The record goes last: while it is there, a restarted server finds the rest.
    for entry in fsutil::entries(dir).when("list the box's files")? {
        if entry.file_name() != "box.json" {
            let path = entry.path();
            let removed = if path.is_dir() {
                fsutil::remove_tree(&path)
            } else {
                fsutil::remove_file(&path)
            };
            removed.when("remove the box's files")?;
        }
    }
    fsutil::remove_tree(dir).when("remove the box's folder")
}

/// Removes generations of images that no box or snapshot is made of any more.
pub(super) fn sweep_images(host: &Host) -> Result<(), Trouble> {
    let Some(records) = every_record(host)? else {
        return Ok(());
    };
    let mut used = vec![Images::current_host_name()];
    used.extend(records.into_iter().map(|record| record.image));
    host.images
        .sweep_generations(&used)
        .when("remove unused images")
}

/// Removes boxds of earlier versions that no box or snapshot carries any more. Only for the one server on the data
/// folder: a boxd that another program just put there for its boxes has no record yet.
pub(super) fn sweep_boxds(host: &Host) -> Result<(), Trouble> {
    let Some(records) = every_record(host)? else {
        return Ok(());
    };
    let mut used = vec![host.boxd.clone()];
    used.extend(records.into_iter().map(|record| record.boxd));
    host.images.sweep_boxds(&used).when("remove unused boxds")
}

/// The records of all boxes and snapshots; `None` when one cannot be read, since that box may use anything.
fn every_record(host: &Host) -> Result<Option<Vec<Record>>, Trouble> {
    let boxes = record::all(&host.paths).when("list the boxes")?;
    let snapshots = snapshot::records(&host.paths).when("list the snapshots")?;
    let records = boxes.into_iter().map(|(_, record)| record);
    Ok(records.chain(snapshots.into_iter().map(Some)).collect())
}
