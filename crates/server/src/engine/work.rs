//! One box within a turn: what it was, what it has become, and what is to be written, told and done about it. Owns the
//! forms in which a box goes to the store and to readers; when that happens is the turn's.

use std::sync::Arc;

use icebox_lifecycle::rules::listed::LISTED_MS;
use icebox_lifecycle::rules::way_out;
use icebox_lifecycle::state::End;
use icebox_lifecycle::time::Ms;
use icebox_lifecycle::{Change, Decision, Effect, Event, Reason, Sandbox, State, Status, Time};

use super::views::View;
use super::way_out::Heard;
use crate::record::Record;
use crate::store::{Announced, ERROR_LEN, Ending, HistoryStep, Put, SUMMARY_LEN, cut};

/// How long stopped boxes and events are kept (rule 6.8).
pub(crate) const KEPT_MS: Ms = LISTED_MS;
/// The rule of a change that no other rule decided: the next state of the diagram (2.1).
const BY_ITSELF: &str = "2.1";

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
    /// One event for each change of its status, and for news of its way out, with the rule that made it.
    pub(super) told: Vec<Announced>,
    pub(super) steps: Vec<HistoryStep>,
    /// Who hears how a change of what it may reach was carried out.
    pub(super) reaching: Vec<Heard>,
}

impl Work {
    /// A box that exists, as readers see it now. Nobody could use it for `gap_ms` until `now`.
    pub(super) fn on(view: Arc<View>, now: Time, gap_ms: Option<Ms>) -> Self {
        let mut work = Self {
            sandbox: view.sandbox.clone(),
            record: Arc::clone(&view.record),
            record_changed: false,
            observed_at: view.observed_at,
            changed: Change::None,
            effects: Vec::new(),
            reasons: Vec::new(),
            told: Vec::new(),
            steps: Vec::new(),
            reaching: Vec::new(),
            before: Some(view),
        };
        // Before anything else, for with any event the due clocks strike.
        if let Some(ms) = gap_ms {
            work.handle(now, Event::Gap { ms, ran: false });
        }
        work
    }

    /// A box that is made in this turn.
    pub(super) fn new(sandbox: Sandbox, record: Record, now: Time, decision: Decision) -> Self {
        let mut work = Self {
            before: None,
            sandbox,
            record: Arc::new(record),
            record_changed: true,
            observed_at: None,
            changed: Change::None,
            effects: Vec::new(),
            reasons: Vec::new(),
            told: Vec::new(),
            steps: Vec::new(),
            reaching: Vec::new(),
        };
        work.note(now, None, decision);
        work
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

    /// Takes one event in, and notes what came of it.
    pub(super) fn handle(&mut self, now: Time, event: Event) {
        let from = self.sandbox.status();
        let call = under_way(&self.sandbox);
        let decision = self.sandbox.handle(now, event);
        if let Some(call) = call {
            self.steps.extend(self.step_of(call, now));
        }
        self.note(now, Some(from), decision);
    }

    fn note(&mut self, now: Time, from: Option<Status>, decision: Decision) {
        let to = self.sandbox.status();
        if from != Some(to) {
            let reason = decision.reasons.last();
            let text = reason.map(|reason| reason.text.as_str());
            let from = from.map(Status::as_str);
            self.told.push(Announced {
                at: now,
                account: self.record.account,
                id: self.sandbox.id,
                kind: to.as_str().to_owned(),
                rule: Some(reason.map_or(BY_ITSELF, |reason| reason.rule)),
                body: serde_json::json!({ "from": from, "text": text }).to_string(),
            });
        }
        let of_way_out = decision
            .reasons
            .iter()
            .filter(|it| it.rule == way_out::RULE.number);
        self.told.extend(of_way_out.map(|reason| Announced {
            at: now,
            account: self.record.account,
            id: self.sandbox.id,
            kind: "egress".to_owned(),
            rule: Some(reason.rule),
            body: serde_json::json!({ "text": reason.text }).to_string(),
        }));
        self.changed = self.changed.max(decision.changed);
        self.effects.extend(decision.effects);
        self.reasons.extend(decision.reasons);
    }

    /// The step that the end of a start or a stop is, if it has ended (rule 11.3).
    fn step_of(&self, call: UnderWay, now: Time) -> Option<HistoryStep> {
        if under_way(&self.sandbox) == Some(call) {
            return None;
        }
        let (kind, began, done) = match call {
            UnderWay::Start => {
                let done = self.sandbox.state == State::Ready;
                ("start", self.sandbox.created_at, done)
            }
            UnderWay::Stop => {
                let done = matches!(self.sandbox.state, State::Terminated { .. });
                let before = self.before.as_deref();
                let stopping = before.filter(|view| under_way(&view.sandbox) == Some(call));
                ("stop", stopping.map_or(now, |view| view.recorded_at), done)
            }
        };
        let reason = || {
            let reason = self.sandbox.status_reason();
            let reason = reason.unwrap_or_else(|| format!("it is {}", self.sandbox.status()));
            cut(&reason, ERROR_LEN)
        };
        Some(HistoryStep {
            at: began,
            ending: Ending {
                ms: u64::try_from(now.since(began)).ok(),
                error: (!done).then(reason),
                ..Ending::default()
            },
            ..self.step(kind, began)
        })
    }

    /// The step that a restore is; the wake that follows is told in other ways.
    pub(super) fn restored(&self, now: Time) -> HistoryStep {
        HistoryStep {
            detail: Some("restored".into()),
            ..self.step("start", now)
        }
    }

    fn step(&self, kind: &'static str, at: Time) -> HistoryStep {
        let named = self.record.goal.as_deref().or(self.record.name.as_deref());
        let image = || format!("image {}", self.record.image);
        HistoryStep {
            at,
            exec: None,
            kind,
            summary: cut(&named.map_or_else(image, str::to_owned), SUMMARY_LEN),
            note: None,
            detail: None,
            target: None,
            ending: Ending::default(),
        }
    }
}

/// A call that the state itself keeps in mind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum UnderWay {
    Start,
    Stop,
}

fn under_way(sandbox: &Sandbox) -> Option<UnderWay> {
    match &sandbox.state {
        State::Starting {
            keep_files: false, ..
        } => Some(UnderWay::Start),
        State::Stopping {
            end: End::Asked | End::Unneeded,
            ..
        } => Some(UnderWay::Stop),
        State::Starting { .. }
        | State::Ready
        | State::Freezing { .. }
        | State::Frozen(_)
        | State::Thawing { .. }
        | State::Releasing { .. }
        | State::Stopping { .. }
        | State::Terminated { .. }
        | State::Interrupted { .. } => None,
    }
}

/// When the box has to be looked at next: a rule is due, or it is to be forgotten (rule 6.8).
pub(super) fn deadline(sandbox: &Sandbox) -> Option<Time> {
    let rules = sandbox.next_deadline();
    rules.into_iter().chain(sandbox.forget_at()).min()
}
