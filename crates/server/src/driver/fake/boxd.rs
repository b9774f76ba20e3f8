//! The daemon in a fake box: the real protocol over a stream in memory, with a handful of commands (`true`, `false`,
//! `echo …`, `remember …`, `recall`, `variable NAME`, `hang`, `exhaust`, `big N`, `long N`). A command that hangs goes on until the test or a stop ends it.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use connectrpc::{
    ConnectError, ConnectRpcService, ErrorCode, RequestContext, Response, Router, ServiceRequest,
    ServiceResult,
};
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use icebox_lifecycle::BoxId;
use icebox_wire::boxd::{
    AfterThawRequest, AfterThawResponse, Boxd, BoxdExt as _, ConfigureRequest, ConfigureResponse,
    ExecRequest, ExecResponse, FlushRequest, FlushResponse, InfoRequest, InfoResponse,
    OutputRequest, OutputResponse, ProcInfo, ProcRequest, ProcResponse, ProcResult, ProcsRequest,
    ProcsResponse, RestartRequest, RestartResponse, StopProcRequest, StopProcResponse,
    Stream as StreamName, WaitRequest, WaitResponse,
};
use tokio_util::sync::CancellationToken;

use super::{Ended, Fake, Memory, Running};
use crate::clock::machine_now;
use crate::driver::Stream;

const TAIL: usize = 16 * 1024;

/// A connection to the daemon of a box; it ends with `connected`.
pub(super) fn connection(fake: Fake, id: BoxId, connected: CancellationToken) -> Stream {
    let (ours, theirs) = tokio::io::duplex(64 * 1024);
    let daemon = Arc::new(Daemon {
        fake,
        id,
        connected: connected.clone(),
    });
    let service = ConnectRpcService::new(daemon.register(Router::new()));
    tokio::spawn(async move {
        let serve = hyper::server::conn::http1::Builder::new()
            .serve_connection(TokioIo::new(theirs), TowerToHyperService::new(service));
        // Whichever way it ends, the other side sees its stream end. A daemon that is gone says nothing more.
        tokio::select! {
            biased;
            () = connected.cancelled() => {}
            _ = serve => {}
        }
    });
    Box::new(ours)
}

struct Daemon {
    fake: Fake,
    id: BoxId,
    connected: CancellationToken,
}

impl Daemon {
    /// Looks into the memory of the box.
    fn memory<T>(&self, look: impl FnOnce(&mut Memory) -> T) -> Result<T, ConnectError> {
        let mut world = self.fake.world();
        let found = world.boxes.get_mut(&self.id);
        // A daemon that is gone must not look into what came after it.
        let found = found.filter(|_| !self.connected.is_cancelled());
        let found = found.ok_or_else(|| ConnectError::new(ErrorCode::Unavailable, "no box"))?;
        Ok(look(&mut found.memory))
    }

    fn find(&self, exec_id: &str) -> Result<Running, ConnectError> {
        let find = |memory: &mut Memory| {
            let mut commands = memory.commands.iter();
            commands.find(|command| command.exec_id == exec_id).cloned()
        };
        let missing = || {
            let text = format!("there is no process with the id {exec_id}");
            ConnectError::new(ErrorCode::NotFound, text)
        };
        self.memory(find)?.ok_or_else(missing)
    }

    /// Waits until a command has ended, or whatever else `enough` says.
    async fn until(
        &self,
        exec_id: &str,
        enough: impl Fn(&Running) -> bool,
    ) -> Result<Running, ConnectError> {
        let mut changes = self.fake.0.changes.0.subscribe();
        loop {
            let command = self.find(exec_id)?;
            if enough(&command) {
                return Ok(command);
            }
            // The sender lives as long as the world.
            let _ = changes.changed().await;
        }
    }

