//! Starting a box, and bringing a stopped one back (rules 6.5, 14.1). Owns the queue of those who wait for room.

use std::future::Future;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use icebox_lifecycle::state::End;
use icebox_lifecycle::{BoxId, Command, Policy, State, Time};
use icebox_wire::rest::StartRequest;

use super::trouble::{Kind, Trouble};
use super::{Caller, Commands, ask, check};
use crate::engine::{Admitted, Answer, AskError, NewBox, Patch, View};
use crate::random;
use crate::record::Record;

/// How long a start waits for its box; then it answers with the box as it is.
const START_LIMIT: Duration = Duration::from_secs(300);
/// How long a restore waits for a stop to be over.
const RESTORE_LIMIT: Duration = Duration::from_secs(90);
/// Starts that may wait for room at a time.
const MOST_WAITING: usize = 1_000;

impl Commands {
    /// Starts a box and waits until it is ready, unless `wait` is false.
    pub async fn start(
        &self,
        caller: &Caller,
        request: StartRequest,
    ) -> Result<Arc<View>, Trouble> {
        let wait_sec = request.wait_for_capacity_sec.unwrap_or(0);
        if wait_sec > check::CAPACITY_WAIT_MAX_SEC {
            return Err(check::unfit("waitForCapacitySec"));
        }
        check::text("goal", request.goal.as_deref(), check::GOAL_LEN)?;
        check::name(request.name.as_deref())?;
        let patience = Duration::from_secs(u64::from(wait_sec));
        if let Some(id) = &request.restore {
            return self.restore(caller, id, &request, patience).await;
        }
        let wait = request.wait.unwrap_or(true);
        let new = self.new_box(caller, request)?;
        let answer = self
            .with_room(patience, || self.0.engine.create(new.clone()))
            .await
            .map_err(|error| ask(error, new.id))?;
        if wait {
            self.until_started(answer.view).await
        } else {
            Ok(answer.view)
        }
    }

    /// Starts a box that a dialect with words of its own described, and waits until it is ready.
    pub async fn start_described(&self, new: NewBox) -> Result<Arc<View>, Trouble> {
        let answer = self
            .with_room(Duration::ZERO, || self.0.engine.create(new.clone()))
            .await
            .map_err(|error| ask(error, new.id))?;
        self.until_started(answer.view).await
    }

    fn new_box(&self, caller: &Caller, request: StartRequest) -> Result<NewBox, Trouble> {
        check::env(&request.env)?;
        check::metadata(&request.metadata)?;
        if let Some(name) = request.secrets.first() {
            return Err(Trouble::bad(
                "secrets",
                format!("the names of this account's secrets; there is none called `{name}`"),
            ));
        }
        let mut policy = match &request.policy {
            Some(asked) => check::policy(asked, &Policy::AGENT)?,
            None => Policy::AGENT,
        };
        if let Some(ms) = check::idle_timeout(request.idle_timeout_min)? {
            policy.idle_limit_ms = Some(ms);
        }
        let limits = &self.0.config.limits;
        let host = self.0.driver.capabilities();
        let record = Record {
            account: caller.account,
            name: request.name,
            goal: request.goal,
            image: check::image(request.image)?,
            size: check::size(request.size.as_ref(), limits, &host)?,
            env: request.env,
            metadata: request.metadata,
            services: check::services(request.services)?,
            e2b: None,
            private: request.private.unwrap_or(false),
            link_secret: None,
        };
        Ok(NewBox {
            id: random::box_id(),
            record,
            policy: check::valid(policy)?,
            agent: caller.agent.clone(),
        })
    }

    async fn until_started(&self, view: Arc<View>) -> Result<Arc<View>, Trouble> {
        let id = view.id();
        let started = self.until(id, |view| started_or_why_not(view, self.0.clock.now()));
        match tokio::time::timeout(START_LIMIT, started).await {
            Ok(ended) => ended,
            Err(_) => self
                .0
                .engine
                .views()
                .get(id)
                .ok_or_else(|| Trouble::no_such_box(id.as_str())),
        }
    }

    /// Any number of callers may ask at once: one restore, and all of them get the box.
    async fn restore(
        &self,
        caller: &Caller,
        id: &str,
        request: &StartRequest,
        patience: Duration,
    ) -> Result<Arc<View>, Trouble> {
        only_what_a_restore_takes(request)?;
        let id = self.find(caller, id)?.id();
        let bring_back = || self.0.engine.command(id, Command::Restore);
        let limit = patience + RESTORE_LIMIT;
        let taken = tokio::time::timeout(limit, async {
            loop {
                let answer = self.with_room(patience, bring_back).await?;
                if answer.admitted != Admitted::Wait {
                    return Ok(answer);
                }
                self.change_after(&answer.view).await;
            }
        });
        let answer = match taken.await {
            Ok(taken) => taken.map_err(|error| ask(error, id))?,
            Err(_) => {
                return Err(Trouble::new(
                    Kind::Busy,
                    format!("box {id} is still being stopped; try again"),
                ));
            }
        };
        if request.goal.is_some() || request.name.is_some() {
            let patch = Patch {
                goal: request.goal.clone().map(Some),
                name: request.name.clone().map(Some),
                ..Patch::default()
            };
            self.0
                .engine
                .patch(id, patch)
                .await
                .map_err(|error| ask(error, id))?;
        }
        if request.wait.unwrap_or(true) {
            self.until_ready(id).await
        } else {
            Ok(answer.view)
        }
    }

