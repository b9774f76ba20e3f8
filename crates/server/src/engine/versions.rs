//! Boxes that run a version of a service for another box: they end once that one has no use for them any more, in the very turn
//! in which its name leads elsewhere or it is gone for good. Owns when that is; how a box ends is the lifecycle's.

use std::collections::BTreeSet;

use icebox_lifecycle::{Ask, BoxId, Command, Sandbox, State};

use super::StartError;
use super::inbox::Admitted;
use super::turn::{Core, Turn};
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
                    .difference(&needed(&work.sandbox, &work.record))
                    .copied()
                    .collect::<Vec<_>>();
                over.extend(unused.into_iter().map(|target| (*id, target)));
            }
        }
        for (source, target) in over {
            let runs = self
                .work(turn, target)
                .and_then(|work| work.record.runs.as_deref());
            if runs.is_some_and(|runs| *runs.for_box == *source.as_str()) {
                self.end_unneeded(turn, target);
            }
        }
    }

    /// Ends those to which no name leads, of those that run a version: the server ended before the call that started them was
    /// over, and nobody will lead a name there any more.
    pub(super) fn end_unlinked_versions(&mut self, running: &[BoxId]) -> Result<(), StartError> {
        let mut turn = self.begin();
        for id in running {
            let view = self.views.get(*id);
            let runs = view.as_ref().and_then(|view| view.record.runs.as_deref());
            let source = runs.and_then(|runs| self.views.get(BoxId::parse(&runs.for_box)?));
            if !source.is_some_and(|source| needed(&source.sandbox, &source.record).contains(id)) {
                self.end_unneeded(&mut turn, *id);
            }
        }
        self.finish(turn).map_err(|_| StartError::Commit)
    }

    fn end_unneeded(&mut self, turn: &mut Turn, id: BoxId) {
        let ask = Ask::from(&Command::Unneeded);
        if let Ok(Admitted::Accepted) = self.admit(turn, id, &ask) {
            self.commanded(turn, id, Command::Unneeded);
        }
    }
}

/// The boxes that names of this one lead to.
fn linked(record: &Record) -> BTreeSet<BoxId> {
    let links = record.services.iter().filter_map(|service| service.link());
    links.map(|(target, _)| target).collect()
}

/// Those that it may still need: one that can be brought back finds them again.
fn needed(sandbox: &Sandbox, record: &Record) -> BTreeSet<BoxId> {
    if let State::Terminated { kept: None, .. } = sandbox.state {
        return BTreeSet::new();
    }
    linked(record)
}
