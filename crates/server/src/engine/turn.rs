//! One turn: step every box that something happened to at one moment, commit all of it at once, and only then act and
//! show it. Owns that order. When the commit fails nothing has happened: askers are told so, and what nobody asked for is
//! taken up again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use icebox_lifecycle::time::{Ms, SEC};
use icebox_lifecycle::{
    Admission, Ask, BoxId, Change, Command, Event, OpId, Outcome, Policy, Processes, Sandbox, Seen,
    Time,
};
use tokio::runtime::Handle;

use super::behind::Behind;
use super::credits::{Billing, Books};
use super::deadlines::Deadlines;
use super::effects::Effects;
use super::ends::Ends;
use super::inbox::{Admitted, Answer, AskError, Asker, Call, Message, NewBox, Reply, Sender};
use super::links::Links;
use super::room::{Held, Rooms};
use super::saves::{SaveChanges, Saves};
use super::views::Views;
use super::warm::Warm;
use super::watch::Watches;
use super::way_out::Hears;
use super::work::{Work, deadline};
use super::{Counters, Parts, Shown};
use crate::clock::Clock;
use crate::shared::Shared;
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
    pub(super) rooms: Rooms,
    pub(super) warm: Warm,
    pub(super) billing: Billing,
    pub(super) saves: Saves,
    pub(super) behind: Behind,
    pub(super) links: Links,
    ends: Arc<Ends>,
    pub(super) counters: Arc<Counters>,
    policies: Shared<Policy>,
    /// When somebody could last use a box.
    pub(super) last_turn: Time,
    pub(super) last_heartbeat: Time,
    pub(super) last_sweep: Time,
}

/// One turn under way.
pub(super) struct Turn {
    pub(super) now: Time,
    /// The moment of the turn before it.
    before: Time,
    /// Nobody could use any box for so long until now (rule 3.6).
    pub(super) gap_ms: Option<Ms>,
    pub(super) work: BTreeMap<BoxId, Work>,
    pub(super) replies: Vec<Waiting>,
    /// What to take up again if the commit fails.
    pub(super) again: Vec<Message>,
    pub(super) due: Vec<BoxId>,
    pub(super) removed: Vec<BoxId>,
    /// What calls came to.
    pub(super) steps: Vec<(BoxId, HistoryStep)>,
    /// Who hears what became of a way out, once it shows.
    pub(super) hears: Hears,
    /// How many calls ended for which somebody may wait.
    ended: u64,
    pub(super) books: Books,
    pub(super) saves: SaveChanges,
    /// It is the last one: nothing may be left to be written later.
    pub(super) closing: bool,
}

impl Turn {
    /// The moment up to which boxes that are up are billed.
    pub(super) fn billed_to(&self) -> Time {
        self.now - self.gap_ms.unwrap_or(0)
    }

    fn remember(&mut self, id: BoxId, step: Box<HistoryStep>) {
        self.steps.push((id, (*step).clone()));
        self.again.push(Message::Step(id, step));
    }
}

pub(super) struct Waiting {
    pub(super) id: BoxId,
    pub(super) reply: Reply,
    pub(super) taken: Result<Admitted, AskError>,
}

impl Core {
    pub(super) fn new(parts: Parts, runtime: Handle, inbox: Sender, shown: Shown) -> Self {
        let Shown {
            views,
            accounts,
            snapshots,
            ends,
            counters,
        } = shown;
        let now = parts.clock.now();
        let rooms = Rooms::new(&parts.limits, &parts.driver.capabilities());
        let effects = Effects::new(
            runtime.clone(),
            Arc::clone(&parts.driver),
            Arc::clone(&parts.boxds),
            inbox.clone(),
        );
        let saves = Saves::new(&runtime, &parts, &inbox, snapshots);
        Self {
            clock: parts.clock,
            store: parts.store,
            views,
            deadlines: Deadlines::default(),
            effects,
            watches: Watches::new(runtime, parts.driver, parts.boxds, inbox),
            rooms,
            warm: Warm::new(parts.limits.warm_memory_mb),
            billing: Billing::new(accounts, parts.prices),
            saves,
            behind: Behind::default(),
            links: Links::default(),
            ends,
            counters,
            policies: Shared::default(),
            last_turn: now,
            last_heartbeat: Time(0),
            last_sweep: Time(0),
        }
    }

