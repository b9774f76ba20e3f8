//! Everything the lifecycle may ask for. An effect is data: the engine commits the state that goes with
//! it first, then carries it out, and its outcome comes back as an event with the same [`OpId`].

use crate::id::{CopyId, OpId, SnapshotId};

/// Something to be done after the commit. Each one is idempotent: asking again after a crash is harmless. The effects of
/// one box are carried out one after the other, in the order in which they were asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Make the box run: from its image the first time, from its files later. Leftovers of an earlier try go first.
    Boot {
        /// Answers name it.
        op: OpId,
        /// The box's files exist already and are kept: processes start anew on them (5.7).
        keep_files: bool,
    },
    /// Stop everything in the box and write the copy (4.9). The box stands still in RAM afterwards, whatever came of it.
    Freeze {
        /// Answers name it.
        op: OpId,
        /// The copy to write.
        copy: CopyId,
        /// Stand still in RAM only, write no copy (the host cannot checkpoint, or the policy keeps none).
        ram_only: bool,
    },
    /// End the processes of a standing box whose copy is good and recorded, or that keeps files only (4.13): its memory is
    /// given back.
    Evict {
        /// Answers name it.
        op: OpId,
    },
    /// Bring the box from its copy back into RAM, standing still. Nothing of it runs yet and the copy stays good.
    Thaw {
        /// Answers name it.
        op: OpId,
        /// The copy to restore.
        copy: CopyId,
    },
    /// Let a standing box run, and set right what stood still (5.10). The record says "no copy" by now.
    Release {
        /// Answers name it.
        op: OpId,
    },
    /// Remove everything of the box: processes, mounts, cgroups, copies, files (6.11).
    Destroy {
        /// Answers name it.
        op: OpId,
        /// Keep the files (an interrupted box); everything that lives goes.
        keep_files: bool,
    },
    /// Remove a copy that the record no longer names. Without an answer: what is missed goes with the next one.
    DropCopy {
        /// The copy to remove.
        copy: CopyId,
    },
    /// Copy what the box is made of while it stands still: its files and, with `copy`, its memory. It must not run before that
    /// is over. Without an answer: who made the snapshot hears how it went, the box does not care.
    Save {
        /// What to call it.
        snapshot: SnapshotId,
        /// The good copy whose memory goes with it.
        copy: Option<CopyId>,
    },
    /// Let a running box reach outside what its record says by now, and nothing else. What became of it comes back as an
    /// event without a number (5.12), and so it does of a boot and of a release, which make the way out as well.
    Reach,
    /// Stop a recording without uploading it (4.4).
    StopRecording,
    /// Freeze the attached phones first (4.2, 14.4).
    FreezePhones,
}

impl Effect {
    /// The operation whose outcome the state waits for, if this effect has one.
    #[must_use]
    pub fn op(&self) -> Option<OpId> {
        match self {
            Self::Boot { op, .. }
            | Self::Freeze { op, .. }
            | Self::Evict { op }
            | Self::Thaw { op, .. }
            | Self::Release { op }
            | Self::Destroy { op, .. } => Some(*op),
            Self::DropCopy { .. }
            | Self::Save { .. }
            | Self::Reach
            | Self::StopRecording
            | Self::FreezePhones => None,
        }
    }
}

/// Where the memory of a frozen box is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tier {
    /// Its processes stand still in RAM.
    Ram,
    /// Only on disk.
    Disk,
}
