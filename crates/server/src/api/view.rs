//! A box as the boxes dialect shows it: the record and the lifecycle's forecasts, field by field. Owns which field is
//! there when; computes nothing that the rules decide.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use icebox_lifecycle::policy::Keeps;
use icebox_lifecycle::state::State;
use icebox_lifecycle::time::MIN;
use icebox_lifecycle::{Forecast, Status, Tier, Time};
use icebox_wire::rest;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::{App, capacity, wiring};
use crate::commands::trouble::timestamp;
use crate::commands::{Caller, Trouble};
use crate::driver::egress::Range;
use crate::edge::Failure;
use crate::engine::View;
use crate::store::{StoredStep, Why};

/// Fields a box may have, by name. Absent ones are no mistake to ask for.
const FIELDS: &[&str] = &[
    "id",
    "status",
    "name",
    "goal",
    "createdAt",
    "lastUsedAt",
    "statusReason",
    "idleTimeoutMin",
    "stopsAt",
    "restorableUntil",
    "keep",
    "waitsForRoom",
    "freeze",
    "tier",
    "keeps",
    "snapshotError",
    "agent",
    "services",
    "links",
    "linkedFrom",
    "connections",
    "sceneUrl",
    "webUrl",
    "takeoverUrl",
    "screenInUse",
    "screenActive",
    "posterUrl",
    "image",
    "imageId",
    "boxdVersion",
    "size",
    "host",
    "metadata",
    "observedAt",
    "stateRecordedAt",
    "why",
    "steps",
    "notices",
    "disk",
    "running",
    "health",
    "private",
    "egress",
    "fromHuman",
    "environment",
    "unknownFields",
];

impl App {
    /// A box with the last decisions about it, its steps, and what the caller has to know (rules 6.4, 11.3).
    pub(super) async fn describe(
        &self,
        caller: &Caller,
        view: &Arc<View>,
    ) -> Result<rest::BoxView, Trouble> {
        let (why, steps) = self.commands.past(view.id()).await?;
        let mut shown = self.show(caller, view);
        shown.why = why.into_iter().map(why_view).collect();
        shown.why.extend(capacity::why(&shown));
        shown.steps = steps.into_iter().map(step_view).collect();
        shown.notices = self.commands.notices(caller, Some(view.id()));
        Ok(shown)
    }

    /// The same, with what goes on in it now, as far as `fields` asks for it (rules 11.4 to 11.6).
    pub(super) async fn look(
        &self,
        caller: &Caller,
        view: &Arc<View>,
        fields: Option<&str>,
    ) -> Result<rest::BoxView, Trouble> {
        let asks = |field: &str| {
            let named = |fields: &str| fields.split(',').any(|name| name.trim() == field);
            fields.is_none_or(named)
        };
        let mut shown = self.describe(caller, view).await?;
        if asks("environment") || asks("connections") {
            shown.environment = self.commands.environment_of(view.id()).await?;
        }
        if let Some(environment) = shown.environment.as_deref().filter(|_| asks("connections")) {
            let of = self.commands.connections(view.record.account, environment);
            shown.connections = of.await;
        }
        if ["running", "health", "boxdVersion", "disk"]
            .iter()
            .any(|field| asks(field))
        {
            let inside = self
                .commands
                .inside(caller, &shown.id, asks("disk"))
                .await?;
            if let Some(daemon) = inside.daemon {
                // Rule 2.6: the box itself was asked.
                let now = self.commands.clock().now();
                shown.observed_at = Some(timestamp(now));
                let health = shown.health.get_or_insert_default();
                health.daemon = Some(daemon.to_owned());
                health.outdated = inside.outdated;
                health.processes = inside.processes;
                health.memory_kills = (inside.memory_kills > 0).then_some(inside.memory_kills);
            }
            shown.boxd_version = inside.boxd_version;
            shown.running = inside.running;
            shown.disk = inside.disk;
        }
        Ok(shown)
    }

