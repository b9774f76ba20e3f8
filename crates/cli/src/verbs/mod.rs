//! The verbs, one file each. Owns their list and what they share on the command line.

mod build;
mod completions;
mod cp;
mod dashboard;
mod demo;
mod doctor;
mod egress;
mod exec;
mod fork;
mod freeze;
mod key;
mod kill;
mod logs;
mod ls;
mod mcp;
mod open;
mod project;
mod ps;
mod queue;
mod renew;
mod restore;
mod scene;
mod secret;
mod serve;
mod shell;
mod snapshot;
mod start;
mod status;
mod stop;
mod tell;
mod tls;
mod wake;
mod webhook;
mod wire;

use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};
use icebox_wire::rest::BoxView;
use serde::Serialize;

use crate::client::{Answer, Client};
use crate::error::CliError;
use crate::printer;
use crate::select::box_id;
use crate::settings::Remote;
use crate::words::{self, Now};

/// What can be asked of the program, in the order of the help.
#[derive(Subcommand)]
pub(crate) enum Verb {
    Demo(demo::Demo),
    Doctor(doctor::Doctor),
    Serve(serve::Serve),
    Start(Box<start::Start>),
    Ls(ls::Ls),
    Status(status::Status),
    Exec(exec::Exec),
    Shell(shell::Shell),
    Cp(cp::Cp),
    Build(build::Build),
    Ps(ps::Ps),
    Logs(logs::Logs),
    Kill(kill::Kill),
    Open(open::Open),
    Egress(egress::Egress),
    Dashboard(dashboard::Dashboard),
    Freeze(freeze::Freeze),
    Wake(wake::Wake),
    Renew(renew::Renew),
    Stop(stop::Stop),
    Restore(restore::Restore),
    Secret(secret::Secret),
    Wire(wire::Wire),
    Scene(scene::Scene),
    Tell(tell::Tell),
    Fork(fork::Fork),
    Snapshot(snapshot::Snapshot),
    Webhook(webhook::Webhook),
    Project(project::Project),
    Mcp(mcp::Mcp),
    Key(key::Key),
    Tls(tls::Tls),
    Completions(completions::Completions),
}

impl Verb {
    /// Does it.
    pub(crate) fn run(self) -> Result<ExitCode, CliError> {
        match self {
            Self::Demo(verb) => verb.run(),
            Self::Doctor(verb) => verb.run(),
            Self::Serve(verb) => verb.run(),
            Self::Start(verb) => (*verb).run(),
            Self::Ls(verb) => verb.run(),
            Self::Status(verb) => verb.run(),
            Self::Exec(verb) => verb.run(),
            Self::Shell(verb) => verb.run(),
            Self::Cp(verb) => verb.run(),
            Self::Build(verb) => verb.run(),
            Self::Ps(verb) => verb.run(),
            Self::Logs(verb) => verb.run(),
            Self::Kill(verb) => verb.run(),
            Self::Open(verb) => verb.run(),
            Self::Egress(verb) => verb.run(),
            Self::Dashboard(verb) => verb.run(),
            Self::Freeze(verb) => verb.run(),
            Self::Wake(verb) => verb.run(),
            Self::Renew(verb) => verb.run(),
            Self::Stop(verb) => verb.run(),
            Self::Restore(verb) => verb.run(),
            Self::Secret(verb) => verb.run(),
            Self::Wire(verb) => verb.run(),
            Self::Scene(verb) => verb.run(),
            Self::Tell(verb) => verb.run(),
            Self::Fork(verb) => verb.run(),
            Self::Snapshot(verb) => verb.run(),
            Self::Webhook(verb) => verb.run(),
            Self::Project(verb) => verb.run(),
            Self::Mcp(verb) => verb.run(),
            Self::Key(verb) => verb.run(),
            Self::Tls(verb) => verb.run(),
            Self::Completions(verb) => verb.run(),
        }
    }

