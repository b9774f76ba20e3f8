//! `/openapi.json`: the table in the form of OpenAPI 3.1. Owns that form and the words of the document itself; what a call is
//! stands in the table, what its bodies are in the types of `icebox-wire`, whose comments are the descriptions.

use std::collections::BTreeMap;

use icebox_wire::rest::{AGENT_HEADER, CSRF_HEADER, ErrorBody};
use schemars::generate::SchemaSettings;
use schemars::transform::RecursiveTransform;
use schemars::{Schema, SchemaGenerator};
use serde_json::{Map, Value, json};

use super::{Answer, Operation, Param, Taken, Takes, Who};
use crate::api::error;
use crate::commands::{Kind, Trouble};

/// What the document says of itself.
const ABOUT: &str = "\
Boxes are isolated Linux computers that freeze to disk when nobody uses them, memory and all, and thaw on the next call. This is the \
boxes dialect; the same boxes are reached by agents at `/mcp` and by E2B's clients at paths of their own, which are not described \
here. Times are RFC 3339, UTC. Requests with fields that are not known are refused; answers may have more fields than are \
described, and more words where one of several is given.";

/// Places in paths: the part before, and what stands there.
const PLACES: &[(&str, &str)] = &[
    ("accounts", "The name of an account."),
    (
        "agents",
        "The id of a conversation: 1 to 64 letters, digits, `-` and `_`.",
    ),
    ("boxes", "The id of a box."),
    ("connections", "The id of a connection."),
    ("downloads", "What the address was given with."),
    ("environments", "The name of an environment."),
    ("procs", "The id of a command: its `execId` or `bgId`."),
    ("projects", "The id or the name of a project."),
    ("secrets", "The name of a secret."),
    ("services", "The name of a service."),
    ("snapshots", "The id or the name of a snapshot."),
    ("webhooks", "The id of a webhook."),
];

/// The schemas that bodies refer to.
struct Schemas {
    /// Of what clients send.
    sent: SchemaGenerator,
    /// Of what the server answers.
    answered: SchemaGenerator,
}

impl Schemas {
    fn new() -> Self {
        let settings = || {
            SchemaSettings::draft2020_12().with(|settings| {
                settings.definitions_path = "/components/schemas".into();
                settings.meta_schema = None;
            })
        };
        Self {
            sent: settings().for_deserialize().into_generator(),
            answered: settings()
                .for_serialize()
                .with_transform(RecursiveTransform(absent_not_null))
                .into_generator(),
        }
    }

    /// All of them by name. What is both sent and answered looks the same either way.
    fn by_name(mut self) -> Map<String, Value> {
        let mut all = self.sent.take_definitions(true);
        for (name, schema) in self.answered.take_definitions(true) {
            let before = all.insert(name.clone(), schema.clone());
            debug_assert!(
                before.is_none_or(|before| before == schema),
                "`{name}` is sent in another form than it is answered: give it two types"
            );
        }
        all
    }
}

/// What may be absent from an answer is never `null` there: types leave it out instead.
fn absent_not_null(schema: &mut Schema) {
    let required = schema.get("required").cloned().unwrap_or_default();
    let is_required = |name: &str| {
        let mut names = required.as_array().into_iter().flatten();
        names.any(|required| required == name)
    };
    let fields = schema.get_mut("properties").and_then(Value::as_object_mut);
    for (name, field) in fields.into_iter().flatten() {
        if is_required(name) {
            continue;
        }
        let Some(field) = field.as_object_mut() else {
            continue;
        };
        if let Some(Value::Array(kinds)) = field.get_mut("type") {
            kinds.retain(|kind| kind != "null");
            if let [only] = &mut kinds[..] {
                let only = only.take();
                field.insert("type".to_owned(), only);
            }
        }
        if let Some(Value::Array(forms)) = field.get_mut("anyOf") {
            forms.retain(|form| form.get("type").is_none_or(|kind| kind != "null"));
            if let [Value::Object(only)] = &mut forms[..] {
                let only = std::mem::take(only);
                field.remove("anyOf");
                field.extend(only);
            }
        }
    }
}

/// The document of these calls; `cookie` is that of a browser that is signed in.
pub(in crate::api) fn document(operations: &[Operation], cookie: &str) -> Value {
    let mut schemas = Schemas::new();
    let mut paths: BTreeMap<&str, Map<String, Value>> = BTreeMap::new();
    for operation in operations {
        let method = operation.method.as_str().to_ascii_lowercase();
        let shown = shown(operation, &mut schemas);
        paths
            .entry(operation.path)
            .or_default()
            .insert(method, shown);
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Icebox",
            "version": env!("CARGO_PKG_VERSION"),
            "summary": "Computers for AI agents",
            "description": ABOUT,
            "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" },
        },
        "servers": [{ "url": "/" }],
        "paths": paths,
        "components": {
            "schemas": schemas.by_name(),
            "parameters": { "agent": agent() },
            "securitySchemes": security_schemes(cookie),
        },
    })
}

