//! `POST /sandboxes` and `/v2/sandboxes`: what a client asks for, and the box that comes of it.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use icebox_lifecycle::policy::{AtEnd, Lifetime, LifetimeFrom, WokenBy};
use icebox_lifecycle::time::MIN;
use icebox_lifecycle::{Ms, Policy, Time};
use icebox_wire::rest::SizeRequest;
use serde::Deserialize;
use serde_json::Value;

use super::super::App;
use super::error::{self, CREATED, Failure};
use super::input::{Body, Client, Keyed, timeout_ms};
use super::{network, snapshots, templates, view};
use crate::commands::{OnceKey, check, continues};
use crate::engine::NewBox;
use crate::random;
use crate::record::{E2b, Record};

/// How long a box that traffic woke has at least (rule 15.1).
const WOKEN_FOR_MS: Ms = 5 * MIN;
/// The end of a box whose client names none, in seconds.
const TIMEOUT_V1_SEC: i64 = 15;
const TIMEOUT_V2_SEC: i64 = 300;

/// What may be asked for.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct NewSandbox {
    #[serde(rename = "templateID")]
    template_id: String,
    timeout: Option<i64>,
    metadata: Option<BTreeMap<String, String>>,
    env_vars: Option<BTreeMap<String, String>>,
    auto_pause: Option<bool>,
    auto_pause_memory: Option<bool>,
    auto_resume: Option<AutoResume>,
    #[serde(rename = "allow_internet_access")]
    allow_internet_access: Option<bool>,
    network: Option<Value>,
    volume_mounts: Option<Vec<Value>>,
    mcp: Option<Value>,
    iam: Option<Value>,
    secure: Option<bool>,
}

#[derive(Deserialize)]
struct AutoResume {
    enabled: bool,
}

pub(super) async fn v1(
    State(app): State<App>,
    client: Client,
    Body(asked): Body<NewSandbox>,
) -> Result<Response, Failure> {
    let wanted = Wanted {
        secure: asked.secure.unwrap_or(false),
        timeout_sec: TIMEOUT_V1_SEC,
        asked,
        key: None,
    };
    start(app, client, wanted).await
}

pub(super) async fn v2(
    State(app): State<App>,
    client: Client,
    Keyed { body, key }: Keyed<NewSandbox>,
) -> Result<Response, Failure> {
    let wanted = Wanted {
        secure: true,
        timeout_sec: TIMEOUT_V2_SEC,
        asked: body,
        key,
    };
    start(app, client, wanted).await
}

/// What a client asks for in either generation of the call.
struct Wanted {
    asked: NewSandbox,
    /// How long it lives if the client does not say.
    timeout_sec: i64,
    /// Its daemon asks for a token.
    secure: bool,
    key: Option<OnceKey>,
}

async fn start(app: App, client: Client, mut wanted: Wanted) -> Result<Response, Failure> {
    if let Some(what) = cannot_yet(&wanted.asked) {
        return Ok(error::cannot_yet(what));
    }
    let started = match wanted.key.take() {
        None => {
            app.commands
                .start_described(new_box(&app, &client, wanted)?)
                .await?
        }
        Some(key) => {
            let describing = app.clone();
            let describe = move || new_box(&describing, &client, wanted).map_err(Failure::into);
            app.commands.start_once(key, describe).await?
        }
    };
    Ok((CREATED, Json(view::sandbox(&app, &started))).into_response())
}

/// The first part of a request that this server does not do yet.
fn cannot_yet(asked: &NewSandbox) -> Option<&'static str> {
    let given = |value: &Option<Value>| value.as_ref().is_some_and(|value| !value.is_null());
    let mounts = asked.volume_mounts.as_ref();
    if mounts.is_some_and(|mounts| !mounts.is_empty()) {
        return Some("volumes");
    }
    if given(&asked.mcp) {
        return Some("MCP gateways");
    }
    if given(&asked.iam) {
        return Some("workload identities");
    }
    network::cannot_yet(asked.network.as_ref())
}

fn new_box(app: &App, client: &Client, wanted: Wanted) -> Result<NewBox, Failure> {
    let Wanted {
        asked,
        timeout_sec,
        secure,
        key: _,
    } = wanted;
    let commands = &app.commands;
    let begins = snapshots::named(app, client, &asked.template_id);
    let image = match &begins {
        Some(snapshot) => &*snapshot.record.image,
        None => templates::image(&asked.template_id)?,
    };
    let timeout_ms = timeout_ms("timeout", asked.timeout.unwrap_or(timeout_sec), 1)?;
    let env = asked.env_vars.clone().unwrap_or_default();
    check::env(&env)?;
    let metadata = asked.metadata.clone().unwrap_or_default();
    check::metadata(&metadata)?;
    let network = network::checked(asked.network.as_ref())?;
    let closed = network::is_closed(network.as_ref());
    let internet = asked.allow_internet_access;
    let egress = network::egress(app, client, internet, network.as_ref())?;
    let limits = &commands.config().limits;
    let host = commands.driver().capabilities();
    let size = match &begins {
        Some(it) => check::size_of(&SizeRequest::default(), it, it.memory, limits, &host)?,
        None => check::size(None, limits, &host)?,
    };
    let policy = policy(&asked, timeout_ms, commands.clock().now());
    let mut record = Record {
        account: client.0.account,
        name: None,
        goal: None,
        image: image.into(),
        size,
        env: env.into(),
        metadata: metadata.into(),
        services: Vec::new(),
        // Its pages are for those with a link, its ports for those with its token.
        private: closed,
        egress,
        link_secret: None,
        e2b: Some(Box::new(E2b {
            template: asked.template_id,
            access_token: secure.then(random::hex::<20>),
            traffic_token: closed.then(random::hex::<20>),
            internet: asked.allow_internet_access,
            network,
        })),
        origin: None,
        scene: None,
        runs: None,
    };
    if let Some(snapshot) = &begins {
        continues(&mut record, snapshot, snapshot.memory, size);
    }
    Ok(NewBox {
        id: random::box_id(),
        record,
        policy: check::valid(policy)?,
        agent: None,
    })
}

/// What becomes of the box, and when.
fn policy(asked: &NewSandbox, timeout_ms: Ms, now: Time) -> Policy {
    let at_end = match (asked.auto_pause, asked.auto_pause_memory) {
        (Some(true), Some(false)) => AtEnd::KeepFiles,
        (Some(true), _) => AtEnd::Freeze,
        (Some(false) | None, _) => AtEnd::Destroy,
    };
    let woken_by = match &asked.auto_resume {
        Some(AutoResume { enabled: true }) => WokenBy::AnyCallFor(WOKEN_FOR_MS),
        Some(AutoResume { enabled: false }) | None => WokenBy::Resume,
    };
    Policy {
        lifetime: Some(Lifetime {
            ms: timeout_ms,
            from: LifetimeFrom::Moment(now),
            at_end,
        }),
        woken_by,
        ..Policy::E2B
    }
}
