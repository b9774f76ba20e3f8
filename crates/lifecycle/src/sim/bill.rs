//! The bill of a simulated box, kept as the engine keeps it: from one committed record to the next. Owns the check that it
//! adds up: nothing is charged twice and nothing forgotten, whatever crashes and gaps there were.

use alloc::format;
use alloc::string::String;

use super::checks;
use crate::credits::{Credits, Ledger, Prices};
use crate::sandbox::Meter;
use crate::time::{HOUR, Time};

/// What the account was given, in millionths of a credit.
const GIVEN: i64 = 700_000;

/// An account with one box.
pub(super) struct Bill {
    ledger: Ledger,
    per_hour: i64,
    meter: Meter,
}

impl Bill {
    /// The account of a box that begins with this meter.
    pub(super) fn new(meter: &Meter) -> Self {
        let per_hour = Prices::default().per_hour(1_500, 768);
        let mut ledger = Ledger::new(Some(Credits::from_micro(GIVEN)), Credits::default());
        ledger.charge(per_hour, &Meter::default(), meter);
        Self {
            ledger,
            per_hour,
            meter: *meter,
        }
    }

    /// Charges what was committed since the last time, and compares with the model.
    pub(super) fn add_up(
        &mut self,
        now: Time,
        meter: &Meter,
        model: &checks::Ledger,
    ) -> Result<(), String> {
        self.ledger.charge(self.per_hour, &self.meter, meter);
        self.meter = *meter;
        let due = i128::from(self.per_hour) * i128::from(model.up_ms - model.free_ms);
        let hour = i128::from(HOUR);
        let exact = |credits: Credits| {
            let (micro, rest) = credits.parts();
            i128::from(micro) * hour + i128::from(rest)
        };
        let (used, left) = (self.ledger.used(now), self.ledger.left(now));
        if exact(used) != due || left.map(exact) != Some(i128::from(GIVEN) * hour - due) {
            return Err(format!("charged {used:?} of {due}, {left:?} is left"));
        }
        if self.ledger.any(now) {
            self.runs_out_when_it_says(now)
        } else {
            Ok(())
        }
    }

    /// To the millisecond, if nothing else happens.
    fn runs_out_when_it_says(&self, now: Time) -> Result<(), String> {
        let Some(at) = self.ledger.runs_out_at(now) else {
            return match self.ledger.per_hour() {
                0 => Ok(()),
                _ => Err("a box that is up never uses its credits up".into()),
            };
        };
        if at > now && self.ledger.any(at - 1) && !self.ledger.any(at) {
            return Ok(());
        }
        Err(format!(
            "says at {now:?} that it runs out at {at:?}: {:?}",
            self.ledger
        ))
    }
}
