//! Starting a box, and bringing a stopped one back (rules 6.5, 14.1).

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use icebox_lifecycle::state::{End, FreezeCause};
use icebox_lifecycle::{BoxId, Command, Policy, State, Time};
use icebox_wire::rest::{ServiceRequest, StartRequest};

use super::trouble::{Kind, Trouble};
use super::versions::run::ToRun;
use super::{Caller, Commands, ask, check, room, snapshots, to_its_end, wait};
use crate::engine::{Admitted, NewBox, Patch, Patience, View};
use crate::random;
use crate::record::{Leads, Record, Runs, Service};

/// How long a start waits for its box; then it answers with the box as it is.
const START_LIMIT: Duration = Duration::from_secs(300);
/// How long a restore waits for a stop to be over.
const RESTORE_LIMIT: Duration = Duration::from_secs(90);

impl Commands {
    /// Starts a box and waits until it is ready, unless `wait` is false. It is done even if the caller goes away, unless the box
    /// waits for room.
    pub async fn start(
        &self,
        caller: &Caller,
        request: StartRequest,
    ) -> Result<Arc<View>, Trouble> {
        let (patience, _listens) = room::patience_of_listener(request.wait_for_capacity_sec)?;
        check::text("goal", request.goal.as_deref(), check::GOAL_LEN)?;
        check::name(request.name.as_deref())?;
        if let Some(id) = &request.restore {
            return self.restore(caller, id, &request, patience).await;
        }
        let waits = request.wait.unwrap_or(true);
        let (commands, caller) = (self.clone(), caller.clone());
        let begin = async move {
            let begun = commands.begin_box(&caller, request, patience, None, waits);
            begun.await
        };
        to_its_end(begin).await
    }

    /// Starts a new box, perhaps one that runs a version for another box.
    pub(super) async fn begin_box(
        &self,
        caller: &Caller,
        request: StartRequest,
        patience: Patience,
        runs: Option<Runs>,
        waits: bool,
    ) -> Result<Arc<View>, Trouble> {
        let environment = request.environment.clone();
        let gift = self.gift("secrets", caller, &request.secrets, environment.clone());
        let gift = gift.await?;
        let versions: Vec<_> = request.services.iter().filter_map(versioned).collect();
        let mut new = self.new_box(caller, request)?;
        let id = new.id;
        new.record.runs = runs.map(Box::new);
        let ran = self
            .run_declared(caller, &mut new, &versions, environment)
            .await?;
        let created = async {
            self.hand_over(id, gift).await?;
            let created = self.0.engine.patient(patience).create(new).await;
            created.map_err(|error| ask(error, id))
        };
        let answer = match created.await {
            Ok(answer) => answer,
            Err(trouble) => {
                self.take_back(id).await;
                for id in ran {
                    self.end_version(id).await;
                }
                return Err(trouble);
            }
        };
        if waits {
            self.until_started(answer.view).await
        } else {
            Ok(answer.view)
        }
    }

    /// Runs the versions that services of a new box are to be: their boxes, to which these lead then.
    async fn run_declared(
        &self,
        caller: &Caller,
        new: &mut NewBox,
        versions: &[(String, String)],
        environment: Option<String>,
    ) -> Result<Vec<BoxId>, Trouble> {
        let for_box = new.id;
        let services = &mut new.record.services;
        let declared: Vec<&mut Service> = services
            .iter_mut()
            .filter(|service| versions.iter().any(|(name, _)| *name == service.name))
            .collect();
        let port = |service: &Service| service.listens_on().unwrap_or(service.port);
        let to_run = declared
            .iter()
            .zip(versions)
            .map(|(service, (name, version))| ToRun {
                for_box,
                service: name,
                port: port(service),
                version,
                env: BTreeMap::new(),
                environment: environment.clone(),
            });
        let ran = self.run_versions(caller, to_run.collect()).await?;
        for (service, id) in declared.into_iter().zip(&ran) {
            service.leads = Leads::Link {
                id: id.as_str().into(),
                port: port(service),
            };
        }
        // Only now it is known that they lead somewhere else.
        match check::together("services", &new.record.services) {
            Ok(()) => Ok(ran),
            Err(trouble) => {
                for id in ran {
                    self.end_version(id).await;
                }
                Err(trouble)
            }
        }
    }

    /// Starts a box that a dialect with words of its own described, and waits until it is ready.
    pub async fn start_described(&self, new: NewBox) -> Result<Arc<View>, Trouble> {
        let id = new.id;
        let created = self.0.engine.create(new).await;
        let answer = created.map_err(|error| ask(error, id))?;
        self.until_started(answer.view).await
    }

    fn new_box(&self, caller: &Caller, request: StartRequest) -> Result<NewBox, Trouble> {
        check::env(&request.env)?;
        check::metadata(&request.metadata)?;
        let mut policy = match &request.policy {
            Some(asked) => check::policy(asked, &Policy::AGENT)?,
            None => Policy::AGENT,
        };
        if let Some(ms) = check::idle_timeout(request.idle_timeout_min)? {
            policy.idle_limit_ms = Some(ms);
        }
        let limits = &self.0.config.limits;
        let host = self.0.driver.capabilities();
        let begins = self.begin_with(caller, &request)?;
        let egress = request.egress.as_ref();
        let egress = egress.map(|asked| self.egress(caller.account, asked));
        let egress = egress.transpose()?;
        let external = request.external_base_url.as_deref();
        let services = self.new_services(caller, request.services, external)?;
        let mut record = Record {
            account: caller.account,
            name: request.name.map(Into::into),
            goal: request.goal.map(Into::into),
            image: check::image(request.image)?.into(),
            size: check::size(request.size.as_ref(), limits, &host)?,
            env: request.env.into(),
            metadata: request.metadata.into(),
            services,
            e2b: None,
            private: request.private.unwrap_or(false),
            egress: egress.clone().unwrap_or_else(|| self.usual_egress()),
            link_secret: None,
            origin: None,
            scene: None,
            runs: None,
        };
        if let Some((snapshot, memory)) = begins {
            let asked = request.size.unwrap_or_default();
            let size = check::size_of(&asked, &snapshot, memory, limits, &host)?;
            snapshots::continues(&mut record, &snapshot, memory, size);
            record.private = request.private.unwrap_or(snapshot.record.private);
            record.egress = egress.unwrap_or_else(|| snapshot.record.egress.clone());
        }
        Ok(NewBox {
            id: random::box_id(),
            record,
            policy: check::valid(policy)?,
            agent: caller.agent.clone(),
        })
    }

