//! What will happen to a box if nothing else does: when it freezes, what keeps it awake, when it stops for good.
//! Owns no arithmetic of its own; it asks the rules that decide (4.6, 6.3, 6.4, 6.5).

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::rules;
use crate::rules::stops_at::{self, Ahead};
use crate::sandbox::Sandbox;
use crate::state::State;
use crate::time::{Ms, Time};

/// The forecast for one box.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Forecast {
    /// It is ready, or taken over, and can freeze by itself: readers show `freeze` (4.6).
    pub can_freeze: bool,
    /// When it freezes; `None` while something without an end holds it, or when it never will.
    pub freeze_at: Option<Time>,
    /// What keeps it awake beyond the usual time.
    pub blocked_by: Vec<Hold>,
    /// When these rules stop it for good (6.3).
    pub stops_at: Option<Time>,
    /// The rule that will.
    pub stop_rule: Option<&'static str>,
    /// Until when a stopped box can be restored (6.5).
    pub restorable_until: Option<Time>,
    /// The end of its lifetime; `None` while it is frozen, or when it has none (12.4).
    pub ends_at: Option<Time>,
    /// What is left of its lifetime, in milliseconds (12.4).
    pub remaining_ms: Option<Ms>,
    /// To be said under every result from now on (6.4).
    pub warn: Option<Warning>,
}

/// Something that keeps a box awake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold {
    /// What.
    pub kind: HoldKind,
    /// Until when; `None` until it ends.
    pub until: Option<Time>,
    /// More about it, such as the command line.
    pub label: Option<Box<str>>,
}

/// The kinds of [`Hold`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HoldKind {
    /// A background command (4.3).
    Background,
    /// Requests through its URLs (4.5).
    Url,
    /// A recording (4.4).
    Recording,
    /// A person at the screen.
    Takeover,
    /// A call under way (3.7).
    Foreground,
    /// A link from another box.
    Link,
    /// Attached phones that freeze first (14.4).
    Phone,
    /// The last freeze failed and the next try is still to come (4.15).
    FreezeFailed,
}

impl HoldKind {
    /// Its name in the API.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Background => "background",
            Self::Url => "url",
            Self::Recording => "recording",
            Self::Takeover => "takeover",
            Self::Foreground => "foreground",
            Self::Link => "link",
            Self::Phone => "phone",
            Self::FreezeFailed => "freeze_failed",
        }
    }
}

/// The warning that a box is about to be stopped (6.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Warning {
    /// When it is.
    pub stops_at: Time,
    /// In how many minutes, rounded up.
    pub minutes: i64,
}

impl Sandbox {
    /// What will happen from `now` on if nothing else does.
    #[must_use]
    pub fn forecast(&self, now: Time) -> Forecast {
        let Ahead { freeze_at, stop } = stops_at::ahead(self, now);
        let (stops_at, stop_rule) = stop.unzip();
        Forecast {
            can_freeze: stops_at::can_freeze(self) || freeze_at.is_some(),
            freeze_at,
            blocked_by: if self.state == State::Ready {
                rules::blocked_by::list(self, now)
            } else {
                Vec::new()
            },
            stops_at,
            stop_rule,
            restorable_until: self.restorable_until(now),
            ends_at: rules::lifetime::ends_at(self),
            remaining_ms: rules::lifetime::remaining_ms(self, now),
            warn: rules::warning::due(stop, now),
        }
    }
}
