//! Running commands in a box, and looking after those that run. A call lives in a task of its own, so that a client that
//! hangs up ends nothing (rules 3.5, 12.2). Owns the words for what the daemon answers.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use connectrpc::client::CallOptions;
use icebox_lifecycle::{BoxId, Event, State, Time};
use icebox_wire::boxd::{
    self, ConnectError, ErrorCode, ProcInfo, ProcRequest, ProcResult, ProcsRequest,
    StopProcRequest, WaitRequest,
};
use icebox_wire::rest::{ExecRequest, ExecResponse, Gap, Gaps, ProcView};

use super::ends::may_be_recorded;
use super::trouble::{Kind, Trouble};
use super::{Caller, Commands, READY_SEC, Readiness, check, room, to_its_end, wait};
use crate::boxd::label;
use crate::engine::{CallUnderWay, Patience, View};
use crate::random;
use crate::store::{ERROR_LEN, Ending, HistoryStep, SUMMARY_LEN, cut, is_housekeeping};

/// How much of each stream an answer carries, in bytes.
pub(super) const TAIL_BYTES: u32 = 16 * 1024;
/// How much longer than the command's own deadline the daemon may take to answer.
pub(super) const SLACK: Duration = Duration::from_secs(60);
/// How long the daemon may take for what needs no waiting.
pub(super) const QUICK: Duration = Duration::from_secs(15);
/// How long the CPU use of commands is measured for a list, in milliseconds.
const CPU_MS: u32 = 200;
/// How long to wait for news of a box whose daemon broke off.
const NEWS: Duration = Duration::from_secs(2);
/// How often a daemon that breaks off is asked again.
const TRIES: usize = 3;
/// How much of a command line a list shows, in characters.
pub(super) const CMD_SHOWN: usize = 500;

impl Commands {
    /// Runs a command. It goes on, and the call with it, if the caller stops listening.
    pub async fn exec(
        &self,
        caller: &Caller,
        id: &str,
        request: ExecRequest,
    ) -> Result<ExecResponse, Trouble> {
        check::exec(&request)?;
        let when = Readiness::of(request.ready_port, request.ready_log.as_deref())?;
        let (patience, _listens) = room::patience_of_listener(request.wait_for_capacity_sec)?;
        let id = self.find(caller, id)?.id();
        let (commands, caller) = (self.clone(), caller.clone());
        to_its_end(async move { commands.run(&caller, id, request, when, patience).await }).await
    }

    async fn run(
        &self,
        caller: &Caller,
        id: BoxId,
        request: ExecRequest,
        when: Option<Readiness>,
        patience: Patience,
    ) -> Result<ExecResponse, Trouble> {
        let began = self.0.clock.now();
        let writes = !request.read_only;
        let (call, answer) = self.begin(caller, id, writes, patience).await?;
        let exec_id = request.exec_id.clone().unwrap_or_else(random::hex::<8>);
        self.0.askers.note(id, &exec_id, caller.agent.as_deref());
        let step = step(&request, &exec_id, began);
        let ready_sec = request.ready_sec.unwrap_or(READY_SEC);
        let left = request
            .background
            .then(|| began_event(&exec_id, label(&request.cmd)));
        let mut done = self.run_in(&call, &answer.view, request, &exec_id).await;
        let left = left.filter(|_| done.is_ok());
        if let (Ok(begun), Some(when)) = (&mut done, &when) {
            let wait = Duration::from_secs(u64::from(ready_sec));
            match self.up(&call, id, &exec_id, when, wait).await {
                Ok(ready) => begun.ready = Some(ready),
                Err(trouble) => done = Err(trouble),
            }
        }
        let step = step.map(|step| HistoryStep {
            ending: ending(&done, self.0.clock.now().since(began)),
            ..step
        });
        match (step, left) {
            (step, Some(left)) => call.end_leaving(step, left).await,
            (Some(step), None) => call.end_with(step).await,
            (None, None) => call.end().await,
        }
        done.map_err(|trouble| trouble.with("execId", exec_id))
    }

