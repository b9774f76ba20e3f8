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
mod operations;
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
use std::sync::{Arc, OnceLock};

use axum::Router;
use axum::extract::{FromRequestParts, Request};
use axum::http::request::Parts;
use axum::middleware::from_fn_with_state;
use axum::routing::{MethodRouter, any, get};

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
    /// `/openapi.json`, once somebody asked for it.
    document: Arc<OnceLock<bytes::Bytes>>,
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
            document: Arc::default(),
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
    let is_test = app.commands.clock().is_test();
    paths(any(mcp), is_test)
        .fallback(error::nowhere)
        .method_not_allowed_fallback(error::no_such_method)
        .layer(from_fn_with_state(app.clone(), e2b::traffic))
        .with_state(app)
}

/// Every path that leads somewhere: the calls of the boxes dialect by their table, the other dialects, and what browsers load.
fn paths(mcp: MethodRouter<App>, is_test: bool) -> Router<App> {
    Router::new()
        .route("/", get(dashboard::page))
        .route("/app", get(dashboard::page))
        .route("/app/", get(dashboard::page))
        .route("/app/{*path}", get(dashboard::part))
        .route("/logs.js", get(collect::script))
        .route("/mcp", mcp)
        .merge(operations::routes(operations::table(is_test)))
        .merge(e2b::routes())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// The paths of a router, which it tells only those who print it.
    fn of(router: &Router<App>) -> BTreeSet<String> {
        let printed = format!("{router:?}");
        let (_, node) = printed.split_once("paths: {").unwrap();
        let (listed, _) = node.split_once("} }").unwrap();
        let paths = listed.split('"').skip(1).step_by(2);
        paths.map(str::to_owned).collect()
    }

    #[test]
    fn every_path_below_v1_is_in_the_document_and_none_else() {
        for is_test in [false, true] {
            let router = paths(any(async || ""), is_test);
            let routed = of(&router);
            assert!(
                routed.contains("/mcp") && routed.contains("/sandboxes"),
                "{routed:?}"
            );
            let table = operations::table(is_test);
            let document = operations::document(&table, "cookie");
            let described: BTreeSet<String> = document["paths"]
                .as_object()
                .unwrap()
                .keys()
                .cloned()
                .collect();
            let below = |paths: &BTreeSet<String>| -> BTreeSet<String> {
                let below = paths.iter().filter(|path| path.starts_with("/v1"));
                below.cloned().collect()
            };
            assert_eq!(below(&routed), below(&described));
            assert!(described.is_subset(&routed), "{described:?}");
        }
    }
}
