//! Commands in a box: run, list, wait, stop, and their output as a stream. Translates only.

use std::ops::Range;
use std::time::Duration;

use axum::Json;
use axum::body::Body as Bytes;
use axum::extract::{Path, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use futures_util::stream;
use icebox_lifecycle::BoxId;
use icebox_wire::rest::{
    ExecRequest, ExecResponse, OUTPUT_GAP_HEADER, OUTPUT_OFFSET_HEADER, ProcView, ProcsResponse,
};

use super::App;
use super::boxes::Nothing;
use super::input::{Body, Params};
use super::operations::{Answer, Answers, Either, Like, Param, Query};
use crate::commands::check::{is_exec_id, unfit};
use crate::commands::{
    Caller, Kind, Look, OutputPiece, OutputRequest, READY_SEC, Readiness, Reading, StreamName,
    Trouble, Waited,
};
use crate::store::cut;

const WAIT_MAX_SEC: u64 = 300;
const GRACE_MAX_SEC: u64 = 60;

const LOOK: Param = Param::flag(
    "look",
    "Only look: it wakes nothing and is no use, and of a box that does not run nothing is known.",
);

/// What a list of commands is asked.
pub(super) struct Looking;

impl Query for Looking {
    const PARAMS: &'static [Param] = &[LOOK];
}

/// What waiting for a command is asked.
pub(super) struct Waiting;

impl Query for Waiting {
    const PARAMS: &'static [Param] = &[
        Param::number(
            "waitSec",
            0,
            WAIT_MAX_SEC,
            "How long to wait; for its end not at all when absent, for it to be ready 60.",
        ),
        Param::word(
            "until",
            &["end", "ready"],
            "What to wait for: its `end`, or that it is `ready`.",
        ),
        Param::number(
            "readyPort",
            1,
            65_535,
            "It is ready when this port in the box takes connections.",
        ),
        Param::text(
            "readyLog",
            "It is ready when a line of its output holds this text.",
        ),
    ];
}

/// What stopping a command is asked.
pub(super) struct Stopping;

impl Query for Stopping {
    const PARAMS: &'static [Param] = &[Param::number(
        "graceSec",
        0,
        GRACE_MAX_SEC,
        "How long it may take to end by itself before it is killed.",
    )];
}

/// What output is asked.
pub(super) struct Streaming;

impl Query for Streaming {
    const PARAMS: &'static [Param] = &[
        Param::word(
            "stream",
            &["stdout", "stderr"],
            "Which stream; `stdout` when absent.",
        ),
        Param::count("offset", "From this byte on."),
        Param::flag("follow", "Go on as it is written, until the command ends."),
        LOOK,
    ];
}

/// The bytes of a stream.
pub(super) struct OutputBytes;

impl Answers for OutputBytes {
    fn forms() -> Vec<Answer> {
        let bytes = Answer::of("application/octet-stream").with(&[
            (OUTPUT_OFFSET_HEADER, "The offset of the first byte."),
            (
                OUTPUT_GAP_HEADER,
                "Bytes that are left out, as `from-to`: the one before the gap is followed by the one at `to`.",
            ),
        ]);
        vec![bytes]
    }
}

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
    params: Params<Looking>,
) -> Result<Json<ProcsResponse>, Trouble> {
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
    params: Params<Waiting>,
) -> Result<Either<Json<ProcView>, Json<Waited>>, Trouble> {
    let wait = params.number("waitSec")?;
    let port = params.number("readyPort")?;
    let port = port.and_then(|port| u16::try_from(port).ok());
    let when = Readiness::of(port, params.get("readyLog"))?;
    let exec_id = known(&exec_id)?;
    let commands = &app.commands;
    match until(params.get("until"), when)? {
        None => {
            let wait = Duration::from_secs(wait.unwrap_or(0));
            let proc = commands.proc(&caller, &id, exec_id, wait).await?;
            Ok(Either::One(Json(proc)))
        }
        Some(when) => {
            let wait = Duration::from_secs(wait.unwrap_or(u64::from(READY_SEC)));
            let waited = commands.wait_ready(&caller, &id, exec_id, &when, wait);
            Ok(Either::Other(Json(waited.await?)))
        }
    }
}

pub(super) async fn stop(
    State(app): State<App>,
    caller: Caller,
    Path((id, exec_id)): Path<(String, String)>,
    params: Params<Stopping>,
    Body(Nothing {}): Body<Nothing>,
) -> Result<Json<ProcView>, Trouble> {
    let grace = params.number("graceSec")?;
    let grace = grace.map(Duration::from_secs);
    let exec_id = known(&exec_id)?;
    let proc = app.commands.stop_proc(&caller, &id, exec_id, grace).await?;
    Ok(Json(proc))
}

pub(super) async fn output(
    State(app): State<App>,
    caller: Caller,
    Path((id, exec_id)): Path<(String, String)>,
    params: Params<Streaming>,
) -> Result<Like<OutputBytes>, Trouble> {
    let look = params.flag("look")?;
    let request = OutputRequest {
        exec_id: known(&exec_id)?.to_owned(),
        stream: match params.get("stream") {
            None | Some("stdout") => StreamName::Stdout,
            Some("stderr") => StreamName::Stderr,
            Some(_) => return Err(unfit("stream")),
        },
        offset: params.number("offset")?.unwrap_or(0),
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
        return Ok(Like::new((headers, seen.bytes)));
    }
    let first = app.commands.output(&caller, &id, request).await?;
    let headers = about(first.offset, first.gap.as_ref());
    let body = Bytes::from_stream(stream::unfold(Step::Have(first), step));
    Ok(Like::new((headers, body)))
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
