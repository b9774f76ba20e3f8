//! `icebox stop`: stops boxes for good (rule 6.6).

use std::process::ExitCode;

use clap::Args;

use super::Many;
use crate::client::WORK_LIMIT;
use crate::error::CliError;

/// Stop boxes for good; their files go with them
///
/// A box stopped this way cannot be restored. To keep it, freeze it. A frozen box is not woken for it. Safe to repeat.
#[derive(Args)]
#[command(after_help = "\
Examples:
  icebox stop web
  icebox stop $(icebox ls -q)             all of them")]
pub(crate) struct Stop {
    #[command(flatten)]
    pub(super) many: Many,
}

impl Stop {
    pub(crate) fn run(self) -> Result<ExitCode, CliError> {
        self.many.post("stop", None::<&()>, WORK_LIMIT)
    }
}
