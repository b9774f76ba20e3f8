//! `icebox exec`: runs a command in a box and ends as the command did. Owns the exit codes, and asking again when the
//! connection breaks: the client chooses the command's id, so a repeat answers with the first run's result.

mod leave;
mod live;

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, Command};
use icebox_server::commands::READY_SEC;
use icebox_wire::rest::{ExecRequest, ExecResponse};
use rustix::fs::FileType;

use self::live::{Progress, Written};
use crate::client::{Answer, Client, Stream};
use crate::error::CliError;
use crate::printer::{self, note};
use crate::select::box_id;
use crate::settings::Remote;
use crate::text::{command_line, key_value};

/// The exit code of errors that are Icebox's and not the command's.
pub(super) const OWN_ERROR: u8 = 125;
/// The exit code of a command that its deadline ended.
const TIMED_OUT: u8 = 124;
/// The exit code of a shell that finds no such program.
const NOT_FOUND: u8 = 127;
/// The deadline of a command that is given none, in seconds (rule 12.1).
const DEFAULT_TIMEOUT_SEC: u32 = 600;
/// How much standard input is sent at most, in bytes.
const MAX_STDIN_BYTES: u64 = 1 << 20;
/// How often a call whose connection broke is made again, a second apart.
const REPEATS: u32 = 30;

/// Run a command in a box and end with its exit code
///
/// A frozen box wakes first. One argument is a line for bash; several are passed to the program as they are. The command
/// runs in /work as the box's user; its output comes as it writes it. It goes on when this program is ended: find it with
/// `icebox ps`. A child that it leaves in the background and that keeps the output open delays the end: redirect its
/// output. With --json each stream is its last 16 KB.
///
/// Exit code: the command's; 124 when its deadline ended it; 128 and the signal's number when a signal did; 125 when
/// Icebox could not run it. With --background: 0 once it runs; 124 when it runs and --ready-port or --ready-log did not come
/// true in time, which ends nothing.
#[derive(Args)]
#[command(override_usage = "icebox exec [OPTIONS] <BOX> -- <COMMAND>...")]
#[command(after_help = "\
Examples:
  icebox exec web -- ls -la
  icebox exec web -- 'make test 2>&1 | tail -n 20'
  icebox exec web --background -- npm run dev
  icebox exec web --background --ready-port 3000 -- npm start
  icebox exec web --stdin -- python3 - < script.py
  icebox exec web --timeout 3600 --cwd app --env CI=1 -- make")]
pub(crate) struct Exec {
    /// Its name, its id, or the beginning of its id
    #[arg(value_name = "BOX")]
    word: String,
    /// Start it, print its id and do not wait; it keeps the box awake for an hour at most
    #[arg(short, long, conflicts_with = "stdin")]
    background: bool,
    /// In the background: go on once this port in the box takes connections
    #[arg(long, value_name = "PORT", requires = "background")]
    ready_port: Option<u16>,
    /// In the background: go on once a line of its output holds this text
    #[arg(long, value_name = "TEXT", requires = "background")]
    ready_log: Option<String>,
    /// How long to wait for that, 1 to 300 [default: 60]
    #[arg(long, value_name = "SEC", value_parser = clap::value_parser!(u32).range(1..=300))]
    ready_sec: Option<u32>,
    /// Where it runs, relative to /work
    #[arg(long, value_name = "DIR")]
    cwd: Option<String>,
    /// A variable; may be repeated
    #[arg(long, value_name = "K=V", value_parser = key_value)]
    env: Vec<(String, String)>,
    /// Its deadline, 1 to 3600 [default: 600; none in the background]
    #[arg(long, value_name = "SEC", value_parser = clap::value_parser!(u32).range(1..=3_600))]
    timeout: Option<u32>,
    /// Send this program's standard input (text, at most 1 MiB)
    #[arg(long)]
    stdin: bool,
    /// Wait this long for room if the box is frozen and the host full, 0 to 1800 [default: 30]
    #[arg(long, alias = "wait-for-capacity", value_name = "SEC", value_parser = clap::value_parser!(u32).range(0..=1_800))]
    wait_for_capacity_sec: Option<u32>,
    /// Why it is run, for people, at most 200 characters
    #[arg(long)]
    note: Option<String>,
    #[command(flatten)]
    pub(super) remote: Remote,
    /// The command
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<String>,
}

