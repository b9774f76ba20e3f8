//! Accounts as rows: their names, their credits and new keys of theirs. An account without a row of credits never runs
//! out. Owns the SQL; what is charged is [`icebox_lifecycle::credits`]'s.

use std::sync::Arc;

use icebox_lifecycle::Time;
use icebox_lifecycle::credits::{Credits, Ledger};
use rusqlite::{Row, Transaction, params};

use super::{KeyHash, Store, StoreError};
use crate::record::AccountId;

/// An account as it is stored.
#[derive(Clone, Debug)]
pub struct LoadedAccount {
    /// Which.
    pub id: AccountId,
    /// Its name.
    pub name: Arc<str>,
    /// Its credits, without what its boxes that are up add.
    pub ledger: Ledger,
}

/// An account to be stored.
#[derive(Clone, Debug)]
pub struct PutAccount {
    /// Which.
    pub id: AccountId,
    /// Its name, which it keeps.
    pub name: Arc<str>,
    /// When it was made, if it is new, and its keys.
    pub at: Time,
    /// Its credits.
    pub ledger: Ledger,
    /// Keys that it gets.
    pub keys: Vec<KeyHash>,
    /// Keys that it loses, with every session that came of them.
    pub revoked: Vec<KeyHash>,
}

impl Store {
    /// Every account.
    pub fn accounts(&self) -> Result<Vec<LoadedAccount>, StoreError> {
        let read = || -> rusqlite::Result<Vec<LoadedAccount>> {
            self.db
                .prepare(
                    "SELECT id, name, left_micro, left_rest, used_micro, used_rest
                     FROM accounts LEFT JOIN credits ON account = id",
                )?
                .query_map([], load)?
                .collect()
        };
        read().map_err(StoreError::Read)
    }
}

fn load(row: &Row<'_>) -> rusqlite::Result<LoadedAccount> {
    let amount = |micro: usize| -> rusqlite::Result<Option<Credits>> {
        let (micro, rest): (Option<i64>, Option<i64>) = (row.get(micro)?, row.get(micro + 1)?);
        Ok(micro.map(|micro| Credits::from_parts(micro, rest.unwrap_or(0))))
    };
    let (left, used) = (amount(2)?, amount(4)?);
    Ok(LoadedAccount {
        id: AccountId(row.get(0)?),
        name: row.get(1)?,
        ledger: Ledger::new(left, used.unwrap_or_default()),
    })
}

pub(super) fn put(tx: &Transaction<'_>, put: &PutAccount) -> rusqlite::Result<()> {
    let id = put.id.0;
    tx.prepare_cached("INSERT OR IGNORE INTO accounts (id, name, created_ms) VALUES (?1, ?2, ?3)")?
        .execute(params![id, put.name, put.at.0])?;
    let (left, used) = put.ledger.recorded();
    let ((micro, rest), used) = (left.map(Credits::parts).unzip(), used.parts());
    tx.prepare_cached("INSERT OR REPLACE INTO credits VALUES (?1, ?2, ?3, ?4, ?5)")?
        .execute(params![id, micro, rest, used.0, used.1])?;
    for key in &put.keys {
        tx.prepare_cached("INSERT INTO keys VALUES (?1, ?2, 'key', ?3)")?
            .execute(params![key, id, put.at.0])?;
    }
    for key in &put.revoked {
        tx.prepare_cached("DELETE FROM keys WHERE hash = ?1 AND account = ?2")?
            .execute(params![key, id])?;
    }
    Ok(())
}
