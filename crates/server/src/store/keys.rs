//! API keys: making them, hashing them, and telling whose one is. Keys are 160 random bits, so one round of SHA-256 is
//! enough, and looking a hash up leaks nothing of use. The plain text exists only in the admin's key file.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use icebox_lifecycle::Time;
use rusqlite::{Connection, params};
use sha2::{Digest as _, Sha256};

use super::{Store, StoreError};
use crate::random;
use crate::record::AccountId;
use crate::whole_file;

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
#[derive(Debug)]
pub struct Keys {
    held: RwLock<HashMap<KeyHash, Holder>>,
    /// The one in the admin's key file.
    of_file: KeyHash,
}

/// Who has a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder {
    /// What is kept of the key.
    pub key: KeyHash,
    /// Whose it is.
    pub account: AccountId,
    /// It is an admin's, who may manage accounts.
    pub admin: bool,
    /// When it was made.
    pub created_at: Time,
}

impl Keys {
    /// Whose key this is; `None` for anything that is not a key of ours.
    #[must_use]
    pub fn holder(&self, key: &str) -> Option<Holder> {
        if !is_well_formed(key) {
            return None;
        }
        self.holder_of(&hash(key))
    }

    /// Whose key it is of which this is kept.
    #[must_use]
    pub fn holder_of(&self, key: &KeyHash) -> Option<Holder> {
        self.read().get(key).copied()
    }

    /// The keys of an account, oldest first.
    #[must_use]
    pub fn of(&self, account: AccountId) -> Vec<Holder> {
        let keys = self.read();
        let of_account = keys.values().filter(|key| key.account == account);
        let mut list: Vec<Holder> = of_account.copied().collect();
        list.sort_by_key(|holder| (holder.created_at, holder.key));
        list
    }

    /// Whether a key is the one in the admin's key file, which every start lets in.
    #[must_use]
    pub fn is_of_file(&self, key: &KeyHash) -> bool {
        *key == self.of_file
    }

    /// Lets a key in that was recorded for an account.
    pub fn add(&self, key: KeyHash, account: AccountId, created_at: Time) {
        let mut keys = self.write();
        keys.entry(key).or_insert(Holder {
            key,
            account,
            admin: false,
            created_at,
        });
    }

    /// Lets a key in no more.
    pub fn remove(&self, key: &KeyHash) {
        self.write().remove(key);
    }

    fn read(&self) -> RwLockReadGuard<'_, HashMap<KeyHash, Holder>> {
        self.held.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, HashMap<KeyHash, Holder>> {
        self.held.write().unwrap_or_else(PoisonError::into_inner)
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
                whole_file::write(&path, format!("{key}\n").as_bytes(), 0o600).map_err(wrong)?;
                key
            }
        };
        enroll(&mut self.db, &key, now).map_err(StoreError::Write)?;
        Ok(Keys {
            held: RwLock::new(all(&self.db).map_err(StoreError::Read)?),
            of_file: hash(&key),
        })
    }
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

fn all(db: &Connection) -> rusqlite::Result<HashMap<KeyHash, Holder>> {
    let mut query = db.prepare("SELECT hash, account, label = ?1, created_ms FROM keys")?;
    let rows = query.query_map([ADMIN], |row| {
        let holder = Holder {
            key: row.get(0)?,
            account: AccountId(row.get(1)?),
            admin: row.get(2)?,
            created_at: Time(row.get(3)?),
        };
        Ok((holder.key, holder))
    })?;
    rows.collect()
}

fn is_well_formed(key: &str) -> bool {
    key.strip_prefix(PREFIX).is_some_and(|hex| {
        hex.len() == HEX_LEN
            && hex
                .bytes()
                .all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
    })
}

/// What is kept of a secret of so many random bits that nobody can try them all.
#[must_use]
pub fn hash(secret: &str) -> KeyHash {
    Sha256::digest(secret).into()
}
