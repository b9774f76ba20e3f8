//! The life of one simulated box. Owns the agenda of what happens next, the driver's share of it, and the checks after
//! every event; people are in `people`, crashes in `crash`.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use super::Report;
use super::bill::Bill;
use super::checks::{self, Ledger};
use super::habits;
use super::random::Random;
use super::world::World;
use crate::decision::Decision;
use crate::effect::Effect;
use crate::event::{Event, Outcome, Processes};
use crate::id::{BOX_ID_LEN, BoxId, CallId, OpId};
use crate::sandbox::Sandbox;
use crate::state::State;
use crate::time::{MIN, SEC, Time};

/// One event in this many is cut short by a crash of the server.
const CRASHES: u64 = 400;
/// One event in this many has its forecast played through.
const FORECASTS: u64 = 64;
/// One event in this many is followed by the checks that need a second copy of the record.
const REPEATS: u64 = 32;

/// Something that will happen.
pub(super) enum Todo {
    /// The driver carries an effect out.
    Carry(Effect),
    /// Its answer arrives.
    Answer(OpId, Outcome),
    /// What became of its way out is told.
    WayOut(Option<Box<str>>),
    /// A call ends.
    End(CallId),
    /// The phones are frozen.
    PhonesFrozen,
}

/// A box, the world around it, and what comes next.
pub(crate) struct Life {
    pub(super) random: Random,
    pub(super) world: World,
    pub(super) sb: Sandbox,
    pub(super) now: Time,
    pub(super) agenda: Vec<(Time, Todo)>,
    pub(super) act_at: Time,
    pub(super) driver_free_at: Time,
    pub(super) ledger: Ledger,
    bill: Bill,
    pub(super) calls: Vec<CallId>,
    pub(super) takeover: bool,
    pub(super) links: Vec<(BoxId, bool)>,
    pub(super) next_call: u64,
    pub(super) lately: Option<(OpId, Outcome)>,
    pub(super) report: Report,
}

impl Life {
    /// A new box at `now`.
    pub(crate) fn new(seed: u64, stream: u64, now: Time) -> Self {
        let mut random = Random::new(seed, stream);
        let policy = habits::policy(&mut random, now);
        let (sb, decision) = Sandbox::new(box_id(stream), policy, now, None);
        let trouble = [0, 200, 20, 4][usize::try_from(random.below(4)).unwrap_or(0)];
        let bill = Bill::new(&sb.meter);
        let mut life = Self {
            random,
            world: World::new(trouble),
            sb,
            now,
            agenda: Vec::new(),
            act_at: now,
            driver_free_at: now,
            ledger: Ledger {
                counted_to: now,
                last_use: now,
                up: true,
                ..Ledger::default()
            },
            bill,
            calls: Vec::new(),
            takeover: false,
            links: Vec::new(),
            next_call: 0,
            lately: None,
            report: Report::default(),
        };
        life.schedule(decision.effects);
        life
    }

    /// The moment it has come to.
    pub(crate) fn now(&self) -> Time {
        self.now
    }

    /// Adds what was counted to a report.
    pub(crate) fn add_to(&self, report: &mut Report) {
        report.events += self.report.events;
        let (sum, one) = (&mut report.counts, &self.report.counts);
        sum.freezes += one.freezes;
        sum.wakes += one.wakes;
        sum.cold_starts += one.cold_starts;
        sum.stops += one.stops;
        sum.restores += one.restores;
        sum.crashes += one.crashes;
        sum.interruptions += one.interruptions;
        sum.forecasts += one.forecasts;
        sum.stale += one.stale;
    }

    /// Lives until `end`, or until nothing is left of it.
    pub(crate) fn live(&mut self, end: Time) -> Result<(), String> {
        loop {
            let ended = matches!(self.sb.state, State::Terminated { kept: None, .. });
            if ended && self.agenda.is_empty() {
                return self.last_checks();
            }
            let deadline = self.sb.next_deadline().unwrap_or(Time(i64::MAX));
            let first = (0..self.agenda.len()).min_by_key(|index| self.agenda[*index].0);
            let agenda_at = first.map_or(Time(i64::MAX), |index| self.agenda[index].0);
            let next = deadline.min(agenda_at).min(self.act_at);
            if next > end {
                self.now = end;
                return Ok(());
            }
            if next < self.now {
                return Err(format!(
                    "{next:?} is past at {:?} in {:?}",
                    self.now, self.sb
                ));
            }
            self.honest_deadline(deadline, next)?;
            self.now = next;
            // What was received by a deadline is applied before it, most of the time.
            let tick_first = deadline == next && self.random.one_in(4);
            match first {
                Some(index) if agenda_at == next && !tick_first => {
                    let (_, todo) = self.agenda.swap_remove(index);
                    self.happen(todo)?;
                }
                Some(_) | None if self.act_at == next && !tick_first => self.act()?,
                Some(_) | None => self.step(Event::Tick)?,
            }
        }
    }

