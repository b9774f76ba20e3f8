//! `icebox mcp`: the adapter that an MCP client starts, and the lines that make the client do so.

mod install;

use std::process::ExitCode;

use clap::Args;

use crate::adapter;
use crate::error::CliError;
use crate::settings::Remote;

use self::install::{Consent, Host, install};

/// Give an agent its sandbox tools
///
/// Speaks MCP on standard input and output, for the client that starts it (Claude Code, Codex, Cursor and others), and
/// works against the server. It adds what needs this machine's disk: sandbox_sync and sandbox_pull.
#[derive(Args)]
#[command(after_help = "\
Examples:
  icebox mcp --install claude          add it to Claude Code, after asking
  icebox mcp --install codex --yes     add it to ~/.codex/config.toml
  icebox mcp --install cursor --print  show what belongs into ~/.cursor/mcp.json")]
pub(crate) struct Mcp {
    /// Make this client use it, after asking; without a terminal to ask at, show what does
    #[arg(long, value_name = "CLIENT")]
    install: Option<Host>,
    /// With --install: show what makes the client use it, and change nothing
    #[arg(long, requires = "install", conflicts_with = "yes")]
    print: bool,
    /// With --install: do not ask
    #[arg(short, long, requires = "install")]
    yes: bool,
    #[command(flatten)]
    pub(crate) remote: Remote,
}

impl Mcp {
    pub(crate) fn run(self) -> Result<ExitCode, CliError> {
        let server = self.remote.server()?;
        match self.install {
            Some(host) => {
                let consent = match (self.print, self.yes) {
                    (true, _) => Consent::Print,
                    (false, true) => Consent::Given,
                    (false, false) => Consent::Ask,
                };
                install(host, &server.base, consent)?;
            }
            None => adapter::run(server)?,
        }
        Ok(ExitCode::SUCCESS)
    }
}
