//! `icebox ls`: the boxes there are, each with what it is doing, in words. A read: it wakes nothing.

use std::process::ExitCode;

use clap::Args;
use icebox_wire::rest::{BoxView, ListResponse};

use crate::client::list_path;
use crate::error::CliError;
use crate::printer::{self, Cell};
use crate::settings::Remote;
use crate::words::{self, Now};

/// List boxes: why each is awake, when it freezes and when it stops
///
/// Most recently used first. Times are this machine's. Looking wakes nothing and is no use.
#[derive(Args)]
#[command(after_help = "\
Examples:
  icebox ls
  icebox ls --all                         stopped ones of the last 7 days too
  icebox ls --json | jq -r '.boxes[].id'")]
pub(crate) struct Ls {
    /// Stopped boxes of the last 7 days too
    #[arg(short, long)]
    all: bool,
    /// Only the ids, one a line
    #[arg(short, long, conflicts_with = "json")]
    quiet: bool,
    /// How many at most
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..))]
    limit: u16,
    /// Go on after a page, with what that page said
    #[arg(long, default_value = "", hide_default_value = true)]
    cursor: String,
    #[command(flatten)]
    pub(super) remote: Remote,
}

impl Ls {
    pub(crate) fn run(self) -> Result<ExitCode, CliError> {
        let client = self.remote.client()?;
        let answer = client.get(&list_path(self.all, self.limit.into(), &self.cursor))?;
        if self.remote.json {
            printer::line(&answer.text)?;
            return Ok(ExitCode::SUCCESS);
        }
        let page: ListResponse = answer.read()?;
        if self.quiet {
            page.boxes
                .iter()
                .try_for_each(|view| printer::line(&view.id))?;
        } else if page.boxes.is_empty() {
            printer::note("No boxes. Start one with `icebox start`.");
        } else {
            table(&page.boxes)?;
        }
        if let Some(slots) = page.slots.filter(|_| !self.quiet) {
            printer::note(&words::slots(&slots));
        }
        if let Some(cursor) = page.next_cursor {
            printer::note(&format!("There are more: --cursor {cursor}"));
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn table(boxes: &[BoxView]) -> Result<(), CliError> {
    let now = Now::here();
    let rows: Vec<_> = boxes
        .iter()
        .map(|view| {
            [
                Cell::plain(&view.id),
                Cell::plain(view.name.as_deref().unwrap_or("-")),
                Cell::styled(printer::status_style(view.status), view.status.as_str()),
                Cell::plain(&words::about(view, &now)),
            ]
        })
        .collect();
    printer::table(["ID", "NAME", "STATUS", "WHAT"], &rows)
}