    /// A moment before its deadline, a tick changes nothing.
    fn honest_deadline(&mut self, deadline: Time, next: Time) -> Result<(), String> {
        if deadline != next || deadline - 1 < self.now || !self.random.one_in(REPEATS) {
            return Ok(());
        }
        let mut copy = self.sb.clone();
        let decision = copy.handle(deadline - 1, Event::Tick);
        if decision.is_nothing() && copy == self.sb {
            return Ok(());
        }
        Err(format!("a tick before {deadline:?} changed {:?}", self.sb))
    }

    fn happen(&mut self, todo: Todo) -> Result<(), String> {
        match todo {
            Todo::Carry(effect) => {
                let outcome = self.world.carry_out(&effect, &mut self.random)?;
                if let Some(failure) = self.world.way_out(&effect) {
                    self.agenda.push((self.now, Todo::WayOut(failure)));
                }
                let Some(op) = effect.op() else {
                    return Ok(());
                };
                if self.random.one_in(8) {
                    let at = self.now + self.random.ms(0, MIN);
                    self.agenda.push((at, Todo::Answer(op, outcome)));
                    return Ok(());
                }
                self.answer(op, outcome)
            }
            Todo::Answer(op, outcome) => self.answer(op, outcome),
            Todo::WayOut(failure) => self.step(Event::WayOut { failure }),
            Todo::End(call) => {
                if let Some(at) = self.calls.iter().position(|under| *under == call) {
                    self.calls.swap_remove(at);
                    self.ledger.used(self.now);
                }
                self.step(Event::CallEnded { call })
            }
            Todo::PhonesFrozen => self.step(Event::Phones { awake: 0 }),
        }
    }

    fn answer(&mut self, op: OpId, outcome: Outcome) -> Result<(), String> {
        if self.sb.awaited() != Some(op) {
            self.report.counts.stale += 1;
        }
        self.lately = Some((op, outcome.clone()));
        self.step(Event::Outcome { op, outcome })?;
        if self.sb.awaited() == Some(op) {
            return Err(format!("still waits for {op:?}, which was answered"));
        }
        Ok(())
    }

    /// No effect is under way.
    pub(super) fn agenda_is_quiet(&self) -> bool {
        self.agenda.iter().all(|(_, todo)| match todo {
            Todo::Carry(_) => false,
            Todo::Answer(..) | Todo::WayOut(_) | Todo::End(_) | Todo::PhonesFrozen => true,
        })
    }

    /// Handles an event, perhaps with a crash, and checks everything.
    pub(super) fn step(&mut self, event: Event) -> Result<(), String> {
        let crash = self.random.one_in(CRASHES).then(|| self.random.below(3));
        if crash == Some(0) {
            // Nothing was committed: it is as if the event had never come.
            let holds = &self.sb.holds;
            self.calls = holds.calls.iter().map(|call| call.id).collect();
            self.takeover = holds.takeover.is_some();
            let links = holds.links.iter();
            self.links = links
                .map(|link| (link.from, link.awake_by_itself))
                .collect();
            self.ledger.last_use = self.sb.last_use;
            self.ledger.gap_ms = self.sb.gaps.since_use;
            return self.crash();
        }
        let before = self.sb.state.clone();
        let decision = self.sb.handle(self.now, event.clone());
        self.report.events += 1;
        self.check(&before, &event, &decision)
            .map_err(|what| format!("{what}; after {event:?} in {before:?} at {:?}", self.now))?;
        self.count(&before);
        if crash == Some(1) {
            // It was committed, and nothing else happened.
            return self.crash();
        }
        self.schedule(decision.effects);
        if self.random.one_in(REPEATS) {
            self.repeat()?;
        }
        if crash == Some(2) {
            return self.crash();
        }
        self.settled()
    }