    /// A box without its past, as lists have it.
    pub(super) fn show(&self, caller: &Caller, view: &View) -> rest::BoxView {
        let now = self.commands.clock().now();
        let sandbox = &view.sandbox;
        let record = &view.record;
        let forecast = sandbox.forecast(now);
        let waits_for_room = capacity::place(self.commands.engine().views(), view);
        let urls = self.edge.urls();
        let failures = self.edge.failures(view.id());
        let frozen = match &sandbox.state {
            State::Frozen(frozen) if !frozen.wake => Some(frozen),
            State::Frozen(_)
            | State::Starting { .. }
            | State::Ready
            | State::Freezing { .. }
            | State::Thawing { .. }
            | State::Releasing { .. }
            | State::Stopping { .. }
            | State::Terminated { .. }
            | State::Interrupted { .. } => None,
        };
        rest::BoxView {
            id: view.id().to_string(),
            status: status(sandbox.status()),
            name: record.name.as_deref().map(str::to_owned),
            // Rule 11.2: absent when none was given.
            goal: record.goal.as_deref().map(str::to_owned),
            created_at: timestamp(sandbox.created_at),
            last_used_at: timestamp(sandbox.last_use),
            status_reason: match &waits_for_room {
                Some(place) => Some(capacity::in_words(place)),
                None => sandbox.status_reason(),
            },
            idle_timeout_min: sandbox
                .policy
                .idle_limit_ms
                .and_then(|ms| u32::try_from(ms / MIN).ok()),
            stops_at: forecast.stops_at.map(timestamp),
            restorable_until: forecast.restorable_until.map(timestamp),
            keep: sandbox.keep,
            waits_for_room,
            freeze: freeze(&forecast),
            tier: frozen.map(|frozen| match frozen.tier() {
                Tier::Ram => rest::Tier::Ram,
                Tier::Disk => rest::Tier::Disk,
            }),
            keeps: frozen.map(|frozen| match frozen.keeps() {
                Keeps::Files => rest::Keeps::Files,
                Keeps::FilesAndMemory => rest::Keeps::FilesAndMemory,
            }),
            snapshot_error: frozen
                .and_then(|frozen| frozen.snapshot_error.as_deref())
                .map(str::to_owned),
            agent: self.agent(caller, view, now),
            services: wiring::services(self, view, &failures),
            links: wiring::links(self, view),
            linked_from: wiring::linked_from(self, view),
            connections: Vec::new(),
            scene_url: urls.scene(view.id(), record),
            web_url: urls.web(view.id(), record),
            private: record.private.then_some(true),
            egress: Some(egress(view)),
            environment: None,
            running: None,
            disk: None,
            health: health(&failures),
            image: record.image.to_string(),
            image_id: None,
            boxd_version: None,
            size: rest::SizeView {
                cpus: f64::from(record.size.milli_cpus) / 1000.0,
                memory_mb: record.size.memory_mb,
                disk_gb: record.size.disk_gb,
            },
            host: Some(self.host.to_string()),
            metadata: record.metadata.to_map(),
            observed_at: view.observed_at.map(timestamp),
            state_recorded_at: Some(timestamp(view.recorded_at)),
            why: Vec::new(),
            steps: Vec::new(),
            notices: Vec::new(),
            unknown_fields: Vec::new(),
        }
    }

    fn agent(&self, caller: &Caller, view: &View, now: Time) -> Option<rest::AgentView> {
        let agent = &view.sandbox.agent;
        let presence = agent.id.as_deref().and_then(|id| {
            let presences = self.commands.presences();
            presences.get(view.record.account, id)
        });
        let shown = view.sandbox.agent_view(now, presence)?;
        let own = caller.agent.is_some() && caller.agent == agent.id && !shown.untracked;
        Some(rest::AgentView {
            state: shown.state.as_str().to_owned(),
            idle_sec: u64::try_from(shown.idle_sec).unwrap_or(0),
            this_conversation: own.then_some(true),
            untracked: shown.untracked.then_some(true),
        })
    }
}

fn freeze(forecast: &Forecast) -> Option<rest::FreezeView> {
    forecast.can_freeze.then(|| rest::FreezeView {
        at: forecast.freeze_at.map(timestamp),
        blocked_by: forecast
            .blocked_by
            .iter()
            .map(|hold| rest::BlockView {
                kind: hold.kind.as_str().to_owned(),
                until: hold.until.map(timestamp),
                label: hold.label.as_deref().map(str::to_owned),
            })
            .collect(),
    })
}

