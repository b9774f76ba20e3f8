//! Where the names in a box lead (`sandbox_wire`): to its own programs, to a server elsewhere, to another box of the account.
//! Owns what of that fits together. The record is what counts; what is open in the box follows from it ([`crate::wires`]).

use std::sync::Arc;

use icebox_lifecycle::BoxId;
use icebox_wire::rest::{ServiceRequest, WireRequest};

use super::check::{self, SERVICES, unfit};
use super::trouble::{Kind, Trouble};
use super::versions::run;
use super::{Caller, Commands, ask, to_its_end};
use crate::edge::is_box_host;
use crate::engine::{Patch, View};
use crate::outside::Target;
use crate::record::{Elsewhere, Leads, Record, Scene, Service};
use crate::store::{Ending, HistoryStep, SUMMARY_LEN, cut};

/// The most paths of a scene that are forwarded.
const MOST_PATHS: usize = 32;
/// The longest of them, in bytes.
const PATH_LEN: usize = 200;
/// What a wire call changes.
enum Change {
    Service(Service),
    ScenePaths(Option<Elsewhere>),
}

/// Where a name is to lead, as it was asked for.
#[derive(Clone, Debug, Default)]
pub(super) struct Wanted {
    pub(super) mode: Option<String>,
    pub(super) port: u16,
    pub(super) target_port: Option<u16>,
    pub(super) external_base_url: Option<String>,
    pub(super) from_box: Option<String>,
}

impl Commands {
    /// Makes a name of a box lead somewhere, or paths of its scene. It is use, and wakes. Gives the box as it is then. What
    /// runs a version is started, or ended again, even if the caller goes away.
    pub async fn wire(
        &self,
        caller: &Caller,
        id: &str,
        request: WireRequest,
    ) -> Result<Arc<View>, Trouble> {
        run::without_version(&request)?;
        match &request.version {
            Some(version) if request.scene_paths.is_none() => {
                let view = self.find(caller, id)?;
                let (commands, caller) = (self.clone(), caller.clone());
                let version = version.clone();
                let wire = async move {
                    let wired = commands.wire_version(&caller, &view, &version, request);
                    wired.await
                };
                to_its_end(wire).await
            }
            Some(_) | None => self.wire_as(caller, id, &request, None).await,
        }
    }

    /// The same, but for versions. `detail` is what its step says of it, if not what follows from it.
    pub(super) async fn wire_as(
        &self,
        caller: &Caller,
        id: &str,
        request: &WireRequest,
        detail: Option<String>,
    ) -> Result<Arc<View>, Trouble> {
        let view = self.find(caller, id)?;
        // What cannot be is refused before anything wakes.
        let change = self.change(caller, &view, request)?;
        let (target, leads) = described(&change);
        let detail = detail.unwrap_or(leads);
        let change = move |record: &mut Record| apply(record, change);
        let again = || {
            let view = self.find(caller, id)?;
            self.change(caller, &view, request).map(drop)
        };
        let step = HistoryStep {
            at: self.0.clock.now(),
            exec: None,
            kind: "wire",
            summary: cut(&target, SUMMARY_LEN),
            note: None,
            detail: Some(detail.into()),
            target: None,
            ending: Ending::default(),
        };
        self.rewire(caller, view.id(), step, again, change).await
    }

    /// Changes the record of a box that is awake for it, and brings what is open in it up to date. `again` is asked once it
    /// is awake and nobody else changes anything of the kind.
    pub(super) async fn rewire(
        &self,
        caller: &Caller,
        id: BoxId,
        step: HistoryStep,
        again: impl Fn() -> Result<(), Trouble>,
        change: impl FnOnce(&mut Record) + Send + 'static,
    ) -> Result<Arc<View>, Trouble> {
        let (call, _) = self.acting(caller, id, false).await?;
        let done = async {
            let view = {
                let _alone = self.0.wiring.lock().await;
                again()?;
                let patch = Patch {
                    wiring: Some(Box::new(change)),
                    ..Patch::default()
                };
                let answer = self.0.engine.patch(id, patch).await;
                answer.map_err(|error| ask(error, id))?.view
            };
            self.0.boxds.wires().renew(id).await;
            Ok(view)
        };
        let done: Result<Arc<View>, Trouble> = done.await;
        let took = self.0.clock.now().since(step.at);
        let ending = Ending {
            ms: u64::try_from(took).ok(),
            error: done.as_ref().err().map(|trouble| trouble.text.clone()),
            ..Ending::default()
        };
        call.end_with(HistoryStep { ending, ..step }).await;
        done
    }

