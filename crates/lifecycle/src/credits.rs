//! The credits of one account (14.5): box time by size, charged to the second while a box is up. Owns the sums; which
//! time counts is decided in [`crate::rules::billing`], who is frozen when nothing is left in [`crate::rules::no_credits`].
//!
//! A ledger is fed the meters of its boxes. A meter never goes back, and it stands still while a box is frozen, so that
//! restarts, lost events and repeats can neither charge twice nor forget anything: what is charged is the difference to
//! the reading that was charged before.

use crate::time::{Ms, SEC, Time};

/// Credits are counted in thousandths of a second of one cpu, and a gigabyte of memory counts as much as a cpu.
pub type CreditMs = i64;

/// What of a box costs credits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Processors, in thousandths.
    pub milli_cpus: u32,
    /// Memory in MiB.
    pub memory_mb: u32,
}

impl Size {
    /// What a second of a box of this size costs, in credit milliseconds: 1000 for one cpu or 1 GiB.
    #[must_use]
    pub fn per_second(self) -> CreditMs {
        i64::from(self.milli_cpus) + i64::from(self.memory_mb) * 1_000 / 1_024
    }
}

/// The account of one box: how much of its meter has been charged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Charged {
    /// Whole seconds of the meter that have been charged.
    pub seconds: i64,
}

/// The credits of an account.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    /// What was ever given.
    pub given: CreditMs,
    /// What was ever used.
    pub used: CreditMs,
    /// Nothing runs out.
    pub unlimited: bool,
}

impl Ledger {
    /// An account that never runs out, the default. What it uses is counted all the same.
    #[must_use]
    pub fn unlimited() -> Self {
        Self {
            unlimited: true,
            ..Self::default()
        }
    }

    /// An account that begins with so much.
    #[must_use]
    pub fn limited(given: CreditMs) -> Self {
        Self {
            given,
            ..Self::default()
        }
    }

    /// What is left; below zero by what ran between the last second that was paid for and its freeze.
    #[must_use]
    pub fn balance(&self) -> CreditMs {
        self.given.saturating_sub(self.used)
    }

    /// Whether its boxes may run (5.3).
    #[must_use]
    pub fn any(&self) -> bool {
        self.unlimited || self.balance() > 0
    }

    /// Adds credits.
    pub fn give(&mut self, credits: CreditMs) {
        self.given = self.given.saturating_add(credits);
    }

    /// Charges a box up to its meter's reading ([`crate::sandbox::Meter::read`]), in whole seconds; the rest of a
    /// second is charged once it is whole. Gives what was charged. Asking again charges nothing.
    pub fn charge(&mut self, charged: &mut Charged, size: Size, meter_ms: Ms) -> CreditMs {
        let seconds = meter_ms / SEC;
        let more = (seconds - charged.seconds).max(0);
        charged.seconds += more;
        let cost = more.saturating_mul(size.per_second());
        self.used = self.used.saturating_add(cost);
        cost
    }

    /// When the balance reaches zero if the boxes that are up now stay up, the sum of whose cost is `per_second`;
    /// `None`: never. A time at which to charge them all and look again.
    #[must_use]
    pub fn runs_out_at(&self, now: Time, per_second: CreditMs) -> Option<Time> {
        if self.unlimited || per_second <= 0 {
            return None;
        }
        let seconds = (self.balance().max(0) + per_second - 1) / per_second;
        Some(now + seconds.saturating_mul(SEC))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Command, Event, Outcome};
    use crate::id::{BOX_ID_LEN, BoxId};
    use crate::policy::Policy;
    use crate::sandbox::Sandbox;
    use crate::time::{HOUR, MIN};

    const SMALL: Size = Size {
        milli_cpus: 1_000,
        memory_mb: 1_024,
    };

    #[test]
    fn a_second_costs_by_size() {
        assert_eq!(SMALL.per_second(), 2_000);
        let half = Size {
            milli_cpus: 500,
            memory_mb: 512,
        };
        assert_eq!(half.per_second(), 1_000);
    }

    #[test]
    fn it_charges_whole_seconds_once() {
        let mut ledger = Ledger::limited(10_000);
        let mut charged = Charged::default();
        assert_eq!(ledger.charge(&mut charged, SMALL, 999), 0);
        assert_eq!(ledger.charge(&mut charged, SMALL, 1_000), 2_000);
        assert_eq!(ledger.charge(&mut charged, SMALL, 1_999), 0);
        assert_eq!(
            ledger.charge(&mut charged, SMALL, 1_000),
            0,
            "an older reading"
        );
        assert_eq!(ledger.charge(&mut charged, SMALL, 3_000), 4_000);
        assert_eq!(ledger.balance(), 4_000);
        assert!(ledger.any());
        assert_eq!(ledger.charge(&mut charged, SMALL, 5_000), 4_000);
        assert!(!ledger.any(), "nothing left is nothing");
        ledger.give(1);
        assert!(ledger.any());
    }

    #[test]
    fn it_says_when_it_runs_out() {
        let ledger = Ledger::limited(10_001);
        assert_eq!(ledger.runs_out_at(Time(7), 2_000), Some(Time(6_007)));
        assert_eq!(ledger.runs_out_at(Time(7), 0), None);
        assert_eq!(Ledger::unlimited().runs_out_at(Time(7), 2_000), None);
        assert_eq!(
            Ledger::limited(-5).runs_out_at(Time(7), 2_000),
            Some(Time(7))
        );
    }

    #[test]
    fn unlimited_counts_too() {
        let mut ledger = Ledger::unlimited();
        ledger.charge(&mut Charged::default(), SMALL, HOUR);
        assert!(ledger.any());
        assert_eq!(ledger.used, 3_600 * 2_000);
    }

    fn answer(sandbox: &mut Sandbox, now: Time) {
        let op = sandbox.awaited().expect("an answer is awaited");
        let outcome = Outcome::Done;
        sandbox.handle(now, Event::Outcome { op, outcome });
    }

    #[test]
    fn frozen_time_and_restarts_cost_what_they_should() {
        let id = BoxId::from_random([7; BOX_ID_LEN]);
        let (mut sandbox, _) = Sandbox::new(id, Policy::AGENT, Time(0), None);
        let mut ledger = Ledger::limited(1_000_000);
        let mut charged = Charged::default();
        answer(&mut sandbox, Time(5 * SEC));
        sandbox.handle(Time(MIN), Event::Command(Command::Freeze));
        answer(&mut sandbox, Time(MIN + SEC));
        ledger.charge(&mut charged, SMALL, sandbox.meter.read(Time(HOUR)));
        assert_eq!(ledger.used, 61 * 2_000, "frozen time is free");
        answer(&mut sandbox, Time(HOUR));
        sandbox.handle(
            Time(2 * HOUR),
            Event::Command(Command::Wake { cold: false }),
        );
        answer(&mut sandbox, Time(2 * HOUR));
        answer(&mut sandbox, Time(2 * HOUR));
        // The server is down for a minute and the box runs on: that minute is charged like any other, once.
        sandbox.handle(Time(2 * HOUR + MIN), Event::Gap { ms: MIN });
        let reading = sandbox.meter.read(Time(2 * HOUR + MIN));
        ledger.charge(&mut charged, SMALL, reading);
        ledger.charge(&mut charged, SMALL, reading);
        assert_eq!(ledger.used, 121 * 2_000);
    }
}
