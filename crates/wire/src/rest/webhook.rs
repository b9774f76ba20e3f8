//! Webhooks: what clients ask for, what the server tells of them, and the message that an endpoint is sent. Owns these
//! fields; who may be sent what, and when, is the server's.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{EventView, given, schema::Moment};

/// Body of `POST /v1/webhooks`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WebhookRequest {
    /// Where to: `http://` or `https://`, at most 2000 bytes, no user and no fragment.
    pub url: String,
    /// Only events of these kinds; all kinds when absent or empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kinds: Vec<String>,
    /// Only events of the box with this id.
    #[serde(default, rename = "box", skip_serializing_if = "Option::is_none")]
    pub of_box: Option<String>,
    /// The secret for signatures: `whsec_` and the base64 of 24 to 64 bytes. When absent the server makes one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
    /// Whether it is sent anything; true when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
}

/// Body of `PATCH /v1/webhooks/{id}`; an absent field stays.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct WebhookPatch {
    /// Where to, for what waits already, too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Only events of these kinds, from now on; empty: all kinds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kinds: Option<Vec<String>>,
    /// Only events of this box, from now on; `null`: of all boxes.
    #[serde(
        rename = "box",
        skip_serializing_if = "Option::is_none",
        deserialize_with = "given"
    )]
    pub of_box: Option<Option<String>>,
    /// Another secret; `null`: the server makes one.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "given")]
    pub secret: Option<Option<String>>,
    /// `false`: it is sent nothing, and what waits is dropped. `true`: it is sent what happens from now on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
}

/// A webhook. Its secret is there only in the answer to the request that had the server make it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WebhookView {
    /// Names it in other calls.
    pub id: String,
    /// Where to.
    pub url: String,
    /// Only events of these kinds; empty: all kinds.
    pub kinds: Vec<String>,
    /// Only events of this box.
    #[serde(default, rename = "box", skip_serializing_if = "Option::is_none")]
    pub of_box: Option<String>,
    /// Whether it is sent anything.
    pub enabled: bool,
    /// Why the server disabled it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disabled_reason: Option<String>,
    /// When it was made.
    #[schemars(with = "Moment")]
    pub created_at: Timestamp,
    /// How many deliveries wait: not tried yet, or to be tried again.
    pub waiting: u64,
    /// The secret, shown this once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
}

/// Answer of `GET /v1/webhooks`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WebhooksResponse {
    /// The account's webhooks, oldest first.
    pub webhooks: Vec<WebhookView>,
}

/// One event on its way to one webhook, or what came of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeliveryView {
    /// What `webhook-id` says, the same at every try.
    pub id: String,
    /// The number of the event.
    pub seq: i64,
    /// The box it is about.
    #[serde(rename = "box")]
    pub of_box: String,
    /// The kind of the event.
    pub kind: String,
    /// `waiting`, `delivered` or `given_up`.
    pub state: String,
    /// How often it was tried.
    pub tries: u32,
    /// When it was tried last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Moment>")]
    pub tried_at: Option<Timestamp>,
    /// The HTTP status that the last try was answered with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// Why the last try failed, or why it is not tried again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// When it is tried next; absent while an earlier event of the box is waited for, and once it is over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Moment>")]
    pub next_try_at: Option<Timestamp>,
}

/// Answer of `GET /v1/webhooks/{id}/deliveries`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DeliveriesResponse {
    /// Newest events first.
    pub deliveries: Vec<DeliveryView>,
}

/// Answer of `POST /v1/webhooks/{id}/test`: what came of one try, which is not repeated.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WebhookTestResponse {
    /// Whether the endpoint took it.
    pub ok: bool,
    /// What `webhook-id` said.
    pub id: String,
    /// The HTTP status it was answered with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// What an endpoint is sent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WebhookMessage {
    /// `box.` and the kind of the event; `webhook.test` for a test.
    #[serde(rename = "type")]
    pub kind: String,
    /// When it happened.
    #[schemars(with = "Moment")]
    pub timestamp: Timestamp,
    /// The event; absent in a test.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<EventView>,
}