    /// Tries until there is room, in the order of coming, at most for `patience`.
    async fn with_room<F>(
        &self,
        patience: Duration,
        attempt: impl Fn() -> F,
    ) -> Result<Answer, AskError>
    where
        F: Future<Output = Result<Answer, AskError>>,
    {
        let waiting = &self.0.waiting;
        // Whoever does not wait does not overtake those who do.
        if waiting.load(Ordering::Acquire) == 0 {
            match attempt().await {
                Err(AskError::NoCapacity) if !patience.is_zero() => {}
                taken => return taken,
            }
        } else if patience.is_zero() {
            return Err(AskError::NoCapacity);
        }
        if waiting.fetch_add(1, Ordering::AcqRel) >= MOST_WAITING {
            waiting.fetch_sub(1, Ordering::AcqRel);
            return Err(AskError::NoCapacity);
        }
        let _left = scopeguard(|| {
            waiting.fetch_sub(1, Ordering::AcqRel);
        });
        let turn = async {
            let _first = self.0.queue.lock().await;
            let mut room = self.0.engine.views().room();
            loop {
                room.mark_unchanged();
                match attempt().await {
                    Err(AskError::NoCapacity) => {}
                    taken => return taken,
                }
                if room.changed().await.is_err() {
                    return Err(AskError::Closed);
                }
            }
        };
        let taken = tokio::time::timeout(patience, turn).await;
        taken.unwrap_or(Err(AskError::NoCapacity))
    }

    /// Waits until a box is not any more as it was in `view`.
    pub(super) async fn change_after(&self, view: &View) {
        let changed = |now: &Arc<View>| {
            if now.generation == view.generation {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        };
        self.0.engine.views().wait_for(view.id(), changed).await;
    }
}

fn started_or_why_not(view: &Arc<View>, now: Time) -> ControlFlow<Result<Arc<View>, Trouble>> {
    match &view.sandbox.state {
        State::Starting { .. } => ControlFlow::Continue(()),
        State::Stopping {
            end: End::StartFailed(reason),
            ..
        }
        | State::Terminated {
            end: End::StartFailed(reason),
            ..
        } => ControlFlow::Break(Err(start_failed(view.id(), reason))),
        State::Stopping { .. } | State::Terminated { .. } | State::Interrupted { .. } => {
            let ended = Trouble::of_ended(view, now);
            ControlFlow::Break(ended.map_or_else(|| Ok(Arc::clone(view)), Err))
        }
        State::Ready
        | State::Freezing { .. }
        | State::Frozen(_)
        | State::Thawing { .. }
        | State::Releasing { .. } => ControlFlow::Break(Ok(Arc::clone(view))),
    }
}

fn start_failed(id: BoxId, reason: &str) -> Trouble {
    Trouble::new(
        Kind::StartFailed,
        format!("box {id} could not be started: {reason}"),
    )
    .with("box", id.as_str())
    .with("reason", reason)
}

/// A restored box is as it was, so nothing of it can be chosen anew.
fn only_what_a_restore_takes(request: &StartRequest) -> Result<(), Trouble> {
    let chosen = [
        ("image", request.image.is_some()),
        ("size", request.size.is_some()),
        ("env", !request.env.is_empty()),
        ("services", !request.services.is_empty()),
        ("secrets", !request.secrets.is_empty()),
        ("idleTimeoutMin", request.idle_timeout_min.is_some()),
        ("policy", request.policy.is_some()),
        ("metadata", !request.metadata.is_empty()),
        ("private", request.private.is_some()),
    ];
    match chosen.iter().find(|(_, chosen)| *chosen) {
        Some((field, _)) => Err(Trouble::bad(
            field,
            "left out with `restore`: the box comes back as it was (goal and name may be new)",
        )),
        None => Ok(()),
    }
}

/// Does something when it is dropped.
fn scopeguard<F: FnMut()>(undo: F) -> impl Drop {
    struct Guard<F: FnMut()>(F);
    impl<F: FnMut()> Drop for Guard<F> {
        fn drop(&mut self) {
            (self.0)();
        }
    }
    Guard(undo)
}