impl Exec {
    pub(crate) fn run(self) -> Result<ExitCode, CliError> {
        let client = Arc::new(self.remote.client()?);
        let id = box_id(&client, &self.word)?;
        let request = self.request()?;
        if self.background {
            let code = self.in_background(&run_once(&client, &id, &request)?)?;
            self.tell_unread();
            return Ok(code);
        }
        leave::tell_on_interrupt(&self.word, &request, self.remote.json)?;
        if self.remote.json {
            let answer = run_once(&client, &id, &request)?;
            let ended: ExecResponse = answer.read()?;
            printer::line(&answer.text)?;
            printer::notices(&ended.notices);
            return Ok(ExitCode::from(exit_code(&ended)));
        }
        let (answer, progress) = live::run(&client, &id, &request)?;
        let ended: ExecResponse = answer.read()?;
        pass_rest_on(&client, &ended, progress)?;
        printer::notices(&ended.notices);
        if ended.timed_out == Some(true) {
            let limit = request.timeout_sec.unwrap_or(DEFAULT_TIMEOUT_SEC);
            note(&format!(
                "icebox: the command was ended after {limit} s; --timeout sets another limit"
            ));
        }
        if let Some(why) = &ended.end_reason {
            note(&format!("icebox: {why}"));
        }
        self.tell_unread();
        let code = exit_code(&ended);
        if let (NOT_FOUND, Some(flag)) = (code, late_flag(&self.command)) {
            note(&format!(
                "icebox: `{flag}` was taken as a part of the command: options of exec go before `--`"
            ));
        }
        Ok(ExitCode::from(code))
    }

    /// Says that somebody piped something in which went nowhere.
    fn tell_unread(&self) {
        if !self.stdin && !self.remote.json && is_piped_in() {
            note("icebox: standard input was not sent to the command: --stdin sends it");
        }
    }

    fn in_background(&self, answer: &Answer) -> Result<ExitCode, CliError> {
        let began: ExecResponse = answer.read()?;
        if self.remote.json {
            printer::line(&answer.text)?;
        } else {
            printer::line(&began.exec_id)?;
            note(&format!(
                "Its output: icebox logs --follow {} {}",
                self.word, began.exec_id
            ));
        }
        printer::notices(&began.notices);
        if began.ready == Some(false) {
            note(&format!(
                "icebox: it runs on, but was not up after {} s, hence exit code {TIMED_OUT}; look at its output, or wait \
                 longer with --ready-sec",
                self.ready_sec.unwrap_or(READY_SEC)
            ));
            return Ok(ExitCode::from(TIMED_OUT));
        }
        Ok(ExitCode::SUCCESS)
    }

    fn request(&self) -> Result<ExecRequest, CliError> {
        let stdin = if self.stdin {
            Some(standard_input()?)
        } else {
            None
        };
        Ok(ExecRequest {
            cmd: command_line(&self.command),
            cwd: self.cwd.clone(),
            env: BTreeMap::from_iter(self.env.iter().cloned()),
            timeout_sec: self.timeout,
            background: self.background,
            stdin,
            note: self.note.clone(),
            exec_id: Some(new_exec_id()?),
            wait_for_capacity_sec: self.wait_for_capacity_sec,
            ready_port: self.ready_port,
            ready_log: self.ready_log.clone(),
            ready_sec: self.ready_sec,
            ..ExecRequest::default()
        })
    }
}

