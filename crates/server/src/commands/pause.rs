//! Pause and resume (rules 15.1 to 15.3): a box that stands still on purpose, and that gets a new end when it comes back.

use std::sync::Arc;

use icebox_lifecycle::policy::Keeps;
use icebox_lifecycle::{BoxId, Command, State};
use tokio::sync::oneshot;

use super::life::{FREEZE_LIMIT, frozen_or_why_not};
use super::trouble::{Kind, Trouble};
use super::{Caller, Commands, ask};
use crate::driver::Egress;
use crate::engine::{Admitted, Patch, Patience, PolicyChange, View};
use crate::record::E2b;

/// How a box was found that somebody wanted to be running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resumed {
    /// It was not paused.
    Ran,
    /// It was paused, and runs.
    Woke,
}

impl Commands {
    /// Pauses a box, whatever holds it. A second time is [`Kind::Paused`].
    pub async fn pause(
        &self,
        caller: &Caller,
        id: &str,
        files_only: bool,
    ) -> Result<Arc<View>, Trouble> {
        let id = self.find(caller, id)?.id();
        let answer = self
            .admitted(id, &Command::Pause { files_only }, Patience::default())
            .await?;
        if answer.admitted == Admitted::AlreadySo {
            let text = format!("box {id} is paused already");
            return Err(Trouble::new(Kind::Paused, text));
        }
        let now = || self.0.clock.now();
        let frozen = self.until(id, |view| frozen_or_why_not(view, now()));
        match tokio::time::timeout(FREEZE_LIMIT, frozen).await {
            Ok(ended) => ended,
            Err(_) => Err(Trouble::new(
                Kind::FreezeFailed,
                format!("box {id} is still being paused; ask for its state"),
            )),
        }
    }

    /// Changes a box's policy.
    pub async fn set_policy(&self, id: BoxId, change: PolicyChange) -> Result<Arc<View>, Trouble> {
        let patch = Patch {
            policy: Some(change),
            ..Patch::default()
        };
        let answer = self.0.engine.patch(id, patch).await;
        Ok(answer.map_err(|error| ask(error, id))?.view)
    }

    /// Changes what the E2B dialect keeps of a box, and what the box may reach outside; answers when that is carried out.
    pub async fn describe_e2b(&self, id: BoxId, e2b: E2b, egress: Egress) -> Result<(), Trouble> {
        let (hears, heard) = oneshot::channel();
        let patch = Patch {
            e2b: Some(Box::new(e2b)),
            egress: Some((egress, hears)),
            ..Patch::default()
        };
        let answer = self.0.engine.patch(id, patch).await;
        answer.map_err(|error| ask(error, id))?;
        self.carried_out(id, heard).await
    }

    /// Changes a box's policy, and wakes it if it is paused; `cold` gives its memory up. A box that froze for being idle
    /// is left alone: it is as good as running.
    pub async fn resume(
        &self,
        id: BoxId,
        change: PolicyChange,
        cold: bool,
    ) -> Result<(Resumed, Arc<View>), Trouble> {
        let view = self.set_policy(id, change).await?;
        if !view.sandbox.is_paused() {
            return Ok((Resumed::Ran, view));
        }
        let files_only = match &view.sandbox.state {
            State::Frozen(frozen) => frozen.keeps() == Keeps::Files,
            State::Freezing { ram_only, .. } => *ram_only,
            State::Starting { .. }
            | State::Ready
            | State::Thawing { .. }
            | State::Releasing { .. }
            | State::Stopping { .. }
            | State::Terminated { .. }
            | State::Interrupted { .. } => false,
        };
        let cold = cold || files_only;
        self.admitted(id, &Command::Wake { cold }, Patience::default())
            .await?;
        let view = self.until_ready(id).await?;
        Ok((Resumed::Woke, view))
    }
}
