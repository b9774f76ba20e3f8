//! Addresses at which one path of one box can be read for a while without a key: whoever has one may use it, as often as
//! they like. Kept in memory, for after a restart asking again is easy. Owns how long they work and how many there are.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use icebox_lifecycle::{Ms, Time};

use super::trouble::{Kind, Trouble};
use super::{Caller, Commands};
use crate::random;

/// How long an address works.
const VALID_MS: Ms = 60 * 60 * 1_000;
/// The most addresses at a time; when there are more, those that soonest stop working go first.
const MOST: usize = 10_000;

/// What an address leads to.
#[derive(Clone, Debug)]
pub struct Download {
    /// Who asked for it.
    pub caller: Caller,
    /// The box.
    pub id: String,
    /// The path.
    pub path: String,
    until: Time,
}

/// All addresses that work.
#[derive(Default)]
pub(super) struct Downloads(Mutex<HashMap<String, Download>>);

impl Commands {
    /// A new address for a path of a box of the caller: its secret part, and until when it works.
    #[must_use]
    pub fn hand_out(&self, caller: &Caller, id: &str, path: &str) -> (String, Time) {
        let now = self.0.clock.now();
        let until = now + VALID_MS;
        let token = random::hex::<20>();
        let download = Download {
            caller: caller.clone(),
            id: id.to_owned(),
            path: path.to_owned(),
            until,
        };
        let Downloads(known) = &self.0.downloads;
        let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MOST {
            known.retain(|_, download| download.until > now);
        }
        if known.len() >= MOST {
            let soonest = known.iter().min_by_key(|(_, download)| download.until);
            if let Some(token) = soonest.map(|(token, _)| token.clone()) {
                known.remove(&token);
            }
        }
        known.insert(token.clone(), download);
        (token, until)
    }

    /// What an address leads to.
    pub fn handed_out(&self, token: &str) -> Result<Download, Trouble> {
        let Downloads(known) = &self.0.downloads;
        let known = known.lock().unwrap_or_else(PoisonError::into_inner);
        let found = known
            .get(token)
            .filter(|download| download.until > self.0.clock.now());
        found.cloned().ok_or_else(|| {
            Trouble::new(
                Kind::BadRequest,
                "this address does not work any more; ask for a new one",
            )
        })
    }
}