    pub(super) async fn run_in(
        &self,
        call: &CallUnderWay,
        view: &Arc<View>,
        request: ExecRequest,
        exec_id: &str,
    ) -> Result<ExecResponse, Trouble> {
        let id = view.id();
        if !wait::is_ready(view) {
            self.until_ready(id).await?;
        }
        let mut env = self.given(view).await?;
        env.extend(request.env);
        let background = request.background;
        let limit_sec = match (request.timeout_sec, background) {
            (Some(sec), _) => sec,
            (None, true) => 0,
            (None, false) => check::TIMEOUT_SEC,
        };
        let limit = Duration::from_secs(u64::from(limit_sec));
        let asked = boxd::ExecRequest {
            exec_id: exec_id.to_owned(),
            cmd: request.cmd,
            cwd: request.cwd.unwrap_or_default(),
            env: env.into_iter().collect(),
            timeout_ms: u64::from(limit_sec) * 1_000,
            stdin: request.stdin.unwrap_or_default().into_bytes(),
            background,
            tail_bytes: Some(TAIL_BYTES),
            ..boxd::ExecRequest::default()
        };
        let kills_before = match background {
            true => None,
            false => Some(self.memory_kills(id).await),
        };
        let patience = if background { QUICK } else { limit + SLACK };
        let answer = self
            .ask_daemon(call, id, true, || {
                let (client, asked) = (self.0.boxds.client(id), asked.clone());
                async move {
                    let options = CallOptions::default().with_timeout(patience);
                    let answer = client.exec_with_options(asked, options).await?;
                    Ok(answer.into_owned())
                }
            })
            .await?;
        if answer.joined && answer.result.proc.cmd != asked.cmd {
            return Err(Trouble::bad(
                "execId",
                "an id of its own for each command; this one belongs to another",
            ));
        }
        let mut done = response(id, exec_id.to_owned(), background, &answer.result);
        if let Some(before) = kills_before.filter(|_| done.exit_code != Some(0)) {
            done.end_reason = self.out_of_memory(id, before).await;
        }
        Ok(done)
    }

    pub(super) async fn background_began(&self, id: BoxId, exec_id: &str, label: String) {
        let began = began_event(exec_id, label);
        if self.0.engine.tell(id, began).await.is_err() {
            tracing::warn!(%id, exec_id, "the server ends; the next one finds the command by itself");
        }
    }

    /// Every command the daemon still knows.
    pub async fn procs(&self, caller: &Caller, id: &str) -> Result<Vec<ProcView>, Trouble> {
        let id = self.find(caller, id)?.id();
        let (call, _) = self.acting(caller, id, false).await?;
        let answer = self
            .ask_daemon(&call, id, false, || {
                let client = self.0.boxds.client(id);
                async move {
                    let options = CallOptions::default().with_timeout(QUICK);
                    let request = ProcsRequest {
                        cpu_ms: CPU_MS,
                        ..ProcsRequest::default()
                    };
                    let answer = client.procs_with_options(request, options).await?;
                    Ok(answer.into_owned())
                }
            })
            .await?;
        let now_ms = crate::clock::machine_now().0;
        let mut procs = Vec::with_capacity(answer.procs.len());
        for proc in answer.procs.iter().filter(|proc| !is_own(proc)) {
            let mut view = proc_view(id, proc, now_ms);
            self.explain(id, &mut view).await;
            procs.push(view);
        }
        Ok(procs)
    }

    /// One command; waits for its end at most `wait`. When its box cannot be asked any more, or does not know it, what
    /// the record says of it (rule 12.2). A frozen box wakes for the question, for it is one of the calls that act (3.1).
    pub async fn proc(
        &self,
        caller: &Caller,
        id: &str,
        exec_id: &str,
        wait: Duration,
    ) -> Result<ProcView, Trouble> {
        let id = self.find(caller, id)?.id();
        match self.ask_for_proc(caller, id, exec_id, wait).await {
            Err(trouble) if may_be_recorded(trouble.kind) => {
                let recorded = self.recorded(id, exec_id).await?;
                recorded.ok_or(trouble)
            }
            answer => answer,
        }
    }

    async fn ask_for_proc(
        &self,
        caller: &Caller,
        id: BoxId,
        exec_id: &str,
        wait: Duration,
    ) -> Result<ProcView, Trouble> {
        let (call, _) = self.acting(caller, id, false).await?;
        let info = self
            .ask_daemon(&call, id, false, || {
                let client = self.0.boxds.client(id);
                let exec_id = exec_id.to_owned();
                async move {
                    let options = CallOptions::default().with_timeout(wait + QUICK);
                    if wait.is_zero() {
                        let request = ProcRequest {
                            exec_id,
                            ..ProcRequest::default()
                        };
                        let answer = client.proc_with_options(request, options).await?;
                        return Ok(ProcInfo::clone(&answer.into_owned().proc));
                    }
                    let request = WaitRequest {
                        exec_id,
                        wait_ms: u64::try_from(wait.as_millis()).unwrap_or(u64::MAX),
                        tail_bytes: Some(0),
                        ..WaitRequest::default()
                    };
                    let answer = client.wait_with_options(request, options).await?;
                    Ok(ProcInfo::clone(&answer.into_owned().result.proc))
                }
            })
            .await?;
        let mut view = proc_view(id, &info, crate::clock::machine_now().0);
        self.explain(id, &mut view).await;
        Ok(view)
    }

