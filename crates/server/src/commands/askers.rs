//! Which conversation began which command, so that an agent that takes a box over can tell its own from others'. Kept in
//! memory: after a restart of the server nobody's are known any more.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};

use icebox_lifecycle::BoxId;

use super::{Caller, Commands};

/// The most commands that are remembered; the oldest go first.
const MOST: usize = 20_000;

type Key = (BoxId, String);

/// Who began what.
#[derive(Default)]
pub(super) struct Askers(Mutex<Known>);

#[derive(Default)]
struct Known {
    by: HashMap<Key, Box<str>>,
    in_order: VecDeque<Key>,
}

impl Askers {
    /// A conversation begins a command. One that joins a run did not begin it.
    pub(super) fn note(&self, id: BoxId, exec_id: &str, agent: Option<&str>) {
        let Some(agent) = agent else { return };
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (id, exec_id.to_owned());
        if known.by.contains_key(&key) {
            return;
        }
        if known.in_order.len() >= MOST
            && let Some(oldest) = known.in_order.pop_front()
        {
            known.by.remove(&oldest);
        }
        known.in_order.push_back(key.clone());
        known.by.insert(key, agent.into());
    }

    fn has(&self, id: BoxId, exec_id: &str, agent: &str) -> bool {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let by = known.by.get(&(id, exec_id.to_owned()));
        by.is_some_and(|by| **by == *agent)
    }
}

impl Commands {
    /// Whether the caller's conversation is known to have begun a command.
    #[must_use]
    pub fn is_own_command(&self, caller: &Caller, id: &str, exec_id: &str) -> bool {
        let own = |id, agent: &str| self.0.askers.has(id, exec_id, agent);
        match (BoxId::parse(id), caller.agent.as_deref()) {
            (Some(id), Some(agent)) => own(id, agent),
            (_, _) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_began_a_command_is_known_until_there_are_too_many() {
        let askers = Askers::default();
        let id = BoxId::parse(&"a".repeat(20)).unwrap();
        askers.note(id, "first", Some("one"));
        askers.note(id, "first", Some("two"));
        askers.note(id, "nobody's", None);
        assert!(askers.has(id, "first", "one") && !askers.has(id, "first", "two"));
        assert!(!askers.has(id, "nobody's", "one"));
        for n in 0..MOST {
            askers.note(id, &n.to_string(), Some("one"));
        }
        assert!(!askers.has(id, "first", "one"), "the oldest");
        assert!(askers.has(id, "0", "one"));
    }
}
