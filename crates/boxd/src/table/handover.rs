//! The table as one boxd leaves it to the next.

use std::collections::HashSet;
use std::os::fd::RawFd;
use std::path::Path;
use std::sync::Arc;

use icebox_wire::boxd::UNKNOWN_EXIT;
use icebox_wire::handover::{Handover, Process};
use rustix::io::Errno;
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};

use super::Table;
use crate::id::ExecId;
use crate::proc::{Exit, Proc};
use crate::restart::Inherited;

impl Table {
    /// The descriptors of all processes that stay open for the next boxd.
    pub(crate) fn descriptors(&self) -> Vec<RawFd> {
        let all = self.all();
        all.iter().flat_map(|proc| proc.descriptors()).collect()
    }

    /// How much output and input of all processes is in memory.
    pub(crate) fn bytes_in_memory(&self) -> u64 {
        self.all().iter().map(|proc| proc.bytes_in_memory()).sum()
    }

    /// Adds what the next boxd has to know of all processes together.
    pub(crate) fn leave(&self, to: &mut Handover) {
        let inner = self.lock();
        to.ended = inner.ended.iter().map(ExecId::to_string).collect();
        to.forgotten = inner.forgotten.iter().map(ExecId::to_string).collect();
    }

    /// The table that the boxd before this one left, and looks after its processes from now on. What cannot be read of it is
    /// left out: the rest must not be lost for it.
    pub(crate) fn take_over(
        state_dir: &Path,
        cap_bytes: u64,
        handover: &Handover,
        processes: impl Iterator<Item = Process>,
        inherited: &mut Inherited,
    ) -> Arc<Self> {
        let table = Arc::new(Self::at(state_dir, cap_bytes));
        for process in processes {
            let Ok((proc, stops)) = Proc::take_over(process, inherited, &table.output_dir) else {
                continue;
            };
            let state = proc.state();
            table.lock().add(&proc, state.exit.is_none());
            proc.go_on();
            if state.ended.is_none() {
                table.look_after(proc, stops);
            }
        }
        let mut inner = table.lock();
        let ids = |texts: &[String]| -> Vec<ExecId> {
            texts
                .iter()
                .filter_map(|text| ExecId::parse(text).ok())
                .collect()
        };
        let mut ended = ids(&handover.ended);
        ended.retain(|id| inner.by_id.contains_key(id));
        // The last ones may have ended a moment ago, and were not counted yet.
        let late = |proc: &&Arc<Proc>| proc.state().ended.is_some() && !ended.contains(&proc.id);
        let late: Vec<_> = inner
            .procs
            .iter()
            .filter(late)
            .map(|proc| proc.id)
            .collect();
        inner.ended = ended.into_iter().chain(late).collect();
        inner.forgotten = ids(&handover.forgotten).into();
        inner.forgotten_set = HashSet::from_iter(inner.forgotten.iter().copied());
        drop(inner);
        // Of those that ended since, this boxd was told by no signal.
        table.reap();
        table.lay_lost_to_rest();
        table
    }

    /// Records an unknown end of those that ended and were reaped by another program that was this process in between.
    fn lay_lost_to_rest(&self) {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let is_lost = |pid: i32| {
            let pid = Pid::from_raw(pid);
            pid.is_none_or(|pid| matches!(waitid(WaitId::Pid(pid), options), Err(Errno::CHILD)))
        };
        self.lock().by_pid.retain(|pid, proc| {
            let lost = is_lost(*pid);
            if lost {
                proc.exited(Exit::Code(UNKNOWN_EXIT));
            }
            !lost
        });
    }
}
