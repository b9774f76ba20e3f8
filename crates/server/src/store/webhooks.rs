//! Webhooks, and the line of events that wait for each: the outbox's numbers, what came of the tries, and which event of a
//! box is next. Owns these two tables. They are written beside the engine, by a connection of its own in short
//! transactions: what a webhook is goes to the disk before it is answered, what came of a try may be lost in a power cut,
//! which repeats a delivery and loses none.

use std::sync::{Mutex, MutexGuard, PoisonError};

use icebox_lifecycle::Time;
use rusqlite::{Connection, OptionalExtension as _, Row, Transaction, params};

use super::hook::{Delivery, Due, Fill, Hook, HookChange, Then, Tried};
use super::keys::DEFAULT_ACCOUNT;
use super::transact::transact_as;
use super::{Store, StoreError, Told, connect};
use crate::record::AccountId;
use crate::webhooks::Secret;

/// Deliveries of one webhook that wait at a time; later events stay in the outbox until there is room.
const MOST_WAITING: i64 = 50_000;
/// Events that are put in line in one transaction.
const AT_A_TIME: i64 = 500;
/// Deliveries of one webhook that are kept once they are over.
const OVER_KEPT: i64 = 200;

/// Why a delivery is not tried again when its webhook is sent nothing any more.
const DISABLED: &str = "the webhook was disabled before it was delivered";
/// Why one is not tried at all.
const NOT_KEPT: &str = "the event is not kept any more";

/// The tables of webhooks, for reading and writing. Every method blocks on the disk for a moment.
#[derive(Debug)]
pub struct Hooks(Mutex<Connection>);

impl Store {
    /// The webhooks, over a connection of their own.
    pub fn hooks(&self) -> Result<Hooks, StoreError> {
        let db = connect(&self.path)?;
        // The engine's own commits move the log into the file, so that this connection never waits for that.
        db.pragma_update(None, "wal_autocheckpoint", 0)
            .map_err(StoreError::Open)?;
        Ok(Hooks(Mutex::new(db)))
    }
}

impl Hooks {
    /// The account that the first start made: the admin's.
    pub fn admin(&self) -> Result<AccountId, StoreError> {
        let sql = "SELECT id FROM accounts WHERE name = ?1";
        let id = |row: &Row<'_>| row.get(0).map(AccountId);
        self.read(|db| db.query_row(sql, [DEFAULT_ACCOUNT], id))
    }

    /// Every webhook of an account, or of all, oldest first.
    pub fn list(&self, account: Option<AccountId>) -> Result<Vec<Hook>, StoreError> {
        self.read(|db| {
            let sql = format!("{HOOK} WHERE account = ?1 OR ?1 IS NULL ORDER BY created_ms, id");
            db.prepare_cached(&sql)?
                .query_map([account.map(|account| account.0)], hook)?
                .collect()
        })
    }

    /// One webhook of an account.
    pub fn get(&self, account: AccountId, id: &str) -> Result<Option<Hook>, StoreError> {
        self.read(|db| {
            let sql = format!("{HOOK} WHERE account = ?1 AND id = ?2");
            db.prepare_cached(&sql)?
                .query_row(params![account.0, id], hook)
                .optional()
        })
    }

    /// Keeps a new webhook, which is sent what happens from now on; `false` when its account has `most` already.
    pub fn create(&self, hook: &Hook, most: usize) -> Result<bool, StoreError> {
        self.write(true, |tx| {
            let of_account = "SELECT count(*) FROM webhooks WHERE account = ?1";
            let count: i64 = tx.query_row(of_account, [hook.account.0], |row| row.get(0))?;
            if usize::try_from(count).is_ok_and(|count| count >= most) {
                return Ok(false);
            }
            tx.prepare_cached(
                "INSERT INTO webhooks VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
            )?
            .execute(params![
                hook.id,
                hook.account.0,
                hook.created_at.0,
                hook.url,
                hook.kinds.join(","),
                hook.of_box,
                hook.secret.bytes(),
                hook.enabled,
                hook.disabled_reason,
                newest(tx)?,
            ])?;
            Ok(true)
        })
    }

