//! Links by which whoever has one looks at a port of a box: what is asked for and answered.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::schema::Moment;

/// Body of `POST /v1/boxes/{id}/link`; may be left out. Without `port` and `service`: the first service.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct LinkRequest {
    /// How long the link is good, in seconds, 1 to 2592000; a day when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttl_sec: Option<u32>,
    /// The port it leads to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// Or the service.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service: Option<String>,
}

/// Answer to it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LinkResponse {
    /// Lets whoever opens it in a browser look at that port, private or not.
    pub url: String,
    /// Until then.
    #[schemars(with = "Moment")]
    pub expires_at: Timestamp,
}
