//! Where the names in a box lead: what is asked of that over REST, and how it is shown. Translates only.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use icebox_lifecycle::BoxId;
use icebox_wire::rest::{
    BoxView, ConnectionRequest, ConnectionView, EndpointsRequest, LinkInView, LinkOutView,
    OkResponse, SceneRequest, ServiceView, WireRequest, WireResponse,
};

use super::App;
use super::input::{Body, Params};
use super::operations::{Created, Param, Query};
use super::view::proxy_error;
use super::who::Admin;
use crate::commands::{Caller, Trouble};
use crate::edge::Failure;
use crate::engine::View;
use crate::record::{Leads, Service};

pub(super) async fn wire(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
    Body(request): Body<WireRequest>,
) -> Result<Json<WireResponse>, Trouble> {
    let view = app.commands.wire(&caller, &id, request).await?;
    let notices = app.commands.notices(&caller, BoxId::parse(&id));
    Ok(Json(WireResponse {
        notices,
        ..table(&app, &view)
    }))
}

pub(super) async fn scene(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
    Body(request): Body<SceneRequest>,
) -> Result<Json<BoxView>, Trouble> {
    let view = app.commands.set_scene(&caller, &id, request).await?;
    app.describe(&caller, &view).await.map(Json)
}

/// Whose environment it is.
pub(super) struct OfAccount;

impl Query for OfAccount {
    const PARAMS: &'static [Param] = &[Param::text(
        "account",
        "The account whose environment it is; the caller's own when absent.",
    )];
}

async fn owner(app: &App, caller: &Caller, params: &Params<OfAccount>) -> Result<Caller, Trouble> {
    app.commands.on_behalf(caller, params.get("account")).await
}

pub(super) async fn connect(
    State(app): State<App>,
    _: Admin,
    caller: Caller,
    Path(environment): Path<String>,
    params: Params<OfAccount>,
    Body(request): Body<ConnectionRequest>,
) -> Result<Created<ConnectionView>, Trouble> {
    let owner = owner(&app, &caller, &params).await?;
    let made = app.commands.make_connection(&owner, &environment, request);
    made.await.map(Created)
}

pub(super) async fn set_endpoints(
    State(app): State<App>,
    _: Admin,
    caller: Caller,
    Path((environment, id)): Path<(String, String)>,
    params: Params<OfAccount>,
    Body(request): Body<EndpointsRequest>,
) -> Result<Json<ConnectionView>, Trouble> {
    let owner = owner(&app, &caller, &params).await?;
    let set = app.commands;
    let set = set.set_endpoints(&owner, &environment, &id, &request.endpoints);
    set.await.map(Json)
}

pub(super) async fn disconnect(
    State(app): State<App>,
    _: Admin,
    caller: Caller,
    Path((environment, id)): Path<(String, String)>,
    params: Params<OfAccount>,
) -> Result<Json<OkResponse>, Trouble> {
    let owner = owner(&app, &caller, &params).await?;
    let removed = app.commands;
    removed.remove_connection(&owner, &environment, &id).await?;
    Ok(Json(OkResponse { ok: true }))
}

/// Where everything of a box leads.
pub(super) fn table(app: &App, view: &Arc<View>) -> WireResponse {
    let scene = view.record.scene.as_deref();
    let elsewhere = scene.and_then(|scene| scene.elsewhere.as_ref());
    WireResponse {
        services: services(app, view, &app.edge.failures(view.id())),
        links: links(app, view),
        scene_url: app.edge.urls().scene(view.id(), &view.record),
        scene_paths: elsewhere.map_or_else(Vec::new, |elsewhere| elsewhere.paths.clone()),
        scene_external_base_url: elsewhere.map(|elsewhere| elsewhere.base_url.clone()),
        notices: Vec::new(),
    }
}

/// The services of a box.
pub(super) fn services(
    app: &App,
    view: &View,
    failures: &BTreeMap<String, Failure>,
) -> Vec<ServiceView> {
    let id = view.id();
    let wires = app.commands.boxds().wires();
    let names_error = wires.names_error(id);
    let shown = |service: &Service| {
        let port = wires.shown(id, service.port);
        let to = service
            .link()
            .and_then(|(to, _)| app.commands.engine().views().get(to));
        let runs = to.as_ref().and_then(|to| to.record.runs.as_deref());
        ServiceView {
            name: service.name.clone(),
            port: service.port,
            target_port: match &service.leads {
                Leads::OwnAt(port) => Some(*port),
                Leads::Link { port, .. } if *port != service.port => Some(*port),
                Leads::Own | Leads::External(_) | Leads::Link { .. } => None,
            },
            mode: match &service.leads {
                Leads::Own | Leads::OwnAt(_) => "box",
                Leads::External(_) => "external",
                Leads::Link { .. } => "link",
            }
            .to_owned(),
            external_base_url: match &service.leads {
                Leads::External(url) => Some(url.to_string()),
                Leads::Own | Leads::OwnAt(_) | Leads::Link { .. } => None,
            },
            from_box: service.link().map(|(of, _)| of.to_string()),
            version: runs.map(|runs| runs.label.to_string()),
            version_id: runs.map(|runs| runs.version.to_string()),
            env: match (&to, runs) {
                (Some(to), Some(_)) => to.record.env.to_map(),
                (_, _) => BTreeMap::new(),
            },
            url: Some(app.edge.urls().of_service(id, service)),
            web: service.web,
            last_proxy_error: failures.get(&service.name).map(proxy_error),
            last_error: port
                .and_then(|port| port.last_error)
                .or_else(|| names_error.clone()),
        }
    };
    view.record.services.iter().map(shown).collect()
}

/// What leads from a box to others.
pub(super) fn links(app: &App, view: &View) -> Vec<LinkOutView> {
    let wires = app.commands.boxds().wires();
    let services = view.record.services.iter();
    let shown = services.filter_map(|service| {
        let (of, port) = service.link()?;
        let shown = wires.shown(view.id(), service.port);
        let status = shown.as_ref().map_or("closed", |shown| shown.status);
        let (open, failed, last_error) = match shown {
            Some(shown) => (shown.open, shown.failed, shown.last_error),
            None => (0, 0, None),
        };
        Some(LinkOutView {
            service: service.name.clone(),
            id: of.to_string(),
            port,
            status: status.to_owned(),
            open,
            failed,
            last_error,
        })
    });
    shown.collect()
}

/// What leads to a box from others.
pub(super) fn linked_from(app: &App, view: &View) -> Vec<LinkInView> {
    let id = view.id();
    let sources = app.commands.engine().views().linked_from(id);
    // A link that an owner wrote into a box of theirs says nothing about boxes of others.
    let own = sources
        .iter()
        .filter(|source| source.record.account == view.record.account);
    let shown = own.flat_map(|source| {
        let services = source.record.services.iter();
        services.filter_map(|service| {
            let (_, port) = service.link().filter(|(of, _)| *of == id)?;
            Some(LinkInView {
                id: source.id().to_string(),
                service: service.name.clone(),
                port,
            })
        })
    });
    shown.collect()
}
