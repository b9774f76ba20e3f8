//! `icebox logs`: the kept output of a command, from any offset, also while it runs. Owns reading on at the same offset
//! when the connection breaks.

use std::io::{Read as _, Write};
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use clap::Args;
use icebox_wire::rest::ProcView;

use crate::client::{Client, Output, Stream};
use crate::error::CliError;
use crate::jsonl::JsonLines;
use crate::printer::{self, note};
use crate::select::box_id;
use crate::settings::Remote;

/// How often a stream that broke is opened again, a second apart, before it is given up.
const REOPENS: u32 = 30;

/// Show the output of a command, also while it runs
///
/// Standard output and standard error of the command go to those of this program. The whole output is kept (at most 64
/// MiB a stream, then its middle is dropped). Asking is use: a frozen box wakes for it.
///
/// With --json each piece is a line `{"stream":"stdout","offset":N,"text":"…"}` on standard output; bytes that are not
/// UTF-8 are replaced.
#[derive(Args)]
#[command(after_help = "\
Examples:
  icebox logs web                         the newest command
  icebox logs --follow web 3f             one that `icebox ps web` shows, until it ends
  icebox logs --stream stdout --offset 1000000 web 3f")]
pub(crate) struct Logs {
    /// Its name, its id, or the beginning of its id
    #[arg(value_name = "BOX")]
    word: String,
    /// The command's id or the beginning of it [default: the newest command]
    #[arg(value_name = "EXEC")]
    exec: Option<String>,
    /// Go on until the command ends
    #[arg(short, long)]
    follow: bool,
    /// Only this stream
    #[arg(long)]
    stream: Option<Stream>,
    /// Begin at this byte of each stream
    #[arg(long, default_value_t = 0, value_name = "BYTES")]
    offset: u64,
    #[command(flatten)]
    pub(super) remote: Remote,
}

impl Logs {
    pub(crate) fn run(self) -> Result<ExitCode, CliError> {
        let client = self.remote.client()?;
        let (list, _) = client.procs(&box_id(&client, &self.word)?)?;
        let proc = choose(&list.procs, self.exec.as_deref())?;
        if self.exec.is_none() && !self.remote.json {
            note(&format!(
                "{}: {}",
                proc.exec_id,
                crate::text::printable(&proc.cmd)
            ));
        }
        let read = |stream: Stream| match self.stream {
            Some(only) if only != stream => Ok(()),
            Some(_) | None => self.copy(&client, &proc.output_url, stream),
        };
        // Both at once: a command that is followed may write to either at any time.
        let (out, err) = thread::scope(|scope| {
            let err = scope.spawn(|| read(Stream::Stderr));
            (read(Stream::Stdout), err.join())
        });
        out?;
        err.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        Ok(ExitCode::SUCCESS)
    }

    /// Passes one stream on, opened again where it broke.
    fn copy(&self, client: &Client, url: &str, stream: Stream) -> Result<(), CliError> {
        let mut to = match (self.remote.json, stream) {
            (true, _) => Sink::Json(JsonLines::new(stream, self.offset, std::io::stdout())),
            (false, Stream::Stdout) => Sink::Raw(Box::new(std::io::stdout())),
            (false, Stream::Stderr) => Sink::Raw(Box::new(std::io::stderr())),
        };
        let mut at = self.offset;
        let mut failures = 0;
        loop {
            let broke = match client.output(url, stream, at, self.follow) {
                Ok(output) => {
                    let before = at;
                    let Some(error) = copy_parts(output, &mut to, &mut at)? else {
                        return to.end();
                    };
                    failures = if at > before { 0 } else { failures };
                    client.lost(error)
                }
                Err(error @ (CliError::Lost { .. } | CliError::Unreachable { .. }))
                    if at > self.offset =>
                {
                    error
                }
                Err(error) => return Err(error),
            };
            failures += 1;
            if failures > REOPENS {
                return Err(broke);
            }
            thread::sleep(Duration::from_secs(1));
        }
    }
}

/// Passes an output on, `at` the offset behind it. What broke it, if it did not come to its end.
fn copy_parts(
    mut output: Output,
    to: &mut Sink,
    at: &mut u64,
) -> Result<Option<std::io::Error>, CliError> {
    for (begins, length) in output.parts() {
        to.skip(*at, begins)?;
        let mut part = (&mut output.bytes).take(length);
        let (copied, end) = printer::copy(&mut part, to.writer())?;
        *at = begins + copied;
        if end.is_some() || copied < length {
            return Ok(end);
        }
    }
    Ok(None)
}

/// Where one stream goes.
enum Sink {
    Raw(Box<dyn Write>),
    Json(JsonLines<std::io::Stdout>),
}

impl Sink {
    fn writer(&mut self) -> &mut dyn Write {
        match self {
            Self::Raw(to) => to,
            Self::Json(lines) => lines,
        }
    }

    /// The next bytes begin at `begins` where `at` was wanted.
    fn skip(&mut self, at: u64, begins: u64) -> Result<(), CliError> {
        match self {
            Self::Raw(_) => printer::not_kept(at, begins),
            Self::Json(lines) => lines
                .skip_to(begins)
                .map_err(CliError::io("pass the output on"))?,
        }
        Ok(())
    }

    fn end(&mut self) -> Result<(), CliError> {
        match self {
            Self::Raw(_) => Ok(()),
            Self::Json(lines) => lines.end().map_err(CliError::io("pass the output on")),
        }
    }
}

/// The command that is meant: by the beginning of its id, or the newest.
pub(super) fn choose<'a>(
    procs: &'a [ProcView],
    exec: Option<&str>,
) -> Result<&'a ProcView, CliError> {
    let Some(exec) = exec else {
        return procs.first().ok_or_else(|| {
            CliError::NoCommand(
                "no command has run in this box: run one with `icebox exec`".to_owned(),
            )
        });
    };
    let found: Vec<_> = procs
        .iter()
        .filter(|p| p.exec_id.starts_with(exec))
        .collect();
    match found.as_slice() {
        [one] => Ok(one),
        [] => Err(CliError::NoCommand(format!(
            "no command of this box has the id `{exec}`: `icebox ps` shows which there are"
        ))),
        several => Err(CliError::NoCommand(format!(
            "{} commands have ids that begin with `{exec}`: give more of it",
            several.len()
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn procs() -> Vec<ProcView> {
        let proc = |id: &str| ProcView {
            exec_id: id.to_owned(),
            cmd: "true".to_owned(),
            background: false,
            running: false,
            pid: None,
            exit_code: Some(0),
            signal: None,
            timed_out: false,
            ms: 1,
            stdout_bytes: 0,
            stderr_bytes: 0,
            ..ProcView::default()
        };
        vec![
            proc("3f00000000000000"),
            proc("3f10000000000000"),
            proc("aa00000000000000"),
        ]
    }

    #[test]
    fn a_command_is_meant_by_the_beginning_of_its_id_or_is_the_newest() {
        let procs = procs();
        let id = |exec: Option<&str>| choose(&procs, exec).map(|p| p.exec_id.clone());
        assert_eq!(id(None).unwrap(), "3f00000000000000");
        assert_eq!(id(Some("aa")).unwrap(), "aa00000000000000");
        assert!(id(Some("3f")).unwrap_err().line().contains("2 commands"));
        assert!(id(Some("bb")).unwrap_err().line().contains("icebox ps"));
        assert!(
            choose(&[], None)
                .unwrap_err()
                .line()
                .contains("icebox exec")
        );
    }
}
