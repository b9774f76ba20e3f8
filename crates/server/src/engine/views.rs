//! What readers see of every box. The engine is the only writer; a reader takes one shard for as long as it takes to copy
//! a pointer, and never waits for a turn. Owns the order of lists and the waking of those who wait for a change.

use std::borrow::Borrow;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::hash::{BuildHasher as _, Hash, Hasher, RandomState};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockWriteGuard};

use icebox_lifecycle::{BoxId, Sandbox, State, Status, Time};
use tokio::sync::watch;

use super::room::Capacity;
use super::wiring::Wiring;
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

/// The boxes of one account in the orders in which they are asked for. They hold no more than ids: there may be a million.
#[derive(Debug, Default)]
struct Lists {
    active: BTreeSet<Key>,
    stopped: BTreeSet<Key>,
    /// The live boxes of each conversation (rule 7.3), by the hash of its id.
    used: BTreeSet<(u64, BoxId)>,
}

/// A view in a set, found by its id.
#[derive(Debug)]
struct ById(Arc<View>);

impl Borrow<BoxId> for ById {
    fn borrow(&self) -> &BoxId {
        &self.0.sandbox.id
    }
}

impl Hash for ById {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.sandbox.id.hash(state);
    }
}

impl PartialEq for ById {
    fn eq(&self, other: &Self) -> bool {
        self.0.sandbox.id == other.0.sandbox.id
    }
}

impl Eq for ById {}

type Shard = RwLock<HashSet<ById>>;

/// Where a page of a list begins: after this moment of last use and this id.
pub type Cursor = (i64, BoxId);

/// All views.
#[derive(Debug)]
pub struct Views {
    hash: RandomState,
    shards: Vec<Shard>,
    lists: RwLock<HashMap<AccountId, Lists>>,
    /// How many boxes there are of each status.
    counts: Mutex<BTreeMap<&'static str, u64>>,
    waiting: Mutex<HashMap<BoxId, watch::Sender<u64>>>,
    /// How many entries `waiting` has, so that publishing does not lock it for nothing.
    waiters: AtomicUsize,
    /// Who has room on the host and who waits for it.
    capacity: RwLock<Arc<Capacity>>,
    /// Held while what came of a turn is shown, piece by piece.
    showing: RwLock<()>,
    /// The boxes that are ready, for those who look at all of them again and again.
    ready: Mutex<BTreeSet<BoxId>>,
    /// Counts turns that announced something, for those who follow events.
    told: watch::Sender<u64>,
    /// Whose services lead to whom.
    wiring: Wiring,
}

impl Default for Views {
    fn default() -> Self {
        Self {
            hash: RandomState::new(),
            shards: (0..SHARDS).map(|_| RwLock::default()).collect(),
            lists: RwLock::default(),
            counts: Mutex::default(),
            waiting: Mutex::default(),
            waiters: AtomicUsize::new(0),
            capacity: RwLock::default(),
            showing: RwLock::default(),
            ready: Mutex::default(),
            told: watch::Sender::new(0),
            wiring: Wiring::default(),
        }
    }
}

impl Views {
    /// The view of a box.
    #[must_use]
    pub fn get(&self, id: BoxId) -> Option<Arc<View>> {
        let shard = self.shard(id).read();
        let shard = shard.unwrap_or_else(PoisonError::into_inner);
        shard.get(&id).map(|view| Arc::clone(&view.0))
    }

    /// Every view, in no order; takes one shard at a time. For what is rare: there may be a million.
    pub fn all(&self) -> impl Iterator<Item = Arc<View>> {
        let of = |shard: &Shard| -> Vec<Arc<View>> {
            let shard = shard.read().unwrap_or_else(PoisonError::into_inner);
            shard.iter().map(|view| Arc::clone(&view.0)).collect()
        };
        self.shards.iter().flat_map(of)
    }

