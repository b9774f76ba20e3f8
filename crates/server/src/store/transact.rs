//! Transactions of the connections that write beside the engine. Owns how they begin and how sure they are.

use rusqlite::{Connection, Transaction, TransactionBehavior};

use super::StoreError;

/// Does all of `work`, or nothing of it. At once the only writer: a transaction that begins as a reader could not go on after
/// the engine's next commit. As sure as the connection is set to be; `StoreError::Write` says why nothing was written.
pub(super) fn transact<T>(
    db: &mut Connection,
    work: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<T>,
) -> Result<T, StoreError> {
    let all = || {
        let tx = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let done = work(&tx)?;
        tx.commit()?;
        Ok(done)
    };
    all().map_err(StoreError::Write)
}

/// The same where each says whether it has to survive a power cut.
pub(super) fn transact_as<T>(
    db: &mut Connection,
    durable: bool,
    work: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<T>,
) -> Result<T, StoreError> {
    let level = if durable { "FULL" } else { "NORMAL" };
    db.pragma_update(None, "synchronous", level)
        .map_err(StoreError::Write)?;
    transact(db, work)
}
