//! A state as JSON: its name and exactly what is valid in it.

use icebox_lifecycle::state::{End, FreezeCause, Frozen, Kept, State, TakeoverCause};
use icebox_lifecycle::{CopyId, OpId, Save, SnapshotId, Time};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub(super) enum StateRow {
    Starting {
        op: u64,
        keep_files: bool,
    },
    Ready,
    Freezing {
        op: u64,
        copy: u32,
        cause: CauseRow,
        ram_only: bool,
        wake: bool,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        save: Option<SaveRow>,
    },
    Frozen {
        frozen: FrozenRow,
    },
    Thawing {
        op: u64,
        from: FrozenRow,
        retried: bool,
    },
    Releasing {
        op: u64,
        failures: u8,
        wake: bool,
    },
    Stopping {
        op: u64,
        end: EndRow,
        keep: Option<FrozenRow>,
        failures: u16,
        retry_at: Option<i64>,
    },
    Terminated {
        at: i64,
        end: EndRow,
        kept: Option<KeptRow>,
    },
    Interrupted {
        at: i64,
        reason: Box<str>,
        files_until: Option<i64>,
        op: Option<u64>,
    },
}

#[derive(Serialize, Deserialize)]
pub(super) struct SaveRow {
    snapshot: Box<str>,
    memory: bool,
}

#[derive(Serialize, Deserialize)]
pub(super) struct FrozenRow {
    at: i64,
    cause: CauseRow,
    resident: bool,
    copy: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    snapshot_error: Option<Box<str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    evicting: Option<u64>,
    #[serde(default)]
    wake: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    wake_error: Option<Box<str>>,
}

