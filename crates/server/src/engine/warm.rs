//! Which frozen boxes keep their memory in RAM (rule 4.11): as many as the host's budget takes, the least recently used
//! giving way first. A box is charged with its whole memory limit, so the budget is never exceeded. Changes nothing
//! itself: it says which boxes should be told.

use std::collections::{BTreeMap, BTreeSet};

use icebox_lifecycle::{BoxId, Sandbox, State};

/// The budget and who uses it.
#[derive(Debug)]
pub(super) struct Warm {
    budget_mb: u64,
    used_mb: u64,
    by_use: BTreeSet<(i64, BoxId)>,
    charged: BTreeMap<BoxId, (i64, u64)>,
}

impl Warm {
    pub(super) fn new(budget_mb: u64) -> Self {
        Self {
            budget_mb,
            used_mb: 0,
            by_use: BTreeSet::new(),
            charged: BTreeMap::new(),
        }
    }

    /// What boxes should be told now that `sandbox` is as it is: whether to keep their memory.
    pub(super) fn update(&mut self, sandbox: &Sandbox, need_mb: u64) -> Vec<(BoxId, bool)> {
        let id = sandbox.id;
        let wants = match &sandbox.state {
            State::Freezing { ram_only, .. } => !ram_only,
            State::Frozen(frozen) => sandbox.warm && frozen.resident && frozen.evicting.is_none(),
            State::Starting { .. }
            | State::Ready
            | State::Thawing { .. }
            | State::Releasing { .. }
            | State::Stopping { .. }
            | State::Terminated { .. }
            | State::Interrupted { .. } => false,
        };
        if !wants || need_mb > self.budget_mb {
            self.release(id);
            let tell = wants && sandbox.warm;
            return tell.then_some((id, false)).into_iter().collect();
        }
        self.release(id);
        let mut tell = Vec::new();
        while self.used_mb + need_mb > self.budget_mb {
            let Some((_, oldest)) = self.by_use.first().copied() else {
                break;
            };
            self.release(oldest);
            tell.push((oldest, false));
        }
        self.charge(id, sandbox.last_use.0, need_mb);
        if !sandbox.warm {
            tell.push((id, true));
        }
        tell
    }

    fn charge(&mut self, id: BoxId, last_use_ms: i64, need_mb: u64) {
        self.by_use.insert((last_use_ms, id));
        self.charged.insert(id, (last_use_ms, need_mb));
        self.used_mb += need_mb;
    }

    fn release(&mut self, id: BoxId) {
        if let Some((last_use_ms, mb)) = self.charged.remove(&id) {
            self.by_use.remove(&(last_use_ms, id));
            self.used_mb -= mb;
        }
    }
}
