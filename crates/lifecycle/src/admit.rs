//! What may be asked of a box in which state: accept, already so, wait, or a refusal with a name. Owns every cell of
//! that table; changes nothing.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::event::{CallKind, Command};
use crate::forecast::HoldKind;
use crate::policy::{LifetimeFrom, Policy, PolicyError, WokenBy};
use crate::rules;
use crate::sandbox::{Sandbox, Takeover};
use crate::saving;
use crate::state::{End, State};
use crate::time::Time;

/// What somebody asks of a box.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ask {
    /// A call that names it.
    Call {
        /// What it is to the box.
        kind: CallKind,
        /// It changes the box, so it has to wait while a person has the screen (9.1).
        writes: bool,
    },
    /// [`Command::Freeze`].
    Freeze,
    /// [`Command::Pause`].
    Pause {
        /// Keeping its files only.
        files_only: bool,
    },
    /// [`Command::Wake`].
    Wake {
        /// From the files.
        cold: bool,
    },
    /// [`Command::Stop`] and [`Command::Unneeded`].
    Stop,
    /// [`Command::Restore`].
    Restore,
    /// [`Command::SetPolicy`].
    SetPolicy(Box<Policy>),
    /// [`Command::Keep`].
    Keep(bool),
    /// [`Command::Reach`].
    Reach,
    /// [`Command::Save`].
    Save {
        /// With its memory.
        memory: bool,
    },
    /// Read its record.
    Get,
}

impl From<&Command> for Ask {
    fn from(command: &Command) -> Self {
        match command {
            Command::Freeze => Self::Freeze,
            Command::Pause { files_only } => Self::Pause {
                files_only: *files_only,
            },
            Command::Wake { cold } => Self::Wake { cold: *cold },
            Command::Stop | Command::Unneeded => Self::Stop,
            Command::Restore => Self::Restore,
            Command::SetPolicy(policy) => Self::SetPolicy(policy.clone()),
            Command::Keep(keep) => Self::Keep(*keep),
            Command::Reach => Self::Reach,
            Command::Save(save) => Self::Save {
                memory: save.memory,
            },
        }
    }
}

/// The answer to an [`Ask`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Admission {
    /// Go ahead: send the event. A call then waits until the box is ready.
    Accept,
    /// It is so already, or on its way: answer as if it had just been done.
    AlreadySo,
    /// Not at this moment: ask again when the state changes, within a limit.
    Wait,
    /// No, and why.
    Refuse(Refusal),
}

/// Why something is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// A wake, and any use, needs credits (5.3).
    NoCredits,
    /// It has ended (6.9).
    Gone {
        /// When; `None` while it is still being stopped.
        at: Option<Time>,
        /// What ended it.
        end: End,
        /// Until when it can be restored.
        restorable_until: Option<Time>,
    },
    /// Its processes were lost (2.2).
    Interrupted {
        /// Why.
        reason: Box<str>,
        /// Until when its files are kept.
        files_until: Option<Time>,
    },
    /// Its copy was kept until then and is gone (6.5).
    RestoreTooLate {
        /// When that was.
        until: Time,
    },
    /// There was never a copy to restore.
    CannotRestore(NoRestore),
    /// A person has the screen and the call writes (9.1).
    TakenOver(Takeover),
    /// It is not frozen while one of these goes on (4.2).
    Held {
        /// What holds it.
        by: Vec<HoldKind>,
    },
    /// Nothing of its lifetime is left: extend it first (12.4).
    LifetimeOver,
    /// It is paused, and a call does not wake it (15.2).
    Paused,
    /// Its memory cannot be part of a snapshot.
    NoMemory {
        /// Why there is no copy of it; `None`: it was given up, and the box keeps its files only (4.13).
        error: Option<Box<str>>,
    },
    /// A setting is out of range.
    Policy(PolicyError),
    /// A hard cap can be raised only (6.10).
    CapLowered,
}

/// Why a stopped box cannot be restored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoRestore {
    /// A call stopped it, which keeps nothing (6.6).
    StoppedByCall,
    /// The box that it worked for had no use for it any more, which keeps nothing either (6.6).
    Unneeded,
    /// It was not frozen when it ended, or its policy keeps no copy.
    NeverFrozen,
}

impl Sandbox {
    /// Decides what `ask` gets at `now`. Sending an event that was not accepted changes nothing.
    #[must_use]
    pub fn admit(&self, now: Time, ask: &Ask) -> Admission {
        let decided = match ask {
            Ask::Get => Ok(Admission::Accept),
            Ask::Call { kind, writes } => self.admit_call(now, *kind, *writes),
            Ask::Freeze => self.admit_freeze(now),
            Ask::Pause { files_only } => self.admit_pause(now, *files_only),
            Ask::Wake { cold: false } => self.admit_wake(now),
            Ask::Wake { cold: true } => self.admit_cold_wake(now),
            Ask::Stop => Ok(self.admit_stop()),
            Ask::Restore => self.admit_restore(now),
            Ask::SetPolicy(policy) => self.admit_policy(now, policy),
            Ask::Keep(keep) => self.admit_keep(now, *keep),
            Ask::Reach => self.live(now).map(|()| Admission::Accept),
            Ask::Save { memory } => saving::admit(self, now, *memory),
        };
        decided.unwrap_or_else(Admission::Refuse)
    }

