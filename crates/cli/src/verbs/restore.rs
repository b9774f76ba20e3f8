//! `icebox restore`: brings a box back that a rule stopped (rule 6.5).

use std::process::ExitCode;

use clap::Args;
use icebox_wire::rest::StartRequest;

use super::queue::{For, telling_place};
use crate::error::CliError;
use crate::select::restorable_id;
use crate::settings::Remote;

/// Bring back a box that the idle rules stopped
///
/// For 24 hours after a rule stopped a frozen box it comes back as it was: id, URLs, files and running programs. A box
/// stopped with `icebox stop` keeps nothing.
#[derive(Args)]
#[command(after_help = "\
Examples:
  icebox ls --all                         what was stopped, and until when it can come back
  icebox restore web")]
pub(crate) struct Restore {
    /// Its name, its id, or the beginning of its id
    #[arg(value_name = "BOX")]
    word: String,
    /// What it is for from now on
    #[arg(long)]
    goal: Option<String>,
    /// Wait this long for room on a full host, 0 to 1800 [default: 0]
    #[arg(long, alias = "wait-for-capacity", value_name = "SEC", value_parser = clap::value_parser!(u32).range(0..=1800))]
    wait_for_capacity_sec: Option<u32>,
    #[command(flatten)]
    pub(super) remote: Remote,
}

impl Restore {
    pub(crate) fn run(self) -> Result<ExitCode, CliError> {
        let client = self.remote.client()?;
        let id = restorable_id(&client, &self.word)?;
        let request = StartRequest {
            restore: Some(id.clone()),
            goal: self.goal,
            wait_for_capacity_sec: self.wait_for_capacity_sec,
            ..StartRequest::default()
        };
        let limit = super::start::limit(self.wait_for_capacity_sec);
        let post = || client.post("/v1/boxes", Some(&request), limit);
        let answer = if self.remote.json {
            post()
        } else {
            telling_place(&client, Some(For::Box(&id)), None, post)
        }?;
        super::show(&answer, &client, &id, self.remote.json)?;
        Ok(ExitCode::SUCCESS)
    }
}
