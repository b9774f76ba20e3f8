//! `icebox kill`: ends a command in a box (rule 12.1 ends it the same way at its deadline).

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use icebox_wire::rest::ProcView;

use super::{logs, ps};
use crate::client::WORK_LIMIT;
use crate::error::CliError;
use crate::printer;
use crate::select::box_id;
use crate::settings::Remote;

/// End a command in a box
///
/// It and what it started are asked to end (SIGTERM), and ended for sure (SIGKILL) when --grace is over. What it wrote is
/// kept: `icebox logs` shows it. The box goes on; `icebox stop` ends a box. Safe to repeat.
#[derive(Args)]
#[command(after_help = "\
Examples:
  icebox ps web                           what runs, with its id
  icebox kill web 3f
  icebox kill web 3f --grace 30           it may take half a minute to put things in order
  icebox kill web 3f --grace 0            at once")]
pub(crate) struct Kill {
    /// Its name, its id, or the beginning of its id
    #[arg(value_name = "BOX")]
    word: String,
    /// The command's id, or the beginning of it
    #[arg(value_name = "EXEC")]
    exec: String,
    /// How long it may take to end by itself, 0 to 60 [default: 2]
    #[arg(long, value_name = "SEC", value_parser = clap::value_parser!(u32).range(0..=60))]
    grace: Option<u32>,
    #[command(flatten)]
    pub(super) remote: Remote,
}

impl Kill {
    pub(crate) fn run(self) -> Result<ExitCode, CliError> {
        let client = self.remote.client()?;
        let id = box_id(&client, &self.word)?;
        let (list, _) = client.procs(&id)?;
        let proc = logs::choose(&list.procs, Some(&self.exec))?;
        let mut path = format!("/v1/boxes/{id}/procs/{}/stop", proc.exec_id);
        if let Some(grace) = self.grace {
            path.push_str(&format!("?graceSec={grace}"));
        }
        let grace = Duration::from_secs(u64::from(self.grace.unwrap_or_default()));
        let answer = client.post(&path, None::<&()>, WORK_LIMIT + grace)?;
        let ended: ProcView = answer.read()?;
        if self.remote.json {
            printer::line(&answer.text)?;
        } else {
            printer::line(&format!("{}: {}", ended.exec_id, ps::state(&ended)))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}
