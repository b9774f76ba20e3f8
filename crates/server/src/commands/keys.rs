//! The keys of accounts: making, listing and revoking them. Owns how many there are and how one is named without being told.

use icebox_wire::rest::{NewKeyResponse, RevokeKeyRequest};

use super::Commands;
use super::trouble::{Kind, Trouble};
use crate::engine::AccountChange;
use crate::record::AccountId;
use crate::store::{Holder, KeyHash, Keys};

/// The most keys an account may have.
const MOST_KEYS: usize = 1_000;
/// Bytes of a key's hash in its id.
const ID_BYTES: usize = 6;

impl Commands {
    /// Makes another key for an account.
    pub async fn new_key(&self, keys: &Keys, name: &str) -> Result<NewKeyResponse, Trouble> {
        let account = self.find_account(name)?;
        if keys.of(account.id).len() >= MOST_KEYS {
            let text = format!("the account `{name}` has {MOST_KEYS} keys, which is the most");
            return Err(Trouble::new(Kind::Busy, text));
        }
        let (key, hash) = Keys::fresh();
        let change = AccountChange {
            name: account.name,
            make: false,
            credits: None,
            key: Some(hash),
            revoked: None,
        };
        let account = self.change_account(change).await?;
        keys.add(hash, account.id, self.0.clock.now());
        Ok(new_key(&account.name, key, &hash))
    }

    /// The keys of an account, oldest first.
    pub async fn keys_of(&self, keys: &Keys, name: &str) -> Result<Vec<Holder>, Trouble> {
        self.0.engine.settled().await;
        Ok(keys.of(self.find_account(name)?.id))
    }

    /// Revokes a key: nobody is let in with it any more, nor by a session or link that came of it.
    pub async fn revoke_key(
        &self,
        keys: &Keys,
        name: &str,
        request: &RevokeKeyRequest,
    ) -> Result<AccountId, Trouble> {
        let account = self.find_account(name)?;
        let holder = match (&request.id, &request.key) {
            (Some(id), None) => {
                let mut of_account = keys.of(account.id).into_iter();
                of_account.find(|holder| key_id(&holder.key) == *id)
            }
            (None, Some(key)) => {
                let holder = keys.holder(key.trim());
                holder.filter(|holder| holder.account == account.id)
            }
            (Some(_), Some(_)) | (None, None) => {
                let text = "exactly one of `id` and `key` has to be given";
                return Err(Trouble::new(Kind::BadRequest, text));
            }
        };
        let Some(holder) = holder else {
            let text = format!(
                "the account `{name}` has no such key; `icebox key ls {name}` lists those it has"
            );
            return Err(Trouble::new(Kind::NotFound, text));
        };
        if keys.is_of_file(&holder.key) {
            let text = "this is the key in `admin.key` in the server's data folder, which every start lets in; \
                        to replace it, remove that file, restart the server, and revoke the key then";
            return Err(Trouble::new(Kind::InUse, text));
        }
        let change = AccountChange {
            name: account.name,
            make: false,
            credits: None,
            key: None,
            revoked: Some(holder.key),
        };
        self.change_account(change).await?;
        keys.remove(&holder.key);
        Ok(account.id)
    }
}

/// The id of a key: the beginning of what is kept of it.
#[must_use]
pub fn key_id(key: &KeyHash) -> String {
    key[..ID_BYTES]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

pub(super) fn new_key(account: &str, key: String, hash: &KeyHash) -> NewKeyResponse {
    NewKeyResponse {
        account: account.to_owned(),
        key,
        id: key_id(hash),
    }
}
