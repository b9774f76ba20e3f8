//! One step under way: the record, the moment, and the answer so far. Owns the moves from state to state
//! and what goes with each (meter, operation ids, effects); whether a move is made is decided elsewhere.

use alloc::boxed::Box;
use alloc::string::String;

use crate::decision::{Change, Decision, Reason};
use crate::effect::Effect;
use crate::id::{CopyId, OpId};
use crate::policy::Keeps;
use crate::rules::{billing, recording, way_out};
use crate::sandbox::{Retry, Sandbox};
use crate::state::{End, FreezeCause, Frozen, Kept, State};
use crate::time::{DAY, Ms, Time};

/// How long the files of an interrupted box are kept (2.2).
pub const INTERRUPTED_FILES_MS: Ms = 7 * DAY;

/// A step under way.
pub(crate) struct Turn<'a> {
    /// The record.
    pub(crate) sb: &'a mut Sandbox,
    /// The moment of this step.
    pub(crate) now: Time,
    /// The answer so far.
    pub(crate) out: Decision,
}

impl<'a> Turn<'a> {
    /// Begins a step.
    pub(crate) fn new(sb: &'a mut Sandbox, now: Time) -> Self {
        Self {
            sb,
            now,
            out: Decision::default(),
        }
    }

    /// Notes that times or holds changed.
    pub(crate) fn touch(&mut self) {
        self.out.changed = self.out.changed.max(Change::Activity);
    }

    /// Notes that something promised to a user changed without a new state.
    pub(crate) fn promise(&mut self) {
        self.out.changed = Change::Transition;
    }

    /// Says why, in words.
    pub(crate) fn because(&mut self, rule: &'static str, text: impl Into<String>) {
        self.out.reasons.push(Reason {
            at: self.now,
            rule,
            text: text.into(),
        });
    }

    /// Asks for something.
    pub(crate) fn effect(&mut self, effect: Effect) {
        self.out.effects.push(effect);
    }

    /// A number for the next operation.
    pub(crate) fn next_op(&mut self) -> OpId {
        self.sb.ops += 1;
        OpId(self.sb.ops)
    }

    /// A use, now (3.3). It also forgets a failed freeze and a freeze that waits for phones.
    pub(crate) fn used(&mut self) {
        self.sb.last_use = self.sb.last_use.max(self.now);
        self.sb.gaps.since_use = 0;
        self.sb.after_phones = None;
        self.sb.freeze_failure = None;
        self.touch();
    }

    /// Enters a state: keeps the meter right and marks the record for a full sync.
    pub(crate) fn go(&mut self, state: State) {
        let meter = &mut self.sb.meter;
        match billing::is_up(&state) {
            Some(true) => meter.since = meter.since.or(Some(self.now)),
            Some(false) => {
                meter.total_ms = meter.read(self.now);
                meter.since = None;
            }
            None => {}
        }
        if state != State::Ready {
            self.sb.after_phones = None;
        }
        if !way_out::has_one(&state) {
            self.sb.way_out = None;
        }
        self.sb.state = state;
        self.promise();
    }

    /// Ends every call, takeover and link: they cannot outlive a box that stops running. Their end is a use (3.7).
    pub(crate) fn end_holds(&mut self) {
        if self.sb.in_use() {
            self.used();
        }
        let holds = &mut self.sb.holds;
        holds.calls.clear();
        holds.takeover = None;
        holds.links.clear();
    }

    /// Boots it, on its files if `keep_files`.
    pub(crate) fn boot(&mut self, keep_files: bool) {
        let op = self.next_op();
        self.go(State::Starting { op, keep_files });
        self.effect(Effect::Boot { op, keep_files });
    }

    /// It runs from now on.
    pub(crate) fn ready(&mut self) {
        self.sb.retry = None;
        self.go(State::Ready);
    }

    /// Freezes it; attached phones go first (14.4), and only a freeze that nothing may hold up does not wait for them.
    pub(crate) fn freeze(&mut self, cause: FreezeCause) {
        if self.sb.holds.phones > 0 {
            let waits = match cause {
                FreezeCause::Idle | FreezeCause::Asked => true,
                FreezeCause::NoCredits | FreezeCause::Lifetime => false,
            };
            if self.sb.after_phones.is_none() {
                self.effect(Effect::FreezePhones);
            }
            if waits {
                self.sb.after_phones = Some(cause);
                self.promise();
                return;
            }
        }
        recording::stop(self);
        let ram_only = match self.sb.policy.keeps {
            Keeps::Files => true,
            Keeps::FilesAndMemory => false,
        };
        self.start_freeze(cause, ram_only, false);
    }

    /// Freezes it for its files alone: what runs in it is given up, and waits for nothing (15.3).
    pub(crate) fn freeze_files(&mut self, cause: FreezeCause) {
        recording::stop(self);
        self.start_freeze(cause, true, false);
    }

    /// Asks for the freeze itself, with a new operation and a new copy.
    pub(crate) fn start_freeze(&mut self, cause: FreezeCause, ram_only: bool, wake: bool) {
        let op = self.next_op();
        self.sb.copies += 1;
        let copy = CopyId(self.sb.copies);
        self.go(State::Freezing {
            op,
            copy,
            cause,
            ram_only,
            wake,
            save: None,
        });
        self.effect(Effect::Freeze { op, copy, ram_only });
    }

    /// It stands still from now on, or again. Nothing that uses a box outlives that.
    pub(crate) fn frozen(&mut self, frozen: Frozen) {
        self.end_holds();
        self.sb.retry = None;
        self.go(State::Frozen(frozen));
    }

