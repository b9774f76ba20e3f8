//! Application logs: projects, what their apps logged, and source maps. A file of its own beside the main one: what apps log
//! comes in bursts, may be lost, and must never make a turn of the engine wait for the write lock of the main file. Owns these
//! tables; what a row may hold and how much is kept is said in [`crate::logs`].

mod maps;

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use icebox_lifecycle::Time;
use rusqlite::{Connection, OptionalExtension as _, Row, Transaction, params};

use super::transact::transact_as;
use super::{KeyHash, Store, StoreError, connect, schema};
use crate::record::AccountId;

pub use maps::{KeptMaps, NewMap};

/// The file's name in the data folder.
const FILE: &str = "logs.db";
/// Rows that are removed in one transaction, so that what is logged meanwhile never waits long.
const SWEPT_AT_ONCE: i64 = 2_000;

const STEPS: &[&str] = &[
    // Numbers of projects are never used again: rows of one that is gone are removed little by little.
    "
    CREATE TABLE projects (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        id TEXT NOT NULL UNIQUE,
        account INTEGER NOT NULL,
        name TEXT NOT NULL,
        origins TEXT NOT NULL,
        key BLOB NOT NULL UNIQUE,
        created_ms INTEGER NOT NULL,
        bytes INTEGER NOT NULL,
        UNIQUE (account, name)
    );
    CREATE TABLE gone (
        project INTEGER PRIMARY KEY
    );
    CREATE TABLE rows (
        seq INTEGER PRIMARY KEY AUTOINCREMENT,
        project INTEGER NOT NULL,
        received_ms INTEGER NOT NULL,
        time_ms INTEGER NOT NULL,
        error INTEGER NOT NULL,
        bytes INTEGER NOT NULL,
        body TEXT NOT NULL
    );
    CREATE INDEX rows_of ON rows (project, seq);
    CREATE INDEX rows_at ON rows (project, received_ms);
    CREATE INDEX errors_of ON rows (project, seq) WHERE error = 1;
    CREATE TABLE maps (
        project INTEGER NOT NULL,
        release TEXT NOT NULL,
        path TEXT NOT NULL,
        added_ms INTEGER NOT NULL,
        bytes INTEGER NOT NULL,
        body BLOB NOT NULL,
        PRIMARY KEY (project, release, path)
    );
",
];

/// A project as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProjectRow {
    /// Its number in the tables.
    pub number: i64,
    /// Its id.
    pub id: String,
    /// Whose it is.
    pub account: AccountId,
    /// Its name, the only one of its account.
    pub name: String,
    /// The origins of its pages, separated by spaces; empty: the boxes' URLs.
    pub origins: String,
    /// What is kept of its write key.
    pub key: KeyHash,
    /// When it was made.
    pub created_at: Time,
    /// What its rows take up.
    pub bytes: u64,
    /// The number of its newest row, or 0.
    pub newest: i64,
}

/// What making a project came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MadeProject {
    /// It is there, under this number.
    Made(i64),
    /// The account has one of that name.
    NameTaken,
    /// The account has as many as it may have.
    TooMany,
}

/// A row to be kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewLog {
    /// When it was logged.
    pub at: Time,
    /// Whether it is an error.
    pub error: bool,
    /// All of it, as JSON.
    pub body: String,
    /// What it counts for.
    pub bytes: u64,
}

/// What keeping rows came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Added {
    /// The number of the last of them.
    pub newest: i64,
    /// What the rows of the project take up now.
    pub bytes: u64,
}

/// How far a look at rows came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scanned {
    /// The number of the last row that was looked at, if there was any.
    pub last: Option<i64>,
    /// There are no more rows.
    pub all: bool,
}

/// The tables. Every method blocks on the disk for a moment; readers do not wait for writers.
#[derive(Debug)]
pub struct LogTables {
    writer: Mutex<Connection>,
    reader: Mutex<Connection>,
}

impl Store {
    /// The tables of application logs.
    pub fn logs(&self) -> Result<LogTables, StoreError> {
        LogTables::open(&self.path.with_file_name(FILE))
    }
}

impl LogTables {
    fn open(path: &Path) -> Result<Self, StoreError> {
        let mut writer = connect(path)?;
        schema::apply(&mut writer, STEPS)?;
        // The last moment may be lost in a power cut, as with any log that is not worth a sync each time.
        writer
            .pragma_update(None, "synchronous", "NORMAL")
            .map_err(StoreError::Open)?;
        Ok(Self {
            writer: Mutex::new(writer),
            reader: Mutex::new(connect(path)?),
        })
    }

