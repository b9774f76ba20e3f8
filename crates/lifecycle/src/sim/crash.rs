//! Crashes of the server in a simulated life, and what it finds when it is back. Owns how much of what was under way
//! still happened.

use alloc::format;
use alloc::string::String;

use super::actor::{Life, Todo};
use crate::event::{Event, Processes};
use crate::state::State;
use crate::time::{HOUR, MIN};

impl Life {
    /// The server dies and comes back after a while, perhaps with the whole machine.
    pub(super) fn crash(&mut self) -> Result<(), String> {
        self.report.counts.crashes += 1;
        self.agenda.sort_by_key(|(at, _)| *at);
        let under_way = core::mem::take(&mut self.agenda);
        let mut outlives = self.random.one_in(2);
        for (_, todo) in under_way {
            if let Todo::Carry(effect) = todo
                && outlives
            {
                self.world.carry_out(&effect, &mut self.random)?;
                outlives = self.random.one_in(2);
            }
        }
        if self.random.one_in(4) {
            self.world.reboot();
        }
        let ms = match self.random.below(4) {
            0 => 0,
            1 => self.random.ms(0, MIN),
            2 => self.random.ms(0, 3 * HOUR),
            _ => self.random.ms(0, 60 * HOUR),
        };
        self.now = self.now + ms;
        self.ledger.gap_ms += ms;
        if let State::Frozen(_) = self.sb.state {
            self.ledger.gap_frozen_ms += ms;
        }
        let ran = self.world.processes == Processes::Running;
        if self.ledger.up && !ran {
            self.ledger.free_ms += ms;
        }
        self.act_at = self.act_at.max(self.now);
        if !self.calls.is_empty() || self.links.iter().any(|(_, awake)| *awake) {
            self.ledger.used(self.now);
        }
        self.calls.clear();
        self.links.clear();
        self.driver_free_at = self.now;
        self.event_after_crash(Event::Gap { ms, ran })?;
        self.event_after_crash(Event::Observed(self.world.seen()))
    }

    fn event_after_crash(&mut self, event: Event) -> Result<(), String> {
        let before = self.sb.state.clone();
        let decision = self.sb.handle(self.now, event.clone());
        self.report.events += 1;
        self.check(&before, &event, &decision)
            .map_err(|what| format!("{what}; after {event:?} in {before:?} at {:?}", self.now))?;
        self.count(&before);
        self.schedule(decision.effects);
        Ok(())
    }
}