    /// Wakes a frozen box, whichever way its memory needs (5.1). A wake is use (5.2).
    pub(crate) fn wake(&mut self) {
        let State::Frozen(frozen) = &mut self.sb.state else {
            return;
        };
        if frozen.evicting.is_some() {
            frozen.wake = true;
            self.used();
            self.promise();
            return;
        }
        let frozen = frozen.clone();
        self.used();
        self.wake_from(frozen, false);
    }

    /// Wakes it from `frozen`; `cold` gives the memory up and starts from the files (5.7).
    pub(crate) fn wake_from(&mut self, frozen: Frozen, cold: bool) {
        self.sb.retry = None;
        match frozen.copy {
            _ if cold => self.cold_start(frozen.copy),
            copy if frozen.resident => self.release(copy, true),
            Some(_) => self.thaw(frozen, false),
            None => self.cold_start(None),
        }
    }

    /// Boots from the files. The copy is void as soon as something runs on them, so the record forgets it first.
    pub(crate) fn cold_start(&mut self, copy: Option<CopyId>) {
        self.sb.retry = None;
        self.sb.holds.background.clear();
        self.boot(true);
        if let Some(copy) = copy {
            self.effect(Effect::DropCopy { copy });
        }
    }

    /// Restores it from its copy, standing still.
    pub(crate) fn thaw(&mut self, from: Frozen, retried: bool) {
        let Some(copy) = from.copy else {
            return self.cold_start(None);
        };
        let op = self.next_op();
        self.go(State::Thawing { op, from, retried });
        self.effect(Effect::Thaw { op, copy });
    }

    /// Lets it run. From this commit on there is no copy (4.9).
    pub(crate) fn release(&mut self, copy: Option<CopyId>, wake: bool) {
        let op = self.next_op();
        self.sb.retry = None;
        self.go(State::Releasing {
            op,
            failures: 0,
            wake,
        });
        self.effect(Effect::Release { op });
        if let Some(copy) = copy {
            self.effect(Effect::DropCopy { copy });
        }
    }

    /// Stops it for good, keeping nothing.
    pub(crate) fn destroy(&mut self, end: End) {
        self.end_holds();
        self.sb.holds = crate::sandbox::Held::default();
        self.sb.retry = None;
        let op = self.next_op();
        self.go(State::Stopping {
            op,
            end,
            keep: None,
            failures: 0,
            retry_at: None,
        });
        self.effect(Effect::Destroy {
            op,
            keep_files: false,
        });
    }

    /// A rule stops it for good: a frozen box keeps its copy for a while (6.5).
    pub(crate) fn stop_by_rule(&mut self, end: End) {
        let keep = match &self.sb.state {
            State::Frozen(frozen) if frozen.copy.is_some() && self.sb.policy.restorable_ms > 0 => {
                Frozen {
                    evicting: None,
                    wake: false,
                    ..frozen.clone()
                }
            }
            State::Starting { .. }
            | State::Ready
            | State::Freezing { .. }
            | State::Frozen(_)
            | State::Thawing { .. }
            | State::Releasing { .. }
            | State::Stopping { .. }
            | State::Terminated { .. }
            | State::Interrupted { .. } => return self.destroy(end),
        };
        self.end_holds();
        self.sb.retry = None;
        if !keep.resident {
            return self.terminated(end, Some(keep));
        }
        let op = self.next_op();
        self.go(State::Stopping {
            op,
            end,
            keep: Some(Box::new(keep)),
            failures: 0,
            retry_at: None,
        });
        self.effect(Effect::Evict { op });
    }

    /// It has ended. Phones are not kept (6.5).
    pub(crate) fn terminated(&mut self, end: End, keep: Option<Frozen>) {
        self.sb.retry = None;
        self.sb.holds.phones = 0;
        let until = self.now + self.sb.policy.restorable_ms;
        let kept = keep.map(|frozen| {
            Box::new(Kept {
                frozen: Frozen {
                    resident: false,
                    ..frozen
                },
                until,
                dropping: None,
            })
        });
        self.sb.kept_until = kept.as_ref().map(|kept| kept.until);
        self.go(State::Terminated {
            at: self.now,
            end,
            kept,
        });
    }

    /// Its processes are gone though nobody stopped it: what is left of it is cleared away, the files stay a while (2.2).
    pub(crate) fn interrupt(&mut self, reason: Box<str>) {
        self.end_holds();
        self.sb.holds = crate::sandbox::Held::default();
        self.sb.retry = None;
        self.sb.freeze_failure = None;
        let op = self.next_op();
        self.because("2.2", alloc::format!("it was lost: {reason}"));
        self.go(State::Interrupted {
            at: self.now,
            reason,
            files_until: Some(self.now + INTERRUPTED_FILES_MS),
            op: Some(op),
        });
        self.effect(Effect::Destroy {
            op,
            keep_files: true,
        });
    }

    /// Remembers one more failure and when the next try may start; gives how many there were.
    pub(crate) fn failed(&mut self, reason: Box<str>, backoff: Backoff) -> u16 {
        let failures = next_failure(self.sb.retry.as_deref());
        self.sb.retry = Some(Box::new(Retry {
            failures,
            at: Some(self.now + backoff.after(failures)),
            reason,
        }));
        failures
    }
}

/// One more than the failures so far.
pub(crate) fn next_failure(before: Option<&Retry>) -> u16 {
    before.map_or(0, |retry| retry.failures).saturating_add(1)
}

/// Waits that double with each failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Backoff {
    /// After the first failure.
    pub(crate) first_ms: Ms,
    /// At most.
    pub(crate) most_ms: Ms,
}

impl Backoff {
    /// The wait after this many failures in a row.
    pub(crate) fn after(self, failures: u16) -> Ms {
        let doublings = u32::from(failures.saturating_sub(1)).min(32);
        self.first_ms
            .saturating_mul(1 << doublings)
            .min(self.most_ms)
    }
}
