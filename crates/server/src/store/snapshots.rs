//! Snapshots as rows. Owns the SQL and the form of a row; what becomes of a snapshot is the engine's.

use icebox_lifecycle::{BoxId, SnapshotId, Time};
use rusqlite::{Transaction, params};
use serde::{Deserialize, Serialize};

use super::{Store, StoreError};
use crate::record::{AccountId, Record};
use crate::snapshot::{Snapshot, Stage};

/// What a row holds beside its columns.
#[derive(Serialize, Deserialize)]
struct Body {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    source: String,
    number: u64,
    created_ms: i64,
    memory: bool,
    bytes: u64,
    stage: StageRow,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    hidden: bool,
    record: Record,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum StageRow {
    Making,
    Ready,
    Removing,
}

impl Store {
    /// Every snapshot.
    pub fn snapshots(&self) -> Result<Vec<Snapshot>, StoreError> {
        let rows = || -> rusqlite::Result<Vec<(String, i64, String)>> {
            self.db
                .prepare("SELECT id, account, body FROM snapshots")?
                .query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?
                .collect()
        };
        let rows = rows().map_err(StoreError::Read)?;
        let load = |(id, account, body): (String, i64, String)| {
            load(&id, account, &body).map_err(|source| StoreError::Row { id, source })
        };
        rows.into_iter().map(load).collect()
    }
}

fn load(id: &str, account: i64, body: &str) -> Result<Snapshot, serde_json::Error> {
    let no_id = |what: &str| serde::de::Error::custom(format!("{what} is no id"));
    let body: Body = serde_json::from_str(body)?;
    Ok(Snapshot {
        id: SnapshotId::parse(id).ok_or_else(|| no_id(id))?,
        account: AccountId(account),
        name: body.name,
        source: BoxId::parse(&body.source).ok_or_else(|| no_id(&body.source))?,
        number: body.number,
        created_at: Time(body.created_ms),
        memory: body.memory,
        bytes: body.bytes,
        stage: match body.stage {
            StageRow::Making => Stage::Making,
            StageRow::Ready => Stage::Ready,
            StageRow::Removing => Stage::Removing,
        },
        hidden: body.hidden,
        record: body.record,
    })
}

pub(super) fn put(tx: &Transaction<'_>, snapshot: &Snapshot) -> rusqlite::Result<()> {
    let body = Body {
        name: snapshot.name.clone(),
        source: snapshot.source.to_string(),
        number: snapshot.number,
        created_ms: snapshot.created_at.0,
        memory: snapshot.memory,
        bytes: snapshot.bytes,
        stage: match snapshot.stage {
            Stage::Making => StageRow::Making,
            Stage::Ready => StageRow::Ready,
            Stage::Removing => StageRow::Removing,
        },
        hidden: snapshot.hidden,
        record: snapshot.record.clone(),
    };
    let body = serde_json::to_string(&body)
        .map_err(|error| rusqlite::Error::ToSqlConversionFailure(Box::new(error)))?;
    tx.prepare_cached("INSERT OR REPLACE INTO snapshots VALUES (?1, ?2, ?3)")?
        .execute(params![snapshot.id.as_str(), snapshot.account.0, body])?;
    Ok(())
}

pub(super) fn remove(tx: &Transaction<'_>, id: SnapshotId) -> rusqlite::Result<()> {
    tx.prepare_cached("DELETE FROM snapshots WHERE id = ?1")?
        .execute([id.as_str()])?;
    Ok(())
}
