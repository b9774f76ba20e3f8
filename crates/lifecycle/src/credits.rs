//! The credits of one account (14.5): box time by size, charged to the millisecond while a box is up. Owns the sums, the
//! prices and the moment at which nothing is left; which time counts is decided in [`crate::rules::billing`], who is
//! frozen then in [`crate::rules::no_credits`].
//!
//! Nothing is written while a box runs. What it costs up to now follows from when its meter was last read for good (it
//! ran since then, or stood still), so a charge is the difference between two records of one box: written with the later
//! one, it can neither be made twice nor be forgotten, whatever crashes there are in between. All sums are exact, so that
//! the moment at which an account runs out can be computed, and does not depend on who looks when.

use crate::sandbox::Meter;
use crate::time::{HOUR, MIN, Ms, Time};

/// Millionths of a credit.
pub type MicroCredits = i64;

/// From so long before it on, callers are told when the credits run out (4.12).
pub const WARNED_MS: Ms = 30 * MIN;

/// An exact amount of credits: what a price in millionths an hour comes to after some milliseconds. May be below zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Credits(i128);

/// Amounts in a millionth of a credit.
const PARTS: i128 = HOUR as i128;

impl Credits {
    /// So many millionths of a credit.
    #[must_use]
    pub const fn from_micro(micro: MicroCredits) -> Self {
        Self(micro as i128 * PARTS)
    }

    /// The millionths in it, rounded down.
    #[must_use]
    pub fn micro(self) -> MicroCredits {
        self.parts().0
    }

    /// The millionths in it and the rest, for a record.
    #[must_use]
    pub fn parts(self) -> (MicroCredits, i64) {
        let most = |amount: i128| i64::try_from(amount).unwrap_or(i64::MAX);
        (
            most(self.0.div_euclid(PARTS)),
            most(self.0.rem_euclid(PARTS)),
        )
    }

    /// The amount that a record has.
    #[must_use]
    pub fn from_parts(micro: MicroCredits, rest: i64) -> Self {
        Self(i128::from(micro) * PARTS + i128::from(rest))
    }

    fn plus(self, more: i128) -> Self {
        Self(self.0 + more)
    }
}

/// What box time costs. The default makes a credit an hour of a box of the default size, 2 CPUs and 2 GiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prices {
    /// An hour of one CPU.
    pub cpu_hour: MicroCredits,
    /// An hour of a GiB of memory.
    pub gib_hour: MicroCredits,
}

impl Default for Prices {
    fn default() -> Self {
        Self {
            cpu_hour: 250_000,
            gib_hour: 250_000,
        }
    }
}

impl Prices {
    /// What an hour of a box of this size costs.
    #[must_use]
    pub fn per_hour(self, milli_cpus: u32, memory_mb: u64) -> MicroCredits {
        let memory_mb = i64::try_from(memory_mb).unwrap_or(i64::MAX);
        let cpus = self.cpu_hour.saturating_mul(milli_cpus.into()) / 1_000;
        let memory = self.gib_hour.saturating_mul(memory_mb) / 1_024;
        cpus.saturating_add(memory)
    }
}

/// When an account runs out, for those who have to be told (4.12).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunsOut {
    /// When.
    pub at: Time,
    /// In how many minutes, rounded up; 0: it has.
    pub minutes: i64,
}

/// The credits of an account, and what its boxes that are up add to the bill.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    /// What was left when the last charge was made; `None`: it never runs out.
    left: Option<Credits>,
    /// What was charged since ever.
    used: Credits,
    /// What an hour of all its boxes that are up costs.
    per_hour: MicroCredits,
    /// The price of each of them times the moment from which on it is still to be charged.
    begun: i128,
}

impl Ledger {
    /// The ledger of an account as it was recorded; none of its boxes is up yet. `left` is `None` where it never runs out.
    #[must_use]
    pub fn new(left: Option<Credits>, used: Credits) -> Self {
        Self {
            left,
            used,
            ..Self::default()
        }
    }

    /// What has to be recorded of it: what is left and what was used, without what is still to be charged.
    #[must_use]
    pub fn recorded(&self) -> (Option<Credits>, Credits) {
        (self.left, self.used)
    }

    /// Takes a box in that was recorded with this meter.
    pub fn follow(&mut self, per_hour: MicroCredits, meter: &Meter) {
        if let Some(since) = meter.since {
            self.per_hour += per_hour;
            self.begun += i128::from(per_hour) * i128::from(since.0);
        }
    }

    /// A box went from one recorded meter to another: what it was up in between is charged. A new one comes from the
    /// default meter.
    pub fn charge(&mut self, per_hour: MicroCredits, before: &Meter, after: &Meter) {
        if let Some(since) = before.since {
            self.per_hour -= per_hour;
            self.begun -= i128::from(per_hour) * i128::from(since.0);
        }
        self.follow(per_hour, after);
        let cost = i128::from(per_hour) * i128::from(after.settled_ms() - before.settled_ms());
        self.used = self.used.plus(cost);
        self.left = self.left.map(|left| left.plus(-cost));
    }

