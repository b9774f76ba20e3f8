//! When something is due, for all boxes together: one queue, so that finding out costs what is due and not what there is.
//! Owns no meaning of a deadline.

use std::collections::BTreeSet;

use icebox_lifecycle::{BoxId, Time};

/// The queue. A box that has a deadline has an entry at that moment or before, never only after it. An entry that is too
/// early is harmless: it comes up, nothing is due, and the true one is set.
#[derive(Debug, Default)]
pub(super) struct Deadlines(BTreeSet<(Time, BoxId)>);

impl Deadlines {
    /// Makes sure that `id` comes up at `at`.
    pub(super) fn set(&mut self, id: BoxId, at: Option<Time>) {
        if let Some(at) = at {
            self.0.insert((at, id));
        }
    }

    /// The deadline of `id` was `from` and is `to`.
    pub(super) fn moved(&mut self, id: BoxId, from: Option<Time>, to: Option<Time>) {
        if let Some(from) = from
            && Some(from) != to
        {
            self.0.remove(&(from, id));
        }
        self.set(id, to);
    }

    /// The earliest moment something may be due.
    pub(super) fn next(&self) -> Option<Time> {
        self.0.first().map(|(at, _)| *at)
    }

    /// Takes the earliest box out if it is due at `now`.
    pub(super) fn pop(&mut self, now: Time) -> Option<BoxId> {
        if self.next()? > now {
            return None;
        }
        self.0.pop_first().map(|(_, id)| id)
    }
}

/// All at once, which packs them.
impl FromIterator<(Time, BoxId)> for Deadlines {
    fn from_iter<T: IntoIterator<Item = (Time, BoxId)>>(all: T) -> Self {
        Self(all.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(letter: &str) -> BoxId {
        BoxId::parse(&letter.repeat(20)).unwrap()
    }

    #[test]
    fn due_boxes_come_in_order_and_at_their_latest_deadline_only() {
        let mut deadlines: Deadlines = [(Time(30), id("a")), (Time(20), id("b"))]
            .into_iter()
            .collect();
        deadlines.moved(id("a"), Some(Time(30)), Some(Time(10)));
        assert_eq!(deadlines.next(), Some(Time(10)));
        assert_eq!(deadlines.pop(Time(9)), None);
        assert_eq!(deadlines.pop(Time(10)), Some(id("a")));
        assert_eq!(deadlines.pop(Time(25)), Some(id("b")));
        assert_eq!(deadlines.pop(Time(99)), None);
    }

    #[test]
    fn a_deadline_that_moves_on_and_on_is_one_entry() {
        let mut deadlines = Deadlines::default();
        let mut before = None;
        for at in 10..1_000 {
            deadlines.moved(id("a"), before, Some(Time(at)));
            before = Some(Time(at));
        }
        assert_eq!(deadlines.0.len(), 1);
        deadlines.moved(id("a"), before, None);
        assert_eq!(deadlines.next(), None);
    }

    #[test]
    fn one_that_came_up_is_set_again_though_it_did_not_move() {
        let mut deadlines = Deadlines::default();
        deadlines.set(id("a"), Some(Time(5)));
        assert_eq!(deadlines.pop(Time(5)), Some(id("a")));
        deadlines.moved(id("a"), Some(Time(5)), Some(Time(5)));
        assert_eq!(deadlines.next(), Some(Time(5)));
    }
}
