//! `GET /v1/events`: every change of a box's state, in order. Two forms of the same events: server-sent events, which a
//! browser resumes by itself, and JSON lines. Owns these forms; what is read is [`crate::commands`]'s.
//!
//! `since` (or `Last-Event-ID`, which wins) is the number of the last event that was seen: what comes after it is told.
//! Without it everything that is kept is, or with `last` the newest so many. JSON lines end at the newest event unless
//! `follow=true`; server-sent events go on for ever. `limit` ends either form after so many.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::http::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use icebox_wire::rest::EventView;
use serde::Serialize;

use super::input::Params;
use super::operations::{Answer, Answers, Like, Param, Query};
use super::{App, error};
use crate::commands::check::unfit;
use crate::commands::{Caller, EventReader, EventsRequest, Trouble, event_view};
use crate::store::Told;

const SSE: &str = "text/event-stream";
const LINES: &str = "application/x-ndjson";
/// The header with which a browser resumes.
const LAST_EVENT_ID: &str = "last-event-id";
/// How often a quiet stream shows that it is alive, by the machine's own clock even under a test clock.
const HEARTBEAT: Duration = Duration::from_secs(15);
const LIMIT_MAX: u64 = 1_000;

/// What events are asked.
pub(super) struct Wanted;

impl Query for Wanted {
    const PARAMS: &'static [Param] = &[
        Param::count(
            "since",
            "Those after the event with this number; `Last-Event-ID` says the same.",
        ),
        Param::number(
            "last",
            0,
            LIMIT_MAX,
            "Only the newest so many, instead of `since`.",
        ),
        Param::flag(
            "follow",
            "JSON lines go on as things happen; server-sent events always do.",
        ),
        Param::number("limit", 1, LIMIT_MAX, "End after so many."),
    ];
}

/// Events as they are sent: one JSON text a line, or server-sent.
pub(super) struct Events;

impl Answers for Events {
    fn forms() -> Vec<Answer> {
        let about = "One event a line (`EventView`), or server-sent events with the same as their data where the client accepts \
                     `text/event-stream`.";
        [LINES, SSE]
            .map(|media| Answer::each::<EventView>(media).about(about))
            .into()
    }
}

pub(super) async fn events(
    State(app): State<App>,
    caller: Caller,
    headers: HeaderMap,
    params: Params<Wanted>,
) -> Result<Like<Events>, Trouble> {
    let largest = u64::try_from(i64::MAX).unwrap_or(u64::MAX);
    let since = match headers.get(LAST_EVENT_ID) {
        Some(id) => {
            let id = id.to_str().ok().and_then(|id| id.parse::<u64>().ok());
            let id = id.filter(|id| *id <= largest);
            Some(id.ok_or_else(|| unfit("Last-Event-ID"))?)
        }
        None => params.number("since")?,
    };
    let sse = headers.get_all(ACCEPT).iter().any(|accept| {
        let accept = accept.to_str().unwrap_or_default();
        accept.to_ascii_lowercase().contains(SSE)
    });
    let limit = params.number("limit")?;
    let last = params.number("last")?;
    if params.get("since").is_some() && last.is_some() {
        return Err(Trouble::bad("last", "left out where `since` is given"));
    }
    let request = EventsRequest {
        since: since.and_then(|since| i64::try_from(since).ok()),
        last: last.and_then(|last| usize::try_from(last).ok()),
        limit: limit.and_then(|limit| usize::try_from(limit).ok()),
        follow: params.flag("follow")? || sse,
    };
    let reader = app.commands.events(&caller, request).await?;
    Ok(Like::new(if sse {
        server_sent(reader)
    } else {
        json_lines(reader)
    }))
}

/// Events on their way to a client.
struct Sending {
    /// `None` after the last page.
    reader: Option<EventReader>,
    /// Events of the last page that were read.
    page: VecDeque<Told>,
}

/// One thing to send.
enum Item {
    Event(EventView),
    Trouble(Trouble),
}

fn items(reader: EventReader) -> impl stream::Stream<Item = Item> {
    let sending = Sending {
        reader: Some(reader),
        page: VecDeque::new(),
    };
    stream::unfold(sending, |mut sending| async move {
        loop {
            if let Some(told) = sending.page.pop_front() {
                return Some((Item::Event(event_view(told)), sending));
            }
            match sending.reader.as_mut()?.next().await {
                Ok(Some(page)) => sending.page = page.into(),
                Ok(None) => return None,
                // The status line is out already, so the trouble is the last thing that is sent.
                Err(trouble) => {
                    sending.reader = None;
                    return Some((Item::Trouble(trouble), sending));
                }
            }
        }
    })
}

fn server_sent(reader: EventReader) -> Response {
    use futures_util::StreamExt as _;
    let events = items(reader).map(|item| {
        Ok::<_, Infallible>(match item {
            Item::Event(view) => Event::default()
                .id(view.seq.to_string())
                .event(view.kind.clone())
                .data(json(&view)),
            Item::Trouble(trouble) => {
                let body = error::body(trouble);
                Event::default().event(body.code.clone()).data(json(&body))
            }
        })
    });
    let keep_alive = KeepAlive::new().interval(HEARTBEAT).text("still here");
    Sse::new(events).keep_alive(keep_alive).into_response()
}

fn json_lines(reader: EventReader) -> Response {
    use futures_util::StreamExt as _;
    let lines = items(reader).map(|item| {
        let mut line = match item {
            Item::Event(view) => json(&view),
            Item::Trouble(trouble) => json(&error::body(trouble)),
        };
        line.push('\n');
        Ok::<_, Infallible>(line)
    });
    let headers = [(CONTENT_TYPE, LINES), (CACHE_CONTROL, "no-store")];
    (headers, Body::from_stream(lines)).into_response()
}

fn json(value: &impl Serialize) -> String {
    // Our own types of plain texts and numbers always have a JSON form.
    serde_json::to_string(value).unwrap_or_default()
}
