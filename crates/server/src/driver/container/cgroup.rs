//! The cgroups of a box: limits, freezing, killing, counting. Knows pure v2 hosts, hybrid ones (v1
//! controllers with a v2 tree beside them) and nothing about containers.
//!
//! The driver makes these itself, also after a reboot, and never asks runc about them.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use icebox_lifecycle::BoxId;

use super::fsutil;
use crate::clock::monotonic_now;
use crate::driver::Size;

/// The name under which all boxes' cgroups stand, in every hierarchy.
const TOP: &str = "icebox";

/// Processes that a box may have at once.
const MAX_PIDS: u32 = 4096;

/// How long a freeze or the end of killed processes may take before it counts as failed.
const SETTLE: Duration = Duration::from_secs(20);

/// The cgroup hierarchies of this host.
#[derive(Clone, Debug)]
pub(super) struct Hierarchies {
    /// Where the v2 tree is mounted.
    unified: PathBuf,
    /// Where v1 controllers are mounted; empty on a pure v2 host.
    v1: Vec<(&'static str, PathBuf)>,
    /// Every other v1 hierarchy: runc makes groups there too, which have to be removed.
    others: Vec<PathBuf>,
}

/// The v1 controllers that a box is a member of, where they exist.
const V1: [&str; 5] = ["memory", "cpu", "cpuacct", "pids", "blkio"];

impl Hierarchies {
    /// Looks at `/sys/fs/cgroup`. Errors say what is missing.
    pub(super) fn detect() -> Result<Self, String> {
        let root = Path::new("/sys/fs/cgroup");
        if root.join("cgroup.controllers").exists() {
            return Ok(Self {
                unified: root.to_path_buf(),
                v1: Vec::new(),
                others: Vec::new(),
            });
        }
        let unified = root.join("unified");
        if !unified.join("cgroup.controllers").exists() {
            return Err(
                "no cgroup v2 tree at /sys/fs/cgroup or /sys/fs/cgroup/unified: \
                        mount one (mount -t cgroup2 none /sys/fs/cgroup/unified)"
                    .to_owned(),
            );
        }
        let is_hierarchy = |path: &PathBuf| path.join("cgroup.procs").exists();
        let v1 = V1.iter().map(|name| (*name, root.join(name)));
        let entries = fs::read_dir(root).map_err(|e| format!("cannot read /sys/fs/cgroup: {e}"))?;
        let others = entries
            .flatten()
            .filter(|entry| V1.iter().all(|name| entry.file_name() != *name))
            .map(|entry| entry.path())
            .filter(|path| is_hierarchy(path) && *path != unified);
        Ok(Self {
            v1: v1.filter(|(_, path)| is_hierarchy(path)).collect(),
            others: others.collect(),
            unified,
        })
    }

    /// What was found, for people.
    pub(super) fn describe(&self) -> String {
        match self.v1.is_empty() {
            true => "cgroup v2".to_owned(),
            false => format!("v1 controllers, v2 tree at {}", self.unified.display()),
        }
    }

    pub(super) fn of(&self, id: BoxId) -> Cgroup {
        let under = |root: &Path| root.join(TOP).join(id.as_str());
        Cgroup {
            unified: under(&self.unified),
            v1: self.v1.iter().map(|(n, root)| (*n, under(root))).collect(),
            others: self.others.iter().map(|root| under(root)).collect(),
        }
    }

    /// The ids of all boxes that have a v2 cgroup.
    pub(super) fn boxes(&self) -> io::Result<Vec<BoxId>> {
        let entries = fsutil::entries(&self.unified.join(TOP))?;
        let ids = entries
            .iter()
            .filter_map(|entry| BoxId::parse(entry.file_name().to_str()?));
        Ok(ids.collect())
    }

    /// Removes what the boxes' groups stand in, where there are none any more.
    pub(super) fn leave(&self) -> io::Result<()> {
        // Another server may be making what this removes.
        let _alone = fsutil::lock(&self.unified)?;
        let v1 = self.v1.iter().map(|(_, root)| root);
        for root in v1.chain(&self.others).chain([&self.unified]) {
            match fs::remove_dir(root.join(TOP)) {
                Err(error) if !is_in_use(&error) => return Err(error),
                Ok(()) | Err(_) => {}
            }
        }
        Ok(())
    }

