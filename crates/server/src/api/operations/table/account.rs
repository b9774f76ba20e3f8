//! The rows of the table about what accounts keep, send and are.

use icebox_wire::rest::LogBatch;
use schemars::{Schema, SchemaGenerator, json_schema};

use super::{ENDED, NEEDS_BOX};
use crate::api::operations::{Operation, Taken, Who, delete, get, options, patch, post, put};
use crate::api::{account, collect, keep, projects, session, webhooks, wiring};
use crate::commands::Kind;

pub(super) fn messages() -> Vec<Operation> {
    vec![
        post(
            "/v1/boxes/{id}/say",
            "say",
            "Tell the person who watches a box",
            keep::say,
        )
        .refuses(ENDED)
        .tools(&["sandbox_say"]),
        get(
            "/v1/boxes/{id}/messages",
            "listMessages",
            "What people left for whoever holds a box",
            keep::messages,
        ),
        post(
            "/v1/boxes/{id}/messages",
            "leaveMessage",
            "Leave a message for whoever holds a box",
            keep::leave_message,
        )
        .refuses(ENDED)
        .refuses(&[Kind::TooMany]),
        post(
            "/v1/boxes/{id}/messages/received",
            "confirmMessages",
            "Say that messages arrived",
            keep::received,
        ),
        post(
            "/v1/feedback",
            "giveFeedback",
            "Tell the operator what to improve",
            keep::feedback,
        )
        .refuses(&[Kind::NotFound])
        .tools(&["sandbox_feedback"]),
        get(
            "/v1/feedback",
            "listFeedback",
            "What agents said",
            keep::all_feedback,
        ),
    ]
}

pub(super) fn kept() -> Vec<Operation> {
    vec![
        get(
            "/v1/secrets",
            "listSecrets",
            "Names of secrets",
            keep::secrets,
        )
        .tools(&["sandbox_secrets"]),
        put(
            "/v1/secrets/{name}",
            "setSecret",
            "Set a secret",
            keep::set_secret,
        )
        .refuses(&[Kind::TooMany]),
        delete(
            "/v1/secrets/{name}",
            "removeSecret",
            "Remove a secret",
            keep::remove_secret,
        ),
        post(
            "/v1/boxes/{id}/secrets",
            "giveSecrets",
            "Give secrets to a box",
            keep::give,
        )
        .refuses(NEEDS_BOX)
        .tools(&["sandbox_secrets"]),
        get(
            "/v1/versions",
            "listVersions",
            "Published versions, newest first",
            keep::versions,
        )
        .tools(&["sandbox_versions"]),
        post(
            "/v1/versions",
            "publishVersion",
            "Publish a version of a service",
            keep::publish,
        )
        .refuses(&[Kind::TooMany])
        .tools(&["sandbox_publish_version"]),
    ]
}

pub(super) fn environments() -> Vec<Operation> {
    vec![
        get(
            "/v1/environments",
            "listEnvironments",
            "Environments",
            keep::environments,
        )
        .tools(&["sandbox_environments"]),
        post(
            "/v1/environments",
            "makeEnvironment",
            "Make an environment",
            keep::make_environment,
        )
        .refuses(&[Kind::TooMany]),
        delete(
            "/v1/environments/{name}",
            "removeEnvironment",
            "Remove an environment",
            keep::remove_environment,
        ),
        put(
            "/v1/environments/{name}/services/{service}",
            "setService",
            "Set a service's settings",
            keep::set_service,
        )
        .about("The body is a `.env` file.")
        .refuses(&[Kind::TooMany]),
        delete(
            "/v1/environments/{name}/services/{service}",
            "removeService",
            "Remove a service's settings",
            keep::remove_service,
        ),
        post(
            "/v1/environments/{name}/connections",
            "makeConnection",
            "A way into networks of the operator's",
            wiring::connect,
        )
        .refuses(&[Kind::TooMany]),
        delete(
            "/v1/environments/{name}/connections/{id}",
            "removeConnection",
            "Remove a connection",
            wiring::disconnect,
        ),
        put(
            "/v1/environments/{name}/connections/{id}/endpoints",
            "setEndpoints",
            "Say what boxes reach over a connection",
            wiring::set_endpoints,
        ),
    ]
}

