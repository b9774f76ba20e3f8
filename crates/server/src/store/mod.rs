//! The only place that knows SQL. One SQLite file (and one beside it for what apps log, [`LogTables`]) keeps every box, the reasons of the last decisions, the outbox of
//! events, the steps of calls, snapshots, accounts and hashed keys. Owns how sure a commit is: transitions are on disk when it returns, mere activity
//! may lose its last moment in a power cut. Decides nothing about boxes.

mod beside;
mod connections;
mod creations;
mod credits;
mod events;
mod gaps;
mod history;
mod hook;
mod keys;
mod logs;
mod notes;
mod row;
mod schema;
mod secrets;
mod sessions;
mod snapshots;
mod transact;
mod webhooks;

use std::fs::File;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use icebox_lifecycle::decision::Reason;
use icebox_lifecycle::{BoxId, Sandbox, SnapshotId, Time};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, Transaction, params};

use crate::record::{AccountId, Record};
use crate::snapshot::Snapshot;
use crate::steps;

pub use credits::{LoadedAccount, PutAccount};
use gaps::Gaps;
use row::Loader;

pub use beside::Beside;
pub use creations::{Asked, Claim};
pub use notes::{FeedbackRow, MessageRow, Published, VersionRow};
pub use secrets::{EnvironmentRow, GivenRows, SecretRow};

pub use events::{Announced, EventPage, Told};
pub use gaps::Gap;
pub use history::{ERROR_LEN, Ending, HistoryStep, SUMMARY_LEN, StoredStep, cut, is_housekeeping};
pub use hook::{Delivery, Due, Fill, Hook, HookChange, Then, Tried};
pub use keys::{ADMIN_KEY_FILE, Holder, KeyHash, Keys, hash};
pub use logs::{Added, KeptMaps, LogTables, MadeProject, NewLog, NewMap, ProjectRow, Scanned};
pub use sessions::{Proof, SecretHash, SessionTables, StoredLink, StoredSession};
pub use webhooks::Hooks;

/// How many reasons are kept for each box.
pub const REASONS_KEPT: i64 = 50;

/// How long another program may hold the database before a turn counts as failed; readers never hold it.
const BUSY_LIMIT: Duration = Duration::from_secs(1);

/// The database's file name in the data folder.
const FILE: &str = "icebox.db";

/// Why the store did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The data folder cannot be made or its lock file opened.
    #[error("cannot use the data folder {path}")]
    Folder {
        /// Which folder.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// Another server has the data folder.
    #[error(
        "another icebox server is using {0}; stop it first, or give this one another --data folder"
    )]
    Locked(PathBuf),
    /// The database cannot be opened.
    #[error("cannot open the database")]
    Open(#[source] rusqlite::Error),
    /// The tables cannot be brought up to date.
    #[error("cannot bring the database up to date")]
    Migrate(#[source] rusqlite::Error),
    /// The database was written by a newer server.
    #[error(
        "the database was written by a newer icebox (version {found}, this one knows {known}); use that one"
    )]
    Newer {
        /// What the file says.
        found: usize,
        /// What this server knows.
        known: usize,
    },
    /// A commit failed; nothing of it happened.
    #[error("cannot write to the database")]
    Write(#[source] rusqlite::Error),
    /// A query failed.
    #[error("cannot read from the database")]
    Read(#[source] rusqlite::Error),
    /// A row cannot be understood.
    #[error("the row of box {id} does not fit")]
    Row {
        /// Which box.
        id: String,
        /// Why not.
        source: serde_json::Error,
    },
    /// The admin key cannot be made or kept.
    #[error("cannot keep the admin key in {path}")]
    AdminKey {
        /// The key's file.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
}

/// The one writer. Whoever has it has the data folder to themselves.
#[derive(Debug)]
pub struct Store {
    db: Connection,
    path: PathBuf,
    durable: bool,
    /// The number of the latest gap; every row that is written counts in all up to it.
    gap: i64,
    _lock: File,
}

/// One box as it is stored.
#[derive(Debug)]
pub struct Loaded {
    /// Its life.
    pub sandbox: Sandbox,
    /// The rest of it.
    pub record: Record,
    /// Counts its commits.
    pub generation: u64,
    /// When its state was recorded.
    pub recorded_at: Time,
    /// Time in which nobody could use it, and that its row does not count in yet.
    pub missed: Option<Gap>,
}

/// One box to be stored.
#[derive(Debug)]
pub struct Put<'a> {
    /// Its life.
    pub sandbox: &'a Sandbox,
    /// The rest of it, if that is new or changed.
    pub record: Option<&'a Record>,
    /// Whose it is.
    pub account: AccountId,
    /// Counts its commits.
    pub generation: u64,
    /// When its state was recorded.
    pub recorded_at: Time,
    /// Its status, for people who look into the database.
    pub status: &'a str,
    /// When something is due.
    pub deadline: Option<Time>,
}

/// Everything of one turn; it is written whole or not at all.
#[derive(Debug, Default)]
pub struct Batch<'a> {
    /// Boxes that changed.
    pub puts: Vec<Put<'a>>,
    /// Why they did.
    pub reasons: Vec<(BoxId, &'a Reason)>,
    /// What to tell.
    pub events: Vec<Announced>,
    /// What calls came to.
    pub steps: Vec<(BoxId, HistoryStep)>,
    /// Accounts whose credits changed, that are new, or that get a key.
    pub accounts: Vec<PutAccount>,
    /// Snapshots that changed, or are to be forgotten.
    pub snapshots: Vec<(SnapshotId, Option<Arc<Snapshot>>)>,
    /// Boxes to forget, with all that belongs to them.
    pub removed: Vec<BoxId>,
    /// Events and steps before this moment may go.
    pub kept_from: Option<Time>,
    /// The server was alive at this moment.
    pub last_seen: Option<Time>,
    /// Nobody could use any box for so long. The boxes in `puts` count it in already.
    pub gap: Option<Gap>,
    /// It must survive a power cut.
    pub durable: bool,
}

/// One stored reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Why {
    /// When it was decided.
    pub at: Time,
    /// The number of the rule.
    pub rule: String,
    /// What was decided and why.
    pub text: String,
}

