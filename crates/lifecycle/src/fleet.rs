//! What needs to see more than one box: room on the host (14.1, 5.9). Owns the queue for it. Holds no box and starts
//! nothing: it answers who goes next, and the engine acts on it. Which frozen boxes keep their memory is in [`warm`].

pub mod warm;

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use crate::id::BoxId;
use crate::time::{Ms, Time};

pub use warm::WarmBoxes;

/// What a box takes, and what a host or an account has. A box that is only on disk takes nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Room {
    /// Boxes that are up.
    pub boxes: u64,
    /// Their memory limits, in MiB, and those of boxes that stand still in RAM.
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

    /// The first of its parts that is more than `limit` has.
    fn exceeds(self, limit: Self) -> Option<Part> {
        if self.boxes > limit.boxes {
            Some(Part::Boxes)
        } else if self.memory_mb > limit.memory_mb {
            Some(Part::Memory)
        } else if self.milli_cpus > limit.milli_cpus {
            Some(Part::Cpus)
        } else {
            None
        }
    }
}

/// An account, as the fleet counts it.
pub type AccountId = u64;

/// Somebody who waits, by the number that whoever keeps their request knows them by.
pub type Ticket = u64;

/// A start or a thaw that needs room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wish {
    /// The box.
    pub id: BoxId,
    /// Whose it is.
    pub account: AccountId,
    /// What it takes while it is up.
    pub needs: Room,
}

/// A part of a [`Room`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Boxes that are up.
    Boxes,
    /// Memory.
    Memory,
    /// Processors.
    Cpus,
}

/// Why there is no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shortage {
    /// The host has too little of it.
    Host(Part),
    /// The account has, or would have, more of it than it may.
    Account(Part),
    /// There is room, but others came before and wait for it.
    Others,
    /// So many wait that nobody else may.
    Queue,
}

/// The answer to a wish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// It has its room: start it. It keeps the room until the fleet is told that it takes less.
    Taken,
    /// It waits, until then.
    Waits {
        /// When it gives up.
        until: Time,
    },
    /// There is no room, and it does not wait: 503 `no box capacity right now`.
    NoRoom(Shortage),
    /// There never will be: it needs more than there is altogether.
    Never(Shortage),
}

/// What becomes of the memory of a frozen box that is in RAM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It stays: there is no copy of it (4.10).
    Stays,
    /// It stays as long as nobody needs the room (4.11).
    Warm,
    /// It is being given back.
    Leaves,
}

/// The longest anything waits for room, in milliseconds (`waitForCapacitySec` is at most 1800).
pub const LONGEST_WAIT_MS: Ms = 1_800_000;
/// How long even one who does not wait waits for frozen boxes to give their memory back, in milliseconds.
pub const GIVING_WAY_MS: Ms = 60_000;
/// The most who wait at a time.
pub const MOST_WAITING: usize = 1_000;

/// The room of a host, who has it and who waits for it.
#[derive(Clone, Debug)]
pub struct Fleet {
    host: Room,
    account: Room,
    taken: Room,
    by_account: BTreeMap<AccountId, Room>,
    holders: BTreeMap<BoxId, Holder>,
    queue: VecDeque<InQueue>,
}

/// A box that has room.
#[derive(Clone, Copy, Debug)]
struct Holder {
    account: AccountId,
    takes: Room,
    /// Nothing for one that is up.
    standing: Option<Standing>,
}

/// A box that waits for room: one place, however many wait for the box.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InQueue {
    /// What it needs.
    pub wish: Wish,
    /// Since when.
    pub since: Time,
    /// Who waits for it, each until when; never empty.
    pub waiters: Vec<(Ticket, Time)>,
}

