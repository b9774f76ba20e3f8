//! What is said of commands that run in a box, or ran.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Answer of `GET /v1/boxes/{id}/procs`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ProcsResponse {
    /// Commands that run, then ended ones that are still known, newest first.
    pub procs: Vec<ProcView>,
    /// The box was only looked at (`look`) and does not run, so that its commands are not known.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub asleep: bool,
    /// What the caller has to know besides: boxes that are about to be stopped (rule 6.4).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notices: Vec<String>,
}

/// One command of a box.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProcView {
    /// Its id.
    pub exec_id: String,
    /// Its command line, cut short.
    pub cmd: String,
    /// Whether it was started in the background.
    pub background: bool,
    /// Whether it still runs.
    pub running: bool,
    /// Its process id in the box, while it runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// How many CPUs it and what it started kept busy just now, to the hundredth; of commands that run, in a list that is no `look`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<f64>,
    /// Its exit code, once it exited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// The signal that ended it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signal: Option<String>,
    /// Whether its deadline ended it.
    pub timed_out: bool,
    /// Why it ended, when it was not by itself and nobody stopped it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_reason: Option<String>,
    /// How long it has run, or ran, in milliseconds.
    pub ms: u64,
    /// Bytes of standard output so far, dropped ones included.
    pub stdout_bytes: u64,
    /// Bytes of standard error so far, dropped ones included.
    pub stderr_bytes: u64,
    /// Where the whole output is.
    pub output_url: String,
    /// What of either stream is not kept any more.
    #[serde(default, skip_serializing_if = "Gaps::is_empty")]
    pub gap: Gaps,
    /// The box cannot be asked: this is what the record says, and sizes of output are not in it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub recorded: bool,
    /// `unknown` when the record does not say how it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<String>,
    /// Why the call that ran it failed, from the record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// What of a command's output was dropped: the middle of a stream that grew too long.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Gaps {
    /// Of its standard output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdout: Option<Gap>,
    /// Of its standard error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stderr: Option<Gap>,
}

impl Gaps {
    /// Whether everything is kept.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Bytes of a stream that are not kept any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Gap {
    /// The offset of the first of them.
    pub from: u64,
    /// The offset of the first one behind them.
    pub to: u64,
}
