//! Looking: what this host can do, which boxes there are, and when one ends. Changes nothing.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use icebox_lifecycle::{BoxId, CopyId, Processes, Seen};
use tokio::io::unix::AsyncFd;

use super::cgroup::Cgroup;
use super::paths::BoxPaths;
use super::{Host, Trouble, While, boot, copy, criu, fsutil, programs, record, renew, seen};
use crate::driver::{Capabilities, DriverError};

/// What is known when a box's first process is gone and nobody saw why.
const ENDED: &str = "boxd, the first process of the box, ended";

pub(super) fn capabilities(host: &Host) -> Capabilities {
    let cpus = std::thread::available_parallelism().map_or(1, |n| n.get());
    let disk = rustix::fs::statvfs(host.paths.boxes().as_path())
        .map_or(0, |s| s.f_blocks.saturating_mul(s.f_frsize));
    Capabilities {
        name: "container",
        checkpoint: host.criu.as_ref().map(|_| ()).map_err(Clone::clone),
        egress: host.way_out.works(),
        cpus: u32::try_from(cpus).unwrap_or(u32::MAX),
        memory_mb: memory_mb(),
        disk_gb: disk >> 30,
    }
}

fn memory_mb() -> u64 {
    let info = rustix::system::sysinfo();
    let bytes = u64::from(info.mem_unit).saturating_mul(info.totalram);
    bytes >> 20
}

/// Errors, with what to do, when runc is not there.
pub(super) fn require_runc() -> Result<(), String> {
    let asked = programs::run(Command::new("runc").arg("--version"), "", programs::SHORT);
    match asked {
        Ok(output) if output.status.success() => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::TimedOut => Err(error.to_string()),
        Ok(_) | Err(_) => Err(
            "runc is not installed: run scripts/bootstrap, or install the package runc".to_owned(),
        ),
    }
}

/// Errors, with what to do, when `boxd` is missing or needs libraries that an image may lack.
pub(super) fn require_static(boxd: &Path) -> Result<(), String> {
    let content = fs::read(boxd).map_err(|e| {
        let path = boxd.display();
        format!("cannot read boxd at {path}: {e}; build it with `make boxd`, or set ICEBOX_BOXD")
    })?;
    match interpreter_segment(&content) {
        Some(false) => Ok(()),
        Some(true) => Err(format!(
            "{} is dynamically linked: build it with `make boxd`",
            boxd.display()
        )),
        None => Err(format!("{} is not a 64-bit ELF program", boxd.display())),
    }
}

/// Where boxd is looked for, from the folder of this program: as an install lays it, and as the build does.
const BOXD_PLACES: [&str; 2] = ["../lib/icebox/boxd", "../boxd/boxd"];

/// The file named by `ICEBOX_BOXD`, or the first that is there; else the place an install would have put it.
pub(super) fn find_boxd() -> PathBuf {
    if let Some(named) = std::env::var_os("ICEBOX_BOXD").filter(|named| !named.is_empty()) {
        return named.into();
    }
    // The path of the running program has its links resolved already.
    let program = std::env::current_exe().unwrap_or_default();
    boxd_near(program.parent().unwrap_or(Path::new("/")))
}

fn boxd_near(folder: &Path) -> PathBuf {
    let places = BOXD_PLACES.map(|place| folder.join(place));
    let found = places.iter().find(|place| place.is_file());
    found.unwrap_or(&places[0]).clone()
}

/// Whether a 64-bit ELF program names an interpreter, that is, is dynamically linked.
fn interpreter_segment(elf: &[u8]) -> Option<bool> {
    const PT_INTERP: u32 = 3;
    if elf.get(..5)? != b"\x7fELF\x02" {
        return None;
    }
    let u64_at = |at: usize| Some(u64::from_le_bytes(elf.get(at..at + 8)?.try_into().ok()?));
    let u16_at = |at: usize| Some(u16::from_le_bytes(elf.get(at..at + 2)?.try_into().ok()?));
    let table = usize::try_from(u64_at(32)?).ok()?;
    let (size, count) = (usize::from(u16_at(54)?), usize::from(u16_at(56)?));
    for index in 0..count {
        let at = table + index * size;
        let kind = u32::from_le_bytes(elf.get(at..at + 4)?.try_into().ok()?);
        if kind == PT_INTERP {
            return Some(true);
        }
    }
    Some(false)
}

/// The pid here of the process that is 1 in the box.
pub(super) fn first_process(cgroup: &Cgroup) -> io::Result<Option<u32>> {
    for pid in cgroup.pids()? {
        if is_first(pid)? {
            return Ok(Some(pid));
        }
    }
    Ok(None)
}

fn is_first(pid: u32) -> io::Result<bool> {
    let status = fsutil::read_unless_gone(Path::new(&format!("/proc/{pid}/status")))?;
    let status = status.unwrap_or_default();
    let alive = !status.lines().any(|l| l.starts_with("State:\tZ"));
    let numbers = status.lines().find_map(|l| l.strip_prefix("NSpid:"));
    let numbers = numbers.map(|l| l.split_whitespace().collect::<Vec<_>>());
    Ok(alive && numbers.is_some_and(|n| n.len() > 1 && n.last() == Some(&"1")))
}

