//! The output of a command while it runs: one thread waits for the answer, two follow the streams, and this one writes
//! what comes. Owns how far each stream has been written, so that the rest can be added without a gap or a repeat.

use std::io::{Read as _, Write};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::thread;
use std::time::Duration;

use icebox_wire::rest::ExecRequest;

use super::run_once;
use crate::client::{Answer, Client, Output, Stream};
use crate::error::CliError;
use crate::printer;

/// A command that has ended by then is answered whole: following it would only cost time.
const FOLLOW_AFTER: Duration = Duration::from_millis(150);
/// How long followed streams may be silent after the answer before the rest is fetched instead.
const QUIET_LIMIT: Duration = Duration::from_secs(1);
/// Pieces of output that wait to be written.
const QUEUE: usize = 16;
/// How often in a row a stream is asked for in vain: the command has not begun, or the connection broke.
const MAX_MISSES: u32 = 40;
/// The first pause after asking in vain; each next one is twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
/// The longest of these pauses.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// What the threads tell.
enum News {
    /// The command has ended, or the call has.
    Answer(Result<Answer, CliError>),
    /// A stream begins to come.
    Begun(Stream),
    /// More of a stream, and the offset behind it.
    Output(Stream, Vec<u8>, u64),
    /// Nothing more comes of a stream; whether that was its end.
    Over(Stream, bool),
}

/// How far one stream has been written.
#[derive(Clone, Copy, Default)]
pub(super) struct Written {
    /// The offset behind the last byte written.
    pub(super) to: u64,
    /// That was its end.
    pub(super) whole: bool,
    /// More of it may come from its thread.
    coming: bool,
}

/// How far both streams have been written.
#[derive(Clone, Copy, Default)]
pub(super) struct Progress {
    stdout: Written,
    stderr: Written,
}

impl Progress {
    /// How far one of them has.
    pub(super) fn of(&self, stream: Stream) -> Written {
        match stream {
            Stream::Stdout => self.stdout,
            Stream::Stderr => self.stderr,
        }
    }

    fn of_mut(&mut self, stream: Stream) -> &mut Written {
        match stream {
            Stream::Stdout => &mut self.stdout,
            Stream::Stderr => &mut self.stderr,
        }
    }
}

/// Runs the command and writes its output as it comes. Answers the server's answer, and what of the output is written.
pub(super) fn run(
    client: &Arc<Client>,
    id: &str,
    request: &ExecRequest,
) -> Result<(Answer, Progress), CliError> {
    let (tell, news) = mpsc::sync_channel(QUEUE);
    let mut progress = Progress::default();
    post(client, id, request, tell.clone());
    match news.recv_timeout(FOLLOW_AFTER) {
        Ok(News::Answer(answer)) => return Ok((answer?, progress)),
        // Nobody but the call could have told anything so far.
        Ok(News::Begun(..) | News::Output(..) | News::Over(..)) | Err(_) => {}
    }
    follow_both(client, id, request, &tell);
    // From now on only threads that still run keep the way open.
    drop(tell);
    match write_all(&news, &mut progress)? {
        Some(answer) => Ok((answer, progress)),
        None => Err(CliError::io("wait for the answer")(std::io::Error::other(
            "the thread that asked for it is gone",
        ))),
    }
}

/// Makes the call in a thread of its own.
fn post(client: &Arc<Client>, id: &str, request: &ExecRequest, tell: SyncSender<News>) {
    let (client, id, request) = (Arc::clone(client), id.to_owned(), request.clone());
    thread::spawn(move || {
        let answer = run_once(&client, &id, &request);
        // Whoever no longer listens has ended.
        drop(tell.send(News::Answer(answer)));
    });
}

