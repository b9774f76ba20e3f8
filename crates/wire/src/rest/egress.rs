//! What a box may reach outside.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::schema::Moment;

/// `egress` in a request. In a change it takes the place of the whole setting.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct EgressRequest {
    /// `open`: the internet, but for `denyOut`. `none`: nothing but `allowOut`. When absent: `none` with `allowOut` alone,
    /// else `open`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<EgressMode>,
    /// IPv4 addresses and CIDR ranges that it reaches in any case; at most 1000. Private networks are reached only where a
    /// range within them is named here.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub allow_out: Vec<String>,
    /// Those that it does not reach, unless `allowOut` has them; at most 1000.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub deny_out: Vec<String>,
}

/// What a box reaches that no list names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EgressMode {
    /// Nothing.
    None,
    /// The internet.
    Open,
}

/// `egress` of a box: what it may reach, and whether that holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EgressView {
    /// What it reaches that no list names.
    pub mode: EgressMode,
    /// What it reaches in any case.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allow_out: Vec<String>,
    /// What it does not reach.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub deny_out: Vec<String>,
    /// There while none of that could be made: the box runs and reaches nothing outside (rule 5.12).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<EgressFailureView>,
}

/// Why a box reaches nothing outside although it may.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EgressFailureView {
    /// What went wrong.
    pub error: String,
    /// When it is tried again; absent while it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Moment>")]
    pub retry_at: Option<Timestamp>,
}
