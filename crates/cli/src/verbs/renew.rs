//! `icebox renew`: gives boxes the daemon of this server's new boxes.

use std::process::ExitCode;

use clap::Args;

use super::Many;
use crate::client::WORK_LIMIT;
use crate::error::CliError;

/// Give boxes the daemon that new boxes get
///
/// A box that is woken from its memory goes on with the daemon that it froze with, also after an update of the server. This
/// exchanges it: commands in the box go on, with their output and their deadlines, and calls that wait for them notice
/// nothing. Terminals are connected again; streams of E2B's clients end and can be opened again. It wakes a frozen box.
#[derive(Args)]
#[command(after_help = "\
Examples:
  icebox renew web
  icebox renew $(icebox ls -q)            all of them, after an update of the server")]
pub(crate) struct Renew {
    #[command(flatten)]
    pub(super) many: Many,
}

impl Renew {
    pub(crate) fn run(self) -> Result<ExitCode, CliError> {
        self.many.post("renew", None::<&()>, WORK_LIMIT, None)
    }
}
