//! Tables that are written beside the engine, by a connection of their own in short transactions, each on the disk before it
//! is answered: what accounts keep for their boxes. Owns the connection; what is in the tables is said in the files that
//! add to it.

use std::sync::{Mutex, PoisonError};

use rusqlite::{Connection, Transaction};

use super::transact::transact;
use super::{Store, StoreError, connect};

/// The tables. Every method blocks on the disk for a moment.
#[derive(Debug)]
pub struct Beside(Mutex<Connection>);

impl Store {
    /// The tables that are written beside the engine.
    pub fn beside(&self) -> Result<Beside, StoreError> {
        let db = connect(&self.path)?;
        // The engine's own commits move the log into the file, so that this connection never waits for that.
        db.pragma_update(None, "wal_autocheckpoint", 0)
            .map_err(StoreError::Open)?;
        Ok(Beside(Mutex::new(db)))
    }
}

impl Beside {
    pub(super) fn read<T>(
        &self,
        read: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, StoreError> {
        let db = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        read(&db).map_err(StoreError::Read)
    }

    pub(super) fn write<T>(
        &self,
        write: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<T>,
    ) -> Result<T, StoreError> {
        let mut db = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        transact(&mut db, write)
    }
}