    /// Begins a turn.
    pub(super) fn begin(&mut self) -> Turn {
        let now = self.clock.now();
        let before = std::mem::replace(&mut self.last_turn, now);
        let mut turn = Turn {
            now,
            before,
            gap_ms: None,
            work: BTreeMap::new(),
            replies: Vec::new(),
            again: Vec::new(),
            due: Vec::new(),
            removed: Vec::new(),
            steps: Vec::new(),
            hears: Hears::default(),
            ended: 0,
            books: Books::default(),
            saves: SaveChanges::default(),
            closing: false,
        };
        let silence = now.since(before);
        if silence > ASLEEP_MS && !self.clock.is_test() {
            tracing::warn!(ms = silence, "the host slept; idle clocks move by that");
            self.slept(&mut turn, silence);
        }
        turn
    }

    /// Takes one message.
    pub(super) fn take(&mut self, turn: &mut Turn, message: Message) {
        match message {
            Message::Create(new, asker, reply) => self.create(turn, new, asker, reply),
            Message::Call(call, reply) => self.call(turn, call, reply),
            Message::Ask(id, command, asker, reply) => {
                self.command(turn, id, command, asker, reply);
            }
            Message::HungUp(id, ticket) => self.hung_up(turn, id, ticket),
            Message::Patch(id, patch, reply) => {
                let taken = self.patch(turn, id, *patch);
                turn.replies.push(Waiting { id, reply, taken });
            }
            Message::Ended(id, call, step, began) => {
                turn.ended += 1;
                let ended = Event::CallEnded { call };
                turn.again.push(Message::Event(id, ended.clone()));
                if let Some(step) = step {
                    turn.remember(id, step);
                }
                self.step(turn, id, ended);
                if let Some(began) = began {
                    turn.again.push(Message::Event(id, (*began).clone()));
                    self.step(turn, id, *began);
                }
            }
            Message::Event(id, event) => {
                turn.again.push(Message::Event(id, event.clone()));
                self.step(turn, id, event);
            }
            Message::WayOut(id, failure, hears) => self.way_out(turn, id, failure, hears),
            Message::Step(id, step) => turn.remember(id, step),
            Message::Account(change, reply) => self.change_account(turn, *change, reply),
            Message::Save(new, reply) => self.save(turn, *new, reply),
            Message::Saved(id, result) => {
                turn.again.push(Message::Saved(id, result.clone()));
                self.saved(turn, id, result);
            }
            Message::Unsave(id, reply) => self.unsave(turn, id, reply),
            Message::Unsaved(id) => {
                turn.again.push(Message::Unsaved(id));
                Self::unsaved(turn, id);
            }
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
        self.tick_accounts(turn);
        for _ in 0..MOST_DUE {
            let Some(id) = self.deadlines.pop(turn.now) else {
                return;
            };
            // Its clocks stand still, and are looked at when it waits no more.
            if self.rooms.waits(id) {
                continue;
            }
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
        let waited = self.rooms.waited(id, now);
        let work = self.work(turn, id)?;
        if let Some(ms) = waited {
            work.handle(now, Event::Gap { ms, ran: false });
        }
        self.tell_credits(turn, id, &event);
        turn.work.get_mut(&id)?.handle(now, event);
        Some(())
    }

    pub(super) fn work<'t>(&self, turn: &'t mut Turn, id: BoxId) -> Option<&'t mut Work> {
        use std::collections::btree_map::Entry;
        match turn.work.entry(id) {
            Entry::Occupied(work) => Some(work.into_mut()),
            Entry::Vacant(place) => {
                let view = self.views.get(id)?;
                Some(place.insert(Work::on(view, turn.now, turn.gap_ms)))
            }
        }
    }

