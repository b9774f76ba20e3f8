//! What readers see of every account: its name and its credits. The engine is the only writer, after each commit. What is
//! left at a moment follows from what was recorded, so that nothing is written or read anew while boxes run.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use icebox_lifecycle::credits::Ledger;

use crate::record::AccountId;
use crate::store::LoadedAccount;

/// An account at one moment.
#[derive(Clone, Debug)]
pub struct Account {
    /// Which.
    pub id: AccountId,
    /// Its name.
    pub name: Arc<str>,
    /// Its credits, and what its boxes that are up cost.
    pub ledger: Ledger,
}

/// All accounts.
#[derive(Debug, Default)]
pub struct Accounts(RwLock<BTreeMap<AccountId, Account>>);

impl Accounts {
    /// An account.
    #[must_use]
    pub fn get(&self, id: AccountId) -> Option<Account> {
        self.read().get(&id).cloned()
    }

    /// The account of that name.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<Account> {
        let accounts = self.read();
        accounts.values().find(|it| *it.name == *name).cloned()
    }

    /// Every account, in the order in which they were made.
    #[must_use]
    pub fn all(&self) -> Vec<Account> {
        self.read().values().cloned().collect()
    }

    /// The credits of an account; one that nobody knows never runs out.
    pub(super) fn ledger(&self, id: AccountId) -> Ledger {
        let accounts = self.read();
        accounts
            .get(&id)
            .map_or_else(Ledger::default, |it| it.ledger)
    }

    pub(super) fn put(&self, account: Account) {
        let mut accounts = self.0.write().unwrap_or_else(PoisonError::into_inner);
        accounts.insert(account.id, account);
    }

    fn read(&self) -> RwLockReadGuard<'_, BTreeMap<AccountId, Account>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }
}

impl From<LoadedAccount> for Account {
    fn from(loaded: LoadedAccount) -> Self {
        let LoadedAccount { id, name, ledger } = loaded;
        Self { id, name, ledger }
    }
}