#[derive(Serialize, Deserialize)]
pub(super) struct KeptRow {
    frozen: FrozenRow,
    until: i64,
    dropping: Option<u64>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum CauseRow {
    Idle,
    Asked,
    NoCredits,
    Lifetime,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum EndRow {
    Asked,
    Unneeded,
    FrozenUnused,
    OwnIdleLimit,
    Lifetime,
    StartFailed(Box<str>),
    Interrupted(Box<str>),
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum TakeoverCauseRow {
    Person,
    Asked,
    Review,
}

impl From<&State> for StateRow {
    fn from(state: &State) -> Self {
        match state {
            State::Starting { op, keep_files } => Self::Starting {
                op: op.0,
                keep_files: *keep_files,
            },
            State::Ready => Self::Ready,
            State::Freezing {
                op,
                copy,
                cause,
                ram_only,
                wake,
                save,
            } => Self::Freezing {
                op: op.0,
                copy: copy.0,
                cause: (*cause).into(),
                ram_only: *ram_only,
                wake: *wake,
                save: save.map(|save| SaveRow {
                    snapshot: save.snapshot.as_str().into(),
                    memory: save.memory,
                }),
            },
            State::Frozen(frozen) => Self::Frozen {
                frozen: frozen.into(),
            },
            State::Thawing { op, from, retried } => Self::Thawing {
                op: op.0,
                from: from.into(),
                retried: *retried,
            },
            State::Releasing { op, failures, wake } => Self::Releasing {
                op: op.0,
                failures: *failures,
                wake: *wake,
            },
            State::Stopping {
                op,
                end,
                keep,
                failures,
                retry_at,
            } => Self::Stopping {
                op: op.0,
                end: end.into(),
                keep: keep.as_deref().map(Into::into),
                failures: *failures,
                retry_at: retry_at.map(|at| at.0),
            },
            State::Terminated { at, end, kept } => Self::Terminated {
                at: at.0,
                end: end.into(),
                kept: kept.as_deref().map(Into::into),
            },
            State::Interrupted {
                at,
                reason,
                files_until,
                op,
            } => Self::Interrupted {
                at: at.0,
                reason: reason.clone(),
                files_until: files_until.map(|at| at.0),
                op: op.map(|op| op.0),
            },
        }
    }
}

impl From<StateRow> for State {
    fn from(row: StateRow) -> Self {
        match row {
            StateRow::Starting { op, keep_files } => Self::Starting {
                op: OpId(op),
                keep_files,
            },
            StateRow::Ready => Self::Ready,
            StateRow::Freezing {
                op,
                copy,
                cause,
                ram_only,
                wake,
                save,
            } => Self::Freezing {
                op: OpId(op),
                copy: CopyId(copy),
                cause: cause.into(),
                ram_only,
                wake,
                save: save.and_then(|save| {
                    Some(Save {
                        snapshot: SnapshotId::parse(&save.snapshot)?,
                        memory: save.memory,
                    })
                }),
            },
            StateRow::Frozen { frozen } => Self::Frozen(frozen.into()),
            StateRow::Thawing { op, from, retried } => Self::Thawing {
                op: OpId(op),
                from: from.into(),
                retried,
            },
            StateRow::Releasing { op, failures, wake } => Self::Releasing {
                op: OpId(op),
                failures,
                wake,
            },
            StateRow::Stopping {
                op,
                end,
                keep,
                failures,
                retry_at,
            } => Self::Stopping {
                op: OpId(op),
                end: end.into(),
                keep: keep.map(|keep| Box::new(keep.into())),
                failures,
                retry_at: retry_at.map(Time),
            },
            StateRow::Terminated { at, end, kept } => Self::Terminated {
                at: Time(at),
                end: end.into(),
                kept: kept.map(|kept| Box::new(kept.into())),
            },
            StateRow::Interrupted {
                at,
                reason,
                files_until,
                op,
            } => Self::Interrupted {
                at: Time(at),
                reason,
                files_until: files_until.map(Time),
                op: op.map(OpId),
            },
        }
    }
}

impl From<&Frozen> for FrozenRow {
    fn from(frozen: &Frozen) -> Self {
        Self {
            at: frozen.at.0,
            cause: frozen.cause.into(),
            resident: frozen.resident,
            copy: frozen.copy.map(|copy| copy.0),
            snapshot_error: frozen.snapshot_error.clone(),
            evicting: frozen.evicting.map(|op| op.0),
            wake: frozen.wake,
            wake_error: frozen.wake_error.clone(),
        }
    }
}

impl From<FrozenRow> for Frozen {
    fn from(row: FrozenRow) -> Self {
        Self {
            at: Time(row.at),
            cause: row.cause.into(),
            resident: row.resident,
            copy: row.copy.map(CopyId),
            snapshot_error: row.snapshot_error,
            evicting: row.evicting.map(OpId),
            wake: row.wake,
            wake_error: row.wake_error,
        }
    }
}

impl From<&Kept> for KeptRow {
    fn from(kept: &Kept) -> Self {
        Self {
            frozen: (&kept.frozen).into(),
            until: kept.until.0,
            dropping: kept.dropping.map(|op| op.0),
        }
    }
}

impl From<KeptRow> for Kept {
    fn from(row: KeptRow) -> Self {
        Self {
            frozen: row.frozen.into(),
            until: Time(row.until),
            dropping: row.dropping.map(OpId),
        }
    }
}

impl From<FreezeCause> for CauseRow {
    fn from(cause: FreezeCause) -> Self {
        match cause {
            FreezeCause::Idle => Self::Idle,
            FreezeCause::Asked => Self::Asked,
            FreezeCause::NoCredits => Self::NoCredits,
            FreezeCause::Lifetime => Self::Lifetime,
        }
    }
}

impl From<CauseRow> for FreezeCause {
    fn from(row: CauseRow) -> Self {
        match row {
            CauseRow::Idle => Self::Idle,
            CauseRow::Asked => Self::Asked,
            CauseRow::NoCredits => Self::NoCredits,
            CauseRow::Lifetime => Self::Lifetime,
        }
    }
}

impl From<&End> for EndRow {
    fn from(end: &End) -> Self {
        match end {
            End::Asked => Self::Asked,
            End::Unneeded => Self::Unneeded,
            End::FrozenUnused => Self::FrozenUnused,
            End::OwnIdleLimit => Self::OwnIdleLimit,
            End::Lifetime => Self::Lifetime,
            End::StartFailed(reason) => Self::StartFailed(reason.clone()),
            End::Interrupted(reason) => Self::Interrupted(reason.clone()),
        }
    }
}

impl From<EndRow> for End {
    fn from(row: EndRow) -> Self {
        match row {
            EndRow::Asked => Self::Asked,
            EndRow::Unneeded => Self::Unneeded,
            EndRow::FrozenUnused => Self::FrozenUnused,
            EndRow::OwnIdleLimit => Self::OwnIdleLimit,
            EndRow::Lifetime => Self::Lifetime,
            EndRow::StartFailed(reason) => Self::StartFailed(reason),
            EndRow::Interrupted(reason) => Self::Interrupted(reason),
        }
    }
}

impl From<TakeoverCause> for TakeoverCauseRow {
    fn from(cause: TakeoverCause) -> Self {
        match cause {
            TakeoverCause::Person => Self::Person,
            TakeoverCause::Asked => Self::Asked,
            TakeoverCause::Review => Self::Review,
        }
    }
}

impl From<TakeoverCauseRow> for TakeoverCause {
    fn from(row: TakeoverCauseRow) -> Self {
        match row {
            TakeoverCauseRow::Person => Self::Person,
            TakeoverCauseRow::Asked => Self::Asked,
            TakeoverCauseRow::Review => Self::Review,
        }
    }
}
