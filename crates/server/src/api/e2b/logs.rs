//! Logs of a box: what was decided about it, and the commands that our own dialects ran in it.

use axum::Json;
use axum::extract::{Path, RawQuery, State};
use icebox_lifecycle::Time;
use serde_json::{Value, json};

use super::super::App;
use super::error::Failure;
use super::input::{Client, find};
use crate::commands::Trouble;
use crate::commands::trouble::stamp;

/// The most lines of an answer, and how many there are when nobody says.
const MOST: usize = 1_000;

/// One line.
struct Line {
    at: Time,
    level: &'static str,
    logger: &'static str,
    message: String,
}

/// What is asked for.
struct Asked {
    start: Option<i64>,
    newest_first: bool,
    limit: usize,
    level: Option<String>,
    search: Option<String>,
}

/// `GET /sandboxes/{id}/logs`: `start` is in milliseconds.
pub(super) async fn v1(
    State(app): State<App>,
    client: Client,
    Path(id): Path<String>,
    RawQuery(query): RawQuery,
) -> Result<Json<Value>, Failure> {
    let lines = lines(&app, &client, &id, query).await?;
    let logs: Vec<Value> = lines.iter().map(line).collect();
    let entries: Vec<Value> = lines.iter().map(entry).collect();
    Ok(Json(json!({"logs": logs, "logEntries": entries})))
}

/// `GET /v2/sandboxes/{id}/logs`: `cursor` is in milliseconds.
pub(super) async fn v2(
    State(app): State<App>,
    client: Client,
    Path(id): Path<String>,
    RawQuery(query): RawQuery,
) -> Result<Json<Value>, Failure> {
    let lines = lines(&app, &client, &id, query).await?;
    let entries: Vec<Value> = lines.iter().map(entry).collect();
    Ok(Json(json!({"logs": entries})))
}

async fn lines(
    app: &App,
    client: &Client,
    id: &str,
    query: Option<String>,
) -> Result<Vec<Line>, Failure> {
    let found = find(app, client, id)?;
    let asked = read(&query.unwrap_or_default())?;
    let (why, steps) = app.commands.past(found.id()).await?;
    let decided = why.into_iter().map(|why| Line {
        at: why.at,
        level: "info",
        logger: "lifecycle",
        message: why.text,
    });
    let ran = steps.into_iter().map(|step| Line {
        at: step.at,
        level: if step.ending.error.is_some() {
            "error"
        } else {
            "info"
        },
        logger: "process",
        message: step.summary,
    });
    let mut lines: Vec<Line> = decided.chain(ran).collect();
    lines.sort_by_key(|line| line.at);
    if asked.newest_first {
        lines.reverse();
    }
    lines.retain(|line| asked.takes(line));
    lines.truncate(asked.limit);
    Ok(lines)
}

impl Asked {
    fn takes(&self, line: &Line) -> bool {
        let from = self.start.is_none_or(|start| {
            if self.newest_first {
                line.at.0 <= start
            } else {
                line.at.0 >= start
            }
        });
        let level = self.level.as_deref();
        let severe = level != Some("error") || line.level == "error";
        let search = self.search.as_deref();
        from && severe && search.is_none_or(|search| line.message.contains(search))
    }
}

fn read(query: &str) -> Result<Asked, Failure> {
    let mut asked = Asked {
        start: None,
        newest_first: false,
        limit: MOST,
        level: None,
        search: None,
    };
    for (name, value) in form_urlencoded::parse(query.as_bytes()) {
        match &*name {
            "start" | "cursor" => {
                let at = value
                    .parse()
                    .map_err(|_| Trouble::bad(&name, "a time in milliseconds since 1970"))?;
                asked.start = Some(at);
            }
            "limit" => {
                let limit = value.parse().ok().filter(|limit| *limit <= MOST);
                asked.limit = limit.ok_or_else(|| {
                    Trouble::bad("limit", format!("a whole number, at most {MOST}"))
                })?;
            }
            "direction" => asked.newest_first = value == "backward",
            "level" => asked.level = Some(value.into_owned()),
            "search" => asked.search = Some(value.into_owned()),
            _ => {}
        }
    }
    Ok(asked)
}

fn line(line: &Line) -> Value {
    let text = json!({"level": line.level, "logger": line.logger, "message": line.message});
    json!({"timestamp": stamp(line.at), "line": text.to_string()})
}

fn entry(line: &Line) -> Value {
    json!({
        "timestamp": stamp(line.at),
        "message": line.message,
        "level": line.level,
        "fields": {"logger": line.logger},
    })
}
