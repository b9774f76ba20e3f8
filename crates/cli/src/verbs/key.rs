//! `icebox key`: where the admin key of a server on this machine is.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use crate::error::CliError;
use crate::printer;
use crate::settings::{DEFAULT_DATA, KEY_FILE, read_key};

/// Show where the admin key is
///
/// The first start of a server writes the key of the account `default` to a file that only its owner may read. The
/// other verbs use it on their own; other programs send it as `Authorization: Bearer <key>`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  icebox key
  curl -H \"Authorization: Bearer $(icebox key --reveal)\" http://127.0.0.1:7070/v1/boxes")]
pub(crate) struct Key {
    /// Print the key itself
    #[arg(long)]
    reveal: bool,
    /// The server's folder
    #[arg(long, env = "ICEBOX_DATA", default_value = DEFAULT_DATA, hide_env_values = true)]
    data: PathBuf,
}

impl Key {
    pub(crate) fn run(self) -> Result<ExitCode, CliError> {
        let path = self.data.join(KEY_FILE);
        if self.reveal {
            let key = read_key(&path).map_err(CliError::NoLocalKey)?;
            printer::line(&key)?;
        } else {
            printer::line(&path.display().to_string())?;
        }
        Ok(ExitCode::SUCCESS)
    }
}
