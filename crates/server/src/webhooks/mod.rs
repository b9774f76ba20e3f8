//! Webhooks: the events of the outbox, posted to the endpoints that an account names. Owns who is sent what, in which
//! order, and how long it is tried; knows no REST and no SQL, and changes no box.
//!
//! - At least once: an event waits in the database from the transaction that moves the webhook's position past it until
//!   an endpoint took it, or until it is a day old and was tried three times. A message keeps its `webhook-id` at every
//!   try, so that an endpoint can tell a repeat.
//! - In order for each box: a later event of a box is sent after the earlier one was taken or given up. Boxes do not wait
//!   for each other.
//! - Signed as the Standard Webhooks convention has it: `webhook-signature` is `v1,` and the base64 of HMAC-SHA256, under
//!   the secret's bytes, over `<webhook-id>.<webhook-timestamp>.<body>`. An endpoint makes the same, compares in constant
//!   time, and refuses timestamps that are more than five minutes off.
//! - Waits between tries are by the server's clock, so a test clock moves them; limits on the network and
//!   `webhook-timestamp` are by the machine's.
//!
//! A dead endpoint costs one place among the [`dispatch::ALL`] tries under way, and all dead ones together at most half.

mod ask;
mod attempt;
mod backoff;
mod dispatch;
mod message;
mod secret;

use std::sync::Arc;

use tokio::sync::{Semaphore, watch};

use crate::commands::{Commands, Trouble};
use crate::outside::{Dialer, Reach};
use crate::record::AccountId;
use crate::store::{Hooks, StoreError};

pub use ask::Tested;
pub use message::delivery_id;
pub use secret::Secret;

/// Tests under way at a time, of all accounts together.
const TESTS: usize = 8;

/// The webhooks of a server. Clones are the same ones.
#[derive(Clone)]
pub struct Webhooks(Arc<Shared>);

/// What requests about webhooks and deliveries have in common.
struct Shared {
    commands: Commands,
    hooks: Arc<Hooks>,
    dialer: Dialer,
    /// Whose webhooks may go to private addresses.
    reach: Reach,
    /// Changes when a webhook does.
    changed: watch::Sender<u64>,
    tests: Semaphore,
}

impl Webhooks {
    /// Puts them together and begins to deliver, until the server ends.
    #[must_use]
    pub fn start(commands: Commands, hooks: Hooks, reach: Reach) -> Self {
        let shared = Arc::new(Shared {
            commands,
            reach,
            hooks: Arc::new(hooks),
            dialer: Dialer::default(),
            changed: watch::Sender::new(0),
            tests: Semaphore::new(TESTS),
        });
        tokio::spawn(dispatch::run(Arc::clone(&shared)));
        Self(shared)
    }
}

impl Shared {
    /// Does something with the tables, off the threads for requests.
    async fn with<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Hooks) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let hooks = Arc::clone(&self.hooks);
        match tokio::task::spawn_blocking(move || work(&hooks)).await {
            Ok(done) => done,
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        }
    }

    /// Whether an account's webhooks may go to addresses that are not on the public internet.
    fn private_too(&self, account: AccountId) -> bool {
        self.reach.private_too(account)
    }
}

fn internal(error: StoreError) -> Trouble {
    Trouble::internal(&error)
}
