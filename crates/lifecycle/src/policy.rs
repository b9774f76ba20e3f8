//! The durations and switches of one box (rules, section 1). Presets are data; a value out of range is
//! refused with its limit, never shortened.

use core::fmt;

use crate::time::{DAY, HOUR, MIN, Ms, SEC, Time};

/// The named sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Preset {
    /// Boxes of agents, the default.
    Agent,
    /// The router dialect.
    Router,
    /// Delegated tasks.
    Task,
    /// The E2B dialect.
    E2b,
}

/// What a freeze keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Keeps {
    /// Files only; programs start anew.
    Files,
    /// Files and memory.
    FilesAndMemory,
}

/// When a frozen box is stopped for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StopFrozen {
    /// Never by this rule.
    Never,
    /// This long after the later of its last use and its freeze (6.1).
    AfterUseOrFreeze(Ms),
    /// This long after it fell asleep, whatever used it before (6.10).
    AfterFreeze(Ms),
}

/// A limit on how long a box may be up (12.4, 6.10).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Lifetime {
    /// How long.
    pub ms: Ms,
    /// What it counts from.
    pub from: LifetimeFrom,
    /// What happens at its end.
    pub at_end: AtEnd,
}

/// What a lifetime counts from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LifetimeFrom {
    /// The moment its creation began; time spent frozen is left out.
    Creation,
    /// The latest boot, while the box is up.
    LatestBoot,
    /// This moment, whether or not the box freezes for being idle; time in which it is paused is left out (15.1).
    Moment(Time),
}

/// What happens at the end of a lifetime.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AtEnd {
    /// The box is destroyed.
    Destroy,
    /// The box is frozen.
    Freeze,
    /// The box is frozen and keeps its files only (15.3).
    KeepFiles,
}

/// What wakes a box that was paused: frozen by a call, or at the end of its lifetime (15.2). One that froze for being idle
/// is woken by every call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WokenBy {
    /// Every call that acts on it.
    AnyCall,
    /// Every such call, unless only its files were kept; its lifetime then lasts at least this long from there.
    AnyCallFor(Ms),
    /// Being asked to wake, and nothing else.
    Resume,
}

/// The full set for one box.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
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
    /// What wakes it from a pause.
    pub woken_by: WokenBy,
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
        woken_by: WokenBy::AnyCall,
        background_hold_ms: HOUR,
        url_hold_ms: 2 * HOUR,
        recording_hold_ms: HOUR,
    };
}

/// A setting that is out of range, with its limits in the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PolicyError {
    /// The field, as users write it.
    pub field: &'static str,
    /// What it may be.
    pub limits: &'static str,
}

impl fmt::Display for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} must be {}", self.field, self.limits)
    }
}

impl core::error::Error for PolicyError {}

impl Policy {
    /// The preset `router`: never idle, 300 s of being up, nothing kept.
    pub const ROUTER: Self = Self {
        preset: Preset::Router,
        freeze_after_ms: None,
        stop_frozen: StopFrozen::Never,
        restorable_ms: 0,
        lifetime: Some(Lifetime {
            ms: 300 * SEC,
            from: LifetimeFrom::Creation,
            at_end: AtEnd::Destroy,
        }),
        ..Self::AGENT
    };

    /// The preset `task`: sleeps on its files after a quarter of an hour, has an hour for each boot.
    pub const TASK: Self = Self {
        preset: Preset::Task,
        freeze_after_ms: Some(15 * MIN),
        keeps: Keeps::Files,
        stop_frozen: StopFrozen::AfterFreeze(HOUR),
        restorable_ms: 0,
        idle_limit_ms: None,
        lifetime: Some(Lifetime {
            ms: HOUR,
            from: LifetimeFrom::LatestBoot,
            at_end: AtEnd::Destroy,
        }),
        woken_by: WokenBy::AnyCall,
        background_hold_ms: 0,
        url_hold_ms: 0,
        recording_hold_ms: 0,
    };

    /// The preset `e2b`: an end that its client sets and moves, kept for as long as it is paused. The moment is the one
    /// at which a client asks; whoever uses the preset puts it in.
    pub const E2B: Self = Self {
        preset: Preset::E2b,
        stop_frozen: StopFrozen::Never,
        restorable_ms: 0,
        lifetime: Some(Lifetime {
            ms: 300 * SEC,
            from: LifetimeFrom::Moment(Time(0)),
            at_end: AtEnd::Destroy,
        }),
        woken_by: WokenBy::Resume,
        ..Self::AGENT
    };

    /// The full set of a preset.
    #[must_use]
    pub fn of(preset: Preset) -> Self {
        match preset {
            Preset::Agent => Self::AGENT,
            Preset::Router => Self::ROUTER,
            Preset::Task => Self::TASK,
            Preset::E2b => Self::E2B,
        }
    }

    /// Checks every field against its limits.
    ///
    /// # Errors
    /// The first field that is out of range. Nothing is ever shortened.
    pub fn validate(&self) -> Result<(), PolicyError> {
        let own_limit = match self.preset {
            // The router dialect counts its inactivity in seconds.
            Preset::Router => (SEC, "at least 1 second and at most 7 days"),
            Preset::Agent | Preset::Task | Preset::E2b => (MIN, "1 to 10080 (minutes)"),
        };
        let stop_frozen_ms = match self.stop_frozen {
            StopFrozen::Never => None,
            StopFrozen::AfterUseOrFreeze(ms) | StopFrozen::AfterFreeze(ms) => Some(ms),
        };
        let lifetime = match self.lifetime {
            // An end that is set may be set to now.
            Some(Lifetime {
                from: LifetimeFrom::Moment(_),
                ms,
                ..
            }) => (Some(ms), 0, "0 to 2592000"),
            lifetime => (lifetime.map(|lifetime| lifetime.ms), SEC, "1 to 2592000"),
        };
        let woken_for_ms = match self.woken_by {
            WokenBy::AnyCallFor(ms) => Some(ms),
            WokenBy::AnyCall | WokenBy::Resume => None,
        };
        let week = "at most 7 days";
        let checks = [
            (
                "freeze_after",
                self.freeze_after_ms,
                SEC,
                7 * DAY,
                "1 second to 7 days",
            ),
            (
                "stop_frozen",
                stop_frozen_ms,
                SEC,
                30 * DAY,
                "1 second to 30 days",
            ),
            ("restorable", Some(self.restorable_ms), 0, 7 * DAY, week),
            (
                "idleTimeoutMin",
                self.idle_limit_ms,
                own_limit.0,
                7 * DAY,
                own_limit.1,
            ),
            (
                "lifetime_seconds",
                lifetime.0,
                lifetime.1,
                30 * DAY,
                lifetime.2,
            ),
            (
                "woken_for",
                woken_for_ms,
                SEC,
                7 * DAY,
                "1 second to 7 days",
            ),
            (
                "background_hold",
                Some(self.background_hold_ms),
                0,
                7 * DAY,
                week,
            ),
            ("url_hold", Some(self.url_hold_ms), 0, 7 * DAY, week),
            (
                "recording_hold",
                Some(self.recording_hold_ms),
                0,
                7 * DAY,
                week,
            ),
        ];
        for (field, value, least, most, limits) in checks {
            if value.is_some_and(|value| value < least || value > most) {
                return Err(PolicyError { field, limits });
            }
        }
        Ok(())
    }
}
