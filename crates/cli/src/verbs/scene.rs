//! `icebox scene`: what people see first of a box.

use std::process::ExitCode;

use clap::Args;
use icebox_wire::rest::{BoxView, SceneRequest};

use crate::client::WORK_LIMIT;
use crate::error::CliError;
use crate::printer;
use crate::select::box_id;
use crate::settings::Remote;

/// Choose what people see first of a box
///
/// Its `sceneUrl` then leads there; without a choice that is the first service. A frozen box wakes. Prints the URL.
#[derive(Args)]
#[command(after_help = "\
Examples:
  icebox scene web shop                              its service shop
  icebox scene web http://localhost:3000/admin       a page of it, as programs in it write it
  icebox scene web https://staging.example.com/      any other page")]
pub(crate) struct Scene {
    /// The box: its name, its id, or the beginning of its id
    #[arg(value_name = "BOX")]
    word: String,
    /// One of its services, or a URL
    #[arg(value_name = "SERVICE|URL")]
    shows: String,
    #[command(flatten)]
    pub(super) remote: Remote,
}

impl Scene {
    pub(crate) fn run(self) -> Result<ExitCode, CliError> {
        let client = self.remote.client()?;
        let id = box_id(&client, &self.word)?;
        let request = if self.shows.contains("://") {
            SceneRequest {
                url: Some(self.shows),
                ..SceneRequest::default()
            }
        } else {
            SceneRequest {
                service: Some(self.shows),
                ..SceneRequest::default()
            }
        };
        let answer = client.post(&format!("/v1/boxes/{id}/scene"), Some(&request), WORK_LIMIT)?;
        if self.remote.json {
            printer::line(&answer.text)?;
            return Ok(ExitCode::SUCCESS);
        }
        let view: BoxView = answer.read()?;
        printer::notices(&view.notices);
        printer::line(view.scene_url.as_deref().unwrap_or("It has no URL."))?;
        Ok(ExitCode::SUCCESS)
    }
}
