//! CRIU: which one, with which options, and as a process that outlives the server.
//!
//! Owns the command lines and the reading of its log. Knows no state of a box and no order of a freeze.

use std::fs::{self, File};
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::bootid;
use super::cgroup::Cgroup;
use super::fsutil;
use super::image::BOXD_IN_BOX;
use super::paths::BoxPaths;
use super::programs::{self, wait_readable};

/// The oldest version that copes with current kernels.
const NEEDED: (u32, u32) = (4, 2);

/// How long one dump or restore may take.
pub(super) const LIMIT: Duration = Duration::from_secs(900);

/// A CRIU on this host.
#[derive(Clone, Debug)]
pub(super) struct Criu {
    program: PathBuf,
    /// Its version, as it says it.
    pub(super) version: String,
}

/// How a run of CRIU ended badly.
pub(super) enum CriuError {
    /// Killed from outside: nothing is known of the box but that it must be dumped again before it runs.
    Killed,
    /// It said no.
    Said(String),
    /// It could not be started or watched.
    Io(io::Error),
}

impl From<io::Error> for CriuError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl Criu {
    /// Looks for a CRIU that works here: `ICEBOX_CRIU`, our own prefix, then `PATH`. Errors say what to do.
    pub(super) fn find() -> Result<Self, String> {
        let named = std::env::var_os("ICEBOX_CRIU").map(PathBuf::from);
        let places = match named {
            Some(path) => vec![path],
            None => vec![
                PathBuf::from("/usr/local/lib/icebox/criu/bin/criu"),
                PathBuf::from("criu"),
            ],
        };
        let mut found_old = None;
        for program in places {
            let Some(version) = version_of(&program) else {
                continue;
            };
            if parse_version(&version) >= Some(NEEDED) {
                return Ok(Self { program, version });
            }
            found_old = Some(version);
        }
        let (major, minor) = NEEDED;
        Err(match found_old {
            Some(version) => format!(
                "CRIU {version} is too old for current kernels, {major}.{minor} or later is needed: \
                 run scripts/bootstrap, or install a newer criu"
            ),
            None => format!(
                "CRIU is not installed: run scripts/bootstrap, or install criu {major}.{minor} or later"
            ),
        })
    }

    /// Starts the dump of the box whose first process is `pid1` into `images`. The box's v2 cgroup is
    /// frozen before and after.
    pub(super) fn dump(
        &self,
        paths: &BoxPaths,
        cgroup: &Cgroup,
        pid1: u32,
        images: &Path,
    ) -> io::Result<Running> {
        let mut command = self.command("dump", paths, images);
        command
            .arg("--tree")
            .arg(pid1.to_string())
            .arg("--freeze-cgroup")
            .arg(cgroup.unified())
            .args(["--leave-running", "--skip-in-flight"])
            // The default lock costs 120 ms and, if CRIU is killed, leaves the box's loopback blocked.
            // Nothing can arrive meanwhile: the whole box stands still.
            .args(["--network-lock", "skip", "--ghost-limit", "512M"])
            .args(["--external", "mnt[]:m", "--external", "mnt[/dev/null]:null"])
            .arg("--external")
            .arg(format!("mnt[{BOXD_IN_BOX}]:boxd"))
            .arg("--external")
            .arg(format!("mnt[{}]:boot_id", bootid::IN_BOX));
        Running::start(command, paths, paths.run.join("dump.log"))
    }

    /// Starts the restore of a copy into the box's cgroups. They stand frozen when it is done, where
    /// `outside` names a v2 group for CRIU to go to meanwhile; else the box runs at once.
    pub(super) fn restore(
        &self,
        paths: &BoxPaths,
        cgroup: &Cgroup,
        outside: Option<&Path>,
        images: &Path,
        boxd: &Path,
    ) -> io::Result<Running> {
        let mut command = self.command("restore", paths, images);
        if let Some(outside) = outside {
            write_hook(paths, cgroup, outside)?;
            command.arg("--action-script").arg(paths.restore_hook());
        }
        command
            .arg("--root")
            .arg(paths.rootfs())
            .arg("--restore-detached")
            .args(["--external", "mnt[]:m", "--external", "mnt[null]:/dev/null"])
            .arg("--external")
            .arg(format!("mnt[boxd]:{}", boxd.display()))
            .arg("--external")
            .arg(format!("mnt[boot_id]:{}", paths.boot_id().display()));
        let procs: Vec<PathBuf> = cgroup.all().map(|dir| dir.join("cgroup.procs")).collect();
        // SAFETY: after fork and before exec only plain system calls on values made before the fork.
        unsafe {
            command.pre_exec(move || {
                // Restored processes inherit CRIU's cgroups, and the box's cgroup namespace begins there.
                for path in &procs {
                    fs::write(path, "0")?;
                }
                match libc::unshare(libc::CLONE_NEWCGROUP) {
                    0 => Ok(()),
                    _ => Err(io::Error::last_os_error()),
                }
            });
        }
        Running::start(command, paths, paths.run.join("restore.log"))
    }