    /// Whether errors are wanted as JSON.
    pub(crate) fn json(&self) -> bool {
        match self {
            Self::Doctor(verb) => verb.json,
            Self::Start(verb) => verb.remote.json,
            Self::Ls(verb) => verb.remote.json,
            Self::Status(verb) => verb.remote.json,
            Self::Exec(verb) => verb.remote.json,
            Self::Shell(verb) => verb.remote.json,
            Self::Cp(verb) => verb.remote.json,
            Self::Build(verb) => verb.remote.json,
            Self::Ps(verb) => verb.remote.json,
            Self::Logs(verb) => verb.remote.json,
            Self::Kill(verb) => verb.remote.json,
            Self::Open(verb) => verb.remote.json,
            Self::Egress(verb) => verb.remote.json,
            Self::Dashboard(verb) => verb.remote.json,
            Self::Freeze(verb) => verb.many.remote.json,
            Self::Wake(verb) => verb.many.remote.json,
            Self::Renew(verb) => verb.many.remote.json,
            Self::Stop(verb) => verb.many.remote.json,
            Self::Restore(verb) => verb.remote.json,
            Self::Fork(verb) => verb.remote.json,
            Self::Snapshot(verb) => verb.json(),
            Self::Key(verb) => verb.json(),
            Self::Tls(verb) => verb.json(),
            Self::Secret(verb) => verb.json(),
            Self::Wire(verb) => verb.remote.json,
            Self::Scene(verb) => verb.remote.json,
            Self::Tell(verb) => verb.remote.json,
            Self::Webhook(verb) => verb.json(),
            Self::Project(verb) => verb.json(),
            Self::Mcp(verb) => verb.remote.json,
            Self::Demo(_) | Self::Serve(_) | Self::Completions(_) => false,
        }
    }

    /// The exit code of errors that are ours, for a verb whose exit code is that of something else.
    pub(crate) fn exit_code_of_own_errors(&self) -> Option<u8> {
        match self {
            Self::Exec(_) | Self::Build(_) | Self::Shell(_) => Some(exec::OWN_ERROR),
            Self::Demo(_)
            | Self::Doctor(_)
            | Self::Serve(_)
            | Self::Start(_)
            | Self::Ls(_)
            | Self::Status(_)
            | Self::Ps(_)
            | Self::Logs(_)
            | Self::Kill(_)
            | Self::Cp(_)
            | Self::Open(_)
            | Self::Egress(_)
            | Self::Dashboard(_)
            | Self::Freeze(_)
            | Self::Wake(_)
            | Self::Renew(_)
            | Self::Stop(_)
            | Self::Restore(_)
            | Self::Secret(_)
            | Self::Wire(_)
            | Self::Scene(_)
            | Self::Tell(_)
            | Self::Fork(_)
            | Self::Snapshot(_)
            | Self::Webhook(_)
            | Self::Project(_)
            | Self::Mcp(_)
            | Self::Key(_)
            | Self::Tls(_)
            | Self::Completions(_) => None,
        }
    }
}

/// A verb that does the same to one or more boxes.
#[derive(Args)]
struct Many {
    /// Names, ids, or beginnings of ids
    #[arg(value_name = "BOX", required = true)]
    boxes: Vec<String>,
    #[command(flatten)]
    remote: Remote,
}

/// What is said besides of a box that was like that before.
type Besides = fn(&BoxView) -> Option<&'static str>;

impl Many {
    /// Posts to each box in turn. A failure is told and does not skip the next ones. `besides` says what a person should
    /// know of a box that was as it is handed in before it was posted to.
    fn post(
        &self,
        action: &str,
        body: Option<&impl Serialize>,
        limit: Duration,
        besides: Option<Besides>,
    ) -> Result<ExitCode, CliError> {
        let client = self.remote.client()?;
        let mut failure = None;
        for word in &self.boxes {
            let done = box_id(&client, word).and_then(|id| {
                let path = format!("/v1/boxes/{id}/{action}");
                let besides = besides.filter(|_| !self.remote.json);
                // When the box cannot be read, the post says why.
                let besides = besides.and_then(|besides| besides(&client.get_box(&id).ok()?.0));
                let queueable = (action == "wake").then_some(queue::For::Box(&id));
                let post = || client.post(&path, body, limit);
                let answer = if self.remote.json {
                    post()
                } else {
                    queue::telling_place(&client, queueable, None, post)
                }?;
                show(&answer, &client, &id, self.remote.json)?;
                if let Some(text) = besides {
                    printer::note(&format!("icebox: {}: {text}", crate::text::printable(word)));
                }
                Ok(())
            });
            let done = if self.boxes.len() > 1 {
                done.map_err(|error| error.of(word))
            } else {
                done
            };
            // The last one is told by whoever called.
            if let Err(error) = done
                && let Some(earlier) = failure.replace(error)
            {
                crate::tell(&earlier, self.remote.json);
            }
        }
        failure.map_or(Ok(ExitCode::SUCCESS), Err)
    }
}

/// Shows what became of a box: the answer as it is, or a line in words.
fn show(answer: &Answer, client: &Client, id: &str, json: bool) -> Result<(), CliError> {
    if json {
        return printer::line(&answer.text);
    }
    // Not every answer carries the box, and this one is for people.
    let view = answer.read::<BoxView>();
    let view = view.or_else(|_| client.get_box(id).map(|(view, _)| view))?;
    let name = view.name.as_deref().unwrap_or(&view.id);
    printer::line(&format!(
        "{}: {}",
        crate::text::printable(name),
        words::about(&view, &Now::here())
    ))
}
