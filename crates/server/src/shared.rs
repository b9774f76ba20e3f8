//! Values that many boxes have in common, kept once: policies, names of images.

use std::borrow::Borrow;
use std::collections::HashSet;
use std::hash::Hash;
use std::sync::Arc;

/// The most values kept; beyond that, those that nobody uses go.
const MOST: usize = 1_024;

/// What is shared so far.
#[derive(Debug)]
pub(crate) struct Shared<T: ?Sized>(HashSet<Arc<T>>);

impl<T: ?Sized> Default for Shared<T> {
    fn default() -> Self {
        Self(HashSet::new())
    }
}

impl<T: ?Sized + Eq + Hash> Shared<T> {
    /// The one copy of this value.
    pub(crate) fn one(&mut self, value: impl Into<Arc<T>> + Borrow<T>) -> Arc<T> {
        if let Some(known) = self.0.get(value.borrow()) {
            return Arc::clone(known);
        }
        let value = value.into();
        if self.0.len() >= MOST {
            self.0.retain(|known| Arc::strong_count(known) > 1);
        }
        if self.0.len() < MOST {
            self.0.insert(Arc::clone(&value));
        }
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_values_are_one() {
        let mut shared = Shared::<str>::default();
        let (one, same) = (shared.one("host"), shared.one("host".to_owned()));
        assert!(Arc::ptr_eq(&one, &same));
        assert_eq!(&*shared.one("other"), "other");
    }

    #[test]
    fn what_nobody_uses_makes_room_and_what_is_used_stays() {
        let mut shared = Shared::<str>::default();
        let used = shared.one("used");
        for n in 0..3 * MOST {
            shared.one(n.to_string());
            assert!(shared.0.len() <= MOST);
        }
        assert!(Arc::ptr_eq(&used, &shared.one("used")));
    }
}
