//! The tools about where the names in a box lead, and what people see first of it.

use icebox_wire::rest;
use rmcp::model::JsonObject;

use super::params;
use super::tools::{Asking, Outcome, fields};
use crate::api::App;
use crate::api::input::arguments;
use crate::api::wiring::table;

pub(super) async fn wire(app: &App, asking: &Asking, args: JsonObject) -> Outcome {
    let args: params::Wire = arguments(args)?;
    let request = rest::WireRequest {
        service: args.service,
        mode: args.mode,
        port: args.port,
        target_port: args.target_port,
        external_base_url: args.external_base_url,
        from_box: args.from_box,
        version: args.version,
        env: args.env.unwrap_or_default(),
        web: args.web,
        scene_paths: args.scene_paths,
    };
    let view = app.commands.wire(&asking.caller, &args.id, request).await?;
    fields(table(app, &view))
}

pub(super) async fn scene(app: &App, asking: &Asking, args: JsonObject) -> Outcome {
    let args: params::Scene = arguments(args)?;
    let request = rest::SceneRequest {
        service: args.service,
        url: args.url,
    };
    let view = app
        .commands
        .set_scene(&asking.caller, &args.id, request)
        .await?;
    fields(app.show(&asking.caller, &view))
}
