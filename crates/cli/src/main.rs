//! The `icebox` program: reads the command line, runs one verb, turns its outcome into an exit code. Each verb has a
//! file of its own in `verbs`; what they share lies beside this file.

mod adapter;
mod client;
mod error;
mod interrupt;
mod jsonl;
mod printer;
mod progress;
#[cfg(test)]
mod sample;
mod select;
mod settings;
mod stopwatch;
mod text;
mod tree;
mod trust;
mod verbs;
mod words;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::error::CliError;
use crate::verbs::Verb;

/// Boxes for programs: they start in a moment, freeze with their memory when nobody uses them, and go on at the next
/// call as if nothing had happened.
#[derive(Parser)]
#[command(
    name = "icebox",
    version,
    propagate_version = false,
    arg_required_else_help = true
)]
#[command(after_help = "\
Examples:
  icebox demo                             see all of it at work, in a minute
  icebox serve                            run the server (as root)
  icebox start --name web                 a new box
  icebox exec web -- uname -a             run a command in it
  icebox shell web                        a terminal in it
  icebox cp notes.txt web:                a file into it
  icebox ls                               what there is, why it is awake, when it freezes

BOX is a name, an id, or the beginning of an id. `icebox VERB --help` says more.")]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

fn main() -> ExitCode {
    let Cli { verb } = parse(std::env::args_os().collect());
    let (json, own_errors) = (verb.json(), verb.exit_code_of_own_errors());
    match verb.run() {
        Ok(code) => code,
        Err(error) => {
            tell(&error, json);
            ExitCode::from(own_errors.unwrap_or(error.exit_code()))
        }
    }
}

/// Reads the command line, or ends the program with what is wrong with it.
fn parse(args: Vec<OsString>) -> Cli {
    let args = asked_about_help(args);
    Cli::try_parse_from(&args).unwrap_or_else(|mut error| {
        if error.kind() == ErrorKind::UnknownArgument
            && args.get(1).is_some_and(|verb| verb == "exec")
            && !args.iter().any(|arg| arg == "--")
        {
            let tip = "the command goes behind `--`, as in `icebox exec web -- ls -la`";
            let tip = ContextValue::StyledStrs(vec![tip.into()]);
            error.insert(ContextKind::Suggested, tip);
        }
        error.exit()
    })
}

/// `icebox help VERB --help` asks for the same as without the flag, which `help` itself does not have.
fn asked_about_help(mut args: Vec<OsString>) -> Vec<OsString> {
    if args.get(1).is_some_and(|verb| verb == "help") {
        let before = args.len();
        args.retain(|arg| arg != "--help" && arg != "-h");
        if args.len() == 2 && before > 2 {
            args.push("help".into());
        }
    }
    args
}

/// One line on standard error.
fn tell(error: &CliError, json: bool) {
    if matches!(error, CliError::OutputClosed) {
        return;
    }
    if json {
        printer::note(&error.json());
    } else {
        let word = printer::styled(printer::RED, "error:");
        printer::note(&format!("{word} {}", error.line()));
    }
}
