//! Which boxes have services that lead to which other boxes, so that a box can say who has a link to it without a look at
//! all. Only boxes that have such services are in it.

use std::collections::{BTreeSet, HashMap};
use std::sync::{PoisonError, RwLock};

use icebox_lifecycle::BoxId;

use super::views::View;

/// The boxes whose services lead to each box.
#[derive(Debug, Default)]
pub(super) struct Wiring(RwLock<HashMap<BoxId, BTreeSet<BoxId>>>);

impl Wiring {
    /// A box was, and is.
    pub(super) fn follow(&self, source: BoxId, before: Option<&View>, view: Option<&View>) {
        let (before, now) = (targets(before), targets(view));
        if before == now {
            return;
        }
        let mut all = self.0.write().unwrap_or_else(PoisonError::into_inner);
        for target in before.difference(&now) {
            if let Some(sources) = all.get_mut(target) {
                sources.remove(&source);
                if sources.is_empty() {
                    all.remove(target);
                }
            }
        }
        for target in now.difference(&before) {
            all.entry(*target).or_default().insert(source);
        }
    }

    /// The boxes with services that lead to this one, by id.
    pub(super) fn to(&self, target: BoxId) -> Vec<BoxId> {
        let all = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let sources = all.get(&target);
        sources.into_iter().flatten().copied().collect()
    }
}

/// The boxes that the services of one lead to, if it has not stopped.
fn targets(view: Option<&View>) -> BTreeSet<BoxId> {
    let view = view.filter(|view| !view.is_stopped());
    let services = view.into_iter().flat_map(|view| &view.record.services);
    services
        .filter_map(|service| Some(service.link()?.0))
        .collect()
}