    fn command(&self, verb: &str, paths: &BoxPaths, images: &Path) -> Command {
        let mut command = Command::new(&self.program);
        command
            .arg(verb)
            .arg("--images-dir")
            .arg(images)
            // Logs outlive a dump that failed, and a copy does not change by being restored.
            .arg("--work-dir")
            .arg(&paths.run)
            .arg("--log-file")
            .arg(format!("{verb}.log"))
            .args(["-v1", "--tcp-established", "--file-locks", "--ext-unix-sk"])
            .arg("--manage-cgroups=ignore");
        command
    }
}

/// A CRIU at work, in a session of its own, so that the end of the server does not end it.
pub(super) struct Running {
    child: Child,
    log: PathBuf,
    pid_file: PathBuf,
}

impl Running {
    fn start(mut command: Command, paths: &BoxPaths, log: PathBuf) -> io::Result<Self> {
        fsutil::remove_file(&log)?;
        let output = File::create(paths.run.join("criu.out"))?;
        command
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output);
        // SAFETY: `setsid` is async-signal-safe and touches no memory.
        unsafe {
            command.pre_exec(|| {
                libc::setsid();
                Ok(())
            });
        }
        let child = command.spawn()?;
        let pid_file = paths.criu_pid();
        fs::write(
            &pid_file,
            format!("{} {}\n", child.id(), start_time(child.id())?.unwrap_or(0)),
        )?;
        Ok(Self {
            child,
            log,
            pid_file,
        })
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits for its end, bounded. Blocks.
    pub(super) fn wait(self) -> Result<(), CriuError> {
        let status = programs::wait(self.child, LIMIT)?;
        fsutil::remove_file(&self.pid_file)?;
        match status {
            Some(status) if status.success() => Ok(()),
            Some(status) if status.signal().is_none() => Err(CriuError::Said(reason_in(&self.log))),
            Some(_) | None => Err(CriuError::Killed),
        }
    }
}

/// Waits, bounded, for a CRIU that an earlier server started on this box; none is fine. Blocks.
pub(super) fn wait_for_leftover(paths: &BoxPaths) -> io::Result<()> {
    let Some(text) = fsutil::read_unless_gone(&paths.criu_pid())? else {
        return Ok(());
    };
    let mut words = text.split_whitespace();
    let pid = words.next().and_then(|w| w.parse::<u32>().ok());
    let started = words.next().and_then(|w| w.parse::<u64>().ok());
    if let Some(pid) = pid
        && started.is_some()
        && start_time(pid)? == started
        && let Some(pidfd) = fsutil::open_pidfd(pid)?
    {
        tracing::info!(pid, "waiting for the CRIU that an earlier server started");
        if !wait_readable(&pidfd, LIMIT)? {
            rustix::process::pidfd_send_signal(&pidfd, rustix::process::Signal::KILL)?;
            wait_readable(&pidfd, Duration::from_secs(10))?;
        }
    }
    fsutil::remove_file(&paths.criu_pid())
}

/// The script CRIU runs: just before it lets the restored processes go, it and CRIU leave the box's v2
/// cgroup, which is then frozen. So nothing of the box runs before the record says so.
fn write_hook(paths: &BoxPaths, cgroup: &Cgroup, outside: &Path) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    let script = format!(
        "#!/bin/sh\n\
         [ \"$CRTOOLS_SCRIPT_ACTION\" = pre-resume ] || exit 0\n\
         set -e\n\
         echo $PPID >{outside}/cgroup.procs\n\
         echo $$ >{outside}/cgroup.procs\n\
         echo 1 >{group}/cgroup.freeze\n",
        outside = outside.display(),
        group = cgroup.unified().display(),
    );
    let path = paths.restore_hook();
    fs::write(&path, script)?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o700))
}

/// The last thing CRIU complained about, without its time stamps.
fn reason_in(log: &Path) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    let mut errors = text
        .lines()
        .filter_map(|line| line.split_once("Error (").map(|(_, rest)| rest))
        .filter_map(|rest| rest.split_once("): ").map(|(_, message)| message.trim()))
        // Said by every run without CAP_SYS_RESOURCE, and harmless.
        .filter(|message| !message.contains("setup RLIMIT_NOFILE for self"));
    // The first error is the cause; those after it only say which work was given up.
    errors.next().map_or_else(
        || format!("CRIU gave no reason (see {})", log.display()),
        str::to_owned,
    )
}

fn version_of(program: &Path) -> Option<String> {
    let asked = programs::run(Command::new(program).arg("--version"), "", programs::SHORT);
    let text = asked.ok()?.stdout;
    let line = text.lines().find_map(|l| l.strip_prefix("Version:"))?;
    Some(line.trim().to_owned())
}

fn parse_version(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text.split('.').map(|n| n.parse::<u32>().ok());
    Some((numbers.next()??, numbers.next()??))
}

/// When a process started, in clock ticks since boot: tells it from a later one with the same pid.
/// `None` when it has ended.
fn start_time(pid: u32) -> io::Result<Option<u64>> {
    let stat = fsutil::read_unless_gone(Path::new(&format!("/proc/{pid}/stat")))?;
    // The name, in parentheses, may itself hold spaces and parentheses.
    let rest = stat.as_deref().and_then(|stat| stat.rsplit_once(')'));
    Ok(rest.and_then(|(_, rest)| rest.split_whitespace().nth(19)?.parse().ok()))
}