    /// Whether it could run again from standing still: credits (5.3), and something left of its lifetime (12.4).
    pub(crate) fn may_wake(&self, now: Time) -> Result<(), Refusal> {
        if !self.credits {
            return Err(Refusal::NoCredits);
        }
        match (
            rules::lifetime::remaining_ms(self, now),
            self.policy.woken_by,
        ) {
            // What wakes it gives it more.
            (_, WokenBy::AnyCallFor(_)) => Ok(()),
            (Some(left), _) if left <= 0 => Err(Refusal::LifetimeOver),
            (Some(_) | None, _) => Ok(()),
        }
    }

    /// As [`Self::may_wake`], for a call that names it: a paused box may be one that calls do not wake (15.2).
    fn may_be_called(&self, now: Time) -> Result<(), Refusal> {
        if self.credits && rules::pause::is_closed(self) {
            return Err(Refusal::Paused);
        }
        self.may_wake(now)
    }

    /// The refusal of a box that has ended or was lost; `None` for a live one.
    fn ended(&self, now: Time) -> Option<Refusal> {
        match &self.state {
            State::Starting { .. }
            | State::Ready
            | State::Freezing { .. }
            | State::Frozen(_)
            | State::Thawing { .. }
            | State::Releasing { .. } => None,
            State::Stopping { end, .. } => Some(Refusal::Gone {
                at: None,
                end: end.clone(),
                restorable_until: None,
            }),
            State::Terminated { at, end, .. } => Some(Refusal::Gone {
                at: Some(*at),
                end: end.clone(),
                restorable_until: self.restorable_until(now),
            }),
            State::Interrupted {
                reason,
                files_until,
                ..
            } => Some(Refusal::Interrupted {
                reason: reason.clone(),
                files_until: *files_until,
            }),
        }
    }

    pub(crate) fn live(&self, now: Time) -> Result<(), Refusal> {
        self.ended(now).map_or(Ok(()), Err)
    }

    fn admit_call(&self, now: Time, kind: CallKind, writes: bool) -> Result<Admission, Refusal> {
        match kind {
            CallKind::Reads => return Ok(Admission::Accept),
            CallKind::Acts | CallKind::Wakes => {}
        }
        self.live(now)?;
        match &self.state {
            State::Frozen(_) | State::Freezing { .. } => self.may_be_called(now)?,
            State::Starting { .. }
            | State::Ready
            | State::Thawing { .. }
            | State::Releasing { .. }
            | State::Stopping { .. }
            | State::Terminated { .. }
            | State::Interrupted { .. } => {
                if !self.credits {
                    return Err(Refusal::NoCredits);
                }
            }
        }
        match self.holds.takeover {
            Some(takeover) if writes => Err(Refusal::TakenOver(takeover)),
            Some(_) | None => Ok(Admission::Accept),
        }
    }

    fn admit_freeze(&self, now: Time) -> Result<Admission, Refusal> {
        self.live(now)?;
        Ok(match &self.state {
            State::Ready => {
                let by = rules::holds::endless(self);
                if !by.is_empty() {
                    return Err(Refusal::Held { by });
                }
                match self.after_phones {
                    Some(crate::state::FreezeCause::Asked) => Admission::AlreadySo,
                    Some(_) | None => Admission::Accept,
                }
            }
            State::Freezing { wake: false, .. } => Admission::AlreadySo,
            State::Frozen(frozen) if !frozen.wake => Admission::AlreadySo,
            State::Freezing { .. }
            | State::Frozen(_)
            | State::Starting { .. }
            | State::Thawing { .. }
            | State::Releasing { .. }
            | State::Stopping { .. }
            | State::Terminated { .. }
            | State::Interrupted { .. } => Admission::Wait,
        })
    }

    /// Unlike a freeze, nothing holds a pause up (15.2).
    fn admit_pause(&self, now: Time, files_only: bool) -> Result<Admission, Refusal> {
        self.live(now)?;
        Ok(match &self.state {
            State::Ready => Admission::Accept,
            State::Frozen(_) | State::Freezing { .. } if rules::pause::is_paused(self) => {
                Admission::AlreadySo
            }
            State::Frozen(frozen) if !frozen.wake => match frozen.evicting {
                // Its copy is being checked: it cannot be given up at this moment.
                Some(_) if files_only => Admission::Wait,
                Some(_) | None => Admission::Accept,
            },
            State::Frozen(_)
            | State::Freezing { .. }
            | State::Starting { .. }
            | State::Thawing { .. }
            | State::Releasing { .. }
            | State::Stopping { .. }
            | State::Terminated { .. }
            | State::Interrupted { .. } => Admission::Wait,
        })
    }

