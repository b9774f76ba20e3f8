//! Why a command ended that did not end by itself, in words, and what the record says of one whose box is not there to be
//! asked.

use icebox_lifecycle::BoxId;
use icebox_wire::boxd::UNKNOWN_EXIT;
use icebox_wire::rest::ProcView;

use super::exec::output_url;
use super::{Commands, Kind};
use crate::store::StoredStep;

/// What is said of a command that nothing but the record knows: its box began anew without it.
const WITH_ITS_BOX: &str =
    "its box stopped running under it, and began anew from its files if it came back";

/// What is said of one that nobody saw the end of.
const WHILE_RESTARTING: &str =
    "it ended while the box's daemon restarted, and nobody knows how; what it wrote is kept";

/// What a shell exits with when SIGKILL ended its program.
const KILLED: i32 = 137;

impl Commands {
    /// How often programs of a box were ended for want of memory.
    pub(super) async fn memory_kills(&self, id: BoxId) -> u64 {
        self.0.driver.memory_kills(id).await
    }

    /// Why a command that ran since there were `before` such ends did not do well, when that is it.
    pub(super) async fn out_of_memory(&self, id: BoxId, before: u64) -> Option<String> {
        let killed = self.memory_kills(id).await.saturating_sub(before);
        (killed > 0).then(|| self.no_memory_left(id, "while it ran", killed))
    }

    /// Says why a command ended, when it was by a signal that it may owe to the kernel.
    pub(super) async fn explain(&self, id: BoxId, proc: &mut ProcView) {
        if proc.timed_out {
            proc.end_reason = Some("its deadline came".to_owned());
        } else if proc.exit_code == Some(UNKNOWN_EXIT) {
            proc.end_reason = Some(WHILE_RESTARTING.to_owned());
        } else if proc.signal.as_deref() == Some("SIGKILL") || proc.exit_code == Some(KILLED) {
            let killed = self.memory_kills(id).await;
            proc.end_reason =
                (killed > 0).then(|| self.no_memory_left(id, "since the box came up", killed));
        }
    }

    fn no_memory_left(&self, id: BoxId, when: &str, killed: u64) -> String {
        let view = self.0.engine.views().get(id);
        let limit = view.map_or(0, |view| view.record.size.memory_mb);
        format!(
            "the box had no memory left ({limit} MB): {when} the kernel ended {killed} of its programs; \
             use less at a time, or start a box with a larger `size.memoryMb`"
        )
    }
}

/// Whether a box that says this may have commands that only the record knows.
pub(super) fn may_be_recorded(kind: Kind) -> bool {
    let kinds = [
        Kind::BoxGone,
        Kind::Interrupted,
        Kind::NoCredits,
        Kind::WakeFailed,
        Kind::NotFound,
    ];
    kinds.contains(&kind)
}

/// What the record says of a command. Nobody knows more of it, nor what it wrote.
pub(super) fn recorded_view(id: BoxId, exec_id: &str, step: StoredStep) -> ProcView {
    let ending = step.ending;
    let known = ending.exit_code.is_some() || ending.signal.is_some() || ending.timed_out;
    ProcView {
        exec_id: exec_id.to_owned(),
        cmd: step.summary,
        background: step.detail.as_deref() == Some("background"),
        exit_code: ending.exit_code,
        signal: ending.signal,
        timed_out: ending.timed_out,
        ms: ending.ms.unwrap_or(0),
        output_url: output_url(id, exec_id),
        recorded: true,
        end_reason: (!known).then(|| WITH_ITS_BOX.to_owned()),
        outcome: (!known).then(|| "unknown".to_owned()),
        error: ending.error,
        ..ProcView::default()
    }
}
