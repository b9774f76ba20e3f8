//! `icebox.boxd.v1.Boxd`: commands with kept output, and what a freeze and a thaw need from inside.
//!
//! Translates between the wire and the table; decides nothing about processes itself.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use buffa::{EnumValue, MessageField};
use connectrpc::{ConnectError, RequestContext, Response, ServiceRequest, ServiceResult};
use icebox_wire::boxd::{
    AfterThawRequest, AfterThawResponse, Boxd, ConfigureRequest, ConfigureResponse, ExecRequest,
    ExecResponse, FlushRequest, FlushResponse, InfoRequest, InfoResponse, OutputRequest,
    OutputResponse, ProcInfo, ProcRequest, ProcResponse, ProcResult, ProcsRequest, ProcsResponse,
    RestartRequest, RestartResponse, StopProcRequest, StopProcResponse, Stream, WaitRequest,
    WaitResponse,
};

use crate::clock;
use crate::cpu;
use crate::error::Error;
use crate::id::ExecId;
use crate::life::Life;
use crate::proc::{Exit, GRACE, Proc, STDERR, STDOUT};
use crate::restart::Restarter;
use crate::starter::{Line, Starter};

/// How much of each stream's end an answer carries unless asked otherwise.
const TAIL_BYTES: u32 = 16 * 1024;

/// The most output one answer carries of one stream.
const MAX_BYTES: u32 = 1 << 20;

/// The longest a `Wait` waits.
const MAX_WAIT: Duration = Duration::from_secs(600);

/// The longest an `Output` waits, a grace or a flush lasts.
const MAX_SHORT_WAIT: Duration = Duration::from_secs(60);

/// How long a flush lasts unless asked otherwise.
const FLUSH: Duration = Duration::from_secs(10);

/// The service.
pub(crate) struct OwnService {
    starter: Arc<Starter>,
    state_dir: PathBuf,
    restarter: Arc<Restarter>,
}

impl OwnService {
    pub(crate) fn new(
        starter: Arc<Starter>,
        state_dir: PathBuf,
        restarter: Arc<Restarter>,
    ) -> Self {
        Self {
            starter,
            state_dir,
            restarter,
        }
    }

    fn life(&self) -> &Life {
        &self.restarter.lasting().life
    }

    fn find(&self, id: &str) -> Result<Arc<Proc>, Error> {
        self.starter.table.find(ExecId::parse(id)?)
    }

    /// Starts or joins; standard input is fed on the side.
    fn start(&self, request: ExecRequest) -> Result<(Arc<Proc>, bool), Error> {
        let id = match request.exec_id.as_str() {
            "" => ExecId::fresh(),
            text => ExecId::parse(text)?,
        };
        let line = Line {
            cmd: request.cmd,
            cwd: request.cwd,
            env: request.env.into_iter().collect(),
            user: request.user,
            timeout: (request.timeout_ms > 0).then(|| Duration::from_millis(request.timeout_ms)),
            stdin: !request.stdin.is_empty(),
            background: request.background,
        };
        let (proc, joined) = self.starter.line(id, &line)?;
        if line.stdin && !joined {
            proc.feed(request.stdin);
        }
        Ok((proc, joined))
    }
}

#[expect(
    refining_impl_trait,
    reason = "the concrete answers are what this program means to give"
)]
impl Boxd for OwnService {
    async fn exec(
        &self,
        _: RequestContext,
        request: ServiceRequest<'_, ExecRequest>,
    ) -> ServiceResult<ExecResponse> {
        let request = request.to_owned_message();
        let (tail, background) = (request.tail_bytes, request.background);
        let (proc, joined) = self.start(request)?;
        if !background && !proc.about.background {
            proc.ended().await;
        }
        Response::ok(ExecResponse {
            result: result(&proc, tail)?,
            joined,
            ..Default::default()
        })
    }

    async fn procs(
        &self,
        _: RequestContext,
        request: ServiceRequest<'_, ProcsRequest>,
    ) -> ServiceResult<ProcsResponse> {
        let used = cpu::measured(Duration::from_millis(request.cpu_ms.into())).await;
        let all = self.starter.table.all();
        let wanted = |proc: &&Arc<Proc>| !request.running_only || proc.state().ended.is_none();
        let procs = all.iter().filter(wanted).map(|proc| {
            let used = used.as_ref().filter(|_| proc.state().ended.is_none());
            ProcInfo {
                cpus: used.map(|used| used.of(proc.pid)),
                ..info(proc)
            }
        });
        let procs = procs.collect();
        Response::ok(ProcsResponse {
            procs,
            ..Default::default()
        })
    }

    async fn proc(
        &self,
        _: RequestContext,
        request: ServiceRequest<'_, ProcRequest>,
    ) -> ServiceResult<ProcResponse> {
        let proc = self.find(request.exec_id)?;
        Response::ok(ProcResponse {
            proc: MessageField::some(info(&proc)),
            ..Default::default()
        })
    }