/// Runs it, once however often the connection breaks on the way.
pub(super) fn run_once(
    client: &Client,
    id: &str,
    request: &ExecRequest,
) -> Result<Answer, CliError> {
    let path = format!("/v1/boxes/{id}/exec");
    let deadline = Duration::from_secs(u64::from(
        request.timeout_sec.unwrap_or(DEFAULT_TIMEOUT_SEC),
    ));
    let ready = Duration::from_secs(u64::from(request.ready_sec.unwrap_or_default()));
    let limit = super::start::limit(request.wait_for_capacity_sec) + deadline + ready;
    let mut repeats = 0;
    loop {
        let error = match client.post(&path, Some(request), limit) {
            Ok(answer) => return Ok(answer),
            Err(error) => error,
        };
        // Before the first call got through, nobody has promised anything.
        let broke = matches!(error, CliError::Lost { .. }) || (repeats > 0 && is_unsent(&error));
        if !broke || repeats == REPEATS {
            return Err(
                if error.is_passing() && (repeats > 0 || !is_unsent(&error)) {
                    let (id, exec_id) =
                        (id.to_owned(), request.exec_id.clone().unwrap_or_default());
                    let error = Box::new(error);
                    CliError::MayRun { id, exec_id, error }
                } else {
                    error
                },
            );
        }
        if repeats == 0 {
            note("icebox: the connection to the server broke; asking again for the same command");
        }
        repeats += 1;
        std::thread::sleep(Duration::from_secs(1));
    }
}

/// Whether a call did not get as far as the server.
fn is_unsent(error: &CliError) -> bool {
    matches!(error, CliError::Unreachable { .. })
}

/// 16 hex digits that nobody has chosen before.
fn new_exec_id() -> Result<String, CliError> {
    let mut bytes = [0; 8];
    let random = std::fs::File::open("/dev/urandom").and_then(|mut f| f.read_exact(&mut bytes));
    random.map_err(CliError::io("read /dev/urandom"))?;
    Ok(format!("{:016x}", u64::from_ne_bytes(bytes)))
}

fn standard_input() -> Result<String, CliError> {
    let mut bytes = Vec::new();
    let read = std::io::stdin()
        .lock()
        .take(MAX_STDIN_BYTES + 1)
        .read_to_end(&mut bytes);
    read.map_err(CliError::io("read standard input"))?;
    if bytes.len() as u64 > MAX_STDIN_BYTES {
        return Err(CliError::Usage(
            "standard input is over 1 MiB: put it into a file in the box first".to_owned(),
        ));
    }
    String::from_utf8(bytes).map_err(|_| {
        CliError::Usage(
            "standard input is not UTF-8 text: send it encoded, as with base64".to_owned(),
        )
    })
}

/// Whether standard input is a pipe with something in it.
fn is_piped_in() -> bool {
    let input = rustix::stdio::stdin();
    let is_pipe = rustix::fs::fstat(input)
        .is_ok_and(|found| FileType::from_raw_mode(found.st_mode) == FileType::Fifo);
    is_pipe && rustix::io::ioctl_fionread(input).is_ok_and(|waiting| waiting > 0)
}

/// Writes what of the ended command's output is not written yet.
fn pass_rest_on(client: &Client, ended: &ExecResponse, progress: Progress) -> Result<(), CliError> {
    for stream in [Stream::Stdout, Stream::Stderr] {
        let written = progress.of(stream);
        let mut to: Box<dyn Write> = match stream {
            Stream::Stdout => Box::new(std::io::stdout().lock()),
            Stream::Stderr => Box::new(std::io::stderr().lock()),
        };
        pass_on(client, ended, stream, written, &mut *to)?;
    }
    Ok(())
}

/// Writes the rest of a stream: from the answer, or from the server when the answer has only a part of the stream.
fn pass_on(
    client: &Client,
    ended: &ExecResponse,
    stream: Stream,
    written: Written,
    to: &mut dyn Write,
) -> Result<(), CliError> {
    if written.whole {
        return Ok(());
    }
    let text = match stream {
        Stream::Stdout => ended.stdout.as_deref(),
        Stream::Stderr => ended.stderr.as_deref(),
    };
    let text = text.unwrap_or_default();
    // A replacement character may stand for a byte that was not text.
    let partial = ended.truncated == Some(true) || text.contains(char::REPLACEMENT_CHARACTER);
    match &ended.output_url {
        Some(url) if partial => {
            let mut rest = client.output(url, stream, written.to, false)?;
            let mut at = written.to;
            for (begins, length) in rest.parts() {
                printer::not_kept(at, begins);
                match printer::copy(&mut (&mut rest.bytes).take(length), to)? {
                    (copied, None) if copied == length => at = begins + copied,
                    (_, None) => break,
                    (_, Some(error)) => return Err(client.lost(error)),
                }
            }
            Ok(())
        }
        Some(_) | None => {
            let from = usize::try_from(written.to).unwrap_or(usize::MAX);
            let rest = text.as_bytes().get(from..).unwrap_or_default();
            let passed = to.write_all(rest).and_then(|()| to.flush());
            passed.map_err(CliError::io("pass the output on"))
        }
    }
}

