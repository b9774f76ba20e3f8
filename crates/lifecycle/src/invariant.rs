//! What holds of a record after every step. Owns the list; the engine may check it in debug builds, tests always do.

use alloc::format;
use alloc::string::String;

use crate::rules::{billing, way_out};
use crate::sandbox::Sandbox;
use crate::state::State;
use crate::time::Time;

impl Sandbox {
    /// Checks that the record makes sense.
    ///
    /// # Errors
    /// What does not hold, in words.
    pub fn check(&self) -> Result<(), String> {
        let up = billing::is_up(&self.state);
        expect(
            up.is_none_or(|up| up == self.billed()),
            "billed exactly while it is up",
        )?;
        expect(
            self.awaited().is_none_or(|op| op.0 <= self.ops),
            "awaits an operation that was numbered",
        )?;
        expect(
            self.gaps.since_use >= 0 && self.gaps.since_freeze >= 0,
            "gaps are not negative",
        )?;
        expect(
            self.next_deadline() != Some(Time(i64::MIN)),
            "what is due at once has been done",
        )?;
        expect(
            self.after_phones.is_none() || self.state == State::Ready,
            "only a ready box waits for its phones",
        )?;
        expect(
            self.way_out.is_none() || way_out::has_one(&self.state),
            "only a box that runs lacks its way out",
        )?;
        self.check_state()
    }

    fn check_state(&self) -> Result<(), String> {
        let quiet = self.holds.calls.is_empty()
            && self.holds.takeover.is_none()
            && self.holds.links.is_empty();
        match &self.state {
            State::Ready => expect(
                self.credits || self.freeze_failure.is_some(),
                "a box without credits is not ready, unless its freeze failed",
            ),
            State::Frozen(frozen) => {
                expect(frozen.wake || quiet, "nothing uses a frozen box")?;
                expect(
                    !frozen.wake || frozen.evicting.is_some(),
                    "a wake waits for an eviction only",
                )?;
                expect(
                    frozen.evicting.is_none() || frozen.resident,
                    "only memory that is in RAM is given back",
                )?;
                expect(
                    frozen.resident || frozen.copy.is_some() || frozen.keeps_files_only(),
                    "a frozen box has its memory in RAM or on disk, or keeps files only",
                )
            }
            State::Thawing { from, .. } => expect(
                from.copy.is_some() && !from.resident,
                "a thaw has a copy to restore",
            ),
            State::Stopping { keep, .. } => {
                expect(quiet, "nothing uses a box that is being stopped")?;
                expect(
                    keep.as_ref()
                        .is_none_or(|kept| kept.copy.is_some() && kept.resident),
                    "a stop that keeps a copy gives memory back",
                )
            }
            State::Terminated { kept, .. } => {
                expect(quiet, "nothing uses a box that has ended")?;
                expect(
                    kept.as_ref()
                        .is_none_or(|kept| kept.frozen.copy.is_some() && !kept.frozen.resident),
                    "what is kept of an ended box is a copy on disk",
                )
            }
            State::Interrupted { .. } => expect(quiet, "nothing uses a box that was lost"),
            State::Starting { .. } | State::Freezing { .. } | State::Releasing { .. } => Ok(()),
        }
    }
}

fn expect(holds: bool, what: &str) -> Result<(), String> {
    if holds {
        Ok(())
    } else {
        Err(format!("broken: {what}"))
    }
}
