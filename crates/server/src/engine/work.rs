//! One box within a turn: what it was, what it has become, and what is to be written, told and done about it. Owns the
//! forms in which a box goes to the store and to readers; when that happens is the turn's.

use std::sync::Arc;

use icebox_lifecycle::time::{DAY, Ms};
use icebox_lifecycle::{Change, Effect, Reason, Sandbox, State, Time};

use super::views::View;
use crate::record::Record;
use crate::store::{Announced, Put};

/// How long stopped boxes and events are kept (rule 6.8).
pub(super) const KEPT_MS: Ms = 7 * DAY;

/// A box in this turn.
pub(super) struct Work {
    pub(super) before: Option<Arc<View>>,
    pub(super) sandbox: Sandbox,
    pub(super) record: Arc<Record>,
    pub(super) record_changed: bool,
    pub(super) observed_at: Option<Time>,
    pub(super) changed: Change,
    pub(super) effects: Vec<Effect>,
    pub(super) reasons: Vec<Reason>,
}

impl Work {
    /// A box that exists, as readers see it now.
    pub(super) fn on(view: Arc<View>) -> Self {
        Self {
            sandbox: view.sandbox.clone(),
            record: Arc::clone(&view.record),
            record_changed: false,
            observed_at: view.observed_at,
            changed: Change::None,
            effects: Vec::new(),
            reasons: Vec::new(),
            before: Some(view),
        }
    }

    /// A box that is made in this turn.
    pub(super) fn new(sandbox: Sandbox, record: Record) -> Self {
        Self {
            before: None,
            sandbox,
            record: Arc::new(record),
            record_changed: true,
            observed_at: None,
            changed: Change::None,
            effects: Vec::new(),
            reasons: Vec::new(),
        }
    }

    pub(super) fn view(&self, now: Time) -> View {
        let before = self.before.as_deref();
        let same_state = before.is_some_and(|before| before.sandbox.state == self.sandbox.state);
        View {
            sandbox: self.sandbox.clone(),
            record: Arc::clone(&self.record),
            generation: self.generation(),
            recorded_at: match before {
                Some(before) if same_state => before.recorded_at,
                Some(_) | None => now,
            },
            observed_at: self.observed_at,
        }
    }

    pub(super) fn generation(&self) -> u64 {
        self.before.as_deref().map_or(0, |before| before.generation) + 1
    }

    pub(super) fn put(&self, now: Time) -> Put<'_> {
        let before = self.before.as_deref();
        let same_state = before.is_some_and(|before| before.sandbox.state == self.sandbox.state);
        Put {
            sandbox: &self.sandbox,
            record: self.record_changed.then_some(&*self.record),
            account: self.record.account,
            generation: self.generation(),
            recorded_at: match before {
                Some(before) if same_state => before.recorded_at,
                Some(_) | None => now,
            },
            status: self.sandbox.status().as_str(),
            deadline: deadline(&self.sandbox),
        }
    }

    /// What outsiders are told: the status it went to and the rule that said so.
    pub(super) fn announcement(&self, now: Time) -> Option<Announced> {
        let from = self
            .before
            .as_deref()
            .map(|before| before.sandbox.status().as_str());
        let to = self.sandbox.status().as_str();
        if from == Some(to) {
            return None;
        }
        let reason = self.reasons.last();
        let text = reason.map(|reason| reason.text.as_str());
        Some(Announced {
            at: now,
            account: self.record.account,
            id: self.sandbox.id,
            kind: to.to_owned(),
            rule: reason.map(|reason| reason.rule),
            body: serde_json::json!({ "from": from, "text": text }).to_string(),
        })
    }
}

/// Whether a box takes room: it runs, or is on its way to or from running.
pub(super) fn is_in_ram(view: &View) -> bool {
    match view.sandbox.state {
        State::Starting { .. }
        | State::Ready
        | State::Freezing { .. }
        | State::Thawing { .. }
        | State::Releasing { .. }
        | State::Stopping { .. } => true,
        State::Frozen(_) | State::Terminated { .. } | State::Interrupted { .. } => false,
    }
}

/// When the box has to be looked at next.
pub(super) fn deadline(sandbox: &Sandbox) -> Option<Time> {
    let rules = sandbox.next_deadline();
    rules.into_iter().chain(forgotten_at(sandbox)).min()
}

/// When a stopped box of which nothing is left is forgotten (rule 6.8).
pub(super) fn forgotten_at(sandbox: &Sandbox) -> Option<Time> {
    match &sandbox.state {
        State::Terminated { at, kept: None, .. } => Some(*at + KEPT_MS),
        State::Terminated { kept: Some(_), .. }
        | State::Starting { .. }
        | State::Ready
        | State::Freezing { .. }
        | State::Frozen(_)
        | State::Thawing { .. }
        | State::Releasing { .. }
        | State::Stopping { .. }
        | State::Interrupted { .. } => None,
    }
}
