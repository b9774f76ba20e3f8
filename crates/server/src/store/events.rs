//! The outbox: every change of a box's state, numbered, written in the transaction of the change itself. Owns its table
//! and the pages readers take from it; who is told, and how, is the commands' and the API's.

use icebox_lifecycle::{BoxId, Time};
use rusqlite::{Connection, OptionalExtension as _, Row, Transaction, params};

use super::{Reader, StoreError};
use crate::record::AccountId;

/// Something outsiders may want to hear of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Announced {
    /// When it happened.
    pub at: Time,
    /// Whose box it was.
    pub account: AccountId,
    /// Which box.
    pub id: BoxId,
    /// The status it went to, or `egress` for news of its way out.
    pub kind: String,
    /// The rule that decided it, if one did.
    pub rule: Option<&'static str>,
    /// More about it, as JSON.
    pub body: String,
}

/// One stored event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// Its number: later ones have larger ones, and no number comes twice.
    pub seq: i64,
    /// When it happened.
    pub at: Time,
    /// Which box, by id.
    pub id: String,
    /// The status it went to, or `egress` for news of its way out.
    pub kind: String,
    /// The rule that decided it.
    pub rule: Option<String>,
    /// More about it, as JSON.
    pub body: String,
}

/// Some events of one account, and where they stand among those of all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventPage {
    /// The events, in order.
    pub events: Vec<Told>,
    /// The number of the oldest event that is kept, or of the next one when none is.
    pub oldest: i64,
    /// The number of the newest event there ever was; 0 before the first.
    pub newest: i64,
}

pub(super) fn add(tx: &Transaction<'_>, event: &Announced) -> rusqlite::Result<()> {
    tx.prepare_cached(
        "INSERT INTO events (at_ms, account, box, kind, rule, body) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
    )?
    .execute(params![
        event.at.0,
        event.account.0,
        event.id.as_str(),
        event.kind,
        event.rule,
        event.body
    ])?;
    Ok(())
}

/// Removes events from before `from`. Numbers and moments grow together, so only what goes is looked at.
pub(super) fn sweep(tx: &Transaction<'_>, from: Time) -> rusqlite::Result<()> {
    tx.prepare_cached(
        "DELETE FROM events WHERE seq < coalesce(
             (SELECT seq FROM events WHERE at_ms >= ?1 ORDER BY seq LIMIT 1),
             (SELECT max(seq) + 1 FROM events))",
    )?
    .execute([from.0])?;
    Ok(())
}

impl Reader {
    /// An account's events after the one numbered `after`, at most `limit`. Blocks on the disk for a moment.
    pub fn events(
        &self,
        account: AccountId,
        after: i64,
        limit: usize,
    ) -> Result<EventPage, StoreError> {
        let mut db = self.lock();
        page(&mut db, account, after, limit).map_err(StoreError::Read)
    }

    /// The number after which an account has just so many events; `None` when it has no more than that. Blocks likewise.
    pub fn before_last(&self, account: AccountId, last: usize) -> Result<Option<i64>, StoreError> {
        let db = self.lock();
        let find = || {
            db.prepare_cached(
                "SELECT seq FROM events WHERE account = ?1 ORDER BY seq DESC LIMIT 1 OFFSET ?2",
            )?
            .query_row(
                params![account.0, i64::try_from(last).unwrap_or(i64::MAX)],
                |row| row.get(0),
            )
            .optional()
        };
        find().map_err(StoreError::Read)
    }
}

fn page(
    db: &mut Connection,
    account: AccountId,
    after: i64,
    limit: usize,
) -> rusqlite::Result<EventPage> {
    // One transaction, so that the page and its bounds are of the same moment.
    let tx = db.transaction()?;
    let newest = tx
        .prepare_cached("SELECT seq FROM sqlite_sequence WHERE name = 'events'")?
        .query_row([], |row| row.get(0))
        .optional()?
        .unwrap_or(0);
    let oldest: Option<i64> = tx
        .prepare_cached("SELECT min(seq) FROM events")?
        .query_row([], |row| row.get(0))?;
    let events = tx
        .prepare_cached(
            "SELECT seq, at_ms, box, kind, rule, body FROM events
             WHERE account = ?1 AND seq > ?2 ORDER BY seq LIMIT ?3",
        )?
        .query_map(
            params![account.0, after, i64::try_from(limit).unwrap_or(i64::MAX)],
            told,
        )?
        .collect::<rusqlite::Result<_>>()?;
    tx.commit()?;
    Ok(EventPage {
        events,
        oldest: oldest.unwrap_or(newest + 1),
        newest,
    })
}

fn told(row: &Row<'_>) -> rusqlite::Result<Told> {
    Ok(Told {
        seq: row.get(0)?,
        at: Time(row.get(1)?),
        id: row.get(2)?,
        kind: row.get(3)?,
        rule: row.get(4)?,
        body: row.get(5)?,
    })
}
