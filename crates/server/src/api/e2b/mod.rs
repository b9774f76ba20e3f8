//! The E2B dialect: the control plane that E2B's SDKs and command line speak, and the way of their requests into boxes.
//! Owns their paths, fields and words; whatever is asked goes to [`crate::commands`], and nothing here changes a box.

mod by_host;
mod create;
mod error;
mod files;
mod input;
mod list;
mod logs;
mod metrics;
mod network;
mod sandboxes;
mod snapshots;
mod templates;
mod traffic;
mod view;

use axum::Router;
use axum::routing::{any, get, post, put};

use super::App;

pub(crate) use by_host::address;
pub(super) use error::no_such_call;
pub(super) use traffic::traffic;

/// Its paths.
pub(super) fn routes() -> Router<App> {
    Router::new()
        .route("/sandboxes", get(list::running).post(create::v1))
        .route("/v2/sandboxes", get(list::paged).post(create::v2))
        .route("/sandboxes/metrics", get(metrics::of_many))
        .route(
            "/sandboxes/{id}",
            get(sandboxes::info).delete(sandboxes::kill),
        )
        .route("/sandboxes/{id}/timeout", post(sandboxes::set_timeout))
        .route("/sandboxes/{id}/refreshes", post(sandboxes::refresh))
        .route("/sandboxes/{id}/pause", post(sandboxes::pause))
        .route("/sandboxes/{id}/connect", post(sandboxes::connect_v1))
        .route("/v2/sandboxes/{id}/connect", post(sandboxes::connect_v2))
        .route("/sandboxes/{id}/resume", post(sandboxes::resume))
        .route("/sandboxes/{id}/network", put(network::replace))
        .route("/sandboxes/{id}/metrics", get(metrics::of_one))
        .route("/sandboxes/{id}/logs", get(logs::v1))
        .route("/v2/sandboxes/{id}/logs", get(logs::v2))
        .route("/sandboxes/{id}/fork", post(snapshots::fork))
        .route("/sandboxes/{id}/snapshots", post(snapshots::make))
        .route("/snapshots", get(snapshots::list))
        .route("/templates", get(templates::list).post(error::not_yet))
        .route("/v2/templates", get(templates::list).post(error::not_yet))
        .route(
            "/templates/{id}",
            get(templates::one)
                .delete(templates::delete)
                .post(error::not_yet)
                .patch(error::not_yet),
        )
        .route("/templates/aliases/{alias}", get(templates::alias))
        .route("/templates/tags", any(error::not_yet))
        .route("/templates/{id}/{*rest}", any(error::not_yet))
        .route("/v2/templates/{*rest}", any(error::not_yet))
        .route("/v3/templates", any(error::not_yet))
        .route("/v3/templates/{*rest}", any(error::not_yet))
        .route("/volumes", any(error::not_yet))
        .route("/volumes/{*rest}", any(error::not_yet))
        .route("/volumecontent/{*rest}", any(error::not_yet))
        .route("/secrets", any(error::not_yet))
        .route("/secrets/{*rest}", any(error::not_yet))
        .route("/files", get(files::signed).post(files::signed))
}
