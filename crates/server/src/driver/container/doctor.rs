//! What `icebox doctor` asks of a host: one check a need, and a trial box that really freezes and thaws.
//! Owns the sentences that say what is missing and what to do about it; prints nothing.

use std::fs;
use std::path::Path;
use std::process::Command;

use icebox_lifecycle::{BoxId, CopyId};

use super::cgroup::Hierarchies;
use super::criu::Criu;
use super::{ContainerDriver, fsutil, probe, programs, wayout};
use crate::driver::{BoxSpec, Driver, DriverError, Egress, FreezeMode, Size};

/// The oldest kernel that id-maps a lower layer of an overlay.
const KERNEL: (u32, u32) = (5, 19);

/// Disk below which a warning is due.
const LOW_DISK_BYTES: u64 = 5 << 30;

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// What was looked at, in a word or two.
    pub name: &'static str,
    /// How it is.
    pub state: CheckState,
    /// What was found.
    pub found: String,
    /// What to do about it; empty when there is nothing to do.
    pub advice: String,
}

/// How a check came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckState {
    /// As it should be.
    Ok,
    /// Boxes run, something is less than it could be.
    Warn,
    /// Boxes cannot run.
    Fail,
}

/// Looks at this host, and when boxes can run here, runs one: boots it, freezes it to disk, thaws it. Each
/// check is told to `tell` as soon as it is made; the last takes a second, and once as long as the image.
pub async fn doctor(data: &Path, boxd: &Path, tell: &mut (dyn FnMut(&Check) + Send)) -> Vec<Check> {
    let looks: [&dyn Fn() -> Check; 11] = [
        &root,
        &kernel,
        &user_namespaces,
        &cgroups,
        &|| program("runc", probe::require_runc()),
        &|| program("boxd", probe::require_static(boxd)),
        &|| {
            tool(
                "ip",
                "CRIU copies network namespaces with it: install iproute2",
            )
        },
        &|| {
            tool(
                "tar",
                "CRIU copies /tmp and /run of a box with it: install tar",
            )
        },
        &criu,
        &way_out,
        &|| disk(data),
    ];
    let mut checks = Vec::new();
    for look in looks {
        let check = look();
        tell(&check);
        checks.push(check);
    }
    let can_run = checks.iter().all(|c| c.state != CheckState::Fail);
    let last = if can_run {
        trial(data, boxd).await
    } else {
        warn(
            "trial box",
            "not tried, since boxes cannot run yet",
            "mend what failed above first",
        )
    };
    tell(&last);
    checks.push(last);
    checks
}

fn ok(name: &'static str, found: impl Into<String>) -> Check {
    Check {
        name,
        state: CheckState::Ok,
        found: found.into(),
        advice: String::new(),
    }
}

