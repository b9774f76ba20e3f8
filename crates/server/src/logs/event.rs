//! From what an app sends to the rows that are kept: when it happened, whose box it was, and how much of each text stays. Owns
//! the limits of one row. Too long is cut, not refused: half a message helps, and nobody sees a refusal in somebody's browser.

use icebox_lifecycle::time::DAY;
use icebox_lifecycle::{BoxId, Time};
use icebox_wire::rest::{LogBatch, LogEvent, LogLevel, LogRow};
use serde_json::{Value, json};

use super::resolve::Resolver;
use crate::commands::Trouble;
use crate::commands::trouble::timestamp;
use crate::store::{NewLog, cut};

/// Events in one batch.
pub(super) const EVENTS: usize = 500;
const MSG_LEN: usize = 8_000;
const STACK_LEN: usize = 16_000;
const EXTRA_LEN: usize = 8_000;
const NAME_LEN: usize = 100;
const ID_LEN: usize = 200;
const URL_LEN: usize = 1_000;
/// What a row counts for beside its text, in bytes.
const ROW_BYTES: u64 = 200;
/// The name of an event that has none.
const NAME: &str = "log";

/// Whether a batch can be taken.
pub(super) fn check(batch: &LogBatch) -> Result<(), Trouble> {
    if batch.events.is_empty() || batch.events.len() > EVENTS {
        let takes = format!("a list of 1 to {EVENTS} events; send more in several batches");
        return Err(Trouble::bad("events", takes));
    }
    match &batch.of_box {
        Some(id) if BoxId::parse(id).is_none() => {
            Err(Trouble::bad("box", "the id of a box, or left out"))
        }
        Some(_) | None => Ok(()),
    }
}

/// The rows of a batch that came at this moment. `of_box` is the box whose page sent it, which nobody can make up.
pub(super) fn rows(
    batch: LogBatch,
    of_box: Option<BoxId>,
    now: Time,
    resolver: &mut Resolver<'_>,
) -> Vec<NewLog> {
    let short = |text: &Option<String>, most: usize| {
        let text = text.as_deref().filter(|text| !text.is_empty())?;
        Some(cut(text, most))
    };
    let release = short(&batch.release, super::RELEASE_LEN);
    let common = LogRow {
        time: timestamp(now),
        level: LogLevel::Info,
        name: String::new(),
        msg: String::new(),
        of_box: of_box
            .map(|id| id.as_str().to_owned())
            .or_else(|| batch.of_box.clone()),
        user: short(&batch.user, ID_LEN),
        session: short(&batch.session, ID_LEN),
        device: short(&batch.device, ID_LEN),
        url: short(&batch.url, URL_LEN),
        stack: None,
        stack_resolved: None,
        extra: None,
        release,
    };
    let sent_at = batch.sent_at;
    let events = batch.events.into_iter();
    let row = |event: LogEvent| {
        let at = moment(event.at, sent_at, now);
        let stack = short(&event.stack, STACK_LEN);
        let resolved = match (&common.release, &stack) {
            (Some(release), Some(stack)) => resolver.resolve(release, stack),
            (Some(_) | None, _) => None,
        };
        let row = LogRow {
            time: timestamp(at),
            level: event.level,
            name: short(&event.name, NAME_LEN).unwrap_or_else(|| NAME.to_owned()),
            msg: cut(&event.msg, MSG_LEN),
            stack_resolved: resolved,
            stack,
            extra: event.extra.map(bounded),
            ..common.clone()
        };
        let body = serde_json::to_string(&row).unwrap_or_default();
        NewLog {
            at,
            error: row.level == LogLevel::Error,
            bytes: ROW_BYTES + u64::try_from(body.len()).unwrap_or(u64::MAX),
            body,
        }
    };
    events.map(row).collect()
}

/// When it happened, by our clock: so long before it came as the sender says that it was before it was sent. Never later than
/// it came, nor more than a day before.
fn moment(at: Option<i64>, sent_at: Option<i64>, now: Time) -> Time {
    let Some(at) = at else {
        return now;
    };
    let before = sent_at.unwrap_or(now.0).saturating_sub(at);
    now - before.clamp(0, DAY)
}

/// A value that is not too large, or its beginning as a text.
fn bounded(extra: Value) -> Value {
    let text = extra.to_string();
    if text.len() <= EXTRA_LEN {
        return extra;
    }
    json!({ "cut": cut(&text, EXTRA_LEN / 2) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_clock_does_no_harm() {
        let now = Time(10 * DAY);
        let table = [
            (None, None, now),
            (None, Some(5), now),
            (Some(now.0 - 500), None, now - 500),
            (Some(now.0 + 500), None, now),
            (Some(1_000), Some(1_700), now - 700),
            (Some(1_700), Some(1_000), now),
            (Some(0), None, now - DAY),
            (Some(i64::MIN), Some(i64::MAX), now - DAY),
            (Some(i64::MAX), Some(i64::MIN), now),
        ];
        for (at, sent_at, expected) in table {
            assert_eq!(moment(at, sent_at, now), expected, "{at:?} {sent_at:?}");
        }
    }

    #[test]
    fn large_extras_are_cut() {
        let small = json!({"a": [1, 2]});
        assert_eq!(bounded(small.clone()), small);
        let large = bounded(json!({"a": "é".repeat(EXTRA_LEN)}));
        let text = large["cut"].as_str().unwrap();
        assert_eq!(text.chars().count(), EXTRA_LEN / 2);
        assert!(text.starts_with("{\"a\":\"é"));
    }
}
