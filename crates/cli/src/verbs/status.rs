//! `icebox status`: everything about one box, in words. A read: it wakes nothing (rule 11.1).

use std::process::ExitCode;

use clap::Args;
use icebox_wire::rest::{BoxView, DiskView};

use super::egress;
use crate::error::CliError;
use crate::printer::{self, Cell, styled};
use crate::select::box_id;
use crate::settings::Remote;
use crate::text::{bytes, printable};
use crate::words::{self, Now};

/// Show one box: why it is awake or not, when it freezes and when it stops
///
/// Times are this machine's. Looking wakes nothing and is no use.
#[derive(Args)]
#[command(after_help = "\
Examples:
  icebox status web
  icebox status web --why                 the last decisions about it, each with its rule
  icebox status web --json | jq .freeze")]
pub(crate) struct Status {
    /// Its name, its id, or the beginning of its id
    #[arg(value_name = "BOX")]
    word: String,
    /// The last decisions about it, with the numbers of the rules that made them
    #[arg(long)]
    why: bool,
    #[command(flatten)]
    pub(super) remote: Remote,
}

impl Status {
    pub(crate) fn run(self) -> Result<ExitCode, CliError> {
        let client = self.remote.client()?;
        let (view, answer) = client.get_box(&box_id(&client, &self.word)?)?;
        printer::notices(&view.notices);
        if self.remote.json {
            printer::line(&answer.text)?;
            return Ok(ExitCode::SUCCESS);
        }
        let now = Now::here();
        let status = styled(printer::status_style(view.status), view.status.as_str());
        let title = printable(view.name.as_deref().unwrap_or(&view.id));
        printer::line(&format!("{}  {status}", styled(printer::BOLD, &title)))?;
        printer::line(&format!("  {}", words::about(&view, &now)))?;
        for (name, value) in facts(&view, &now) {
            let name = styled(printer::DIM, &format!("{name:<10}"));
            printer::line(&format!("  {name} {}", printable(&value)))?;
        }
        if self.why {
            reasons(&view, &now)?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// What is known of a box beside what it is doing, each with its name.
fn facts(view: &BoxView, now: &Now) -> Vec<(&'static str, String)> {
    let mut facts = vec![("id", view.id.clone())];
    facts.extend(view.goal.clone().map(|goal| ("goal", goal)));
    let (created, used) = (view.created_at, view.last_used_at);
    facts.push(("started", now.moment(created)));
    facts.push((
        "last used",
        format!("{} ({})", now.moment(used), now.ago(used)),
    ));
    if let Some(minutes) = view.idle_timeout_min {
        let limit = words::span(u64::from(minutes) * 60);
        facts.push(("own limit", format!("stops after {limit} without use")));
    }
    if let Some(error) = &view.snapshot_error {
        facts.push(("no copy", error.clone()));
    }
    if view.restorable_until.is_some() {
        facts.push(("restore", format!("icebox restore {}", view.id)));
    }
    if let Some(agent) = view
        .agent
        .as_ref()
        .filter(|agent| agent.untracked != Some(true))
    {
        facts.push(("agent", agent.state.clone()));
    }
    for service in &view.services {
        let url = service.url.as_deref().unwrap_or("(no URL)");
        facts.push((
            "service",
            format!("{} on port {}: {url}", service.name, service.port),
        ));
        if service.mode != "box" || service.target_port.is_some() {
            facts.push(("leads to", super::wire::leads(service)));
        }
        let wrong = service.last_error.clone();
        facts.extend(wrong.map(|error| ("wrong", error)));
    }
    for link in &view.linked_from {
        let (from, service, port) = (&link.id, &link.service, link.port);
        facts.push((
            "linked",
            format!("{service} of box {from} is port {port} here"),
        ));
    }
    for connection in &view.connections {
        let hosts: Vec<_> = connection
            .hosts
            .iter()
            .map(|host| &*host.endpoint)
            .collect();
        let how = match (connection.online, connection.rtt_ms) {
            (true, Some(ms)) => format!("{ms} ms"),
            (true, None) => "nothing yet".to_owned(),
            (false, _) => "not online".to_owned(),
        };
        facts.push(("reaches", format!("{} ({how})", hosts.join(", "))));
    }
    facts.extend(said(view).map(|text| ("it says", text)));
    facts.extend(view.environment.clone().map(|name| ("settings", name)));
    let running = view.running.iter().flat_map(|running| &running.commands);
    for command in running {
        let cmd = command.cmd.lines().next().unwrap_or_default();
        facts.push(("runs", format!("{} ({})", cmd, command.exec_id)));
    }
    for database in view.running.iter().flat_map(|running| &running.containers) {
        let ports: Vec<_> = database.ports.iter().map(u16::to_string).collect();
        let (name, status) = (&database.name, &database.status);
        facts.push((
            "database",
            format!("{name}: {status}, port {}", ports.join(", ")),
        ));
    }
    facts.extend(view.disk.as_ref().and_then(room));
    let kills = view.health.as_ref().and_then(|health| health.memory_kills);
    facts.extend(kills.map(|count| {
        let text = format!("programs ended for want of it since the box came up: {count}");
        ("no memory", text)
    }));
    if view.health.as_ref().is_some_and(|health| health.outdated) {
        let name = view.name.as_deref().unwrap_or(&view.id);
        let text = format!("older than that of new boxes; `icebox renew {name}` exchanges it");
        facts.push(("daemon", text));
    }
    let (size, image) = (view.size, &view.image);
    let (memory, disk) = (bytes(size.memory_mb << 20), bytes(size.disk_gb << 30));
    facts.push((
        "size",
        format!("{} CPUs, {memory} memory, {disk} disk", size.cpus),
    ));
    let reaches = view.egress.as_ref();
    facts.extend(reaches.map(|egress| ("reaches", egress::in_words(egress))));
    facts.push(("image", image.clone()));
    facts.extend(view.host.clone().map(|host| ("host", host)));
    facts.extend(
        view.metadata
            .iter()
            .map(|(k, v)| ("metadata", format!("{k}={v}"))),
    );
    facts
}

/// What the agent said last.
fn said(view: &BoxView) -> Option<String> {
    let mut steps = view.steps.iter().rev();
    let step = steps.find(|step| step.kind == "say")?;
    Some(step.note.clone().unwrap_or_else(|| step.summary.clone()))
}

/// What takes up most of its room.
fn room(disk: &DiskView) -> Option<(&'static str, String)> {
    let largest = disk.work.iter().filter(|used| used.mb >= 1.0).take(3);
    let largest: Vec<_> = largest
        .map(|used| format!("{} {:.0} MB", used.path, used.mb))
        .collect();
    (!largest.is_empty()).then(|| ("largest", largest.join(", ")))
}

/// The last decisions about a box.
fn reasons(view: &BoxView, now: &Now) -> Result<(), CliError> {
    if view.why.is_empty() {
        printer::note("No rule has decided anything about it yet.");
        return Ok(());
    }
    printer::line("")?;
    let rows: Vec<_> = view
        .why
        .iter()
        .map(|why| {
            [
                Cell::styled(printer::DIM, &now.exact(why.at)),
                Cell::plain(&why.rule),
                Cell::plain(&why.text),
            ]
        })
        .collect();
    printer::table(["AT", "RULE", "WHAT IT CAME TO"], &rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    #[test]
    fn a_box_that_can_come_back_says_how() {
        let view = BoxView {
            restorable_until: Some("2026-03-05T13:00:00Z".parse().unwrap()),
            ..sample::ready()
        };
        let facts = facts(&view, &Now::here());
        let restore = facts.iter().find(|(name, _)| *name == "restore").unwrap();
        assert_eq!(restore.1, format!("icebox restore {}", view.id));
        let size = facts.iter().find(|(name, _)| *name == "size").unwrap();
        assert_eq!(size.1, "2 CPUs, 2.0 GiB memory, 10 GiB disk");
    }
}
