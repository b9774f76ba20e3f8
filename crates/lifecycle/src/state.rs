//! The states of a box, each with exactly what is valid in it.
//!
//! ```text
//!             Boot            Freeze             Evict (memory given back)
//!  Starting --------> Ready --------> Freezing -----------> Frozen
//!                       ^                 |  overtaken/failed  |  ^ failed, once retried
//!                       |     Release     v                    v  |
//!                       +------------ Releasing <----------- Thawing
//!                                   (record: no copy)
//!  any of these -- stop --> Stopping --> Terminated (a rule's stop keeps the copy for a while: Restore -> Thawing)
//!  any of these -- the processes are gone --> Interrupted (files kept for a while)
//! ```

use alloc::boxed::Box;

use crate::id::{CopyId, OpId};
use crate::saving::Save;
use crate::time::Time;

/// Where a box is in its life.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Being booted (2.1); `claimed` and `starting` to readers.
    Starting {
        /// The boot that is awaited.
        op: OpId,
        /// The files existed before this boot (a cold start).
        keep_files: bool,
    },
    /// Runs.
    Ready,
    /// Being stopped and copied; nothing is decided about the copy before its outcome.
    Freezing {
        /// The freeze that is awaited.
        op: OpId,
        /// The copy being written.
        copy: CopyId,
        /// What made it freeze.
        cause: FreezeCause,
        /// No copy is written: the policy keeps files only (4.13).
        ram_only: bool,
        /// A call, a wake or a link came meanwhile: run again as soon as the freeze is over (4.7).
        wake: bool,
        /// A snapshot is made of it once it stands still.
        save: Option<Save>,
    },
    /// Stands still: in RAM, on disk, or both.
    Frozen(Frozen),
    /// Being brought back into RAM from its copy, which stays good.
    Thawing {
        /// The thaw that is awaited.
        op: OpId,
        /// How it was frozen; it is again when the thaw fails.
        from: Frozen,
        /// This is the one retry (5.8).
        retried: bool,
    },
    /// About to run, or running again already: there is no copy any more (4.9).
    Releasing {
        /// The release that is awaited.
        op: OpId,
        /// Failed tries so far.
        failures: u8,
        /// This ends a wake, which is use (5.2); otherwise it only undoes a freeze that failed.
        wake: bool,
    },
    /// Being stopped for good.
    Stopping {
        /// The destroy (or evict, when a copy is kept) that is awaited.
        op: OpId,
        /// What ended it.
        end: End,
        /// The copy that a rule's stop keeps (6.5). Rare, so that it takes no room in all other boxes.
        keep: Option<Box<Frozen>>,
        /// Failed tries so far (6.11).
        failures: u16,
        /// No try before this moment.
        retry_at: Option<Time>,
    },
    /// Stopped for good.
    Terminated {
        /// When.
        at: Time,
        /// What ended it.
        end: End,
        /// What is left to restore it from.
        kept: Option<Box<Kept>>,
    },
    /// Its processes are gone though nobody stopped it (2.2). Files are kept until `files_until`.
    Interrupted {
        /// When it was noticed.
        at: Time,
        /// Why, in words.
        reason: Box<str>,
        /// When the files go; `None` once they are gone.
        files_until: Option<Time>,
        /// The clean-up that is awaited.
        op: Option<OpId>,
    },
}

/// A box that stands still.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frozen {
    /// Since when.
    pub at: Time,
    /// What made it freeze.
    pub cause: FreezeCause,
    /// Its processes still stand in RAM.
    pub resident: bool,
    /// Its good copy on disk, if there is one.
    pub copy: Option<CopyId>,
    /// Why there is no copy (4.10).
    pub snapshot_error: Option<Box<str>>,
    /// The memory is being given back by this operation.
    pub evicting: Option<OpId>,
    /// A wake came while the memory was being given back: it starts as soon as that is over.
    pub wake: bool,
    /// Why the last wake failed (5.8).
    pub wake_error: Option<Box<str>>,
}

/// The copy of a stopped box, kept for a while (6.5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// How it was frozen.
    pub frozen: Frozen,
    /// When it goes: `restorableUntil`.
    pub until: Time,
    /// It is being removed by this operation.
    pub dropping: Option<OpId>,
}

/// What made a box freeze.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FreezeCause {
    /// The idle rule (4.1).
    Idle,
    /// A call asked for it.
    Asked,
    /// The account ran out of credits (4.12).
    NoCredits,
    /// The end of its lifetime, where the policy pauses instead of destroying (12.4).
    Lifetime,
}

/// What ended a box for good. Its text for users is made in [`crate::rules`] from these and the policy (2.8).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// A call asked for it (6.6).
    Asked,
    /// It worked for another box, which has no use for it any more (6.6).
    Unneeded,
    /// Frozen and unused for too long (6.1).
    FrozenUnused,
    /// Unused for longer than its own limit (6.2).
    OwnIdleLimit,
    /// Its lifetime, or the hard cap, was over (6.10, 12.4).
    Lifetime,
    /// It could not be started.
    StartFailed(Box<str>),
    /// The kept files of an interrupted box reached their end.
    Interrupted(Box<str>),
}

/// Why a person has the screen (9.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TakeoverCause {
    /// They took it.
    Person,
    /// A call asked them to.
    Asked,
    /// They opened a review.
    Review,
}
