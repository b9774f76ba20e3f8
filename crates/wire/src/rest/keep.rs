//! What an account keeps for its boxes: secrets, environments, versions, messages and feedback.

use std::collections::BTreeMap;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{ConnectionView, schema::Moment};

/// Body of `PUT /v1/secrets/{NAME}`.
#[derive(Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SecretRequest {
    /// The value: 1 to 32768 bytes of text.
    pub value: String,
}

impl std::fmt::Debug for SecretRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SecretRequest(…)")
    }
}

/// A secret; its value is never shown.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SecretView {
    /// Its name, which is that of a variable.
    pub name: String,
    /// When it was made.
    #[schemars(with = "Moment")]
    pub created_at: Timestamp,
    /// When its value was last set.
    #[schemars(with = "Moment")]
    pub changed_at: Timestamp,
}

/// Answer of `GET /v1/secrets`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SecretsResponse {
    /// By name.
    pub secrets: Vec<SecretView>,
}

/// Body of `POST /v1/boxes/{id}/secrets`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GiveRequest {
    /// Names of secrets, 1 to 100.
    pub names: Vec<String>,
}

/// Answer to it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GiveResponse {
    /// The secrets that the box has now, as variables of every later command.
    pub names: Vec<String>,
    /// What the caller has to know besides: boxes that are about to be stopped (rule 6.4).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notices: Vec<String>,
}

/// Body of `POST /v1/environments`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EnvironmentRequest {
    /// Its name: 1 to 40 lowercase letters, digits and dashes, a letter first.
    pub name: String,
}

/// An environment; the values of its settings are never shown.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EnvironmentView {
    /// Its name.
    pub name: String,
    /// When it was made.
    #[schemars(with = "Moment")]
    pub created_at: Timestamp,
    /// Its services.
    pub services: Vec<EnvironmentServiceView>,
    /// Whether all its connections are online; absent when it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connector_online: Option<bool>,
    /// Ways into networks that the server reaches.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub connections: Vec<ConnectionView>,
    /// How many boxes in it are not stopped.
    pub active_boxes: usize,
}

/// A service of an environment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EnvironmentServiceView {
    /// Its name.
    pub name: String,
    /// The names of its settings.
    pub keys: Vec<String>,
}

/// Answer of `GET /v1/environments`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EnvironmentsResponse {
    /// By name.
    pub environments: Vec<EnvironmentView>,
}

/// Body of `POST /v1/versions`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct VersionRequest {
    /// Of which service.
    pub service: String,
    /// Its name among the versions of that service.
    pub label: String,
    /// What it runs from: `snapshot:` and the id or name of a snapshot, an image that boxes start from, or, only to be listed, the
    /// reference of any other. This or `fromBox`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// The id of a box to keep as it is now: it becomes a snapshot, from which the version runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_box: Option<String>,
    /// The command that starts it, for bash in `/work`. Without one, what ran in the snapshot goes on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cmd: Option<String>,
    /// Why it is published; at most 200 characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// The commit it was built from: 7 to 64 hex digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub git_sha: Option<String>,
}

/// A published version.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VersionView {
    /// Its id.
    pub version_id: String,
    /// Of which service.
    pub service: String,
    /// Its name among the versions of that service.
    pub label: String,
    /// What it runs from.
    pub image: String,
    /// The command that starts it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cmd: Option<String>,
    /// Why it was published.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// The commit it was built from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub git_sha: Option<String>,
    /// When.
    #[schemars(with = "Moment")]
    pub created_at: Timestamp,
}

/// Answer of `GET /v1/versions`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct VersionsResponse {
    /// Newest first, at most 200.
    pub versions: Vec<VersionView>,
}

/// Body of `POST /v1/boxes/{id}/say`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SayRequest {
    /// The line: 1 to 500 characters.
    pub text: String,
    /// 16 lowercase hex digits that the caller chose: a repeat with the same ones is not shown again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub say_id: Option<String>,
}

/// Body of `POST /v1/boxes/{id}/messages`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TextRequest {
    /// The message: 1 to 4000 characters.
    pub text: String,
}

/// A message of a person to whoever holds a box.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MessageView {
    /// Its number, which no other message has: one that comes twice is the same one.
    pub id: i64,
    /// When it was left.
    #[schemars(with = "Moment")]
    pub at: Timestamp,
    /// What it says.
    pub text: String,
    /// When it arrived; absent while it waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Moment>")]
    pub delivered_at: Option<Timestamp>,
    /// The conversation that got it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
}

impl MessageView {
    /// The line under a result that says it.
    #[must_use]
    pub fn line(&self, of_box: &str) -> String {
        format!("box {of_box}: a person says: {}", self.text)
    }
}

/// Answer of `GET /v1/boxes/{id}/messages`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MessagesResponse {
    /// The latest 100, oldest first.
    pub messages: Vec<MessageView>,
}

/// Body of `POST /v1/boxes/{id}/messages/received`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReceivedRequest {
    /// The messages that arrived: 1 to 100 numbers.
    pub ids: Vec<i64>,
}

/// Body of `POST /v1/feedback`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FeedbackRequest {
    /// What the agent was doing; each of these at most 4000 characters.
    pub task: String,
    /// How it used its boxes.
    pub usage: String,
    /// What went wrong.
    pub problems: String,
    /// What would be better.
    pub suggestions: String,
    /// The box it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
}

/// What an agent said to the operator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FeedbackView {
    /// When.
    #[schemars(with = "Moment")]
    pub at: Timestamp,
    /// The account's name.
    pub account: String,
    /// The box it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The conversation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// What the agent was doing.
    pub task: String,
    /// How it used its boxes.
    pub usage: String,
    /// What went wrong.
    pub problems: String,
    /// What would be better.
    pub suggestions: String,
}

/// Answer of `GET /v1/feedback`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FeedbackResponse {
    /// Newest first, at most 200.
    pub feedback: Vec<FeedbackView>,
}

/// Body of `POST /v1/boxes/{id}/build`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BuildRequest {
    /// Where it is built: relative to `/work`, or absolute below it. Its content is the input.
    pub dir: String,
    /// The command, for bash.
    pub cmd: String,
    /// What it makes: 1 to 20 paths relative to `dir`.
    pub out: Vec<String>,
    /// More variables; part of what is compared.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// The command's deadline in seconds: 600 when absent, at most 3600.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_sec: Option<u32>,
    /// Why it is built, for people; at most 200 characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// Answer to it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BuildResponse {
    /// Nothing ran: what an equal build made earlier was put in place.
    pub reused: bool,
    /// What it made is kept for later builds with equal inputs.
    pub cached: bool,
    /// Why it is not kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_cached: Option<String>,
    /// How large what is kept is, in bytes, packed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cached_bytes: Option<u64>,
    /// The command's fields, as of `exec`, if it ran.
    #[serde(flatten, default, skip_serializing_if = "Option::is_none")]
    pub ran: Option<super::ExecResponse>,
    /// What the caller has to know besides: boxes that are about to be stopped (rule 6.4).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notices: Vec<String>,
}
