//! Rules 7.2 to 7.8: which conversation uses a box, and whether it is still there. Owns the presence of a
//! conversation and the `agent` object; keeping presences is the engine's.

use alloc::boxed::Box;

use crate::rules::Rule;
use crate::sandbox::Sandbox;
use crate::state::State;
use crate::time::{HOUR, MIN, Ms, SEC, Time};
use crate::turn::Turn;

/// The rule.
pub const RULE: Rule = Rule {
    number: "7.5",
    also: &["7.2", "7.3", "7.6", "7.7", "7.8", "2.7"],
    name: "conversation",
    elsewhere: None,
    title: "Whether the conversation is still there",
    sentence: "A box remembers the conversation that last called a tool on it. It is `left` once that conversation \
               said so or sent no heartbeat for over 3 minutes, else `idle` after 1 hour without use, else `away` while \
               frozen or unused for the freeze time, else `working`. A conversation that never sent a heartbeat is \
               never `left`. A client that starts anew is a new conversation, and any conversation of the account may go \
               on with a box: then it is the one that the box remembers.",
};

/// A conversation that was silent for longer than this is gone (7.2).
pub const SILENT_MS: Ms = 3 * MIN;
/// A box unused for this long is `idle` (7.5).
pub const IDLE_MS: Ms = HOUR;
/// The freeze time of a box that never freezes by itself, for `away`.
const USUAL_FREEZE_MS: Ms = 10 * MIN;

/// Whether a conversation is there. Kept by the engine for every agent id of an account.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Presence {
    /// Its latest heartbeat, moved by gaps (3.6).
    pub heartbeat: Option<Time>,
    /// It said that it leaves, and sent no heartbeat since.
    pub left: bool,
}

impl Presence {
    /// A heartbeat came; it brings a conversation back that had left.
    pub fn beat(&mut self, now: Time) {
        self.heartbeat = Some(now);
        self.left = false;
    }

    /// It said that it leaves.
    pub fn leave(&mut self) {
        self.left = true;
    }

    /// Nobody could send a heartbeat for `ms` milliseconds before `now` (3.6).
    pub fn gap(&mut self, now: Time, ms: Ms) {
        self.heartbeat = self
            .heartbeat
            .map(|heartbeat| heartbeat + crate::step::moved(0, heartbeat, ms, now));
    }

    /// Whether it is gone.
    #[must_use]
    pub fn is_gone(&self, now: Time) -> bool {
        self.left
            || self
                .heartbeat
                .is_some_and(|heartbeat| now.since(heartbeat) > SILENT_MS)
    }
}

/// The `agent` object of a live box.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AgentView {
    /// What its conversation is doing.
    pub state: AgentState,
    /// Seconds since its last use or start; 0 while it is in use.
    pub idle_sec: i64,
    /// Whoever used it last gave no id.
    pub untracked: bool,
}

/// What a conversation is doing, to its box.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AgentState {
    /// Using it.
    Working,
    /// Busy elsewhere.
    Away,
    /// Has not used it for an hour.
    Idle,
    /// Closed.
    Left,
}

impl AgentState {
    /// Its name in the API.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Working => "working",
            Self::Away => "away",
            Self::Idle => "idle",
            Self::Left => "left",
        }
    }
}

impl Sandbox {
    /// The `agent` object; `None` unless the box is live (2.7). `presence` is that of [`crate::sandbox::Agent::id`].
    #[must_use]
    pub fn agent_view(&self, now: Time, presence: Option<Presence>) -> Option<AgentView> {
        if !self.is_live() {
            return None;
        }
        let idle_ms = self.idle_ms(now);
        let untracked = self.agent.untracked;
        let left = !untracked && presence.is_some_and(|presence| presence.is_gone(now));
        let away_ms = self.policy.freeze_after_ms.unwrap_or(USUAL_FREEZE_MS);
        let frozen = match &self.state {
            State::Frozen(frozen) => !frozen.wake,
            State::Freezing { wake, .. } => !wake,
            State::Starting { .. }
            | State::Ready
            | State::Thawing { .. }
            | State::Releasing { .. }
            | State::Stopping { .. }
            | State::Terminated { .. }
            | State::Interrupted { .. } => false,
        };
        let state = if left {
            AgentState::Left
        } else if idle_ms >= IDLE_MS {
            AgentState::Idle
        } else if frozen || idle_ms >= away_ms {
            AgentState::Away
        } else {
            AgentState::Working
        };
        Some(AgentView {
            state,
            idle_sec: idle_ms / SEC,
            untracked,
        })
    }

    /// How long it has been unused, in milliseconds, gaps left out (3.6); 0 while it is in use (3.7).
    #[must_use]
    pub fn idle_ms(&self, now: Time) -> Ms {
        if self.in_use() {
            0
        } else {
            now.since(self.idle_since())
        }
    }
}

/// A call came from `agent`; without an id the box keeps the one it had (7.3).
pub(crate) fn called(turn: &mut Turn<'_>, agent: Option<Box<str>>) {
    let untracked = agent.is_none();
    let known = untracked || agent == turn.sb.agent.id;
    if known && untracked == turn.sb.agent.untracked {
        return;
    }
    turn.sb.agent.untracked = untracked;
    if !untracked {
        turn.sb.agent.id = agent;
    }
    turn.touch();
}