    /// A v2 group outside every box, where CRIU waits while it freezes the one it restored.
    pub(super) fn outside(&self) -> PathBuf {
        self.unified.clone()
    }

    /// The path that runc is told; it is the same below every hierarchy.
    pub(super) fn runc_path(id: BoxId) -> String {
        format!("/{TOP}/{id}")
    }
}

/// The cgroups of one box.
#[derive(Clone, Debug)]
pub(super) struct Cgroup {
    unified: PathBuf,
    v1: Vec<(&'static str, PathBuf)>,
    others: Vec<PathBuf>,
}

impl Cgroup {
    /// Makes the groups and sets their limits; groups that exist are kept and get the limits anew.
    pub(super) fn create(&self, size: Size) -> io::Result<()> {
        let root = self.unified.ancestors().nth(2);
        let _alone = fsutil::lock(root.unwrap_or(&self.unified))?;
        if self.v1.is_empty() {
            self.enable_v2_controllers()?;
        }
        for path in self.all() {
            fs::create_dir_all(path)?;
        }
        let bytes = size.memory_mb * 1024 * 1024;
        let quota_us = u64::from(size.milli_cpus) * 100;
        if self.v1.is_empty() {
            write(&self.unified, "memory.max", &bytes.to_string())?;
            write(&self.unified, "pids.max", &MAX_PIDS.to_string())?;
            write(&self.unified, "cpu.max", &format!("{quota_us} 100000"))?;
            return Ok(());
        }
        for (name, path) in &self.v1 {
            match *name {
                "memory" => write(path, "memory.limit_in_bytes", &bytes.to_string())?,
                "pids" => write(path, "pids.max", &MAX_PIDS.to_string())?,
                "cpu" if path.join("cpu.cfs_quota_us").exists() => {
                    write(path, "cpu.cfs_quota_us", &quota_us.to_string())?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn enable_v2_controllers(&self) -> io::Result<()> {
        let Some(top) = self.unified.parent() else {
            return Ok(());
        };
        fs::create_dir_all(top)?;
        for dir in [top.parent().unwrap_or(top), top] {
            for controller in ["memory", "pids", "cpu", "io"] {
                // A controller that the parent does not offer shows when its limit is written.
                drop(write(
                    dir,
                    "cgroup.subtree_control",
                    &format!("+{controller}"),
                ));
            }
        }
        Ok(())
    }

    /// Every folder that a box's processes are to be in, the v2 one last.
    pub(super) fn all(&self) -> impl Iterator<Item = &Path> {
        let v1 = self.v1.iter().map(|(_, path)| path.as_path());
        v1.chain(std::iter::once(self.unified.as_path()))
    }

    pub(super) fn unified(&self) -> &Path {
        &self.unified
    }

    /// Moves a process into every group of the box.
    pub(super) fn adopt(&self, pid: u32) -> io::Result<()> {
        for path in self.all() {
            write(path, "cgroup.procs", &pid.to_string())?;
        }
        Ok(())
    }

    /// Stops every process and waits until they all stand.
    pub(super) fn freeze(&self) -> io::Result<()> {
        write(&self.unified, "cgroup.freeze", "1")?;
        self.wait("frozen 1")
    }

    /// Lets them run.
    pub(super) fn unfreeze(&self) -> io::Result<()> {
        write(&self.unified, "cgroup.freeze", "0")?;
        self.wait("frozen 0")
    }

    /// Whether they stand.
    pub(super) fn is_frozen(&self) -> io::Result<bool> {
        self.says("frozen 1")
    }

    /// The processes of the box, by pid here.
    pub(super) fn pids(&self) -> io::Result<Vec<u32>> {
        let text = fsutil::read_unless_gone(&self.unified.join("cgroup.procs"))?;
        let lines = text.iter().flat_map(|text| text.lines());
        Ok(lines.filter_map(|line| line.parse().ok()).collect())
    }

    /// Whether it has any process.
    pub(super) fn is_populated(&self) -> io::Result<bool> {
        self.says("populated 1")
    }

    /// Ends every process and waits until they are gone. A frozen group is killed as it stands.
    pub(super) fn kill(&self) -> io::Result<()> {
        if !self.unified.try_exists()? {
            return Ok(());
        }
        if self.is_populated()? {
            write(&self.unified, "cgroup.kill", "1")?;
        }
        self.wait("populated 0")
    }

    /// Removes the groups; groups that are not there are fine.
    pub(super) fn remove(&self) -> io::Result<()> {
        let mut first_error = Ok(());
        for path in self.others.iter().map(PathBuf::as_path).chain(self.all()) {
            // A process that was just killed may still be on its way out of a v1 group.
            let removed = retry_busy(|| match fs::remove_dir(path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
                result => result,
            });
            first_error = first_error.and(removed);
        }
        first_error
    }

    /// Memory that the box uses, in bytes, page cache included.
    pub(super) fn memory_bytes(&self) -> u64 {
        let v1 = self.v1.iter().find(|(name, _)| *name == "memory");
        let file = v1.map_or_else(
            || self.unified.join("memory.current"),
            |(_, path)| path.join("memory.usage_in_bytes"),
        );
        let text = fs::read_to_string(file).unwrap_or_default();
        text.trim().parse().unwrap_or(0)
    }

    /// The page cache among that memory, in bytes.
    pub(super) fn cache_bytes(&self) -> u64 {
        let v1 = self.v1.iter().find(|(name, _)| *name == "memory");
        let (file, field) = v1.map_or_else(
            || (self.unified.join("memory.stat"), "file"),
            |(_, path)| (path.join("memory.stat"), "total_cache"),
        );
        number_of(&file, field)
    }

    /// How often the kernel ended a program because the limit was reached.
    pub(super) fn memory_kills(&self) -> u64 {
        let v1 = self.v1.iter().find(|(name, _)| *name == "memory");
        let file = v1.map_or_else(
            || self.unified.join("memory.events"),
            |(_, path)| path.join("memory.oom_control"),
        );
        number_of(&file, "oom_kill")
    }

    /// CPU time of the box so far, in microseconds.
    pub(super) fn cpu_us(&self) -> u64 {
        let v1 = self.v1.iter().find(|(name, _)| *name == "cpuacct");
        match v1 {
            None => number_of(&self.unified.join("cpu.stat"), "usage_usec"),
            Some((_, path)) => {
                let text = fs::read_to_string(path.join("cpuacct.usage")).unwrap_or_default();
                text.trim().parse::<u64>().unwrap_or(0) / 1_000
            }
        }
    }

    /// Whether this line is among its events. A group that is not there says nothing.
    fn says(&self, line: &str) -> io::Result<bool> {
        let events = self.events()?;
        Ok(events.is_some_and(|events| events.lines().any(|said| said == line)))
    }

    fn events(&self) -> io::Result<Option<String>> {
        fsutil::read_unless_gone(&self.unified.join("cgroup.events"))
    }

    fn wait(&self, line: &str) -> io::Result<()> {
        let until = monotonic_now() + SETTLE;
        while monotonic_now() < until {
            let Some(events) = self.events()? else {
                return Ok(());
            };
            if events.lines().any(|l| l == line) {
                return Ok(());
            }
            std::thread::sleep(Duration::from_micros(100));
        }
        Err(io::Error::new(
            io::ErrorKind::TimedOut,
            format!("{} did not reach `{line}`", self.unified.display()),
        ))
    }
}

/// The number of a field in a file of `field number` lines; 0 when there is none.
fn number_of(file: &Path, field: &str) -> u64 {
    let text = fs::read_to_string(file).unwrap_or_default();
    let mut lines = text.lines().filter_map(|line| line.split_once(' '));
    let found = lines.find(|(name, _)| *name == field);
    found
        .and_then(|(_, number)| number.parse().ok())
        .unwrap_or(0)
}

/// Whether a folder of groups is not removed because of what is in it, or is not there.
fn is_in_use(error: &io::Error) -> bool {
    use io::ErrorKind::{DirectoryNotEmpty, NotFound, ResourceBusy};
    [DirectoryNotEmpty, NotFound, ResourceBusy].contains(&error.kind())
}

fn retry_busy(mut act: impl FnMut() -> io::Result<()>) -> io::Result<()> {
    for _ in 0..2_000 {
        match act() {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
                std::thread::sleep(Duration::from_millis(1));
            }
            result => return result,
        }
    }
    act()
}

fn write(dir: &Path, file: &str, value: &str) -> io::Result<()> {
    let path = dir.join(file);
    fs::write(&path, value).map_err(|e| {
        io::Error::new(
            e.kind(),
            format!("write {value:?} to {}: {e}", path.display()),
        )
    })
}