    /// Ends a command: first politely, after `grace` for sure.
    pub async fn stop_proc(
        &self,
        caller: &Caller,
        id: &str,
        exec_id: &str,
        grace: Option<Duration>,
    ) -> Result<ProcView, Trouble> {
        let id = self.find(caller, id)?.id();
        let (call, _) = self.acting(caller, id, true).await?;
        let info = self
            .ask_daemon(&call, id, false, || {
                let client = self.0.boxds.client(id);
                let request = StopProcRequest {
                    exec_id: exec_id.to_owned(),
                    grace_ms: grace
                        .map(|grace| u64::try_from(grace.as_millis()).unwrap_or(u64::MAX)),
                    ..StopProcRequest::default()
                };
                let options =
                    CallOptions::default().with_timeout(grace.unwrap_or_default() + QUICK);
                async move {
                    let answer = client.stop_proc_with_options(request, options).await?;
                    Ok(ProcInfo::clone(&answer.into_owned().proc))
                }
            })
            .await?;
        Ok(proc_view(id, &info, crate::clock::machine_now().0))
    }

    /// Asks the daemon, again if it breaks off while the box goes on (every request may be repeated: commands are joined
    /// by their id), and finds out what became of the box otherwise. `runs`: something may have run already.
    pub(super) async fn ask_daemon<T, F>(
        &self,
        _call: &CallUnderWay,
        id: BoxId,
        runs: bool,
        attempt: impl Fn() -> F,
    ) -> Result<T, Trouble>
    where
        F: Future<Output = Result<T, ConnectError>>,
    {
        let mut last = None;
        for _ in 0..TRIES {
            let error = match attempt().await {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            if !broke_off(&error) {
                return Err(said(&error));
            }
            if let Some(trouble) = self.what_happened(id).await {
                return Err(if runs && trouble.kind == Kind::BoxGone {
                    trouble.outcome_unknown()
                } else {
                    trouble
                });
            }
            last = Some(error);
        }
        let why = last.map(|error| said(&error).text).unwrap_or_default();
        Err(Trouble::internal(&format!(
            "the daemon of box {id} does not answer: {why}"
        )))
    }

    /// What a box says that its daemon broke off from: trouble if it stopped running, nothing if it goes on.
    pub(super) async fn what_happened(&self, id: BoxId) -> Option<Trouble> {
        let now = || self.0.clock.now();
        let news = self.until(id, |view| {
            let frozen_under = |cause| ControlFlow::Break(Err(wait::frozen_under(view, cause)));
            match &view.sandbox.state {
                State::Ready => ControlFlow::Continue(()),
                // It stands still for a snapshot, and goes on by itself.
                State::Freezing {
                    save: Some(_),
                    wake: true,
                    ..
                } => ControlFlow::Break(Ok(())),
                State::Freezing { cause, .. } => frozen_under(*cause),
                State::Frozen(frozen) => frozen_under(frozen.cause),
                State::Thawing { from, .. } => frozen_under(from.cause),
                State::Starting { .. } | State::Releasing { .. } => ControlFlow::Break(Ok(())),
                State::Stopping { .. } | State::Terminated { .. } | State::Interrupted { .. } => {
                    match Trouble::of_ended(view, now()) {
                        Some(trouble) => ControlFlow::Break(Err(trouble)),
                        None => ControlFlow::Break(Ok(())),
                    }
                }
            }
        });
        match tokio::time::timeout(NEWS, news).await {
            Ok(Err(trouble)) => Some(trouble),
            Ok(Ok(())) => self.until_ready(id).await.err(),
            Err(_) => None,
        }
    }
}

/// Whether a connection ended, rather than the daemon having an opinion.
fn broke_off(error: &ConnectError) -> bool {
    let codes = [
        ErrorCode::Unavailable,
        ErrorCode::Canceled,
        ErrorCode::Unknown,
        ErrorCode::Aborted,
    ];
    codes.contains(&error.code)
}

/// What the daemon said, for a caller.
pub(super) fn said(error: &ConnectError) -> Trouble {
    let text = error.message.clone();
    let text = text.unwrap_or_else(|| "the box's daemon gave no reason".to_owned());
    let callers = [
        ErrorCode::InvalidArgument,
        ErrorCode::FailedPrecondition,
        ErrorCode::OutOfRange,
    ];
    if callers.contains(&error.code) {
        return Trouble::new(Kind::BadRequest, text);
    }
    if error.code == ErrorCode::NotFound {
        return Trouble::new(Kind::NotFound, text);
    }
    if error.code == ErrorCode::ResourceExhausted {
        return Trouble::new(Kind::Busy, text);
    }
    Trouble::internal(&format!("boxd: {:?}: {text}", error.code))
}

/// A command goes on in the background.
fn began_event(exec_id: &str, label: String) -> Event {
    Event::BackgroundBegan {
        exec: exec_id.into(),
        label: label.into(),
    }
}

/// The step that a command is (rule 11.3), before it ran; `None` for an adapter's housekeeping.
fn step(request: &ExecRequest, exec_id: &str, at: Time) -> Option<HistoryStep> {
    if is_housekeeping(&request.cmd, request.cwd.as_deref().unwrap_or_default()) {
        return None;
    }
    Some(HistoryStep {
        at,
        exec: Some(exec_id.to_owned()),
        kind: "exec",
        summary: cut(&request.cmd, SUMMARY_LEN),
        note: request.note.clone(),
        detail: request.background.then(|| "background".into()),
        target: None,
        ending: Ending::default(),
    })
}

/// How a command's step ended. One that nobody waited for has only begun.
pub(super) fn ending(done: &Result<ExecResponse, Trouble>, took_ms: i64) -> Ending {
    let took = u64::try_from(took_ms).ok();
    match done {
        Ok(done) => Ending {
            ms: done.ms.or(took),
            error: None,
            exit_code: done.exit_code,
            signal: done.signal.clone(),
            timed_out: done.timed_out == Some(true),
        },
        Err(trouble) => Ending {
            ms: took,
            error: Some(cut(&trouble.text, ERROR_LEN)),
            ..Ending::default()
        },
    }
}

fn response(id: BoxId, exec_id: String, background: bool, result: &ProcResult) -> ExecResponse {
    if background {
        return ExecResponse {
            bg_id: Some(exec_id.clone()),
            output_url: Some(output_url(id, &exec_id)),
            exec_id,
            ..ExecResponse::default()
        };
    }
    let proc: &ProcInfo = &result.proc;
    let text = |bytes: &[u8]| Some(String::from_utf8_lossy(bytes).into_owned());
    ExecResponse {
        output_url: Some(output_url(id, &exec_id)),
        exec_id,
        bg_id: None,
        ready: None,
        // A command that its deadline ended has no exit code, whatever it made of the signal (12.1).
        exit_code: proc.exit_code.filter(|_| !proc.timed_out),
        signal: proc.signal.clone(),
        timed_out: Some(proc.timed_out),
        end_reason: None,
        stdout: text(&result.stdout_tail),
        stderr: text(&result.stderr_tail),
        truncated: Some(result.stdout_truncated || result.stderr_truncated),
        ms: Some(result.elapsed_ms),
        notices: Vec::new(),
    }
}

/// Whether a command is the server's or an adapter's own housekeeping.
pub(super) fn is_own(proc: &ProcInfo) -> bool {
    is_housekeeping(&proc.cmd, "")
}

pub(super) fn proc_view(id: BoxId, proc: &ProcInfo, now_ms: i64) -> ProcView {
    let until_ms = proc.ended_ms.unwrap_or(now_ms);
    ProcView {
        exec_id: proc.exec_id.clone(),
        cmd: proc.cmd.chars().take(CMD_SHOWN).collect(),
        background: proc.background,
        running: proc.running,
        pid: proc.running.then_some(proc.pid),
        cpu: proc.cpus.map(|cpus| (cpus * 100.0).round() / 100.0),
        exit_code: proc.exit_code.filter(|_| !proc.timed_out),
        signal: proc.signal.clone(),
        timed_out: proc.timed_out,
        ms: u64::try_from(until_ms - proc.started_ms).unwrap_or(0),
        stdout_bytes: proc.stdout_bytes,
        stderr_bytes: proc.stderr_bytes,
        output_url: output_url(id, &proc.exec_id),
        gap: Gaps {
            stdout: gap(proc.stdout_dropped_from, proc.stdout_dropped_to),
            stderr: gap(proc.stderr_dropped_from, proc.stderr_dropped_to),
        },
        ..ProcView::default()
    }
}

fn gap(from: u64, to: u64) -> Option<Gap> {
    (from < to).then_some(Gap { from, to })
}

pub(super) fn output_url(id: BoxId, exec_id: &str) -> String {
    format!("/v1/boxes/{id}/procs/{exec_id}/output")
}