pub(super) fn logs() -> Vec<Operation> {
    vec![
        post(
            "/v1/logs",
            "sendLogs",
            "Send what an app logged",
            collect::take,
        )
        .takes(Taken::Json(SchemaGenerator::subschema_for::<LogBatch>))
        .by(Who::Writers)
        .refuses(&[Kind::Forbidden]),
        options(
            "/v1/logs",
            "maySendLogs",
            "Ask whether a page may",
            collect::preflight,
        ),
        get(
            "/v1/projects",
            "listProjects",
            "Projects, by name",
            projects::list,
        ),
        post(
            "/v1/projects",
            "makeProject",
            "Make a project",
            projects::create,
        )
        .refuses(&[Kind::TooMany]),
        get(
            "/v1/projects/{project}",
            "project",
            "One project",
            projects::one,
        ),
        delete(
            "/v1/projects/{project}",
            "removeProject",
            "Remove a project with all it logged",
            projects::remove,
        ),
        post(
            "/v1/projects/{project}/rotate",
            "rotateWriteKey",
            "Another write key",
            projects::rotate,
        ),
        post(
            "/v1/projects/{project}/sourcemaps",
            "addSourceMaps",
            "Add the source maps of a release",
            projects::source_maps,
        )
        .takes(Taken::Media("multipart/form-data", Some(source_maps))),
        get(
            "/v1/projects/{project}/logs",
            "searchLogs",
            "Rows of a log, oldest first",
            projects::search,
        )
        .tools(&["logs_search"]),
        get(
            "/v1/projects/{project}/logs/errors",
            "listErrors",
            "Errors in a log, oldest first",
            projects::errors,
        )
        .tools(&["logs_errors"]),
        get(
            "/v1/projects/{project}/logs/tail",
            "tailLogs",
            "What is logged from now on",
            projects::tail,
        )
        .tools(&["logs_tail"]),
    ]
}

fn source_maps(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "properties": {
            "release": { "type": "string", "description": "The release that they are of." },
        },
        "required": ["release"],
        "additionalProperties": {
            "type": "string",
            "contentMediaType": "application/json",
            "description": "A source map, named by the served path of its script.",
        },
    })
}

pub(super) fn webhooks() -> Vec<Operation> {
    vec![
        get(
            "/v1/webhooks",
            "listWebhooks",
            "Webhooks, oldest first",
            webhooks::list,
        ),
        post(
            "/v1/webhooks",
            "makeWebhook",
            "Have events sent",
            webhooks::create,
        )
        .refuses(&[Kind::NotFound, Kind::TooMany]),
        get("/v1/webhooks/{id}", "webhook", "One webhook", webhooks::get),
        patch(
            "/v1/webhooks/{id}",
            "changeWebhook",
            "Change a webhook",
            webhooks::patch,
        ),
        delete(
            "/v1/webhooks/{id}",
            "removeWebhook",
            "Remove a webhook",
            webhooks::remove,
        ),
        post(
            "/v1/webhooks/{id}/test",
            "testWebhook",
            "Send it something",
            webhooks::test,
        ),
        get(
            "/v1/webhooks/{id}/deliveries",
            "listDeliveries",
            "What became of its deliveries",
            webhooks::deliveries,
        ),
    ]
}

pub(super) fn accounts() -> Vec<Operation> {
    vec![
        get(
            "/v1/account",
            "account",
            "The caller's account",
            account::own,
        ),
        get(
            "/v1/accounts",
            "listAccounts",
            "All accounts",
            account::list,
        ),
        post(
            "/v1/accounts",
            "makeAccount",
            "Make an account",
            account::make,
        ),
        get(
            "/v1/accounts/{name}",
            "accountNamed",
            "One account",
            account::one,
        ),
        post(
            "/v1/accounts/{name}/credits",
            "setCredits",
            "Change an account's credits",
            account::set_credits,
        ),
        get(
            "/v1/accounts/{name}/keys",
            "listKeys",
            "An account's keys",
            account::keys,
        ),
        post(
            "/v1/accounts/{name}/keys",
            "makeKey",
            "One more key",
            account::add_key,
        ),
        post(
            "/v1/accounts/{name}/keys/revoke",
            "revokeKey",
            "Revoke a key",
            account::revoke_key,
        )
        .refuses(&[Kind::InUse]),
        get("/v1/session", "session", "Who is signed in", session::show),
        post(
            "/v1/session",
            "signIn",
            "Sign a browser in",
            session::sign_in,
        )
        .refuses(&[Kind::Unauthorized, Kind::Forbidden]),
        delete("/v1/session", "signOut", "Sign it out", session::sign_out),
        post(
            "/v1/session/links",
            "makeSignInLink",
            "A link that signs a browser in, once",
            session::link,
        ),
    ]
}
