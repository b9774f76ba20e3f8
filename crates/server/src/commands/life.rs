//! Freeze, wake, stop and change a box. Each is safe to repeat, and answers when it has taken effect or when its limit is
//! over.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use icebox_lifecycle::policy::Policy;
use icebox_lifecycle::{BoxId, Command, State, Time};
use icebox_wire::rest::{PatchRequest, WakeRequest};
use tokio::sync::oneshot;

use super::trouble::{Kind, Trouble};
use super::{Caller, Commands, ask, check, room, to_its_end};
use crate::driver::DriverError;
use crate::engine::{Admitted, Answer, Patch, Patience, PolicyChange, View};

/// How long a freeze call waits for the copy.
pub(super) const FREEZE_LIMIT: Duration = Duration::from_secs(900);
/// How long a stop call waits; what is left by then goes on being removed.
const STOP_LIMIT: Duration = Duration::from_secs(120);
/// How long a command waits for a state that admits it.
const ADMISSION_LIMIT: Duration = Duration::from_secs(120);

impl Commands {
    /// Freezes a box now (rule 4.6).
    pub async fn freeze(&self, caller: &Caller, id: &str) -> Result<Arc<View>, Trouble> {
        let id = self.find(caller, id)?.id();
        self.admitted(id, &Command::Freeze, Patience::default())
            .await?;
        let now = || self.0.clock.now();
        let frozen = self.until(id, |view| frozen_or_why_not(view, now()));
        match tokio::time::timeout(FREEZE_LIMIT, frozen).await {
            Ok(ended) => ended,
            Err(_) => Err(Trouble::new(
                Kind::FreezeFailed,
                format!("box {id} is still being frozen; ask for its status"),
            )),
        }
    }

    /// Wakes a box; with `coldRestart` from its files alone (rules 5.1, 5.7).
    pub async fn wake(
        &self,
        caller: &Caller,
        id: &str,
        request: &WakeRequest,
    ) -> Result<Arc<View>, Trouble> {
        let patience = check::patience(request.wait_for_capacity_sec)?;
        let id = self.find(caller, id)?.id();
        let cold = request.cold_restart;
        self.admitted(id, &Command::Wake { cold }, patience).await?;
        self.until_ready(id).await
    }

    /// Gives a box the daemon that new boxes get, where it has another one; otherwise this is no use of it and wakes nothing. What
    /// runs in it goes on; calls that wait are made again.
    pub async fn renew(&self, caller: &Caller, id: &str) -> Result<Arc<View>, Trouble> {
        let view = self.find(caller, id)?;
        if let Some(ended) = Trouble::of_ended(&view, self.0.clock.now()) {
            return Err(ended);
        }
        let id = view.id();
        if !self.0.driver.is_outdated(id).await {
            return Ok(view);
        }
        let (commands, caller) = (self.clone(), caller.clone());
        to_its_end(async move {
            let (call, answer) = commands.acting(&caller, id, true).await?;
            let renewed = commands.0.driver.renew(id).await;
            call.end().await;
            let Err(error) = renewed else {
                return Ok(answer.view);
            };
            let ended = match error {
                DriverError::Gone(_) => commands.what_happened(id).await,
                DriverError::Refused(_) | DriverError::Failed(_) => None,
            };
            Err(ended.unwrap_or_else(|| {
                let words = format!(
                    "the daemon of box {id} was not renewed; all in the box goes on: {error}"
                );
                Trouble::new(Kind::RenewFailed, words)
            }))
        })
        .await
    }

    /// Stops a box for good (rules 6.6, 6.9).
    pub async fn stop(&self, caller: &Caller, id: &str) -> Result<Arc<View>, Trouble> {
        let id = self.find(caller, id)?.id();
        let answer = self
            .admitted(id, &Command::Stop, Patience::default())
            .await?;
        let gone = self.until(id, |view| match &view.sandbox.state {
            State::Terminated { kept: None, .. } => ControlFlow::Break(Ok(Arc::clone(view))),
            State::Terminated { kept: Some(_), .. }
            | State::Starting { .. }
            | State::Ready
            | State::Freezing { .. }
            | State::Frozen(_)
            | State::Thawing { .. }
            | State::Releasing { .. }
            | State::Stopping { .. }
            | State::Interrupted { .. } => ControlFlow::Continue(()),
        });
        match tokio::time::timeout(STOP_LIMIT, gone).await {
            Ok(ended) => ended,
            Err(_) => Ok(self.0.engine.views().get(id).unwrap_or(answer.view)),
        }
    }

