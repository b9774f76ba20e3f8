//! `icebox fork`: new boxes that go on from where one is, while it runs on itself.

use std::process::ExitCode;

use clap::Args;
use icebox_wire::rest::{ForkRequest, ForkResponse};

use crate::client::WORK_LIMIT;
use crate::error::CliError;
use crate::printer;
use crate::select::box_id;
use crate::settings::Remote;
use crate::text::printable;
use crate::words::{self, Now};

/// Fork a box: new boxes with its files, memory and running programs
///
/// The box itself stands still for a moment and runs on. Prints the ids of the new boxes, one a line.
#[derive(Args)]
#[command(after_help = "\
Examples:
  icebox fork web
  icebox fork web --count 3 --name try    try 1, try 2, try 3
  for box in $(icebox fork web -n 2); do icebox exec $box -- npm test; done")]
pub(crate) struct Fork {
    /// Name, id, or beginning of an id
    #[arg(value_name = "BOX")]
    from: String,
    /// How many, 1 to 20
    #[arg(short = 'n', long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=20))]
    count: u32,
    /// A name for people; several get a number behind it [default: the box's own]
    #[arg(long)]
    name: Option<String>,
    #[command(flatten)]
    pub(super) remote: Remote,
}

impl Fork {
    pub(crate) fn run(self) -> Result<ExitCode, CliError> {
        let client = self.remote.client()?;
        let id = box_id(&client, &self.from)?;
        let request = ForkRequest {
            count: Some(self.count),
            name: self.name,
        };
        let path = format!("/v1/boxes/{id}/fork");
        let answer = client.post(&path, Some(&request), WORK_LIMIT)?;
        let forked: ForkResponse = answer.read()?;
        if self.remote.json {
            printer::line(&answer.text)?;
        }
        let mut failed = false;
        for fork in &forked.forks {
            if let Some(error) = &fork.error {
                failed = true;
                printer::note(&format!("icebox: {}", printable(&error.error)));
            }
            if let Some(view) = fork.made.as_ref().filter(|_| !self.remote.json) {
                printer::line(&view.id)?;
                printer::note(&words::about(view, &Now::here()));
            }
        }
        Ok(if failed {
            ExitCode::FAILURE
        } else {
            ExitCode::SUCCESS
        })
    }
}