    /// Runs a command, or joins the run of an earlier one with the same id: whether it did.
    fn run(&self, request: &ExecRequest) -> Result<bool, ConnectError> {
        if request.cwd == "nowhere" {
            let text = "the working directory nowhere does not exist";
            return Err(ConnectError::new(ErrorCode::InvalidArgument, text));
        }
        let known = |memory: &mut Memory| {
            let mut commands = memory.commands.iter();
            commands.any(|command| command.exec_id == request.exec_id)
        };
        if self.memory(known)? {
            return Ok(true);
        }
        let (verb, rest) = request.cmd.split_once(' ').unwrap_or((&request.cmd, ""));
        let mut command = Running {
            exec_id: request.exec_id.clone(),
            cmd: request.cmd.clone(),
            background: request.background,
            started_ms: machine_now().0,
            ended: Some(Ended::Exit(0)),
            stdout: Vec::new(),
            stderr: Vec::new(),
        };
        self.memory(|memory| {
            match verb {
                "true" => {}
                "false" => command.ended = Some(Ended::Exit(1)),
                "echo" => command.stdout = format!("{rest}\n").into_bytes(),
                "remember" => memory.word = Some(rest.to_owned()),
                "recall" => {
                    command.stdout = memory.word.clone().unwrap_or_default().into_bytes();
                }
                "variable" => {
                    let value = request.env.get(rest).cloned();
                    command.stdout = value.unwrap_or_default().into_bytes();
                }
                "big" => command.stdout = vec![b'x'; rest.parse().unwrap_or(0)],
                "long" => {
                    let len = rest.parse().unwrap_or(0);
                    command.stdout = (0..=250).cycle().take(len).collect();
                }
                "hang" => {
                    command.stdout = b"hanging\n".to_vec();
                    command.ended = None;
                }
                "exhaust" => {
                    command.ended = Some(Ended::Signal("SIGKILL"));
                    memory.kills += 1;
                }
                _ => {
                    command.ended = Some(Ended::Exit(127));
                    command.stderr = format!("{verb}: command not found\n").into_bytes();
                }
            }
            memory.commands.push(command);
        })?;
        self.fake.changed();
        Ok(false)
    }
}

impl Daemon {
    /// The names that the server gives a box are a file like any other, and writing it is no command of anybody's.
    fn write_names(&self, request: &ExecRequest, lines: &str) -> ServiceResult<ExecResponse> {
        let mut world = self.fake.world();
        if let Some(found) = world.boxes.get_mut(&self.id) {
            found.files.insert("hosts".to_owned(), lines.to_owned());
        }
        let command = Running {
            exec_id: request.exec_id.clone(),
            cmd: request.cmd.clone(),
            background: false,
            started_ms: machine_now().0,
            ended: Some(Ended::Exit(0)),
            stdout: Vec::new(),
            stderr: Vec::new(),
        };
        Response::ok(ExecResponse {
            result: result(&command).into(),
            ..ExecResponse::default()
        })
    }
}

/// What is not kept of a stream of that length: of `long`, the middle half.
fn dropped(command: &Running, len: usize) -> Range<usize> {
    if command.cmd.starts_with("long ") {
        len / 4..len - len / 4
    } else {
        len..len
    }
}

fn info(command: &Running) -> ProcInfo {
    let stdout_dropped = dropped(command, command.stdout.len());
    ProcInfo {
        exec_id: command.exec_id.clone(),
        cmd: command.cmd.clone(),
        pid: 42,
        background: command.background,
        started_ms: command.started_ms,
        ended_ms: command.ended.as_ref().map(|_| command.started_ms),
        running: command.ended.is_none(),
        exit_code: match command.ended {
            Some(Ended::Exit(code)) => Some(code),
            Some(Ended::Signal(_)) | None => None,
        },
        signal: match command.ended {
            Some(Ended::Signal(name)) => Some(name.to_owned()),
            Some(Ended::Exit(_)) | None => None,
        },
        stdout_bytes: command.stdout.len() as u64,
        stderr_bytes: command.stderr.len() as u64,
        stdout_dropped_from: stdout_dropped.start as u64,
        stdout_dropped_to: stdout_dropped.end as u64,
        ..ProcInfo::default()
    }
}

fn result(command: &Running) -> ProcResult {
    let tail = |bytes: &[u8]| bytes[bytes.len().saturating_sub(TAIL)..].to_vec();
    ProcResult {
        proc: info(command).into(),
        stdout_tail: tail(&command.stdout),
        stderr_tail: tail(&command.stderr),
        stdout_truncated: command.stdout.len() > TAIL,
        stderr_truncated: command.stderr.len() > TAIL,
        elapsed_ms: 0,
        ..ProcResult::default()
    }
}

#[expect(
    refining_impl_trait,
    reason = "the concrete answers are what this daemon means to give"
)]
impl Boxd for Daemon {
    async fn exec(
        &self,
        _: RequestContext,
        request: ServiceRequest<'_, ExecRequest>,
    ) -> ServiceResult<ExecResponse> {
        let request = request.to_owned_message();
        if let Some(lines) = request.env.get("ICEBOX_HOSTS") {
            return self.write_names(&request, lines);
        }
        let joined = self.run(&request)?;
        let ended = |command: &Running| request.background || command.ended.is_some();
        let command = self.until(&request.exec_id, ended).await?;
        Response::ok(ExecResponse {
            result: result(&command).into(),
            joined,
            ..ExecResponse::default()
        })
    }

