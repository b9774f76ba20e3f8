//! `icebox project`: what apps log. Owns the verbs below it that make and change projects; reading is in `logs`, source maps
//! are in `maps`.

mod logs;
mod maps;

use std::process::ExitCode;

use clap::{Args, Subcommand};
use icebox_wire::rest::{ProjectMade, ProjectRequest, ProjectView, ProjectsResponse};
use ureq::http::Method;

use crate::client::READ_LIMIT;
use crate::error::CliError;
use crate::printer::{self, Cell};
use crate::settings::Remote;
use crate::text::{bytes, printable};
use crate::words::Now;

/// Collect what your apps log, and search it
///
/// A project has a write key, with which pages and programs send what they log; a page does so with one line:
/// `<script src="https://ICEBOX/logs.js" data-key="psw_…" data-release="1.2"></script>`. With the source maps of a release,
/// stacks of errors name the original files and lines. Rows are kept for 7 days unless the server's settings say otherwise.
/// This is not what a command in a box writes: `icebox logs` shows that.
#[derive(Args)]
#[command(after_help = "\
Examples:
  icebox project add shop                                    pages at the boxes' URLs may send
  icebox project add shop --origin https://shop.example
  icebox project maps shop dist --release 1.2
  icebox project logs shop --follow
  icebox project logs shop --errors --since 2d
  icebox project logs shop '{ $.level = \"error\" && $.url = \"*/cart\" }'

A program without a browser:
  curl -H \"Authorization: Bearer psw_…\" -d '{\"events\": [{\"msg\": \"done\"}]}' http://127.0.0.1:7070/v1/logs")]
pub(crate) struct Project {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    Add(Add),
    Ls(Ls),
    Rotate(Rotate),
    Rm(Rm),
    Maps(maps::Maps),
    Logs(logs::Logs),
}

impl Project {
    pub(crate) fn run(self) -> Result<ExitCode, CliError> {
        match self.what {
            What::Add(verb) => verb.run(),
            What::Ls(verb) => verb.run(),
            What::Rotate(verb) => verb.run(),
            What::Rm(verb) => verb.run(),
            What::Maps(verb) => verb.run(),
            What::Logs(verb) => verb.run(),
        }
    }

    pub(super) fn json(&self) -> bool {
        match &self.what {
            What::Add(verb) => verb.remote.json,
            What::Ls(verb) => verb.remote.json,
            What::Rotate(verb) => verb.remote.json,
            What::Rm(verb) => verb.remote.json,
            What::Maps(verb) => verb.remote.json,
            What::Logs(verb) => verb.remote.json,
        }
    }
}

/// Add a project; its write key is shown this once
#[derive(Args)]
struct Add {
    /// Its name: letters, digits, spaces and `._-`
    name: String,
    /// An origin whose pages may send, as in `https://shop.example` or `https://*.shop.example`; may be given several times
    /// [default: the boxes' URLs]
    #[arg(long = "origin", value_name = "ORIGIN")]
    origins: Vec<String>,
    #[command(flatten)]
    remote: Remote,
}

impl Add {
    fn run(self) -> Result<ExitCode, CliError> {
        let request = ProjectRequest {
            name: self.name,
            origins: self.origins,
        };
        let client = self.remote.client()?;
        let answer = client.post("/v1/projects", Some(&request), READ_LIMIT)?;
        if self.remote.json {
            printer::line(&answer.text)?;
        } else {
            told(&answer.read()?)?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// List projects
#[derive(Args)]
struct Ls {
    #[command(flatten)]
    remote: Remote,
}

impl Ls {
    fn run(self) -> Result<ExitCode, CliError> {
        let answer = self.remote.client()?.get("/v1/projects")?;
        if self.remote.json {
            printer::line(&answer.text)?;
            return Ok(ExitCode::SUCCESS);
        }
        let list: ProjectsResponse = answer.read()?;
        if list.projects.is_empty() {
            printer::note("No projects. Add one with `icebox project add NAME`.");
            return Ok(ExitCode::SUCCESS);
        }
        let now = Now::here();
        let rows: Vec<_> = list.projects.iter().map(|view| row(view, &now)).collect();
        printer::table(["ID", "NAME", "MADE", "LOGGED", "ORIGINS"], &rows)?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Give a project another write key, shown this once; the one before is good for nothing from then on
#[derive(Args)]
struct Rotate {
    /// Its name or its id
    project: String,
    #[command(flatten)]
    remote: Remote,
}

impl Rotate {
    fn run(self) -> Result<ExitCode, CliError> {
        let path = path(&self.project, "/rotate")?;
        let answer = self.remote.client()?.post(&path, None::<&()>, READ_LIMIT)?;
        if self.remote.json {
            printer::line(&answer.text)?;
        } else {
            told(&answer.read()?)?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Remove projects, with all that was logged to them
#[derive(Args)]
struct Rm {
    /// Their names or ids
    #[arg(value_name = "PROJECT", required = true)]
    projects: Vec<String>,
    #[command(flatten)]
    remote: Remote,
}

impl Rm {
    fn run(self) -> Result<ExitCode, CliError> {
        let client = self.remote.client()?;
        for project in &self.projects {
            let answer = client.change(Method::DELETE, &path(project, "")?, None::<&()>)?;
            if self.remote.json {
                printer::line(&answer.text)?;
            } else {
                printer::line(&format!("{project}: removed"))?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// The path of one project. Nothing in a name may turn it into another path.
fn path(project: &str, below: &str) -> Result<String, CliError> {
    let fits = |c: char| c.is_ascii_alphanumeric() || " ._-".contains(c);
    if !project.starts_with(|c: char| c.is_ascii_alphanumeric()) || !project.chars().all(fits) {
        let text = format!("`{project}` is no project; `icebox project ls` shows them");
        return Err(CliError::Usage(text));
    }
    Ok(format!(
        "/v1/projects/{}{below}",
        project.replace(' ', "%20")
    ))
}

fn told(made: &ProjectMade) -> Result<(), CliError> {
    let origins = made.project.origins.join(", ");
    printer::line(&format!(
        "{}: {}, for pages of {}",
        made.project.id,
        printable(&made.project.name),
        printable(&origins)
    ))?;
    printer::line(&format!("write key: {}", printable(&made.write_key)))?;
    printer::note(
        "The key is not shown again. It goes into your pages: it sends, and reads nothing.",
    );
    Ok(())
}

fn row(view: &ProjectView, now: &Now) -> [Cell; 5] {
    [
        Cell::plain(&view.id),
        Cell::plain(&view.name),
        Cell::plain(&now.ago(view.created_at)),
        Cell::plain(&bytes(view.bytes)),
        Cell::plain(&view.origins.join(", ")),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_become_another_path() {
        assert_eq!(
            path("my shop", "/logs").unwrap(),
            "/v1/projects/my%20shop/logs"
        );
        for name in ["", "..", "../boxes", "a/b", "a?b", "%2e", ".a", " a"] {
            assert!(path(name, "").is_err(), "{name}");
        }
    }
}
