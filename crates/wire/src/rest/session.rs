//! Signing in to the dashboard, and the keys of accounts: what is sent and answered.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::schema::Moment;

/// The header that a page of the server's own sends with every request that changes something. A page from elsewhere
/// cannot add it without being asked about first.
pub const CSRF_HEADER: &str = "x-icebox-csrf";

/// Body of `POST /v1/session`: exactly one of the two.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct SignInRequest {
    /// A key of the account.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The token of a sign-in link.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
}

/// Answer of `POST` and `GET /v1/session`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SessionView {
    /// Who is signed in.
    pub account: String,
    /// Whether they may manage accounts.
    pub admin: bool,
    /// When they have to sign in again.
    #[schemars(with = "Moment")]
    pub expires_at: Timestamp,
}

/// Answer of `POST /v1/session/links`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SignInLink {
    /// Opens the dashboard signed in, once.
    pub url: String,
    /// The token in it.
    pub token: String,
    /// Until when it does.
    #[schemars(with = "Moment")]
    pub expires_at: Timestamp,
}

/// A key, without what it is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KeyView {
    /// The beginning of its SHA-256, 12 hex digits.
    pub id: String,
    /// When it was made.
    #[schemars(with = "Moment")]
    pub created_at: Timestamp,
    /// Whether it may manage accounts.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub admin: bool,
    /// How many browsers are signed in with it.
    pub sessions: usize,
}

/// Answer of `GET /v1/accounts/{name}/keys`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KeysResponse {
    /// The account.
    pub account: String,
    /// Its keys, oldest first.
    pub keys: Vec<KeyView>,
}

/// Body of `POST /v1/accounts/{name}/keys/revoke`: exactly one of the two.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct RevokeKeyRequest {
    /// The id of the key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The key itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}
