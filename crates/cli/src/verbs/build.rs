//! `icebox build`: a build step whose result an equal build in another box has again without running.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use icebox_wire::rest::{BuildRequest, BuildResponse};

use crate::client::WORK_LIMIT;
use crate::error::CliError;
use crate::printer::{self, note};
use crate::select::box_id;
use crate::settings::Remote;
use crate::text::{bytes, command_line, key_value};

/// How long comparing and packing may take besides the command, in seconds.
const BESIDES_SEC: u64 = 1_800;
const DEFAULT_TIMEOUT_SEC: u32 = 600;
/// The exit code of a command that did not end by itself.
const CUT_OFF: u8 = 124;

/// Build in a box, or put in place what an equal build made
///
/// Equal means: the same content of the folder (but for what --out names), command, variables and tools. Then nothing
/// runs, in whichever box of the account the earlier build was. What the command changes outside of --out is not kept,
/// so a build that does so is not reused.
///
/// Exit code: the command's, 0 when nothing had to run; 125 when Icebox could not run it.
#[derive(Args)]
#[command(override_usage = "icebox build [OPTIONS] <BOX> <DIR> --out <PATH> -- <COMMAND>...")]
#[command(after_help = "\
Examples:
  icebox build web app --out node_modules -- npm ci
  icebox build web app --out dist --env NODE_ENV=production -- npm run build")]
pub(crate) struct Build {
    /// Its name, its id, or the beginning of its id
    #[arg(value_name = "BOX")]
    word: String,
    /// The folder, relative to /work
    #[arg(value_name = "DIR")]
    dir: String,
    /// What the command makes, relative to the folder; may be repeated
    #[arg(long, value_name = "PATH", required = true)]
    out: Vec<String>,
    /// A variable; may be repeated
    #[arg(long, value_name = "K=V", value_parser = key_value)]
    env: Vec<(String, String)>,
    /// The command's deadline, 1 to 3600 [default: 600]
    #[arg(long, value_name = "SEC", value_parser = clap::value_parser!(u32).range(1..=3_600))]
    timeout: Option<u32>,
    /// Why it is built, for people, at most 200 characters
    #[arg(long)]
    note: Option<String>,
    #[command(flatten)]
    pub(super) remote: Remote,
    /// The command
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<String>,
}

impl Build {
    pub(crate) fn run(self) -> Result<ExitCode, CliError> {
        let client = self.remote.client()?;
        let id = box_id(&client, &self.word)?;
        let timeout = self.timeout.unwrap_or(DEFAULT_TIMEOUT_SEC);
        let request = BuildRequest {
            dir: self.dir,
            cmd: command_line(&self.command),
            out: self.out,
            env: BTreeMap::from_iter(self.env),
            timeout_sec: self.timeout,
            note: self.note,
        };
        let limit = WORK_LIMIT + Duration::from_secs(BESIDES_SEC + u64::from(timeout));
        let path = format!("/v1/boxes/{id}/build");
        let answer = client.post(&path, Some(&request), limit)?;
        let built: BuildResponse = answer.read()?;
        printer::notices(&built.notices);
        let code = exit_code(&built);
        if self.remote.json {
            printer::line(&answer.text)?;
            return Ok(ExitCode::from(code));
        }
        if let Some(ran) = &built.ran {
            for text in [&ran.stdout, &ran.stderr].into_iter().flatten() {
                if !text.is_empty() {
                    printer::line(text.trim_end_matches('\n'))?;
                }
            }
        }
        note(&in_words(&built));
        Ok(ExitCode::from(code))
    }
}

fn in_words(built: &BuildResponse) -> String {
    if built.reused {
        return "icebox: nothing ran: what an equal build made is in place".to_owned();
    }
    match (&built.not_cached, built.cached_bytes) {
        (Some(why), _) => format!("icebox: built, and not kept for equal builds: {why}"),
        (None, Some(size)) => format!("icebox: built, and kept for equal builds ({})", bytes(size)),
        (None, None) => "icebox: built".to_owned(),
    }
}

fn exit_code(built: &BuildResponse) -> u8 {
    match &built.ran {
        None => 0,
        Some(ran) => match ran.exit_code {
            Some(code) => u8::try_from(code).unwrap_or(1),
            None => CUT_OFF,
        },
    }
}

#[cfg(test)]
mod tests {
    use icebox_wire::rest::ExecResponse;

    use super::*;

    #[test]
    fn the_exit_code_is_the_commands() {
        let ran = |exit_code| BuildResponse {
            ran: Some(ExecResponse {
                exit_code,
                ..ExecResponse::default()
            }),
            ..BuildResponse::default()
        };
        assert_eq!(exit_code(&BuildResponse::default()), 0);
        assert_eq!(exit_code(&ran(Some(3))), 3);
        assert_eq!(exit_code(&ran(None)), CUT_OFF);
    }
}
