//! When something is due, for all boxes together: one heap, so that finding out costs what is due and not what there is.
//! Entries that are out of date stay until they come up. Owns no meaning of a deadline.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use icebox_lifecycle::{BoxId, Time};

/// The heap. A box has at most one entry that counts: the earliest one, which may be too early, never too late.
#[derive(Debug, Default)]
pub(super) struct Deadlines {
    heap: BinaryHeap<Reverse<(Time, BoxId)>>,
    queued: HashMap<BoxId, Time>,
}

impl Deadlines {
    /// Makes sure that `id` comes up at `at`, or before.
    pub(super) fn set(&mut self, id: BoxId, at: Option<Time>) {
        let Some(at) = at else { return };
        let queued = self.queued.entry(id).or_insert(Time(i64::MAX));
        if at < *queued {
            *queued = at;
            self.heap.push(Reverse((at, id)));
        }
    }

    /// The earliest moment something may be due.
    pub(super) fn next(&mut self) -> Option<Time> {
        while let Some(Reverse((at, id))) = self.heap.peek() {
            if self.queued.get(id) == Some(at) {
                return Some(*at);
            }
            self.heap.pop();
        }
        None
    }

    /// Takes the earliest box out if it is due at `now`. Its true deadline may be later: then it is set again.
    pub(super) fn pop(&mut self, now: Time) -> Option<BoxId> {
        if self.next()? > now {
            return None;
        }
        let Reverse((_, id)) = self.heap.pop()?;
        self.queued.remove(&id);
        Some(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(letter: &str) -> BoxId {
        BoxId::parse(&letter.repeat(20)).unwrap()
    }

    #[test]
    fn due_boxes_come_in_order_and_an_earlier_deadline_replaces_a_later_one() {
        let mut deadlines = Deadlines::default();
        deadlines.set(id("a"), Some(Time(30)));
        deadlines.set(id("b"), Some(Time(20)));
        deadlines.set(id("a"), Some(Time(10)));
        assert_eq!(deadlines.next(), Some(Time(10)));
        assert_eq!(deadlines.pop(Time(9)), None);
        assert_eq!(deadlines.pop(Time(10)), Some(id("a")));
        assert_eq!(deadlines.pop(Time(25)), Some(id("b")));
        assert_eq!(deadlines.pop(Time(99)), None, "the stale entry is gone");
    }

    #[test]
    fn a_later_deadline_adds_no_entry() {
        let mut deadlines = Deadlines::default();
        for at in 10..1_000 {
            deadlines.set(id("a"), Some(Time(at)));
        }
        assert_eq!(deadlines.heap.len(), 1);
        assert_eq!(deadlines.pop(Time(10)), Some(id("a")));
        deadlines.set(id("a"), Some(Time(999)));
        assert_eq!(deadlines.next(), Some(Time(999)));
    }
}
