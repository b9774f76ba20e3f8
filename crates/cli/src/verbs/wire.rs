//! `icebox wire`: where the names in a box lead.

use std::process::ExitCode;

use clap::Args;
use icebox_wire::rest::{BoxView, ServiceView, WireRequest, WireResponse};

use crate::client::WORK_LIMIT;
use crate::error::CliError;
use crate::printer::{self, Cell};
use crate::select::box_id;
use crate::settings::Remote;
use crate::text::key_value;

/// Say where a name in a box leads: to its own program, elsewhere, or to another box
///
/// Programs in the box reach `NAME:PORT`. While a name leads elsewhere its port in the box is taken. A connection over a link
/// wakes the other box, and keeps it awake while this one is. With a name, a frozen box wakes; without one nothing does.
#[derive(Args)]
#[command(after_help = "\
Examples:
  icebox wire web                                        where its names lead
  icebox wire web db:5432 --link data                    db:5432 in web is port 5432 of the box data
  icebox wire web api:3000 --external https://api.example.com/v2
  icebox wire web api:3000 --version v12                 a published version, in a box of its own
  icebox wire web api --own                              the box's own program again, on port 3000
  icebox wire web api --own --target-port 3001           the same, listening on port 3001
  icebox wire web --scene-path /api --external https://api.example.com
  icebox wire web --scene-path ''                        takes that back")]
pub(crate) struct Wire {
    /// The box: its name, its id, or the beginning of its id
    #[arg(value_name = "BOX")]
    word: String,
    /// The name, and its port in the box if that is new
    #[arg(value_name = "NAME[:PORT]", conflicts_with = "scene_path")]
    name: Option<String>,
    /// It is the box's own program
    #[arg(long, requires = "name", conflicts_with_all = ["external", "link"])]
    own: bool,
    /// It is a server elsewhere: http:// or https://, a host, perhaps a path
    #[arg(long, value_name = "URL", conflicts_with = "link")]
    external: Option<String>,
    /// It is a port of this other box
    #[arg(long, value_name = "BOX", requires = "name")]
    link: Option<String>,
    /// It is a published version of that name, by its label or id, in a box of its own
    #[arg(long, value_name = "LABEL", requires = "name", conflicts_with_all = ["own", "external", "link"])]
    version: Option<String>,
    /// With --version: a variable for the command that starts it; may be given more than once
    #[arg(short, long, value_name = "NAME=VALUE", value_parser = key_value, requires = "version")]
    env: Vec<(String, String)>,
    /// Where the program listens, or the port in the other box, if that is another one
    #[arg(long, value_name = "PORT", requires = "name")]
    target_port: Option<u16>,
    /// Whether people open it in a browser
    #[arg(long, value_name = "YES", num_args = 0..=1, default_missing_value = "true", requires = "name")]
    web: Option<bool>,
    /// Paths of the scene that are at --external; may be given more than once
    #[arg(long, value_name = "PATH")]
    scene_path: Vec<String>,
    #[command(flatten)]
    pub(super) remote: Remote,
}

impl Wire {
    pub(crate) fn run(self) -> Result<ExitCode, CliError> {
        let client = self.remote.client()?;
        let id = box_id(&client, &self.word)?;
        if self.name.is_none() && self.scene_path.is_empty() {
            let (view, answer) = client.get_box(&id)?;
            if self.remote.json {
                printer::line(&answer.text)?;
            } else {
                table(&view.services, &view)?;
            }
            return Ok(ExitCode::SUCCESS);
        }
        let from_box = match &self.link {
            Some(word) => Some(box_id(&client, word)?),
            None => None,
        };
        let request = self.request(from_box)?;
        let answer = client.post(&format!("/v1/boxes/{id}/wire"), Some(&request), WORK_LIMIT)?;
        if self.remote.json {
            printer::line(&answer.text)?;
            return Ok(ExitCode::SUCCESS);
        }
        let wired: WireResponse = answer.read()?;
        printer::notices(&wired.notices);
        let (view, _) = client.get_box(&id)?;
        table(&wired.services, &view)?;
        Ok(ExitCode::SUCCESS)
    }

    fn request(&self, from_box: Option<String>) -> Result<WireRequest, CliError> {
        let (service, port) = match self.name.as_deref().map(|name| name.split_once(':')) {
            None => (None, None),
            Some(None) => (self.name.clone(), None),
            Some(Some((name, port))) => {
                let read = port.parse().ok();
                let wrong =
                    || CliError::Usage(format!("`{port}` is no port; ports are 1 to 65535"));
                (Some(name.to_owned()), Some(read.ok_or_else(wrong)?))
            }
        };
        let paths = || {
            let given = self.scene_path.iter().filter(|path| !path.is_empty());
            given.cloned().collect()
        };
        Ok(WireRequest {
            mode: self.own.then(|| "box".to_owned()),
            service,
            port,
            target_port: self.target_port,
            external_base_url: self.external.clone(),
            from_box,
            version: self.version.clone(),
            env: self.env.iter().cloned().collect(),
            web: self.web,
            scene_paths: self.name.is_none().then(paths),
        })
    }
}

fn table(services: &[ServiceView], view: &BoxView) -> Result<(), CliError> {
    if services.is_empty() {
        printer::note("No names. Give it one with `icebox wire BOX NAME:PORT --own`.");
        return Ok(());
    }
    let rows: Vec<_> = services
        .iter()
        .map(|service| {
            [
                Cell::plain(&format!("{}:{}", service.name, service.port)),
                Cell::plain(&leads(service)),
                Cell::plain(service.last_error.as_deref().unwrap_or_default()),
            ]
        })
        .collect();
    printer::table(["NAME", "LEADS TO", "WRONG WITH IT"], &rows)?;
    for link in &view.linked_from {
        printer::note(&format!(
            "{} of box {} leads to port {} here",
            link.service, link.id, link.port
        ));
    }
    Ok(())
}

/// Where a name leads, in words.
pub(super) fn leads(service: &ServiceView) -> String {
    let port = service.target_port.unwrap_or(service.port);
    match (&service.from_box, &service.external_base_url) {
        (Some(id), _) if service.version.is_some() => {
            let label = service.version.as_deref().unwrap_or_default();
            format!("version {label}, port {port} of box {id}")
        }
        (Some(id), _) => format!("port {port} of box {id}"),
        (None, Some(url)) => url.clone(),
        (None, None) => format!("its own program on port {port}"),
    }
}
