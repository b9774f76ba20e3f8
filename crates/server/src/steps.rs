//! The named steps of boot, freeze, thaw, release, renew and destroy: where a test may cut the server off, and
//! the trace it reads afterwards. Owns no decision; without its two variables set it costs a branch.
//!
//! `ICEBOX_STEP_TRACE=<file>` appends one line a step. `ICEBOX_CRASH_AT=<step>` ends this process with
//! SIGKILL when it reaches that step: the crash matrix. With `,criu` behind the step the CRIU at work is
//! ended first; with `,only-criu` it alone is, once.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};

struct Hooks {
    trace: Option<PathBuf>,
    crash: Option<Crash>,
    struck: AtomicBool,
}

struct Crash {
    step: String,
    server: bool,
    criu: bool,
}

static HOOKS: LazyLock<Hooks> = LazyLock::new(|| {
    let crash = std::env::var("ICEBOX_CRASH_AT").ok().map(|text| {
        let (step, victims) = text.split_once(',').unwrap_or((&text, ""));
        Crash {
            step: step.to_owned(),
            server: victims != "only-criu",
            criu: !victims.is_empty(),
        }
    });
    Hooks {
        trace: std::env::var_os("ICEBOX_STEP_TRACE").map(PathBuf::from),
        crash,
        struck: AtomicBool::new(false),
    }
});

/// Every step that has a name, in the order of a life; the crash matrix walks this list.
pub const STEPS: &[&str] = &[
    "seed.files",
    "seed.memory",
    "seed.restored",
    "boot.recorded",
    "boot.mounted",
    "boot.cgroups",
    "boot.created",
    "boot.answered",
    "freeze.stopped",
    "freeze.disconnected",
    "freeze.dumping",
    "freeze.dumped",
    "freeze.synced",
    "freeze.manifest",
    "freeze.renamed",
    "evict.killed",
    "evict.unmounted",
    "save.begun",
    "save.files",
    "save.memory",
    "save.synced",
    "save.renamed",
    "unsave.renamed",
    "thaw.checked",
    "thaw.mounted",
    "thaw.restoring",
    "thaw.restored",
    "release.begun",
    "release.running",
    "release.answered",
    "renew.mounted",
    "renew.restarted",
    "renew.settled",
    "destroy.killed",
    "destroy.unmounted",
    "destroy.removed",
];

/// Marks that a step was reached. `criu` is the pid of the CRIU at work, if one is.
pub(crate) fn reached(step: &'static str, criu: Option<u32>) {
    debug_assert!(STEPS.contains(&step), "{step} is not in STEPS");
    write_line(format_args!("step {step}\n"));
    let Some(crash) = HOOKS.crash.as_ref().filter(|crash| crash.step == step) else {
        return;
    };
    if HOOKS.struck.swap(true, Ordering::SeqCst) {
        return;
    }
    write_line(format_args!("crash {step}\n"));
    if let Some(pid) = criu.filter(|_| crash.criu) {
        kill(pid);
    }
    if crash.server {
        kill(std::process::id());
    }
}

/// Notes a durable act for tests that assert the order of fsyncs.
pub(crate) fn trace(act: &str, path: &Path) {
    write_line(format_args!("{act} {}\n", path.display()));
}

fn write_line(line: std::fmt::Arguments<'_>) {
    let Some(path) = &HOOKS.trace else { return };
    let file = OpenOptions::new().create(true).append(true).open(path);
    if let Ok(mut file) = file {
        // One write a line, so that lines of several threads do not mix. A trace that cannot be written
        // makes the test that wants it fail; a server must not stop for it.
        drop(file.write_all(line.to_string().as_bytes()));
    }
}

fn kill(pid: u32) {
    let pid = i32::try_from(pid)
        .ok()
        .and_then(rustix::process::Pid::from_raw);
    if let Some(pid) = pid {
        // A CRIU that has just ended cannot be killed; this process can.
        let _gone_already = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
    }
}
