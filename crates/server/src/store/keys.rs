//! API keys: making them, hashing them, and telling whose one is. Keys are 160 random bits, so one round of SHA-256 is
//! enough, and looking a hash up leaks nothing of use. The plain text exists only in the admin's key file.

use std::collections::HashMap;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::{PoisonError, RwLock};

use icebox_lifecycle::Time;
use rusqlite::{Connection, params};
use sha2::{Digest as _, Sha256};

use super::{Store, StoreError};
use crate::random;
use crate::record::AccountId;

/// The admin key's file name in the data folder.
pub const ADMIN_KEY_FILE: &str = "admin.key";

const PREFIX: &str = "e2b_";
const HEX_LEN: usize = 40;
/// The account that the first start makes.
pub(super) const DEFAULT_ACCOUNT: &str = "default";

/// What is kept of a key.
pub type KeyHash = [u8; 32];

/// The label of keys that may manage accounts.
const ADMIN: &str = "admin";

/// All keys, in memory: a call is let in without touching the disk.
#[derive(Debug, Default)]
pub struct Keys(RwLock<HashMap<KeyHash, Holder>>);

/// Who has a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Whose it is.
    pub account: AccountId,
    /// It is an admin's, who may manage accounts.
    pub admin: bool,
}

impl Keys {
    /// Whose key this is; `None` for anything that is not a key of ours.
    #[must_use]
    pub fn holder(&self, key: &str) -> Option<Holder> {
        if !is_well_formed(key) {
            return None;
        }
        let keys = self.0.read().unwrap_or_else(PoisonError::into_inner);
        keys.get(&hash(key)).copied()
    }

    /// How many keys an account has.
    #[must_use]
    pub fn count(&self, account: AccountId) -> usize {
        let keys = self.0.read().unwrap_or_else(PoisonError::into_inner);
        keys.values().filter(|key| key.account == account).count()
    }

    /// Lets a key in that was recorded for an account.
    pub fn add(&self, key: KeyHash, account: AccountId) {
        let mut keys = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let admin = false;
        keys.entry(key).or_insert(Holder { account, admin });
    }

    /// A key that nobody has yet, and what is kept of it.
    #[must_use]
    pub fn fresh() -> (String, KeyHash) {
        let key = format!("{PREFIX}{}", random::hex::<{ HEX_LEN / 2 }>());
        let hash = hash(&key);
        (key, hash)
    }
}

impl Store {
    /// Loads the keys. The first time it makes the account `default` with an admin key; later it makes sure that the key
    /// in the file is one, so that a lost file or a new database never locks the owner out.
    pub fn keys(&mut self, data: &Path, now: Time) -> Result<Keys, StoreError> {
        let path = data.join(ADMIN_KEY_FILE);
        let wrong = |source| StoreError::AdminKey {
            path: path.clone(),
            source,
        };
        let found = match std::fs::read_to_string(&path) {
            Ok(text) => Some(text.trim().to_owned()).filter(|key| is_well_formed(key)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
            Err(error) => return Err(wrong(error)),
        };
        let key = match found {
            Some(key) => key,
            None => {
                let (key, _) = Keys::fresh();
                write_key(&path, &key).map_err(wrong)?;
                key
            }
        };
        enroll(&mut self.db, &key, now).map_err(StoreError::Write)?;
        all(&self.db).map_err(StoreError::Read)
    }
}

/// Writes the key under another name first, so that a crash leaves a whole file or none.
fn write_key(path: &Path, key: &str) -> std::io::Result<()> {
    let fresh = path.with_extension("new");
    if let Err(error) = std::fs::remove_file(&fresh)
        && error.kind() != std::io::ErrorKind::NotFound
    {
        return Err(error);
    }
    let mut file = std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&fresh)?;
    writeln!(file, "{key}")?;
    file.sync_all()?;
    std::fs::rename(&fresh, path)
}

fn enroll(db: &mut Connection, key: &str, now: Time) -> rusqlite::Result<()> {
    let tx = db.transaction()?;
    tx.execute(
        "INSERT OR IGNORE INTO accounts (name, created_ms) VALUES (?1, ?2)",
        params![DEFAULT_ACCOUNT, now.0],
    )?;
    tx.execute(
        "INSERT OR IGNORE INTO keys
         SELECT ?1, id, ?4, ?2 FROM accounts WHERE name = ?3",
        params![hash(key), now.0, DEFAULT_ACCOUNT, ADMIN],
    )?;
    tx.commit()
}

fn all(db: &Connection) -> rusqlite::Result<Keys> {
    let mut query = db.prepare("SELECT hash, account, label = ?1 FROM keys")?;
    let rows = query.query_map([ADMIN], |row| {
        let account = AccountId(row.get(1)?);
        let admin = row.get(2)?;
        Ok((row.get(0)?, Holder { account, admin }))
    })?;
    let keys = rows.collect::<rusqlite::Result<HashMap<_, _>>>()?;
    Ok(Keys(RwLock::new(keys)))
}

fn is_well_formed(key: &str) -> bool {
    key.strip_prefix(PREFIX).is_some_and(|hex| {
        hex.len() == HEX_LEN
            && hex
                .bytes()
                .all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
    })
}

fn hash(key: &str) -> KeyHash {
    Sha256::digest(key).into()
}