    fn change(
        &self,
        caller: &Caller,
        view: &View,
        request: &WireRequest,
    ) -> Result<Change, Trouble> {
        match (&request.service, &request.scene_paths) {
            (Some(name), None) => self.service(caller, view, name, request),
            (None, Some(paths)) => self.scene_paths(caller, paths, request),
            (Some(_), Some(_)) => {
                let limit = "left out when `service` is given";
                Err(Trouble::bad("scenePaths", limit))
            }
            (None, None) => {
                let text =
                    "`service` is required: the name that is to lead somewhere; or `scenePaths`";
                Err(Trouble::new(Kind::BadRequest, text).with("field", "service"))
            }
        }
        .map_err(
            |trouble| match Trouble::of_ended(view, self.0.clock.now()) {
                Some(ended) => ended,
                None => trouble,
            },
        )
    }

    fn service(
        &self,
        caller: &Caller,
        view: &View,
        name: &str,
        request: &WireRequest,
    ) -> Result<Change, Trouble> {
        let services = &view.record.services;
        let known = services.iter().find(|service| service.name == name);
        let port = match (request.port, known) {
            (Some(port), _) => port,
            (None, Some(known)) => known.port,
            (None, None) => {
                check::service_name("service", name)?;
                let text = format!(
                    "`port` is required: the box has no service `{name}` yet, and this would be its port"
                );
                return Err(Trouble::new(Kind::BadRequest, text).with("field", "port"));
            }
        };
        let leads_anew = request.mode.is_some()
            || request.target_port.is_some()
            || request.external_base_url.is_some()
            || request.from_box.is_some();
        let leads = match known {
            // Only its port or its mark changes.
            Some(known) if !leads_anew => {
                if request.port.is_none() && request.web.is_none() {
                    let text = format!(
                        "say where `{name}` is to lead: `mode`, `externalBaseUrl` or `fromBox`; or set `port` or `web`"
                    );
                    return Err(Trouble::new(Kind::BadRequest, text).with("field", "mode"));
                }
                known.leads.clone()
            }
            Some(_) | None => {
                let external = known.and_then(|known| match &known.leads {
                    Leads::External(url) => Some(url.to_string()),
                    Leads::Own | Leads::OwnAt(_) | Leads::Link { .. } => None,
                });
                let is_external = request.mode.as_deref() == Some("external");
                let wanted = Wanted {
                    mode: request.mode.clone(),
                    port,
                    target_port: request.target_port,
                    external_base_url: request
                        .external_base_url
                        .clone()
                        .or_else(|| external.filter(|_| is_external)),
                    from_box: request.from_box.clone(),
                };
                self.leads(caller, Some(view.id()), &wanted)?
            }
        };
        let service = Service {
            name: name.to_owned(),
            port,
            web: request
                .web
                .or(known.map(|known| known.web))
                .unwrap_or(false),
            leads,
        };
        check::service_name("service", name)?;
        check::port("port", port)?;
        let others = services.iter().filter(|other| other.name != name);
        let mut all: Vec<Service> = others.cloned().collect();
        all.push(service.clone());
        check::together("port", &all)?;
        Ok(Change::Service(service))
    }

    /// The port of a name that is asked for, if that fits.
    pub(super) fn port_of(
        &self,
        caller: &Caller,
        view: &View,
        request: &WireRequest,
    ) -> Result<u16, Trouble> {
        match self.change(caller, view, request)? {
            Change::Service(service) => Ok(service.port),
            Change::ScenePaths(_) => Err(unfit("service")),
        }
    }

