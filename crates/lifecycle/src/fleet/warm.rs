//! The memory of frozen boxes that stays in RAM, within a budget (4.11). Owns the order in which they give way.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use crate::id::BoxId;
use crate::time::Time;

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
