//! Browsers that are signed in, and the links with which one may be: both as hashes, both ending with the key behind them.
//! Owns these two tables. They are written beside the engine, by a connection of its own; whatever was answered is on the
//! disk.

use std::sync::{Mutex, MutexGuard, PoisonError};

use icebox_lifecycle::Time;
use rusqlite::{Connection, ErrorCode, OptionalExtension as _, Transaction, params};

use super::transact::transact;
use super::{KeyHash, Store, StoreError, connect};

/// What is kept of a session's or a link's secret.
pub type SecretHash = [u8; 32];

/// A browser that is signed in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredSession {
    /// What is kept of its cookie.
    pub hash: SecretHash,
    /// The key it signed in with.
    pub key: KeyHash,
    /// When it did.
    pub created_at: Time,
    /// When it has to again.
    pub expires_at: Time,
}

/// A link with which a browser may be signed in, once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredLink {
    /// What is kept of its token.
    pub hash: SecretHash,
    /// The key that made it.
    pub key: KeyHash,
    /// Until when it is good.
    pub expires_at: Time,
}

/// With what a browser signs in.
#[derive(Clone, Copy, Debug)]
pub enum Proof {
    /// A key that was looked at.
    Key(KeyHash),
    /// A link, which is used up by it.
    Link(SecretHash),
}

/// The tables of sessions, for reading and writing. Every method blocks on the disk for a moment.
#[derive(Debug)]
pub struct SessionTables(Mutex<Connection>);

impl Store {
    /// The sessions, over a connection of their own.
    pub fn sessions(&self) -> Result<SessionTables, StoreError> {
        let db = connect(&self.path)?;
        // The engine's own commits move the log into the file, so that this connection never waits for that.
        db.pragma_update(None, "wal_autocheckpoint", 0)
            .map_err(StoreError::Open)?;
        Ok(SessionTables(Mutex::new(db)))
    }
}

impl SessionTables {
    /// Every session that is not over.
    pub fn all(&self, now: Time) -> Result<Vec<StoredSession>, StoreError> {
        self.write(|tx| {
            sweep(tx, now)?;
            tx.prepare_cached("SELECT hash, key, created_ms, expires_ms FROM sessions")?
                .query_map([], |row| {
                    Ok(StoredSession {
                        hash: row.get(0)?,
                        key: row.get(1)?,
                        created_at: Time(row.get(2)?),
                        expires_at: Time(row.get(3)?),
                    })
                })?
                .collect()
        })
    }

    /// Opens a session, and tells which were closed for it: of an account's, only the `most` newest stay. `None` when the
    /// proof is none: the key is gone, or the link was used, is over or never was.
    pub fn open(
        &self,
        proof: Proof,
        hash: SecretHash,
        created_at: Time,
        expires_at: Time,
        most: usize,
    ) -> Result<Option<(StoredSession, Vec<SecretHash>)>, StoreError> {
        self.write(|tx| {
            sweep(tx, created_at)?;
            let key = match proof {
                Proof::Key(key) => Some(key),
                Proof::Link(link) => tx
                    .prepare_cached("DELETE FROM session_links WHERE hash = ?1 RETURNING key")?
                    .query_row([link], |row| row.get(0))
                    .optional()?,
            };
            let Some(key) = key else { return Ok(None) };
            let session = StoredSession {
                hash,
                key,
                created_at,
                expires_at,
            };
            let insert = "INSERT INTO sessions VALUES (?1, ?2, ?3, ?4)";
            let row = params![hash, key, created_at.0, expires_at.0];
            if !inserted(tx, insert, row)? {
                return Ok(None);
            }
            let closed = tx
                .prepare_cached(
                    "DELETE FROM sessions WHERE hash IN (
                         SELECT sessions.hash FROM sessions JOIN keys ON keys.hash = sessions.key
                         WHERE keys.account = (SELECT account FROM keys WHERE hash = ?1)
                         ORDER BY sessions.created_ms DESC, sessions.hash = ?2 DESC
                         LIMIT -1 OFFSET ?3) RETURNING hash",
                )?
                .query_map(params![key, hash, limit_of(most)], |row| row.get(0))?
                .collect::<rusqlite::Result<_>>()?;
            Ok(Some((session, closed)))
        })
    }

    /// Ends a session.
    pub fn close(&self, hash: &SecretHash) -> Result<(), StoreError> {
        self.write(|tx| {
            tx.prepare_cached("DELETE FROM sessions WHERE hash = ?1")?
                .execute([hash])
                .map(drop)
        })
    }

    /// Keeps a new link; of a key's, only the `most` newest stay. `false` when the key is gone.
    pub fn add_link(&self, link: &StoredLink, now: Time, most: usize) -> Result<bool, StoreError> {
        self.write(|tx| {
            sweep(tx, now)?;
            let insert = "INSERT INTO session_links VALUES (?1, ?2, ?3)";
            let row = params![link.hash, link.key, link.expires_at.0];
            if !inserted(tx, insert, row)? {
                return Ok(false);
            }
            tx.prepare_cached(
                "DELETE FROM session_links WHERE hash IN (
                     SELECT hash FROM session_links WHERE key = ?1
                     ORDER BY expires_ms DESC, hash = ?2 DESC LIMIT -1 OFFSET ?3)",
            )?
            .execute(params![link.key, link.hash, limit_of(most)])?;
            Ok(true)
        })
    }

    fn write<T>(
        &self,
        work: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<T>,
    ) -> Result<T, StoreError> {
        transact(&mut self.lock(), work)
    }

    fn lock(&self) -> MutexGuard<'_, Connection> {
        // Whoever panicked took its transaction with it.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Inserts a row; `false` when the key that it names was revoked.
fn inserted(tx: &Transaction<'_>, sql: &str, row: impl rusqlite::Params) -> rusqlite::Result<bool> {
    match tx.prepare_cached(sql)?.execute(row) {
        Ok(_) => Ok(true),
        Err(error) if error.sqlite_error_code() == Some(ErrorCode::ConstraintViolation) => {
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

fn sweep(tx: &Transaction<'_>, now: Time) -> rusqlite::Result<()> {
    for sql in [
        "DELETE FROM sessions WHERE expires_ms <= ?1",
        "DELETE FROM session_links WHERE expires_ms <= ?1",
    ] {
        tx.prepare_cached(sql)?.execute([now.0])?;
    }
    Ok(())
}

fn limit_of(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}