    /// How many boxes there are of each status, by its name.
    #[must_use]
    pub fn counts(&self) -> BTreeMap<&'static str, u64> {
        self.counting().clone()
    }

    /// The boxes that are ready, at most `limit`, by id.
    #[must_use]
    pub fn ready(&self, limit: usize) -> Vec<BoxId> {
        let ready = self.ready.lock().unwrap_or_else(PoisonError::into_inner);
        ready.iter().take(limit).copied().collect()
    }

    /// The boxes with services that lead to this one, by id.
    #[must_use]
    pub fn linked_from(&self, id: BoxId) -> Vec<Arc<View>> {
        let sources = self.wiring.to(id);
        sources.into_iter().filter_map(|id| self.get(id)).collect()
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

    /// How many boxes of an account have not stopped, and how many have.
    #[must_use]
    pub fn count(&self, account: AccountId) -> (u64, u64) {
        let lists = self.lists.read().unwrap_or_else(PoisonError::into_inner);
        let count = |set: &BTreeSet<Key>| set.len() as u64;
        let lists = lists.get(&account);
        lists.map_or((0, 0), |lists| {
            (count(&lists.active), count(&lists.stopped))
        })
    }

    /// The live boxes that a conversation was the last to use, at most `limit`, by id.
    #[must_use]
    pub fn used_by(&self, account: AccountId, agent: &str, limit: usize) -> Vec<BoxId> {
        let hash = self.hash.hash_one(agent);
        let ids: Vec<BoxId> = {
            let lists = self.lists.read().unwrap_or_else(PoisonError::into_inner);
            let Some(lists) = lists.get(&account) else {
                return Vec::new();
            };
            let used = lists.used.range((hash, BoxId::FIRST)..=(hash, BoxId::LAST));
            used.take(limit).map(|(_, id)| *id).collect()
        };
        // Another conversation may have the same hash.
        let by_it = |id: &BoxId| {
            self.get(*id)
                .is_some_and(|view| view.agent() == Some(agent))
        };
        ids.into_iter().filter(by_it).collect()
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

    /// Who has room on the host and who waits for it (rules 5.9, 13.6).
    #[must_use]
    pub fn capacity(&self) -> Arc<Capacity> {
        let capacity = self.capacity.read();
        Arc::clone(&capacity.unwrap_or_else(PoisonError::into_inner))
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

    fn counting(&self) -> MutexGuard<'_, BTreeMap<&'static str, u64>> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts one box less of the one status, and one more of the other.
    fn recount(&self, from: Option<Status>, to: Option<Status>) {
        if from == to {
            return;
        }
        let mut counts = self.counting();
        if let Some(to) = to {
            *counts.entry(to.as_str()).or_default() += 1;
        }
        if let Some(from) = from
            && let Some(count) = counts.get_mut(from.as_str())
        {
            *count -= 1;
            if *count == 0 {
                counts.remove(from.as_str());
            }
        }
    }

    fn note_ready(&self, id: BoxId, is_ready: bool) {
        let mut ready = self.ready.lock().unwrap_or_else(PoisonError::into_inner);
        if is_ready {
            ready.insert(id);
        } else {
            ready.remove(&id);
        }
    }

    /// Puts a view in its place; gives the one that was there.
    fn put(&self, view: Arc<View>) -> Option<Arc<View>> {
        let status = view.sandbox.status();
        self.note_ready(view.id(), view.sandbox.state == State::Ready);
        let shown = Arc::clone(&view);
        let old = {
            let shard = self.shard(view.id()).write();
            let mut shard = shard.unwrap_or_else(PoisonError::into_inner);
            shard.replace(ById(view)).map(|old| old.0)
        };
        self.recount(old.as_deref().map(|old| old.sandbox.status()), Some(status));
        self.wiring.follow(shown.id(), old.as_deref(), Some(&shown));
        old
    }

    fn shard(&self, id: BoxId) -> &Shard {
        let hash = self.hash.hash_one(id);
        let shard = usize::try_from(hash % SHARDS as u64).unwrap_or(0);
        &self.shards[shard]
    }

    /// Shows a box that was loaded, but for lists; [`Views::list_all`] is to follow.
    pub(super) fn load(&self, view: Arc<View>) {
        self.put(view);
    }

    /// Makes the lists of everything that was loaded at once, which packs them.
    pub(super) fn list_all(&self) {
        let mut keys: HashMap<AccountId, [Vec<Key>; 2]> = HashMap::new();
        let mut used: HashMap<AccountId, Vec<(u64, BoxId)>> = HashMap::new();
        for view in self.all() {
            let account = view.record.account;
            keys.entry(account).or_default()[usize::from(view.is_stopped())].push(view.key());
            if let Some(agent) = view.agent() {
                let by = (self.hash.hash_one(agent), view.id());
                used.entry(account).or_default().push(by);
            }
        }
        let lists = keys.into_iter().map(|(account, [active, stopped])| {
            let lists = Lists {
                active: active.into_iter().collect(),
                stopped: stopped.into_iter().collect(),
                used: used
                    .remove(&account)
                    .unwrap_or_default()
                    .into_iter()
                    .collect(),
            };
            (account, lists)
        });
        let lists = lists.collect();
        *self.lists.write().unwrap_or_else(PoisonError::into_inner) = lists;
    }

    /// Shows a new view and wakes those who wait for it.
    pub(super) fn publish(&self, view: Arc<View>) {
        let id = view.id();
        let old = self.put(Arc::clone(&view));
        let place = |view: &View| (view.key(), view.is_stopped());
        let moved = old.as_deref().map(place) != Some(place(&view));
        let passed_on = old.as_deref().and_then(View::agent) != view.agent();
        if moved || passed_on {
            let mut lists = self.lists.write().unwrap_or_else(PoisonError::into_inner);
            let lists = lists.entry(view.record.account).or_default();
            if let Some(old) = &old {
                lists.take_out(old, &self.hash);
            }
            lists.put_in(&view, &self.hash);
        }
        self.wake(id);
    }

    /// Forgets a box.
    pub(super) fn remove(&self, id: BoxId) {
        let old = {
            let shard = self.shard(id).write();
            shard.unwrap_or_else(PoisonError::into_inner).take(&id)
        };
        if let Some(ById(old)) = old {
            self.recount(Some(old.sandbox.status()), None);
            self.note_ready(id, false);
            self.wiring.follow(id, Some(&old), None);
            let mut lists = self.lists.write().unwrap_or_else(PoisonError::into_inner);
            if let Some(lists) = lists.get_mut(&old.record.account) {
                lists.take_out(&old, &self.hash);
            }
        }
        self.wake(id);
    }

    /// Held by the engine while it shows a turn.
    pub(super) fn showing(&self) -> RwLockWriteGuard<'_, ()> {
        self.showing.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until no turn is half shown: whoever has seen something of a turn then sees all of it, be it the room that
    /// a box left behind or what its account has left.
    pub(super) fn whole_turns(&self) {
        drop(self.showing.read());
    }

    /// Shows who has room and who waits for it.
    pub(super) fn show_capacity(&self, capacity: Capacity) {
        let mut shown = self
            .capacity
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        *shown = Arc::new(capacity);
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
    fn put_in(&mut self, view: &View, hash: &RandomState) {
        self.of(view.is_stopped()).insert(view.key());
        if let Some(agent) = view.agent() {
            self.used.insert((hash.hash_one(agent), view.id()));
        }
    }

    fn take_out(&mut self, view: &View, hash: &RandomState) {
        self.of(view.is_stopped()).remove(&view.key());
        if let Some(agent) = view.agent() {
            self.used.remove(&(hash.hash_one(agent), view.id()));
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
