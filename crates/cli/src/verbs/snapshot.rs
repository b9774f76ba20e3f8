//! `icebox snapshot`: what a box is made of, kept to begin new boxes with.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use icebox_wire::rest::{SnapshotList, SnapshotRequest, SnapshotView};
use ureq::http::Method;

use crate::client::{WORK_LIMIT, escaped};
use crate::error::CliError;
use crate::printer::{self, Cell};
use crate::select::box_id;
use crate::settings::Remote;
use crate::text::bytes;

/// Make, list and remove snapshots of boxes
///
/// A snapshot keeps a box's files and, where it can, its memory. It outlives the box; `icebox start --snapshot` begins a
/// new box with it.
#[derive(Args)]
#[command(disable_help_subcommand = true)]
#[command(after_help = "\
Examples:
  icebox snapshot new web --name ready-to-test
  icebox snapshot ls
  icebox start --snapshot ready-to-test   a new box that goes on from there
  icebox snapshot rm ready-to-test")]
pub(crate) struct Snapshot {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    New(New),
    Ls(Ls),
    Rm(Rm),
}

/// Make a snapshot of a box, which stands still for a moment and goes on. Prints its id
#[derive(Args)]
#[command(after_help = "\
Examples:
  icebox snapshot new web --name ready-to-test
  icebox start --snapshot ready-to-test")]
struct New {
    /// Name, id, or beginning of an id
    #[arg(value_name = "BOX")]
    from: String,
    /// A name, perhaps with `:` and a tag; an older snapshot of that name loses it
    #[arg(long)]
    name: Option<String>,
    /// Keep the files alone, not the memory
    #[arg(long)]
    files_only: bool,
    #[command(flatten)]
    remote: Remote,
}

/// List snapshots, the newest first
#[derive(Args)]
struct Ls {
    #[command(flatten)]
    remote: Remote,
}

/// Remove snapshots; boxes made from them stay
#[derive(Args)]
struct Rm {
    /// Ids or names
    #[arg(value_name = "SNAPSHOT", required = true)]
    snapshots: Vec<String>,
    #[command(flatten)]
    remote: Remote,
}

impl Snapshot {
    pub(crate) fn run(self) -> Result<ExitCode, CliError> {
        match self.what {
            What::New(verb) => verb.run(),
            What::Ls(verb) => verb.run(),
            What::Rm(verb) => verb.run(),
        }
    }

    /// Whether errors are wanted as JSON.
    pub(crate) fn json(&self) -> bool {
        match &self.what {
            What::New(verb) => verb.remote.json,
            What::Ls(verb) => verb.remote.json,
            What::Rm(verb) => verb.remote.json,
        }
    }
}

impl New {
    fn run(self) -> Result<ExitCode, CliError> {
        let client = self.remote.client()?;
        let id = box_id(&client, &self.from)?;
        let request = SnapshotRequest {
            name: self.name,
            memory: self.files_only.then_some(false),
        };
        let path = format!("/v1/boxes/{id}/snapshots");
        let answer = client.post(&path, Some(&request), WORK_LIMIT)?;
        if self.remote.json {
            printer::line(&answer.text)?;
            return Ok(ExitCode::SUCCESS);
        }
        let made: SnapshotView = answer.read()?;
        printer::line(&made.id)?;
        let (keeps, size) = (keeps(&made), bytes(made.bytes));
        printer::note(&format!("keeps {keeps}, {size}"));
        Ok(ExitCode::SUCCESS)
    }
}

impl Ls {
    fn run(self) -> Result<ExitCode, CliError> {
        let client = self.remote.client()?;
        let answer = client.get("/v1/snapshots")?;
        if self.remote.json {
            printer::line(&answer.text)?;
            return Ok(ExitCode::SUCCESS);
        }
        let list: SnapshotList = answer.read()?;
        if list.snapshots.is_empty() {
            printer::note("No snapshots. Make one with `icebox snapshot new BOX`.");
            return Ok(ExitCode::SUCCESS);
        }
        let row = |it: &SnapshotView| {
            [
                Cell::plain(&it.id),
                Cell::plain(it.name.as_deref().unwrap_or("-")),
                Cell::plain(&it.source),
                Cell::plain(keeps(it)),
                Cell::plain(&bytes(it.bytes)),
                Cell::plain(&it.created_at.to_string()),
            ]
        };
        let rows: Vec<_> = list.snapshots.iter().map(row).collect();
        printer::table(["ID", "NAME", "BOX", "KEEPS", "SIZE", "MADE"], &rows)?;
        Ok(ExitCode::SUCCESS)
    }
}

impl Rm {
    fn run(self) -> Result<ExitCode, CliError> {
        let client = self.remote.client()?;
        let mut failure = None;
        for snapshot in &self.snapshots {
            let path = format!("/v1/snapshots/{}", escaped(snapshot));
            let removed = client.change(Method::DELETE, &path, None::<&()>);
            // The last one is told by whoever called.
            if let Err(error) = removed
                && let Some(earlier) = failure.replace(error)
            {
                crate::tell(&earlier, self.remote.json);
            }
        }
        failure.map_or(Ok(ExitCode::SUCCESS), Err)
    }
}

fn keeps(snapshot: &SnapshotView) -> &'static str {
    if snapshot.memory {
        "files and memory"
    } else {
        "files"
    }
}
