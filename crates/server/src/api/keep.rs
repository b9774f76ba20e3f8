//! What accounts keep for their boxes, over REST: secrets, environments, versions, builds, messages, feedback. Translates only.

use axum::Json;
use axum::extract::{Path, State};
use icebox_lifecycle::BoxId;
use icebox_wire::rest::{
    BuildRequest, BuildResponse, EnvironmentRequest, EnvironmentServiceView, EnvironmentView,
    EnvironmentsResponse, FeedbackRequest, FeedbackResponse, GiveRequest, GiveResponse,
    MessageView, MessagesResponse, OkResponse, ReceivedRequest, SayRequest, SecretRequest,
    SecretView, SecretsResponse, TextRequest, VersionRequest, VersionView, VersionsResponse,
};

use super::App;
use super::input::{Body, Params, Text};
use super::operations::{Created, NoQuery, Param, Query};
use super::who::Admin;
use crate::commands::{Caller, Trouble};

/// What a list of versions is asked.
pub(super) struct OfService;

impl Query for OfService {
    const PARAMS: &'static [Param] = &[Param::text("service", "Only those of this service.")];
}

pub(super) async fn secrets(
    State(app): State<App>,
    caller: Caller,
    _: Params<NoQuery>,
) -> Result<Json<SecretsResponse>, Trouble> {
    app.commands.secrets(&caller).await.map(Json)
}

pub(super) async fn set_secret(
    State(app): State<App>,
    caller: Caller,
    Path(name): Path<String>,
    Body(request): Body<SecretRequest>,
) -> Result<Json<SecretView>, Trouble> {
    let set = app.commands.set_secret(&caller, &name, request);
    set.await.map(Json)
}

pub(super) async fn remove_secret(
    State(app): State<App>,
    caller: Caller,
    Path(name): Path<String>,
) -> Result<Json<OkResponse>, Trouble> {
    app.commands.remove_secret(&caller, &name).await?;
    Ok(Json(OkResponse { ok: true }))
}

pub(super) async fn give(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
    Body(request): Body<GiveRequest>,
) -> Result<Json<GiveResponse>, Trouble> {
    let given = app.commands.give_secrets(&caller, &id, &request.names);
    Ok(Json(GiveResponse {
        names: given.await?,
        notices: app.commands.notices(&caller, BoxId::parse(&id)),
    }))
}

pub(super) async fn environments(
    State(app): State<App>,
    caller: Caller,
    _: Params<NoQuery>,
) -> Result<Json<EnvironmentsResponse>, Trouble> {
    app.commands.environments(&caller).await.map(Json)
}

pub(super) async fn make_environment(
    State(app): State<App>,
    caller: Caller,
    Body(request): Body<EnvironmentRequest>,
) -> Result<Created<EnvironmentView>, Trouble> {
    let made = app.commands.make_environment(&caller, request);
    made.await.map(Created)
}

pub(super) async fn remove_environment(
    State(app): State<App>,
    caller: Caller,
    Path(name): Path<String>,
) -> Result<Json<OkResponse>, Trouble> {
    app.commands.remove_environment(&caller, &name).await?;
    Ok(Json(OkResponse { ok: true }))
}

pub(super) async fn set_service(
    State(app): State<App>,
    caller: Caller,
    Path((environment, service)): Path<(String, String)>,
    Text(text): Text,
) -> Result<Json<EnvironmentServiceView>, Trouble> {
    let set = app.commands;
    let set = set.set_service(&caller, &environment, &service, Some(&text));
    set.await.map(Json)
}

pub(super) async fn remove_service(
    State(app): State<App>,
    caller: Caller,
    Path((environment, service)): Path<(String, String)>,
) -> Result<Json<OkResponse>, Trouble> {
    let commands = app.commands;
    let removed = commands.set_service(&caller, &environment, &service, None);
    removed.await?;
    Ok(Json(OkResponse { ok: true }))
}

pub(super) async fn versions(
    State(app): State<App>,
    caller: Caller,
    params: Params<OfService>,
) -> Result<Json<VersionsResponse>, Trouble> {
    let listed = app.commands.versions(&caller, params.get("service"));
    listed.await.map(Json)
}

pub(super) async fn publish(
    State(app): State<App>,
    caller: Caller,
    Body(request): Body<VersionRequest>,
) -> Result<Created<VersionView>, Trouble> {
    let published = app.commands.publish_version(&caller, request);
    published.await.map(Created)
}

pub(super) async fn build(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
    Body(request): Body<BuildRequest>,
) -> Result<Json<BuildResponse>, Trouble> {
    let mut built = app.commands.build(&caller, &id, request).await?;
    built.notices = app.commands.notices(&caller, BoxId::parse(&id));
    Ok(Json(built))
}

pub(super) async fn say(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
    Body(request): Body<SayRequest>,
) -> Result<Json<OkResponse>, Trouble> {
    app.commands.say(&caller, &id, &request).await?;
    Ok(Json(OkResponse { ok: true }))
}

pub(super) async fn received(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
    Body(request): Body<ReceivedRequest>,
) -> Result<Json<OkResponse>, Trouble> {
    app.commands.received(&caller, &id, &request.ids).await?;
    Ok(Json(OkResponse { ok: true }))
}

pub(super) async fn leave_message(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
    Body(request): Body<TextRequest>,
) -> Result<Created<MessageView>, Trouble> {
    let left = app.commands.leave_message(&caller, &id, &request.text);
    left.await.map(Created)
}

pub(super) async fn messages(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
    _: Params<NoQuery>,
) -> Result<Json<MessagesResponse>, Trouble> {
    app.commands.messages(&caller, &id).await.map(Json)
}

pub(super) async fn feedback(
    State(app): State<App>,
    caller: Caller,
    Body(request): Body<FeedbackRequest>,
) -> Result<Json<OkResponse>, Trouble> {
    app.commands.feedback(&caller, request).await?;
    Ok(Json(OkResponse { ok: true }))
}

pub(super) async fn all_feedback(
    State(app): State<App>,
    _: Admin,
    _: Params<NoQuery>,
) -> Result<Json<FeedbackResponse>, Trouble> {
    app.commands.all_feedback().await.map(Json)
}