    /// Changes a box's names and limits; it is not use and wakes nothing (rule 3.5).
    pub async fn patch(
        &self,
        caller: &Caller,
        id: &str,
        request: PatchRequest,
    ) -> Result<Arc<View>, Trouble> {
        let view = self.find(caller, id)?;
        let id = view.id();
        if let Some(ended) = Trouble::of_ended(&view, self.0.clock.now()) {
            return Err(ended);
        }
        check::name(request.name.as_ref().and_then(Option::as_deref))?;
        let goal = request.goal.as_ref().and_then(Option::as_deref);
        check::text("goal", goal, check::GOAL_LEN)?;
        let limit = match request.idle_timeout_min {
            Some(minutes) => Some(check::idle_timeout(minutes)?),
            None => None,
        };
        if let Some(asked) = &request.policy {
            check::policy(asked, &view.sandbox.policy)?;
        }
        let asked = request.policy;
        let policy: Option<PolicyChange> =
            (asked.is_some() || limit.is_some()).then(|| -> PolicyChange {
                Box::new(move |before: &Policy| {
                    let mut policy = before.clone();
                    if let Some(asked) = asked {
                        // It was checked against the policy of a moment ago; what does not fit any more stays.
                        let idle = policy.idle_limit_ms;
                        policy = check::policy(&asked, before).unwrap_or(policy);
                        policy.idle_limit_ms = idle;
                    }
                    if let Some(limit) = limit {
                        policy.idle_limit_ms = limit;
                    }
                    policy
                })
            });
        let (hears, heard) = oneshot::channel();
        let egress = request.egress.as_ref();
        let egress = egress.map(|asked| self.egress(view.record.account, asked));
        let egress = egress.transpose()?.map(|egress| (egress, hears));
        let changes_egress = egress.is_some();
        let patch = Patch {
            name: request.name,
            goal: request.goal,
            policy,
            keep: request.keep,
            e2b: None,
            private: request.private,
            egress,
            link_secret: None,
            wiring: None,
        };
        let answer = self.0.engine.patch(id, patch).await;
        let answer = answer.map_err(|error| ask(error, id))?;
        if changes_egress {
            self.carried_out(id, heard).await?;
            return Ok(self.0.engine.views().get(id).unwrap_or(answer.view));
        }
        Ok(answer.view)
    }

    /// Asks again and again until the state admits it.
    pub(super) async fn admitted(
        &self,
        id: BoxId,
        command: &Command,
        patience: Patience,
    ) -> Result<Answer, Trouble> {
        let limit = room::limit(&patience) + ADMISSION_LIMIT;
        let engine = self.0.engine.patient(patience);
        let asking = async {
            loop {
                let answer = engine.command(id, command.clone()).await;
                let answer = answer.map_err(|error| ask(error, id))?;
                if answer.admitted != Admitted::Wait {
                    return Ok(answer);
                }
                self.change_after(&answer.view).await;
            }
        };
        match tokio::time::timeout(limit, asking).await {
            Ok(ended) => ended,
            Err(_) => Err(Trouble::new(
                Kind::Busy,
                format!(
                    "box {id} was in no state for that for {} s; try again",
                    ADMISSION_LIMIT.as_secs()
                ),
            )),
        }
    }
}

pub(super) fn frozen_or_why_not(
    view: &Arc<View>,
    now: Time,
) -> ControlFlow<Result<Arc<View>, Trouble>> {
    let id = view.id();
    match &view.sandbox.state {
        State::Freezing { .. } | State::Starting { .. } => ControlFlow::Continue(()),
        // Its memory is being given back: the answer says where it ends up.
        State::Frozen(frozen) if frozen.evicting.is_some() && !frozen.wake => {
            ControlFlow::Continue(())
        }
        State::Frozen(_) => ControlFlow::Break(Ok(Arc::clone(view))),
        State::Thawing { .. } | State::Releasing { wake: true, .. } => {
            ControlFlow::Break(Err(used_meanwhile(id)))
        }
        State::Releasing { wake: false, .. } => ControlFlow::Continue(()),
        State::Ready => ControlFlow::Break(match &view.sandbox.freeze_failure {
            Some(failure) => Err(Trouble::new(
                Kind::FreezeFailed,
                format!(
                    "box {id} could not be frozen and runs on: {}",
                    failure.reason
                ),
            )
            .with("reason", &*failure.reason)),
            None if view.sandbox.after_phones.is_some() => return ControlFlow::Continue(()),
            None => Err(used_meanwhile(id)),
        }),
        State::Stopping { .. } | State::Terminated { .. } | State::Interrupted { .. } => {
            let ended = Trouble::of_ended(view, now);
            ControlFlow::Break(ended.map_or_else(|| Ok(Arc::clone(view)), Err))
        }
    }
}

fn used_meanwhile(id: BoxId) -> Trouble {
    Trouble::new(
        Kind::InUse,
        format!(
            "box {id} was used while it was being frozen, so it runs on; freeze it again once nobody uses it"
        ),
    )
}