    async fn procs(
        &self,
        _: RequestContext,
        request: ServiceRequest<'_, ProcsRequest>,
    ) -> ServiceResult<ProcsResponse> {
        let only = request.running_only;
        let all = self.memory(|memory| memory.commands.clone())?;
        let wanted = |command: &&Running| !only || command.ended.is_none();
        let shown = |command: &Running| ProcInfo {
            // Nothing that runs here computes.
            cpus: (request.cpu_ms > 0 && command.ended.is_none()).then_some(0.0),
            ..info(command)
        };
        Response::ok(ProcsResponse {
            procs: all.iter().rev().filter(wanted).map(shown).collect(),
            ..ProcsResponse::default()
        })
    }

    async fn proc(
        &self,
        _: RequestContext,
        request: ServiceRequest<'_, ProcRequest>,
    ) -> ServiceResult<ProcResponse> {
        Response::ok(ProcResponse {
            proc: info(&self.find(request.exec_id)?).into(),
            ..ProcResponse::default()
        })
    }

    async fn wait(
        &self,
        _: RequestContext,
        request: ServiceRequest<'_, WaitRequest>,
    ) -> ServiceResult<WaitResponse> {
        let request = request.to_owned_message();
        let end = self.until(&request.exec_id, |command| command.ended.is_some());
        let limit = Duration::from_millis(request.wait_ms);
        let command = match tokio::time::timeout(limit, end).await {
            Ok(command) => command?,
            Err(_) => self.find(&request.exec_id)?,
        };
        Response::ok(WaitResponse {
            result: result(&command).into(),
            ..WaitResponse::default()
        })
    }

    async fn stop_proc(
        &self,
        _: RequestContext,
        request: ServiceRequest<'_, StopProcRequest>,
    ) -> ServiceResult<StopProcResponse> {
        let exec_id = request.exec_id.to_owned();
        let before = self.find(&exec_id)?;
        self.memory(|memory| memory.end(&exec_id, &Ended::Signal("SIGTERM")))?;
        self.fake.changed();
        Response::ok(StopProcResponse {
            proc: info(&self.find(&exec_id)?).into(),
            already_ended: before.ended.is_some(),
            ..StopProcResponse::default()
        })
    }

    async fn output(
        &self,
        _: RequestContext,
        request: ServiceRequest<'_, OutputRequest>,
    ) -> ServiceResult<OutputResponse> {
        let request = request.to_owned_message();
        let errors = request.stream == StreamName::STREAM_STDERR;
        let of = |command: &Running| {
            if errors {
                command.stderr.clone()
            } else {
                command.stdout.clone()
            }
        };
        let offset = usize::try_from(request.offset).unwrap_or(usize::MAX);
        let more = |command: &Running| command.ended.is_some() || of(command).len() > offset;
        let limit = Duration::from_millis(request.wait_ms);
        let waited = tokio::time::timeout(limit, self.until(&request.exec_id, more)).await;
        let command = match waited {
            Ok(command) => command?,
            Err(_) => self.find(&request.exec_id)?,
        };
        let all = of(&command);
        let dropped = dropped(&command, all.len());
        let from = offset.min(all.len());
        let from = if dropped.contains(&from) {
            dropped.end
        } else {
            from
        };
        let side = if from < dropped.start {
            dropped.start
        } else {
            all.len()
        };
        let to = side.min(from + request.max_bytes as usize);
        Response::ok(OutputResponse {
            data: all[from..to].to_vec(),
            data_offset: from as u64,
            next_offset: to as u64,
            eof: command.ended.is_some() && to == all.len(),
            total_bytes: all.len() as u64,
            dropped_from: dropped.start as u64,
            dropped_to: dropped.end as u64,
            ..OutputResponse::default()
        })
    }

    async fn flush(
        &self,
        _: RequestContext,
        _: ServiceRequest<'_, FlushRequest>,
    ) -> ServiceResult<FlushResponse> {
        Response::ok(FlushResponse {
            complete: true,
            ..FlushResponse::default()
        })
    }

    async fn after_thaw(
        &self,
        _: RequestContext,
        _: ServiceRequest<'_, AfterThawRequest>,
    ) -> ServiceResult<AfterThawResponse> {
        Response::ok(AfterThawResponse::default())
    }

    async fn info(
        &self,
        _: RequestContext,
        _: ServiceRequest<'_, InfoRequest>,
    ) -> ServiceResult<InfoResponse> {
        Response::ok(InfoResponse {
            version: "fake".to_owned(),
            ..InfoResponse::default()
        })
    }

    async fn restart(
        &self,
        _: RequestContext,
        _: ServiceRequest<'_, RestartRequest>,
    ) -> ServiceResult<RestartResponse> {
        Response::ok(RestartResponse::default())
    }

    async fn configure(
        &self,
        _: RequestContext,
        _: ServiceRequest<'_, ConfigureRequest>,
    ) -> ServiceResult<ConfigureResponse> {
        Response::ok(ConfigureResponse::default())
    }
}
