//! The boxes dialect over HTTP. Owns paths, reading requests and writing answers; whatever is asked goes to
//! [`crate::commands`], and nothing here changes a box.

mod account;
mod boxes;
mod capacity;
mod collect;
mod dashboard;
pub(crate) mod e2b;
mod error;
mod events;
mod files;
mod input;
mod keep;
mod links;
mod mcp;
mod metrics;
mod ops;
mod procs;
mod projects;
mod session;
mod snapshots;
mod terminal;
mod view;
mod webhooks;
mod who;
mod wiring;

use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::{FromRequestParts, Request};
use axum::http::request::Parts;
use axum::middleware::from_fn_with_state;
use axum::routing::{any, delete, get, post, put};

use crate::commands::Commands;
use crate::edge::Edge;
use crate::edge::forward::Arrival;
use crate::logs::Logs;
use crate::sessions::Sessions;
use crate::store::Keys;
use crate::webhooks::Webhooks;
use who::WithKey;

/// What every handler has.
#[derive(Clone)]
pub struct App {
    commands: Commands,
    webhooks: Webhooks,
    logs: Logs,
    edge: Edge,
    keys: Arc<Keys>,
    sessions: Sessions,
    host: Arc<str>,
}

impl App {
    /// Puts it together; `host` is what views call this machine.
    #[must_use]
    pub fn new(
        commands: Commands,
        edge: Edge,
        webhooks: Webhooks,
        logs: Logs,
        keys: Arc<Keys>,
        sessions: Sessions,
        host: &str,
    ) -> Self {
        Self {
            commands,
            edge,
            webhooks,
            logs,
            keys,
            sessions,
            host: host.into(),
        }
    }
}

/// The address that a request came from, if it came over a connection.
struct Peer(Option<IpAddr>);

impl FromRequestParts<App> for Peer {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &App) -> Result<Self, Infallible> {
        let arrival = parts.extensions.get::<Arrival>();
        Ok(Self(arrival.map(|arrival| arrival.peer.ip())))
    }
}

