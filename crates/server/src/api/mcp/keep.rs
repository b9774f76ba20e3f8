//! The tools about what an account keeps for its boxes, and about words between agents and people.

use icebox_wire::rest;
use rmcp::model::JsonObject;

use super::params;
use super::tools::{Asking, Outcome, fields};
use crate::api::App;
use crate::api::input::arguments;
use crate::commands::{Kind, Trouble};

pub(super) async fn secrets(app: &App, asking: &Asking, args: JsonObject) -> Outcome {
    let args: params::Secrets = arguments(args)?;
    match (args.id, args.names) {
        (None, None) => fields(app.commands.secrets(&asking.caller).await?),
        (Some(id), Some(names)) => fields(rest::GiveResponse {
            names: app
                .commands
                .give_secrets(&asking.caller, &id, &names)
                .await?,
            notices: Vec::new(),
        }),
        (Some(_), None) => Err(missing("names", "which secrets the box is given")),
        (None, Some(_)) => Err(missing("id", "the box that is given them")),
    }
}

fn missing(field: &str, what: &str) -> Trouble {
    let text = format!("`{field}` is required: {what}; without both, secrets are listed");
    Trouble::new(Kind::BadRequest, text).with("field", field)
}

pub(super) async fn environments(app: &App, asking: &Asking, args: JsonObject) -> Outcome {
    let params::Nothing {} = arguments(args)?;
    fields(app.commands.environments(&asking.caller).await?)
}

pub(super) async fn versions(app: &App, asking: &Asking, args: JsonObject) -> Outcome {
    let args: params::Versions = arguments(args)?;
    let listed = app
        .commands
        .versions(&asking.caller, args.service.as_deref());
    fields(listed.await?)
}

pub(super) async fn publish_version(app: &App, asking: &Asking, args: JsonObject) -> Outcome {
    let args: params::PublishVersion = arguments(args)?;
    let request = rest::VersionRequest {
        service: args.service,
        label: args.label,
        image: args.image,
        from_box: args.from_box,
        cmd: args.cmd,
        note: args.note,
        git_sha: args.git_sha,
    };
    fields(
        app.commands
            .publish_version(&asking.caller, request)
            .await?,
    )
}

pub(super) async fn build(app: &App, asking: &Asking, args: JsonObject) -> Outcome {
    let args: params::Build = arguments(args)?;
    if args.note.trim().is_empty() {
        let text = "`note` is required: one sentence that says why it is built";
        return Err(Trouble::new(Kind::BadRequest, text).with("field", "note"));
    }
    let request = rest::BuildRequest {
        dir: args.dir,
        cmd: args.cmd,
        out: args.out,
        env: args.env.unwrap_or_default(),
        timeout_sec: args.timeout_sec,
        note: Some(args.note),
    };
    fields(
        app.commands
            .build(&asking.caller, &args.id, request)
            .await?,
    )
}

pub(super) async fn say(app: &App, asking: &Asking, args: JsonObject) -> Outcome {
    let args: params::Say = arguments(args)?;
    let request = rest::SayRequest {
        text: args.text,
        say_id: args.say_id,
    };
    app.commands.say(&asking.caller, &args.id, &request).await?;
    fields(rest::OkResponse { ok: true })
}

pub(super) async fn feedback(app: &App, asking: &Asking, args: JsonObject) -> Outcome {
    let args: params::Feedback = arguments(args)?;
    let request = rest::FeedbackRequest {
        task: args.task,
        usage: args.usage,
        problems: args.problems,
        suggestions: args.suggestions,
        id: args.id,
    };
    app.commands.feedback(&asking.caller, request).await?;
    fields(rest::OkResponse { ok: true })
}