impl Store {
    /// Takes the data folder (making it if it is not there), opens the database and brings it up to date.
    pub fn open(data: &Path) -> Result<Self, StoreError> {
        let lock = lock(data)?;
        let path = data.join(FILE);
        // Made by hand first, so that nobody else can read it from the start.
        std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .mode(0o600)
            .open(&path)
            .map_err(|source| StoreError::Folder {
                path: path.clone(),
                source,
            })?;
        let mut db = connect(&path)?;
        schema::migrate(&mut db)?;
        let gap = gaps::latest(&db).map_err(StoreError::Read)?;
        Ok(Self {
            db,
            path,
            durable: true,
            gap,
            _lock: lock,
        })
    }

    /// A second connection, for reading beside the writer.
    pub fn reader(&self) -> Result<Reader, StoreError> {
        Ok(Reader(Mutex::new(connect(&self.path)?)))
    }

    /// Every box, in the order of their ids, one at a time: there may be a million.
    pub fn load(&self, mut each: impl FnMut(Loaded)) -> Result<(), StoreError> {
        let gaps = Gaps::load(&self.db).map_err(StoreError::Read)?;
        let mut query = self
            .db
            .prepare("SELECT id, generation, recorded_ms, body, record, gap FROM boxes ORDER BY id")
            .map_err(StoreError::Read)?;
        let mut rows = query.query([]).map_err(StoreError::Read)?;
        let mut loader = Loader::default();
        let mut all_count = self.gap;
        while let Some(row) = rows.next().map_err(StoreError::Read)? {
            let counted: i64 = row.get(5).map_err(StoreError::Read)?;
            all_count = all_count.min(counted);
            each(Loaded {
                missed: gaps.after(counted),
                ..loader.load(row)?
            });
        }
        gaps::forget(&self.db, all_count).map_err(StoreError::Write)
    }

    /// The last moment the server is known to have been alive.
    pub fn last_seen(&self) -> Result<Option<Time>, StoreError> {
        let mut query = self
            .db
            .prepare("SELECT value FROM meta WHERE key = 'last_seen_ms'")
            .map_err(StoreError::Read)?;
        let mut rows = query.query([]).map_err(StoreError::Read)?;
        match rows.next().map_err(StoreError::Read)? {
            Some(row) => Ok(Some(Time(row.get(0).map_err(StoreError::Read)?))),
            None => Ok(None),
        }
    }

    /// Writes one turn. After an error nothing of it was written.
    pub fn commit(&mut self, batch: &Batch<'_>) -> Result<(), StoreError> {
        self.write(batch).map_err(StoreError::Write)?;
        if batch.durable {
            steps::trace("commit", Path::new(FILE));
        }
        Ok(())
    }