/// The header that every call may have which needs a key.
fn agent() -> Value {
    json!({
        "name": AGENT_HEADER,
        "in": "header",
        "description": "The conversation that calls: 1 to 64 letters, digits, `-` and `_`.",
        "schema": { "type": "string" },
    })
}

fn security_schemes(cookie: &str) -> Value {
    let session = format!(
        "A browser that is signed in (`POST /v1/session`). Requests other than GET and HEAD need `{CSRF_HEADER}: 1` as well."
    );
    json!({
        "key": {
            "type": "http",
            "scheme": "bearer",
            "description": "A key of an account; the first one is in `admin.key` in the server's data folder.",
        },
        "session": { "type": "apiKey", "in": "cookie", "name": cookie, "description": session },
        "writeKey": {
            "type": "http",
            "scheme": "bearer",
            "description": "The write key of a project; it may be in the body instead.",
        },
        "writeKeyInQuery": {
            "type": "apiKey",
            "in": "query",
            "name": "key",
            "description": "The same in the query, for pages that send as they close.",
        },
    })
}

/// One call.
fn shown(operation: &Operation, schemas: &mut Schemas) -> Value {
    let mut shown = json!({
        "operationId": operation.id,
        "summary": operation.summary,
        "tags": [tag(operation.path)],
        "security": security(operation.asked.who),
        "parameters": parameters(operation),
        "responses": responses(operation, schemas),
    });
    let mut add = |word: &str, value: Value| {
        if let Some(shown) = shown.as_object_mut() {
            shown.insert(word.to_owned(), value);
        }
    };
    let admin = (operation.asked.who == Who::Admin).then_some("Needs an admin's key.");
    let about: Vec<&str> = operation.about.into_iter().chain(admin).collect();
    if !about.is_empty() {
        add("description", about.join(" ").into());
    }
    if let Some(body) = operation.asked.body {
        add("requestBody", request_body(body, schemas));
    }
    if !operation.tools.is_empty() {
        add("x-mcp-tools", operation.tools.into());
    }
    shown
}

/// What calls with similar paths are listed under.
fn tag(path: &str) -> &str {
    let mut parts = path.split('/').filter(|part| !part.is_empty());
    match (parts.next(), parts.next()) {
        (Some("v1"), Some(part)) => part,
        (_, _) => "operations",
    }
}

fn security(who: Who) -> Value {
    match who {
        Who::Anybody => json!([]),
        Who::Writers => json!([{ "writeKey": [] }, { "writeKeyInQuery": [] }, {}]),
        Who::Account | Who::Admin => json!([{ "key": [] }, { "session": [] }]),
        Who::WithKey => json!([{ "key": [] }]),
        Who::SignedIn => json!([{ "session": [] }]),
    }
}

fn parameters(operation: &Operation) -> Vec<Value> {
    let in_path = places(operation.path).map(|(name, about)| {
        json!({
            "name": name,
            "in": "path",
            "required": true,
            "description": about,
            "schema": { "type": "string" },
        })
    });
    let query = operation.asked.query.iter().map(in_query);
    let agent = match operation.asked.who {
        Who::Account | Who::WithKey => Some(json!({ "$ref": "#/components/parameters/agent" })),
        Who::Anybody | Who::Writers | Who::SignedIn | Who::Admin => None,
    };
    in_path.chain(query).chain(agent).collect()
}

/// The names that stand for something in a path, and for what.
fn places(path: &str) -> impl Iterator<Item = (&str, &str)> {
    let parts = path.split('/');
    parts
        .clone()
        .zip(parts.skip(1))
        .filter_map(|(before, part)| {
            let name = part.strip_prefix('{')?.strip_suffix('}')?;
            let about = PLACES.iter().find(|(place, _)| *place == before);
            Some((name, about.map_or("", |(_, about)| about)))
        })
}

fn in_query(param: &Param) -> Value {
    let schema = match param.takes {
        Takes::Flag => json!({ "type": "boolean" }),
        Takes::Count => json!({ "type": "integer", "minimum": 0 }),
        Takes::Number { least, most } => {
            json!({ "type": "integer", "minimum": least, "maximum": most })
        }
        Takes::Text => json!({ "type": "string" }),
        Takes::Word(words) => json!({ "type": "string", "enum": words }),
    };
    json!({
        "name": param.name,
        "in": "query",
        "required": param.required,
        "description": param.about,
        "schema": schema,
    })
}

fn request_body(body: Taken, schemas: &mut Schemas) -> Value {
    let (media, schema) = match body {
        Taken::Json(schema) => ("application/json", Some(schema)),
        Taken::Text => ("text/plain", None),
        Taken::Bytes => ("application/octet-stream", None),
        Taken::Media(media, schema) => (media, schema),
    };
    let schema = schema.map(|schema| schema(&mut schemas.sent).to_value());
    // An empty body reads as an object without fields.
    let may_be_empty = matches!(body, Taken::Json(_))
        && schema.as_ref().is_some_and(|schema| {
            let schema = referred(&schemas.sent, schema);
            schema
                .get("required")
                .is_none_or(|fields| *fields == json!([]))
        });
    let content = schema.map_or_else(|| json!({}), |schema| json!({ "schema": schema }));
    json!({ "required": !may_be_empty, "content": { media: content } })
}