    fn create(&mut self, turn: &mut Turn, new: Box<NewBox>, asker: Asker, reply: Reply) {
        let id = new.id;
        let room = if !self.has_credits(turn, new.record.account) {
            Err(AskError::NoCredits)
        } else if !self.has_origin(turn, &new.record) {
            Err(AskError::NoSnapshot)
        } else {
            self.room_for_new(turn, &new, asker)
        };
        let taken = match room {
            Ok(true) => {
                let policy = self.policies.one(new.policy.clone());
                let (sandbox, decision) = Sandbox::new(id, policy, turn.now, new.agent.clone());
                let work = Work::new(sandbox, new.record, turn.now, decision);
                turn.work.insert(id, work);
                Ok(Admitted::Accepted)
            }
            Ok(false) => {
                return self.rooms.keep(Held::Start(new, asker, reply));
            }
            Err(error) => Err(error),
        };
        turn.replies.push(Waiting { id, reply, taken });
    }

    fn call(&mut self, turn: &mut Turn, call: Call, reply: Reply) {
        let id = call.id;
        let mut taken = self.admit(turn, id, &call.ask);
        if let Ok(Admitted::Accepted) = taken {
            match self.room_for(turn, id, &call.began, call.asker) {
                Ok(true) => {
                    self.step(turn, id, call.began);
                }
                Ok(false) => return self.rooms.keep(Held::Call(call, reply)),
                Err(error) => taken = Err(error),
            }
        }
        turn.replies.push(Waiting { id, reply, taken });
    }

    fn command(
        &mut self,
        turn: &mut Turn,
        id: BoxId,
        command: Command,
        asker: Asker,
        reply: Reply,
    ) {
        let mut taken = self.admit(turn, id, &Ask::from(&command));
        if command == Command::Freeze && taken.is_ok() {
            self.call_off(turn, id);
        }
        if let Ok(Admitted::Accepted) = taken {
            let event = Event::Command(command.clone());
            match self.room_for(turn, id, &event, asker) {
                Ok(true) => self.commanded(turn, id, command),
                Ok(false) => return self.rooms.keep(Held::Ask(id, command, asker, reply)),
                Err(error) => taken = Err(error),
            }
        }
        turn.replies.push(Waiting { id, reply, taken });
    }

    pub(super) fn commanded(&mut self, turn: &mut Turn, id: BoxId, command: Command) {
        let now = turn.now;
        let brings_back = command == Command::Restore;
        self.step(turn, id, Event::Command(command));
        if brings_back {
            let step = self.work(turn, id).map(|work| work.restored(now));
            turn.steps.extend(step.map(|step| (id, step)));
        }
    }

    pub(super) fn admit(
        &mut self,
        turn: &mut Turn,
        id: BoxId,
        ask: &Ask,
    ) -> Result<Admitted, AskError> {
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
        self.end_versions(&mut turn);
        self.follow_links(&mut turn);
        self.keep_warm(&mut turn);
        self.follow_saves(&mut turn);
        self.sweep(&mut turn);
        turn.work
            .retain(|_, work| work.changed > Change::None || !work.effects.is_empty());
        self.counters.turns.fetch_add(1, Ordering::Relaxed);
        self.charge(&mut turn);
        if let Err(error) = self.commit(&turn) {
            return Err(self.give_up(turn, &error));
        }
        if let Some(ms) = turn.gap_ms {
            self.show_gap(&turn, ms);
        }
        let views = Arc::clone(&self.views);
        let showing = views.showing();
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
        self.look_at_links();
        if told {
            self.views.tell();
        }
        self.settle_room();
        self.show_accounts(turn.books, turn.now);
        self.show_snapshots(turn.saves);
        self.saves.remove_unused();
        drop(showing);
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
        self.ends.show(turn.ended);
        turn.hears.tell();
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
        // Nobody waits longer for an end that cannot be written now; it is taken up again.
        self.ends.show(turn.ended);
        turn.hears.tell();
        self.settle_room();
        self.give_up_accounts(turn.books, turn.now);
        Self::give_up_snapshots(turn.saves);
        if turn.gap_ms.is_some() {
            // The next turn finds it again.
            self.last_turn = turn.before;
        }
        let later = turn.now + AGAIN_MS;
        for id in turn.due.into_iter().chain(turn.work.into_keys()) {
            self.deadlines.set(id, Some(later));
        }
        turn.again
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