fn warn(name: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Check {
    Check {
        state: CheckState::Warn,
        advice: advice.into(),
        ..ok(name, found)
    }
}

fn fail(name: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Check {
    Check {
        state: CheckState::Fail,
        ..warn(name, found, advice)
    }
}

fn root() -> Check {
    if rustix::process::geteuid().is_root() {
        return ok("root", "running as root");
    }
    fail(
        "root",
        "not running as root",
        "run it as root: boxes need mounts, cgroups and namespaces",
    )
}

fn kernel() -> Check {
    let release = rustix::system::uname()
        .release()
        .to_string_lossy()
        .into_owned();
    let mut numbers = release
        .split(['.', '-'])
        .map(|n| n.parse::<u32>().unwrap_or(0));
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if version >= KERNEL {
        return ok("kernel", format!("Linux {release}"));
    }
    let (major, minor) = KERNEL;
    fail(
        "kernel",
        format!("Linux {release}"),
        format!("Linux {major}.{minor} or later is needed"),
    )
}

fn user_namespaces() -> Check {
    match super::userns::open(super::userns::FIRST) {
        Ok(_) => ok("user namespaces", "can be made"),
        Err(error) => fail(
            "user namespaces",
            format!("cannot be made: {error}"),
            "raise sysctl user.max_user_namespaces",
        ),
    }
}

fn cgroups() -> Check {
    match Hierarchies::detect() {
        Ok(found) => ok("cgroups", found.describe()),
        Err(advice) => fail("cgroups", "no cgroup v2 tree", advice),
    }
}

fn program(name: &'static str, found: Result<(), String>) -> Check {
    match found {
        Ok(()) => ok(name, "found"),
        Err(advice) => fail(name, "not usable", advice),
    }
}

fn tool(name: &'static str, advice: &str) -> Check {
    // Both answer `--version`-like questions with different flags; being startable is what counts.
    match programs::run(Command::new(name).arg("-V"), "", programs::SHORT) {
        Ok(_) => ok(name, "found"),
        Err(error) => warn(name, format!("not usable: {error}"), advice),
    }
}

fn criu() -> Check {
    match Criu::find() {
        Ok(criu) => ok("criu", format!("version {}", criu.version)),
        Err(advice) => warn("criu", "no usable CRIU: boxes freeze in RAM only", advice),
    }
}

fn way_out() -> Check {
    let name = "way out";
    let found = wayout::look();
    if let Err(why) = found.works {
        return warn(name, "boxes reach nothing outside", why);
    }
    if found.warnings.is_empty() {
        let notes = ["can be made".to_owned()].into_iter().chain(found.notes);
        return ok(name, notes.collect::<Vec<_>>().join("; "));
    }
    let (what, advice): (Vec<_>, Vec<_>) = found.warnings.into_iter().unzip();
    warn(name, what.join("; "), advice.join("; "))
}

fn disk(data: &Path) -> Check {
    if let Err(error) = fs::create_dir_all(data) {
        return fail(
            "disk",
            format!("{}: {error}", data.display()),
            "choose another folder with --data",
        );
    }
    match fsutil::free_bytes(data) {
        Ok(free) if free >= LOW_DISK_BYTES => ok(
            "disk",
            format!("{} GiB free in {}", free >> 30, data.display()),
        ),
        Ok(free) => warn(
            "disk",
            format!("{} MiB free in {}", free >> 20, data.display()),
            "a copy is as large as the memory of its box: free some space",
        ),
        Err(error) => fail(
            "disk",
            error.to_string(),
            "choose another folder with --data",
        ),
    }
}

/// A box that is booted, frozen to disk, evicted, thawed and destroyed.
async fn trial(data: &Path, boxd: &Path) -> Check {
    let name = "trial box";
    let driver = match ContainerDriver::open(data, boxd) {
        Ok(driver) => driver,
        Err(advice) => return fail(name, "the driver does not open", advice),
    };
    let mut random = [0_u8; 20];
    if let Err(error) = rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())
    {
        return fail(
            name,
            format!("no random numbers: {error}"),
            "check /dev/urandom",
        );
    }
    let id = BoxId::from_random(random);
    let tried = freeze_and_thaw(&driver, id).await;
    let destroyed = driver.destroy(id, false).await;
    match (tried, destroyed) {
        (Ok(()), Ok(())) => ok(name, "booted, froze to disk, thawed and was removed"),
        (Ok(()), Err(error)) => fail(
            name,
            format!("could not be removed: {error}"),
            "see the log",
        ),
        (Err(("freeze", DriverError::Refused(why))), _) => warn(
            name,
            format!("boots, but cannot be copied to disk: {why}"),
            "boxes freeze in RAM only until this is mended",
        ),
        (Err((step, error)), _) => fail(
            name,
            format!("{step} failed: {error}"),
            "run with RUST_LOG=debug and see the log",
        ),
    }
}

async fn freeze_and_thaw(
    driver: &ContainerDriver,
    id: BoxId,
) -> Result<(), (&'static str, DriverError)> {
    let spec = BoxSpec {
        id,
        image: "host".to_owned(),
        size: Size {
            milli_cpus: 1_000,
            memory_mb: 256,
            disk_gb: 1,
        },
        env: std::collections::BTreeMap::new(),
        egress: Egress::default(),
        origin: None,
    };
    let copy = CopyId(1);
    driver.boot(&spec, false).await.map_err(|e| ("boot", e))?;
    driver
        .freeze(id, FreezeMode::Copy(copy))
        .await
        .map_err(|e| ("freeze", e))?;
    driver.evict(id, copy).await.map_err(|e| ("evict", e))?;
    driver.thaw(id, copy).await.map_err(|e| ("thaw", e))?;
    let egress = Egress::default();
    let released = driver.release(id, &egress).await;
    released.map(drop).map_err(|e| ("release", e))
}
