//! Application logs: projects, what their apps send, and the rows that are read. Owns these fields; limits, and how long
//! anything is kept, are the server's.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::schema::Moment;

/// Body of `POST /v1/projects`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ProjectRequest {
    /// Its name, the only one of the account: 1 to 60 letters, digits, spaces and `._-`, a letter or digit first.
    pub name: String,
    /// The origins whose pages may send, at most 20, as in `https://app.example` or `https://*.app.example`. When absent or
    /// empty: the boxes' URLs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub origins: Vec<String>,
}

/// A project.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProjectView {
    /// Names it in other calls, as its name does.
    pub id: String,
    /// Its name.
    pub name: String,
    /// The origins whose pages may send.
    pub origins: Vec<String>,
    /// When it was made.
    #[schemars(with = "Moment")]
    pub created_at: Timestamp,
    /// What its rows take up, in bytes.
    pub bytes: u64,
}

/// Answer of `POST /v1/projects` and of `POST /v1/projects/{project}/rotate`.
#[derive(Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProjectMade {
    /// The project.
    pub project: ProjectView,
    /// The key with which apps send. It reads nothing, and is not shown again.
    pub write_key: String,
}

impl std::fmt::Debug for ProjectMade {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ProjectMade")
            .field("project", &self.project)
            .finish_non_exhaustive()
    }
}

/// Answer of `GET /v1/projects`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ProjectsResponse {
    /// By name.
    pub projects: Vec<ProjectView>,
}

/// Answer of `POST /v1/projects/{project}/sourcemaps`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SourceMapsResponse {
    /// The release they are of.
    pub release: String,
    /// The served paths of the scripts that have a map now.
    pub paths: Vec<String>,
    /// Older releases whose maps had to make room.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub removed_releases: Vec<String>,
}

/// How bad it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    /// For who looks closely.
    Debug,
    /// As it should be.
    #[default]
    Info,
    /// Not as it should be.
    Warn,
    /// Something failed.
    Error,
}

/// Body of `POST /v1/logs`: what an app sends. What is said beside `events` goes for all of them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LogBatch {
    /// The write key, unless it is in `Authorization` or in the query.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The sender's clock as it sends, in milliseconds since 1970: with it, a wrong clock does no harm.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent_at: Option<i64>,
    /// The release of the app, as its source maps have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub release: Option<String>,
    /// The box it runs in.
    #[serde(default, rename = "box", skip_serializing_if = "Option::is_none")]
    pub of_box: Option<String>,
    /// Who uses it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The visit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// The browser or machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// The page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// What happened, 1 to 500 of them, oldest first.
    pub events: Vec<LogEvent>,
}

/// One thing that happened in an app. Longer texts than fit are cut.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LogEvent {
    /// What is to be said; 8000 characters are kept.
    #[serde(default)]
    pub msg: String,
    /// How bad it is; `info` when absent.
    #[serde(default)]
    pub level: LogLevel,
    /// What kind of event; `log` when absent. 100 characters are kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// When, by the sender's clock, in milliseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<i64>,
    /// Where in the program; 16000 characters are kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stack: Option<String>,
    /// Anything else; 8000 bytes are kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extra: Option<Value>,
}

/// Answer of `POST /v1/logs`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LogsTaken {
    /// How many events are kept.
    pub accepted: usize,
}

/// One row of a log, as it is read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LogRow {
    /// When it happened.
    #[schemars(with = "Moment")]
    pub time: Timestamp,
    /// How bad it is.
    pub level: LogLevel,
    /// What kind of event.
    pub name: String,
    /// What was said.
    pub msg: String,
    /// The release of the app.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub release: Option<String>,
    /// The box it ran in.
    #[serde(default, rename = "box", skip_serializing_if = "Option::is_none")]
    pub of_box: Option<String>,
    /// Who used it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The visit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// The browser or machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// The page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Where in the program, as it was sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stack: Option<String>,
    /// The same by the source maps that were there when it came; absent when none fitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stack_resolved: Option<String>,
    /// Anything else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extra: Option<Value>,
}

/// Answer of `GET /v1/projects/{project}/logs` and `…/logs/errors`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LogsResponse {
    /// Oldest first. There may be fewer than asked for, even none, and more on the next page.
    pub rows: Vec<LogRow>,
    /// Where the next page begins; absent on the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

/// Answer of `GET /v1/projects/{project}/logs/tail`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LogsTail {
    /// What came since the cursor, oldest first.
    pub rows: Vec<LogRow>,
    /// For the next call, which then misses nothing.
    pub cursor: String,
}
