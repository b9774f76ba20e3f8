//! `icebox freeze`: freezes boxes now, memory and all (rules, section 4).

use std::process::ExitCode;

use clap::Args;

use super::Many;
use crate::client::WORK_LIMIT;
use crate::error::CliError;

/// Freeze boxes now, memory and all
///
/// Everything in the box stops, its memory is written to disk and given back. Where that is not possible the box stands
/// still in RAM. The next call that uses the box wakes it, and everything goes on where it was. Safe to repeat.
#[derive(Args)]
#[command(after_help = "\
Examples:
  icebox freeze web
  icebox freeze $(icebox ls -q)           all of them")]
pub(crate) struct Freeze {
    #[command(flatten)]
    pub(super) many: Many,
}

impl Freeze {
    pub(crate) fn run(self) -> Result<ExitCode, CliError> {
        self.many.post("freeze", None::<&()>, WORK_LIMIT, None)
    }
}
