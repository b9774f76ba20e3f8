//! Tells the engine of requests (rule 3.4), often enough and not more often: a page loads a hundred files in a second, and
//! each would be a commit. Owns what is left out. A hold is never shorter for it, and at most a second longer.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use icebox_lifecycle::time::{Ms, SEC};
use icebox_lifecycle::{BoxId, Event, Time};

use crate::clock::Clock;
use crate::engine::Engine;

/// The longest time between a request and its event.
const MOST_LATE_MS: Ms = SEC;
/// For boxes that freeze soon, this part of their idle time.
const PART: Ms = 20;
/// Boxes that are remembered at a time.
const MOST: usize = 10_000;

/// What was told of each box's requests.
pub(super) struct Activity {
    engine: Engine,
    clock: Clock,
    told: Mutex<HashMap<BoxId, Told>>,
}

#[derive(Clone, Copy)]
struct Told {
    at: Time,
    /// Another one came since; it is told of later.
    more: bool,
}

enum Next {
    Now,
    Later(Ms),
    Nothing,
}

impl Activity {
    pub(super) fn new(engine: Engine, clock: Clock) -> Self {
        Self {
            engine,
            clock,
            told: Mutex::default(),
        }
    }

    /// A request came through. `idle_ms` is how long the box stays awake after it.
    pub(super) async fn request(self: &Arc<Self>, id: BoxId, idle_ms: Option<Ms>) {
        let window = idle_ms.map_or(MOST_LATE_MS, |idle| (idle / PART).clamp(1, MOST_LATE_MS));
        match self.next(id, window) {
            Next::Now => self.tell(id).await,
            Next::Later(ms) => {
                let activity = Arc::clone(self);
                tokio::spawn(async move {
                    tokio::time::sleep(Duration::from_millis(ms.unsigned_abs())).await;
                    let now = activity.clock.now();
                    activity.lock().insert(
                        id,
                        Told {
                            at: now,
                            more: false,
                        },
                    );
                    activity.tell(id).await;
                });
            }
            Next::Nothing => {}
        }
    }

    fn next(&self, id: BoxId, window: Ms) -> Next {
        let now = self.clock.now();
        let mut told = self.lock();
        if told.len() >= MOST {
            told.retain(|_, told| told.more || now.since(told.at) < window);
        }
        match told.get_mut(&id) {
            // Told of this very moment: once more changes nothing.
            Some(told) if now == told.at || told.more => Next::Nothing,
            Some(told) if now.since(told.at) < window => {
                told.more = true;
                Next::Later(window - now.since(told.at))
            }
            Some(_) | None => {
                told.insert(
                    id,
                    Told {
                        at: now,
                        more: false,
                    },
                );
                Next::Now
            }
        }
    }

    async fn tell(&self, id: BoxId) {
        // The engine is gone only when the server ends.
        let _ = self.engine.tell(id, Event::UrlRequest).await;
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<BoxId, Told>> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