    /// Every project.
    pub fn projects(&self) -> Result<Vec<ProjectRow>, StoreError> {
        self.read(|db| {
            db.prepare(
                "SELECT number, id, account, name, origins, key, created_ms, bytes,
                     coalesce((SELECT max(seq) FROM rows WHERE project = number), 0)
                 FROM projects ORDER BY number",
            )?
            .query_map([], project)?
            .collect()
        })
    }

    /// Keeps a new project, if its account has fewer than `most`. Its number is not looked at.
    pub fn make_project(&self, new: &ProjectRow, most: usize) -> Result<MadeProject, StoreError> {
        self.write(true, |tx| {
            let sql =
                "SELECT count(*), coalesce(sum(name = ?2), 0) FROM projects WHERE account = ?1";
            let (count, same): (i64, i64) =
                tx.query_row(sql, params![new.account.0, new.name], |row| {
                    Ok((row.get(0)?, row.get(1)?))
                })?;
            if same > 0 {
                return Ok(MadeProject::NameTaken);
            }
            if usize::try_from(count).is_ok_and(|count| count >= most) {
                return Ok(MadeProject::TooMany);
            }
            tx.execute(
                "INSERT INTO projects (id, account, name, origins, key, created_ms, bytes)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, 0)",
                params![
                    new.id,
                    new.account.0,
                    new.name,
                    new.origins,
                    new.key,
                    new.created_at.0
                ],
            )?;
            Ok(MadeProject::Made(tx.last_insert_rowid()))
        })
    }

    /// Gives a project another key.
    pub fn set_project_key(&self, number: i64, key: &KeyHash) -> Result<(), StoreError> {
        self.write(true, |tx| {
            let sql = "UPDATE projects SET key = ?2 WHERE number = ?1";
            tx.execute(sql, params![number, key]).map(drop)
        })
    }

    /// Forgets a project and its maps; its rows go with the next [`Self::sweep_gone`].
    pub fn remove_project(&self, number: i64) -> Result<(), StoreError> {
        self.write(true, |tx| {
            tx.execute("DELETE FROM projects WHERE number = ?1", [number])?;
            tx.execute("DELETE FROM maps WHERE project = ?1", [number])?;
            tx.execute("INSERT OR IGNORE INTO gone VALUES (?1)", [number])?;
            Ok(())
        })
    }

    /// Keeps rows that came at this moment; `None` when the project is gone.
    pub fn add(
        &self,
        number: i64,
        now: Time,
        rows: &[NewLog],
    ) -> Result<Option<Added>, StoreError> {
        let all: u64 = rows.iter().map(|row| row.bytes).sum();
        self.write(false, |tx| {
            let counted = tx
                .prepare_cached(
                    "UPDATE projects SET bytes = bytes + ?2 WHERE number = ?1 RETURNING bytes",
                )?
                .query_row(params![number, signed(all)], |row| row.get(0))
                .optional()?;
            let Some(bytes) = counted.map(unsigned) else {
                return Ok(None);
            };
            let mut insert = tx.prepare_cached(
                "INSERT INTO rows (project, received_ms, time_ms, error, bytes, body)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
            )?;
            for row in rows {
                let bytes = signed(row.bytes);
                insert.execute(params![number, now.0, row.at.0, row.error, bytes, row.body])?;
            }
            let newest = tx.last_insert_rowid();
            Ok(Some(Added { newest, bytes }))
        })
    }

    /// The number before the first row that came at this moment or later; `None` when there is no such row.
    pub fn before(&self, number: i64, at: Time) -> Result<Option<i64>, StoreError> {
        self.read(|db| {
            db.prepare_cached(
                "SELECT seq - 1 FROM rows WHERE project = ?1 AND received_ms >= ?2
                 ORDER BY received_ms, seq LIMIT 1",
            )?
            .query_row(params![number, at.0], |row| row.get(0))
            .optional()
        })
    }

