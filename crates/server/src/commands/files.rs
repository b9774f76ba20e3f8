//! Files into a box and out of it, as streams that are never held in memory: a tree that is merged, one file that is
//! written, a file or a folder that is read. The daemon in the box does the work. Each holds the box in use to its end.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{Stream, StreamExt as _, stream};
use http::{HeaderValue, Method, Request, Response};
use http_body_util::{BodyDataStream, BodyExt as _, Limited};
use hyper::body::{Body as _, Incoming};
use icebox_lifecycle::BoxId;
use icebox_wire::tree::{
    ARCHIVE_HEADER, Code, ErrorBody, FILE_PATH, MERGE_PATH, MODE_HEADER, Merged,
};
use serde::Serialize;

use super::trouble::{Kind, Trouble};
use super::{Caller, Commands, check};
use crate::boxd::raw::{self, Sending};
use crate::engine::CallUnderWay;
use crate::store::{ERROR_LEN, Ending, HistoryStep, SUMMARY_LEN, cut};

/// The most bytes of one upload, as they come.
const UPLOAD: u64 = 8 << 30;
/// How long an upload may stand still.
const STALL: Duration = Duration::from_secs(120);
/// How long a transfer may take in all.
const TRANSFER: Duration = Duration::from_secs(3_600);
/// The largest answer of the daemon that is read whole.
const ANSWER: usize = 64 * 1024;
/// The longest label of a sync, in characters.
const REPO_LEN: usize = 100;

/// A tree to merge.
#[derive(Clone, Debug)]
pub struct SyncRequest {
    /// The folder below `/work`.
    pub dest: String,
    /// What people call it.
    pub repo: Option<String>,
}

/// A file, or a folder as an archive, on its way.
pub struct Download {
    /// Whether it is an archive of a folder.
    pub archive: bool,
    /// How many bytes come, where that is known.
    pub bytes: Option<u64>,
    /// A file's permissions, as octal digits; a daemon of an older version does not tell.
    pub mode: Option<HeaderValue>,
    /// The bytes.
    pub body: Content,
}

/// The bytes of a download. The box is in use until this is dropped.
pub struct Content {
    body: BodyDataStream<Incoming>,
    _call: CallUnderWay,
}

impl Stream for Content {
    type Item = io::Result<Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let next = self.body.poll_next_unpin(context);
        next.map(|piece| piece.map(|piece| piece.map_err(io::Error::other)))
    }
}

impl Commands {
    /// Merges a gzipped tar into a folder of a box: how many files are not as they were. Either all of it arrives or
    /// nothing changes.
    pub async fn sync(
        &self,
        caller: &Caller,
        id: &str,
        request: SyncRequest,
        body: impl Stream<Item = io::Result<Bytes>> + Send + 'static,
    ) -> Result<u64, Trouble> {
        check::dest(&request.dest)?;
        check::text("repo", request.repo.as_deref(), REPO_LEN)?;
        let id = self.find(caller, id)?.id();
        let began = self.0.clock.now();
        let (call, _) = self.acting(caller, id, true).await?;
        let path = query(
            MERGE_PATH,
            &Dest {
                dest: &request.dest,
            },
        )?;
        let done = self.upload(id, Method::POST, &path, body).await;
        if is_housekeeping(&request.dest) {
            call.end().await;
            return done.map(|merged| merged.changed);
        }
        let took = u64::try_from(self.0.clock.now().since(began)).ok();
        let step = HistoryStep {
            at: began,
            exec: None,
            kind: "sync",
            summary: cut(&summary(&request), SUMMARY_LEN),
            note: None,
            detail: None,
            target: Some(request.dest.clone()),
            ending: Ending {
                ms: took,
                error: done
                    .as_ref()
                    .err()
                    .map(|trouble| cut(&trouble.text, ERROR_LEN)),
                ..Ending::default()
            },
        };
        call.end_with(step).await;
        done.map(|merged| merged.changed)
    }