    /// Where a name leads that is asked for; `of` is the box, if it is there already.
    pub(super) fn leads(
        &self,
        caller: &Caller,
        of: Option<BoxId>,
        wanted: &Wanted,
    ) -> Result<Leads, Trouble> {
        if let Some(port) = wanted.target_port {
            check::port("targetPort", port)?;
        }
        let external = match wanted.mode.as_deref() {
            None => None,
            Some("box") => Some(false),
            Some("external") => Some(true),
            Some(_) => return Err(unfit("mode")),
        };
        match (external, &wanted.from_box, &wanted.external_base_url) {
            (_, Some(_), Some(_)) => {
                let limit = "left out when `fromBox` is given";
                Err(Trouble::bad("externalBaseUrl", limit))
            }
            (Some(_), Some(_), None) => {
                let limit = "left out when `fromBox` is given, which makes it a link";
                Err(Trouble::bad("mode", limit))
            }
            (None, Some(other), None) => {
                let port = wanted.target_port.unwrap_or(wanted.port);
                self.link_to(caller, of, other, port)
            }
            (Some(false), None, Some(_)) => {
                let limit = "left out in mode `box`, where the name is the box's own program";
                Err(Trouble::bad("externalBaseUrl", limit))
            }
            (Some(true) | None, None, Some(url)) => {
                if wanted.target_port.is_some() {
                    let limit =
                        "left out in mode `external`: the port there is part of `externalBaseUrl`";
                    return Err(Trouble::bad("targetPort", limit));
                }
                let url = self.base_url(caller, url)?;
                Ok(Leads::External(url.into()))
            }
            (Some(true), None, None) => {
                let text =
                    "`externalBaseUrl` is required in mode `external`: where the name is to lead";
                Err(Trouble::new(Kind::BadRequest, text).with("field", "externalBaseUrl"))
            }
            (Some(false) | None, None, None) => Ok(match wanted.target_port {
                Some(port) if port != wanted.port => Leads::OwnAt(port),
                Some(_) | None => Leads::Own,
            }),
        }
    }

    fn link_to(
        &self,
        caller: &Caller,
        of: Option<BoxId>,
        other: &str,
        port: u16,
    ) -> Result<Leads, Trouble> {
        check::port("targetPort", port)?;
        let view = self.find(caller, other);
        let view = view.map_err(|trouble| {
            Trouble::bad(
                "fromBox",
                format!("another box of the account: {}", trouble.text),
            )
        })?;
        if Some(view.id()) == of {
            let limit = "another box: for this one's own program use mode `box` with `targetPort`";
            return Err(Trouble::bad("fromBox", limit));
        }
        if let Some(ended) = Trouble::of_ended(&view, self.0.clock.now()) {
            return Err(Trouble::bad(
                "fromBox",
                format!("a box that can wake: {}", ended.text),
            ));
        }
        let mut services = view.record.services.iter();
        let elsewhere =
            services.find(|service| service.port == port && service.listens_on().is_none());
        if let Some(service) = elsewhere {
            let limit = format!(
                "a box whose own program is on port {port}: there `{}` leads on to somewhere else; wire this name to that",
                service.name
            );
            return Err(Trouble::bad("fromBox", limit));
        }
        Ok(Leads::Link {
            id: view.id().as_str().into(),
            port,
        })
    }

    /// An address that requests may be forwarded to.
    fn base_url(&self, caller: &Caller, url: &str) -> Result<String, Trouble> {
        let bad = |why: &str| {
            let limit = format!("`http://` or `https://`, a host, and perhaps a path: {why}");
            Trouble::bad("externalBaseUrl", limit)
        };
        let target = Target::parse(url).map_err(bad)?;
        if target.path.contains('?') {
            return Err(bad("it has a query"));
        }
        if is_box_host(&target.host.to_ascii_lowercase(), &self.0.config.domain) {
            return Err(bad("it is the URL of a box; link to that with `fromBox`"));
        }
        if target.is_private_address() && !self.0.reach.private_too(caller.account) {
            return Err(bad(
                "its host is not on the public internet, and this account may have nothing else connected to",
            ));
        }
        Ok(url.trim_end_matches('/').to_owned())
    }

