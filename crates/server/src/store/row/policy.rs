//! A policy as JSON: durations in milliseconds, `null` where there is none.

use icebox_lifecycle::Policy;
use icebox_lifecycle::policy::{AtEnd, Keeps, Lifetime, LifetimeFrom, Preset, StopFrozen};
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
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum AtEndRow {
    Destroy,
    Freeze,
}

impl From<&Policy> for PolicyRow {
    fn from(policy: &Policy) -> Self {
        Self {
            preset: match policy.preset {
                Preset::Agent => PresetRow::Agent,
                Preset::Router => PresetRow::Router,
                Preset::Task => PresetRow::Task,
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
            },
            at_end: match lifetime.at_end {
                AtEnd::Destroy => AtEndRow::Destroy,
                AtEnd::Freeze => AtEndRow::Freeze,
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
            },
            at_end: match row.at_end {
                AtEndRow::Destroy => AtEnd::Destroy,
                AtEndRow::Freeze => AtEnd::Freeze,
            },
        }
    }
}