    /// Writes one file, whole or not at all.
    pub async fn write_file(
        &self,
        caller: &Caller,
        id: &str,
        path: &str,
        body: impl Stream<Item = io::Result<Bytes>> + Send + 'static,
    ) -> Result<(), Trouble> {
        check::file_path(path)?;
        let id = self.find(caller, id)?.id();
        let (call, _) = self.acting(caller, id, true).await?;
        let path = query(FILE_PATH, &Named { path })?;
        let done = self.upload(id, Method::PUT, &path, body).await;
        call.end().await;
        done.map(drop)
    }

    /// Reads a file, or a folder as a gzipped tar.
    pub async fn read_file(
        &self,
        caller: &Caller,
        id: &str,
        path: &str,
    ) -> Result<Download, Trouble> {
        check::path(path)?;
        let id = self.find(caller, id)?.id();
        let (call, _) = self.acting(caller, id, false).await?;
        let response = self.ask_for_file(id, Method::GET, path).await?;
        let (archive, bytes) = about(&response);
        Ok(Download {
            archive,
            bytes,
            mode: response.headers().get(MODE_HEADER).cloned(),
            body: Content {
                body: response.into_body().into_data_stream(),
                _call: call,
            },
        })
    }

    /// What a path is: whether a folder, and how many bytes a file has.
    pub async fn look_at_file(
        &self,
        caller: &Caller,
        id: &str,
        path: &str,
    ) -> Result<(bool, Option<u64>), Trouble> {
        check::path(path)?;
        let id = self.find(caller, id)?.id();
        let (call, _) = self.acting(caller, id, false).await?;
        // The answer to HEAD says nothing of what went wrong, so the file is asked for and not read.
        let response = self.ask_for_file(id, Method::GET, path).await;
        let about = response.map(|response| about(&response));
        call.end().await;
        about
    }

    pub(super) async fn ask_for_file(
        &self,
        id: BoxId,
        method: Method,
        path: &str,
    ) -> Result<Response<Incoming>, Trouble> {
        let uri = query(FILE_PATH, &Named { path })?;
        let request = request(method, &uri, raw::nothing())?;
        match tokio::time::timeout(STALL, self.0.boxds.raw(id, request)).await {
            Ok(Ok(response)) if response.status().is_success() => Ok(response),
            Ok(Ok(response)) => Err(said(response).await),
            Ok(Err(error)) => Err(self.broke_off(id, &error).await),
            Err(_) => Err(silent(id)),
        }
    }

    pub(super) async fn upload(
        &self,
        id: BoxId,
        method: Method,
        uri: &str,
        body: impl Stream<Item = io::Result<Bytes>> + Send + 'static,
    ) -> Result<Merged, Trouble> {
        let fault = Fault::default();
        let request = request(method, uri, raw::pieces(bounded(body, fault.clone())))?;
        let sent = tokio::time::timeout(TRANSFER, self.0.boxds.raw(id, request)).await;
        // What is wrong with the upload itself explains whatever the daemon made of it.
        if let Some(trouble) = fault.take() {
            return Err(trouble);
        }
        match sent {
            Ok(Ok(response)) if response.status().is_success() => {
                let answer = Limited::new(response.into_body(), ANSWER).collect().await;
                let answer = answer
                    .map_err(|error| Trouble::internal(&error))?
                    .to_bytes();
                serde_json::from_slice(&answer).map_err(|error| Trouble::internal(&error))
            }
            Ok(Ok(response)) => Err(said(response).await),
            Ok(Err(error)) => Err(self.broke_off(id, &error).await),
            Err(_) => Err(silent(id)),
        }
    }

    async fn broke_off(&self, id: BoxId, error: &io::Error) -> Trouble {
        let happened = self.what_happened(id).await;
        happened.unwrap_or_else(|| {
            Trouble::internal(&format!("the daemon of box {id} broke off: {error}"))
        })
    }
}

