//! Requests into a box by somebody who has a token of the box instead of its owner's key. Each is a call like any other; what
//! its client leaves running behind is a background command.

use icebox_lifecycle::{BoxId, CallKind};

use super::trouble::Trouble;
use super::{Commands, ask, wait};
use crate::boxd::label;
use crate::engine::CallUnderWay;

impl Commands {
    /// Begins a call on a box, and waits until it is ready.
    pub async fn reach(&self, id: BoxId) -> Result<CallUnderWay, Trouble> {
        let began = self.0.engine.begin_call(id, CallKind::Acts, false, None);
        let (call, answer) = began.await.map_err(|error| ask(error, id))?;
        if !wait::is_ready(&answer.view) {
            self.until_ready(id).await?;
        }
        Ok(call)
    }

    /// Takes notice of the commands that go on in a box after the client of one hung up (rule 4.3).
    pub async fn left_alone(&self, id: BoxId) {
        // A box that stopped running meanwhile is looked at when it runs again.
        let Ok(procs) = self.0.boxds.procs(id).await else {
            return;
        };
        for proc in procs.iter().filter(|proc| proc.running) {
            self.background_began(id, &proc.exec_id, label(&proc.cmd))
                .await;
        }
    }
}
