//! What needs to see more than one box: room on the host (14.1, 5.9) and the memory of frozen boxes that stay warm (4.11).
//! Owns the queue for room and the order in which warm boxes give way. Holds no box and starts nothing: it answers who
//! goes next, and the engine acts on it.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

use crate::id::BoxId;
use crate::time::{Ms, Time};

/// What a box takes, and what a host or an account has. A frozen box takes nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Room {
    /// Boxes that are up.
    pub boxes: u64,
    /// Their memory limits, in MiB.
    pub memory_mb: u64,
    /// Their processors, in thousandths.
    pub milli_cpus: u64,
}

impl Room {
    /// No limit.
    pub const ENDLESS: Self = Self {
        boxes: u64::MAX,
        memory_mb: u64::MAX,
        milli_cpus: u64::MAX,
    };

    fn plus(self, other: Self) -> Self {
        Self {
            boxes: self.boxes.saturating_add(other.boxes),
            memory_mb: self.memory_mb.saturating_add(other.memory_mb),
            milli_cpus: self.milli_cpus.saturating_add(other.milli_cpus),
        }
    }

    fn minus(self, other: Self) -> Self {
        Self {
            boxes: self.boxes.saturating_sub(other.boxes),
            memory_mb: self.memory_mb.saturating_sub(other.memory_mb),
            milli_cpus: self.milli_cpus.saturating_sub(other.milli_cpus),
        }
    }

    fn fits_in(self, limit: Self) -> bool {
        self.boxes <= limit.boxes
            && self.memory_mb <= limit.memory_mb
            && self.milli_cpus <= limit.milli_cpus
    }
}

/// An account, as the fleet counts it.
pub type AccountId = u64;

/// A start or a thaw that needs room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wish {
    /// The box.
    pub id: BoxId,
    /// Whose it is.
    pub account: AccountId,
    /// What it takes.
    pub needs: Room,
}

/// The answer to a wish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// It has its room: start it. It keeps the room until [`Fleet::leave`].
    Taken,
    /// It waits, until then.
    Waits {
        /// When it gives up.
        until: Time,
    },
    /// There is no room, and it does not wait: 503 `no box capacity right now`.
    NoRoom,
    /// There never will be: it needs more than there is altogether.
    Never,
}

/// The longest anything waits for room, in milliseconds (`waitForCapacitySec` is at most 1800).
pub const LONGEST_WAIT_MS: Ms = 1_800_000;
/// The most that waits at a time.
pub const MOST_WAITING: usize = 10_000;

/// The room of a host, who has it and who waits for it.
#[derive(Clone, Debug)]
pub struct Fleet {
    host: Room,
    account: Room,
    taken: Room,
    by_account: BTreeMap<AccountId, Room>,
    up: BTreeMap<BoxId, Wish>,
    waiting: VecDeque<(Wish, Time)>,
}

impl Fleet {
    /// A host with this much room, of which each account may take so much.
    #[must_use]
    pub fn new(host: Room, account: Room) -> Self {
        Self {
            host,
            account,
            taken: Room::default(),
            by_account: BTreeMap::new(),
            up: BTreeMap::new(),
            waiting: VecDeque::new(),
        }
    }

    /// What is taken.
    #[must_use]
    pub fn taken(&self) -> Room {
        self.taken
    }

    /// How many wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// A box needs room. It is given at once only if nobody who could use it waits already; otherwise the box waits for
    /// at most `wait_ms`. A box that has its room keeps it; one that waits keeps its place.
    pub fn enter(&mut self, now: Time, wish: Wish, wait_ms: Ms) -> Place {
        if self.up.contains_key(&wish.id) {
            return Place::Taken;
        }
        if let Some((_, until)) = self.waiting.iter().find(|(other, _)| other.id == wish.id) {
            return Place::Waits { until: *until };
        }
        if !wish.needs.fits_in(self.host) || !wish.needs.fits_in(self.account) {
            return Place::Never;
        }
        let first = !self
            .waiting
            .iter()
            .any(|(other, _)| self.account_has_room(other));
        if first && self.has_room(&wish) {
            self.give(wish);
            return Place::Taken;
        }
        if wait_ms <= 0 || self.waiting.len() >= MOST_WAITING {
            return Place::NoRoom;
        }
        let until = now + wait_ms.min(LONGEST_WAIT_MS);
        self.waiting.push_back((wish, until));
        Place::Waits { until }
    }

    /// A box that is up already, after a restart: it counts whether or not there is room for it.
    pub fn found(&mut self, wish: Wish) {
        if !self.up.contains_key(&wish.id) {
            self.give(wish);
        }
    }

    /// A box is frozen, has ended, or is wanted no more: its room is free, or its place in the queue.
    pub fn leave(&mut self, id: BoxId) {
        self.waiting.retain(|(wish, _)| wish.id != id);
        let Some(wish) = self.up.remove(&id) else {
            return;
        };
        self.taken = self.taken.minus(wish.needs);
        if let Some(taken) = self.by_account.get_mut(&wish.account) {
            *taken = taken.minus(wish.needs);
            if *taken == Room::default() {
                self.by_account.remove(&wish.account);
            }
        }
    }

