//! `icebox mcp`: the adapter that an MCP client starts, and the lines that make the client do so.

use std::process::ExitCode;

use clap::{Args, ValueEnum};
use serde_json::json;

use crate::error::CliError;
use crate::settings::Remote;
use crate::{adapter, printer};

/// Give an agent its sandbox tools
///
/// Speaks MCP on standard input and output, for the client that starts it (Claude Code, Codex, Cursor and others), and
/// works against the server. It adds what needs this machine's disk: sandbox_sync and sandbox_pull.
#[derive(Args)]
#[command(after_help = "\
Examples:
  icebox mcp --install claude     the line that adds it to Claude Code
  icebox mcp --install codex      the lines for ~/.codex/config.toml
  icebox mcp --install cursor     the lines for ~/.cursor/mcp.json")]
pub(crate) struct Mcp {
    /// Print what makes this client use it, and do nothing else
    #[arg(long, value_name = "CLIENT")]
    install: Option<Host>,
    #[command(flatten)]
    pub(crate) remote: Remote,
}

/// A program that agents run in.
#[derive(Clone, Copy, ValueEnum)]
enum Host {
    Claude,
    Codex,
    Cursor,
}

impl Mcp {
    pub(crate) fn run(self) -> Result<ExitCode, CliError> {
        let server = self.remote.server()?;
        match self.install {
            Some(host) => printer::line(&configuration(host, &server.base))?,
            None => adapter::run(server)?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// What makes a client start the adapter. A key is never printed: it comes from the environment or the key file.
fn configuration(host: Host, base: &str) -> String {
    match host {
        Host::Claude => format!("claude mcp add icebox --env ICEBOX_URL={base} -- icebox mcp"),
        Host::Codex => format!(
            "[mcp_servers.icebox]\n\
             command = \"icebox\"\n\
             args = [\"mcp\"]\n\
             env = {{ ICEBOX_URL = \"{base}\" }}\n\
             env_vars = [\"ICEBOX_API_KEY\"]\n\
             tool_timeout_sec = 3600"
        ),
        Host::Cursor => {
            let server = json!({"command": "icebox", "args": ["mcp"], "env": {"ICEBOX_URL": base}});
            let all = json!({"mcpServers": {"icebox": server}});
            format!("{all:#}")
        }
    }
}