    fn admit_wake(&self, now: Time) -> Result<Admission, Refusal> {
        self.live(now)?;
        match &self.state {
            State::Frozen(frozen) if !frozen.wake => self.may_wake(now)?,
            State::Freezing { wake: false, .. } => self.may_wake(now)?,
            State::Starting { .. }
            | State::Ready
            | State::Freezing { .. }
            | State::Frozen(_)
            | State::Thawing { .. }
            | State::Releasing { .. }
            | State::Stopping { .. }
            | State::Terminated { .. }
            | State::Interrupted { .. } => return Ok(Admission::AlreadySo),
        }
        Ok(Admission::Accept)
    }

    fn admit_cold_wake(&self, now: Time) -> Result<Admission, Refusal> {
        match &self.state {
            State::Frozen(frozen) => {
                if frozen.evicting.is_some() {
                    return Ok(Admission::Wait);
                }
                self.may_boot(now)?;
                Ok(Admission::Accept)
            }
            State::Interrupted {
                files_until, op, ..
            } => {
                let kept = files_until.is_some_and(|until| now < until);
                if !kept {
                    return self.live(now).map(|()| Admission::Wait);
                }
                self.may_boot(now)?;
                Ok(op.map_or(Admission::Accept, |_| Admission::Wait))
            }
            State::Ready
            | State::Starting {
                keep_files: true, ..
            } => Ok(Admission::AlreadySo),
            State::Starting { .. }
            | State::Freezing { .. }
            | State::Thawing { .. }
            | State::Releasing { .. } => Ok(Admission::Wait),
            State::Stopping { .. } | State::Terminated { .. } => {
                self.live(now).map(|()| Admission::Wait)
            }
        }
    }

    /// As [`Self::may_wake`], for a boot: it begins a cap that counts from the latest boot anew (6.10).
    fn may_boot(&self, now: Time) -> Result<(), Refusal> {
        let anew = self
            .policy
            .lifetime
            .is_some_and(|lifetime| lifetime.from == LifetimeFrom::LatestBoot);
        match self.may_wake(now) {
            Err(Refusal::LifetimeOver) if anew => Ok(()),
            decided => decided,
        }
    }

    fn admit_stop(&self) -> Admission {
        match &self.state {
            State::Starting { .. }
            | State::Ready
            | State::Freezing { .. }
            | State::Frozen(_)
            | State::Thawing { .. }
            | State::Releasing { .. }
            | State::Interrupted { .. } => Admission::Accept,
            State::Stopping { keep, .. } => {
                if keep.is_some() {
                    Admission::Accept
                } else {
                    Admission::AlreadySo
                }
            }
            State::Terminated { kept, .. } => match kept {
                Some(kept) if kept.dropping.is_none() => Admission::Accept,
                Some(_) | None => Admission::AlreadySo,
            },
        }
    }

    /// A box that is live is there already, except that a frozen one wakes: whoever restores wants to use it.
    fn admit_restore(&self, now: Time) -> Result<Admission, Refusal> {
        match &self.state {
            State::Frozen(_) | State::Freezing { .. } => self.admit_wake(now),
            State::Starting { .. }
            | State::Ready
            | State::Thawing { .. }
            | State::Releasing { .. } => Ok(Admission::AlreadySo),
            State::Stopping { keep: Some(_), .. } => Ok(Admission::Wait),
            State::Terminated { kept, end, .. } => match kept {
                Some(kept) if kept.dropping.is_none() && now < kept.until => {
                    if self.credits {
                        Ok(Admission::Accept)
                    } else {
                        Err(Refusal::NoCredits)
                    }
                }
                Some(_) | None => Err(self.no_restore(end)),
            },
            State::Stopping { end, .. } => Err(self.no_restore(end)),
            State::Interrupted { .. } => self.live(now).map(|()| Admission::Wait),
        }
    }

    fn no_restore(&self, end: &End) -> Refusal {
        match (self.kept_until, end) {
            (Some(until), _) => Refusal::RestoreTooLate { until },
            (None, End::Asked) => Refusal::CannotRestore(NoRestore::StoppedByCall),
            (None, End::Unneeded) => Refusal::CannotRestore(NoRestore::Unneeded),
            (None, _) => Refusal::CannotRestore(NoRestore::NeverFrozen),
        }
    }

    fn admit_policy(&self, now: Time, policy: &Policy) -> Result<Admission, Refusal> {
        self.live(now)?;
        policy.validate().map_err(Refusal::Policy)?;
        if rules::lifetime::lowers_cap(&self.policy, policy) {
            return Err(Refusal::CapLowered);
        }
        Ok(if *policy == *self.policy {
            Admission::AlreadySo
        } else {
            Admission::Accept
        })
    }

    fn admit_keep(&self, now: Time, keep: bool) -> Result<Admission, Refusal> {
        self.live(now)?;
        Ok(if keep == self.keep {
            Admission::AlreadySo
        } else {
            Admission::Accept
        })
    }
}
