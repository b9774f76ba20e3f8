//! `POST /files`: uploads, as multipart parts or as one raw body.
//!
//! The connection's side parses and hands orders to a thread that writes. When the connection ends before the last
//! order, by an error or because the client went away, the thread undoes what it did.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Json;
use axum::body::{Body, BodyDataStream};
use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use futures_util::{Stream, StreamExt as _, stream};
use tokio::sync::{mpsc, oneshot};

use super::acting::Acting;
use super::gunzip::{Source, gunzip};
use super::path::resolve;
use super::refusal::refuse;
use super::staging::Staging;
use super::{Transfers, metadata, on_thread, refusal};
use crate::error::Error;

/// How long a client may send nothing in the middle of an upload.
const IDLE: Duration = Duration::from_secs(120);

/// How many orders wait for the writing thread. One carries what the connection had ready, at most about 400 KiB.
const ORDERS: usize = 8;

/// The most bytes handed to the multipart parser at once.
const PIECE_BYTES: usize = 256 * 1024;

/// The most bytes the parser may take in without getting past the headers of a part.
const MAX_HEADER_BYTES: usize = 512 * 1024;

/// What is read of a refused upload, so that its client gets to see the answer.
const DRAIN_BYTES: usize = 256 << 20;

/// How long that may take.
const DRAIN: Duration = Duration::from_secs(5);

/// The handler.
pub(crate) async fn receive(
    State(transfers): State<Arc<Transfers>>,
    Query(query): Query<HashMap<String, String>>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let mut rest = None;
    let received = upload(&transfers, &query, &headers, body, &mut rest).await;
    match received {
        Ok(answer) => answer,
        Err(error) => {
            if let Some(rest) = rest {
                // What a client still sends is its own affair.
                drop(tokio::time::timeout(DRAIN, drain(rest)).await);
            }
            refusal(&error)
        }
    }
}

async fn upload(
    transfers: &Transfers,
    query: &HashMap<String, String>,
    headers: &HeaderMap,
    body: Body,
    rest: &mut Option<Shared>,
) -> Result<Response, Error> {
    let shared = Shared::new(body);
    *rest = Some(shared.clone());
    let user = transfers
        .settings
        .now()
        .user(query.get("username").map(String::as_str))?;
    let acting = Acting::new(user, &transfers.settings);
    let metadata = metadata::of_headers(headers)?;
    let kind = Kind::of(headers)?;
    let mut source = shared.source();
    match headers
        .get(header::CONTENT_ENCODING)
        .map(|value| value.as_bytes())
    {
        None | Some(b"" | b"identity") => {}
        Some(b"gzip") => source = gunzip(source)?,
        Some(_) => {
            return Ok(refuse(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "Content-Encoding must be gzip or absent",
            ));
        }
    }
    let turn = transfers.turn().await?;
    let staging = Staging::new(
        acting.clone(),
        metadata.clone(),
        transfers.spool_dir.clone(),
    );
    let writer = Writer::start(staging, turn)?;
    let path = query.get("path").filter(|path| !path.is_empty());
    let fed = match kind {
        Kind::Raw => writer.feed_raw(source, path, &acting).await,
        Kind::Multipart(boundary) => writer.feed_parts(source, &boundary, path, &acting).await,
    };
    let paths = writer.finish(fed).await?;
    Ok(Json(answer(&paths, &metadata)).into_response())
}

fn answer(
    paths: &[PathBuf],
    metadata: &std::collections::BTreeMap<String, String>,
) -> serde_json::Value {
    let files = paths.iter().map(|path| {
        let mut file = serde_json::json!({
            "path": path.to_string_lossy(),
            "name": path.file_name().unwrap_or_default().to_string_lossy(),
            "type": "file",
        });
        if !metadata.is_empty() {
            file["metadata"] = serde_json::json!(metadata);
        }
        file
    });
    files.collect()
}

/// How the body holds files.
enum Kind {
    Raw,
    /// Between lines with this boundary.
    Multipart(String),
}

impl Kind {
    fn of(headers: &HeaderMap) -> Result<Self, Error> {
        let kind = headers
            .get(header::CONTENT_TYPE)
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default();
        let essence = kind.split(';').next().unwrap_or_default().trim();
        if essence.eq_ignore_ascii_case("application/octet-stream") {
            return Ok(Self::Raw);
        }
        multer::parse_boundary(kind).map(Self::Multipart).map_err(|_| {
            Error::BadRequest(
                "Content-Type must be multipart/form-data with a boundary, or application/octet-stream"
                    .to_owned(),
            )
        })
    }
}

/// What the writing thread is to do next.
enum Order {
    Begin(PathBuf),
    Data(Bytes),
    End,
    Commit,
}

/// The writing thread, from the connection's side.
struct Writer {
    orders: mpsc::Sender<Order>,
    done: oneshot::Receiver<Result<Vec<PathBuf>, Error>>,
}

/// Why feeding ended early.
enum Ended {
    /// The thread has the reason.
    ByWriter,
    /// The request is at fault.
    ByClient(Error),
}

impl From<Error> for Ended {
    fn from(error: Error) -> Self {
        Self::ByClient(error)
    }
}

impl Writer {
    fn start(staging: Staging, turn: tokio::sync::OwnedSemaphorePermit) -> Result<Self, Error> {
        let (orders, mut taken) = mpsc::channel(ORDERS);
        let (tell, done) = oneshot::channel();
        on_thread("boxd-upload", move || {
            let written = write(staging, &mut taken);
            drop(turn);
            // The connection may be gone.
            drop(tell.send(written));
        })?;
        Ok(Self { orders, done })
    }

