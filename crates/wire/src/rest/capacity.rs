//! Room on the host, as slots and in its parts, and the queue for it (rules 5.9, 13.6, 14.1). Owns the fields.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::schema::Moment;

/// The room of a host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CapacityView {
    /// Boxes that are up, or on their way, and how many wait.
    pub slots: SlotsView,
    /// The memory limits of boxes in RAM, frozen ones there included, in MiB.
    pub memory_mb: PartView<u64>,
    /// The CPUs of boxes that are up.
    pub cpus: PartView<f64>,
    /// What each account may have at most, where it is less than all.
    #[serde(default)]
    pub account: AccountLimitsView,
    /// The caller's boxes that wait, oldest first; at most 100.
    #[serde(default)]
    pub queue: Vec<QueuedView>,
}

/// Places for boxes that are up (rule 13.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SlotsView {
    /// How many are taken.
    pub running: u64,
    /// How many there are.
    pub maximum: u64,
    /// How many boxes wait for one, of all accounts.
    pub waiting: u64,
}

/// A part of the room.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "PartViewOf_{T}")]
pub struct PartView<T> {
    /// How much is taken.
    pub taken: T,
    /// How much there is.
    pub maximum: T,
}

/// What an account may have at a time; a part without a limit of its own is absent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AccountLimitsView {
    /// Boxes that are up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boxes: Option<u64>,
    /// Memory of its boxes in RAM, in MiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_mb: Option<u64>,
    /// CPUs of its boxes that are up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus: Option<f64>,
}

/// A box that waits for room.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct QueuedView {
    /// Its id; a new box has it already, but no record.
    #[serde(rename = "box")]
    pub id: String,
    /// `start`, `restore` or `wake`; readers must tolerate more.
    pub wanted: String,
    /// Its place.
    #[serde(flatten)]
    pub place: WaitView,
}

/// A place in the queue for room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WaitView {
    /// How many boxes are before it.
    pub before: u64,
    /// Since when it waits.
    #[schemars(with = "Moment")]
    pub since: Timestamp,
    /// When it gives up at the latest.
    #[schemars(with = "Moment")]
    pub until: Timestamp,
}