    /// Shows rows after a number, oldest first, at most `limit`: their numbers, when they were logged, and what they hold.
    /// Ends early when told to; the row that was shown then was looked at.
    pub fn scan(
        &self,
        number: i64,
        after: i64,
        errors_only: bool,
        limit: usize,
        mut each: impl FnMut(i64, Time, &str) -> ControlFlow<()>,
    ) -> Result<Scanned, StoreError> {
        let only = if errors_only { "AND error = 1" } else { "" };
        self.read(|db| {
            let mut query = db.prepare_cached(&format!(
                "SELECT seq, time_ms, body FROM rows WHERE project = ?1 AND seq > ?2 {only} ORDER BY seq LIMIT ?3"
            ))?;
            let limit_too = i64::try_from(limit).unwrap_or(i64::MAX);
            let mut rows = query.query(params![number, after, limit_too])?;
            let (mut last, mut count) = (None, 0);
            while let Some(row) = rows.next()? {
                let seq = row.get(0)?;
                (last, count) = (Some(seq), count + 1);
                let body = row.get_ref(2)?.as_str()?;
                if each(seq, Time(row.get(1)?), body).is_break() {
                    return Ok(Scanned { last, all: false });
                }
            }
            Ok(Scanned {
                last,
                all: count < limit,
            })
        })
    }

    /// Removes some of the rows of a project that came before a moment, or that are too many; says what is left, and whether
    /// there are more to remove.
    pub fn sweep(&self, number: i64, from: Time, most: u64) -> Result<(u64, bool), StoreError> {
        self.write(false, |tx| {
            let sql = "SELECT bytes FROM projects WHERE number = ?1";
            let counted = tx.query_row(sql, [number], |row| row.get(0)).optional()?;
            let Some(mut left) = counted.map(unsigned) else {
                return Ok((0, false));
            };
            let (mut last, mut count) = (None, 0);
            {
                let mut oldest = tx.prepare_cached(
                    "SELECT seq, received_ms, bytes FROM rows WHERE project = ?1 ORDER BY seq LIMIT ?2",
                )?;
                let mut rows = oldest.query(params![number, SWEPT_AT_ONCE])?;
                while let Some(row) = rows.next()? {
                    let too_old = Time(row.get(1)?) < from;
                    if !too_old && left <= most {
                        break;
                    }
                    left = left.saturating_sub(unsigned(row.get(2)?));
                    last = Some(row.get::<_, i64>(0)?);
                    count += 1;
                }
            }
            if let Some(last) = last {
                tx.prepare_cached("DELETE FROM rows WHERE project = ?1 AND seq <= ?2")?
                    .execute(params![number, last])?;
                tx.prepare_cached("UPDATE projects SET bytes = ?2 WHERE number = ?1")?
                    .execute(params![number, signed(left)])?;
            }
            Ok((left, count == SWEPT_AT_ONCE))
        })
    }

    /// Removes some of the rows of projects that are gone; says whether there are more.
    pub fn sweep_gone(&self) -> Result<bool, StoreError> {
        self.write(false, |tx| {
            let next = tx.query_row("SELECT project FROM gone LIMIT 1", [], |row| row.get(0));
            let Some(project) = next.optional()? else {
                return Ok(false);
            };
            let project: i64 = project;
            let removed = tx.execute(
                "DELETE FROM rows WHERE seq IN (SELECT seq FROM rows WHERE project = ?1 LIMIT ?2)",
                params![project, SWEPT_AT_ONCE],
            )?;
            if i64::try_from(removed).is_ok_and(|removed| removed < SWEPT_AT_ONCE) {
                tx.execute("DELETE FROM gone WHERE project = ?1", [project])?;
            }
            Ok(true)
        })
    }

    fn read<T>(
        &self,
        read: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, StoreError> {
        read(&lock(&self.reader)).map_err(StoreError::Read)
    }

    fn write<T>(
        &self,
        durable: bool,
        write: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<T>,
    ) -> Result<T, StoreError> {
        transact_as(&mut lock(&self.writer), durable, write)
    }
}

fn project(row: &Row<'_>) -> rusqlite::Result<ProjectRow> {
    Ok(ProjectRow {
        number: row.get(0)?,
        id: row.get(1)?,
        account: AccountId(row.get(2)?),
        name: row.get(3)?,
        origins: row.get(4)?,
        key: row.get(5)?,
        created_at: Time(row.get(6)?),
        bytes: unsigned(row.get(7)?),
        newest: row.get(8)?,
    })
}

fn lock(connection: &Mutex<Connection>) -> MutexGuard<'_, Connection> {
    // A user that panicked leaves the connection as it was: its transaction was rolled back.
    connection.lock().unwrap_or_else(PoisonError::into_inner)
}

fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

