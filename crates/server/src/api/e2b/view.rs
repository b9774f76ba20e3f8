//! A box as this dialect shows it. Owns which field is there when; a box that froze for being idle is `running`, since
//! whoever needs it finds it so.

use icebox_lifecycle::policy::{AtEnd, Keeps, WokenBy};
use icebox_lifecycle::{State, Time};
use serde_json::{Map, Value, json};

use super::super::App;
use crate::commands::trouble::stamp;
use crate::engine::View;

/// The version of E2B's in-box daemon whose features ours has; clients switch features on by it.
pub(super) const ENVD_VERSION: &str = "0.6.4";
/// What stands where E2B names the part of its fleet that a box is in.
pub(super) const CLIENT_ID: &str = "icebox";
/// The end of a box that has none, from now: years that no client minds.
const NO_END_MS: i64 = 10 * 365 * icebox_lifecycle::time::DAY;

/// A box as creating it and connecting to it answer.
pub(super) fn sandbox(app: &App, view: &View) -> Value {
    let mut shown = common(view);
    shown.insert("domain".to_owned(), app.edge.urls().authority().into());
    if let Some(e2b) = &view.record.e2b {
        let tokens = [
            ("envdAccessToken", &e2b.access_token),
            ("trafficAccessToken", &e2b.traffic_token),
        ];
        for (field, token) in tokens {
            if let Some(token) = token {
                shown.insert(field.to_owned(), token.as_str().into());
            }
        }
    }
    Value::Object(shown)
}

/// A box in a list.
pub(super) fn listed(app: &App, view: &View) -> Map<String, Value> {
    let mut shown = common(view);
    let size = &view.record.size;
    let more = json!({
        "startedAt": stamp(view.sandbox.created_at),
        "endAt": stamp(end(view, app.commands.clock().now())),
        "cpuCount": size.milli_cpus.div_ceil(1000),
        "memoryMB": size.memory_mb,
        "diskSizeMB": size.disk_gb * 1024,
        "state": state(view),
        "metadata": view.record.metadata,
    });
    if let Value::Object(more) = more {
        shown.extend(more);
    }
    shown
}

/// Everything about a box.
pub(super) fn detail(app: &App, view: &View) -> Value {
    let mut shown = listed(app, view);
    let policy = &view.sandbox.policy;
    let at_end = policy.lifetime.map(|lifetime| lifetime.at_end);
    let on_timeout = match at_end {
        Some(AtEnd::Freeze | AtEnd::KeepFiles) => "pause",
        Some(AtEnd::Destroy) | None => "kill",
    };
    let auto_resume = match policy.woken_by {
        WokenBy::AnyCall | WokenBy::AnyCallFor(_) => true,
        WokenBy::Resume => false,
    };
    let lifecycle = json!({"autoResume": auto_resume, "onTimeout": on_timeout});
    shown.insert("lifecycle".to_owned(), lifecycle);
    shown.insert("domain".to_owned(), app.edge.urls().authority().into());
    if let State::Frozen(frozen) = &view.sandbox.state
        && view.sandbox.is_paused()
    {
        let mode = match frozen.keeps() {
            Keeps::Files => "filesystem",
            Keeps::FilesAndMemory => "full",
        };
        shown.insert("pauseMode".to_owned(), mode.into());
    }
    if let Some(e2b) = &view.record.e2b {
        shown.insert("allowInternetAccess".to_owned(), e2b.internet.into());
        if let Some(token) = &e2b.access_token {
            shown.insert("envdAccessToken".to_owned(), token.as_str().into());
        }
        if let Some(network) = &e2b.network {
            shown.insert("network".to_owned(), network.clone());
        }
    }
    Value::Object(shown)
}

/// What every form of a box has.
fn common(view: &View) -> Map<String, Value> {
    let template = template(view);
    let mut shown = Map::new();
    shown.insert("templateID".to_owned(), template.into());
    shown.insert("alias".to_owned(), template.into());
    shown.insert("sandboxID".to_owned(), view.id().as_str().into());
    shown.insert("clientID".to_owned(), CLIENT_ID.into());
    shown.insert("envdVersion".to_owned(), ENVD_VERSION.into());
    shown
}

/// The template of a box, as its client named it.
pub(super) fn template(view: &View) -> &str {
    let e2b = view.record.e2b.as_deref();
    e2b.map_or(&view.record.image, |e2b| &e2b.template)
}

/// `running` or `paused`.
pub(super) fn state(view: &View) -> &'static str {
    if view.sandbox.is_paused() {
        "paused"
    } else {
        "running"
    }
}

/// When it ends, or ended for the time being; where nothing ends it, some day.
fn end(view: &View, now: Time) -> Time {
    if let State::Frozen(frozen) = &view.sandbox.state
        && view.sandbox.is_paused()
    {
        return frozen.at;
    }
    let ends_at = view.sandbox.forecast(now).ends_at;
    ends_at
        .or_else(|| view.sandbox.set_end())
        .unwrap_or(now + NO_END_MS)
}
