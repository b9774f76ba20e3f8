//! What readers see of every box. The engine is the only writer; a reader takes one shard for as long as it takes to copy
//! a pointer, and never waits for a turn. Owns the order of lists and the waking of those who wait for a change.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};
use std::hash::{BuildHasher as _, RandomState};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use icebox_lifecycle::{BoxId, Sandbox, State, Time};
use tokio::sync::watch;

use crate::record::{AccountId, Record};

const SHARDS: usize = 64;

/// One box at one moment.
#[derive(Debug)]
pub struct View {
    /// Its life.
    pub sandbox: Sandbox,
    /// The rest of it.
    pub record: Arc<Record>,
    /// Counts its commits.
    pub generation: u64,
    /// When its state was recorded.
    pub recorded_at: Time,
    /// When the runtime last said something about it, if it did since the server started.
    pub observed_at: Option<Time>,
}

impl View {
    /// Its id.
    #[must_use]
    pub fn id(&self) -> BoxId {
        self.sandbox.id
    }

    /// Whether a plain list leaves it out.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        matches!(self.sandbox.state, State::Terminated { .. })
    }

    /// The conversation it belongs to while it is live.
    fn agent(&self) -> Option<&str> {
        let agent = self.sandbox.agent.id.as_deref();
        agent.filter(|_| self.sandbox.is_live())
    }

    fn key(&self) -> Key {
        (Reverse(self.sandbox.last_use.0), self.id())
    }
}

/// Most recently used first.
type Key = (Reverse<i64>, BoxId);

#[derive(Debug, Default)]
struct Lists {
    active: BTreeSet<Key>,
    stopped: BTreeSet<Key>,
    /// The live boxes of each conversation (rule 7.3).
    used: HashMap<Box<str>, BTreeSet<BoxId>>,
}

/// Where a page of a list begins: after this moment of last use and this id.
pub type Cursor = (i64, BoxId);

/// All views.
#[derive(Debug)]
pub struct Views {
    hash: RandomState,
    shards: Vec<RwLock<HashMap<BoxId, Arc<View>>>>,
    lists: RwLock<HashMap<AccountId, Lists>>,
    waiting: Mutex<HashMap<BoxId, watch::Sender<u64>>>,
    /// How many entries `waiting` has, so that publishing does not lock it for nothing.
    waiters: AtomicUsize,
    /// Counts boxes that left RAM, for those who wait for room.
    room: watch::Sender<u64>,
    /// Counts turns that announced something, for those who follow events.
    told: watch::Sender<u64>,
}

impl Default for Views {
    fn default() -> Self {
        Self {
            hash: RandomState::new(),
            shards: (0..SHARDS).map(|_| RwLock::default()).collect(),
            lists: RwLock::default(),
            waiting: Mutex::default(),
            waiters: AtomicUsize::new(0),
            room: watch::Sender::new(0),
            told: watch::Sender::new(0),
        }
    }
}

impl Views {
    /// The view of a box.
    #[must_use]
    pub fn get(&self, id: BoxId) -> Option<Arc<View>> {
        let shard = self.shard(id).read();
        shard
            .unwrap_or_else(PoisonError::into_inner)
            .get(&id)
            .cloned()
    }

    /// Every view, in no order. Takes one shard at a time.
    #[must_use]
    pub fn all(&self) -> Vec<Arc<View>> {
        let of = |shard: &RwLock<HashMap<_, Arc<View>>>| -> Vec<_> {
            let shard = shard.read().unwrap_or_else(PoisonError::into_inner);
            shard.values().cloned().collect()
        };
        self.shards.iter().flat_map(of).collect()
    }

    /// The views that fit, in no order. No shard is held while `fits` looks.
    #[must_use]
    pub fn select(&self, fits: impl Fn(&View) -> bool) -> Vec<Arc<View>> {
        let of = |shard: &RwLock<HashMap<_, Arc<View>>>| -> Vec<_> {
            let shard = shard.read().unwrap_or_else(PoisonError::into_inner);
            shard.values().cloned().collect()
        };
        let all = self.shards.iter().flat_map(of);
        all.filter(|view| fits(view)).collect()
    }

    /// A page of an account's boxes, most recently used first.
    #[must_use]
    pub fn list(
        &self,
        account: AccountId,
        stopped_too: bool,
        after: Option<Cursor>,
        limit: usize,
    ) -> Vec<Arc<View>> {
        let ids: Vec<BoxId> = {
            let lists = self.lists.read().unwrap_or_else(PoisonError::into_inner);
            let Some(lists) = lists.get(&account) else {
                return Vec::new();
            };
            let start = match after {
                Some((at, id)) => std::ops::Bound::Excluded((Reverse(at), id)),
                None => std::ops::Bound::Unbounded,
            };
            let page = |set: &BTreeSet<Key>| -> Vec<Key> {
                let range = set.range((start, std::ops::Bound::Unbounded));
                range.take(limit).copied().collect()
            };
            let mut keys = page(&lists.active);
            if stopped_too {
                keys.extend(page(&lists.stopped));
                keys.sort_unstable();
                keys.truncate(limit);
            }
            keys.into_iter().map(|(_, id)| id).collect()
        };
        ids.into_iter().filter_map(|id| self.get(id)).collect()
    }