    fn write(&mut self, batch: &Batch<'_>) -> rusqlite::Result<()> {
        if batch.durable != self.durable {
            // A commit under FULL syncs the whole log, so it carries earlier unsynced activity with it.
            let level = if batch.durable { "FULL" } else { "NORMAL" };
            self.db.pragma_update(None, "synchronous", level)?;
            self.durable = batch.durable;
        }
        let tx = self.db.transaction()?;
        for account in &batch.accounts {
            credits::put(&tx, account)?;
        }
        let gap = match batch.gap {
            Some(gap) => gaps::add(&tx, gap)?,
            None => self.gap,
        };
        for put in &batch.puts {
            row::put(&tx, put, gap)?;
        }
        for (id, reason) in &batch.reasons {
            add_reason(&tx, *id, reason)?;
        }
        for event in &batch.events {
            events::add(&tx, event)?;
        }
        for (id, step) in &batch.steps {
            history::add(&tx, *id, step)?;
        }
        for (id, snapshot) in &batch.snapshots {
            match snapshot {
                Some(snapshot) => snapshots::put(&tx, snapshot)?,
                None => snapshots::remove(&tx, *id)?,
            }
        }
        for id in &batch.removed {
            for sql in [
                "DELETE FROM boxes WHERE id = ?1",
                "DELETE FROM reasons WHERE box = ?1",
                "DELETE FROM steps WHERE box = ?1",
                "DELETE FROM given WHERE box = ?1",
                "DELETE FROM messages WHERE box = ?1",
            ] {
                tx.prepare_cached(sql)?.execute([id.as_str()])?;
            }
        }
        if let Some(from) = batch.kept_from {
            events::sweep(&tx, from)?;
            history::sweep(&tx, from)?;
        }
        if let Some(at) = batch.last_seen {
            tx.prepare_cached("INSERT OR REPLACE INTO meta VALUES ('last_seen_ms', ?1)")?
                .execute([at.0])?;
        }
        tx.commit()?;
        self.gap = gap;
        Ok(())
    }
}

fn add_reason(tx: &Transaction<'_>, id: BoxId, reason: &Reason) -> rusqlite::Result<()> {
    tx.prepare_cached(
        "INSERT INTO reasons SELECT ?1, coalesce(max(seq), 0) + 1, ?2, ?3, ?4 FROM reasons WHERE box = ?1",
    )?
    .execute(params![id.as_str(), reason.at.0, reason.rule, reason.text])?;
    tx.prepare_cached(
        "DELETE FROM reasons WHERE box = ?1 AND seq <= (
             SELECT seq FROM reasons WHERE box = ?1 ORDER BY seq DESC LIMIT 1 OFFSET ?2)",
    )?
    .execute(params![id.as_str(), REASONS_KEPT])?;
    Ok(())
}

/// Reads beside the writer and never holds it up.
#[derive(Debug)]
pub struct Reader(Mutex<Connection>);

impl Reader {
    /// The last decisions about a box, oldest first. Blocks on the disk for a moment.
    pub fn why(&self, id: BoxId) -> Result<Vec<Why>, StoreError> {
        let db = self.lock();
        let read = || -> rusqlite::Result<Vec<Why>> {
            db.prepare_cached("SELECT at_ms, rule, text FROM reasons WHERE box = ?1 ORDER BY seq")?
                .query_map([id.as_str()], |row| {
                    Ok(Why {
                        at: Time(row.get(0)?),
                        rule: row.get(1)?,
                        text: row.get(2)?,
                    })
                })?
                .collect()
        };
        read().map_err(StoreError::Read)
    }

    fn lock(&self) -> MutexGuard<'_, Connection> {
        // A reader that panicked leaves the connection as it was.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn connect(path: &Path) -> Result<Connection, StoreError> {
    let open = || {
        let db = Connection::open(path)?;
        db.busy_timeout(BUSY_LIMIT)?;
        db.pragma_update(None, "journal_mode", "WAL")?;
        db.pragma_update(None, "synchronous", "FULL")?;
        db.pragma_update(None, "foreign_keys", "ON")?;
        // Without it, statements are planned anew each time a value is bound, to suit the value: a third of a commit's time.
        db.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
        Ok(db)
    };
    open().map_err(StoreError::Open)
}

fn lock(data: &Path) -> Result<File, StoreError> {
    let folder = |source| StoreError::Folder {
        path: data.to_owned(),
        source,
    };
    std::fs::create_dir_all(data).map_err(folder)?;
    let file = std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .mode(0o600)
        .open(data.join("lock"))
        .map_err(folder)?;
    match rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(StoreError::Locked(data.to_owned())),
        Err(errno) => Err(folder(errno.into())),
    }
}

#[cfg(test)]
mod tests;
