//! The durations and switches of one box (rules, section 1). Presets are data; a value out of range is
//! refused with its limit, never shortened.

use crate::time::{DAY, HOUR, MIN, Ms};

/// The named sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preset {
    /// Boxes of agents, the default.
    Agent,
    /// The router dialect.
    Router,
    /// Delegated tasks.
    Task,
}

/// What a freeze keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keeps {
    /// Files only; programs start anew.
    Files,
    /// Files and memory.
    FilesAndMemory,
}

/// When a frozen box is stopped for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopFrozen {
    /// Never by this rule.
    Never,
    /// This long after the later of its last use and its freeze (6.1).
    AfterUseOrFreeze(Ms),
    /// This long after it fell asleep, whatever used it before (6.10).
    AfterFreeze(Ms),
}

/// A limit on how long a box may be up (12.4, 6.10).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetime {
    /// How long.
    pub ms: Ms,
    /// What it counts from.
    pub from: LifetimeFrom,
    /// What happens at its end.
    pub at_end: AtEnd,
}

/// What a lifetime counts from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LifetimeFrom {
    /// The start of creation; paused time does not count.
    Creation,
    /// The latest boot, while the box is up.
    LatestBoot,
}

/// What happens at the end of a lifetime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtEnd {
    /// The box is destroyed.
    Destroy,
    /// The box is frozen.
    Freeze,
}

/// The full set for one box.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// The set it came from.
    pub preset: Preset,
    /// Freeze after this long without activity; `None`: never (4.1).
    pub freeze_after_ms: Option<Ms>,
    /// What a freeze keeps.
    pub keeps: Keeps,
    /// When a frozen box is stopped for good.
    pub stop_frozen: StopFrozen,
    /// How long the copy of a box stopped by a rule is kept (6.5); 0: not at all.
    pub restorable_ms: Ms,
    /// The box's own idle limit, `idleTimeoutMin` (6.2).
    pub idle_limit_ms: Option<Ms>,
    /// How long it may be up.
    pub lifetime: Option<Lifetime>,
    /// A background command holds until last use plus this (4.3).
    pub background_hold_ms: Ms,
    /// URL requests hold until last use plus this (3.4); 0: they do not.
    pub url_hold_ms: Ms,
    /// A recording holds until last use plus this (4.4).
    pub recording_hold_ms: Ms,
}

impl Policy {
    /// The preset `agent`.
    pub const AGENT: Self = Self {
        preset: Preset::Agent,
        freeze_after_ms: Some(10 * MIN),
        keeps: Keeps::FilesAndMemory,
        stop_frozen: StopFrozen::AfterUseOrFreeze(24 * HOUR),
        restorable_ms: DAY,
        idle_limit_ms: None,
        lifetime: None,
        background_hold_ms: HOUR,
        url_hold_ms: 2 * HOUR,
        recording_hold_ms: HOUR,
    };
}