    /// Changes a webhook. Enabling it again skips what happened meanwhile; disabling it gives up what waits.
    pub fn change(&self, id: &str, change: &HookChange) -> Result<(), StoreError> {
        self.write(true, |tx| {
            let set = |field: &str, value: &dyn rusqlite::ToSql| {
                let sql = format!("UPDATE webhooks SET {field} = ?2 WHERE id = ?1");
                tx.prepare_cached(&sql)?.execute(params![id, value])
            };
            if let Some(url) = &change.url {
                set("url", url)?;
            }
            if let Some(kinds) = &change.kinds {
                set("kinds", &kinds.join(","))?;
            }
            if let Some(of_box) = &change.of_box {
                set("box", of_box)?;
            }
            if let Some(secret) = &change.secret {
                set("secret", &secret.bytes())?;
            }
            match change.enabled {
                Some(true) => {
                    tx.prepare_cached(
                        "UPDATE webhooks SET enabled = 1, disabled_reason = NULL, position = ?2
                         WHERE id = ?1 AND enabled = 0",
                    )?
                    .execute(params![id, newest(tx)?])?;
                }
                Some(false) => disable(tx, id, None)?,
                None => {}
            }
            Ok(())
        })
    }

    /// Forgets a webhook and everything that waits for it.
    pub fn remove(&self, id: &str) -> Result<(), StoreError> {
        self.write(true, |tx| {
            tx.execute("DELETE FROM deliveries WHERE hook = ?1", [id])?;
            tx.execute("DELETE FROM webhooks WHERE id = ?1", [id])?;
            Ok(())
        })
    }

    /// The latest deliveries of a webhook, newest event first.
    pub fn deliveries(&self, id: &str, limit: usize) -> Result<Vec<Delivery>, StoreError> {
        self.read(|db| {
            db.prepare_cached(
                "SELECT seq, box, kind, state, tries, tried_ms, status, error, next_ms
                 FROM deliveries WHERE hook = ?1 ORDER BY seq DESC LIMIT ?2",
            )?
            .query_map(params![id, limit_of(limit)], delivery)?
            .collect()
        })
    }

    /// The accounts of the events after `seen`, and the number of the newest event.
    pub fn news(&self, seen: i64) -> Result<(Vec<AccountId>, i64), StoreError> {
        self.read(|db| {
            let newest = newest(db)?;
            let accounts = db
                .prepare_cached("SELECT DISTINCT account FROM events WHERE seq > ?1")?
                .query_map([seen], |row| row.get(0).map(AccountId))?
                .collect::<rusqlite::Result<_>>()?;
            Ok((accounts, newest))
        })
    }

    /// Puts events that a webhook is to be sent in line, those of each box behind each other.
    pub fn fill(&self, id: &str, now: Time) -> Result<Fill, StoreError> {
        self.write(false, |tx| fill(tx, id, now))
    }

    /// The first event in the line of each box, those that are to be tried first in front; at most `limit`.
    pub fn due(&self, id: &str, limit: usize) -> Result<Vec<Due>, StoreError> {
        self.read(|db| {
            db.prepare_cached(
                "SELECT d.seq, d.next_ms, d.tries, d.box, d.kind, e.at_ms, e.rule, e.body
                 FROM deliveries AS d LEFT JOIN events AS e ON e.seq = d.seq
                 WHERE d.hook = ?1 AND d.next_ms IS NOT NULL ORDER BY d.next_ms, d.seq LIMIT ?2",
            )?
            .query_map(params![id, limit_of(limit)], due)?
            .collect()
        })
    }