/// The last word of a command of several, when it is one of the flags that exec takes before `--`.
fn late_flag(command: &[String]) -> Option<&str> {
    let [_, .., last] = command else { return None };
    let exec = Exec::augment_args(Command::new("exec"));
    let is_own = exec.get_arguments().any(|arg| {
        let long = arg
            .get_long()
            .is_some_and(|long| last.strip_prefix("--") == Some(long));
        let short = arg
            .get_short()
            .is_some_and(|short| *last == format!("-{short}"));
        long || short
    });
    is_own.then_some(last)
}

fn exit_code(ended: &ExecResponse) -> u8 {
    if ended.timed_out == Some(true) {
        return TIMED_OUT;
    }
    match (ended.exit_code, &ended.signal) {
        // A shell, too, keeps the lowest eight bits.
        (Some(code), _) => (code & 0xff) as u8,
        (None, Some(name)) => signal_number(name).map_or(OWN_ERROR, |number| 128 + number),
        (None, None) => OWN_ERROR,
    }
}

/// The number of a signal on Linux, by its name with or without `SIG`, or by its number.
fn signal_number(name: &str) -> Option<u8> {
    const NAMES: [&str; 31] = [
        "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2",
        "PIPE", "ALRM", "TERM", "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG",
        "XCPU", "XFSZ", "VTALRM", "PROF", "WINCH", "IO", "PWR", "SYS",
    ];
    let short = name.strip_prefix("SIG").unwrap_or(name);
    let by_name = NAMES.iter().position(|known| *known == short);
    let number = match by_name {
        Some(index) => u8::try_from(index + 1).ok()?,
        None => short.parse().ok()?,
    };
    (1..=64).contains(&number).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exit_code_is_the_commands_or_says_how_it_ended() {
        let ended = |code: Option<i32>, signal: Option<&str>, timed_out: bool| ExecResponse {
            exit_code: code,
            signal: signal.map(str::to_owned),
            timed_out: timed_out.then_some(true),
            ..ExecResponse::default()
        };
        let table = [
            (ended(Some(0), None, false), 0),
            (ended(Some(255), None, false), 255),
            (ended(None, Some("SIGKILL"), false), 137),
            (ended(None, Some("SIGSYS"), false), 159),
            (ended(None, Some("TERM"), false), 143),
            (ended(None, Some("34"), false), 162),
            (ended(None, Some("SIGWHAT"), false), 125),
            (ended(None, Some("SIGTERM"), true), 124),
            (ended(None, None, false), 125),
        ];
        for (ended, expected) in table {
            assert_eq!(exit_code(&ended), expected, "{ended:?}");
        }
    }

    #[test]
    fn a_flag_behind_the_command_is_noticed() {
        let table: [(&[&str], Option<&str>); 6] = [
            (&["npm run dev", "--background"], Some("--background")),
            (&["npm run dev", "-b"], Some("-b")),
            (&["ls", "--json"], Some("--json")),
            (&["ls", "--all"], None),
            (&["--background"], None),
            (&["ls", "x--json"], None),
        ];
        for (command, expected) in table {
            let command: Vec<_> = command.iter().map(|&word| word.to_owned()).collect();
            assert_eq!(late_flag(&command), expected, "{command:?}");
        }
    }

    #[test]
    fn a_chosen_id_is_16_hex_digits_and_new_each_time() {
        let (one, two) = (new_exec_id().unwrap(), new_exec_id().unwrap());
        assert!(
            one.len() == 16 && one.bytes().all(|b| b.is_ascii_hexdigit()),
            "{one}"
        );
        assert_ne!(one, two);
    }
}