impl InQueue {
    /// When the last of those who wait for it gives up.
    #[must_use]
    pub fn until(&self) -> Time {
        let until = self.waiters.iter().map(|(_, until)| *until).max();
        until.unwrap_or(self.since)
    }
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
            holders: BTreeMap::new(),
            queue: VecDeque::new(),
        }
    }

    /// What there is altogether.
    #[must_use]
    pub fn host(&self) -> Room {
        self.host
    }

    /// What each account may take.
    #[must_use]
    pub fn account(&self) -> Room {
        self.account
    }

    /// What is taken.
    #[must_use]
    pub fn taken(&self) -> Room {
        self.taken
    }

    /// The boxes that wait, oldest first.
    pub fn queue(&self) -> impl Iterator<Item = &InQueue> {
        self.queue.iter()
    }

    /// Whether a box waits.
    #[must_use]
    pub fn waits(&self, id: BoxId) -> bool {
        self.queue.iter().any(|place| place.wish.id == id)
    }

    /// A box needs room. It is given at once only if nobody who could use it waits already; otherwise `ticket` waits for
    /// at most `wait_ms`. A box that has its room keeps it; one that waits keeps its place.
    pub fn enter(&mut self, now: Time, wish: Wish, ticket: Ticket, wait_ms: Ms) -> Place {
        if self.is_up(wish.id) {
            return Place::Taken;
        }
        if let Some(shortage) = self.never(&wish) {
            return Place::Never(shortage);
        }
        let queued = self.waits(wish.id);
        let first = !queued && self.first().is_none();
        let shortage = self.shortage(&wish);
        let (shortage, wait_ms) = match shortage {
            None if first => {
                self.give(wish);
                return Place::Taken;
            }
            None => (Shortage::Others, wait_ms),
            Some(Shortage::Host(Part::Memory)) if first && self.others_give_way(&wish) => {
                (Shortage::Host(Part::Memory), wait_ms.max(GIVING_WAY_MS))
            }
            Some(shortage) => (shortage, wait_ms),
        };
        if wait_ms <= 0 {
            return Place::NoRoom(shortage);
        }
        let waiting: usize = self.queue.iter().map(|place| place.waiters.len()).sum();
        if waiting >= MOST_WAITING {
            return Place::NoRoom(Shortage::Queue);
        }
        let until = now + wait_ms.min(LONGEST_WAIT_MS);
        match self.queue.iter_mut().find(|place| place.wish.id == wish.id) {
            Some(place) => place.waiters.push((ticket, until)),
            None => self.queue.push_back(InQueue {
                wish,
                since: now,
                waiters: Vec::from([(ticket, until)]),
            }),
        }
        Place::Waits { until }
    }

    /// A box is up, whoever let it: it counts whether or not there is room for it.
    pub fn found(&mut self, wish: Wish) {
        self.give(wish);
    }

    /// A box is frozen and its memory is in RAM: that counts, its processors and its place do not.
    pub fn stands(&mut self, wish: Wish, standing: Standing) {
        let takes = Room {
            memory_mb: wish.needs.memory_mb,
            ..Room::default()
        };
        self.hold(wish.id, wish.account, takes, Some(standing));
    }

    /// A box is on disk only, has ended, or is wanted no more: its room is free. Its place in the queue stays.
    pub fn leave(&mut self, id: BoxId) {
        let Some(holder) = self.holders.remove(&id) else {
            return;
        };
        self.taken = self.taken.minus(holder.takes);
        if let Some(taken) = self.by_account.get_mut(&holder.account) {
            *taken = taken.minus(holder.takes);
            if *taken == Room::default() {
                self.by_account.remove(&holder.account);
            }
        }
    }

    /// One of those who wait for a box does not any more; with the last of them the place is gone. `false`: nobody of
    /// that number waits for it.
    pub fn hang_up(&mut self, id: BoxId, ticket: Ticket) -> bool {
        let Some(at) = self.queue.iter().position(|place| place.wish.id == id) else {
            return false;
        };
        let Some(place) = self.queue.get_mut(at) else {
            return false;
        };
        let before = place.waiters.len();
        place.waiters.retain(|(other, _)| *other != ticket);
        let left = place.waiters.len();
        if left == 0 {
            self.queue.remove(at);
        }
        left != before
    }

    /// A box is wanted no more, or not in this way: gives those who waited for it.
    pub fn call_off(&mut self, id: BoxId) -> Vec<Ticket> {
        let at = self.queue.iter().position(|place| place.wish.id == id);
        let place = at.and_then(|at| self.queue.remove(at));
        place.map_or_else(Vec::new, |place| tickets(&place))
    }

    /// Who goes next, oldest first, with those who wait for it. An account that has all it may is passed over, since
    /// room on the host is no use to it; nobody else is, so that a large box is not overtaken for ever by small ones.
    pub fn next_up(&mut self) -> Option<(Wish, Vec<Ticket>)> {
        let at = self.next_at()?;
        let place = self.queue.remove(at)?;
        self.give(place.wish);
        Some((place.wish, tickets(&place)))
    }

    /// Whether somebody can go.
    #[must_use]
    pub fn has_next(&self) -> bool {
        self.next_at().is_some()
    }

    /// Those who have waited long enough, removed from the queue, each with the reason: they get 503.
    pub fn give_up(&mut self, now: Time) -> Vec<(Wish, Ticket, Shortage)> {
        if self.next_deadline().is_none_or(|at| at > now) {
            return Vec::new();
        }
        let mut over = Vec::new();
        let mut before_it = false;
        for place in &self.queue {
            let shortage = match self.shortage(&place.wish) {
                None => Shortage::Others,
                Some(Shortage::Host(_)) if before_it => Shortage::Others,
                Some(shortage) => shortage,
            };
            before_it |= self.account_shortage(&place.wish).is_none();
            let late = place.waiters.iter().filter(|(_, until)| *until <= now);
            over.extend(late.map(|(ticket, _)| (place.wish, *ticket, shortage)));
        }
        for (wish, ticket, _) in &over {
            self.hang_up(wish.id, *ticket);
        }
        over
    }

    /// When the next one gives up.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Time> {
        let waiters = self.queue.iter().flat_map(|place| &place.waiters);
        waiters.map(|(_, until)| *until).min()
    }

    /// How much memory, in MiB, warm boxes have to give back so that whoever is first has room: what is being given
    /// back anyway is not in it.
    #[must_use]
    pub fn short_mb(&self) -> u64 {
        let Some(place) = self.first() else {
            return 0;
        };
        match self.shortage(&place.wish) {
            Some(Shortage::Host(Part::Memory)) => {
                let after = self.after(&place.wish).memory_mb;
                let short = after.saturating_sub(self.host.memory_mb);
                short.saturating_sub(self.standing_mb(|standing| standing == Standing::Leaves))
            }
            Some(_) | None => 0,
        }
    }

    fn is_up(&self, id: BoxId) -> bool {
        let holder = self.holders.get(&id);
        holder.is_some_and(|holder| holder.standing.is_none())
    }

    /// Whether the host would have room if every frozen box gave its memory back that can.
    fn others_give_way(&self, wish: &Wish) -> bool {
        let back = self.standing_mb(|standing| standing != Standing::Stays);
        let mut after = self.after(wish);
        after.memory_mb = after.memory_mb.saturating_sub(back);
        after.exceeds(self.host).is_none()
    }

    fn standing_mb(&self, counts: impl Fn(Standing) -> bool) -> u64 {
        let holders = self.holders.values();
        let counted = holders.filter(|holder| holder.standing.is_some_and(&counts));
        counted.map(|holder| holder.takes.memory_mb).sum()
    }

    /// The first in the queue whose account may have more.
    fn first(&self) -> Option<&InQueue> {
        let mut queue = self.queue.iter();
        queue.find(|place| self.account_shortage(&place.wish).is_none())
    }

    fn next_at(&self) -> Option<usize> {
        let id = self.first()?.wish.id;
        let at = self.queue.iter().position(|place| place.wish.id == id)?;
        let place = self.queue.get(at)?;
        self.shortage(&place.wish).is_none().then_some(at)
    }

    /// What would be taken with it.
    fn after(&self, wish: &Wish) -> Room {
        self.taken.plus(self.lacks(wish))
    }

    /// What a box needs beyond what it has.
    fn lacks(&self, wish: &Wish) -> Room {
        let holder = self.holders.get(&wish.id);
        wish.needs
            .minus(holder.map(|h| h.takes).unwrap_or_default())
    }

    fn never(&self, wish: &Wish) -> Option<Shortage> {
        let host = wish.needs.exceeds(self.host).map(Shortage::Host);
        host.or_else(|| wish.needs.exceeds(self.account).map(Shortage::Account))
    }

    fn shortage(&self, wish: &Wish) -> Option<Shortage> {
        let account = self.account_shortage(wish);
        account.or_else(|| self.after(wish).exceeds(self.host).map(Shortage::Host))
    }

    fn account_shortage(&self, wish: &Wish) -> Option<Shortage> {
        let taken = self.by_account.get(&wish.account).copied();
        let after = taken.unwrap_or_default().plus(self.lacks(wish));
        after.exceeds(self.account).map(Shortage::Account)
    }

    fn give(&mut self, wish: Wish) {
        self.hold(wish.id, wish.account, wish.needs, None);
    }

    fn hold(&mut self, id: BoxId, account: AccountId, takes: Room, standing: Option<Standing>) {
        self.leave(id);
        self.taken = self.taken.plus(takes);
        let taken = self.by_account.entry(account).or_default();
        *taken = taken.plus(takes);
        let holder = Holder {
            account,
            takes,
            standing,
        };
        self.holders.insert(id, holder);
    }
}

