//! `icebox key`: where the admin key of a server on this machine is; and what that key is for: accounts, their keys and
//! their credits.

mod accounts;
mod revoke;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde_json::json;

use crate::error::CliError;
use crate::printer;
use crate::settings::{DEFAULT_DATA, KEY_FILE, read_key};

/// Show where the admin key is; manage accounts, their keys and their credits
///
/// The first start of a server writes the key of the account `default` to a file that only its owner may read. The
/// other verbs use it on their own; other programs send it as `Authorization: Bearer <key>`.
///
/// A box costs credits by its size for the time it is up, and nothing while it is frozen: with the usual prices a credit
/// an hour for 2 CPUs and 2 GiB of memory. Accounts are unlimited until they are given credits. When none are left, all
/// boxes of the account freeze with their memory, whatever they are doing; the next call wakes them once there are some.
#[derive(Args)]
#[command(args_conflicts_with_subcommands = true, disable_help_subcommand = true)]
#[command(after_help = "\
Examples:
  icebox key
  icebox key --json                       its place, for a program; with --reveal itself, too
  curl -H \"Authorization: Bearer $(icebox key --reveal)\" http://127.0.0.1:7070/v1/boxes
  icebox key new team --credits 100       an account of its own, which prints its key
  icebox key ls                           accounts, what they have left and when that is used up
  icebox key ls team                      the keys of an account
  icebox key revoke team 3f9a61c2d7b0     one of them is let in no more
  icebox key credits team --add 50
  icebox key credits team --unlimited")]
pub(crate) struct Key {
    #[command(subcommand)]
    manage: Option<Manage>,
    /// Print the key itself
    #[arg(long)]
    reveal: bool,
    /// Print the answer as JSON, and errors as JSON on standard error
    #[arg(long)]
    json: bool,
    /// The server's folder
    #[arg(long, env = "ICEBOX_DATA", default_value = DEFAULT_DATA, hide_env_values = true)]
    data: PathBuf,
}

#[derive(Subcommand)]
enum Manage {
    Ls(accounts::Ls),
    New(accounts::New),
    Add(accounts::Add),
    Revoke(revoke::Revoke),
    Credits(accounts::Credits),
}

impl Key {
    pub(crate) fn run(self) -> Result<ExitCode, CliError> {
        match self.manage {
            Some(Manage::Ls(verb)) => verb.run()?,
            Some(Manage::New(verb)) => verb.run()?,
            Some(Manage::Add(verb)) => verb.run()?,
            Some(Manage::Revoke(verb)) => verb.run()?,
            Some(Manage::Credits(verb)) => verb.run()?,
            None => {
                let path = self.data.join(KEY_FILE);
                let key = self.reveal.then(|| read_key(&path)).transpose();
                let key = key.map_err(CliError::NoLocalKey)?;
                let path = path.display().to_string();
                if self.json {
                    let mut shown = json!({"path": path});
                    if let Some(key) = key {
                        shown["key"] = key.into();
                    }
                    printer::line(&shown.to_string())?;
                } else {
                    printer::line(&key.unwrap_or(path))?;
                }
            }
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Whether errors are wanted as JSON.
    pub(crate) fn json(&self) -> bool {
        match &self.manage {
            Some(Manage::Ls(verb)) => verb.remote.json,
            Some(Manage::New(verb)) => verb.remote.json,
            Some(Manage::Add(verb)) => verb.remote.json,
            Some(Manage::Revoke(verb)) => verb.remote.json,
            Some(Manage::Credits(verb)) => verb.remote.json,
            None => self.json,
        }
    }
}