    /// What is left at `now`; below zero by what ran until its boxes were frozen, or while no server looked. `None`: it
    /// never runs out.
    #[must_use]
    pub fn left(&self, now: Time) -> Option<Credits> {
        self.left.map(|left| left.plus(-self.running(now)))
    }

    /// What was used up to `now`.
    #[must_use]
    pub fn used(&self, now: Time) -> Credits {
        self.used.plus(self.running(now))
    }

    /// What an hour costs as things are.
    #[must_use]
    pub fn per_hour(&self) -> MicroCredits {
        self.per_hour
    }

    /// Whether its boxes may run at `now` (5.3). Nothing left is nothing.
    #[must_use]
    pub fn any(&self, now: Time) -> bool {
        self.left(now).is_none_or(|left| left.0 > 0)
    }

    /// The first moment at which nothing is left if its boxes go on as they do; `now` when nothing is. `None`: never.
    #[must_use]
    pub fn runs_out_at(&self, now: Time) -> Option<Time> {
        let left = self.left(now)?.0;
        if left <= 0 {
            return Some(now);
        }
        if self.per_hour <= 0 {
            return None;
        }
        let per_hour = i128::from(self.per_hour);
        let ms = (left + per_hour - 1) / per_hour;
        Some(now + Ms::try_from(ms).unwrap_or(Ms::MAX))
    }

    /// What callers have to be told at `now`, if that is near.
    #[must_use]
    pub fn warning(&self, now: Time) -> Option<RunsOut> {
        let at = self.runs_out_at(now)?;
        let ms = at.since(now);
        (ms <= WARNED_MS).then_some(RunsOut {
            at,
            minutes: (ms + MIN - 1) / MIN,
        })
    }

    /// Adds credits at `now`. One that never ran out has these from now on.
    pub fn give(&mut self, now: Time, micro: MicroCredits) {
        let left = self.left(now).unwrap_or_default();
        self.set(now, Some(left.plus(Credits::from_micro(micro).0)));
    }

    /// Makes `left` what is left at `now`; `None`: it never runs out any more.
    pub fn set(&mut self, now: Time, left: Option<Credits>) {
        self.left = left.map(|left| left.plus(self.running(now)));
    }

    /// What is still to be charged for boxes that are up.
    fn running(&self, now: Time) -> i128 {
        i128::from(self.per_hour) * i128::from(now.0) - self.begun
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Command, Event, Outcome};
    use crate::id::{BOX_ID_LEN, BoxId};
    use crate::policy::Policy;
    use crate::sandbox::Sandbox;
    use crate::time::SEC;

    /// A box of 2 credits an hour.
    const LARGE: MicroCredits = 2_000_000;

    fn credits(whole: i64) -> Credits {
        Credits::from_micro(whole * 1_000_000)
    }

    fn up(since: Time) -> Meter {
        Meter {
            since: Some(since),
            ..Meter::default()
        }
    }

    #[test]
    fn an_hour_of_the_default_size_is_a_credit() {
        let prices = Prices::default();
        assert_eq!(prices.per_hour(2_000, 2_048), 1_000_000);
        assert_eq!(prices.per_hour(500, 512), 250_000);
        assert_eq!(prices.per_hour(100, 64), 40_625);
        let dear = Prices {
            cpu_hour: 1_000_000_000,
            gib_hour: 1_000_000_000,
        };
        assert_eq!(dear.per_hour(1_024_000, 4_194_304), 5_120_000_000_000);
    }

    #[test]
    fn an_amount_is_recorded_exactly() {
        for amount in [-1, 0, 1, PARTS - 1, -PARTS - 1, 7 * PARTS + 5] {
            let (micro, rest) = Credits(amount).parts();
            assert!((0..PARTS).contains(&i128::from(rest)), "{amount}");
            assert_eq!(Credits::from_parts(micro, rest), Credits(amount));
        }
        assert_eq!(Credits(-1).micro(), -1);
        assert_eq!(Credits::from_micro(5).micro(), 5);
    }

    #[test]
    fn running_time_counts_before_it_is_charged_and_only_once() {
        let mut ledger = Ledger::new(Some(credits(10)), Credits::default());
        let before = up(Time(HOUR));
        ledger.charge(LARGE, &Meter::default(), &before);
        assert_eq!(ledger.left(Time(HOUR)), Some(credits(10)));
        assert_eq!(ledger.left(Time(3 * HOUR)), Some(credits(6)));
        assert_eq!(ledger.recorded(), (Some(credits(10)), Credits::default()));
        let after = Meter {
            total_ms: 2 * HOUR,
            ..Meter::default()
        };
        ledger.charge(LARGE, &before, &after);
        assert_eq!(ledger.recorded(), (Some(credits(6)), credits(4)));
        ledger.charge(LARGE, &after, &after);
        assert_eq!(ledger.left(Time(9 * HOUR)), Some(credits(6)));
        assert_eq!(ledger.per_hour(), 0);
    }

