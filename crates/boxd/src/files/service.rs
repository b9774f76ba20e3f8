//! `filesystem.Filesystem`, the E2B service: translates between the wire and `tree` and `watchers`.

use std::sync::Arc;

use buffa::MessageField;
use connectrpc::{
    ConnectError, RequestContext, Response, ServiceRequest, ServiceResult, ServiceStream,
};
use futures_util::StreamExt as _;
use icebox_wire::filesystem::{
    CreateWatcherRequest, CreateWatcherResponse, Filesystem, GetWatcherEventsRequest,
    GetWatcherEventsResponse, ListDirRequest, ListDirResponse, MakeDirRequest, MakeDirResponse,
    MoveRequest, MoveResponse, RemoveRequest, RemoveResponse, RemoveWatcherRequest,
    RemoveWatcherResponse, StatRequest, StatResponse, WatchDirRequest, WatchDirResponse,
};

use super::acting::Acting;
use super::path::resolve;
use super::tree;
use super::watch::What;
use super::watchers::{Watchers, follow};
use crate::access::acting_user;
use crate::calls;
use crate::restart::gate::Gate;
use crate::settings::Settings;

/// The service.
pub(crate) struct FilesystemService {
    settings: Arc<Settings>,
    watchers: Arc<Watchers>,
    gate: Arc<Gate>,
}

impl FilesystemService {
    pub(crate) fn new(settings: Arc<Settings>, watchers: Arc<Watchers>, gate: Arc<Gate>) -> Self {
        Self {
            settings,
            watchers,
            gate,
        }
    }

    fn acting(&self, ctx: &RequestContext) -> Result<Acting, ConnectError> {
        let user = acting_user(ctx, &self.settings)?;
        Ok(Acting::new(user, &self.settings))
    }
}

#[expect(
    refining_impl_trait,
    reason = "the concrete answers are what this program means to give"
)]
impl Filesystem for FilesystemService {
    async fn stat(
        &self,
        ctx: RequestContext,
        request: ServiceRequest<'_, StatRequest>,
    ) -> ServiceResult<StatResponse> {
        let acting = self.acting(&ctx)?;
        let path = resolve(request.path, &acting)?;
        let entry = acting.aside(move || tree::stat(&path)).await?;
        Response::ok(StatResponse {
            entry: MessageField::some(entry),
            ..Default::default()
        })
    }

    async fn make_dir(
        &self,
        ctx: RequestContext,
        request: ServiceRequest<'_, MakeDirRequest>,
    ) -> ServiceResult<MakeDirResponse> {
        let acting = self.acting(&ctx)?;
        let path = resolve(request.path, &acting)?;
        let entry = acting.aside(move || tree::make_dir(&path)).await?;
        Response::ok(MakeDirResponse {
            entry: MessageField::some(entry),
            ..Default::default()
        })
    }

    async fn r#move(
        &self,
        ctx: RequestContext,
        request: ServiceRequest<'_, MoveRequest>,
    ) -> ServiceResult<MoveResponse> {
        let acting = self.acting(&ctx)?;
        let source = resolve(request.source, &acting)?;
        let destination = resolve(request.destination, &acting)?;
        let entry = acting
            .aside(move || tree::move_to(&source, &destination))
            .await?;
        Response::ok(MoveResponse {
            entry: MessageField::some(entry),
            ..Default::default()
        })
    }

    async fn list_dir(
        &self,
        ctx: RequestContext,
        request: ServiceRequest<'_, ListDirRequest>,
    ) -> ServiceResult<ListDirResponse> {
        let acting = self.acting(&ctx)?;
        let path = resolve(request.path, &acting)?;
        let depth = request.depth.max(1);
        let entries = acting.aside(move || tree::list(&path, depth)).await?;
        Response::ok(ListDirResponse {
            entries,
            ..Default::default()
        })
    }

    async fn remove(
        &self,
        ctx: RequestContext,
        request: ServiceRequest<'_, RemoveRequest>,
    ) -> ServiceResult<RemoveResponse> {
        let acting = self.acting(&ctx)?;
        let path = resolve(request.path, &acting)?;
        acting.aside(move || tree::remove(&path)).await?;
        Response::ok(RemoveResponse::default())
    }

    async fn watch_dir(
        &self,
        ctx: RequestContext,
        request: ServiceRequest<'_, WatchDirRequest>,
    ) -> ServiceResult<ServiceStream<WatchDirResponse>> {
        let acting = self.acting(&ctx)?;
        let what = What {
            root: resolve(request.path, &acting)?,
            recursive: request.recursive,
            include_entry: request.include_entry,
            allow_network_mounts: request.allow_network_mounts,
        };
        let (keepalive, limit) = (calls::keepalive(&ctx), calls::timeout(&ctx)?);
        let events = self.watchers.start(acting, what).await?;
        let gate = Arc::clone(&self.gate);
        let messages = follow(events, keepalive, limit, gate).map(|event| {
            Ok(WatchDirResponse {
                event: Some(event?),
                ..Default::default()
            })
        });
        Response::ok(Box::pin(messages))
    }

    async fn create_watcher(
        &self,
        ctx: RequestContext,
        request: ServiceRequest<'_, CreateWatcherRequest>,
    ) -> ServiceResult<CreateWatcherResponse> {
        let acting = self.acting(&ctx)?;
        let what = What {
            root: resolve(request.path, &acting)?,
            recursive: request.recursive,
            include_entry: request.include_entry,
            allow_network_mounts: request.allow_network_mounts,
        };
        let events = self.watchers.start(acting, what).await?;
        Response::ok(CreateWatcherResponse {
            watcher_id: self.watchers.keep(events),
            ..Default::default()
        })
    }

    async fn get_watcher_events(
        &self,
        _: RequestContext,
        request: ServiceRequest<'_, GetWatcherEventsRequest>,
    ) -> ServiceResult<GetWatcherEventsResponse> {
        Response::ok(GetWatcherEventsResponse {
            events: self.watchers.collect(request.watcher_id)?,
            ..Default::default()
        })
    }

    async fn remove_watcher(
        &self,
        _: RequestContext,
        request: ServiceRequest<'_, RemoveWatcherRequest>,
    ) -> ServiceResult<RemoveWatcherResponse> {
        self.watchers.remove(request.watcher_id)?;
        Response::ok(RemoveWatcherResponse::default())
    }
}
