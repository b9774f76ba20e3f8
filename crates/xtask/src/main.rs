//! `cargo xtask`: the tasks of this repository by name.

use std::path::{Path, PathBuf};
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
        /// Only: what a million frozen boxes cost a server, without a box, CRIU or root.
        #[arg(long, num_args = 0..=1, default_missing_value = "1000000", value_name = "BOXES")]
        million: Option<usize>,
        /// Only: boxes, commands and large files through E2B's Python SDK.
        #[arg(long, conflicts_with = "million")]
        e2b: bool,
        /// Only: the boxes' URLs against nginx, and a frozen box's page in a real browser (nginx, wrk, Chromium).
        #[arg(long, conflicts_with_all = ["million", "e2b"])]
        edge: bool,
        /// Only: the dashboard with many boxes, many pages and much going on (Chromium).
        #[arg(long, conflicts_with_all = ["million", "e2b", "edge"])]
        app: bool,
    },
    /// Requests to a box's program at a steady rate, for `bench --edge`.
    #[command(hide = true)]
    EdgeLoad {
        /// Where to connect.
        address: String,
        /// The host to name.
        host: String,
        /// Requests a second.
        #[arg(value_parser = clap::value_parser!(u32).range(1..))]
        rate: u32,
        /// How long.
        seconds: u64,
    },
    /// The server that `bench --million` measures.
    #[command(hide = true)]
    MillionServer {
        /// Its data folder.
        data: PathBuf,
    },
    /// Write docs/rules.md from the rules' own sentences.
    Docs {
        /// Only fail when the page says something else.
        #[arg(long)]
        check: bool,
    },
    /// Let boxes live through random days of use, failures, crashes and gaps, and check what was promised.
    Sim {
        /// The same seed gives the same run.
        #[arg(long, default_value_t = 1, value_name = "N")]
        seed: u64,
        /// How many boxes live at a time.
        #[arg(long, default_value_t = 400, value_name = "B")]
        boxes: u64,
        /// How many days each of them is followed.
        #[arg(long, default_value_t = 60, value_name = "D")]
        days: u64,
        /// Go on with the next seeds until this long is over.
        #[arg(long, value_name = "S")]
        seconds: Option<u64>,
    },
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let result = match arguments.task {
        Task::Tidy => tidy(),
        Task::Docs { check } => xtask::docs::run(Path::new("."), check),
        Task::Sim {
            seed,
            boxes,
            days,
            seconds,
        } => xtask::sim::run(xtask::sim::Plan {
            seed,
            boxes,
            days,
            seconds,
        }),
        Task::Bench {
            million: Some(boxes),
            ..
        } => xtask::bench::million::run(boxes),
        Task::Bench { e2b: true, .. } => xtask::bench::e2b::run(),
        Task::Bench { edge: true, .. } => xtask::bench::edge::run(),
        Task::Bench { app: true, .. } => xtask::bench::app::run(),
        Task::EdgeLoad {
            address,
            host,
            rate,
            seconds,
        } => xtask::bench::edge::load(&address, &host, rate, seconds),
        Task::Bench { frozen, .. } => xtask::bench::run(frozen),
        Task::MillionServer { data } => xtask::bench::million::serve(&data),
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
