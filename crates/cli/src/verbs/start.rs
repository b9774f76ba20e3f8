//! `icebox start`: a new box. Owns reading its flags into a request; the server checks the values.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use icebox_wire::rest::{
    BoxView, PolicyFields, PolicyRequest, ServiceRequest, SizeRequest, StartRequest,
};

use super::egress::EgressFlags;
use super::queue::{For, telling_place};
use crate::client::{Client, WORK_LIMIT};
use crate::error::CliError;
use crate::printer;
use crate::settings::Remote;
use crate::text::{key_value, printable};
use crate::words::{self, Now};

/// What is said of a start that takes long though it has room.
const PREPARING: &str =
    "icebox: the image of this host is being prepared; only the first box waits for it";

/// Start a new box
///
/// Prints its id on standard output and, when it is ready, what it is doing on standard error.
#[derive(Args)]
#[command(after_help = "\
Examples:
  icebox start
  icebox start --name web --goal 'try the new parser' --service app:3000:web
  icebox start --memory-mb 4096 --cpus 2 --env LANG=C.UTF-8
  icebox start --policy '{\"freezeAfterSec\": 60}'
  icebox start --snapshot ready-to-test
  icebox start --egress none                      it reaches nothing outside
  icebox start --wait-for-capacity-sec 600        on a full host
  box=$(icebox start) && icebox exec $box -- uname -a")]
pub(crate) struct Start {
    /// A name for people, at most 60 characters
    #[arg(long)]
    name: Option<String>,
    /// What it is for, at most 500 characters
    #[arg(long)]
    goal: Option<String>,
    /// The image [default: host, the software of this machine]
    #[arg(long)]
    image: Option<String>,
    /// Begin with this snapshot, by its id or name, instead of the image: with its programs, if it keeps memory
    #[arg(long, conflicts_with = "image")]
    snapshot: Option<String>,
    /// Begin with the files of the snapshot alone
    #[arg(long, requires = "snapshot")]
    files_only: bool,
    /// CPUs; parts of one are allowed [default: the server's]
    #[arg(long)]
    cpus: Option<f64>,
    /// Memory in MiB [default: the server's]
    #[arg(long, value_name = "MIB")]
    memory_mb: Option<u64>,
    /// Disk in GiB, recorded only: nothing enforces it yet [default: the server's]
    #[arg(long, value_name = "GIB")]
    disk_gb: Option<u64>,
    /// A variable for every command in the box; may be repeated
    #[arg(long, value_name = "K=V", value_parser = key_value)]
    env: Vec<(String, String)>,
    /// A named port, with `:web` one that people open in a browser; may be repeated
    #[arg(long, value_name = "NAME:PORT[:web]", value_parser = service)]
    service: Vec<ServiceRequest>,
    /// Where its services lead at first: http:// or https://, a host, perhaps a path (icebox wire changes that)
    #[arg(long, value_name = "URL", requires = "service")]
    external: Option<String>,
    /// A secret that its commands have as a variable (icebox secret); may be repeated
    #[arg(long, value_name = "NAME")]
    secret: Vec<String>,
    /// The environment it is in: its settings for these services become variables
    #[arg(long, value_name = "NAME")]
    environment: Option<String>,
    /// Only who has a signed link may look at its URLs (icebox open makes one)
    #[arg(long)]
    private: bool,
    #[command(flatten)]
    egress: EgressFlags,
    /// Stop it for good after so many minutes without use, frozen or not, 1 to 10080; with less than the time to its
    /// freeze it stops while it runs, and nothing is left to restore [default: 24 h after it froze]
    #[arg(long, value_name = "MIN")]
    idle_timeout_min: Option<u32>,
    /// A preset (agent, router, task) or an object of policy fields [default: agent, which freezes after 10 min]
    #[arg(long, value_parser = policy)]
    policy: Option<PolicyRequest>,
    /// Words of your own, given back in every view; may be repeated
    #[arg(long, value_name = "K=V", value_parser = key_value)]
    metadata: Vec<(String, String)>,
    /// Wait this long for room on a full host, 0 to 1800 [default: 0]
    #[arg(long, alias = "wait-for-capacity", value_name = "SEC", value_parser = clap::value_parser!(u32).range(0..=1800))]
    wait_for_capacity_sec: Option<u32>,
    /// Do not wait until it is ready
    #[arg(long)]
    no_wait: bool,
    #[command(flatten)]
    pub(super) remote: Remote,
}

