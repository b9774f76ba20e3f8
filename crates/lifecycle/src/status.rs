//! The names readers see for a state (2.1), and the sentence that goes with it (2.8). Owns no state.

use alloc::string::{String, ToString};
use core::fmt;

use crate::policy::Keeps;
use crate::rules::status_reason;
use crate::sandbox::Sandbox;
use crate::state::{Frozen, State};

/// The readers' name of a state. `claimed` is a box whose start still waits for room: it has no record here yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Status {
    /// Asked for, waiting for room.
    Claimed,
    /// Being booted.
    Starting,
    /// Runs.
    Ready,
    /// Runs, and a person has the screen.
    Takeover,
    /// Being frozen.
    Freezing,
    /// Stands still.
    Frozen,
    /// Being woken.
    Thawing,
    /// Being stopped for good.
    Stopping,
    /// Stopped for good.
    Terminated,
    /// Its processes were lost.
    Interrupted,
}

impl Status {
    /// Every status, in the order of a box's life.
    pub const ALL: [Self; 10] = [
        Self::Claimed,
        Self::Starting,
        Self::Ready,
        Self::Takeover,
        Self::Freezing,
        Self::Frozen,
        Self::Thawing,
        Self::Stopping,
        Self::Terminated,
        Self::Interrupted,
    ];

    /// Its name in the API.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Claimed => "claimed",
            Self::Starting => "starting",
            Self::Ready => "ready",
            Self::Takeover => "takeover",
            Self::Freezing => "freezing",
            Self::Frozen => "frozen",
            Self::Thawing => "thawing",
            Self::Stopping => "stopping",
            Self::Terminated => "terminated",
            Self::Interrupted => "interrupted",
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Frozen {
    /// Its memory is not kept anywhere, or will not be once it is given back: it starts anew on its files (4.13).
    #[must_use]
    pub fn keeps_files_only(&self) -> bool {
        self.copy.is_none() && self.snapshot_error.is_none()
    }

    /// What it keeps, as `keeps` says it (4.13).
    #[must_use]
    pub fn keeps(&self) -> Keeps {
        if self.keeps_files_only() {
            Keeps::Files
        } else {
            Keeps::FilesAndMemory
        }
    }

    /// Where its memory is, as `tier` says it (4.11).
    #[must_use]
    pub fn tier(&self) -> crate::effect::Tier {
        if self.resident {
            crate::effect::Tier::Ram
        } else {
            crate::effect::Tier::Disk
        }
    }
}

impl Sandbox {
    /// The readers' name of its state.
    #[must_use]
    pub fn status(&self) -> Status {
        match &self.state {
            State::Starting { .. } => Status::Starting,
            State::Ready if self.holds.takeover.is_some() => Status::Takeover,
            State::Ready => Status::Ready,
            State::Freezing { .. } => Status::Freezing,
            State::Frozen(frozen) => {
                if frozen.wake {
                    Status::Thawing
                } else {
                    Status::Frozen
                }
            }
            State::Thawing { .. } | State::Releasing { wake: true, .. } => Status::Thawing,
            // A freeze is being undone: to readers it is not over yet.
            State::Releasing { wake: false, .. } => Status::Freezing,
            State::Stopping { .. } => Status::Stopping,
            State::Terminated { .. } => Status::Terminated,
            State::Interrupted { .. } => Status::Interrupted,
        }
    }

    /// Why it is in this state, when that is not plain from its name (2.8).
    #[must_use]
    pub fn status_reason(&self) -> Option<String> {
        match &self.state {
            State::Stopping { end, .. } | State::Terminated { end, .. } => {
                Some(status_reason::of_end(end, &self.policy))
            }
            State::Interrupted { reason, .. } => Some(status_reason::of_interruption(reason)),
            State::Frozen(frozen) => {
                status_reason::of_freeze(frozen.cause).map(ToString::to_string)
            }
            State::Starting { .. }
            | State::Ready
            | State::Freezing { .. }
            | State::Thawing { .. }
            | State::Releasing { .. } => None,
        }
    }
}