    async fn order(&self, order: Order) -> Result<(), Ended> {
        self.orders.send(order).await.map_err(|_| Ended::ByWriter)
    }

    async fn feed_raw(
        &self,
        mut source: Source,
        path: Option<&String>,
        acting: &Acting,
    ) -> Result<(), Ended> {
        let path = path.ok_or_else(|| {
            Error::BadRequest("path is missing; a raw upload needs it in the query".to_owned())
        })?;
        self.order(Order::Begin(resolve(path, acting)?)).await?;
        while let Some(data) = source.next().await {
            self.order(Order::Data(data?)).await?;
        }
        self.order(Order::End).await
    }

    async fn feed_parts(
        &self,
        source: Source,
        boundary: &str,
        path: Option<&String>,
        acting: &Acting,
    ) -> Result<(), Ended> {
        let unparsed = Arc::new(AtomicUsize::new(0));
        let pieces = in_pieces(source, Arc::clone(&unparsed));
        let mut parts = multer::Multipart::new(pieces, boundary);
        let mut any = false;
        while let Some(mut part) = parts.next_field().await.map_err(malformed)? {
            unparsed.store(0, Ordering::Relaxed);
            let is_file = part.name() == Some("file");
            if is_file {
                any = true;
                let name = part.file_name().map(|name| name.replace(r"\\", r"\"));
                let path = path.cloned().or(name).filter(|path| !path.is_empty());
                let path = path.ok_or_else(|| {
                    Error::BadRequest(
                        "a part named file has no filename and there is no path in the query"
                            .to_owned(),
                    )
                })?;
                self.order(Order::Begin(resolve(&path, acting)?)).await?;
            }
            while let Some(data) = part.chunk().await.map_err(malformed)? {
                unparsed.store(0, Ordering::Relaxed);
                if is_file {
                    self.order(Order::Data(data)).await?;
                }
            }
            if is_file {
                self.order(Order::End).await?;
            }
        }
        if any {
            Ok(())
        } else {
            Err(Error::BadRequest("no part is named file".to_owned()).into())
        }
    }

    /// Commits what was fed, or has it undone; answers after either.
    async fn finish(self, fed: Result<(), Ended>) -> Result<Vec<PathBuf>, Error> {
        let fed = match fed {
            Ok(()) => self.order(Order::Commit).await,
            Err(ended) => Err(ended),
        };
        drop(self.orders);
        let written = self.done.await.unwrap_or(Err(Error::Abandoned));
        match fed {
            Err(Ended::ByClient(error)) => Err(error),
            Ok(()) | Err(Ended::ByWriter) => written,
        }
    }
}

/// What the writing thread does. An upload without the last order is undone when `staging` goes.
fn write(mut staging: Staging, orders: &mut mpsc::Receiver<Order>) -> Result<Vec<PathBuf>, Error> {
    while let Some(order) = orders.blocking_recv() {
        match order {
            Order::Begin(path) => staging.begin(path)?,
            Order::Data(data) => staging.write(&data)?,
            Order::End => staging.end()?,
            Order::Commit => return staging.commit(),
        }
    }
    Err(Error::Abandoned)
}

fn malformed(error: multer::Error) -> Error {
    Error::BadRequest(format!("the multipart body is malformed: {error}"))
}

/// Cuts content into pieces and pauses after each, because the parser takes all there is before it looks at it. Ends in
/// an error when `unparsed` says that it took in too much without a result.
fn in_pieces(
    source: Source,
    unparsed: Arc<AtomicUsize>,
) -> impl Stream<Item = Result<Bytes, Error>> + Send {
    stream::unfold((source, Bytes::new()), move |(mut source, mut left)| {
        let unparsed = Arc::clone(&unparsed);
        async move {
            tokio::task::yield_now().await;
            if left.is_empty() {
                match source.next().await? {
                    Ok(data) => left = data,
                    Err(error) => return Some((Err(error), (source, left))),
                }
            }
            let piece = left.split_to(left.len().min(PIECE_BYTES));
            let before = unparsed.fetch_add(piece.len(), Ordering::Relaxed);
            let piece = if before > MAX_HEADER_BYTES {
                Err(Error::BadRequest(
                    "the headers of a part are larger than 512 KiB".to_owned(),
                ))
            } else {
                Ok(piece)
            };
            Some((piece, (source, left)))
        }
    })
}

/// The body, which is read by whoever has a use for it.
#[derive(Clone)]
struct Shared(Arc<tokio::sync::Mutex<BodyDataStream>>);

impl Shared {
    fn new(body: Body) -> Self {
        Self(Arc::new(tokio::sync::Mutex::new(body.into_data_stream())))
    }

    /// Its content, with an end to waiting for more.
    fn source(&self) -> Source {
        let body = stream::unfold(self.clone(), |shared| async move {
            let next = tokio::time::timeout(IDLE, async { shared.0.lock().await.next().await });
            let data = match next.await {
                Ok(None) => return None,
                Ok(Some(Ok(data))) => Ok(data),
                Ok(Some(Err(error))) => {
                    Err(Error::BadRequest(format!("the body broke off: {error}")))
                }
                Err(_elapsed) => Err(Error::BadRequest(format!(
                    "nothing came for {} s in the middle of the body",
                    IDLE.as_secs()
                ))),
            };
            Some((data, shared))
        });
        Box::pin(body)
    }
}

async fn drain(rest: Shared) {
    let mut left = DRAIN_BYTES;
    let mut rest = rest.0.lock().await;
    while let Some(Ok(data)) = rest.next().await {
        left = match left.checked_sub(data.len()) {
            Some(left) => left,
            None => return,
        };
    }
}