/// Every box there is anything of, once CRIUs that an earlier server started have ended.
pub(super) fn list(host: &Host) -> Result<Vec<(BoxId, Seen)>, Trouble> {
    let mut ids: Vec<BoxId> = record::all(&host.paths)
        .when("list the boxes")?
        .into_iter()
        .map(|(id, _)| id)
        .collect();
    for id in host.hierarchies.boxes().when("list the boxes' cgroups")? {
        if is_ours(host, id).when("look at the box's folder")? {
            ids.push(id);
        }
    }
    ids.sort_unstable();
    ids.dedup();
    // A server asks for the list once, when it starts: the time to tidy up after older versions.
    tidy_boxds(host, &ids)?;
    let looked = ids.into_iter().map(|id| match look(host, id) {
        Ok(seen) => Ok((id, seen)),
        Err(trouble) => Err(Trouble::Failed(format!("box {id}: {trouble}"))),
    });
    looked.collect()
}

/// Removes boxds of earlier versions, once it is written down what every box executes.
fn tidy_boxds(host: &Host, ids: &[BoxId]) -> Result<(), Trouble> {
    for id in ids {
        let first = first_process(&host.hierarchies.of(*id));
        let Some(pid) = first.when("look at the box's processes")? else {
            continue;
        };
        if let Err(error) = renew::executed(host, *id, pid) {
            tracing::warn!(%id, %error, "boxds of earlier versions are kept, for this box may need one");
            return Ok(());
        }
    }
    boot::sweep_boxds(host)
}

/// Whether a box's processes belong to this data folder: several servers may share a machine.
fn is_ours(host: &Host, id: BoxId) -> io::Result<bool> {
    host.paths.of(id).run.try_exists()
}

fn look(host: &Host, id: BoxId) -> Result<Seen, Trouble> {
    let paths = host.paths.of(id);
    criu::wait_for_leftover(&paths).when("wait for CRIU")?;
    let cgroup = host.hierarchies.of(id);
    let copy = newest_copy(&paths).when("look for the box's copies")?;
    // Half a restore is not the box.
    let first = first_process(&cgroup).when("look at the box's processes")?;
    let half = paths.is_half_restored().when("look at the box's folder")?;
    let processes = match first.filter(|_| !half) {
        None => return Ok(seen(Processes::Absent, copy, ENDED)),
        Some(_) if cgroup.is_frozen().when("look at the box's cgroup")? => Processes::Stopped,
        Some(_) => Processes::Running,
    };
    if processes == Processes::Running {
        host.connections.allow(id);
    }
    Ok(seen(processes, copy, ""))
}

fn newest_copy(paths: &BoxPaths) -> io::Result<Option<CopyId>> {
    let mut newest = None;
    for entry in fsutil::entries(&paths.copies())? {
        let name = entry.file_name();
        let number = name.to_str().and_then(|name| name.parse::<u32>().ok());
        if let Some(number) = number
            && copy::is_complete(&entry.path())?
        {
            newest = newest.max(Some(CopyId(number)));
        }
    }
    Ok(newest)
}

/// Resolves when the box's first process ends.
pub(super) async fn exited(host: &Host, id: BoxId) -> Result<String, DriverError> {
    let Some(pidfd) = host.first_process(id)?.map(fsutil::open_pidfd) else {
        return Ok(ENDED.to_owned());
    };
    let Some(pidfd) = pidfd.when("watch the box")? else {
        return Ok(ENDED.to_owned());
    };
    // SAFETY: an `OwnedFd` names the same open descriptor until it is dropped, which is after the watch.
    let watched = unsafe { AsyncFd::register(pidfd) }
        .map_err(io::Error::from)
        .when("watch the box")?;
    // A pidfd becomes readable when its process has ended.
    drop(watched.readable().await.when("watch the box")?);
    Ok(ENDED.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boxd_is_found_beside_an_install_and_beside_a_build() {
        let dir = tempfile::tempdir().expect("a folder");
        for (program, boxd) in [
            ("bin", "lib/icebox/boxd"),
            ("target/release", "target/boxd/boxd"),
        ] {
            let (folder, boxd) = (dir.path().join(program), dir.path().join(boxd));
            fs::create_dir_all(&folder).expect("a folder");
            assert_eq!(
                boxd_near(&folder),
                folder.join("../lib/icebox/boxd"),
                "there is none yet"
            );
            fs::create_dir_all(boxd.parent().expect("a parent")).expect("a folder");
            fs::write(&boxd, "").expect("a file");
            let found = boxd_near(&folder).canonicalize().expect("it is there");
            assert_eq!(found, boxd.canonicalize().expect("it is there"));
        }
    }

    #[test]
    fn only_static_programs_pass() {
        let own = std::env::current_exe().expect("this test");
        let rows: [(&[u8], Option<bool>); 3] = [
            (&fs::read(own).expect("this test"), Some(true)),
            (b"#!/bin/sh", None),
            (b"", None),
        ];
        for (elf, expected) in rows {
            assert_eq!(interpreter_segment(elf), expected);
        }
    }
}
