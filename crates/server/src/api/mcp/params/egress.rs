//! What tools take about the way out of a box.

use icebox_wire::rest;
use schemars::JsonSchema;
use serde::Deserialize;

/// What a box may reach outside. Private networks only where `allowOut` names a range within them; the host, other boxes and
/// cloud metadata never.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in super::super) struct Egress {
    /// `open`: the internet, but for `denyOut`; `none`: nothing but `allowOut`.
    mode: Option<EgressMode>,
    /// IPv4 addresses and CIDR ranges.
    #[schemars(length(max = 1_000))]
    allow_out: Option<Vec<String>>,
    /// The same; `allowOut` beats it.
    #[schemars(length(max = 1_000))]
    deny_out: Option<Vec<String>>,
}

/// What it reaches that no list names.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum EgressMode {
    Open,
    None,
}

impl Egress {
    pub(super) fn into_rest(self) -> rest::EgressRequest {
        rest::EgressRequest {
            mode: self.mode.map(|mode| match mode {
                EgressMode::Open => rest::EgressMode::Open,
                EgressMode::None => rest::EgressMode::None,
            }),
            allow_out: self.allow_out.unwrap_or_default(),
            deny_out: self.deny_out.unwrap_or_default(),
        }
    }
}