    async fn wait(
        &self,
        _: RequestContext,
        request: ServiceRequest<'_, WaitRequest>,
    ) -> ServiceResult<WaitResponse> {
        let proc = self.find(request.exec_id)?;
        let wait = Duration::from_millis(request.wait_ms).min(MAX_WAIT);
        // When the time runs out the answer says that it still runs.
        drop(tokio::time::timeout(wait, proc.ended()).await);
        Response::ok(WaitResponse {
            result: result(&proc, request.tail_bytes)?,
            ..Default::default()
        })
    }

    async fn stop_proc(
        &self,
        _: RequestContext,
        request: ServiceRequest<'_, StopProcRequest>,
    ) -> ServiceResult<StopProcResponse> {
        let proc = self.find(request.exec_id)?;
        let already_ended = proc.state().ended.is_some();
        if !already_ended {
            proc.stop(
                request
                    .grace_ms
                    .map_or(GRACE, Duration::from_millis)
                    .min(MAX_SHORT_WAIT),
            );
            proc.ended().await;
        }
        Response::ok(StopProcResponse {
            proc: MessageField::some(info(&proc)),
            already_ended,
            ..Default::default()
        })
    }

    async fn output(
        &self,
        _: RequestContext,
        request: ServiceRequest<'_, OutputRequest>,
    ) -> ServiceResult<OutputResponse> {
        let proc = self.find(request.exec_id)?;
        let stream = stream_index(request.stream)?;
        let offset = request.offset;
        let wait = Duration::from_millis(request.wait_ms).min(MAX_SHORT_WAIT);
        let news = proc.until(|state| {
            state.totals[stream] > offset || state.eof[stream] || state.ended.is_some()
        });
        // When the time runs out the answer is empty and its reader asks again.
        drop(tokio::time::timeout(wait, news).await);
        let max = if request.max_bytes == 0 {
            MAX_BYTES
        } else {
            request.max_bytes.min(MAX_BYTES)
        };
        let state = proc.state();
        // All of one moment, so that the piece and what is missing around it fit together.
        let kept = proc.kept(stream);
        let piece = kept.read(offset, max as usize).map_err(Error::ReadOutput)?;
        let (total_bytes, dropped) = (kept.total(), kept.dropped());
        drop(kept);
        let next_offset = piece.start + piece.data.len() as u64;
        Response::ok(OutputResponse {
            data_offset: piece.start,
            data: piece.data,
            next_offset,
            eof: (state.eof[stream] || state.ended.is_some()) && next_offset >= total_bytes,
            dropped_from: dropped.start,
            dropped_to: dropped.end,
            total_bytes,
            ..Default::default()
        })
    }

    async fn flush(
        &self,
        _: RequestContext,
        request: ServiceRequest<'_, FlushRequest>,
    ) -> ServiceResult<FlushResponse> {
        let limit = if request.max_ms == 0 {
            FLUSH
        } else {
            Duration::from_millis(request.max_ms)
        };
        let began = clock::now();
        let state_dir = self.state_dir.clone();
        let sync = tokio::task::spawn_blocking(move || sync_file_systems(&state_dir));
        let complete = match tokio::time::timeout(limit.min(MAX_SHORT_WAIT), sync).await {
            Ok(synced) => {
                let failed =
                    |error: std::io::Error| ConnectError::internal(format!("cannot sync: {error}"));
                synced
                    .map_err(std::io::Error::from)
                    .and_then(|synced| synced)
                    .map_err(failed)?;
                true
            }
            Err(_elapsed) => false,
        };
        Response::ok(FlushResponse {
            complete,
            took_ms: millis(began.elapsed()),
            ..Default::default()
        })
    }

    async fn after_thaw(
        &self,
        _: RequestContext,
        request: ServiceRequest<'_, AfterThawRequest>,
    ) -> ServiceResult<AfterThawResponse> {
        // Deadlines need nothing from here: they never count frozen time (see `clock::awake`).
        let skew_ms = request.unix_ms - clock::unix_ms();
        self.life().thawed(skew_ms);
        Response::ok(AfterThawResponse {
            skew_ms,
            ..Default::default()
        })
    }

    async fn info(
        &self,
        _: RequestContext,
        _: ServiceRequest<'_, InfoRequest>,
    ) -> ServiceResult<InfoResponse> {
        let running: Vec<_> = self
            .starter
            .table
            .all()
            .into_iter()
            .filter(|proc| proc.state().ended.is_none())
            .collect();
        let background = running.iter().filter(|proc| proc.about.background).count();
        Response::ok(InfoResponse {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            start_id: self.life().start_id.clone(),
            processes: count_processes(),
            running_foreground: small(running.len() - background),
            running_background: small(background),
            started_ms: self.life().started_ms,
            thaws: self.life().thaws(),
            skew_ms: self.life().skew_ms(),
            restarts: self.life().restarts,
            ..Default::default()
        })
    }

    async fn restart(
        &self,
        _: RequestContext,
        request: ServiceRequest<'_, RestartRequest>,
    ) -> ServiceResult<RestartResponse> {
        self.restarter.prepare(request.next).await?;
        Response::ok(RestartResponse::default())
    }

