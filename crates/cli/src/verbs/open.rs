//! `icebox open`: where a browser finds a program in a box, and the browser, if there is one (rules, section 8).

use std::ffi::OsStr;
use std::io::IsTerminal as _;
use std::process::{Command, ExitCode, Stdio};

use clap::Args;
use icebox_wire::rest::{LinkRequest, LinkResponse};

use crate::client::READ_LIMIT;
use crate::error::CliError;
use crate::printer;
use crate::select::box_id;
use crate::settings::Remote;

/// What a signed link has after the address itself.
const SIGNED: &str = "/.icebox/enter?";

/// Show the URL of a program in a box, and open it in the browser
///
/// Whoever has the URL can look; loading it wakes the box. For a private box it is a signed link, good for a day. The
/// browser opens where there is one and this is a terminal.
#[derive(Args)]
#[command(after_help = "\
Examples:
  icebox open web                         its first service
  icebox open web 8080
  icebox open --sign web admin            a link that also works once the box is private")]
pub(crate) struct Open {
    /// A name, an id, or the beginning of an id
    #[arg(value_name = "BOX")]
    word: String,
    /// A port in the box, or the name of a service [default: its first service]
    #[arg(value_name = "PORT|SERVICE")]
    place: Option<String>,
    /// A signed link, also for a box that is not private
    #[arg(long)]
    sign: bool,
    /// How long a signed link is good, in seconds, 1 to 2592000 [default: a day]
    #[arg(long, value_name = "SECONDS")]
    ttl_sec: Option<u32>,
    #[command(flatten)]
    pub(super) remote: Remote,
}

impl Open {
    pub(crate) fn run(self) -> Result<ExitCode, CliError> {
        let client = self.remote.client()?;
        let id = box_id(&client, &self.word)?;
        let (view, _) = client.get_box(&id)?;
        let port = self.place.as_deref().and_then(|place| place.parse().ok());
        if self.place.is_none() && view.services.is_empty() {
            let text = "the box has no services: say which port, as in `icebox open BOX 8080`";
            return Err(CliError::Usage(text.to_owned()));
        }
        let request = LinkRequest {
            ttl_sec: self.ttl_sec,
            port,
            service: self.place.filter(|_| port.is_none()),
        };
        let path = format!("/v1/boxes/{id}/link");
        let answer = client.post(&path, Some(&request), READ_LIMIT)?;
        if self.remote.json {
            printer::line(&answer.text)?;
            return Ok(ExitCode::SUCCESS);
        }
        let link: LinkResponse = answer.read()?;
        let signed = self.sign || view.private == Some(true);
        let url = if signed { &link.url } else { plain(&link.url) };
        printer::line(url)?;
        browse(url);
        Ok(ExitCode::SUCCESS)
    }
}

/// The address that a signed link leads to.
fn plain(link: &str) -> &str {
    link.split_once(SIGNED).map_or(link, |(address, _)| address)
}

/// Opens the browser for whoever sits at this terminal. The URL is on the screen already, so it is no error when there is
/// none.
pub(super) fn browse(url: &str) {
    if !std::io::stdout().is_terminal() {
        return;
    }
    let shown = |name: &str| std::env::var_os(name).is_some_and(|value| value != OsStr::new(""));
    let opener = if cfg!(target_os = "macos") {
        "open"
    } else if shown("DISPLAY") || shown("WAYLAND_DISPLAY") {
        "xdg-open"
    } else {
        return;
    };
    let opened = Command::new(opener)
        .arg(url)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    if opened.is_err() {
        printer::note("icebox: no browser was found to open it");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_url_says_nothing_secret() {
        let link = "http://web-abc.localhost:7070/.icebox/enter?token=T";
        assert_eq!(plain(link), "http://web-abc.localhost:7070");
        assert_eq!(plain("http://x/"), "http://x/");
    }
}
