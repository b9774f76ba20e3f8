//! Accounts and their credits (rules 4.12, 5.3, 14.5). Amounts are in credits, to the millionth.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::schema::Moment;

/// Answer of `GET /v1/account`, and an entry of `GET /v1/accounts`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AccountView {
    /// The account's name.
    pub account: String,
    /// Its credits.
    pub credits: CreditsView,
    /// How many boxes it has.
    pub boxes: AccountBoxes,
    /// What the caller has to know: that the credits are about to run out (rule 4.12).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notices: Vec<String>,
}

/// The credits of an account at this moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CreditsView {
    /// True where they never run out; absent otherwise.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unlimited: bool,
    /// What is left; below zero by what ran until its boxes were frozen. Absent when unlimited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left: Option<f64>,
    /// What was used since the account was made.
    pub used: f64,
    /// What an hour costs with the boxes that are up now.
    pub per_hour: f64,
    /// When nothing is left if these stay up; in the past or now when nothing is. Absent when that is never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Moment>")]
    pub runs_out_at: Option<Timestamp>,
}

/// How many boxes an account has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AccountBoxes {
    /// That have not stopped for good, frozen ones among them.
    pub active: u64,
    /// That have, in the last 7 days (rule 6.8).
    pub stopped: u64,
}

/// Answer of `GET /v1/accounts`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AccountsResponse {
    /// Every account, in the order in which they were made.
    pub accounts: Vec<AccountView>,
}

/// Body of `POST /v1/accounts/{name}/credits`: exactly one of its fields.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CreditsRequest {
    /// So many more, 0.000001 to 1000000000 credits. An account that was unlimited has just these from now on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub add: Option<f64>,
    /// So many are left, 0 to 1000000000 credits. With 0 its boxes freeze.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left: Option<f64>,
    /// `true`: they never run out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unlimited: Option<bool>,
}

/// Body of `POST /v1/accounts`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewAccountRequest {
    /// Its name: 1 to 60 lowercase letters, digits, `-` and `_`.
    pub name: String,
    /// What it begins with, 0 to 1000000000 credits; unlimited when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credits: Option<f64>,
}

/// Answer of `POST /v1/accounts` and `POST /v1/accounts/{name}/keys`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NewKeyResponse {
    /// The account.
    pub account: String,
    /// A key for it. The server keeps its hash only, so that nobody is told again.
    pub key: String,
    /// The id by which it is listed and revoked.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub id: String,
}