    async fn configure(
        &self,
        _: RequestContext,
        request: ServiceRequest<'_, ConfigureRequest>,
    ) -> ServiceResult<ConfigureResponse> {
        self.starter.settings.replace(request.to_owned_message())?;
        Response::ok(ConfigureResponse::default())
    }
}

fn info(proc: &Proc) -> ProcInfo {
    let state = proc.state();
    let [stdout_dropped, stderr_dropped] =
        [STDOUT, STDERR].map(|stream| proc.kept(stream).dropped());
    let (exit_code, signal) = match state.exit {
        Some(Exit::Code(code)) => (Some(code), None),
        Some(Exit::Signal(signal)) => (None, Some(signal_name(signal))),
        None => (None, None),
    };
    ProcInfo {
        exec_id: proc.id.to_string(),
        cmd: proc.about.cmd.clone(),
        pid: proc.pid.unsigned_abs(),
        background: proc.about.background,
        started_ms: proc.started.unix_ms,
        ended_ms: state.ended.map(|ended| ended.unix_ms),
        running: state.ended.is_none(),
        exit_code,
        signal,
        timed_out: state.timed_out,
        stdout_bytes: state.totals[STDOUT],
        stderr_bytes: state.totals[STDERR],
        tag: proc.about.tag.clone(),
        stdout_dropped_from: stdout_dropped.start,
        stdout_dropped_to: stdout_dropped.end,
        stderr_dropped_from: stderr_dropped.start,
        stderr_dropped_to: stderr_dropped.end,
        ..Default::default()
    }
}

fn result<P: buffa::ProtoBox<ProcResult>>(
    proc: &Proc,
    tail_bytes: Option<u32>,
) -> Result<MessageField<ProcResult, P>, Error> {
    let max = tail_bytes.unwrap_or(TAIL_BYTES).min(MAX_BYTES) as usize;
    let tail = |stream: usize| {
        let kept = proc.kept(stream);
        let tail = kept.tail(max).map_err(Error::ReadOutput)?;
        Ok((kept.total() > tail.len() as u64, tail))
    };
    let (stdout_truncated, stdout_tail) = tail(STDOUT)?;
    let (stderr_truncated, stderr_tail) = tail(STDERR)?;
    let until = proc.state().ended.map_or_else(clock::now, |ended| ended.at);
    Ok(MessageField::some(ProcResult {
        proc: MessageField::some(info(proc)),
        stdout_tail,
        stderr_tail,
        stdout_truncated,
        stderr_truncated,
        elapsed_ms: millis(until.saturating_duration_since(proc.started.at)),
        ..Default::default()
    }))
}

fn stream_index(stream: EnumValue<Stream>) -> Result<usize, Error> {
    match stream.as_known() {
        Some(Stream::STREAM_STDOUT) => Ok(STDOUT),
        Some(Stream::STREAM_STDERR) => Ok(STDERR),
        Some(Stream::STREAM_UNSPECIFIED) | None => Err(Error::BadRequest(
            "stream must be STREAM_STDOUT or STREAM_STDERR".to_owned(),
        )),
    }
}

/// Names a signal as `kill -l` does, with SIG in front.
fn signal_name(number: i32) -> String {
    let known = match number {
        libc::SIGHUP => "SIGHUP",
        libc::SIGINT => "SIGINT",
        libc::SIGQUIT => "SIGQUIT",
        libc::SIGILL => "SIGILL",
        libc::SIGTRAP => "SIGTRAP",
        libc::SIGABRT => "SIGABRT",
        libc::SIGBUS => "SIGBUS",
        libc::SIGFPE => "SIGFPE",
        libc::SIGKILL => "SIGKILL",
        libc::SIGUSR1 => "SIGUSR1",
        libc::SIGSEGV => "SIGSEGV",
        libc::SIGUSR2 => "SIGUSR2",
        libc::SIGPIPE => "SIGPIPE",
        libc::SIGALRM => "SIGALRM",
        libc::SIGTERM => "SIGTERM",
        libc::SIGXCPU => "SIGXCPU",
        libc::SIGXFSZ => "SIGXFSZ",
        libc::SIGSYS => "SIGSYS",
        other => return format!("SIG{other}"),
    };
    known.to_owned()
}

/// Syncs the box's root and where output is kept. Blocks for as long as the disk needs.
fn sync_file_systems(state_dir: &Path) -> std::io::Result<()> {
    for path in [Path::new("/"), state_dir] {
        match std::fs::File::open(path) {
            Ok(dir) => rustix::fs::syncfs(&dir)?,
            // No output was ever large enough to make it.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn count_processes() -> u32 {
    let numeric = |entry: &std::fs::DirEntry| {
        entry
            .file_name()
            .as_encoded_bytes()
            .iter()
            .all(u8::is_ascii_digit)
    };
    small(std::fs::read_dir("/proc").map_or(0, |entries| entries.flatten().filter(numeric).count()))
}

fn small(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

fn millis(length: Duration) -> u64 {
    u64::try_from(length.as_millis()).unwrap_or(u64::MAX)
}
