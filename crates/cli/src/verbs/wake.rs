//! `icebox wake`: wakes frozen boxes (rules, section 5).

use std::process::ExitCode;

use clap::Args;
use icebox_wire::rest::WakeRequest;

use super::Many;
use crate::client::WORK_LIMIT;
use crate::error::CliError;

/// Wake frozen boxes
///
/// Seldom needed: every call that uses a box wakes it first. Waking is use, so the box stays awake for its idle time.
#[derive(Args)]
#[command(after_help = "\
Examples:
  icebox wake web
  icebox wake --cold web                  its copy is damaged: start anew on its files")]
pub(crate) struct Wake {
    #[command(flatten)]
    pub(super) many: Many,
    /// Give the memory up and start the box anew on its files
    #[arg(long)]
    cold: bool,
}

impl Wake {
    pub(crate) fn run(self) -> Result<ExitCode, CliError> {
        let body = self.cold.then_some(WakeRequest { cold_restart: true });
        self.many.post("wake", body.as_ref(), WORK_LIMIT)
    }
}
