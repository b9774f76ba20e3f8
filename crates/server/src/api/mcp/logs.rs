//! The tools about application logs. Owns the words that teach an agent their arguments.

use rmcp::model::JsonObject;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde_json::Value;

use super::tools::{Asking, Outcome, fields};
use crate::api::App;
use crate::api::input::arguments;
use crate::logs::{ErrorsRequest, SearchRequest, TailRequest, Wanted};

/// `logs_search`.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Search {
    /// The project: its id or its name.
    project: String,
    /// What to look for: a plain term, in any case. When it begins with one of `{ ? - " % [`, a CloudWatch filter pattern:
    /// `"a phrase" b`, `?a ?b` (any), `-a` (without), `%regex%`, `{ $.extra.code >= 500 && $.user = "ann*" }`.
    #[schemars(length(max = 2_000))]
    query: Option<String>,
    /// Events of this name only: `console`, `error`, `rejection`, or one of the app's own; `*` is every event.
    #[schemars(length(max = 200))]
    name: Option<String>,
    /// Of this user only.
    #[schemars(length(max = 200))]
    user: Option<String>,
    /// Of this visit only.
    #[schemars(length(max = 200))]
    session: Option<String>,
    /// Of this browser only.
    #[schemars(length(max = 200))]
    device: Option<String>,
    /// From pages at this box's URLs only.
    box_id: Option<String>,
    #[serde(default)]
    #[schemars(schema_with = "moment")]
    since: Option<Value>,
    /// How many rows at most; 200 when left out.
    #[schemars(range(min = 1, max = 1_000))]
    limit: Option<u64>,
    /// The `nextCursor` of the page before.
    cursor: Option<String>,
}

/// `logs_errors`.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Errors {
    /// The project: its id or its name.
    project: String,
    /// From pages at this box's URLs only.
    box_id: Option<String>,
    #[serde(default)]
    #[schemars(schema_with = "moment")]
    since: Option<Value>,
    /// How many rows at most; 200 when left out.
    #[schemars(range(min = 1, max = 1_000))]
    limit: Option<u64>,
    /// The `nextCursor` of the page before.
    cursor: Option<String>,
}

/// `logs_tail`.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Tail {
    /// The project: its id or its name.
    project: String,
    /// What to look for, as in `logs_search`.
    #[schemars(length(max = 2_000))]
    query: Option<String>,
    /// Events of this name only; `*` is every event.
    #[schemars(length(max = 200))]
    name: Option<String>,
    /// Of this user only.
    #[schemars(length(max = 200))]
    user: Option<String>,
    /// Of this visit only.
    #[schemars(length(max = 200))]
    session: Option<String>,
    /// Of this browser only.
    #[schemars(length(max = 200))]
    device: Option<String>,
    /// From pages at this box's URLs only.
    box_id: Option<String>,
    /// The `cursor` of the call before; from now on when left out.
    cursor: Option<String>,
    /// How long to wait for the first row; 10 when left out.
    #[schemars(range(max = 25))]
    wait_sec: Option<u64>,
}

/// A moment, as text or number.
fn moment(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "description": "From when on: so long ago (`15m`, `1h`, `2d`), a moment (RFC 3339), or seconds since 1970; `1h` \
                        when left out.",
        "type": ["string", "integer"],
    })
}

/// A moment as text, however it was written.
fn as_text(since: Option<Value>) -> Option<String> {
    since.map(|value| match value {
        Value::String(text) => text,
        // What is no moment is told so with the rest.
        other @ (Value::Null
        | Value::Bool(_)
        | Value::Number(_)
        | Value::Array(_)
        | Value::Object(_)) => other.to_string(),
    })
}

pub(super) async fn search(app: &App, asking: &Asking, args: JsonObject) -> Outcome {
    let args: Search = arguments(args)?;
    let request = SearchRequest {
        wanted: Wanted {
            query: args.query,
            name: args.name,
            user: args.user,
            session: args.session,
            device: args.device,
            of_box: args.box_id,
        },
        since: as_text(args.since),
        limit: args.limit,
        cursor: args.cursor,
    };
    let found = app.logs.search(&asking.caller, &args.project, request);
    found.await.and_then(fields)
}

pub(super) async fn errors(app: &App, asking: &Asking, args: JsonObject) -> Outcome {
    let args: Errors = arguments(args)?;
    let request = ErrorsRequest {
        of_box: args.box_id,
        since: as_text(args.since),
        limit: args.limit,
        cursor: args.cursor,
    };
    let found = app.logs.errors(&asking.caller, &args.project, request);
    found.await.and_then(fields)
}

pub(super) async fn tail(app: &App, asking: &Asking, args: JsonObject) -> Outcome {
    let args: Tail = arguments(args)?;
    let request = TailRequest {
        wanted: Wanted {
            query: args.query,
            name: args.name,
            user: args.user,
            session: args.session,
            device: args.device,
            of_box: args.box_id,
        },
        cursor: args.cursor,
        wait_sec: args.wait_sec,
    };
    let came = app.logs.tail(&asking.caller, &args.project, request);
    came.await.and_then(fields)
}
