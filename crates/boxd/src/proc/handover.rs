//! A process as one boxd leaves it to the next.

use std::os::fd::{AsRawFd as _, RawFd};
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use buffa::MessageField;
use icebox_wire::handover as left;
use tokio::sync::{mpsc, watch};

use super::{About, Deadline, Exit, Proc, STDERR, STDOUT, STOPS, Stamp, State, Stops};
use crate::clock::{self, Countdown};
use crate::error::Error;
use crate::id::ExecId;
use crate::kept::{Kept, file_of};
use crate::restart::Inherited;
use crate::streams::Streams;

impl Proc {
    /// What the next boxd has to know of it; `with_bytes`: with what is in memory of its output and of its input. The descriptors
    /// it names are this one's, and stay open while this lives.
    pub(crate) fn leave(&self, with_bytes: bool) -> left::Process {
        let state = self.state();
        let streams = self.streams();
        let stream = |at: usize| left::Stream {
            fd: streams.sources[at]
                .as_ref()
                .and_then(|source| source.pipe_fd()),
            open: !state.eof[at],
            ..self.kept(at).leave(with_bytes)
        };
        let (exit_code, exit_signal) = match state.exit {
            Some(Exit::Code(code)) => (Some(code), None),
            Some(Exit::Signal(signal)) => (None, Some(signal)),
            None => (None, None),
        };
        let deadline = self.deadline.as_ref().map(|deadline| left::Deadline {
            left_ms: millis(deadline.left.left()),
            grace_ms: millis(deadline.grace),
            ..Default::default()
        });
        left::Process {
            exec_id: self.id.to_string(),
            pid: self.pid,
            about: MessageField::some(self.about.leave()),
            started: MessageField::some(self.started.leave()),
            exit_code,
            exit_signal,
            timed_out: state.timed_out,
            ended: state.ended.map(Stamp::leave).into(),
            streams: vec![stream(STDOUT), stream(STDERR)],
            terminal_fd: streams
                .terminal
                .as_ref()
                .map(|terminal| terminal.as_raw_fd()),
            stdin_fd: streams.input.as_ref().and_then(|input| input.pipe_fd()),
            input_closed: streams.input.is_none(),
            unfed: self.unfed().as_ref().map(|unfed| match with_bytes {
                true => unfed.to_vec(),
                false => Vec::new(),
            }),
            deadline: deadline.into(),
            ending_ms: self.ending.get().map(|ending| millis(ending.left())),
            ..Default::default()
        }
    }

    /// The descriptors that stay open for the next boxd.
    pub(crate) fn descriptors(&self) -> Vec<RawFd> {
        let streams = self.streams();
        let sources = streams.sources.iter().flatten();
        let pipes = sources.filter_map(|source| source.pipe_fd());
        let stdin = streams.input.as_ref().and_then(|input| input.pipe_fd());
        let terminal = streams
            .terminal
            .as_ref()
            .map(|terminal| terminal.as_raw_fd());
        pipes.chain(stdin).chain(terminal).collect()
    }

    /// How much of its output and of its input is in memory.
    pub(crate) fn bytes_in_memory(&self) -> u64 {
        let unfed = self.unfed().as_ref().map_or(0, |unfed| unfed.len() as u64);
        let kept = [STDOUT, STDERR].map(|stream| self.kept(stream).bytes_in_memory());
        unfed + kept.iter().sum::<u64>()
    }