    fn scene_paths(
        &self,
        caller: &Caller,
        paths: &[String],
        request: &WireRequest,
    ) -> Result<Change, Trouble> {
        let others = [
            ("mode", request.mode.is_some()),
            ("port", request.port.is_some()),
            ("targetPort", request.target_port.is_some()),
            ("fromBox", request.from_box.is_some()),
            ("version", request.version.is_some()),
            ("web", request.web.is_some()),
        ];
        if let Some((field, _)) = others.iter().find(|(_, given)| *given) {
            return Err(Trouble::bad(field, "left out with `scenePaths`"));
        }
        let fits = |path: &String| {
            path.len() <= PATH_LEN
                && path.starts_with('/')
                && path.bytes().all(|byte| byte.is_ascii_graphic())
                && !path.contains(['?', '#', '%', '\\'])
                && !crate::edge::climbs(path)
        };
        if paths.len() > MOST_PATHS || !paths.iter().all(fits) {
            return Err(unfit("scenePaths"));
        }
        match (&request.external_base_url, paths.is_empty()) {
            (Some(url), false) => Ok(Change::ScenePaths(Some(Elsewhere {
                paths: paths.to_vec(),
                base_url: self.base_url(caller, url)?,
            }))),
            (None, true) => Ok(Change::ScenePaths(None)),
            (None, false) => {
                let text =
                    "`externalBaseUrl` is required with `scenePaths`: where they are forwarded to";
                Err(Trouble::new(Kind::BadRequest, text).with("field", "externalBaseUrl"))
            }
            (Some(_), true) => {
                let limit = "left out when no paths are forwarded any more";
                Err(Trouble::bad("externalBaseUrl", limit))
            }
        }
    }

    /// The services of a new box.
    pub(super) fn new_services(
        &self,
        caller: &Caller,
        services: Vec<ServiceRequest>,
        external_base_url: Option<&str>,
    ) -> Result<Vec<Service>, Trouble> {
        if external_base_url.is_some() && services.is_empty() {
            let limit = "given together with `services`, which lead there";
            return Err(Trouble::bad("externalBaseUrl", limit));
        }
        check::services(&services)?;
        let mut all = Vec::with_capacity(services.len());
        for service in services {
            let links = service.from_box.is_some() || service.version.is_some();
            if service.from_box.is_some() && service.version.is_some() {
                let limit =
                    "without `fromBox` when they have a `version`, which has a box of its own";
                return Err(Trouble::bad("services", limit));
            }
            let wanted = Wanted {
                mode: None,
                port: service.port,
                target_port: service.target_port,
                external_base_url: external_base_url.filter(|_| !links).map(str::to_owned),
                from_box: service.from_box,
            };
            all.push(Service {
                leads: self.leads(caller, None, &wanted)?,
                name: service.name,
                port: service.port,
                web: service.web,
            });
        }
        check::together("services", &all)?;
        Ok(all)
    }
}

/// What a step says of it: what leads somewhere else now, and where.
fn described(change: &Change) -> (String, String) {
    match change {
        Change::Service(service) => {
            let detail = match &service.leads {
                Leads::Own | Leads::OwnAt(_) => "box".to_owned(),
                Leads::External(_) => "external".to_owned(),
                Leads::Link { id, .. } => format!("link to {id}"),
            };
            (format!("{}:{}", service.name, service.port), detail)
        }
        Change::ScenePaths(Some(elsewhere)) => (
            format!("scene {}", elsewhere.paths.join(" ")),
            "external".to_owned(),
        ),
        Change::ScenePaths(None) => ("scene".to_owned(), "box".to_owned()),
    }
}

fn apply(record: &mut Record, change: Change) {
    match change {
        Change::Service(service) => {
            let services = &mut record.services;
            let known = services.iter().position(|known| known.name == service.name);
            match known {
                Some(at) => services[at] = service,
                None if services.len() < SERVICES => services.push(service),
                None => {}
            }
        }
        Change::ScenePaths(elsewhere) => {
            let scene = record.scene.take().unwrap_or_default();
            let scene = Scene {
                elsewhere,
                ..*scene
            };
            record.scene = (scene != Scene::default()).then(|| Box::new(scene));
        }
    }
}