/// The schema itself, where there is a reference.
fn referred<'s>(schemas: &'s SchemaGenerator, schema: &'s Value) -> &'s Value {
    let name = schema.get("$ref").and_then(Value::as_str);
    let name = name.and_then(|path| path.rsplit('/').next());
    let there = name.and_then(|name| schemas.definitions().get(name));
    there.unwrap_or(schema)
}

fn responses(operation: &Operation, schemas: &mut Schemas) -> Value {
    let mut by_status: BTreeMap<String, Value> = BTreeMap::new();
    let mut succeed: BTreeMap<u16, Vec<&Answer>> = BTreeMap::new();
    for answer in &operation.answers {
        succeed.entry(answer.status).or_default().push(answer);
    }
    for (status, answers) in succeed {
        by_status.insert(status.to_string(), success(&answers, schemas));
    }
    let error = schemas.answered.subschema_for::<ErrorBody>().to_value();
    let mut fail: BTreeMap<u16, Vec<Kind>> = BTreeMap::new();
    for kind in kinds(operation) {
        let of_status = fail.entry(error::status(kind)).or_default();
        if !of_status.contains(&kind) {
            of_status.push(kind);
        }
    }
    for (status, kinds) in fail {
        by_status.insert(status.to_string(), failure(&kinds, &error));
    }
    json!(by_status)
}

/// All that can go wrong.
fn kinds(operation: &Operation) -> Vec<Kind> {
    let asked = &operation.asked;
    let mut kinds = operation.refusals.clone();
    match asked.who {
        Who::Anybody => {}
        Who::Writers | Who::WithKey => kinds.push(Kind::Unauthorized),
        Who::Account | Who::SignedIn | Who::Admin => {
            kinds.extend([Kind::Unauthorized, Kind::Forbidden]);
        }
    }
    if asked.body.is_some() {
        kinds.extend([Kind::BadRequest, Kind::TooLarge, Kind::TooSlow]);
    }
    if !asked.query.is_empty() || asked.who != Who::Anybody {
        kinds.push(Kind::BadRequest);
    }
    if operation.path.contains('{') {
        kinds.extend([Kind::BadRequest, Kind::NotFound]);
    }
    if operation.path.starts_with("/v1/") {
        kinds.extend([Kind::Busy, Kind::Internal]);
    }
    kinds
}

/// What is answered when all goes well, in every form that it can have.
fn success(answers: &[&Answer], schemas: &mut Schemas) -> Value {
    let mut content: BTreeMap<&str, Vec<Value>> = BTreeMap::new();
    let mut headers = Map::new();
    for answer in answers {
        if let Some(media) = answer.media {
            let schema = answer.schema.map(|schema| schema(&mut schemas.answered));
            let forms = content.entry(media).or_default();
            forms.extend(schema.map(Schema::to_value));
        }
        for (name, about) in answer.headers {
            let schema = json!({ "type": "string" });
            let header = json!({ "description": about, "schema": schema });
            headers.insert((*name).to_owned(), header);
        }
    }
    let content = content.into_iter().map(|(media, mut forms)| {
        let shown = match forms.len() {
            0 => json!({}),
            1 => json!({ "schema": forms.remove(0) }),
            _ => json!({ "schema": { "anyOf": forms } }),
        };
        (media.to_owned(), shown)
    });
    let content: Map<String, Value> = content.collect();
    let about = answers.iter().find_map(|answer| answer.about);
    let mut shown = json!({ "description": about.unwrap_or("Done.") });
    for (word, part) in [("content", content), ("headers", headers)] {
        if !part.is_empty()
            && let Some(shown) = shown.as_object_mut()
        {
            shown.insert(word.to_owned(), part.into());
        }
    }
    shown
}

/// What is answered in trouble of these kinds.
fn failure(kinds: &[Kind], error: &Value) -> Value {
    let about = kinds.iter().map(|kind| {
        let (code, meaning) = (error::code(*kind), error::meaning(*kind));
        format!("`{code}`: {meaning}")
    });
    let about: Vec<String> = about.collect();
    let mut shown = json!({
        "description": about.join(" "),
        "content": { "application/json": { "schema": error } },
    });
    let retry = |kind: &Kind| Trouble::new(*kind, "").retry_after_sec.is_some();
    if kinds.iter().any(retry)
        && let Some(shown) = shown.as_object_mut()
    {
        let after = json!({
            "description": "When to try again, in seconds.",
            "schema": { "type": "integer" },
        });
        shown.insert("headers".to_owned(), json!({ "Retry-After": after }));
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::super::table;
    use super::*;

    #[test]
    fn every_place_in_a_path_is_explained() {
        for operation in table(true) {
            for (name, about) in places(operation.path) {
                assert!(!about.is_empty(), "{}: {name}", operation.path);
            }
        }
    }
}