    /// One that the boxd before this one left. Its larger output is below `output_dir`. Where a descriptor cannot be used the
    /// stream counts as closed: the process itself goes on.
    pub(crate) fn take_over(
        process: left::Process,
        inherited: &mut Inherited,
        output_dir: &Path,
    ) -> Result<(Arc<Self>, Stops), Error> {
        let id = ExecId::parse(&process.exec_id)?;
        let exit = match (process.exit_code, process.exit_signal) {
            (Some(code), _) => Some(Exit::Code(code)),
            (None, Some(signal)) => Some(Exit::Signal(signal)),
            (None, None) => None,
        };
        let streams = take_streams(&process, inherited);
        let mut written = process.streams.into_iter();
        let kept = [STDOUT, STDERR].map(|stream| {
            let path = file_of(output_dir, id, stream);
            Kept::take_over(path, written.next().unwrap_or_default())
        });
        let state = State {
            exit,
            eof: [STDOUT, STDERR].map(|at| streams.sources[at].is_none()),
            totals: [kept[STDOUT].total(), kept[STDERR].total()],
            timed_out: process.timed_out,
            ended: process.ended.into_option().map(Stamp::of_left),
        };
        let (stops, stops_in) = mpsc::channel(STOPS);
        let proc = Self {
            id,
            pid: process.pid,
            about: About::of_left(process.about.into_option().unwrap_or_default()),
            started: Stamp::of_left(process.started.into_option().unwrap_or_default()),
            kept: kept.map(Mutex::new),
            state: watch::Sender::new(state),
            streams: Mutex::new(streams),
            writing: tokio::sync::Mutex::default(),
            unfed: Mutex::new(process.unfed.map(Into::into)),
            deadline: process.deadline.into_option().map(|deadline| Deadline {
                left: Countdown::new(Duration::from_millis(deadline.left_ms)),
                grace: Duration::from_millis(deadline.grace_ms),
            }),
            ending: OnceLock::new(),
            stops,
        };
        if let Some(grace_ms) = process.ending_ms {
            let grace = Countdown::new(Duration::from_millis(grace_ms));
            drop(proc.ending.set(grace));
        }
        Ok((Arc::new(proc), stops_in))
    }

    /// Goes on with what is not part of looking after it: the rest of its input, and of output after its end.
    pub(crate) fn go_on(self: &Arc<Self>) {
        if self.unfed().is_some() {
            tokio::spawn(Arc::clone(self).go_on_feeding());
        }
        if self.state().ended.is_some() {
            self.read_on();
        }
    }
}

fn take_streams(process: &left::Process, inherited: &mut Inherited) -> Streams {
    let open = |at: usize| process.streams.get(at).is_some_and(|stream| stream.open);
    if let Some(fd) = process.terminal_fd {
        let taken = inherited.take(fd).and_then(Streams::of_terminal);
        let mut streams = taken.unwrap_or_default();
        if process.input_closed {
            streams.input = None;
        }
        if !open(STDOUT) {
            streams.sources[STDOUT] = None;
        }
        return streams;
    }
    let mut take = |fd: Option<i32>| inherited.take(fd?).ok();
    let stdin = take(process.stdin_fd);
    let ends = [STDOUT, STDERR].map(|at| take(process.streams.get(at)?.fd));
    Streams::of_pipes(stdin, ends).unwrap_or_default()
}

impl About {
    fn leave(&self) -> left::About {
        let variable = |(name, value): &(String, String)| left::Variable {
            name: name.clone(),
            value: value.clone(),
            ..Default::default()
        };
        left::About {
            words: self.words.clone(),
            cmd: self.cmd.clone(),
            env: self.env.iter().map(variable).collect(),
            cwd: self.cwd.clone(),
            tag: self.tag.clone(),
            background: self.background,
            ..Default::default()
        }
    }

    fn of_left(about: left::About) -> Self {
        Self {
            words: about.words,
            cmd: about.cmd,
            env: about
                .env
                .into_iter()
                .map(|it| (it.name, it.value))
                .collect(),
            cwd: about.cwd,
            tag: about.tag,
            background: about.background,
        }
    }
}

impl Stamp {
    fn leave(self) -> left::Moment {
        left::Moment {
            unix_ms: self.unix_ms,
            ago_ms: millis(self.at.elapsed()),
            ..Default::default()
        }
    }

    fn of_left(moment: left::Moment) -> Self {
        let now = clock::now();
        Self {
            unix_ms: moment.unix_ms,
            at: now
                .checked_sub(Duration::from_millis(moment.ago_ms))
                .unwrap_or(now),
        }
    }
}

fn millis(length: Duration) -> u64 {
    u64::try_from(length.as_millis()).unwrap_or(u64::MAX)
}
