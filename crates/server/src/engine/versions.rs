//! Boxes that run a version of a service for another box: they end once that one has no use for them any more, in the very turn
//! in which its name leads elsewhere or it is gone for good. Owns when that is; how a box ends is the lifecycle's.

use std::collections::BTreeSet;

use icebox_lifecycle::{Ask, BoxId, Command, State};

use super::inbox::Admitted;
use super::turn::{Core, Turn};
use super::work::Work;
use crate::record::Record;

impl Core {
    /// Ends those that the boxes of this turn needed before it and do not need after it.
    pub(super) fn end_versions(&mut self, turn: &mut Turn) {
        let mut over = Vec::new();
        for (id, work) in &turn.work {
            let Some(before) = &work.before else {
                continue;
            };
            let before = linked(&before.record);
            if !before.is_empty() {
                let unused = before
                    .difference(&needed(work))
                    .copied()
                    .collect::<Vec<_>>();
                over.extend(unused.into_iter().map(|target| (*id, target)));
            }
        }
        for (source, target) in over {
            let runs = self
                .work(turn, target)
                .and_then(|work| work.record.runs.as_deref());
            if runs.is_some_and(|runs| *runs.for_box == *source.as_str())
                && let Ok(Admitted::Accepted) = self.admit(turn, target, &Ask::from(&Command::Stop))
            {
                self.commanded(turn, target, Command::Stop);
            }
        }
    }
}

/// The boxes that names of this one lead to.
fn linked(record: &Record) -> BTreeSet<BoxId> {
    let links = record.services.iter().filter_map(|service| service.link());
    links.map(|(target, _)| target).collect()
}

/// Those that it may still need: one that can be brought back finds them again.
fn needed(work: &Work) -> BTreeSet<BoxId> {
    if let State::Terminated { kept: None, .. } = work.sandbox.state {
        return BTreeSet::new();
    }
    linked(&work.record)
}