fn unsigned(bytes: i64) -> u64 {
    u64::try_from(bytes).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Time = Time(1_000_000);

    pub(super) fn tables() -> (tempfile::TempDir, LogTables, i64) {
        let dir = tempfile::tempdir().unwrap();
        let tables = LogTables::open(&dir.path().join(FILE)).unwrap();
        let MadeProject::Made(number) = tables.make_project(&new("one"), 2).unwrap() else {
            panic!("the first project is made");
        };
        (dir, tables, number)
    }

    fn new(name: &str) -> ProjectRow {
        ProjectRow {
            number: 0,
            id: format!("prj_{name}"),
            account: AccountId(1),
            name: name.to_owned(),
            origins: String::new(),
            key: super::super::hash(name),
            created_at: NOW,
            bytes: 0,
            newest: 0,
        }
    }

    fn row(body: &str) -> NewLog {
        NewLog {
            at: NOW,
            error: body.starts_with('e'),
            body: body.to_owned(),
            bytes: 100,
        }
    }

    fn bodies(tables: &LogTables, number: i64, after: i64, errors: bool) -> Vec<String> {
        let mut seen = Vec::new();
        let scanned = tables.scan(number, after, errors, 10_000, |_, _, body| {
            seen.push(body.to_owned());
            ControlFlow::Continue(())
        });
        assert!(scanned.unwrap().all);
        seen
    }

    #[test]
    fn an_account_has_so_many_projects_and_each_name_once() {
        let (_dir, tables, number) = tables();
        let again = tables.make_project(&new("one"), 2).unwrap();
        assert_eq!(again, MadeProject::NameTaken);
        let second = tables.make_project(&new("two"), 2).unwrap();
        assert_eq!(second, MadeProject::Made(number + 1));
        let third = tables.make_project(&new("three"), 2).unwrap();
        assert_eq!(third, MadeProject::TooMany);
        tables.remove_project(number + 1).unwrap();
        let third = tables.make_project(&new("three"), 2).unwrap();
        assert_eq!(
            third,
            MadeProject::Made(number + 2),
            "numbers are not used again"
        );
    }

    #[test]
    fn rows_come_in_order_and_go_by_age_by_size_and_with_their_project() {
        let (_dir, tables, number) = tables();
        let old = tables.add(number, NOW, &[row("a"), row("e1")]).unwrap();
        assert_eq!(
            old,
            Some(Added {
                newest: 2,
                bytes: 200
            })
        );
        let new = tables.add(number, NOW + 10, &[row("b"), row("e2"), row("c")]);
        assert_eq!(new.unwrap().map(|added| added.bytes), Some(500));
        assert_eq!(bodies(&tables, number, 1, false), ["e1", "b", "e2", "c"]);
        assert_eq!(bodies(&tables, number, 0, true), ["e1", "e2"]);
        assert_eq!(tables.before(number, NOW + 1).unwrap(), Some(2));
        assert_eq!(tables.before(number, NOW + 11).unwrap(), None);
        let stopped = tables.scan(number, 0, false, 10, |seq, _, _| match seq {
            2 => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        });
        let expected = Scanned {
            last: Some(2),
            all: false,
        };
        assert_eq!(stopped.unwrap(), expected);
        assert_eq!(tables.sweep(number, NOW + 1, 500).unwrap(), (300, false));
        assert_eq!(tables.sweep(number, NOW + 1, 250).unwrap(), (200, false));
        assert_eq!(bodies(&tables, number, 0, false), ["e2", "c"]);
        assert_eq!(tables.projects().unwrap()[0].bytes, 200);
        assert_eq!(tables.projects().unwrap()[0].newest, 5);
        tables.remove_project(number).unwrap();
        assert_eq!(tables.add(number, NOW, &[row("late")]).unwrap(), None);
        assert!(tables.sweep_gone().unwrap());
        assert!(!tables.sweep_gone().unwrap());
        assert_eq!(bodies(&tables, number, 0, false), [""; 0]);
    }

    #[test]
    fn a_sweep_takes_a_bounded_bite() {
        let (_dir, tables, number) = tables();
        let many = vec![row("a"); 2_001];
        tables.add(number, NOW, &many).unwrap();
        assert_eq!(tables.sweep(number, NOW + 1, 0).unwrap(), (100, true));
        assert_eq!(tables.sweep(number, NOW + 1, 0).unwrap(), (0, false));
    }
}
