//! What the tools about names and the scene take.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;

/// `sandbox_wire`.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::api::mcp) struct Wire {
    /// The box.
    pub(in crate::api::mcp) id: String,
    /// The name that is to lead somewhere: one of the box's services, or with `port` a new one.
    #[schemars(length(min = 1, max = 40))]
    pub(in crate::api::mcp) service: Option<String>,
    /// `box`: the box's own program. `external`: the server at `externalBaseUrl`. Leave it out with `fromBox`.
    #[schemars(extend("enum" = ["box", "external"]))]
    pub(in crate::api::mcp) mode: Option<String>,
    /// The port of the name in this box. A service that is there keeps its own.
    #[schemars(range(min = 1))]
    pub(in crate::api::mcp) port: Option<u16>,
    /// Where the program really listens, or the port in `fromBox`, if that is another one than `port`.
    #[schemars(range(min = 1))]
    pub(in crate::api::mcp) target_port: Option<u16>,
    /// Where `external` leads, or `scenePaths` go to: `http://` or `https://`, a host, perhaps a path. Paths are kept.
    pub(in crate::api::mcp) external_base_url: Option<String>,
    /// Another box of the account: `service:port` here is a port there. A connection wakes that box.
    pub(in crate::api::mcp) from_box: Option<String>,
    /// A published version of the service, by label or id: it is started in a box of its own, to which the name leads.
    pub(in crate::api::mcp) version: Option<String>,
    /// With `version`: variables for the command that starts it, over those of the environment.
    pub(in crate::api::mcp) env: Option<BTreeMap<String, String>>,
    /// Whether people open it in a browser. Alone it changes only that.
    pub(in crate::api::mcp) web: Option<bool>,
    /// Instead of `service`: beginnings of paths at `sceneUrl` that go to `externalBaseUrl` from now on; an empty list takes
    /// them back.
    #[schemars(length(max = 32))]
    pub(in crate::api::mcp) scene_paths: Option<Vec<String>>,
}

/// `sandbox_scene`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::api::mcp) struct Scene {
    /// The box.
    pub(in crate::api::mcp) id: String,
    /// The service that people see first. Give this or `url`.
    #[schemars(length(min = 1, max = 40))]
    pub(in crate::api::mcp) service: Option<String>,
    /// The page that they see first: one of the box, as programs in it write it (`http://localhost:3000/admin`), or any other.
    #[schemars(length(min = 1, max = 2_000))]
    pub(in crate::api::mcp) url: Option<String>,
}
