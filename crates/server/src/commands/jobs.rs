//! Waiting for a command with the end of what it wrote, as agents do.

use std::time::Duration;

use connectrpc::client::CallOptions;
use icebox_lifecycle::BoxId;
use icebox_wire::boxd::WaitRequest;
use icebox_wire::rest::ProcView;
use schemars::JsonSchema;
use serde::Serialize;

use super::exec::{QUICK, TAIL_BYTES, proc_view};
use super::trouble::{Kind, Trouble};
use super::{Caller, Commands};
use crate::engine::CallUnderWay;

/// A command that was waited for, whether it ended or not.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Waited {
    /// The command.
    #[serde(flatten)]
    pub proc: ProcView,
    /// The last 16 KB of its standard output, as text.
    pub stdout: String,
    /// The last 16 KB of its standard error.
    pub stderr: String,
    /// Whether either stream is longer than what is here.
    pub truncated: bool,
    /// Whether it is up, when that was waited for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready: Option<bool>,
}

impl Waited {
    /// One that only the record knows: nobody has what it wrote.
    fn of_record(proc: ProcView) -> Self {
        Self {
            proc,
            stdout: String::new(),
            stderr: String::new(),
            truncated: false,
            ready: None,
        }
    }
}

impl Commands {
    /// Waits for a command's end at most `wait`; answers with how it is then.
    pub async fn wait_proc(
        &self,
        caller: &Caller,
        id: &str,
        exec_id: &str,
        wait: Duration,
    ) -> Result<Waited, Trouble> {
        let id = self.find(caller, id)?.id();
        let (call, _) = self.acting(caller, id, false).await?;
        let waited = self.waited(&call, id, exec_id, wait).await;
        match waited {
            Err(trouble) if trouble.kind == Kind::NotFound => {
                let recorded = self.recorded(id, exec_id).await?;
                Ok(Waited::of_record(recorded.ok_or(trouble)?))
            }
            waited => waited,
        }
    }

    /// The same during a call.
    pub(super) async fn waited(
        &self,
        call: &CallUnderWay,
        id: BoxId,
        exec_id: &str,
        wait: Duration,
    ) -> Result<Waited, Trouble> {
        let answer = self
            .ask_daemon(call, id, false, || {
                let client = self.0.boxds.client(id);
                let request = WaitRequest {
                    exec_id: exec_id.to_owned(),
                    wait_ms: u64::try_from(wait.as_millis()).unwrap_or(u64::MAX),
                    tail_bytes: Some(TAIL_BYTES),
                    ..WaitRequest::default()
                };
                let options = CallOptions::default().with_timeout(wait + QUICK);
                async move {
                    let answer = client.wait_with_options(request, options).await?;
                    Ok(answer.into_owned())
                }
            })
            .await?;
        let result = &answer.result;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let mut proc = proc_view(id, &result.proc, crate::clock::machine_now().0);
        self.explain(id, &mut proc).await;
        Ok(Waited {
            proc,
            stdout: text(&result.stdout_tail),
            stderr: text(&result.stderr_tail),
            truncated: result.stdout_truncated || result.stderr_truncated,
            ready: None,
        })
    }
}
