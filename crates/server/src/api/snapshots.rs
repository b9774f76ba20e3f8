//! `/v1/snapshots`, and a box's snapshots and forks. Translates only.

use axum::Json;
use axum::extract::{Path, State};
use icebox_wire::rest::{
    Fork, ForkRequest, ForkResponse, SnapshotList, SnapshotRequest, SnapshotView,
};

use super::boxes::Nothing;
use super::input::{Body, Params};
use super::operations::{Created, NoQuery};
use super::{App, error};
use crate::commands::trouble::timestamp;
use crate::commands::{Caller, Trouble};
use crate::snapshot::Snapshot;

pub(super) async fn make(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
    Body(request): Body<SnapshotRequest>,
) -> Result<Created<SnapshotView>, Trouble> {
    let made = app.commands.snapshot(&caller, &id, request).await?;
    Ok(Created(shown(&made)))
}

pub(super) async fn list(
    State(app): State<App>,
    caller: Caller,
    _: Params<NoQuery>,
) -> Result<Json<SnapshotList>, Trouble> {
    let snapshots = app.commands.snapshots(&caller);
    Ok(Json(SnapshotList {
        snapshots: snapshots.iter().map(|it| shown(it)).collect(),
    }))
}

pub(super) async fn one(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Json<SnapshotView>, Trouble> {
    let found = app.commands.find_snapshot(&caller, &id)?;
    Ok(Json(shown(&found)))
}

pub(super) async fn remove(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
    Body(Nothing {}): Body<Nothing>,
) -> Result<Json<SnapshotView>, Trouble> {
    let removed = app.commands.remove_snapshot(&caller, &id).await?;
    Ok(Json(shown(&removed)))
}

pub(super) async fn fork(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
    Body(request): Body<ForkRequest>,
) -> Result<Created<ForkResponse>, Trouble> {
    app.fork(&caller, &id, request).await.map(Created)
}

impl App {
    /// Forks a box, and describes what came of it.
    pub(super) async fn fork(
        &self,
        caller: &Caller,
        id: &str,
        request: ForkRequest,
    ) -> Result<ForkResponse, Trouble> {
        let same = Box::new(|policy| policy);
        let forked = self.commands.fork(caller, id, request, same).await?;
        let mut forks = Vec::new();
        for fork in forked {
            forks.push(match fork {
                Ok(view) => Fork {
                    made: Some(Box::new(self.describe(caller, &view).await?)),
                    error: None,
                },
                Err(trouble) => Fork {
                    made: None,
                    error: Some(error::body(trouble)),
                },
            });
        }
        Ok(ForkResponse { forks })
    }
}

fn shown(snapshot: &Snapshot) -> SnapshotView {
    SnapshotView {
        id: snapshot.id.to_string(),
        name: snapshot.name.clone(),
        source: snapshot.source.to_string(),
        created_at: timestamp(snapshot.created_at),
        memory: snapshot.memory,
        bytes: snapshot.bytes,
        image: snapshot.record.image.to_string(),
        memory_mb: snapshot.record.size.memory_mb,
    }
}