    /// The live boxes that a conversation was the last to use, at most `limit`, by id.
    #[must_use]
    pub fn used_by(&self, account: AccountId, agent: &str, limit: usize) -> Vec<BoxId> {
        let lists = self.lists.read().unwrap_or_else(PoisonError::into_inner);
        let used = lists.get(&account).and_then(|lists| lists.used.get(agent));
        used.map_or_else(Vec::new, |ids| ids.iter().take(limit).copied().collect())
    }

    /// Waits until `check` breaks with an answer for a view of the box; `None` when the box is forgotten.
    pub async fn wait_for<T>(
        &self,
        id: BoxId,
        mut check: impl FnMut(&Arc<View>) -> ControlFlow<T>,
    ) -> Option<T> {
        let mut changes = self.subscribe(id);
        loop {
            let view = self.get(id)?;
            if let ControlFlow::Break(answer) = check(&view) {
                return Some(answer);
            }
            drop(view);
            // An error means that the box was forgotten; the next look finds that out.
            if changes.changed().await.is_err() {
                changes = self.subscribe(id);
                self.get(id)?;
            }
        }
    }

    /// Changes each time a box leaves RAM.
    #[must_use]
    pub fn room(&self) -> watch::Receiver<u64> {
        self.room.subscribe()
    }

    /// Changes each time there are new events in the store.
    #[must_use]
    pub fn told(&self) -> watch::Receiver<u64> {
        self.told.subscribe()
    }

    fn subscribe(&self, id: BoxId) -> watch::Receiver<u64> {
        let mut waiting = self.waiting();
        let sender = waiting.entry(id).or_insert_with(|| {
            self.waiters.fetch_add(1, Ordering::SeqCst);
            watch::Sender::new(0)
        });
        sender.subscribe()
    }

    fn waiting(&self) -> MutexGuard<'_, HashMap<BoxId, watch::Sender<u64>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn shard(&self, id: BoxId) -> &RwLock<HashMap<BoxId, Arc<View>>> {
        let hash = self.hash.hash_one(id);
        let shard = usize::try_from(hash % SHARDS as u64).unwrap_or(0);
        &self.shards[shard]
    }

    /// Shows a new view and wakes those who wait for it.
    pub(super) fn publish(&self, view: Arc<View>) {
        let id = view.id();
        let account = view.record.account;
        let key = view.key();
        let stopped = view.is_stopped();
        let old = {
            let shard = self.shard(id).write();
            shard
                .unwrap_or_else(PoisonError::into_inner)
                .insert(id, Arc::clone(&view))
        };
        let moved = old.as_deref().map(|old| (old.key(), old.is_stopped())) != Some((key, stopped));
        let passed_on = old.as_deref().and_then(View::agent) != view.agent();
        if moved || passed_on {
            let mut lists = self.lists.write().unwrap_or_else(PoisonError::into_inner);
            let lists = lists.entry(account).or_default();
            if let Some(old) = &old {
                lists.take_out(old);
            }
            lists.put_in(&view);
        }
        self.wake(id);
    }

    /// Forgets a box.
    pub(super) fn remove(&self, id: BoxId) {
        let old = {
            let shard = self.shard(id).write();
            shard.unwrap_or_else(PoisonError::into_inner).remove(&id)
        };
        if let Some(old) = old {
            let mut lists = self.lists.write().unwrap_or_else(PoisonError::into_inner);
            if let Some(lists) = lists.get_mut(&old.record.account) {
                lists.take_out(&old);
            }
        }
        self.wake(id);
    }

    /// Tells those who wait for room that there may be some.
    pub(super) fn made_room(&self) {
        self.room.send_modify(|count| *count += 1);
    }

    /// Tells those who follow events that there are new ones.
    pub(super) fn tell(&self) {
        self.told.send_modify(|count| *count += 1);
    }

    fn wake(&self, id: BoxId) {
        if self.waiters.load(Ordering::SeqCst) == 0 {
            return;
        }
        let mut waiting = self.waiting();
        let Some(sender) = waiting.get(&id) else {
            return;
        };
        if sender.receiver_count() == 0 {
            waiting.remove(&id);
            self.waiters.fetch_sub(1, Ordering::SeqCst);
        } else {
            sender.send_modify(|count| *count += 1);
        }
    }
}

impl Lists {
    fn put_in(&mut self, view: &View) {
        self.of(view.is_stopped()).insert(view.key());
        if let Some(agent) = view.agent() {
            let used = match self.used.get_mut(agent) {
                Some(used) => used,
                None => self.used.entry(agent.into()).or_default(),
            };
            used.insert(view.id());
        }
    }

    fn take_out(&mut self, view: &View) {
        self.of(view.is_stopped()).remove(&view.key());
        if let Some(agent) = view.agent()
            && let Some(used) = self.used.get_mut(agent)
        {
            used.remove(&view.id());
            if used.is_empty() {
                self.used.remove(agent);
            }
        }
    }

    fn of(&mut self, stopped: bool) -> &mut BTreeSet<Key> {
        if stopped {
            &mut self.stopped
        } else {
            &mut self.active
        }
    }
}