impl Start {
    pub(crate) fn run(self) -> Result<ExitCode, CliError> {
        let client = self.remote.client()?;
        let limit = limit(self.wait_for_capacity_sec);
        let json = self.remote.json;
        let namesake = self.name.as_deref().filter(|_| !json);
        let namesake = namesake.and_then(|name| namesake_of(&client, name));
        let from_host = self.image.as_deref().is_none_or(|image| image == "host");
        let request = self.request();
        let waits = (request.wait_for_capacity_sec > Some(0)).then_some(For::New);
        let post = || client.post("/v1/boxes", Some(&request), limit);
        let answer = if json {
            post()
        } else {
            telling_place(&client, waits, from_host.then_some(PREPARING), post)
        }?;
        let view: BoxView = answer.read()?;
        if let Some(text) = namesake {
            printer::note(&text);
        }
        printer::notices(&view.notices);
        if json {
            printer::line(&answer.text)?;
            return Ok(ExitCode::SUCCESS);
        }
        printer::line(&view.id)?;
        printer::note(&words::about(&view, &Now::here()));
        Ok(ExitCode::SUCCESS)
    }

    fn request(self) -> StartRequest {
        let size = SizeRequest {
            cpus: self.cpus,
            memory_mb: self.memory_mb,
            disk_gb: self.disk_gb,
        };
        StartRequest {
            goal: self.goal,
            name: self.name,
            image: self.image,
            snapshot: self.snapshot,
            memory: self.files_only.then_some(false),
            size: (size != SizeRequest::default()).then_some(size),
            env: BTreeMap::from_iter(self.env),
            services: self.service,
            external_base_url: self.external,
            secrets: self.secret,
            environment: self.environment,
            private: self.private.then_some(true),
            egress: self.egress.request(),
            idle_timeout_min: self.idle_timeout_min,
            policy: self.policy,
            wait_for_capacity_sec: self.wait_for_capacity_sec,
            metadata: BTreeMap::from_iter(self.metadata),
            wait: self.no_wait.then_some(false),
            ..StartRequest::default()
        }
    }
}

/// What is said of another live box with that name. When there is no list, the start itself says why.
fn namesake_of(client: &Client, name: &str) -> Option<String> {
    let boxes = client.every_box(false).ok()??;
    let other = boxes
        .iter()
        .find(|view| view.status.is_live() && view.name.as_deref() == Some(name))?;
    Some(format!(
        "icebox: another box is called `{}`, too ({}): name them by their ids from now on",
        printable(name),
        other.id
    ))
}

/// How long a start that may queue for room is waited for.
pub(super) fn limit(wait_for_capacity_sec: Option<u32>) -> Duration {
    WORK_LIMIT + Duration::from_secs(u64::from(wait_for_capacity_sec.unwrap_or(0)))
}

/// Reads `NAME:PORT[:web]`.
fn service(text: &str) -> Result<ServiceRequest, String> {
    let wanted = || "give it as NAME:PORT or NAME:PORT:web".to_owned();
    let mut parts = text.split(':');
    let name = parts
        .next()
        .filter(|name| !name.is_empty())
        .ok_or_else(wanted)?;
    let port = parts
        .next()
        .and_then(|port| port.parse().ok())
        .ok_or_else(wanted)?;
    let web = match parts.next() {
        None => false,
        Some("web") => true,
        Some(_) => return Err(wanted()),
    };
    if parts.next().is_some() {
        return Err(wanted());
    }
    Ok(ServiceRequest {
        name: name.to_owned(),
        port,
        web,
        ..ServiceRequest::default()
    })
}

/// Reads a preset's name, or an object of fields.
fn policy(text: &str) -> Result<PolicyRequest, String> {
    if !text.trim_start().starts_with('{') {
        return Ok(PolicyRequest::Preset(text.to_owned()));
    }
    let fields = serde_json::from_str::<PolicyFields>(text);
    fields
        .map(PolicyRequest::Fields)
        .map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_is_a_name_and_a_port() {
        let read = |text: &str| service(text).ok().map(|s| (s.name, s.port, s.web));
        let table = [
            ("app:3000", Some(("app".to_owned(), 3000, false))),
            ("app:3000:web", Some(("app".to_owned(), 3000, true))),
            ("app", None),
            (":3000", None),
            ("app:99999", None),
            ("app:3000:tcp", None),
            ("app:3000:web:x", None),
        ];
        for (text, expected) in table {
            assert_eq!(read(text), expected, "{text}");
        }
    }

    #[test]
    fn a_policy_is_a_preset_or_fields_and_a_wrong_field_is_named() {
        assert_eq!(policy("task"), Ok(PolicyRequest::Preset("task".to_owned())));
        let Ok(PolicyRequest::Fields(fields)) = policy("{\"freezeAfterSec\": 60}") else {
            panic!("an object reads as fields");
        };
        assert_eq!(fields.freeze_after_sec, Some(Some(60)));
        assert!(
            policy("{\"freezAfter\": 1}")
                .unwrap_err()
                .contains("freezAfter")
        );
    }
}
