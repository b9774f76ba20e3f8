//! One turn: step every box that something happened to at one moment, commit all of it at once, and only then act and
//! show it. Owns that order. When the commit fails nothing has happened: askers are told so, and what nobody asked for is
//! taken up again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use icebox_lifecycle::time::{Ms, SEC};
use icebox_lifecycle::{
    Admission, Ask, BoxId, Change, Command, Event, OpId, Outcome, Processes, Sandbox, Seen, State,
    Time,
};
use tokio::runtime::Handle;

use super::deadlines::Deadlines;
use super::effects::Effects;
use super::inbox::{Admitted, Answer, AskError, Call, Message, NewBox, Patch, Reply, Sender};
use super::views::{View, Views};
use super::warm::Warm;
use super::watch::Watches;
use super::work::{Work, deadline, forgotten_at, is_in_ram};
use super::{Counters, Parts};
use crate::clock::Clock;
use crate::store::{HistoryStep, Store, StoreError};

/// Boxes whose deadlines are looked at in one turn, so that a flood of them does not hold up what comes in.
const MOST_DUE: usize = 1024;
/// How often the moment the server was last alive is recorded.
pub(super) const HEARTBEAT_MS: Ms = 5 * SEC;
/// A longer silence between two turns means that the host slept (rule 3.6).
const ASLEEP_MS: Ms = 30 * SEC;
/// When to try again what could not be committed.
const AGAIN_MS: Ms = SEC;

/// Everything the loop owns.
pub(super) struct Core {
    pub(super) clock: Clock,
    pub(super) store: Store,
    pub(super) views: Arc<Views>,
    pub(super) deadlines: Deadlines,
    pub(super) effects: Effects,
    pub(super) watches: Watches,
    warm: Warm,
    counters: Arc<Counters>,
    most_running: usize,
    running: usize,
    last_turn: Time,
    pub(super) last_heartbeat: Time,
    pub(super) last_sweep: Time,
}

/// One turn under way.
pub(super) struct Turn {
    pub(super) now: Time,
    pub(super) work: BTreeMap<BoxId, Work>,
    replies: Vec<Waiting>,
    /// What to take up again if the commit fails.
    again: Vec<Message>,
    due: Vec<BoxId>,
    pub(super) removed: Vec<BoxId>,
    /// What calls came to.
    pub(super) steps: Vec<(BoxId, HistoryStep)>,
    created: usize,
}

impl Turn {
    fn remember(&mut self, id: BoxId, step: Box<HistoryStep>) {
        self.steps.push((id, (*step).clone()));
        self.again.push(Message::Step(id, step));
    }
}

struct Waiting {
    id: BoxId,
    reply: Reply,
    taken: Result<Admitted, AskError>,
}

impl Core {
    pub(super) fn new(
        parts: Parts,
        runtime: Handle,
        inbox: Sender,
        views: Arc<Views>,
        counters: Arc<Counters>,
    ) -> Self {
        let now = parts.clock.now();
        let effects = Effects::new(
            runtime.clone(),
            Arc::clone(&parts.driver),
            Arc::clone(&parts.boxds),
            inbox.clone(),
        );
        Self {
            clock: parts.clock,
            store: parts.store,
            views,
            deadlines: Deadlines::default(),
            effects,
            watches: Watches::new(runtime, parts.driver, parts.boxds, inbox),
            warm: Warm::new(parts.limits.warm_memory_mb),
            counters,
            most_running: parts.limits.running_boxes,
            running: 0,
            last_turn: now,
            last_heartbeat: Time(0),
            last_sweep: Time(0),
        }
    }

    /// Begins a turn.
    pub(super) fn begin(&mut self) -> Turn {
        let now = self.clock.now();
        let mut turn = Turn {
            now,
            work: BTreeMap::new(),
            replies: Vec::new(),
            again: Vec::new(),
            due: Vec::new(),
            removed: Vec::new(),
            steps: Vec::new(),
            created: 0,
        };
        let silence = now.since(self.last_turn);
        self.last_turn = now;
        if silence > ASLEEP_MS && !self.clock.is_test() {
            tracing::warn!(ms = silence, "the host slept; idle clocks move by that");
            for view in self.views.all() {
                let gap = Event::Gap { ms: silence };
                self.step(&mut turn, view.id(), gap);
            }
        }
        turn
    }

