//! Waiting for a box to become what a call needs, within limits. Owns what a wait ends with when the box becomes something
//! else instead.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use icebox_lifecycle::State;
use icebox_lifecycle::state::FreezeCause;
use icebox_lifecycle::{BoxId, Time};

use super::Commands;
use super::trouble::{ADD_CREDITS, Kind, Trouble};
use crate::engine::View;

/// How long a call waits for a box to wake (rule 4.7); real time, whatever the test clock says.
const WAKE_LIMIT: Duration = Duration::from_secs(90);

/// Whether calls can run in it.
pub(super) fn is_ready(view: &View) -> bool {
    view.sandbox.state == State::Ready
}

impl Commands {
    /// Waits until the box is ready; a call or a wake has to have come before, so that it is on its way.
    pub(super) async fn until_ready(&self, id: BoxId) -> Result<Arc<View>, Trouble> {
        let now = || self.0.clock.now();
        let wait = self.until(id, |view| ready_or_why_not(view, now()));
        match tokio::time::timeout(WAKE_LIMIT, wait).await {
            Ok(ended) => ended,
            Err(_) => Err(Trouble::new(
                Kind::WakeFailed,
                format!(
                    "box {id} was not awake after {} s; it goes on waking, try again",
                    WAKE_LIMIT.as_secs()
                ),
            )),
        }
    }

    /// Waits until `check` breaks; a box that is forgotten meanwhile is not found.
    pub(super) async fn until<T>(
        &self,
        id: BoxId,
        check: impl FnMut(&Arc<View>) -> ControlFlow<Result<T, Trouble>>,
    ) -> Result<T, Trouble> {
        let waited = self.0.engine.views().wait_for(id, check).await;
        waited.unwrap_or_else(|| Err(Trouble::no_such_box(id.as_str())))
    }
}

fn ready_or_why_not(view: &Arc<View>, now: Time) -> ControlFlow<Result<Arc<View>, Trouble>> {
    let id = view.id();
    match &view.sandbox.state {
        State::Ready => ControlFlow::Break(Ok(Arc::clone(view))),
        State::Starting { .. }
        | State::Freezing { .. }
        | State::Thawing { .. }
        | State::Releasing { .. } => ControlFlow::Continue(()),
        State::Frozen(frozen) if frozen.wake => ControlFlow::Continue(()),
        State::Frozen(frozen) => ControlFlow::Break(Err(match &frozen.wake_error {
            Some(reason) => Trouble::new(
                Kind::WakeFailed,
                format!(
                    "box {id} could not be woken: {reason}; it is frozen as before, try again, \
                     or wake it with `\"coldRestart\": true` to go on from its files alone"
                ),
            )
            .with("reason", &**reason),
            None => frozen_under(view, frozen.cause),
        })),
        State::Stopping { .. } | State::Terminated { .. } | State::Interrupted { .. } => {
            let ended = Trouble::of_ended(view, now);
            ControlFlow::Break(Err(
                ended.unwrap_or_else(|| Trouble::no_such_box(id.as_str()))
            ))
        }
    }
}

/// A box that was frozen although a call was waiting for it or under way.
pub(super) fn frozen_under(view: &View, cause: FreezeCause) -> Trouble {
    let id = view.id();
    // Whatever it was frozen for, the credits are what keeps it so.
    if !view.sandbox.credits {
        return no_credits(id);
    }
    match cause {
        FreezeCause::NoCredits => no_credits(id),
        FreezeCause::Lifetime => Trouble::new(
            Kind::LifetimeOver,
            format!("box {id} was frozen at the end of its lifetime; extend it first"),
        ),
        FreezeCause::Idle | FreezeCause::Asked => Trouble::new(
            Kind::WakeFailed,
            format!("box {id} was frozen again before the call could run; try again"),
        ),
    }
}

/// A box that was frozen for want of credits.
pub(super) fn no_credits(id: BoxId) -> Trouble {
    Trouble::new(
        Kind::NoCredits,
        format!(
            "box {id} was frozen because the account is out of credits; {ADD_CREDITS} and wake it: commands in it go on then"
        ),
    )
    .with("box", id.as_str())
}