fn egress(view: &View) -> rest::EgressView {
    let egress = &view.record.egress;
    let failure = view.sandbox.way_out.as_deref();
    let texts = |ranges: &[Range]| ranges.iter().map(Range::to_string).collect();
    rest::EgressView {
        mode: if egress.open {
            rest::EgressMode::Open
        } else {
            rest::EgressMode::None
        },
        allow_out: texts(&egress.allow),
        deny_out: texts(&egress.deny),
        failure: failure.map(|failure| rest::EgressFailureView {
            error: failure.reason.to_string(),
            retry_at: failure.at.map(timestamp),
        }),
    }
}

pub(super) fn proxy_error(failure: &Failure) -> rest::ProxyErrorView {
    rest::ProxyErrorView {
        at: timestamp(failure.at),
        status: failure.status,
        error: failure.error.clone(),
        count: failure.count,
    }
}

fn health(failures: &BTreeMap<String, Failure>) -> Option<rest::HealthView> {
    let scene_errors: Vec<_> = failures
        .iter()
        .map(|(place, failure)| rest::SceneErrorView {
            place: place.clone(),
            error: proxy_error(failure),
        })
        .collect();
    (!scene_errors.is_empty()).then(|| rest::HealthView {
        scene_errors,
        ..rest::HealthView::default()
    })
}

fn why_view(why: Why) -> rest::WhyView {
    rest::WhyView {
        at: timestamp(why.at),
        rule: why.rule,
        text: why.text,
    }
}

/// A step for readers. How a command ended that nobody waited for is told of the command itself (rule 11.3).
fn step_view(step: StoredStep) -> rest::StepView {
    let waited_for = step.detail.as_deref() != Some("background");
    rest::StepView {
        at: timestamp(step.at),
        kind: step.kind,
        summary: step.summary,
        note: step.note,
        detail: step.detail,
        target: step.target,
        ms: step.ending.ms,
        ok: step.ending.error.is_none(),
        exit_code: step.ending.exit_code.filter(|_| waited_for),
        signal: step.ending.signal.filter(|_| waited_for),
        timed_out: (step.ending.timed_out && waited_for).then_some(true),
        error: step.ending.error,
    }
}

fn status(status: Status) -> rest::Status {
    match status {
        Status::Claimed => rest::Status::Claimed,
        Status::Starting => rest::Status::Starting,
        Status::Ready => rest::Status::Ready,
        Status::Takeover => rest::Status::Takeover,
        Status::Freezing => rest::Status::Freezing,
        Status::Frozen => rest::Status::Frozen,
        Status::Thawing => rest::Status::Thawing,
        Status::Stopping => rest::Status::Stopping,
        Status::Terminated => rest::Status::Terminated,
        Status::Interrupted => rest::Status::Interrupted,
    }
}

/// Some fields of a box.
#[derive(Serialize)]
#[serde(transparent)]
pub(super) struct SomeFields(Map<String, Value>);

impl SomeFields {
    /// The named ones, with id and status, and what has to be known in any case (rule 11.5).
    pub(super) fn of(shown: rest::BoxView, fields: &str) -> Result<Self, Trouble> {
        only(shown, fields).map(Self)
    }
}

impl JsonSchema for SomeFields {
    fn schema_name() -> Cow<'static, str> {
        "SomeFieldsOfABox".into()
    }

    /// A box of which only id and status are there in any case.
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mut schema = rest::BoxView::json_schema(generator);
        schema.insert(
            "description".to_owned(),
            "The fields of a box that were asked for.".into(),
        );
        schema.insert("required".to_owned(), json!(["id", "status"]));
        schema
    }
}

fn only(shown: rest::BoxView, fields: &str) -> Result<Map<String, Value>, Trouble> {
    let whole = serde_json::to_value(shown).map_err(|error| Trouble::internal(&error))?;
    let Value::Object(mut whole) = whole else {
        return Err(Trouble::internal(&"a box is no JSON object"));
    };
    let mut some = Map::new();
    let mut unknown: Vec<&str> = Vec::new();
    let asked = fields.split(',').map(str::trim).filter(|f| !f.is_empty());
    for field in ["id", "status", "notices"].into_iter().chain(asked) {
        match whole.remove(field) {
            Some(value) => {
                some.insert(field.to_owned(), value);
            }
            None if FIELDS.contains(&field) || unknown.contains(&field) => {}
            None => unknown.push(field),
        }
    }
    if !unknown.is_empty() {
        some.insert("unknownFields".to_owned(), unknown.into());
    }
    Ok(some)
}
