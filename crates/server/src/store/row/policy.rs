//! A policy as JSON: durations in milliseconds, `null` where there is none.

use icebox_lifecycle::policy::{AtEnd, Keeps, Lifetime, LifetimeFrom, Preset, StopFrozen, WokenBy};
use icebox_lifecycle::{Policy, Time};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
pub(super) struct PolicyRow {
    preset: PresetRow,
    freeze_after_ms: Option<i64>,
    keeps: KeepsRow,
    stop_frozen: StopFrozenRow,
    restorable_ms: i64,
    idle_limit_ms: Option<i64>,
    lifetime: Option<LifetimeRow>,
    #[serde(default)]
    woken_by: WokenByRow,
    background_hold_ms: i64,
    url_hold_ms: i64,
    recording_hold_ms: i64,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum PresetRow {
    Agent,
    Router,
    Task,
    E2b,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum KeepsRow {
    Files,
    FilesAndMemory,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum StopFrozenRow {
    Never,
    AfterUseOrFreeze(i64),
    AfterFreeze(i64),
}

#[derive(Serialize, Deserialize)]
struct LifetimeRow {
    ms: i64,
    from: LifetimeFromRow,
    at_end: AtEndRow,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum LifetimeFromRow {
    Creation,
    LatestBoot,
    Moment(i64),
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum AtEndRow {
    Destroy,
    Freeze,
    KeepFiles,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum WokenByRow {
    #[default]
    AnyCall,
    AnyCallFor(i64),
    Resume,
}

impl From<&Policy> for PolicyRow {
    fn from(policy: &Policy) -> Self {
        Self {
            preset: match policy.preset {
                Preset::Agent => PresetRow::Agent,
                Preset::Router => PresetRow::Router,
                Preset::Task => PresetRow::Task,
                Preset::E2b => PresetRow::E2b,
            },
            freeze_after_ms: policy.freeze_after_ms,
            keeps: match policy.keeps {
                Keeps::Files => KeepsRow::Files,
                Keeps::FilesAndMemory => KeepsRow::FilesAndMemory,
            },
            stop_frozen: match policy.stop_frozen {
                StopFrozen::Never => StopFrozenRow::Never,
                StopFrozen::AfterUseOrFreeze(ms) => StopFrozenRow::AfterUseOrFreeze(ms),
                StopFrozen::AfterFreeze(ms) => StopFrozenRow::AfterFreeze(ms),
            },
            restorable_ms: policy.restorable_ms,
            idle_limit_ms: policy.idle_limit_ms,
            lifetime: policy.lifetime.map(Into::into),
            woken_by: match policy.woken_by {
                WokenBy::AnyCall => WokenByRow::AnyCall,
                WokenBy::AnyCallFor(ms) => WokenByRow::AnyCallFor(ms),
                WokenBy::Resume => WokenByRow::Resume,
            },
            background_hold_ms: policy.background_hold_ms,
            url_hold_ms: policy.url_hold_ms,
            recording_hold_ms: policy.recording_hold_ms,
        }
    }
}

impl From<PolicyRow> for Policy {
    fn from(row: PolicyRow) -> Self {
        Self {
            preset: match row.preset {
                PresetRow::Agent => Preset::Agent,
                PresetRow::Router => Preset::Router,
                PresetRow::Task => Preset::Task,
                PresetRow::E2b => Preset::E2b,
            },
            freeze_after_ms: row.freeze_after_ms,
            keeps: match row.keeps {
                KeepsRow::Files => Keeps::Files,
                KeepsRow::FilesAndMemory => Keeps::FilesAndMemory,
            },
            stop_frozen: match row.stop_frozen {
                StopFrozenRow::Never => StopFrozen::Never,
                StopFrozenRow::AfterUseOrFreeze(ms) => StopFrozen::AfterUseOrFreeze(ms),
                StopFrozenRow::AfterFreeze(ms) => StopFrozen::AfterFreeze(ms),
            },
            restorable_ms: row.restorable_ms,
            idle_limit_ms: row.idle_limit_ms,
            lifetime: row.lifetime.map(Into::into),
            woken_by: match row.woken_by {
                WokenByRow::AnyCall => WokenBy::AnyCall,
                WokenByRow::AnyCallFor(ms) => WokenBy::AnyCallFor(ms),
                WokenByRow::Resume => WokenBy::Resume,
            },
            background_hold_ms: row.background_hold_ms,
            url_hold_ms: row.url_hold_ms,
            recording_hold_ms: row.recording_hold_ms,
        }
    }
}

impl From<Lifetime> for LifetimeRow {
    fn from(lifetime: Lifetime) -> Self {
        Self {
            ms: lifetime.ms,
            from: match lifetime.from {
                LifetimeFrom::Creation => LifetimeFromRow::Creation,
                LifetimeFrom::LatestBoot => LifetimeFromRow::LatestBoot,
                LifetimeFrom::Moment(at) => LifetimeFromRow::Moment(at.0),
            },
            at_end: match lifetime.at_end {
                AtEnd::Destroy => AtEndRow::Destroy,
                AtEnd::Freeze => AtEndRow::Freeze,
                AtEnd::KeepFiles => AtEndRow::KeepFiles,
            },
        }
    }
}

impl From<LifetimeRow> for Lifetime {
    fn from(row: LifetimeRow) -> Self {
        Self {
            ms: row.ms,
            from: match row.from {
                LifetimeFromRow::Creation => LifetimeFrom::Creation,
                LifetimeFromRow::LatestBoot => LifetimeFrom::LatestBoot,
                LifetimeFromRow::Moment(at) => LifetimeFrom::Moment(Time(at)),
            },
            at_end: match row.at_end {
                AtEndRow::Destroy => AtEnd::Destroy,
                AtEndRow::Freeze => AtEnd::Freeze,
                AtEndRow::KeepFiles => AtEnd::KeepFiles,
            },
        }
    }
}