    pub(super) async fn until_started(&self, view: Arc<View>) -> Result<Arc<View>, Trouble> {
        let id = view.id();
        let started = self.until(id, |view| started_or_why_not(view, self.0.clock.now()));
        match tokio::time::timeout(START_LIMIT, started).await {
            Ok(ended) => ended,
            Err(_) => self
                .0
                .engine
                .views()
                .get(id)
                .ok_or_else(|| Trouble::no_such_box(id.as_str())),
        }
    }

    /// Any number of callers may ask at once: one restore, and all of them get the box.
    async fn restore(
        &self,
        caller: &Caller,
        id: &str,
        request: &StartRequest,
        patience: Patience,
    ) -> Result<Arc<View>, Trouble> {
        only_what_a_restore_takes(request)?;
        let id = self.find(caller, id)?.id();
        let limit = room::limit(&patience) + RESTORE_LIMIT;
        let engine = self.0.engine.patient(patience);
        let taken = tokio::time::timeout(limit, async {
            loop {
                let answer = engine.command(id, Command::Restore).await?;
                if answer.admitted != Admitted::Wait {
                    return Ok(answer);
                }
                self.change_after(&answer.view).await;
            }
        });
        let answer = match taken.await {
            Ok(taken) => taken.map_err(|error| ask(error, id))?,
            Err(_) => {
                return Err(Trouble::new(
                    Kind::Busy,
                    format!("box {id} is still being stopped; try again"),
                ));
            }
        };
        if request.goal.is_some() || request.name.is_some() {
            let patch = Patch {
                goal: request.goal.clone().map(Some),
                name: request.name.clone().map(Some),
                ..Patch::default()
            };
            self.0
                .engine
                .patch(id, patch)
                .await
                .map_err(|error| ask(error, id))?;
        }
        if request.wait.unwrap_or(true) {
            self.until_ready(id).await
        } else {
            Ok(answer.view)
        }
    }

    /// Waits until a box is not any more as it was in `view`.
    pub(super) async fn change_after(&self, view: &View) {
        let changed = |now: &Arc<View>| {
            if now.generation == view.generation {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        };
        self.0.engine.views().wait_for(view.id(), changed).await;
    }
}

/// The name of a service that is to be a version, and which one.
fn versioned(service: &ServiceRequest) -> Option<(String, String)> {
    Some((service.name.clone(), service.version.clone()?))
}

fn started_or_why_not(view: &Arc<View>, now: Time) -> ControlFlow<Result<Arc<View>, Trouble>> {
    match &view.sandbox.state {
        State::Starting { .. } => ControlFlow::Continue(()),
        State::Stopping {
            end: End::StartFailed(reason),
            ..
        }
        | State::Terminated {
            end: End::StartFailed(reason),
            ..
        } => ControlFlow::Break(Err(start_failed(view.id(), reason))),
        State::Stopping { .. } | State::Terminated { .. } | State::Interrupted { .. } => {
            let ended = Trouble::of_ended(view, now);
            ControlFlow::Break(ended.map_or_else(|| Ok(Arc::clone(view)), Err))
        }
        State::Freezing {
            cause: FreezeCause::NoCredits,
            ..
        } => ControlFlow::Break(Err(wait::no_credits(view.id()))),
        State::Frozen(frozen) if frozen.cause == FreezeCause::NoCredits => {
            ControlFlow::Break(Err(wait::no_credits(view.id())))
        }
        State::Ready
        | State::Freezing { .. }
        | State::Frozen(_)
        | State::Thawing { .. }
        | State::Releasing { .. } => ControlFlow::Break(Ok(Arc::clone(view))),
    }
}

fn start_failed(id: BoxId, reason: &str) -> Trouble {
    Trouble::new(
        Kind::StartFailed,
        format!("box {id} could not be started: {reason}"),
    )
    .with("box", id.as_str())
    .with("reason", reason)
}

/// A restored box is as it was, so nothing of it can be chosen anew.
fn only_what_a_restore_takes(request: &StartRequest) -> Result<(), Trouble> {
    let chosen = [
        ("image", request.image.is_some()),
        ("snapshot", request.snapshot.is_some()),
        ("memory", request.memory.is_some()),
        ("size", request.size.is_some()),
        ("env", !request.env.is_empty()),
        ("services", !request.services.is_empty()),
        ("externalBaseUrl", request.external_base_url.is_some()),
        ("secrets", !request.secrets.is_empty()),
        ("environment", request.environment.is_some()),
        ("idleTimeoutMin", request.idle_timeout_min.is_some()),
        ("policy", request.policy.is_some()),
        ("metadata", !request.metadata.is_empty()),
        ("private", request.private.is_some()),
        ("egress", request.egress.is_some()),
    ];
    match chosen.iter().find(|(_, chosen)| *chosen) {
        Some((field, _)) => Err(Trouble::bad(
            field,
            "left out with `restore`: the box comes back as it was (goal and name may be new)",
        )),
        None => Ok(()),
    }
}
