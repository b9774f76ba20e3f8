//! Commands in a box: run, list, wait, stop, and their output as a stream. Translates only.

use std::ops::Range;
use std::time::Duration;

use axum::Json;
use axum::body::Body as Bytes;
use axum::extract::{Path, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use icebox_lifecycle::BoxId;
use icebox_wire::rest::{
    ExecRequest, ExecResponse, OUTPUT_GAP_HEADER, OUTPUT_OFFSET_HEADER, ProcView, ProcsResponse,
};

use super::App;
use super::boxes::Nothing;
use super::input::{Body, Params};
use crate::commands::check::{is_exec_id, unfit};
use crate::commands::{
    Caller, Kind, Look, OutputPiece, OutputRequest, READY_SEC, Readiness, Reading, StreamName,
    Trouble,
};
use crate::store::cut;

const WAIT_MAX_SEC: u64 = 300;
const GRACE_MAX_SEC: u64 = 60;

pub(super) async fn exec(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
    Body(request): Body<ExecRequest>,
) -> Result<Json<ExecResponse>, Trouble> {
    let mut done = app.commands.exec(&caller, &id, request).await?;
    done.notices = app.commands.notices(&caller, BoxId::parse(&id));
    Ok(Json(done))
}

pub(super) async fn list(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
    params: Params,
) -> Result<Json<ProcsResponse>, Trouble> {
    let params = params.only(&["look"])?;
    let procs = if params.flag("look")? {
        app.commands.look_at_procs(&caller, &id).await?
    } else {
        Some(app.commands.procs(&caller, &id).await?)
    };
    Ok(Json(ProcsResponse {
        asleep: procs.is_none(),
        procs: procs.unwrap_or_default(),
        notices: app.commands.notices(&caller, BoxId::parse(&id)),
    }))
}

pub(super) async fn one(
    State(app): State<App>,
    caller: Caller,
    Path((id, exec_id)): Path<(String, String)>,
    params: Params,
) -> Result<Response, Trouble> {
    let params = params.only(&["waitSec", "until", "readyPort", "readyLog"])?;
    let wait = params.number("waitSec", 0..=WAIT_MAX_SEC)?;
    let port = params.number("readyPort", 1..=u64::from(u16::MAX))?;
    let port = port.and_then(|port| u16::try_from(port).ok());
    let when = Readiness::of(port, params.get("readyLog"))?;
    let exec_id = known(&exec_id)?;
    let commands = &app.commands;
    match until(params.get("until"), when)? {
        None => {
            let wait = Duration::from_secs(wait.unwrap_or(0));
            let proc = commands.proc(&caller, &id, exec_id, wait).await?;
            Ok(Json(proc).into_response())
        }
        Some(when) => {
            let wait = Duration::from_secs(wait.unwrap_or(u64::from(READY_SEC)));
            let waited = commands.wait_ready(&caller, &id, exec_id, &when, wait);
            Ok(Json(waited.await?).into_response())
        }
    }
}

pub(super) async fn stop(
    State(app): State<App>,
    caller: Caller,
    Path((id, exec_id)): Path<(String, String)>,
    params: Params,
    Body(Nothing {}): Body<Nothing>,
) -> Result<Json<ProcView>, Trouble> {
    let params = params.only(&["graceSec"])?;
    let grace = params.number("graceSec", 0..=GRACE_MAX_SEC)?;
    let grace = grace.map(Duration::from_secs);
    let exec_id = known(&exec_id)?;
    let proc = app.commands.stop_proc(&caller, &id, exec_id, grace).await?;
    Ok(Json(proc))
}

pub(super) async fn output(
    State(app): State<App>,
    caller: Caller,
    Path((id, exec_id)): Path<(String, String)>,
    params: Params,
) -> Result<Response, Trouble> {
    let params = params.only(&["stream", "offset", "follow", "look"])?;
    let look = params.flag("look")?;
    let request = OutputRequest {
        exec_id: known(&exec_id)?.to_owned(),
        stream: match params.get("stream") {
            None | Some("stdout") => StreamName::Stdout,
            Some("stderr") => StreamName::Stderr,
            Some(_) => return Err(unfit("stream")),
        },
        offset: params.number("offset", 0..=u64::MAX)?.unwrap_or(0),
        follow: params.flag("follow")?,
    };
    if look {
        if request.follow {
            let text =
                "looking ends at once: ask again from where the answer ended, or leave out `look`";
            return Err(Trouble::new(Kind::BadRequest, text).with("field", "follow"));
        }
        let offset = request.offset;
        let seen = app.commands.look_at_output(&caller, &id, request).await?;
        // A box that does not run writes nothing.
        let seen = seen.unwrap_or_else(|| Look {
            offset,
            bytes: bytes::Bytes::new(),
            gap: None,
        });
        let headers = about(seen.offset, seen.gap.as_ref());
        return Ok((headers, seen.bytes).into_response());
    }
    let first = app.commands.output(&caller, &id, request).await?;
    let headers = about(first.offset, first.gap.as_ref());
    let body = Bytes::from_stream(stream::unfold(Step::Have(first), step));
    Ok((headers, body).into_response())
}

/// What is said of output besides its bytes.
fn about(offset: u64, gap: Option<&Range<u64>>) -> HeaderMap {
    let mut headers = HeaderMap::new();
    let kind = HeaderValue::from_static("application/octet-stream");
    headers.insert(CONTENT_TYPE, kind);
    headers.insert(OUTPUT_OFFSET_HEADER, offset.into());
    if let Some(gap) = gap {
        let gap = HeaderValue::try_from(format!("{}-{}", gap.start, gap.end));
        // Digits and a dash are always fit for a header.
        let name = HeaderName::from_static(OUTPUT_GAP_HEADER);
        headers.extend(gap.ok().map(|gap| (name, gap)));
    }
    headers
}

/// How far a streamed answer is.
enum Step {
    Have(OutputPiece),
    Read(Reading),
    Over,
}

async fn step(step: Step) -> Option<(Result<bytes::Bytes, std::io::Error>, Step)> {
    let piece = match step {
        Step::Over => return None,
        Step::Have(piece) => piece,
        Step::Read(reading) => match reading.next().await {
            Ok(piece) => piece,
            // The status line is out already: an answer cut off says that it is not whole.
            Err(trouble) => return Some((Err(std::io::Error::other(trouble.text)), Step::Over)),
        },
    };
    let next = piece.next.map_or(Step::Over, Step::Read);
    Some((Ok(piece.bytes), next))
}

/// What is waited for: the end, or that it is up.
pub(super) fn until(
    until: Option<&str>,
    when: Option<Readiness>,
) -> Result<Option<Readiness>, Trouble> {
    match (until, when) {
        (None | Some("ready"), Some(when)) => Ok(Some(when)),
        (None | Some("end"), None) => Ok(None),
        (Some("ready"), None) => {
            let text =
                "`until` is `ready`, so say what counts as that: `readyPort`, `readyLog`, or both";
            Err(Trouble::new(Kind::BadRequest, text).with("field", "readyPort"))
        }
        (Some("end"), Some(_)) => {
            let limit = "`ready` when `readyPort` or `readyLog` is given";
            Err(Trouble::bad("until", limit))
        }
        (Some(_), _) => Err(unfit("until")),
    }
}

fn known(exec_id: &str) -> Result<&str, Trouble> {
    if is_exec_id(exec_id) {
        Ok(exec_id)
    } else {
        let exec_id = cut(exec_id, 64);
        let text = format!("there is no command `{exec_id}`; an execId is 16 hexadecimal digits");
        Err(Trouble::new(Kind::NotFound, text))
    }
}