    /// Takes one message.
    pub(super) fn take(&mut self, turn: &mut Turn, message: Message) {
        match message {
            Message::Create(new, reply) => self.create(turn, *new, reply),
            Message::Call(call, reply) => self.call(turn, call, reply),
            Message::Ask(id, command, reply) => {
                let taken = self.command(turn, id, command);
                turn.replies.push(Waiting { id, reply, taken });
            }
            Message::Patch(id, patch, reply) => {
                let taken = self.patch(turn, id, *patch);
                turn.replies.push(Waiting { id, reply, taken });
            }
            Message::Ended(id, call, step, reply) => {
                let ended = Event::CallEnded { call };
                turn.again.push(Message::Event(id, ended.clone()));
                if let Some(step) = step {
                    turn.remember(id, step);
                }
                let known = self.step(turn, id, ended);
                let taken = known.map(|()| Admitted::Accepted).ok_or(AskError::NotFound);
                turn.replies.push(Waiting { id, reply, taken });
            }
            Message::Event(id, event) => {
                turn.again.push(Message::Event(id, event.clone()));
                self.step(turn, id, event);
            }
            Message::Step(id, step) => turn.remember(id, step),
            Message::Done(id, op, outcome) => self.done(turn, id, op, outcome),
            Message::Exited(id, watch, detail) => {
                turn.again.push(Message::Exited(id, watch, detail.clone()));
                if self.watches.is_current(id, watch) {
                    self.observe(turn, id, absent(&detail));
                }
            }
            // The loop keeps these to itself.
            Message::Advance(..) | Message::Shutdown(_) => {}
        }
    }

    /// Looks at the deadlines.
    pub(super) fn tick(&mut self, turn: &mut Turn) {
        for _ in 0..MOST_DUE {
            let Some(id) = self.deadlines.pop(turn.now) else {
                return;
            };
            turn.due.push(id);
            self.step(turn, id, Event::Tick);
        }
    }

    /// Feeds in what the driver sees of a box.
    pub(super) fn observe(&mut self, turn: &mut Turn, id: BoxId, seen: Seen) {
        self.step(turn, id, Event::Observed(seen));
        if let Some(work) = turn.work.get_mut(&id) {
            work.observed_at = Some(turn.now);
        }
    }

    /// Lets a box take one event in. `None`: there is no such box.
    pub(super) fn step(&mut self, turn: &mut Turn, id: BoxId, event: Event) -> Option<()> {
        let now = turn.now;
        let work = self.work(turn, id)?;
        work.handle(now, event);
        Some(())
    }

