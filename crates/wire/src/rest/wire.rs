//! Where the names in a box lead: to its own programs, elsewhere, or to another box; and what people see first of it.

use std::collections::BTreeMap;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{ServiceView, schema::Moment};

/// Body of `POST /v1/boxes/{id}/wire`: one service, or `scenePaths`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct WireRequest {
    /// The service: one that the box has, or with `port` a new one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service: Option<String>,
    /// `box` or `external`; with `fromBox` or `externalBaseUrl` it goes without saying.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    /// The port of the name in this box, 1 to 65535. A service that the box has keeps its own when this is absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// Where the program really listens, or the port in the box of `fromBox`; `port` when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_port: Option<u16>,
    /// Where a service in mode `external` leads, or what `scenePaths` go to: `http://` or `https://`, a host, perhaps a path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub external_base_url: Option<String>,
    /// The id of another box of the account.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from_box: Option<String>,
    /// A published version of the service, by its label or id: it is started in a box of its own, to which the name leads. The
    /// box of the version that ran under the name before ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// With `version`, if that is started by a command: variables for it, which win over those of the environment.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Whether people open it in a browser. Alone it changes only that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub web: Option<bool>,
    /// Instead of a service: beginnings of paths of the scene's host, at most 32 of at most 200 bytes, that are forwarded to
    /// `externalBaseUrl`. An empty list takes them back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scene_paths: Option<Vec<String>>,
}

/// Answer of a wire call: where everything leads now.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct WireResponse {
    /// Its services.
    pub services: Vec<ServiceView>,
    /// What leads to other boxes.
    pub links: Vec<LinkOutView>,
    /// What people see first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scene_url: Option<String>,
    /// Paths of the scene's host that are somewhere else.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub scene_paths: Vec<String>,
    /// Where those are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scene_external_base_url: Option<String>,
    /// What the caller has to know besides.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notices: Vec<String>,
}

/// Body of `POST /v1/boxes/{id}/scene`: one of both.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct SceneRequest {
    /// A service of the box.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service: Option<String>,
    /// A page: at a service or port of the box (`http://web:3000/admin`, `http://localhost:3000/`), or anybody's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
}

/// Something that leads from a box to another one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct LinkOutView {
    /// The service whose name leads there.
    pub service: String,
    /// The id of the other box.
    #[serde(rename = "box")]
    pub id: String,
    /// The port in it.
    pub port: u16,
    /// `listening`; `waiting`, when a program has the port and it is tried again; `closed` while this box does not run.
    pub status: String,
    /// Connections that are open.
    pub open: u32,
    /// Connections that came to nothing since this box woke last.
    pub failed: u64,
    /// Why the latest of those did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
}

/// Something that leads from another box to one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct LinkInView {
    /// The id of the other box.
    #[serde(rename = "box")]
    pub id: String,
    /// Its service that leads here.
    pub service: String,
    /// The port here.
    pub port: u16,
}

/// Body of `POST /v1/environments/{env}/connections`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ConnectionRequest {
    /// What to call it: 1 to 40 lowercase letters, digits and dashes, a letter first.
    pub name: String,
    /// What boxes may reach over it; may be set later.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub endpoints: Vec<String>,
}

/// Body of `PUT /v1/environments/{env}/connections/{id}/endpoints`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EndpointsRequest {
    /// At most 64 of `host:port`, or `name=address:port` for what has no name of its own.
    pub endpoints: Vec<String>,
}

/// A way from the boxes of an environment into networks that this server reaches.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ConnectionView {
    /// Its id.
    pub id: String,
    /// What it is called.
    pub name: String,
    /// Whether the server reached all of it when it last looked, at most 10 s ago.
    pub online: bool,
    /// How long the farthest took to answer then, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rtt_ms: Option<u64>,
    /// What boxes reach over it.
    pub hosts: Vec<EndpointView>,
    /// When it was made.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Moment>")]
    pub created_at: Option<Timestamp>,
}

/// Something that boxes reach.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct EndpointView {
    /// As it was given.
    pub endpoint: String,
    /// Whether the server reached it when it last looked.
    pub online: bool,
    /// How long that took, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rtt_ms: Option<u64>,
    /// Why not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}