fn tickets(place: &InQueue) -> Vec<Ticket> {
    place.waiters.iter().map(|(ticket, _)| *ticket).collect()
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

    fn enter(fleet: &mut Fleet, at: i64, wish: Wish, wait_ms: Ms) -> Place {
        // Whoever asks for a box has its number here.
        fleet.enter(Time(at), wish, u64::from(number(&wish)), wait_ms)
    }

    fn number(wish: &Wish) -> u8 {
        (0..=u8::MAX).find(|number| id(*number) == wish.id).unwrap()
    }

    fn next(fleet: &mut Fleet) -> Option<Wish> {
        fleet.next_up().map(|(wish, _)| wish)
    }

    fn waits(until: i64) -> Place {
        Place::Waits { until: Time(until) }
    }

    fn no_memory() -> Place {
        Place::NoRoom(Shortage::Host(Part::Memory))
    }

    // 5.9: starts and thaws wait in one queue.
    #[test]
    fn the_oldest_goes_first_and_nobody_overtakes() {
        let mut fleet = Fleet::new(host(10, 1_000), Room::ENDLESS);
        let fleet = &mut fleet;
        assert_eq!(enter(fleet, 0, wish(1, 1, 800), 0), Place::Taken);
        assert_eq!(enter(fleet, 0, wish(2, 1, 900), 5_000), waits(5_000));
        // There is room for a small one, but it would keep the large one waiting.
        assert_eq!(enter(fleet, 1, wish(3, 2, 100), 5_000), waits(5_001));
        let others = Place::NoRoom(Shortage::Others);
        assert_eq!(enter(fleet, 1, wish(4, 2, 100), 0), others);
        assert_eq!(next(fleet), None);
        assert!(!fleet.has_next());
        fleet.leave(id(1));
        assert!(fleet.has_next());
        assert_eq!(next(fleet), Some(wish(2, 1, 900)));
        assert_eq!(next(fleet), Some(wish(3, 2, 100)));
        assert_eq!(next(fleet), None);
        assert_eq!(fleet.taken().memory_mb, 1_000);
    }

    // 14.1: an account has limits of its own.
    #[test]
    fn an_account_that_has_all_it_may_is_passed_over() {
        let mut fleet = Fleet::new(host(10, 1_000), host(1, 1_000));
        let fleet = &mut fleet;
        assert_eq!(enter(fleet, 0, wish(1, 1, 100), 0), Place::Taken);
        let full = Place::NoRoom(Shortage::Account(Part::Boxes));
        assert_eq!(enter(fleet, 0, wish(2, 1, 100), 0), full);
        assert_eq!(enter(fleet, 0, wish(2, 1, 100), 9), waits(9));
        assert_eq!(enter(fleet, 0, wish(3, 2, 100), 0), Place::Taken);
        assert_eq!(next(fleet), None);
        fleet.leave(id(1));
        assert_eq!(next(fleet), Some(wish(2, 1, 100)));
    }

    // 14.1: `waitForCapacitySec`.
    #[test]
    fn waiting_has_an_end_and_a_limit() {
        let mut fleet = Fleet::new(host(1, 1_000), host(9, 1_000));
        let fleet = &mut fleet;
        assert_eq!(enter(fleet, 0, wish(1, 1, 100), 0), Place::Taken);
        enter(fleet, 0, wish(2, 1, 100), 100);
        enter(fleet, 0, wish(3, 1, 100), 50);
        assert_eq!(fleet.next_deadline(), Some(Time(50)));
        assert_eq!(fleet.give_up(Time(49)), []);
        // The first waits for the host, the next for those before it.
        let late = [(wish(3, 1, 100), 3, Shortage::Others)];
        assert_eq!(fleet.give_up(Time(50)), late);
        let late = [(wish(2, 1, 100), 2, Shortage::Host(Part::Boxes))];
        assert_eq!(fleet.give_up(Time(100)), late);
        assert_eq!(fleet.next_deadline(), None);
        let long = enter(fleet, 0, wish(4, 1, 100), i64::MAX);
        assert_eq!(long, waits(LONGEST_WAIT_MS));
        for ticket in 1..MOST_WAITING as u64 {
            let place = fleet.enter(Time(0), wish(4, 1, 100), ticket, 9);
            assert_eq!(place, waits(9));
        }
        let full = Place::NoRoom(Shortage::Queue);
        assert_eq!(enter(fleet, 0, wish(5, 1, 100), 9), full);
    }

    // 14.1: no room, now or ever.
    #[test]
    fn more_than_there_is_never_fits() {
        let mut fleet = Fleet::new(host(4, 1_000), host(4, 500));
        let fleet = &mut fleet;
        let never = Place::Never(Shortage::Host(Part::Memory));
        assert_eq!(enter(fleet, 0, wish(1, 1, 1_001), 9), never);
        let never = Place::Never(Shortage::Account(Part::Memory));
        assert_eq!(enter(fleet, 0, wish(1, 1, 501), 9), never);
        let mut cpus = wish(1, 1, 1);
        cpus.needs.milli_cpus = 3_001;
        let three = Room {
            milli_cpus: 3_000,
            ..Room::ENDLESS
        };
        let mut fleet = Fleet::new(three, Room::ENDLESS);
        let never = Place::Never(Shortage::Host(Part::Cpus));
        assert_eq!(enter(&mut fleet, 0, cpus, 9), never);
    }

    // 5.9: a box has one place, whoever asks for it; 5.8: all of them go together.
    #[test]
    fn a_box_has_one_place_until_the_last_who_waits_for_it_has_gone() {
        let mut fleet = Fleet::new(host(1, 1_000), Room::ENDLESS);
        fleet.found(wish(1, 1, 100));
        fleet.found(wish(1, 1, 100));
        assert_eq!(fleet.taken().boxes, 1);
        let (two, three) = (wish(2, 1, 100), wish(3, 1, 100));
        assert_eq!(enter(&mut fleet, 0, wish(1, 1, 100), 0), Place::Taken);
        assert_eq!(fleet.enter(Time(0), two, 20, 100), waits(100));
        assert_eq!(fleet.enter(Time(5), three, 30, 100), waits(105));
        assert_eq!(fleet.enter(Time(9), two, 21, 200), waits(209));
        let full = Place::NoRoom(Shortage::Host(Part::Boxes));
        assert_eq!(fleet.enter(Time(9), two, 22, 0), full);
        let queue: Vec<_> = fleet.queue().map(|p| (p.wish.id, p.until())).collect();
        assert_eq!(queue, [(id(2), Time(209)), (id(3), Time(105))]);
        assert!(fleet.hang_up(id(2), 20));
        assert!(!fleet.hang_up(id(2), 20));
        assert!(fleet.waits(id(2)), "somebody waits for it still");
        assert!(fleet.hang_up(id(2), 21));
        assert!(!fleet.waits(id(2)));
        fleet.enter(Time(10), two, 23, 100);
        fleet.enter(Time(10), two, 24, 100);
        fleet.leave(id(1));
        fleet.leave(id(1));
        assert_eq!(fleet.next_up(), Some((three, Vec::from([30]))));
        fleet.leave(id(3));
        assert_eq!(fleet.next_up(), Some((two, Vec::from([23, 24]))));
        assert_eq!(fleet.taken().boxes, 1);
    }

    // 5.9: a box that is stopped or frozen while it waits.
    #[test]
    fn a_box_that_is_wanted_no_more_makes_way_for_the_next() {
        let mut fleet = Fleet::new(host(10, 1_000), Room::ENDLESS);
        let fleet = &mut fleet;
        enter(fleet, 0, wish(1, 1, 600), 0);
        enter(fleet, 0, wish(2, 1, 900), 100);
        enter(fleet, 0, wish(3, 1, 300), 100);
        assert_eq!(fleet.call_off(id(2)), [2]);
        assert_eq!(fleet.call_off(id(2)), []);
        assert_eq!(next(fleet), Some(wish(3, 1, 300)));
    }

    // 4.10, 4.11: memory in RAM counts, whatever becomes of it.
    #[test]
    fn frozen_boxes_in_ram_keep_their_memory_and_warm_ones_give_way() {
        let mut fleet = Fleet::new(host(2, 1_000), Room::ENDLESS);
        let fleet = &mut fleet;
        fleet.found(wish(1, 1, 600));
        fleet.stands(wish(1, 1, 600), Standing::Warm);
        let taken = fleet.taken();
        assert_eq!(
            (taken.boxes, taken.memory_mb, taken.milli_cpus),
            (0, 600, 0)
        );
        // It may wake in its own memory.
        let mut copy = fleet.clone();
        assert_eq!(enter(&mut copy, 0, wish(1, 1, 600), 0), Place::Taken);
        assert_eq!(copy.taken().memory_mb, 600);
        // Another needs it: even who does not wait gets what a warm box gives back.
        assert_eq!(fleet.short_mb(), 0);
        assert_eq!(enter(fleet, 0, wish(2, 1, 700), 0), waits(GIVING_WAY_MS));
        assert_eq!(fleet.short_mb(), 300);
        fleet.stands(wish(1, 1, 600), Standing::Leaves);
        assert_eq!(fleet.short_mb(), 0, "enough is on its way");
        assert_eq!(next(fleet), None, "but not there");
        fleet.leave(id(1));
        assert_eq!(next(fleet), Some(wish(2, 1, 700)));
        // What has no copy stays.
        fleet.stands(wish(2, 1, 700), Standing::Stays);
        assert_eq!(enter(fleet, 0, wish(3, 1, 400), 0), no_memory());
        assert_eq!(enter(fleet, 0, wish(3, 1, 300), 0), Place::Taken);
    }

    // 14.1: after a restart.
    #[test]
    fn boxes_found_up_count_though_they_do_not_fit() {
        let mut fleet = Fleet::new(host(1, 1_000), Room::ENDLESS);
        let fleet = &mut fleet;
        fleet.found(wish(1, 1, 800));
        fleet.found(wish(2, 1, 800));
        enter(fleet, 0, wish(3, 1, 100), 10);
        fleet.leave(id(1));
        assert_eq!(next(fleet), None);
        fleet.leave(id(2));
        assert_eq!(next(fleet), Some(wish(3, 1, 100)));
    }
}