    #[test]
    fn a_ledger_that_is_loaded_again_goes_on_where_it_was() {
        let mut ledger = Ledger::new(Some(credits(10)), Credits::default());
        for since in [Time(0), Time(7)] {
            ledger.charge(LARGE, &Meter::default(), &up(since));
        }
        let (left, used) = ledger.recorded();
        let mut loaded = Ledger::new(left, used);
        for since in [Time(0), Time(7)] {
            loaded.follow(LARGE, &up(since));
        }
        assert_eq!(loaded, ledger);
    }

    #[test]
    fn it_says_to_the_millisecond_when_it_runs_out() {
        let mut ledger = Ledger::new(Some(Credits(20_000_001)), Credits::default());
        assert_eq!(ledger.runs_out_at(Time(5)), None, "nothing is up");
        ledger.charge(LARGE, &Meter::default(), &up(Time(5)));
        let at = Time(5 + 11);
        for now in [Time(5), Time(9), at - 1, at] {
            assert_eq!(ledger.runs_out_at(now), Some(at), "{now:?}");
            assert_eq!(ledger.any(now), now < at, "{now:?}");
        }
        assert_eq!(ledger.runs_out_at(at + 3), Some(at + 3), "it has");
        assert!(Ledger::default().any(at), "no limit");
        assert_eq!(Ledger::default().runs_out_at(at), None);
    }

    #[test]
    fn everybody_is_told_from_half_an_hour_before() {
        let mut ledger = Ledger::new(Some(credits(2)), Credits::default());
        ledger.charge(LARGE, &Meter::default(), &up(Time(0)));
        let minutes = |ms: Ms| ledger.warning(Time(ms)).map(|warning| warning.minutes);
        assert_eq!(minutes(30 * MIN - 1), None);
        assert_eq!(minutes(30 * MIN), Some(30));
        assert_eq!(minutes(59 * MIN + 1), Some(1));
        assert_eq!(minutes(HOUR - 1), Some(1));
        assert_eq!(minutes(HOUR), Some(0));
        assert_eq!(minutes(HOUR + 1), Some(0));
    }

    #[test]
    fn credits_are_given_set_and_unlimited_while_boxes_run() {
        let mut ledger = Ledger::default();
        ledger.charge(LARGE, &Meter::default(), &up(Time(0)));
        let now = Time(HOUR);
        assert_eq!(ledger.used(now), credits(2), "what is unlimited counts too");
        ledger.give(now, 3_000_000);
        assert_eq!(ledger.left(now), Some(credits(3)), "from now on");
        ledger.give(now + HOUR, 4_000_000);
        assert_eq!(ledger.left(now + HOUR), Some(credits(5)));
        ledger.set(now + HOUR, Some(Credits::default()));
        assert_eq!(ledger.left(now + HOUR), Some(Credits::default()));
        assert!(!ledger.any(now + HOUR));
        ledger.give(now + 2 * HOUR, 1);
        assert!(!ledger.any(now + 2 * HOUR), "what was overdrawn is owed");
        ledger.set(now, None);
        assert_eq!(ledger.left(now), None);
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
        let per_hour = 3_600;
        let mut ledger = Ledger::new(None, Credits::default());
        let mut charged = Meter::default();
        let mut seconds = |sandbox: &Sandbox, now: Time| {
            ledger.charge(per_hour, &charged, &sandbox.meter);
            charged = sandbox.meter;
            ledger.used(now).micro()
        };
        answer(&mut sandbox, Time(5 * SEC));
        sandbox.handle(Time(MIN), Event::Command(Command::Freeze));
        answer(&mut sandbox, Time(MIN + SEC));
        assert_eq!(seconds(&sandbox, Time(HOUR)), 61, "frozen time is free");
        answer(&mut sandbox, Time(HOUR));
        let wake = Event::Command(Command::Wake { cold: false });
        sandbox.handle(Time(2 * HOUR), wake);
        answer(&mut sandbox, Time(2 * HOUR));
        answer(&mut sandbox, Time(2 * HOUR));
        // The server is down for a minute and the box runs on: that minute is charged like any other.
        let now = Time(2 * HOUR + MIN);
        let ran = true;
        sandbox.handle(now, Event::Gap { ms: MIN, ran });
        assert_eq!(seconds(&sandbox, now), 121);
        // The host sleeps: nothing ran.
        let now = now + 10 * MIN;
        let (ms, ran) = (9 * MIN, false);
        sandbox.handle(now, Event::Gap { ms, ran });
        assert_eq!(seconds(&sandbox, now), 181);
        assert_eq!(seconds(&sandbox, now), 181, "once");
        assert_eq!(seconds(&sandbox, now + SEC), 182);
    }
}
