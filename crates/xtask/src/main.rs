//! `cargo xtask`: the tasks of this repository by name.

use std::path::Path;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Tasks of the Icebox repository.
#[derive(Parser)]
#[command(name = "xtask", disable_help_subcommand = true)]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Check the tree: file sizes, headers, who may know what.
    Tidy,
    /// Kill the server, CRIU, or both at every step of start, freeze, thaw, stop and restore.
    Crash {
        /// How often the whole matrix is run.
        #[arg(long, default_value_t = 1, value_name = "N")]
        rounds: u32,
        /// Only the steps whose name contains this.
        #[arg(long, value_name = "TEXT")]
        only: Option<String>,
    },
    /// Measure freeze, thaw, start and exec against baselines in the same run (release build, podman).
    Bench {
        /// How many frozen boxes the server's memory is measured with.
        #[arg(long, default_value_t = 1_000, value_name = "N")]
        frozen: u32,
    },
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let result = match arguments.task {
        Task::Tidy => tidy(),
        Task::Bench { frozen } => xtask::bench::run(frozen),
        Task::Crash { rounds, only } => xtask::crash::run(rounds, only.as_deref()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn tidy() -> anyhow::Result<()> {
    let found = xtask::tidy::check(Path::new("."))?;
    for line in &found {
        eprintln!("{line}");
    }
    anyhow::ensure!(found.is_empty(), "{} things are not tidy", found.len());
    println!("tidy");
    Ok(())
}
