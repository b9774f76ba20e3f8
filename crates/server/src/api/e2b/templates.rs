//! Templates: the images of this server, under the names that clients know. Owns those names.

use axum::Json;
use axum::extract::{Path, State};
use serde_json::{Value, json};

use super::super::App;
use super::error::{Done, Failure};
use super::input::Client;
use super::snapshots;
use super::view::ENVD_VERSION;
use crate::commands::check;
use crate::commands::trouble::stamp;
use crate::commands::{Kind, Trouble};
use icebox_lifecycle::Time;

/// The image that a template's name stands for.
const TEMPLATES: [(&str, &str); 2] = [("base", "host"), ("host", "host")];
/// The tags under which a template is found without having been built here.
const TAGS: [&str; 2] = ["default", "latest"];

/// The image of a template, by its name and perhaps a tag.
pub(super) fn image(template: &str) -> Result<&'static str, Failure> {
    let (name, tag) = match template.split_once(':') {
        Some((name, tag)) => (name, Some(tag)),
        None => (template, None),
    };
    let known = TEMPLATES.iter().find(|(known, _)| *known == name);
    match known {
        Some((_, image)) if tag.is_none_or(|tag| TAGS.contains(&tag)) => Ok(image),
        Some(_) | None => Err(unknown(template)),
    }
}

fn unknown(template: &str) -> Failure {
    let names = TEMPLATES.map(|(name, _)| name).join("`, `");
    let text = format!("template '{template}' not found; this server has `{names}`");
    Trouble::new(Kind::NotFound, text).into()
}

pub(super) async fn list(State(app): State<App>, _: Client) -> Result<Json<Vec<Value>>, Failure> {
    let templates = TEMPLATES.iter().map(|(name, _)| show(&app, name));
    Ok(Json(templates.collect::<Result<_, _>>()?))
}

pub(super) async fn one(
    State(app): State<App>,
    _: Client,
    Path(id): Path<String>,
) -> Result<Json<Value>, Failure> {
    image(&id)?;
    let mut shown = show(&app, &id)?;
    shown["builds"] = json!([]);
    Ok(Json(shown))
}

fn show(app: &App, name: &str) -> Result<Value, Failure> {
    let commands = &app.commands;
    let host = commands.driver().capabilities();
    let size = check::size(None, &commands.config().limits, &host)?;
    let since = stamp(Time(0));
    Ok(json!({
        "templateID": name,
        "buildID": "00000000-0000-0000-0000-000000000000",
        "cpuCount": size.milli_cpus.div_ceil(1000),
        "memoryMB": size.memory_mb,
        "diskSizeMB": size.disk_gb * 1024,
        "public": true,
        "aliases": [name],
        "names": [name],
        "createdAt": since,
        "updatedAt": since,
        "createdBy": null,
        "lastSpawnedAt": null,
        "spawnCount": 0,
        "buildCount": 0,
        "envdVersion": ENVD_VERSION,
        "buildStatus": "ready",
    }))
}

pub(super) async fn alias(
    State(app): State<App>,
    client: Client,
    Path(alias): Path<String>,
) -> Result<Json<Value>, Failure> {
    let own = snapshots::named(&app, &client, &alias).is_some();
    if !own {
        image(&alias)?;
    }
    Ok(Json(json!({"templateID": alias, "public": !own})))
}

/// Snapshots are removed like templates. Images of the host are not a client's to remove, and there are no others yet.
pub(super) async fn delete(
    State(app): State<App>,
    client: Client,
    Path(id): Path<String>,
) -> Result<Done, Failure> {
    if let Some(found) = snapshots::named(&app, &client, &id) {
        let removed = app.commands.remove_snapshot(&client.0, found.id.as_str());
        removed.await?;
        return Ok(Done);
    }
    match image(&id) {
        Ok(_) => Err(Trouble::new(
            Kind::BadRequest,
            format!("template '{id}' is an image of this server and cannot be removed"),
        )
        .into()),
        Err(unknown) => Err(unknown),
    }
}