/// Writes what is told until the answer is there and no stream is coming. `None`: all threads ended without an answer.
fn write_all(news: &Receiver<News>, progress: &mut Progress) -> Result<Option<Answer>, CliError> {
    let mut answer = None;
    loop {
        if answer.is_some() && !progress.stdout.coming && !progress.stderr.coming {
            return Ok(answer);
        }
        let told = match answer {
            Some(_) => news.recv_timeout(QUIET_LIMIT),
            // The call has a limit of its own.
            None => news.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        match told {
            Ok(News::Answer(Ok(ended))) => answer = Some(ended),
            Ok(News::Answer(Err(error))) => {
                for told in news.try_iter() {
                    write(told, progress)?;
                }
                return Err(error);
            }
            Ok(told) => write(told, progress)?,
            Err(_) => return Ok(answer),
        }
    }
}

fn write(told: News, progress: &mut Progress) -> Result<(), CliError> {
    match told {
        News::Answer(_) => Ok(()),
        News::Over(stream, whole) => {
            let written = progress.of_mut(stream);
            (written.coming, written.whole) = (false, whole);
            Ok(())
        }
        News::Begun(stream) => {
            progress.of_mut(stream).coming = true;
            Ok(())
        }
        News::Output(stream, bytes, to) => {
            let mut out: Box<dyn Write> = match stream {
                Stream::Stdout => Box::new(std::io::stdout().lock()),
                Stream::Stderr => Box::new(std::io::stderr().lock()),
            };
            let written = out.write_all(&bytes).and_then(|()| out.flush());
            written.map_err(CliError::io("pass the output on"))?;
            progress.of_mut(stream).to = to;
            Ok(())
        }
    }
}

/// Follows both streams of the command, each in a thread that ends by itself.
fn follow_both(client: &Arc<Client>, id: &str, request: &ExecRequest, tell: &SyncSender<News>) {
    let exec_id = request.exec_id.as_deref().unwrap_or_default();
    for stream in [Stream::Stdout, Stream::Stderr] {
        let (client, tell) = (Arc::clone(client), tell.clone());
        let url = format!("/v1/boxes/{id}/procs/{exec_id}/output");
        thread::spawn(move || {
            let whole = follow(&client, &url, stream, &tell);
            drop(tell.send(News::Over(stream, whole)));
        });
    }
}

/// Tells what comes of a stream, and answers whether that was all of it. What goes wrong is told by the call itself.
fn follow(client: &Client, url: &str, stream: Stream, tell: &SyncSender<News>) -> bool {
    let (mut at, mut misses) = (0, 0);
    loop {
        match client.output(url, stream, at, true) {
            Ok(output) => {
                if tell.send(News::Begun(stream)).is_err() {
                    return false;
                }
                let before = at;
                match tell_all(output, stream, tell, &mut at) {
                    Some(whole) => return whole,
                    None => misses = if at > before { 0 } else { misses },
                }
            }
            Err(CliError::Lost { .. } | CliError::Unreachable { .. }) => {}
            // It has not begun yet.
            Err(CliError::Api { body, .. }) if body.code == "not_found" => {}
            Err(_) => return false,
        }
        misses += 1;
        if misses > MAX_MISSES {
            return false;
        }
        thread::sleep((FIRST_PAUSE * (1 << (misses - 1).min(8))).min(LONGEST_PAUSE));
    }
}

/// Tells all of an output, `at` the offset behind it. Whether it came to its end, or nobody listens any more; `None`: it
/// broke off.
fn tell_all(
    mut output: Output,
    stream: Stream,
    tell: &SyncSender<News>,
    at: &mut u64,
) -> Option<bool> {
    for (begins, length) in output.parts() {
        printer::not_kept(*at, begins);
        let to = begins;
        let mut teller = Teller { stream, to, tell };
        let copied = printer::copy(&mut (&mut output.bytes).take(length), &mut teller);
        *at = teller.to;
        match copied {
            Ok((copied, None)) if copied == length => {}
            Ok((_, None)) => return Some(true),
            Ok((_, Some(_))) => return None,
            Err(_) => return Some(false),
        }
    }
    Some(true)
}

/// Tells what is written to it.
struct Teller<'a> {
    stream: Stream,
    to: u64,
    tell: &'a SyncSender<News>,
}

impl Write for Teller<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let to = self.to + bytes.len() as u64;
        let told = self
            .tell
            .send(News::Output(self.stream, bytes.to_vec(), to));
        told.map_err(|_| std::io::Error::from(std::io::ErrorKind::BrokenPipe))?;
        self.to = to;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
