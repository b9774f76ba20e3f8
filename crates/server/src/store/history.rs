//! The steps of a box (rule 11.3): what calls did with it and what they came to, never their output. Owns their table and
//! how many are kept; which calls are steps is decided elsewhere.

use std::borrow::Cow;

use icebox_lifecycle::{BoxId, Time};
use rusqlite::{OptionalExtension as _, Transaction, params};
use serde::{Deserialize, Serialize};

use super::{Reader, StoreError};

/// How many of a box's latest steps readers get (rule 11.3).
const STEPS_SHOWN: usize = 30;
/// How many are kept of one box, so that a busy one does not fill the disk.
const STEPS_KEPT: i64 = 200;

/// The longest summary, in characters, the sign of a cut included (rule 11.3).
pub const SUMMARY_LEN: usize = 200;
/// The longest error of a step.
pub const ERROR_LEN: usize = 1_000;

/// What one call came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistoryStep {
    /// When the call began.
    pub at: Time,
    /// The command it ran: a repeat of the call is no step of its own.
    pub exec: Option<String>,
    /// What kind of call: `exec`, `start`, `stop`.
    pub kind: &'static str,
    /// What it did, in few words.
    pub summary: String,
    /// Why, in the caller's words.
    pub note: Option<String>,
    /// More about it, such as `background`.
    pub detail: Option<Cow<'static, str>>,
    /// The folder that it was about.
    pub target: Option<String>,
    /// How it ended.
    pub ending: Ending,
}

/// How a step ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ending {
    /// How long it took, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ms: Option<u64>,
    /// Why the call failed; absent when it did not, whatever a command's exit code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The exit code of a command that was waited for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// The signal that ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<String>,
    /// Its deadline ended it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub timed_out: bool,
}

/// The part of a step that only readers look at.
#[derive(Serialize, Deserialize)]
struct Body {
    kind: String,
    summary: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    note: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    detail: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    target: Option<String>,
    #[serde(flatten)]
    ending: Ending,
}

/// A step as it was stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredStep {
    /// When the call began.
    pub at: Time,
    /// What kind of call.
    pub kind: String,
    /// What it did.
    pub summary: String,
    /// Why, in the caller's words.
    pub note: Option<String>,
    /// More about it.
    pub detail: Option<String>,
    /// The folder that it was about.
    pub target: Option<String>,
    /// How it ended.
    pub ending: Ending,
}

/// A text of at most so many characters; a longer one ends with `…`.
#[must_use]
pub fn cut(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    let kept = text.chars().take(most.saturating_sub(1));
    kept.chain(['…']).collect()
}

/// Whether a command is an adapter's housekeeping, which is no step (rule 11.3).
#[must_use]
pub fn is_housekeeping(cmd: &str, cwd: &str) -> bool {
    let cwd = format!("{}/", cwd.strip_prefix("/work/").unwrap_or(cwd));
    cwd.starts_with(".psbx-sync/") || cmd.contains("/work/.psbx-sync/")
}

pub(super) fn add(tx: &Transaction<'_>, id: BoxId, step: &HistoryStep) -> rusqlite::Result<()> {
    let body = Body {
        kind: step.kind.to_owned(),
        summary: step.summary.clone(),
        note: step.note.clone(),
        detail: step.detail.as_deref().map(str::to_owned),
        target: step.target.clone(),
        ending: step.ending.clone(),
    };
    let body = serde_json::to_string(&body)
        .map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))?;
    let ok = step.ending.error.is_none();
    // A repeat replaces a try that failed; the end of a background command completes what began. Nothing else changes.
    tx.prepare_cached(
        "INSERT INTO steps (box, seq, at_ms, exec, ok, body)
         SELECT ?1, coalesce(max(seq), 0) + 1, ?2, ?3, ?4, ?5 FROM steps WHERE box = ?1
         ON CONFLICT (box, exec) WHERE exec IS NOT NULL
         DO UPDATE SET ok = excluded.ok, body = iif(steps.ok, json_patch(steps.body, excluded.body), excluded.body)
         WHERE steps.ok = 0 OR (
             coalesce(steps.body ->> 'exit_code', steps.body ->> 'signal', steps.body ->> 'timed_out') IS NULL
             AND coalesce(excluded.body ->> 'exit_code', excluded.body ->> 'signal', excluded.body ->> 'timed_out')
                 IS NOT NULL)",
    )?
    .execute(params![id.as_str(), step.at.0, step.exec, ok, body])?;
    tx.prepare_cached(
        "DELETE FROM steps WHERE box = ?1 AND seq <= (
             SELECT seq FROM steps WHERE box = ?1 ORDER BY seq DESC LIMIT 1 OFFSET ?2)",
    )?
    .execute(params![id.as_str(), STEPS_KEPT])?;
    Ok(())
}

/// Removes steps from before `from`.
pub(super) fn sweep(tx: &Transaction<'_>, from: Time) -> rusqlite::Result<()> {
    tx.prepare_cached("DELETE FROM steps WHERE at_ms < ?1")?
        .execute([from.0])?;
    Ok(())
}

impl Reader {
    /// The latest steps of a box, in the order in which they began. Blocks on the disk for a moment.
    pub fn steps(&self, id: BoxId, from: Time) -> Result<Vec<StoredStep>, StoreError> {
        let db = self.lock();
        let read = || -> rusqlite::Result<Vec<(i64, String)>> {
            let shown = i64::try_from(STEPS_SHOWN).unwrap_or(i64::MAX);
            db.prepare_cached(
                "SELECT at_ms, body FROM (
                     SELECT at_ms, seq, body FROM steps WHERE box = ?1 AND at_ms >= ?2
                     ORDER BY seq DESC LIMIT ?3) ORDER BY at_ms, seq",
            )?
            .query_map(params![id.as_str(), from.0, shown], |row| {
                Ok((row.get(0)?, row.get(1)?))
            })?
            .collect()
        };
        let rows = read().map_err(StoreError::Read)?;
        let rows = rows.into_iter();
        rows.map(|(at_ms, body)| stored(id, at_ms, &body)).collect()
    }

    /// The step that a command is, if it is kept. Blocks on the disk for a moment.
    pub fn step_of(&self, id: BoxId, exec: &str) -> Result<Option<StoredStep>, StoreError> {
        let db = self.lock();
        let read = || -> rusqlite::Result<Option<(i64, String)>> {
            db.prepare_cached("SELECT at_ms, body FROM steps WHERE box = ?1 AND exec = ?2")?
                .query_row(params![id.as_str(), exec], |row| {
                    Ok((row.get(0)?, row.get(1)?))
                })
                .optional()
        };
        let row = read().map_err(StoreError::Read)?;
        row.map(|(at_ms, body)| stored(id, at_ms, &body))
            .transpose()
    }
}

fn stored(id: BoxId, at_ms: i64, body: &str) -> Result<StoredStep, StoreError> {
    let body: Body = serde_json::from_str(body).map_err(|source| StoreError::Row {
        id: id.to_string(),
        source,
    })?;
    Ok(StoredStep {
        at: Time(at_ms),
        kind: body.kind,
        summary: body.summary,
        note: body.note,
        detail: body.detail,
        target: body.target,
        ending: body.ending,
    })
}
