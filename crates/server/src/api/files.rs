//! Files of a box over HTTP: merge a tree, read, write, and read without a key what was handed out. Translates only.

use std::io;

use axum::Json;
use axum::body::Body as Bytes;
use axum::extract::{Path, State};
use axum::http::HeaderName;
use axum::http::header::{
    CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_LENGTH, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS,
};
use axum::response::{IntoResponse, Response};
use futures_util::{Stream, StreamExt as _};
use icebox_lifecycle::BoxId;
use icebox_wire::rest::{FileResponse, SyncResponse};
use icebox_wire::tree::ARCHIVE_HEADER;

use super::App;
use super::input::Params;
use crate::commands::{Caller, Kind, SyncRequest, Trouble};

pub(super) async fn sync(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
    params: Params,
    body: Bytes,
) -> Result<Json<SyncResponse>, Trouble> {
    let params = params.only(&["dest", "repo"])?;
    let request = SyncRequest {
        dest: required(&params, "dest")?.to_owned(),
        repo: params.get("repo").map(str::to_owned),
    };
    let changed = app
        .commands
        .sync(&caller, &id, request, pieces(body))
        .await?;
    Ok(Json(SyncResponse {
        ok: true,
        changed,
        notices: app.commands.notices(&caller, BoxId::parse(&id)),
    }))
}

pub(super) async fn read(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
    params: Params,
) -> Result<Response, Trouble> {
    let params = params.only(&["path", "list"])?;
    let path = required(&params, "path")?;
    if params.flag("list")? {
        let mut listed = app.commands.list_folder(&caller, &id, path).await?;
        listed.notices = app.commands.notices(&caller, BoxId::parse(&id));
        return Ok(Json(listed).into_response());
    }
    send(&app, &caller, &id, path).await
}

pub(super) async fn write(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
    params: Params,
    body: Bytes,
) -> Result<Json<FileResponse>, Trouble> {
    let params = params.only(&["path"])?;
    let path = required(&params, "path")?;
    let written = app.commands.write_file(&caller, &id, path, pieces(body));
    written.await?;
    Ok(Json(FileResponse {
        ok: true,
        notices: app.commands.notices(&caller, BoxId::parse(&id)),
    }))
}

pub(super) async fn handed_out(
    State(app): State<App>,
    Path(token): Path<String>,
) -> Result<Response, Trouble> {
    let found = app.commands.handed_out(&token)?;
    send(&app, &found.caller, &found.id, &found.path).await
}

async fn send(app: &App, caller: &Caller, id: &str, path: &str) -> Result<Response, Trouble> {
    let download = app.commands.read_file(caller, id, path).await?;
    let content_type = if download.archive {
        "application/gzip"
    } else {
        "application/octet-stream"
    };
    let headers = [
        (CONTENT_TYPE, content_type),
        // What a box holds is never shown as a page of this server.
        (CONTENT_DISPOSITION, "attachment"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (CACHE_CONTROL, "no-store"),
        (
            HeaderName::from_static(ARCHIVE_HEADER),
            if download.archive { "true" } else { "false" },
        ),
    ];
    let bytes = download.bytes;
    let mut response = (headers, Bytes::from_stream(download.body)).into_response();
    if let Some(bytes) = bytes {
        response.headers_mut().insert(CONTENT_LENGTH, bytes.into());
    }
    Ok(response)
}

fn required<'a>(params: &'a Params, name: &str) -> Result<&'a str, Trouble> {
    params.get(name).ok_or_else(|| {
        let text = format!("the query parameter `{name}` is required");
        Trouble::new(Kind::BadRequest, text).with("field", name)
    })
}

fn pieces(body: Bytes) -> impl Stream<Item = io::Result<bytes::Bytes>> + Send + 'static {
    let pieces = body.into_data_stream();
    pieces.map(|piece| piece.map_err(io::Error::other))
}
