//! What a committed box is shown to: readers, and everything in the engine that follows boxes. Owns that list, so that none
//! of them is forgotten; it comes after the commit, and effects after it.

use std::sync::Arc;

use icebox_lifecycle::{Effect, State, Time};

use super::turn::Core;
use super::views::View;
use super::work::{Work, deadline};

impl Core {
    pub(super) fn publish(&mut self, now: Time, mut work: Work) {
        if let Err(broken) = work.sandbox.check() {
            tracing::error!(id = %work.sandbox.id, %broken, "a record does not make sense");
        }
        let effects = std::mem::take(&mut work.effects);
        let mut reaching = std::mem::take(&mut work.reaching);
        let view = Arc::new(work.view(now));
        self.show(work.before.as_deref(), &view);
        self.adopt_restored(work.before.as_deref(), &view);
        for effect in effects {
            if let Effect::Save { snapshot, .. } = effect {
                self.saves.launched(snapshot);
            }
            let hears = if effect == Effect::Reach {
                std::mem::take(&mut reaching)
            } else {
                Vec::new()
            };
            self.effects.launch(&view, effect, hears);
        }
    }

    /// Counts a box that was loaded and does not rest, before anything is known of it.
    pub(super) fn count_loaded(&mut self, view: &View) {
        self.rooms.found(view);
        self.billing.load(view);
        self.saves.follow(view);
    }

    /// A box that came to life from another one's memory has commands that no call of its own began.
    fn adopt_restored(&self, before: Option<&View>, view: &View) {
        let began = before.is_some_and(|before| {
            matches!(
                before.sandbox.state,
                State::Starting {
                    keep_files: false,
                    ..
                }
            )
        });
        let restored = view.record.origin().is_some_and(|origin| origin.memory);
        if began && restored && view.sandbox.state == State::Ready {
            self.watches.adopt(view, view.sandbox.created_at);
        }
    }

    /// Follows a box that was loaded and whose first turn is over.
    pub(super) fn follow_loaded(&mut self, view: &Arc<View>) {
        self.deadlines.set(view.id(), deadline(&view.sandbox));
        self.watches.update(view);
        if view.sandbox.state == State::Ready {
            let since = self.watches.down_since;
            self.watches.adopt(view, since);
            // A change may have been recorded and not been carried out; what is so already costs a look.
            self.effects.launch(view, Effect::Reach, Vec::new());
        }
    }

    /// Shows a view and lets everything that follows boxes follow it.
    fn show(&mut self, before: Option<&View>, view: &Arc<View>) {
        self.rooms.follow(view);
        self.saves.follow(view);
        self.links.follow(before, view);
        let due = before.and_then(|before| deadline(&before.sandbox));
        self.deadlines
            .moved(view.id(), due, deadline(&view.sandbox));
        self.watches.update(view);
        self.billing.show(view);
        self.views.publish(Arc::clone(view));
    }
}
