//! What people and programs do to a simulated box: calls, takeovers, links, commands. Owns their odds, and keeps the
//! simulation's own account of what is under way.

use alloc::boxed::Box;
use alloc::string::String;

use super::actor::{Life, Todo, box_id};
use super::habits;
use crate::admit::{Admission, Ask};
use crate::event::{CallKind, Command, Event, Processes};
use crate::id::{BOX_ID_LEN, CallId, SnapshotId};
use crate::saving::Save;
use crate::state::{State, TakeoverCause};
use crate::time::{HOUR, MIN, SEC};

impl Life {
    /// Somebody does something, and the next time is chosen.
    pub(super) fn act(&mut self) -> Result<(), String> {
        let away_ms = habits::pause_ms(&mut self.random);
        self.act_at = self.now + away_ms;
        if self.random.one_in(16) {
            // Right at a deadline is where mistakes are.
            if let Some(deadline) = self.sb.next_deadline() {
                self.act_at = deadline;
            }
        }
        let event = match self.random.below(66) {
            0..20 => return self.call(CallKind::Acts),
            20..24 => return self.call(CallKind::Wakes),
            24..28 => return self.call(CallKind::Reads),
            28..34 => Event::UrlRequest,
            34..37 => Event::BackgroundBegan {
                exec: "dev".into(),
                label: "npm run dev".into(),
            },
            37..39 => Event::BackgroundEnded { exec: "dev".into() },
            39 => return self.take_over(),
            40 => return self.hand_back(),
            41 => Event::TakeoverInput,
            42 => return self.link(),
            43 => return self.unlink(),
            44 => return self.link_source(),
            45 => Event::Recording { on: true },
            46 => Event::Recording { on: false },
            47 => Event::Phones { awake: 2 },
            48 => Event::Phones { awake: 0 },
            49 => Event::Command(Command::Freeze),
            50 => Event::Command(Command::Pause {
                files_only: self.random.one_in(3),
            }),
            51 => Event::Command(Command::Wake { cold: false }),
            52 => Event::Command(Command::Wake { cold: true }),
            53..56 => return self.restore(),
            56 => Event::Command(Command::Keep(self.random.one_in(2))),
            57 => Event::Command(Command::SetPolicy(Box::new(habits::policy(
                &mut self.random,
                self.now,
            )))),
            58 => Event::Credits {
                any: self.random.one_in(2),
            },
            59 => Event::Credits { any: true },
            60 => Event::Warm {
                keep: self.random.one_in(2),
            },
            61 => return self.lose_processes(),
            62 | 63 => Event::Command(Command::Save(Save {
                snapshot: SnapshotId::from_random([0; BOX_ID_LEN]),
                memory: self.random.one_in(2),
            })),
            // One in a while, so that what the other seeds have shown stays as it was.
            65 => Event::Command(Command::Reach),
            64 if self.random.one_in(8) => Event::Command(match self.random.one_in(4) {
                true => Command::Unneeded,
                false => Command::Stop,
            }),
            _ => Event::Tick,
        };
        if let Event::TakeoverInput = event
            && self.takeover
        {
            self.ledger.used(self.now);
        }
        self.step(event)
    }

    fn may_use(&self) -> bool {
        let ask = Ask::Call {
            kind: CallKind::Acts,
            writes: false,
        };
        self.sb.admit(self.now, &ask) == Admission::Accept
    }

    fn call(&mut self, kind: CallKind) -> Result<(), String> {
        self.next_call += 1;
        let call = CallId(self.next_call);
        let acts = kind == CallKind::Acts;
        if acts && self.may_use() {
            self.calls.push(call);
            self.ledger.used(self.now);
        }
        let ms = if self.random.one_in(20) {
            self.random.ms(MIN, 3 * HOUR)
        } else {
            self.random.ms(0, 30 * SEC)
        };
        if acts {
            self.agenda.push((self.now + ms, Todo::End(call)));
        }
        let agent = self.random.one_in(2).then(|| "agent-1".into());
        self.step(Event::CallBegan { call, kind, agent })
    }

    fn take_over(&mut self) -> Result<(), String> {
        if self.may_use() {
            self.takeover = true;
            self.ledger.used(self.now);
        }
        let until = self.now + self.random.ms(0, 30 * MIN);
        let cause = TakeoverCause::Person;
        self.step(Event::TakeoverBegan { cause, until })
    }

    fn hand_back(&mut self) -> Result<(), String> {
        if core::mem::take(&mut self.takeover) {
            self.ledger.used(self.now);
        }
        self.step(Event::TakeoverEnded)
    }

    fn link(&mut self) -> Result<(), String> {
        let from = box_id(self.random.below(3));
        if self.may_use() {
            self.links.retain(|(other, _)| *other != from);
            self.links.push((from, true));
            self.ledger.used(self.now);
        }
        self.step(Event::LinkOpened { from })
    }

    fn unlink(&mut self) -> Result<(), String> {
        let from = box_id(self.random.below(3));
        if let Some(at) = self.links.iter().position(|(other, _)| *other == from)
            && self.links.swap_remove(at).1
        {
            self.ledger.used(self.now);
        }
        self.step(Event::LinkClosed { from })
    }

    fn link_source(&mut self) -> Result<(), String> {
        let from = box_id(self.random.below(3));
        let awake_by_itself = self.random.one_in(2);
        for link in &mut self.links {
            if link.0 == from {
                link.1 = awake_by_itself;
            }
        }
        self.step(Event::LinkSource {
            from,
            awake_by_itself,
        })
    }

    fn restore(&mut self) -> Result<(), String> {
        if self.sb.kept().is_some() {
            self.report.counts.restores += 1;
        }
        self.step(Event::Command(Command::Restore))
    }

    /// Its processes end by themselves while the server watches.
    fn lose_processes(&mut self) -> Result<(), String> {
        let watched = self.sb.state == State::Ready && self.agenda_is_quiet();
        if !watched || !self.random.one_in(4) {
            return self.step(Event::Tick);
        }
        self.world.processes = Processes::Absent;
        self.step(Event::Observed(self.world.seen()))
    }
}
