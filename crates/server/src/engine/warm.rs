//! Which frozen boxes keep their memory in RAM (rule 4.11): tells `fleet::WarmBoxes` what a turn changed, and says which
//! boxes should be told. A box is charged with its whole memory limit, so the budget is never exceeded.

use icebox_lifecycle::fleet::WarmBoxes;
use icebox_lifecycle::{BoxId, Event, Sandbox, State};

use super::turn::{Core, Turn};

/// The boxes that stay warm.
#[derive(Debug)]
pub(super) struct Warm(WarmBoxes);

impl Warm {
    pub(super) fn new(budget_mb: u64) -> Self {
        Self(WarmBoxes::new(budget_mb))
    }

    /// What boxes should be told now that `sandbox` is as it is: whether to keep their memory.
    pub(super) fn update(&mut self, sandbox: &Sandbox, need_mb: u64) -> Vec<(BoxId, bool)> {
        let id = sandbox.id;
        if !may_stay(sandbox) {
            self.0.remove(id);
            return Vec::new();
        }
        let give_way = self.0.add(id, sandbox.last_use, need_mb);
        let stays = !give_way.contains(&id);
        let mut tell: Vec<(BoxId, bool)> = give_way
            .into_iter()
            .filter(|other| *other != id || sandbox.warm)
            .map(|other| (other, false))
            .collect();
        if stays && !sandbox.warm {
            tell.push((id, true));
        }
        tell
    }
}

impl Core {
    /// Tells the boxes of this turn, and those that must give way, whether their memory stays (rule 4.11).
    pub(super) fn keep_warm(&mut self, turn: &mut Turn) {
        let ids: Vec<BoxId> = turn.work.keys().copied().collect();
        for id in ids {
            let Some(work) = turn.work.get(&id) else {
                continue;
            };
            let need_mb = work.record.size.memory_mb;
            for (id, keep) in self.warm.update(&work.sandbox, need_mb) {
                self.step(turn, id, Event::Warm { keep });
            }
        }
    }
}

/// Whether the box has memory in RAM that nothing is being done about, or is about to.
fn may_stay(sandbox: &Sandbox) -> bool {
    match &sandbox.state {
        State::Freezing { ram_only, .. } => !ram_only,
        State::Frozen(frozen) => sandbox.warm && frozen.resident && frozen.evicting.is_none(),
        State::Starting { .. }
        | State::Ready
        | State::Thawing { .. }
        | State::Releasing { .. }
        | State::Stopping { .. }
        | State::Terminated { .. }
        | State::Interrupted { .. } => false,
    }
}