    /// Who goes next, oldest first. An account that has all it may is passed over, since room on the host is no use to
    /// it; nobody else is, so that a large box is not overtaken for ever by small ones.
    pub fn next_up(&mut self) -> Option<Wish> {
        let at = self
            .waiting
            .iter()
            .position(|(wish, _)| self.account_has_room(wish))?;
        if !self.has_room(&self.waiting.get(at)?.0) {
            return None;
        }
        let (wish, _) = self.waiting.remove(at)?;
        self.give(wish);
        Some(wish)
    }

    /// Those who have waited long enough, removed from the queue: they get 503.
    pub fn give_up(&mut self, now: Time) -> Vec<Wish> {
        let (over, waiting) = core::mem::take(&mut self.waiting)
            .into_iter()
            .partition(|(_, until)| *until <= now);
        self.waiting = waiting;
        let over: VecDeque<(Wish, Time)> = over;
        over.into_iter().map(|(wish, _)| wish).collect()
    }

    /// When the next one gives up.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Time> {
        self.waiting.iter().map(|(_, until)| *until).min()
    }

    fn account_has_room(&self, wish: &Wish) -> bool {
        let taken = self.by_account.get(&wish.account).copied();
        taken
            .unwrap_or_default()
            .plus(wish.needs)
            .fits_in(self.account)
    }

    fn has_room(&self, wish: &Wish) -> bool {
        self.taken.plus(wish.needs).fits_in(self.host) && self.account_has_room(wish)
    }

    fn give(&mut self, wish: Wish) {
        self.taken = self.taken.plus(wish.needs);
        let taken = self.by_account.entry(wish.account).or_default();
        *taken = taken.plus(wish.needs);
        self.up.insert(wish.id, wish);
    }
}

/// The frozen boxes whose memory stays in RAM, within a budget (4.11).
#[derive(Clone, Debug, Default)]
pub struct WarmBoxes {
    budget_mb: u64,
    used_mb: u64,
    by_use: BTreeSet<(Time, BoxId)>,
    boxes: BTreeMap<BoxId, (Time, u64)>,
}

impl WarmBoxes {
    /// A budget in MiB; 0: none stays warm.
    #[must_use]
    pub fn new(budget_mb: u64) -> Self {
        Self {
            budget_mb,
            ..Self::default()
        }
    }

    /// How much of the budget is used, in MiB.
    #[must_use]
    pub fn used_mb(&self) -> u64 {
        self.used_mb
    }

    /// A box froze that was last used then. Gives the boxes that must give their memory back now, least recently used
    /// first; the new one is among them if it does not fit.
    pub fn add(&mut self, id: BoxId, last_use: Time, memory_mb: u64) -> Vec<BoxId> {
        self.remove(id);
        if memory_mb > self.budget_mb {
            return Vec::from([id]);
        }
        self.by_use.insert((last_use, id));
        self.boxes.insert(id, (last_use, memory_mb));
        self.used_mb += memory_mb;
        self.give_way(self.budget_mb)
    }

    /// A box woke, ended, or gave its memory back.
    pub fn remove(&mut self, id: BoxId) {
        if let Some((last_use, memory_mb)) = self.boxes.remove(&id) {
            self.by_use.remove(&(last_use, id));
            self.used_mb -= memory_mb;
        }
    }

    /// The host needs memory: the boxes that give way until no more than `keep_mb` is used.
    pub fn press(&mut self, keep_mb: u64) -> Vec<BoxId> {
        self.give_way(keep_mb.min(self.budget_mb))
    }

