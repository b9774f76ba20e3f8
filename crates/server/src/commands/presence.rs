//! Which conversations are there (rules 7.1, 7.2): kept in memory only, for after a restart of the server every adapter
//! sends its next heartbeat within a minute. Owns the shape of a conversation's id.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use icebox_lifecycle::{Presence, Time};

use super::trouble::{Kind, Trouble};
use crate::record::AccountId;

/// Conversations kept at a time; when there are more, those that are gone go first.
const MOST: usize = 10_000;

/// The conversations of all accounts.
#[derive(Debug, Default)]
pub struct Presences(Mutex<HashMap<(AccountId, Box<str>), Presence>>);

impl Presences {
    /// A heartbeat came.
    pub fn beat(&self, account: AccountId, agent: &str, now: Time) {
        let mut known = self.lock();
        make_room(&mut known, now);
        let presence = known.entry((account, agent.into())).or_default();
        presence.beat(now);
    }

    /// A conversation says that it leaves.
    pub fn leave(&self, account: AccountId, agent: &str, now: Time) {
        let mut known = self.lock();
        make_room(&mut known, now);
        known.entry((account, agent.into())).or_default().leave();
    }

    /// What is known of a conversation.
    #[must_use]
    pub fn get(&self, account: AccountId, agent: &str) -> Option<Presence> {
        self.lock().get(&(account, agent.into())).copied()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<(AccountId, Box<str>), Presence>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn make_room(known: &mut HashMap<(AccountId, Box<str>), Presence>, now: Time) {
    if known.len() >= MOST {
        known.retain(|_, presence| !presence.is_gone(now));
    }
    if known.len() >= MOST {
        known.clear();
    }
}

/// Whether this can be the id of a conversation (rule 7.4).
#[must_use]
pub fn is_agent_id(id: &str) -> bool {
    (1..=64).contains(&id.len())
        && id
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
}

/// The answer to an id that is none.
#[must_use]
pub fn no_agent_id() -> Trouble {
    Trouble::new(
        Kind::BadRequest,
        "agent id: letters, digits, - and _ only, at most 64",
    )
}
