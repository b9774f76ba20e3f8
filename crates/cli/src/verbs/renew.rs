//! `icebox renew`: gives boxes the daemon of this server's new boxes.

use std::process::ExitCode;

use clap::Args;
use icebox_wire::rest::BoxView;

use super::Many;
use crate::client::WORK_LIMIT;
use crate::error::CliError;

/// Give boxes the daemon that new boxes get
///
/// A box that is woken from its memory goes on with the daemon that it froze with, also after an update of the server. This
/// exchanges it: commands in the box go on, with their output and their deadlines, and calls that wait for them notice
/// nothing but a pause. Terminals go on; streams of E2B's clients end and can be opened again. If the new daemon does not take
/// over, the box keeps the one it has. A frozen box is woken for it; one that has it already is left as it is, and one that
/// starts anew on its files gets it by itself.
#[derive(Args)]
#[command(after_help = "\
Examples:
  icebox status web                       says so where its daemon is older than that of new boxes
  icebox renew web")]
pub(crate) struct Renew {
    #[command(flatten)]
    pub(super) many: Many,
}

impl Renew {
    pub(crate) fn run(self) -> Result<ExitCode, CliError> {
        let besides = Some(what_happened as fn(&BoxView) -> Option<&'static str>);
        self.many.post("renew", None::<&()>, WORK_LIMIT, besides)
    }
}

/// What it came to; of a box that did not run before, nobody knows whether there was anything to do.
fn what_happened(before: &BoxView) -> Option<&'static str> {
    let health = before.health.as_ref()?;
    health.daemon.as_ref()?;
    Some(match health.outdated {
        true => "it has the daemon of new boxes now, and everything in it went on",
        false => "it had the daemon of new boxes already: nothing was done",
    })
}
