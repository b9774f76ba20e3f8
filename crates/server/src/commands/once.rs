//! Starts under a key of the caller's: one box for each key, however often and whenever the same is asked, so that a client
//! that never saw its answer may ask again. Owns how long a key is good, and that those with the same one come one after
//! the other. The key is on the disk before its box is begun; nothing that ends the server in between makes a second box.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use icebox_lifecycle::state::{End, State};
use icebox_lifecycle::time::HOUR;
use icebox_lifecycle::{BoxId, Ms};
use tokio::sync::{Notify, Semaphore};

use super::trouble::{Kind, Trouble};
use super::{Commands, to_its_end};
use crate::engine::{NewBox, View};
use crate::random;
use crate::record::AccountId;
use crate::store::{Asked, Claim};

/// How long a key is good.
const KEPT_MS: Ms = 24 * HOUR;
/// The longest key.
const KEY_LEN: usize = 255;
/// How long one asker waits for the answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(300);

/// How many may wait for others with their key, all together.
const MOST_WAITING: usize = 1_000;

/// A key, and what is asked under it.
#[derive(Clone, Debug)]
pub struct OnceKey {
    account: AccountId,
    key: Arc<str>,
    asked: Asked,
}

impl OnceKey {
    /// A key of an account: 1 to 255 of `a-z`, `0-9` and `-`. `asked` is a digest of the whole request.
    pub fn new(account: AccountId, key: &str, asked: Asked) -> Result<Self, Trouble> {
        let fits = |byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-');
        if !(1..=KEY_LEN).contains(&key.len()) || !key.bytes().all(fits) {
            let limit = format!("1 to {KEY_LEN} of the characters a-z, 0-9 and -");
            return Err(Trouble::bad("Idempotency-Key", limit));
        }
        Ok(Self {
            account,
            key: key.into(),
            asked,
        })
    }
}

impl Commands {
    /// Starts the box that `describe` tells of, or finds the one that the same request started before, even if it ended
    /// since, and waits until it is ready. A start that fails leaves its key free.
    pub async fn start_once(
        &self,
        key: OnceKey,
        describe: impl FnOnce() -> Result<NewBox, Trouble> + Send + 'static,
    ) -> Result<Arc<View>, Trouble> {
        let commands = self.clone();
        // On its own: a client that hangs up leaves nothing half done to the next one.
        let started = to_its_end(async move { commands.in_turn(key, describe).await });
        let started = tokio::time::timeout(ANSWER_LIMIT, started).await;
        started.unwrap_or_else(|_| {
            Err(Trouble::new(
                Kind::UnderWay,
                "the first request with this Idempotency-Key is still under way; ask again",
            ))
        })
    }

    async fn in_turn(
        &self,
        key: OnceKey,
        describe: impl FnOnce() -> Result<NewBox, Trouble> + Send,
    ) -> Result<Arc<View>, Trouble> {
        let _turn = self.0.turns.take(key.account, &key.key).await?;
        let id = self.claimed(&key).await?;
        let found = || self.0.engine.views().get(id);
        let started = match found() {
            Some(view) if !view.sandbox.is_live() && !failed_to_start(&view) => return Ok(view),
            Some(view) => self.until_started(view).await,
            None => match describe() {
                Ok(new) => self.start_described(NewBox { id, ..new }).await,
                Err(trouble) => Err(trouble),
            },
        };
        if started.is_err() && found().is_none_or(|view| failed_to_start(&view)) {
            let unclaimed = self.beside(move |beside| beside.unclaim(key.account, &key.key, id));
            // Where that fails, too, the next one to ask finds what failed here, and frees the key.
            let _ = unclaimed.await;
        }
        started
    }

    /// The id of the box that the key stands for.
    async fn claimed(&self, key: &OnceKey) -> Result<BoxId, Trouble> {
        let (key, fresh, now) = (key.clone(), random::box_id(), self.0.clock.now());
        let claim = self.beside(move |beside| {
            let OnceKey {
                account,
                key,
                asked,
            } = key;
            beside.claim(account, &key, &asked, fresh, now, now - KEPT_MS)
        });
        match claim.await? {
            Claim::Box(id) => Ok(id),
            Claim::Other => Err(Trouble::new(
                Kind::KeyReused,
                "this Idempotency-Key was used for another request; take a new one for this",
            )),
        }
    }
}

fn failed_to_start(view: &View) -> bool {
    matches!(
        view.sandbox.state,
        State::Stopping {
            end: End::StartFailed(_),
            ..
        } | State::Terminated {
            end: End::StartFailed(_),
            ..
        }
    )
}

/// Which keys are being worked on.
#[derive(Debug)]
pub(super) struct Turns {
    taken: Mutex<HashSet<(AccountId, Arc<str>)>>,
    over: Notify,
    /// Free places for those who wait. A client that asks again and again gives up before the server does.
    places: Semaphore,
}

impl Default for Turns {
    fn default() -> Self {
        Self {
            taken: Mutex::default(),
            over: Notify::default(),
            places: Semaphore::new(MOST_WAITING),
        }
    }
}

impl Turns {
    /// Waits until nobody else works on the key.
    ///
    /// # Errors
    ///
    /// Too many wait already.
    async fn take(self: &Arc<Self>, account: AccountId, key: &Arc<str>) -> Result<Turn, Trouble> {
        let key = (account, Arc::clone(key));
        let _place = self.places.try_acquire().map_err(|_| {
            Trouble::new(
                Kind::Busy,
                format!(
                    "{MOST_WAITING} requests wait for others with their Idempotency-Key already; ask again later"
                ),
            )
        })?;
        loop {
            let over = self.over.notified();
            tokio::pin!(over);
            // Before looking, so that no end in between is missed.
            over.as_mut().enable();
            if self.lock().insert(key.clone()) {
                return Ok(Turn {
                    turns: Arc::clone(self),
                    key,
                });
            }
            over.await;
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashSet<(AccountId, Arc<str>)>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A key is being worked on, until this is dropped.
struct Turn {
    turns: Arc<Turns>,
    key: (AccountId, Arc<str>),
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.turns.lock().remove(&self.key);
        self.turns.over.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Waker};

    use super::*;

    #[tokio::test]
    async fn only_so_many_wait_and_their_places_come_back() {
        let turns = Arc::new(Turns::default());
        let account = AccountId(1);
        let key: Arc<str> = "a".into();
        let first = turns.take(account, &key).await;
        let mut waiting: Vec<_> = (0..MOST_WAITING)
            .map(|_| Box::pin(turns.take(account, &key)))
            .collect();
        let mut now = Context::from_waker(Waker::noop());
        for one in &mut waiting {
            assert!(one.as_mut().poll(&mut now).is_pending());
        }
        let other: Arc<str> = "b".into();
        let refused = turns.take(account, &other).await;
        assert!(refused.is_err_and(|trouble| trouble.text.contains("ask again later")));
        waiting.clear();
        assert!(turns.take(account, &other).await.is_ok());
        drop(first);
    }
}
