//! Projects of application logs over REST: make, list, remove, another key, source maps, and reading what was logged.
//! Translates only.

use std::time::Duration;

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, Request, State};
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use icebox_wire::rest::{
    LogsResponse, LogsTail, OkResponse, ProjectMade, ProjectRequest, ProjectView, ProjectsResponse,
    SourceMapsResponse,
};

use super::boxes::Nothing;
use super::input::{Body, Params, read_whole};
use super::{App, error};
use crate::commands::{Caller, Kind, Trouble};
use crate::logs::{
    ErrorsRequest, MapUpload, RELEASE_LEN, SearchRequest, TailRequest, UPLOAD_LIMIT, Wanted,
};

/// How long an upload may take to arrive.
const UPLOAD_WAIT: Duration = Duration::from_secs(120);
/// The part of an upload that is no map.
const RELEASE: &str = "release";
/// The parameters that say which rows are wanted.
const WANTED: [&str; 6] = ["query", "name", "user", "session", "device", "boxId"];

pub(super) async fn create(
    State(app): State<App>,
    caller: Caller,
    Body(request): Body<ProjectRequest>,
) -> Result<Response, Trouble> {
    let made = app.logs.make_project(&caller, request).await?;
    Ok((error::CREATED, Json(made)).into_response())
}

pub(super) async fn list(
    State(app): State<App>,
    caller: Caller,
    params: Params,
) -> Result<Json<ProjectsResponse>, Trouble> {
    params.only(&[])?;
    Ok(Json(app.logs.projects(&caller)))
}

pub(super) async fn one(
    State(app): State<App>,
    caller: Caller,
    Path(project): Path<String>,
) -> Result<Json<ProjectView>, Trouble> {
    app.logs.project(&caller, &project).map(Json)
}

pub(super) async fn remove(
    State(app): State<App>,
    caller: Caller,
    Path(project): Path<String>,
) -> Result<Json<OkResponse>, Trouble> {
    app.logs.remove_project(&caller, &project).await?;
    Ok(Json(OkResponse { ok: true }))
}

pub(super) async fn rotate(
    State(app): State<App>,
    caller: Caller,
    Path(project): Path<String>,
    Body(Nothing {}): Body<Nothing>,
) -> Result<Json<ProjectMade>, Trouble> {
    app.logs.rotate(&caller, &project).await.map(Json)
}

pub(super) async fn source_maps(
    State(app): State<App>,
    caller: Caller,
    Path(project): Path<String>,
    request: Request,
) -> Result<Json<SourceMapsResponse>, Trouble> {
    // Before anything is read: who may not upload costs no memory.
    app.logs.project(&caller, &project)?;
    let _place = app.logs.begin_upload()?;
    let kind = request.headers().get(CONTENT_TYPE);
    let kind = kind.and_then(|kind| kind.to_str().ok());
    let boundary = multer::parse_boundary(kind.unwrap_or_default()).map_err(|_| {
        let text = "send multipart/form-data: a part `release`, and a part for each map, named by its served path";
        Trouble::new(Kind::BadRequest, text)
    })?;
    let body = read_whole(request.into_body(), UPLOAD_WAIT, UPLOAD_LIMIT).await?;
    let (release, maps) = parts(body, boundary).await?;
    let release = release.ok_or_else(|| {
        Trouble::bad(
            RELEASE,
            format!("a part with a text of 1 to {RELEASE_LEN} characters"),
        )
    })?;
    let added = app.logs.add_maps(&caller, &project, release, maps);
    added.await.map(Json)
}

/// The parts of an upload: the release, and maps by their names.
async fn parts(body: Bytes, boundary: String) -> Result<(Option<String>, Vec<MapUpload>), Trouble> {
    let malformed = |error: multer::Error| {
        let text = format!("the multipart body is malformed: {error}");
        Trouble::new(Kind::BadRequest, text)
    };
    let whole = futures_util::stream::iter([Ok::<_, std::io::Error>(body)]);
    let mut parts = multer::Multipart::new(whole, boundary);
    let (mut release, mut maps) = (None, Vec::new());
    while let Some(part) = parts.next_field().await.map_err(malformed)? {
        // Clients whose parts have fixed names say it in the file's name.
        let name = part.name().unwrap_or_default();
        let path = match (name.contains('/'), part.file_name()) {
            (false, Some(file)) => file.to_owned(),
            (true, _) | (_, None) => name.to_owned(),
        };
        let is_release = name == RELEASE;
        let content = part.bytes().await.map_err(malformed)?;
        if is_release {
            release = String::from_utf8(content.into()).ok();
        } else {
            maps.push(MapUpload {
                path,
                content: content.into(),
            });
        }
    }
    Ok((release, maps))
}

pub(super) async fn search(
    State(app): State<App>,
    caller: Caller,
    Path(project): Path<String>,
    params: Params,
) -> Result<Json<LogsResponse>, Trouble> {
    let params = params.only(&[&WANTED[..], &["since", "limit", "cursor"]].concat())?;
    let request = SearchRequest {
        wanted: wanted(&params),
        since: owned(&params, "since"),
        limit: params.number("limit", 0..=u64::MAX)?,
        cursor: owned(&params, "cursor"),
    };
    app.logs.search(&caller, &project, request).await.map(Json)
}

pub(super) async fn errors(
    State(app): State<App>,
    caller: Caller,
    Path(project): Path<String>,
    params: Params,
) -> Result<Json<LogsResponse>, Trouble> {
    let params = params.only(&["boxId", "since", "limit", "cursor"])?;
    let request = ErrorsRequest {
        of_box: owned(&params, "boxId"),
        since: owned(&params, "since"),
        limit: params.number("limit", 0..=u64::MAX)?,
        cursor: owned(&params, "cursor"),
    };
    app.logs.errors(&caller, &project, request).await.map(Json)
}

pub(super) async fn tail(
    State(app): State<App>,
    caller: Caller,
    Path(project): Path<String>,
    params: Params,
) -> Result<Json<LogsTail>, Trouble> {
    let params = params.only(&[&WANTED[..], &["cursor", "waitSec"]].concat())?;
    let request = TailRequest {
        wanted: wanted(&params),
        cursor: owned(&params, "cursor"),
        wait_sec: params.number("waitSec", 0..=u64::MAX)?,
    };
    app.logs.tail(&caller, &project, request).await.map(Json)
}

fn wanted(params: &Params) -> Wanted {
    Wanted {
        query: owned(params, "query"),
        name: owned(params, "name"),
        user: owned(params, "user"),
        session: owned(params, "session"),
        device: owned(params, "device"),
        of_box: owned(params, "boxId"),
    }
}

fn owned(params: &Params, name: &str) -> Option<String> {
    params.get(name).map(str::to_owned)
}
