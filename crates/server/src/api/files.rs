//! Files of a box over HTTP: merge a tree, read, write, and read without a key what was handed out. Translates only.

use std::io;

use axum::Json;
use axum::body::Body as Bytes;
use axum::extract::{Path, State};
use axum::http::HeaderName;
use axum::http::header::{
    CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_LENGTH, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS,
};
use axum::response::IntoResponse as _;
use futures_util::{Stream, StreamExt as _};
use icebox_lifecycle::BoxId;
use icebox_wire::rest::{FileResponse, FolderResponse, SyncResponse};
use icebox_wire::tree::{ARCHIVE_HEADER, MODE_HEADER};

use super::App;
use super::input::Params;
use super::operations::{Answer, Answers, Either, Like, Param, Query};
use crate::commands::{Caller, SyncRequest, Trouble};

const PATH: Param = Param::text(
    "path",
    "The file or folder: relative to `/work`, or absolute below `/work`, `/tmp` or `/dev/shm`.",
)
.required();

/// What a sync is asked.
pub(super) struct SyncInto;

impl Query for SyncInto {
    const PARAMS: &'static [Param] = &[
        Param::text("dest", "Where it goes, relative to `/work`.").required(),
        Param::text("repo", "What it is of, for people."),
    ];
}

/// What reading is asked.
pub(super) struct ReadOf;

impl Query for ReadOf {
    const PARAMS: &'static [Param] = &[
        PATH,
        Param::flag("list", "List the folder instead of sending it."),
    ];
}

/// What writing is asked.
pub(super) struct WriteTo;

impl Query for WriteTo {
    const PARAMS: &'static [Param] = &[PATH];
}

/// What a box holds: a file as it is, a folder as an archive.
pub(super) struct Content;

impl Answers for Content {
    fn forms() -> Vec<Answer> {
        let about = "A file as it is, or a folder as a tar.gz.";
        [FILE, ARCHIVE]
            .map(|media| {
                Answer::of(media).about(about).with(&[
                    (
                        ARCHIVE_HEADER,
                        "Whether it is an archive of a folder: `true` or `false`.",
                    ),
                    (MODE_HEADER, "A file's permissions, as octal digits."),
                ])
            })
            .into()
    }
}

const FILE: &str = "application/octet-stream";
/// What folders come as, and whole trees go as.
pub(super) const ARCHIVE: &str = "application/gzip";

pub(super) async fn sync(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
    params: Params<SyncInto>,
    body: Bytes,
) -> Result<Json<SyncResponse>, Trouble> {
    let request = SyncRequest {
        dest: params.required("dest")?.to_owned(),
        repo: params.owned("repo"),
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
    params: Params<ReadOf>,
) -> Result<Either<Like<Content>, Json<FolderResponse>>, Trouble> {
    let path = params.required("path")?;
    if params.flag("list")? {
        let mut listed = app.commands.list_folder(&caller, &id, path).await?;
        listed.notices = app.commands.notices(&caller, BoxId::parse(&id));
        return Ok(Either::Other(Json(listed)));
    }
    send(&app, &caller, &id, path).await.map(Either::One)
}

pub(super) async fn write(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
    params: Params<WriteTo>,
    body: Bytes,
) -> Result<Json<FileResponse>, Trouble> {
    let path = params.required("path")?;
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
) -> Result<Like<Content>, Trouble> {
    let found = app.commands.handed_out(&token)?;
    send(&app, &found.caller, &found.id, &found.path).await
}

async fn send(app: &App, caller: &Caller, id: &str, path: &str) -> Result<Like<Content>, Trouble> {
    let download = app.commands.read_file(caller, id, path).await?;
    let content_type = if download.archive { ARCHIVE } else { FILE };
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
    if let Some(mode) = download.mode {
        response.headers_mut().insert(MODE_HEADER, mode);
    }
    Ok(Like::new(response))
}

fn pieces(body: Bytes) -> impl Stream<Item = io::Result<bytes::Bytes>> + Send + 'static {
    let pieces = body.into_data_stream();
    pieces.map(|piece| piece.map_err(io::Error::other))
}
