//! Snapshots: what is known of each besides its bytes, which are the driver's. A snapshot belongs to an account and to no
//! box; what it was made of may be long gone.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use icebox_lifecycle::{BoxId, SnapshotId, Time};

use crate::record::{AccountId, Record};

/// A snapshot.
#[derive(Clone, Debug, PartialEq)]
pub struct Snapshot {
    /// Its id.
    pub id: SnapshotId,
    /// Whose it is.
    pub account: AccountId,
    /// Its name; the latest of an account that is given one has it alone.
    pub name: Option<String>,
    /// The box it was made of.
    pub source: BoxId,
    /// Counts snapshots in the order in which they were asked for.
    pub number: u64,
    /// When.
    pub created_at: Time,
    /// Programs go on in boxes made from it; otherwise it holds files alone.
    pub memory: bool,
    /// What it takes up, in bytes. What it shares with others counts in full.
    pub bytes: u64,
    /// How far it is.
    pub stage: Stage,
    /// Only for the forks that are being made of it; nobody sees it, and it goes with them.
    pub hidden: bool,
    /// What the box was.
    pub record: Record,
}

/// How far a snapshot is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Being made: nothing of it may be used.
    Making,
    /// Whole.
    Ready,
    /// It is gone for its owner; its bytes go as soon as no box begins with them any more.
    Removing,
}

/// Every snapshot. The engine is the only writer, after each commit.
#[derive(Debug, Default)]
pub struct Snapshots(RwLock<BTreeMap<SnapshotId, Arc<Snapshot>>>);

impl Snapshots {
    /// A snapshot, however far it is.
    pub(crate) fn any(&self, id: SnapshotId) -> Option<Arc<Snapshot>> {
        self.read().get(&id).cloned()
    }

    /// The snapshots of an account, the newest first.
    #[must_use]
    pub fn of(&self, account: AccountId) -> Vec<Arc<Snapshot>> {
        let all = self.read();
        let seen = all
            .values()
            .filter(|it| it.account == account && it.stage == Stage::Ready && !it.hidden);
        let mut seen: Vec<_> = seen.cloned().collect();
        seen.sort_by_key(|it| std::cmp::Reverse(it.number));
        seen
    }

    /// The snapshot of an account that has this id or name.
    #[must_use]
    pub fn find(&self, account: AccountId, name: &str) -> Option<Arc<Snapshot>> {
        let named = |it: &Arc<Snapshot>| it.id.as_str() == name || it.name.as_deref() == Some(name);
        self.of(account).into_iter().find(named)
    }

    pub(crate) fn put(&self, snapshot: Arc<Snapshot>) {
        let mut all = self.0.write().unwrap_or_else(PoisonError::into_inner);
        all.insert(snapshot.id, snapshot);
    }

    pub(crate) fn remove(&self, id: SnapshotId) {
        let mut all = self.0.write().unwrap_or_else(PoisonError::into_inner);
        all.remove(&id);
    }

    fn read(&self) -> RwLockReadGuard<'_, BTreeMap<SnapshotId, Arc<Snapshot>>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }
}