    /// Notes what came of a try, and lets the next event of the box come forward if this one is over. A delivery that is
    /// over already, or whose webhook is gone, is left alone.
    pub fn tried(&self, id: &str, seq: i64, now: Time, tried: &Tried) -> Result<(), StoreError> {
        self.write(false, |tx| {
            let (state, next) = match tried.then {
                Then::Delivered => ("delivered", None),
                Then::Again(at) => ("waiting", Some(at.0)),
                Then::GiveUp | Then::Disable => ("given_up", None),
            };
            let known = tx
                .prepare_cached(
                    "UPDATE deliveries SET state = ?3, next_ms = ?4, tries = tries + 1, tried_ms = ?5,
                         status = ?6, error = ?7
                     WHERE hook = ?1 AND seq = ?2 AND state = 'waiting'",
                )?
                .execute(params![id, seq, state, next, now.0, tried.status, tried.error])?;
            if known == 0 {
                return Ok(());
            }
            match tried.then {
                Then::Again(_) => Ok(()),
                Then::Delivered | Then::GiveUp => over(tx, id, seq, now),
                Then::Disable => disable(tx, id, tried.error.as_deref()),
            }
        })
    }

    /// Gives up an event that is not kept any more.
    pub fn not_kept(&self, id: &str, seq: i64, now: Time) -> Result<(), StoreError> {
        self.write(false, |tx| {
            tx.prepare_cached(
                "UPDATE deliveries SET state = 'given_up', next_ms = NULL, error = ?3
                 WHERE hook = ?1 AND seq = ?2 AND state = 'waiting'",
            )?
            .execute(params![id, seq, NOT_KEPT])?;
            over(tx, id, seq, now)
        })
    }