#[derive(Serialize)]
struct Dest<'a> {
    dest: &'a str,
}

#[derive(Serialize)]
pub(super) struct Named<'a> {
    pub(super) path: &'a str,
}

pub(super) fn query(path: &str, query: &impl Serialize) -> Result<String, Trouble> {
    let query = serde_urlencoded::to_string(query);
    let query = query.map_err(|error| Trouble::internal(&error))?;
    Ok(format!("{path}?{query}"))
}

fn request(method: Method, uri: &str, body: Sending) -> Result<Request<Sending>, Trouble> {
    let request = Request::builder().method(method).uri(uri).body(body);
    request.map_err(|error| Trouble::internal(&error))
}

/// What is wrong with an upload that is under way.
#[derive(Clone, Default)]
struct Fault(Arc<Mutex<Option<Trouble>>>);

impl Fault {
    fn set(&self, trouble: Trouble) -> io::Error {
        let error = io::Error::other(trouble.text.clone());
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(trouble);
        error
    }

    fn take(&self) -> Option<Trouble> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// An upload that breaks off when it is too large, stands still or is cut off.
fn bounded(
    body: impl Stream<Item = io::Result<Bytes>> + Send + 'static,
    fault: Fault,
) -> impl Stream<Item = io::Result<Bytes>> + Send + 'static {
    let state = (Box::pin(body), fault, UPLOAD);
    stream::unfold(state, async |(mut body, fault, left)| {
        let cut_off = || {
            Trouble::new(
                Kind::BadRequest,
                "the body must arrive whole; it was cut off",
            )
        };
        let piece = match tokio::time::timeout(STALL, body.next()).await {
            Ok(piece) => piece?.map_err(|_| fault.set(cut_off())),
            Err(_) => Err(fault.set(cut_off())),
        };
        let len = piece.as_ref().map_or(0, Bytes::len);
        let left = left.checked_sub(u64::try_from(len).unwrap_or(u64::MAX));
        let piece = match left {
            Some(_) => piece,
            None => Err(fault.set(Trouble::new(
                Kind::TooLarge,
                format!("the body must be at most {UPLOAD} bytes"),
            ))),
        };
        Some((piece, (body, fault, left.unwrap_or(0))))
    })
}

fn about(response: &Response<Incoming>) -> (bool, Option<u64>) {
    let archive = response.headers().get(ARCHIVE_HEADER);
    let archive = archive.is_some_and(|value| value == "true");
    (archive, response.body().size_hint().exact())
}

/// What the daemon said went wrong.
async fn said(response: Response<Incoming>) -> Trouble {
    let body = Limited::new(response.into_body(), ANSWER).collect().await;
    let body = match body {
        Ok(body) => body.to_bytes(),
        Err(error) => return Trouble::internal(&error),
    };
    match serde_json::from_slice::<ErrorBody>(&body) {
        Ok(body) => match body.code {
            Code::BadRequest => Trouble::new(Kind::BadRequest, body.error),
            Code::NotFound => Trouble::new(Kind::NotFound, body.error),
            Code::TooLarge => Trouble::new(Kind::TooLarge, body.error),
            Code::Failed => Trouble::internal(&body.error),
        },
        Err(_) => Trouble::internal(&String::from_utf8_lossy(&body)),
    }
}

fn silent(id: BoxId) -> Trouble {
    Trouble::internal(&format!(
        "the daemon of box {id} does not answer about files"
    ))
}

fn summary(request: &SyncRequest) -> String {
    match &request.repo {
        Some(repo) => format!("{repo} to {}", request.dest),
        None => format!("to {}", request.dest),
    }
}

/// An adapter's own files, which are no steps (rule 11.3).
fn is_housekeeping(dest: &str) -> bool {
    let dest = dest.strip_prefix("/work/").unwrap_or(dest);
    format!("{dest}/").starts_with(".psbx-sync/")
}