    fn give_way(&mut self, keep_mb: u64) -> Vec<BoxId> {
        let mut out = Vec::new();
        while self.used_mb > keep_mb {
            let Some((_, id)) = self.by_use.first().copied() else {
                break;
            };
            self.remove(id);
            out.push(id);
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::BOX_ID_LEN;

    fn id(number: u8) -> BoxId {
        BoxId::from_random([number; BOX_ID_LEN])
    }

    fn wish(number: u8, account: AccountId, memory_mb: u64) -> Wish {
        Wish {
            id: id(number),
            account,
            needs: Room {
                boxes: 1,
                memory_mb,
                milli_cpus: 1_000,
            },
        }
    }

    fn host(boxes: u64, memory_mb: u64) -> Room {
        Room {
            boxes,
            memory_mb,
            milli_cpus: u64::MAX,
        }
    }

    // 5.9: starts and thaws wait in one queue.
    #[test]
    fn the_oldest_goes_first_and_nobody_overtakes() {
        let mut fleet = Fleet::new(host(10, 1_000), Room::ENDLESS);
        assert_eq!(fleet.enter(Time(0), wish(1, 1, 800), 0), Place::Taken);
        let large = fleet.enter(Time(0), wish(2, 1, 900), 5_000);
        assert_eq!(large, Place::Waits { until: Time(5_000) });
        // There is room for a small one, but it would keep the large one waiting.
        let small = fleet.enter(Time(1), wish(3, 2, 100), 5_000);
        assert_eq!(small, Place::Waits { until: Time(5_001) });
        assert_eq!(fleet.enter(Time(1), wish(4, 2, 100), 0), Place::NoRoom);
        assert_eq!(fleet.next_up(), None);
        fleet.leave(id(1));
        assert_eq!(fleet.next_up(), Some(wish(2, 1, 900)));
        assert_eq!(fleet.next_up(), Some(wish(3, 2, 100)));
        assert_eq!(fleet.next_up(), None);
        assert_eq!(fleet.taken().memory_mb, 1_000);
    }

    // 14.1: an account has limits of its own.
    #[test]
    fn an_account_that_has_all_it_may_is_passed_over() {
        let mut fleet = Fleet::new(host(10, 1_000), host(1, 1_000));
        assert_eq!(fleet.enter(Time(0), wish(1, 1, 100), 0), Place::Taken);
        assert!(matches!(
            fleet.enter(Time(0), wish(2, 1, 100), 9),
            Place::Waits { .. }
        ));
        assert_eq!(fleet.enter(Time(0), wish(3, 2, 100), 0), Place::Taken);
        assert_eq!(fleet.next_up(), None);
        fleet.leave(id(1));
        assert_eq!(fleet.next_up(), Some(wish(2, 1, 100)));
    }

    // 14.1: `waitForCapacitySec`.
    #[test]
    fn waiting_has_an_end_and_a_limit() {
        let mut fleet = Fleet::new(host(1, 1_000), Room::ENDLESS);
        assert_eq!(fleet.enter(Time(0), wish(1, 1, 100), 0), Place::Taken);
        fleet.enter(Time(0), wish(2, 1, 100), 100);
        fleet.enter(Time(0), wish(3, 1, 100), 50);
        assert_eq!(fleet.next_deadline(), Some(Time(50)));
        assert_eq!(fleet.give_up(Time(49)), []);
        assert_eq!(fleet.give_up(Time(50)), [wish(3, 1, 100)]);
        assert_eq!(fleet.give_up(Time(100)), [wish(2, 1, 100)]);
        let long = fleet.enter(Time(0), wish(4, 1, 100), i64::MAX);
        assert_eq!(
            long,
            Place::Waits {
                until: Time(LONGEST_WAIT_MS)
            }
        );
    }

    // 14.1: no room, now or ever.
    #[test]
    fn more_than_there_is_never_fits() {
        let mut fleet = Fleet::new(host(4, 1_000), host(4, 500));
        assert_eq!(fleet.enter(Time(0), wish(1, 1, 1_001), 9), Place::Never);
        assert_eq!(fleet.enter(Time(0), wish(1, 1, 501), 9), Place::Never);
    }

    // 5.9: a box has one place, whoever asks for it.
    #[test]
    fn asking_again_keeps_the_place_and_leaving_gives_it_up() {
        let mut fleet = Fleet::new(host(1, 1_000), Room::ENDLESS);
        fleet.found(wish(1, 1, 100));
        fleet.found(wish(1, 1, 100));
        assert_eq!(fleet.taken().boxes, 1);
        assert_eq!(fleet.enter(Time(0), wish(1, 1, 100), 0), Place::Taken);
        fleet.enter(Time(0), wish(2, 1, 100), 100);
        fleet.enter(Time(5), wish(3, 1, 100), 100);
        let again = fleet.enter(Time(9), wish(2, 1, 100), 100);
        assert_eq!(again, Place::Waits { until: Time(100) });
        fleet.leave(id(2));
        assert_eq!(fleet.waiting(), 1);
        fleet.leave(id(1));
        fleet.leave(id(1));
        assert_eq!(fleet.next_up(), Some(wish(3, 1, 100)));
        assert_eq!(fleet.taken().boxes, 1);
    }

    // 4.11: the budget of boxes that stay warm.
    #[test]
    fn the_least_recently_used_gives_way() {
        let mut warm = WarmBoxes::new(1_000);
        assert_eq!(warm.add(id(1), Time(30), 400), []);
        assert_eq!(warm.add(id(2), Time(10), 400), []);
        assert_eq!(warm.add(id(3), Time(20), 400), [id(2)]);
        assert_eq!(warm.used_mb(), 800);
        assert_eq!(warm.add(id(4), Time(40), 1_001), [id(4)]);
        assert_eq!(warm.press(0), [id(3), id(1)]);
        assert_eq!(warm.used_mb(), 0);
        assert_eq!(warm.add(id(5), Time(50), 700), []);
        assert_eq!(warm.add(id(6), Time(60), 300), []);
        assert_eq!(warm.press(300), [id(5)]);
        warm.remove(id(6));
        assert_eq!(warm.used_mb(), 0);
        assert_eq!(WarmBoxes::new(0).add(id(7), Time(0), 1), [id(7)]);
    }
}