    fn read<T>(
        &self,
        read: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, StoreError> {
        read(&self.lock()).map_err(StoreError::Read)
    }

    fn write<T>(
        &self,
        durable: bool,
        write: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<T>,
    ) -> Result<T, StoreError> {
        transact_as(&mut self.lock(), durable, write)
    }

    fn lock(&self) -> MutexGuard<'_, Connection> {
        // A user that panicked leaves the connection as it was: its transaction was rolled back.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

const HOOK: &str =
    "SELECT id, account, created_ms, url, kinds, box, secret, enabled, disabled_reason,
    (SELECT count(*) FROM deliveries WHERE hook = id AND state = 'waiting') FROM webhooks";

fn hook(row: &Row<'_>) -> rusqlite::Result<Hook> {
    let kinds: String = row.get(4)?;
    let waiting: i64 = row.get(9)?;
    Ok(Hook {
        id: row.get(0)?,
        account: AccountId(row.get(1)?),
        created_at: Time(row.get(2)?),
        url: row.get(3)?,
        kinds: kinds
            .split(',')
            .filter(|kind| !kind.is_empty())
            .map(str::to_owned)
            .collect(),
        of_box: row.get(5)?,
        secret: Secret::from_bytes(row.get(6)?),
        enabled: row.get(7)?,
        disabled_reason: row.get(8)?,
        waiting: u64::try_from(waiting).unwrap_or(0),
    })
}

fn due(row: &Row<'_>) -> rusqlite::Result<Due> {
    let seq = row.get(0)?;
    let at: Option<i64> = row.get(5)?;
    let event = match at {
        Some(at) => Some(Told {
            seq,
            at: Time(at),
            id: row.get(3)?,
            kind: row.get(4)?,
            rule: row.get(6)?,
            body: row.get(7)?,
        }),
        None => None,
    };
    Ok(Due {
        seq,
        at: Time(row.get(1)?),
        tries: row.get(2)?,
        event,
    })
}

fn delivery(row: &Row<'_>) -> rusqlite::Result<Delivery> {
    let time = |at: Option<i64>| at.map(Time);
    Ok(Delivery {
        seq: row.get(0)?,
        of_box: row.get(1)?,
        kind: row.get(2)?,
        state: row.get(3)?,
        tries: row.get(4)?,
        tried_at: time(row.get(5)?),
        status: row.get(6)?,
        error: row.get(7)?,
        next_at: time(row.get(8)?),
    })
}

/// The number of the newest event there ever was.
fn newest(db: &Connection) -> rusqlite::Result<i64> {
    let seq = db
        .prepare_cached("SELECT seq FROM sqlite_sequence WHERE name = 'events'")?
        .query_row([], |row| row.get(0))
        .optional()?;
    Ok(seq.unwrap_or(0))
}

fn fill(tx: &Transaction<'_>, id: &str, now: Time) -> rusqlite::Result<Fill> {
    let sql = "SELECT position FROM webhooks WHERE id = ?1 AND enabled";
    let position: Option<i64> = tx
        .prepare_cached(sql)?
        .query_row([id], |row| row.get(0))
        .optional()?;
    let Some(position) = position else {
        return Ok(Fill::Done);
    };
    let sql = "SELECT count(*) FROM deliveries WHERE hook = ?1 AND state = 'waiting'";
    let waiting: i64 = tx.prepare_cached(sql)?.query_row([id], |row| row.get(0))?;
    let room = AT_A_TIME.min(MOST_WAITING - waiting);
    if room <= 0 {
        return Ok(Fill::Full);
    }
    let added = tx
        .prepare_cached(
            "INSERT INTO deliveries (hook, seq, box, kind, state, tries)
             SELECT w.id, e.seq, e.box, e.kind, 'waiting', 0
             FROM webhooks AS w JOIN events AS e ON e.account = w.account AND e.seq > w.position
             WHERE w.id = ?1 AND (w.box IS NULL OR w.box = e.box)
                 AND (w.kinds = '' OR instr(',' || w.kinds || ',', ',' || e.kind || ',') > 0)
             ORDER BY e.seq LIMIT ?2",
        )?
        .execute(params![id, room])?;
    let all = i64::try_from(added).is_ok_and(|added| added < room);
    let reached = if all {
        newest(tx)?
    } else {
        let sql = "SELECT max(seq) FROM deliveries WHERE hook = ?1";
        tx.prepare_cached(sql)?.query_row([id], |row| row.get(0))?
    };
    tx.prepare_cached("UPDATE webhooks SET position = ?2 WHERE id = ?1")?
        .execute(params![id, reached])?;
    tx.prepare_cached(
        "UPDATE deliveries AS new SET next_ms = ?3
         WHERE hook = ?1 AND seq > ?2 AND NOT EXISTS (
             SELECT 1 FROM deliveries WHERE hook = ?1 AND box = new.box AND state = 'waiting' AND seq < new.seq)",
    )?
    .execute(params![id, position, now.0])?;
    Ok(if all { Fill::Done } else { Fill::More })
}

/// Lets the next event of a box come forward, and forgets the oldest of those that are over.
fn over(tx: &Transaction<'_>, id: &str, seq: i64, now: Time) -> rusqlite::Result<()> {
    tx.prepare_cached(
        "UPDATE deliveries SET next_ms = ?3 WHERE hook = ?1 AND seq = (
             SELECT min(seq) FROM deliveries WHERE hook = ?1 AND state = 'waiting' AND box = (
                 SELECT box FROM deliveries WHERE hook = ?1 AND seq = ?2))",
    )?
    .execute(params![id, seq, now.0])?;
    prune(tx, id)
}

fn disable(tx: &Transaction<'_>, id: &str, reason: Option<&str>) -> rusqlite::Result<()> {
    tx.prepare_cached(
        "UPDATE webhooks SET enabled = 0, disabled_reason = ?2 WHERE id = ?1 AND enabled = 1",
    )?
    .execute(params![id, reason])?;
    tx.prepare_cached(
        "UPDATE deliveries SET state = 'given_up', next_ms = NULL, error = ?2
         WHERE hook = ?1 AND state = 'waiting'",
    )?
    .execute(params![id, DISABLED])?;
    prune(tx, id)
}

fn prune(tx: &Transaction<'_>, id: &str) -> rusqlite::Result<()> {
    tx.prepare_cached(
        "DELETE FROM deliveries WHERE hook = ?1 AND state <> 'waiting' AND seq <= (
             SELECT seq FROM deliveries WHERE hook = ?1 AND state <> 'waiting'
             ORDER BY seq DESC LIMIT 1 OFFSET ?2)",
    )?
    .execute(params![id, OVER_KEPT])?;
    Ok(())
}

fn limit_of(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}
