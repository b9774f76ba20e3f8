//! Files of the box for its own server: a tree comes in as one archive and is merged whole or not at all, a file or a tree
//! goes out as a stream. Owns the paths below `/icebox/` and what a call may name; the E2B file calls are elsewhere.

mod merge;
mod pack;
mod place;
mod plan;
mod put;
mod stage;
mod stream;

use std::path::PathBuf;

use axum::Json;
use axum::Router;
use axum::body::Body;
use axum::extract::{Query, State};
use axum::http::{HeaderName, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use icebox_wire::tree::{
    ARCHIVE_HEADER, Code, ErrorBody, FILE_PATH, MERGE_PATH, MODE_HEADER, MergeQuery, Merged,
    PathQuery,
};

use self::place::Roots;
use crate::restart::gate::AtWork;

/// What went wrong with files, in words for the caller of the call.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The call or the archive is wrong.
    #[error("{0}")]
    Bad(String),
    /// There is no such file.
    #[error("{0}")]
    Missing(String),
    /// More than fits.
    #[error("{0}")]
    TooLarge(String),
    /// The box could not do it.
    #[error("{what}: {source}")]
    Failed {
        /// What was tried.
        what: String,
        /// Why it failed.
        source: std::io::Error,
    },
}

impl Error {
    fn bad(text: impl Into<String>) -> Self {
        Self::Bad(text.into())
    }

    fn failed(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let what = what.into();
        move |source| Self::Failed { what, source }
    }
}

impl IntoResponse for Error {
    fn into_response(self) -> Response {
        let (status, code) = match &self {
            Self::Bad(_) => (StatusCode::BAD_REQUEST, Code::BadRequest),
            Self::Missing(_) => (StatusCode::NOT_FOUND, Code::NotFound),
            Self::TooLarge(_) => (StatusCode::PAYLOAD_TOO_LARGE, Code::TooLarge),
            Self::Failed { .. } => (StatusCode::INTERNAL_SERVER_ERROR, Code::Failed),
        };
        let error = self.to_string();
        (status, Json(ErrorBody { error, code })).into_response()
    }
}

/// The paths of this module; relative ones begin in `work_dir`.
pub(crate) fn router(work_dir: PathBuf) -> Router {
    Router::new()
        .route(MERGE_PATH, post(merge))
        .route(FILE_PATH, get(read).put(write))
        .with_state(Roots::new(work_dir))
}

async fn merge(
    State(roots): State<Roots>,
    Query(query): Query<MergeQuery>,
    body: Body,
) -> Result<Json<Merged>, Error> {
    let archive = stream::reader(body);
    let changed = blocking(move || stage::merge(&roots, &query.dest, archive)).await?;
    Ok(Json(Merged { changed }))
}

async fn read(
    State(roots): State<Roots>,
    Query(query): Query<PathQuery>,
) -> Result<Response, Error> {
    let found = blocking(move || pack::open(&roots, &query.path)).await?;
    let archive = found.is_dir();
    let mut headers = vec![
        (
            header::CONTENT_TYPE,
            if archive {
                "application/gzip"
            } else {
                "application/octet-stream"
            }
            .to_owned(),
        ),
        (HeaderName::from_static(ARCHIVE_HEADER), archive.to_string()),
    ];
    if let Some(look) = found.look() {
        headers.push((header::CONTENT_LENGTH, look.len.to_string()));
        let mode = format!("{:o}", look.mode);
        headers.push((HeaderName::from_static(MODE_HEADER), mode));
    }
    let mut response = stream::body(move |writer| found.send(writer)).into_response();
    for (name, value) in headers {
        if let Ok(value) = value.parse() {
            response.headers_mut().insert(name, value);
        }
    }
    Ok(response)
}

async fn write(
    State(roots): State<Roots>,
    Query(query): Query<PathQuery>,
    body: Body,
) -> Result<Json<Merged>, Error> {
    let content = stream::reader(body);
    blocking(move || put::put(&roots, &query.path, content)).await?;
    Ok(Json(Merged { changed: 1 }))
}

/// Does something with files on a thread of its own, for boxd answers everything else on one.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    match tokio::task::spawn_blocking(AtWork::over(work)).await {
        Ok(done) => done,
        Err(error) => Err(Error::Failed {
            what: "the work was given up".to_owned(),
            source: std::io::Error::other(error),
        }),
    }
}
