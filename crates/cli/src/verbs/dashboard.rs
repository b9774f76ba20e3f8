//! `icebox dashboard`: a link that opens the dashboard signed in, and the browser, if there is one.

use std::path::Path;
use std::process::ExitCode;

use clap::Args;
use icebox_wire::rest::SignInLink;

use super::open::browse;
use crate::client::{Client, READ_LIMIT};
use crate::error::CliError;
use crate::printer;
use crate::settings::{Remote, Server};
use crate::words::Now;

/// Open the dashboard, signed in
///
/// Prints a link that signs one browser in as the account of the key in use. It is good for ten minutes and once, so
/// that nobody who finds it later gets in. The browser stays signed in for 14 days, or until it signs out, or until the
/// key is revoked (`icebox key revoke`).
///
/// The browser opens where there is one and this is a terminal. On a server without one, open the link on your own
/// machine: forward the port first, as in `ssh -L 7070:127.0.0.1:7070 server`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  icebox dashboard
  icebox dashboard --no-open              the link only
  ICEBOX_API_KEY=e2b_… icebox dashboard   as another account")]
pub(crate) struct Dashboard {
    /// Print the link only
    #[arg(long)]
    no_open: bool,
    #[command(flatten)]
    pub(super) remote: Remote,
}

impl Dashboard {
    pub(crate) fn run(self) -> Result<ExitCode, CliError> {
        let client = self.remote.client()?;
        let answer = client.post("/v1/session/links", None::<&()>, READ_LIMIT)?;
        if self.remote.json {
            printer::line(&answer.text)?;
            return Ok(ExitCode::SUCCESS);
        }
        let link: SignInLink = answer.read()?;
        let until = Now::here().until(link.expires_at);
        printer::note(&format!(
            "icebox: this link signs one browser in, and is good until {until}"
        ));
        printer::line(&link.url)?;
        if !self.no_open {
            browse(&link.url);
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Prints a link to whoever has just started a server in this folder at a terminal.
pub(super) fn greet(data: &Path) {
    let made = Server::in_folder(data).and_then(|server| {
        let answer = Client::new(server).post("/v1/session/links", None::<&()>, READ_LIMIT)?;
        answer.read::<SignInLink>()
    });
    match made {
        Ok(link) => printer::note(&format!(
            "\nThe dashboard, signed in (once, until {}):\n  {}\n",
            Now::here().until(link.expires_at),
            link.url
        )),
        Err(error) => printer::note(&format!(
            "icebox: no link to the dashboard could be made, try `icebox dashboard`: {error}"
        )),
    }
}
