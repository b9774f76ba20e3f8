//! The one table of processes, for both services: starting, reaping, finding, and forgetting the oldest ended ones.
//!
//! What a process does between start and end is `proc`'s.

mod handover;

use std::collections::{HashMap, HashSet, VecDeque};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use icebox_wire::boxd::UNKNOWN_EXIT;
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, wait};

use crate::error::Error;
use crate::id::ExecId;
use crate::kept::{Kept, file_of};
use crate::launch::Launch;
use crate::proc::{About, Deadline, Exit, GRACE, Proc, STDERR, STDOUT, Stops};
use crate::spawn::{Wiring, spawn};
use crate::streams::Streams;

/// The most processes that run at once. Each takes up to five of boxd's descriptors, of which 1024 are usual.
const MAX_RUNNING: usize = 256;

/// How many ended ones are kept.
const MAX_ENDED: usize = 200;

/// How many ended ones are kept that the server or an adapter ran for its own housekeeping: looks at a box, however often,
/// push nobody's commands out.
const MAX_HOUSEKEEPING: usize = 8;

/// How a command line of theirs begins.
const HOUSEKEEPING: &str = ": /work/.psbx-sync/";

/// How much output of ended ones is kept in all.
const MAX_ENDED_BYTES: u64 = 1 << 30;

/// How many ids of forgotten ones are remembered, so that a late repeat is refused and not run again.
const MAX_FORGOTTEN: usize = 4096;

/// For how long after its end a process may still be connected to.
const LATE: Duration = Duration::from_secs(30);

/// How a client of the E2B protocol names a process.
#[derive(Debug, Clone)]
pub(crate) enum Selector {
    Pid(i32),
    Tag(String),
}

/// Everything boxd started and still knows.
pub(crate) struct Table {
    output_dir: PathBuf,
    cap_bytes: u64,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    /// In the order of their starts.
    procs: Vec<Arc<Proc>>,
    by_id: HashMap<ExecId, Arc<Proc>>,
    /// Programs that were not reaped yet.
    by_pid: HashMap<i32, Arc<Proc>>,
    /// In the order of their ends.
    ended: VecDeque<ExecId>,
    forgotten: VecDeque<ExecId>,
    forgotten_set: HashSet<ExecId>,
}

impl Table {
    /// An empty table. Output of an earlier boxd under `state_dir` is removed: its processes are gone.
    pub(crate) fn new(state_dir: &Path, cap_bytes: u64) -> Arc<Self> {
        let table = Self::at(state_dir, cap_bytes);
        // Usually there is nothing to remove.
        drop(fs::remove_dir_all(&table.output_dir));
        Arc::new(table)
    }

    fn at(state_dir: &Path, cap_bytes: u64) -> Self {
        Self {
            output_dir: state_dir.join("procs"),
            cap_bytes,
            inner: Mutex::default(),
        }
    }

    /// Starts `launch` under `id`, or finds the one that has the id already (then true).
    pub(crate) fn start(
        self: &Arc<Self>,
        id: ExecId,
        launch: &Launch,
        wiring: Wiring,
        about: About,
        deadline: Option<Deadline>,
    ) -> Result<(Arc<Proc>, bool), Error> {
        let mut inner = self.lock();
        if let Some(proc) = inner.by_id.get(&id) {
            return Ok((Arc::clone(proc), true));
        }
        if inner.procs.len() - inner.ended.len() >= MAX_RUNNING {
            return Err(Error::TooMany(MAX_RUNNING));
        }
        let started = spawn(launch, wiring)?;
        let kept = [STDOUT, STDERR]
            .map(|stream| Kept::new(file_of(&self.output_dir, id, stream), self.cap_bytes));
        let streams = Streams::of_started(started.ends);
        let streams = streams.inspect_err(|_| kill_stray(started.pid))?;
        let (proc, stops) = Proc::new(id, started.pid, streams, about, kept, deadline);
        let proc = Arc::new(proc);
        inner.add(&proc, true);
        self.look_after(Arc::clone(&proc), stops);
        Ok((proc, false))
    }

    /// Sees a process through to its end, on the side.
    fn look_after(self: &Arc<Self>, proc: Arc<Proc>, stops: Stops) {
        let table = Arc::clone(self);
        tokio::spawn(async move {
            let id = proc.id;
            proc.look_after(stops).await;
            table.retire(id);
        });
    }