    fn work<'t>(&self, turn: &'t mut Turn, id: BoxId) -> Option<&'t mut Work> {
        use std::collections::btree_map::Entry;
        match turn.work.entry(id) {
            Entry::Occupied(work) => Some(work.into_mut()),
            Entry::Vacant(place) => {
                let view = self.views.get(id)?;
                Some(place.insert(Work::on(view)))
            }
        }
    }

    fn create(&mut self, turn: &mut Turn, new: NewBox, reply: Reply) {
        let id = new.id;
        let taken = if !self.has_room(turn) {
            Err(AskError::NoCapacity)
        } else {
            let (sandbox, decision) = Sandbox::new(id, new.policy, turn.now, new.agent);
            turn.created += 1;
            let work = Work::new(sandbox, new.record, turn.now, decision);
            turn.work.insert(id, work);
            Ok(Admitted::Accepted)
        };
        turn.replies.push(Waiting { id, reply, taken });
    }

    fn has_room(&self, turn: &Turn) -> bool {
        self.running + turn.created < self.most_running
    }

    fn call(&mut self, turn: &mut Turn, call: Call, reply: Reply) {
        let ask = Ask::Call {
            kind: call.kind,
            writes: call.writes,
        };
        let taken = self.admit(turn, call.id, &ask);
        if let Ok(Admitted::Accepted) = taken {
            let began = Event::CallBegan {
                call: call.call,
                kind: call.kind,
                agent: call.agent,
            };
            self.step(turn, call.id, began);
        }
        let id = call.id;
        turn.replies.push(Waiting { id, reply, taken });
    }

    fn command(
        &mut self,
        turn: &mut Turn,
        id: BoxId,
        command: Command,
    ) -> Result<Admitted, AskError> {
        let admitted = self.admit(turn, id, &Ask::from(&command))?;
        let brings_back = command == Command::Restore;
        if admitted == Admitted::Accepted {
            if brings_back && !self.has_room(turn) {
                return Err(AskError::NoCapacity);
            }
            self.step(turn, id, Event::Command(command));
            if brings_back {
                turn.created += 1;
                let now = turn.now;
                let step = self.work(turn, id).map(|work| work.restored(now));
                turn.steps.extend(step.map(|step| (id, step)));
            }
        }
        Ok(admitted)
    }

    fn admit(&mut self, turn: &mut Turn, id: BoxId, ask: &Ask) -> Result<Admitted, AskError> {
        // What is due by now is decided first, so that nobody is admitted on the strength of an old state.
        self.step(turn, id, Event::Tick).ok_or(AskError::NotFound)?;
        let now = turn.now;
        let work = self.work(turn, id).ok_or(AskError::NotFound)?;
        match work.sandbox.admit(now, ask) {
            Admission::Accept => Ok(Admitted::Accepted),
            Admission::AlreadySo => Ok(Admitted::AlreadySo),
            Admission::Wait => Ok(Admitted::Wait),
            Admission::Refuse(refusal) => {
                let view = work.view(now);
                Err(AskError::Refused(Box::new(refusal), Arc::new(view)))
            }
        }
    }

    fn patch(&mut self, turn: &mut Turn, id: BoxId, patch: Patch) -> Result<Admitted, AskError> {
        let work = self.work(turn, id).ok_or(AskError::NotFound)?;
        let policy = patch.policy.map(|change| change(&work.sandbox.policy));
        let mut commands: Vec<Command> = Vec::new();
        commands.extend(policy.map(|policy| Command::SetPolicy(Box::new(policy))));
        commands.extend(patch.keep.map(Command::Keep));
        // All of it or nothing: a refusal comes before the first change.
        for command in &commands {
            self.admit(turn, id, &Ask::from(command))?;
        }
        for command in commands {
            self.command(turn, id, command)?;
        }
        let work = self.work(turn, id).ok_or(AskError::NotFound)?;
        let mut record = (*work.record).clone();
        if let Some(name) = patch.name {
            record.name = name;
        }
        if let Some(goal) = patch.goal {
            record.goal = goal;
        }
        if let Some(e2b) = patch.e2b {
            record.e2b = Some(e2b);
        }
        if let Some(private) = patch.private {
            record.private = private;
        }
        if let Some((secret, instead)) = patch.link_secret
            && (instead || record.link_secret.is_none())
        {
            record.link_secret = Some(secret);
        }
        if record != *work.record {
            work.record = Arc::new(record);
            work.record_changed = true;
            work.changed = Change::Transition;
        }
        Ok(Admitted::Accepted)
    }

    fn done(&mut self, turn: &mut Turn, id: BoxId, op: Option<OpId>, outcome: Outcome) {
        self.effects.over(id);
        let Some(op) = op else { return };
        let awaited = self.work(turn, id).and_then(|work| work.sandbox.awaited());
        if awaited != Some(op) {
            self.counters
                .dropped_outcomes
                .fetch_add(1, Ordering::Relaxed);
            return;
        }
        let event = Event::Outcome { op, outcome };
        turn.again.push(Message::Event(id, event.clone()));
        self.step(turn, id, event);
        if let Some(work) = turn.work.get_mut(&id) {
            work.observed_at = Some(turn.now);
        }
    }

    /// Commits the turn, then acts. Gives back what has to be taken up again because the commit failed.
    pub(super) fn finish(&mut self, mut turn: Turn) -> Result<(), Vec<Message>> {
        self.keep_warm(&mut turn);
        self.sweep(&mut turn);
        turn.work
            .retain(|_, work| work.changed > Change::None || !work.effects.is_empty());
        self.counters.turns.fetch_add(1, Ordering::Relaxed);
        if let Err(error) = self.commit(&turn) {
            return Err(self.give_up(turn, &error));
        }
        for id in std::mem::take(&mut turn.removed) {
            self.views.remove(id);
            self.watches.forget(id);
        }
        for id in std::mem::take(&mut turn.due) {
            if let Some(view) = self.views.get(id)
                && !turn.work.contains_key(&id)
            {
                self.deadlines.set(id, deadline(&view.sandbox));
            }
        }
        // Whoever has to wait gets the box as it was before this turn: a change in the very turn that told them to wait
        // must not be missed.
        let mut answers = Vec::new();
        for waiting in turn.replies {
            let before = match waiting.taken {
                Ok(Admitted::Wait) => self.views.get(waiting.id),
                Ok(Admitted::Accepted | Admitted::AlreadySo) | Err(_) => None,
            };
            answers.push((waiting, before));
        }
        let mut told = false;
        for work in std::mem::take(&mut turn.work).into_values() {
            told |= !work.told.is_empty();
            self.publish(turn.now, work);
        }
        if told {
            self.views.tell();
        }
        for (waiting, before) in answers {
            let view = before.or_else(|| self.views.get(waiting.id));
            let answer = match (waiting.taken, view) {
                (Ok(admitted), Some(view)) => Ok(Answer { admitted, view }),
                (Ok(_), None) => Err(AskError::NotFound),
                (Err(error), _) => Err(error),
            };
            // The asker may have gone away.
            let _ = waiting.reply.send(answer);
        }
        Ok(())
    }

    fn give_up(&mut self, turn: Turn, error: &StoreError) -> Vec<Message> {
        tracing::error!(
            error = error as &dyn std::error::Error,
            "a turn could not be committed"
        );
        for waiting in turn.replies {
            let answer = waiting.taken.and(Err(AskError::Store));
            let _ = waiting.reply.send(answer);
        }
        let later = turn.now + AGAIN_MS;
        for id in turn.due.into_iter().chain(turn.work.into_keys()) {
            self.deadlines.set(id, Some(later));
        }
        turn.again
    }

    fn publish(&mut self, now: Time, mut work: Work) {
        if let Err(broken) = work.sandbox.check() {
            tracing::error!(id = %work.sandbox.id, %broken, "a record does not make sense");
        }
        let effects = std::mem::take(&mut work.effects);
        let was_up = work.before.as_deref().is_some_and(is_in_ram);
        let view = Arc::new(work.view(now));
        self.show(&view, was_up);
        for effect in effects {
            self.effects.launch(&view, effect);
        }
    }

    /// Shows a box that was loaded, before anything is known of it.
    pub(super) fn load(&mut self, view: &Arc<View>) {
        self.running += usize::from(is_in_ram(view));
        self.views.publish(Arc::clone(view));
    }

    /// Follows a box that was loaded and whose first turn is over.
    pub(super) fn follow_loaded(&mut self, view: &Arc<View>) {
        self.deadlines.set(view.id(), deadline(&view.sandbox));
        self.watches.update(view);
        if view.sandbox.state == State::Ready {
            self.watches.adopt(view);
        }
    }

    /// Shows a view and lets everything that follows boxes follow it.
    fn show(&mut self, view: &Arc<View>, was_up: bool) {
        let up = is_in_ram(view);
        self.running = self.running + usize::from(up) - usize::from(was_up);
        self.deadlines.set(view.id(), deadline(&view.sandbox));
        self.watches.update(view);
        self.views.publish(Arc::clone(view));
        if was_up && !up {
            self.views.made_room();
        }
    }

    /// Tells the boxes of this turn, and those that must give way, whether their memory stays (rule 4.11).
    fn keep_warm(&mut self, turn: &mut Turn) {
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

    /// Marks stopped boxes that were kept long enough to be forgotten (rule 6.8).
    fn sweep(&mut self, turn: &mut Turn) {
        let over = |id: &BoxId| {
            let at = turn
                .work
                .get(id)
                .and_then(|work| forgotten_at(&work.sandbox));
            at.is_some_and(|at| at <= turn.now)
        };
        turn.removed = turn.due.iter().filter(|id| over(id)).copied().collect();
        for id in &turn.removed {
            turn.work.remove(id);
        }
    }
}

/// What is seen of a box that has no processes and no copy.
pub(super) fn absent(detail: &str) -> Seen {
    Seen {
        processes: Processes::Absent,
        copy: None,
        detail: detail.into(),
    }
}
