//! `icebox completions`: completion scripts for shells, made from the command line's own description.

use std::process::ExitCode;

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use crate::Cli;
use crate::error::CliError;

/// Print a completion script for a shell
#[derive(Args)]
#[command(after_help = "\
Examples:
  icebox completions bash > /etc/bash_completion.d/icebox
  icebox completions fish > ~/.config/fish/completions/icebox.fish")]
pub(crate) struct Completions {
    /// Which shell
    shell: Shell,
}

impl Completions {
    pub(crate) fn run(self) -> Result<ExitCode, CliError> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::command(), "icebox", &mut script);
        let mut out = std::io::stdout().lock();
        std::io::Write::write_all(&mut out, &script)
            .map_err(CliError::io("write to standard output"))?;
        Ok(ExitCode::SUCCESS)
    }
}