    /// Effects are carried out one after the other, each after a while.
    pub(super) fn schedule(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            if effect == Effect::FreezePhones {
                let at = self.now + self.random.ms(0, MIN);
                self.agenda.push((at, Todo::PhonesFrozen));
            }
            let slow = if self.random.one_in(10) { MIN } else { 2 * SEC };
            let at = self.driver_free_at.max(self.now) + self.random.ms(1, slow);
            self.driver_free_at = at;
            self.agenda.push((at, Todo::Carry(effect)));
        }
    }

    /// The same answer again changes nothing.
    fn repeat(&mut self) -> Result<(), String> {
        let Some((op, outcome)) = self.lately.clone() else {
            return Ok(());
        };
        if self.sb.awaited() == Some(op) {
            return Ok(());
        }
        let mut copy = self.sb.clone();
        let decision = copy.handle(self.now, Event::Outcome { op, outcome });
        if decision.is_nothing() && copy == self.sb {
            return Ok(());
        }
        Err(format!("a repeated answer to {op:?} changed {:?}", self.sb))
    }

    pub(super) fn count(&mut self, before: &State) {
        let counts = &mut self.report.counts;
        if core::mem::discriminant(before) == core::mem::discriminant(&self.sb.state) {
            return;
        }
        match &self.sb.state {
            State::Freezing { .. } => counts.freezes += 1,
            State::Releasing { wake: true, .. } => counts.wakes += 1,
            State::Starting { .. } => counts.cold_starts += 1,
            State::Terminated { .. } => counts.stops += 1,
            State::Interrupted { .. } => counts.interruptions += 1,
            State::Ready
            | State::Frozen(_)
            | State::Thawing { .. }
            | State::Releasing { .. }
            | State::Stopping { .. } => {}
        }
    }

    /// Everything that holds right after an event.
    pub(super) fn check(
        &mut self,
        before: &State,
        event: &Event,
        decision: &Decision,
    ) -> Result<(), String> {
        self.ledger.count(self.now, before, &self.sb);
        self.ledger
            .watch(self.now, before, &self.sb.state, decision);
        self.ledger.watch_pause(before, &self.sb, event);
        checks::no_stop_too_early(&self.sb, before, self.now, &self.ledger)?;
        self.forget_what_ended();
        self.sb.check()?;
        let gap = matches!(event, Event::Gap { .. });
        if !gap && self.sb.next_deadline().is_some_and(|at| at <= self.now) {
            return Err("a deadline that was due is still there".into());
        }
        checks::no_wake_for_nothing(before, event, decision)?;
        checks::no_freeze_under_a_hold(&self.sb, before, event, self.now, &self.ledger)?;
        if self.sb.meter.read(self.now) != self.ledger.up_ms {
            let (read, up) = (self.sb.meter.read(self.now), self.ledger.up_ms);
            return Err(format!("the meter reads {read} ms, it was up for {up}"));
        }
        self.bill.add_up(self.now, &self.sb.meter, &self.ledger)?;
        if !gap && self.random.one_in(FORECASTS) {
            self.report.counts.forecasts += 1;
            checks::forecast_comes_true(&self.sb, self.now)?;
        }
        Ok(())
    }

    /// Takeovers end by themselves, and nothing that uses a box outlives its running.
    fn forget_what_ended(&mut self) {
        let stands = match &self.sb.state {
            State::Frozen(frozen) => !frozen.wake,
            State::Stopping { .. } | State::Terminated { .. } | State::Interrupted { .. } => true,
            State::Starting { .. }
            | State::Ready
            | State::Freezing { .. }
            | State::Thawing { .. }
            | State::Releasing { .. } => false,
        };
        if stands {
            self.calls.clear();
            self.links.clear();
            self.takeover = false;
        }
        if self.takeover && self.sb.holds.takeover.is_none() {
            self.takeover = false;
            self.ledger.used(self.now);
        }
        let links = self.links.iter().filter(|(_, awake)| *awake).count();
        self.ledger.holds = self.calls.len() + links + usize::from(self.takeover);
    }

    /// With no effect under way, the world is as the record says, and nothing waits for an answer that never comes.
    fn settled(&self) -> Result<(), String> {
        if !self.agenda_is_quiet() {
            return Ok(());
        }
        let answers = self.agenda.iter().any(|(_, todo)| match todo {
            Todo::Answer(op, _) => self.sb.awaited() == Some(*op),
            Todo::Carry(_) | Todo::WayOut(_) | Todo::End(_) | Todo::PhonesFrozen => false,
        });
        if self.sb.awaited().is_some() && !answers && self.sb.next_deadline().is_none() {
            return Err(format!(
                "waits for an answer that never comes: {:?}",
                self.sb
            ));
        }
        if answers {
            return Ok(());
        }
        checks::has_what_it_says(&self.sb, &self.world, self.now)?;
        if self.report.counts.crashes == 0 {
            checks::has_no_more_copies(&self.sb, &self.world, self.now)?;
        }
        self.ledger.files_only_on_purpose(&self.sb)
    }

    /// Nothing is left of a box that has ended.
    fn last_checks(&self) -> Result<(), String> {
        let left = self.world.processes != Processes::Absent
            || !self.world.copies.is_empty()
            || self.world.files;
        if left {
            return Err(format!("ended, but left behind {:?}", self.world));
        }
        Ok(())
    }
}

pub(super) fn box_id(number: u64) -> BoxId {
    let mut random = [0; BOX_ID_LEN];
    for (index, byte) in random.iter_mut().enumerate() {
        *byte = number.to_le_bytes()[index % 8];
    }
    BoxId::from_random(random)
}
