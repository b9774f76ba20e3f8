//! Snapshots and forks on the wire.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{BoxView, ErrorBody, schema::Moment};

/// `POST /v1/boxes/{id}/snapshots`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct SnapshotRequest {
    /// A name that the account's latest snapshot of that name has: 1 to 60 letters, digits, `-`, `_` and `.`, perhaps with
    /// `:` and a tag of the same behind it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// With the memory, so that programs go on in boxes made from it; `false`: the files alone. When absent: with the memory
    /// if the box has any that can be copied.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<bool>,
}

/// A snapshot.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SnapshotView {
    /// Its id: `snap` and 16 letters and digits.
    pub id: String,
    /// Its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The box it was made of, which may be long gone.
    #[serde(rename = "box")]
    pub source: String,
    /// When.
    #[schemars(with = "Moment")]
    pub created_at: Timestamp,
    /// Whether programs go on in boxes made from it; otherwise it holds files alone.
    pub memory: bool,
    /// What it takes up, in bytes. What it shares with others counts in full.
    pub bytes: u64,
    /// The image below its files.
    pub image: String,
    /// The memory of the box, in MiB. A box that goes on from its memory needs as much.
    pub memory_mb: u64,
}

/// `GET /v1/snapshots`: the newest first.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SnapshotList {
    /// The account's snapshots.
    pub snapshots: Vec<SnapshotView>,
}

/// `POST /v1/boxes/{id}/fork`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ForkRequest {
    /// How many, 1 to 20; 1 when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<u32>,
    /// A name for people; several get a number behind it. The box's own when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// What came of a fork: as many as were asked for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ForkResponse {
    /// One each.
    pub forks: Vec<Fork>,
}

/// One fork: a box, or why there is none.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Fork {
    /// The new box.
    #[serde(default, rename = "box", skip_serializing_if = "Option::is_none")]
    pub made: Option<Box<BoxView>>,
    /// Why it could not be started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorBody>,
}
