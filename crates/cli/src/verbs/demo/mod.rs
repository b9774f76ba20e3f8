//! `icebox demo`: the main job end to end, on a server of its own, with every claim checked. Owns the order of steps,
//! what is told of them, and that nothing is left behind.

mod counter;
mod folder;
mod host;
mod run;
mod server;
mod tools;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;

use crate::error::CliError;
use crate::interrupt::Interrupt;
use crate::printer::{self, BOLD, note, styled};
use crate::stopwatch::ms;
use crate::text::bytes;
use folder::Folder;
use run::Run;

/// Where the demo keeps everything when nothing else is said.
const DEFAULT_FOLDER: &str = "/var/lib/icebox/demo";

/// Show a box freeze to disk, outlive its server, and go on counting
///
/// Runs a server of its own on a free port, starts a box with a program that counts, freezes it with its memory, ends
/// the server, starts it again, and uses the box: the count goes on where it was. Everything is measured and checked,
/// and removed in the end. Needs root. Safe to repeat; takes a minute at most.
#[derive(Args)]
#[command(after_help = "\
Examples:
  icebox demo                             as root
  icebox demo --keep                      leave the frozen box, to look at it")]
pub(crate) struct Demo {
    /// The folder for the demo's server: it must be empty, or an earlier demo's
    #[arg(long, default_value = DEFAULT_FOLDER)]
    data: PathBuf,
    /// Leave the frozen box and its folder in the end
    #[arg(long)]
    keep: bool,
}

/// What was measured, for the summary.
#[derive(Default)]
struct Measured {
    started: Duration,
    exec: Duration,
    memory_bytes: u64,
    frozen: Duration,
    on_disk: bool,
    copy_bytes: u64,
    restarted: Duration,
    thawed: Duration,
    pause_us: u64,
    count: u64,
}

impl Demo {
    pub(crate) fn run(self) -> Result<ExitCode, CliError> {
        if !rustix::process::geteuid().is_root() {
            return Err(CliError::Host(
                "boxes need root: run `sudo icebox demo`".to_owned(),
            ));
        }
        let interrupt = Interrupt::watch()?;
        let folder = Folder::claim(&self.data)?;
        let log = server::log_path(folder.path());
        let title = "Icebox demo: a box freezes with its memory, outlives its server, and goes on counting.";
        note(&styled(BOLD, title));
        let mut run = Run::new(folder, log.clone(), interrupt);
        let outcome = run.everything();
        let step = run.step().to_owned();
        let keep = self.keep && outcome.is_ok();
        // Whatever happened: nothing is left behind.
        let (cleaned, measured) = run.clean_up(keep);
        if let Err(error) = outcome {
            if let Err(left) = cleaned {
                note(&format!("      and the clean-up failed: {}", left.line()));
            }
            if matches!(error, CliError::Interrupted) {
                return Err(error);
            }
            let why = error.line();
            return Err(CliError::Demo { step, why, log });
        }
        cleaned?;
        if !keep {
            // It has served its purpose; when it cannot be removed, it does no harm.
            drop(std::fs::remove_file(&log));
        }
        summary(&measured)?;
        connect(keep.then_some(&self.data))?;
        Ok(ExitCode::SUCCESS)
    }
}

/// What was measured.
fn summary(measured: &Measured) -> Result<(), CliError> {
    let place = if measured.on_disk {
        "to disk"
    } else {
        "in RAM"
    };
    let copy = if measured.on_disk {
        format!(", a copy of {}", bytes(measured.copy_bytes))
    } else {
        String::new()
    };
    let pause = ms(Duration::from_micros(measured.pause_us));
    let rows = [
        ("start of a box, until ready", ms(measured.started)),
        ("a command in it (true), median of 20", ms(measured.exec)),
        ("memory of its program", bytes(measured.memory_bytes)),
        ("freeze", format!("{} {place}{copy}", ms(measured.frozen))),
        ("server ended and started again", ms(measured.restarted)),
        ("thaw, until the first answer", ms(measured.thawed)),
        ("the program stood still for", pause),
        ("it counted without a gap to", measured.count.to_string()),
    ];
    printer::line("")?;
    printer::line(&styled(BOLD, "Measured"))?;
    for (name, value) in rows {
        printer::line(&format!("  {name:<38} {value}"))?;
    }
    Ok(())
}

/// What to type next.
fn connect(kept: Option<&PathBuf>) -> Result<(), CliError> {
    // As it was typed, it can be typed again.
    let program = std::env::args().next();
    let program = program.unwrap_or_else(|| "icebox".to_owned());
    printer::line("")?;
    printer::line(&styled(BOLD, "Now you"))?;
    if let Some(folder) = kept {
        let folder = folder.display();
        printer::line(&format!(
            "  {program} serve --data {folder}         # the box of this demo is in it, frozen"
        ))?;
        printer::line(&format!(
            "  {program} exec --data {folder} demo -- tail -n 1 count"
        ))?;
        printer::line(&format!(
            "  {program} stop --data {folder} demo        # in the end; then end the server, too"
        ))?;
        return printer::line(&format!("  rm -r {folder}"));
    }
    for (command, what) in [
        ("serve", "the server, on http://127.0.0.1:7070"),
        ("start --name first", "in another terminal: a box"),
        ("exec first -- uname -a", "a command in it"),
        ("status first", "why it is awake, when it freezes"),
    ] {
        printer::line(&format!(
            "  {:<50} # {what}",
            format!("{program} {command}")
        ))?;
    }
    printer::line(&format!(
        "  curl -H \"Authorization: Bearer $({program} key --reveal)\" http://127.0.0.1:7070/v1/boxes"
    ))
}