/// All paths.
pub fn router(app: App) -> Router {
    let mcp = mcp::Mcp::new(app.clone());
    let mcp = async move |who: WithKey, request: Request| mcp.serve(who.caller, request).await;
    let mut router = Router::new()
        .route("/", get(dashboard::page))
        .route("/app", get(dashboard::page))
        .route("/app/", get(dashboard::page))
        .route("/app/{*path}", get(dashboard::part))
        .route("/healthz", get(ops::healthz))
        .route("/readyz", get(ops::readyz))
        .route("/metrics", get(metrics::metrics))
        .route("/mcp", any(mcp))
        .route("/v1/host", get(ops::host))
        .route("/v1/account", get(account::own))
        .route("/v1/accounts", get(account::list).post(account::make))
        .route("/v1/accounts/{name}", get(account::one))
        .route(
            "/v1/accounts/{name}/keys",
            get(account::keys).post(account::add_key),
        )
        .route("/v1/accounts/{name}/keys/revoke", post(account::revoke_key))
        .route("/v1/accounts/{name}/credits", post(account::set_credits))
        .route(
            "/v1/session",
            get(session::show)
                .post(session::sign_in)
                .delete(session::sign_out),
        )
        .route("/v1/session/links", post(session::link))
        .route("/v1/events", get(events::events))
        .route("/v1/webhooks", get(webhooks::list).post(webhooks::create))
        .route(
            "/v1/webhooks/{id}",
            get(webhooks::get)
                .patch(webhooks::patch)
                .delete(webhooks::remove),
        )
        .route("/v1/webhooks/{id}/test", post(webhooks::test))
        .route("/v1/webhooks/{id}/deliveries", get(webhooks::deliveries))
        .route("/logs.js", get(collect::script))
        .route("/v1/logs", post(collect::take).options(collect::preflight))
        .route("/v1/projects", get(projects::list).post(projects::create))
        .route(
            "/v1/projects/{project}",
            get(projects::one).delete(projects::remove),
        )
        .route("/v1/projects/{project}/rotate", post(projects::rotate))
        .route(
            "/v1/projects/{project}/sourcemaps",
            post(projects::source_maps),
        )
        .route("/v1/projects/{project}/logs", get(projects::search))
        .route("/v1/projects/{project}/logs/errors", get(projects::errors))
        .route("/v1/projects/{project}/logs/tail", get(projects::tail))
        .route("/v1/agents/{id}/heartbeat", post(ops::heartbeat))
        .route("/v1/agents/{id}/leave", post(ops::leave))
        .route("/v1/boxes", get(boxes::list).post(boxes::start))
        .route(
            "/v1/boxes/{id}",
            get(boxes::status).patch(boxes::patch).delete(boxes::stop),
        )
        .route("/v1/boxes/{id}/snapshots", post(snapshots::make))
        .route("/v1/boxes/{id}/fork", post(snapshots::fork))
        .route("/v1/snapshots", get(snapshots::list))
        .route(
            "/v1/snapshots/{id}",
            get(snapshots::one).delete(snapshots::remove),
        )
        .route("/v1/boxes/{id}/freeze", post(boxes::freeze))
        .route("/v1/boxes/{id}/wake", post(boxes::wake))
        .route("/v1/boxes/{id}/stop", post(boxes::stop))
        .route(
            "/v1/boxes/{id}/link",
            post(links::make).delete(links::revoke),
        )
        .route("/v1/boxes/{id}/sync", post(files::sync))
        .route("/v1/boxes/{id}/files", get(files::read).put(files::write))
        .route("/v1/boxes/{id}/terminal", get(terminal::open))
        .route("/v1/secrets", get(keep::secrets))
        .route(
            "/v1/secrets/{name}",
            put(keep::set_secret).delete(keep::remove_secret),
        )
        .route(
            "/v1/environments",
            get(keep::environments).post(keep::make_environment),
        )
        .route("/v1/environments/{name}", delete(keep::remove_environment))
        .route(
            "/v1/environments/{name}/services/{service}",
            put(keep::set_service).delete(keep::remove_service),
        )
        .route("/v1/environments/{name}/connections", post(wiring::connect))
        .route(
            "/v1/environments/{name}/connections/{id}",
            delete(wiring::disconnect),
        )
        .route(
            "/v1/environments/{name}/connections/{id}/endpoints",
            put(wiring::set_endpoints),
        )
        .route("/v1/boxes/{id}/wire", post(wiring::wire))
        .route("/v1/boxes/{id}/scene", post(wiring::scene))
        .route("/v1/versions", get(keep::versions).post(keep::publish))
        .route("/v1/feedback", get(keep::all_feedback).post(keep::feedback))
        .route("/v1/boxes/{id}/secrets", post(keep::give))
        .route("/v1/boxes/{id}/build", post(keep::build))
        .route("/v1/boxes/{id}/say", post(keep::say))
        .route(
            "/v1/boxes/{id}/messages",
            get(keep::messages).post(keep::leave_message),
        )
        .route("/v1/boxes/{id}/messages/received", post(keep::received))
        .route("/v1/downloads/{token}", get(files::handed_out))
        .route("/v1/boxes/{id}/exec", post(procs::exec))
        .route("/v1/boxes/{id}/procs", get(procs::list))
        .route("/v1/boxes/{id}/procs/{exec}", get(procs::one))
        .route("/v1/boxes/{id}/procs/{exec}/stop", post(procs::stop))
        .route("/v1/boxes/{id}/procs/{exec}/output", get(procs::output));
    if app.commands.clock().is_test() {
        let clock = get(ops::read_clock).post(ops::advance_clock);
        router = router.route("/v1/test/clock", clock);
    }
    let router = router.merge(e2b::routes());
    router
        .fallback(error::nowhere)
        .method_not_allowed_fallback(error::no_such_method)
        .layer(from_fn_with_state(app.clone(), e2b::traffic))
        .with_state(app)
}