    /// Reaps every child that has ended: ours get their exit recorded, orphans are only laid to rest.
    pub(crate) fn reap(&self) {
        let mut inner = self.lock();
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) => {
                    if let Some(proc) = inner.by_pid.remove(&pid.as_raw_pid()) {
                        proc.exited(exit_of(status));
                    }
                }
                Err(rustix::io::Errno::INTR) => {}
                Ok(None) | Err(_) => return,
            }
        }
    }

    /// The process with this id. Says whether an unknown one ran before.
    pub(crate) fn find(&self, id: ExecId) -> Result<Arc<Proc>, Error> {
        let inner = self.lock();
        match inner.by_id.get(&id) {
            Some(proc) => Ok(Arc::clone(proc)),
            None if inner.forgotten_set.contains(&id) => Err(Error::Evicted(id.to_string())),
            None => Err(Error::NoProc(id.to_string())),
        }
    }

    /// The newest selected process whose program runs.
    pub(crate) fn running(&self, selector: &Selector) -> Result<Arc<Proc>, Error> {
        self.select(selector, |proc| proc.state().exit.is_none())
    }

    /// The newest selected process that runs or ended within the last 30 s.
    pub(crate) fn running_or_late(&self, selector: &Selector) -> Result<Arc<Proc>, Error> {
        let late = |proc: &Proc| {
            proc.state()
                .ended
                .is_none_or(|ended| ended.at.elapsed() <= LATE)
        };
        self.running(selector)
            .or_else(|_| self.select(selector, late))
    }

    /// All of them, newest first.
    pub(crate) fn all(&self) -> Vec<Arc<Proc>> {
        self.lock().procs.iter().rev().cloned().collect()
    }

    /// Ends everything that runs: SIGTERM, SIGKILL after the grace. For boxd's own end.
    pub(crate) async fn end_all(&self) {
        let running: Vec<_> = self
            .all()
            .into_iter()
            .filter(|proc| proc.state().ended.is_none())
            .collect();
        for proc in &running {
            proc.stop(GRACE);
        }
        let all_ended = async {
            for proc in &running {
                proc.ended().await;
            }
        };
        if tokio::time::timeout(GRACE * 2, all_ended).await.is_err() {
            running
                .iter()
                .for_each(|proc| proc.signal_group(Signal::KILL));
        }
    }

    fn select(
        &self,
        selector: &Selector,
        fits: impl Fn(&Proc) -> bool,
    ) -> Result<Arc<Proc>, Error> {
        let named = |proc: &Proc| match selector {
            Selector::Pid(pid) => proc.pid == *pid,
            Selector::Tag(tag) => proc.about.tag.as_ref() == Some(tag),
        };
        let inner = self.lock();
        let found = inner
            .procs
            .iter()
            .rev()
            .find(|proc| named(proc) && fits(proc))
            .cloned();
        found.ok_or_else(|| {
            Error::NoProc(match selector {
                Selector::Pid(pid) => format!("with pid {pid}"),
                Selector::Tag(tag) => format!("with tag {tag:?}"),
            })
        })
    }

    /// Moves a process to the ended ones, and forgets the oldest of those beyond the limits.
    fn retire(&self, id: ExecId) {
        let mut inner = self.lock();
        inner.ended.push_back(id);
        if let Some(oldest) = inner.old_housekeeping() {
            self.drop_ended(&mut inner, oldest);
        }
        while inner.ended.len() > MAX_ENDED
            || (inner.ended.len() > 1 && inner.ended_bytes() > MAX_ENDED_BYTES)
        {
            self.drop_ended(&mut inner, 0);
        }
    }

    /// Forgets one of the ended ones, by its place among them.
    fn drop_ended(&self, inner: &mut Inner, at: usize) {
        if let Some(id) = inner.ended.remove(at) {
            inner.forget(id);
            // Small outputs never made the directory.
            drop(fs::remove_dir_all(self.output_dir.join(id.to_string())));
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// Adds the newest; one that was not reaped yet will be.
    fn add(&mut self, proc: &Arc<Proc>, unreaped: bool) {
        self.procs.push(Arc::clone(proc));
        self.by_id.insert(proc.id, Arc::clone(proc));
        if unreaped {
            self.by_pid.insert(proc.pid, Arc::clone(proc));
        }
    }

    /// The oldest ended housekeeping, when there is more than is kept.
    fn old_housekeeping(&self) -> Option<usize> {
        let is_own = |id: &ExecId| {
            let proc = self.by_id.get(id);
            proc.is_some_and(|proc| proc.about.cmd.starts_with(HOUSEKEEPING))
        };
        let own = self.ended.iter().filter(|id| is_own(id)).count();
        let oldest = || self.ended.iter().position(is_own);
        (own > MAX_HOUSEKEEPING).then(oldest).flatten()
    }

    fn ended_bytes(&self) -> u64 {
        let kept =
            |proc: &Arc<Proc>| proc.kept(STDOUT).kept_bytes() + proc.kept(STDERR).kept_bytes();
        self.ended
            .iter()
            .filter_map(|id| self.by_id.get(id))
            .map(kept)
            .sum()
    }

    fn forget(&mut self, id: ExecId) {
        if let Some(proc) = self.by_id.remove(&id) {
            proc.kept(STDOUT).discard();
            proc.kept(STDERR).discard();
        }
        self.procs.retain(|proc| proc.id != id);
        self.forgotten.push_back(id);
        self.forgotten_set.insert(id);
        if self.forgotten.len() > MAX_FORGOTTEN
            && let Some(oldest) = self.forgotten.pop_front()
        {
            self.forgotten_set.remove(&oldest);
        }
    }
}

/// Ends a process that could not be taken into the table.
fn kill_stray(pid: i32) {
    if let Some(pid) = Pid::from_raw(pid) {
        let _ = rustix::process::kill_process_group(pid, Signal::KILL);
    }
}

fn exit_of(status: WaitStatus) -> Exit {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => Exit::Code(code),
        (None, Some(signal)) => Exit::Signal(signal),
        // A wait without further options reports nothing else.
        (None, None) => Exit::Code(UNKNOWN_EXIT),
    }
}
