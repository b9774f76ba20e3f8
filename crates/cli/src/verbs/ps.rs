//! `icebox ps`: the commands of a box, running and ended.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use icebox_wire::rest::ProcView;

use crate::error::CliError;
use crate::printer::{self, Cell, GREEN};
use crate::select::box_id;
use crate::settings::Remote;
use crate::stopwatch;
use crate::text::bytes;
use crate::words;

/// Ended commands that are shown unless all are wanted.
const SHOWN_ENDED: usize = 20;

/// List the commands of a box, running and ended, newest first
///
/// The commands are those given to `icebox exec` and other calls, not every process in the box. Asking is use: a frozen
/// box wakes for it.
///
/// The commands that run, and the newest 20 that have ended; with --all every one that is still known. CPU is how many CPUs a
/// command that runs keeps busy just now.
#[derive(Args)]
#[command(after_help = "\
Examples:
  icebox ps web
  icebox logs web 3f                      the output of one of them")]
pub(crate) struct Ps {
    /// Its name, its id, or the beginning of its id
    #[arg(value_name = "BOX")]
    word: String,
    /// All ended ones that are still known
    #[arg(short, long)]
    all: bool,
    #[command(flatten)]
    pub(super) remote: Remote,
}

impl Ps {
    pub(crate) fn run(self) -> Result<ExitCode, CliError> {
        let client = self.remote.client()?;
        let (list, answer) = client.procs(&box_id(&client, &self.word)?)?;
        printer::notices(&list.notices);
        if self.remote.json {
            printer::line(&answer.text)?;
            return Ok(ExitCode::SUCCESS);
        }
        if list.procs.is_empty() {
            printer::note("No command has run in it. Run one with `icebox exec BOX -- command`.");
            return Ok(ExitCode::SUCCESS);
        }
        let shown = shown(&list.procs, self.all);
        let rows: Vec<_> = shown.iter().map(|proc| row(proc)).collect();
        printer::table(["EXEC", "STATE", "TIME", "CPU", "OUTPUT", "COMMAND"], &rows)?;
        let older = list.procs.len() - rows.len();
        if older > 0 {
            printer::note(&format!("{older} older ones have ended: --all shows them."));
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Those that run and the newest ended ones, or all of them.
fn shown(procs: &[ProcView], all: bool) -> Vec<&ProcView> {
    let mut ended = 0;
    let shown = procs.iter().filter(|proc| {
        ended += usize::from(!proc.running);
        all || proc.running || ended <= SHOWN_ENDED
    });
    shown.collect()
}

fn row(proc: &ProcView) -> [Cell; 6] {
    let state = state(proc);
    let style = if proc.running { GREEN } else { printer::DIM };
    [
        Cell::plain(&proc.exec_id),
        Cell::styled(style, &state),
        Cell::plain(&took(proc.ms)),
        Cell::plain(&proc.cpu.map_or_else(String::new, |cpu| format!("{cpu:.2}"))),
        Cell::plain(&bytes(proc.stdout_bytes.saturating_add(proc.stderr_bytes))),
        Cell::plain(&proc.cmd),
    ]
}

pub(super) fn state(proc: &ProcView) -> String {
    match (proc.running, proc.pid, proc.exit_code, &proc.signal) {
        (true, Some(pid), _, _) if proc.background => format!("background, pid {pid}"),
        (true, Some(pid), _, _) => format!("running, pid {pid}"),
        (true, None, _, _) => "running".to_owned(),
        (false, ..) if proc.timed_out => "ended by its deadline".to_owned(),
        (false, _, Some(code), _) => format!("exit code {code}"),
        (false, _, None, Some(signal)) => format!("ended by {signal}"),
        (false, _, None, None) => "ended".to_owned(),
    }
}

/// How long one has run: to the millisecond where that tells something.
fn took(run_ms: u64) -> String {
    if run_ms < 10_000 {
        return stopwatch::ms(Duration::from_millis(run_ms));
    }
    words::span(run_ms / 1_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn running_ones_are_shown_however_old_and_ended_ones_up_to_a_number() {
        let proc = |index: usize| ProcView {
            exec_id: index.to_string(),
            cmd: "true".to_owned(),
            background: false,
            running: index == 29,
            pid: None,
            exit_code: None,
            signal: None,
            timed_out: false,
            ms: 1,
            stdout_bytes: 0,
            stderr_bytes: 0,
            ..ProcView::default()
        };
        let procs: Vec<_> = (0..30).map(proc).collect();
        let some = shown(&procs, false);
        assert_eq!(some.len(), SHOWN_ENDED + 1);
        assert_eq!(some.last().unwrap().exec_id, "29");
        assert_eq!(shown(&procs, true).len(), 30);
    }

    #[test]
    fn times_are_exact_while_they_are_short() {
        for (ms, expected) in [
            (0, "0.0 ms"),
            (904, "904 ms"),
            (12_000, "12 s"),
            (600_000, "10 min"),
        ] {
            assert_eq!(took(ms), expected, "{ms}");
        }
    }
}
