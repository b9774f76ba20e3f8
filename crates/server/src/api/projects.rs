//! Projects of application logs over REST: make, list, remove, another key, source maps, and reading what was logged.
//! Translates only.

use std::time::Duration;

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, Request, State};
use axum::http::header::CONTENT_TYPE;
use icebox_wire::rest::{
    LogsResponse, LogsTail, OkResponse, ProjectMade, ProjectRequest, ProjectView, ProjectsResponse,
    SourceMapsResponse,
};

use super::App;
use super::boxes::Nothing;
use super::input::{Body, Params, read_whole};
use super::operations::{Created, NoQuery, Param, Query};
use crate::commands::{Caller, Kind, Trouble};
use crate::logs::{
    ErrorsRequest, LIMIT_MAX, MapUpload, RELEASE_LEN, SearchRequest, TailRequest, UPLOAD_LIMIT,
    WAIT_MAX_SEC, Wanted,
};

/// How long an upload may take to arrive.
const UPLOAD_WAIT: Duration = Duration::from_secs(120);
/// The part of an upload that is no map.
const RELEASE: &str = "release";

const QUERY: Param = Param::text(
    "query",
    "Rows with this term, or that this filter pattern fits (it begins with one of `{ ? - \" % [`).",
);
const NAME: Param = Param::text("name", "Events of this kind; `*` for all kinds.");
const USER: Param = Param::text("user", "Rows of this user.");
const SESSION: Param = Param::text("session", "Rows of this visit.");
const DEVICE: Param = Param::text("device", "Rows of this browser or machine.");
const OF_BOX: Param = Param::text("boxId", "Rows of programs in this box.");
const SINCE: Param = Param::text(
    "since",
    "From then on: `90s`, `30m`, `12h`, `7d`, RFC 3339, or seconds or milliseconds since 1970; `1h` when absent.",
);
const LIMIT: Param = Param::number(
    "limit",
    1,
    LIMIT_MAX as u64,
    "How many at most; 200 when absent.",
);
const CURSOR: Param = Param::text("cursor", "The `nextCursor` of the page before.");

/// What a search is asked.
pub(super) struct Search;

impl Query for Search {
    const PARAMS: &'static [Param] = &[
        QUERY, NAME, USER, SESSION, DEVICE, OF_BOX, SINCE, LIMIT, CURSOR,
    ];
}

/// What a list of errors is asked.
pub(super) struct Errors;

impl Query for Errors {
    const PARAMS: &'static [Param] = &[OF_BOX, SINCE, LIMIT, CURSOR];
}

/// What a tail is asked.
pub(super) struct Tail;

impl Query for Tail {
    const PARAMS: &'static [Param] = &[
        QUERY,
        NAME,
        USER,
        SESSION,
        DEVICE,
        OF_BOX,
        Param::text(
            "cursor",
            "The `cursor` of the call before; from now on when absent.",
        ),
        Param::number(
            "waitSec",
            0,
            WAIT_MAX_SEC,
            "How long to wait for the first row; 10 when absent.",
        ),
    ];
}

pub(super) async fn create(
    State(app): State<App>,
    caller: Caller,
    Body(request): Body<ProjectRequest>,
) -> Result<Created<ProjectMade>, Trouble> {
    let made = app.logs.make_project(&caller, request);
    made.await.map(Created)
}

pub(super) async fn list(
    State(app): State<App>,
    caller: Caller,
    _: Params<NoQuery>,
) -> Result<Json<ProjectsResponse>, Trouble> {
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
    params: Params<Search>,
) -> Result<Json<LogsResponse>, Trouble> {
    let request = SearchRequest {
        wanted: wanted(&params),
        since: params.owned("since"),
        limit: params.number("limit")?,
        cursor: params.owned("cursor"),
    };
    app.logs.search(&caller, &project, request).await.map(Json)
}

pub(super) async fn errors(
    State(app): State<App>,
    caller: Caller,
    Path(project): Path<String>,
    params: Params<Errors>,
) -> Result<Json<LogsResponse>, Trouble> {
    let request = ErrorsRequest {
        of_box: params.owned("boxId"),
        since: params.owned("since"),
        limit: params.number("limit")?,
        cursor: params.owned("cursor"),
    };
    app.logs.errors(&caller, &project, request).await.map(Json)
}

pub(super) async fn tail(
    State(app): State<App>,
    caller: Caller,
    Path(project): Path<String>,
    params: Params<Tail>,
) -> Result<Json<LogsTail>, Trouble> {
    let request = TailRequest {
        wanted: wanted(&params),
        cursor: params.owned("cursor"),
        wait_sec: params.number("waitSec")?,
    };
    app.logs.tail(&caller, &project, request).await.map(Json)
}

fn wanted<Q: Query>(params: &Params<Q>) -> Wanted {
    Wanted {
        query: params.owned("query"),
        name: params.owned("name"),
        user: params.owned("user"),
        session: params.owned("session"),
        device: params.owned("device"),
        of_box: params.owned("boxId"),
    }
}
