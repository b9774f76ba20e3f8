//! `icebox tell`: a message of a person to the agent that holds a box, which gets it once.

use std::process::ExitCode;

use clap::Args;
use icebox_wire::rest::{MessageView, MessagesResponse, TextRequest};

use crate::client::READ_LIMIT;
use crate::error::CliError;
use crate::printer::{self, Cell};
use crate::select::box_id;
use crate::settings::Remote;
use crate::words::Now;

/// Leave a message for the agent that holds a box, or list them
///
/// The agent gets it with the result of its next call on the box, once. That wakes nothing and is no use of the box. When
/// another conversation takes the box over first, that one gets it.
#[derive(Args)]
#[command(after_help = "\
Examples:
  icebox tell web 'Use the staging database, please.'
  icebox tell web                         what was left, and whether it arrived")]
pub(crate) struct Tell {
    /// Its name, its id, or the beginning of its id
    #[arg(value_name = "BOX")]
    word: String,
    /// The message, at most 4000 characters
    text: Option<String>,
    #[command(flatten)]
    pub(super) remote: Remote,
}

impl Tell {
    pub(crate) fn run(self) -> Result<ExitCode, CliError> {
        let client = self.remote.client()?;
        let id = box_id(&client, &self.word)?;
        let path = format!("/v1/boxes/{id}/messages");
        if let Some(text) = self.text {
            let answer = client.post(&path, Some(&TextRequest { text }), READ_LIMIT)?;
            if self.remote.json {
                printer::line(&answer.text)?;
            } else {
                answer.read::<MessageView>()?;
                printer::line("It waits for the next call of the agent on this box.")?;
            }
            return Ok(ExitCode::SUCCESS);
        }
        let answer = client.get(&path)?;
        if self.remote.json {
            printer::line(&answer.text)?;
            return Ok(ExitCode::SUCCESS);
        }
        let list: MessagesResponse = answer.read()?;
        if list.messages.is_empty() {
            printer::note("Nothing was left there. Leave something with `icebox tell BOX 'text'`.");
            return Ok(ExitCode::SUCCESS);
        }
        let now = Now::here();
        let rows: Vec<_> = list.messages.iter().map(|one| row(one, &now)).collect();
        printer::table(["LEFT", "ARRIVED", "MESSAGE"], &rows)?;
        Ok(ExitCode::SUCCESS)
    }
}

fn row(message: &MessageView, now: &Now) -> [Cell; 3] {
    let arrived = match message.delivered_at {
        Some(at) => now.ago(at),
        None => "waits".to_owned(),
    };
    [
        Cell::plain(&now.ago(message.at)),
        Cell::plain(&arrived),
        Cell::plain(&message.text),
    ]
}
