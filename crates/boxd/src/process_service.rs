//! `process.Process`, the E2B service: start and follow processes, feed and signal them.
//!
//! A follower reads kept output by its own offsets, so a slow or absent client never holds a process up; one that falls
//! behind what is kept is told so and cut off. Leaving ends nothing.

use std::sync::Arc;
use std::time::Duration;

use buffa::{EnumValue, MessageField};
use connectrpc::{
    ConnectError, RequestContext, Response, ServiceRequest, ServiceResult, ServiceStream,
};
use futures_util::StreamExt as _;
use icebox_wire::process::__buffa::oneof::process_input::Input as WireInput;
use icebox_wire::process::__buffa::oneof::process_selector::Selector as WireSelector;
use icebox_wire::process::__buffa::oneof::stream_input_request::Event as InputEvent;
use icebox_wire::process::{
    CloseStdinRequest, CloseStdinResponse, ConnectRequest, ConnectResponse, ListRequest,
    ListResponse, PTY, Process, ProcessConfig, ProcessInfo, ProcessInput, ProcessSelector,
    SendInputRequest, SendInputResponse, SendSignalRequest, SendSignalResponse, Signal,
    StartRequest, StartResponse, StreamInputRequest, StreamInputResponse, UpdateRequest,
    UpdateResponse,
};
use rustix::termios::Winsize;

use crate::access::acting_user;
use crate::calls::{keepalive, timeout};
use crate::error::Error;
use crate::follow::{Follow, follow};
use crate::proc::Proc;
use crate::restart::gate::{AtWork, Gate};
use crate::spawn::Wiring;
use crate::starter::{Starter, Words};
use crate::table::Selector;
use crate::users::User;

/// The size of a terminal whose client gives none.
const DEFAULT_SIZE: Winsize = Winsize {
    ws_row: 24,
    ws_col: 80,
    ws_xpixel: 0,
    ws_ypixel: 0,
};

/// The service.
pub(crate) struct ProcessService {
    starter: Arc<Starter>,
    gate: Arc<Gate>,
}

impl ProcessService {
    pub(crate) fn new(starter: Arc<Starter>, gate: Arc<Gate>) -> Self {
        Self { starter, gate }
    }

    fn running(&self, selector: &ProcessSelector) -> Result<Arc<Proc>, Error> {
        self.starter.table.running(&wanted(selector)?)
    }

    fn start_process(
        &self,
        request: StartRequest,
        user: User,
        timeout: Option<Duration>,
    ) -> Result<Arc<Proc>, Error> {
        let config = request
            .process
            .into_option()
            .ok_or_else(|| Error::BadRequest("process is missing; say what to run".to_owned()))?;
        let wiring = match request.pty.as_option() {
            Some(pty) => Wiring::Pty(size_of(pty)?.unwrap_or(DEFAULT_SIZE)),
            None => Wiring::Pipes {
                stdin: request.stdin.unwrap_or(true),
            },
        };
        let mut words = vec![config.cmd];
        words.extend(config.args);
        let env = config.envs.into_iter().collect();
        self.starter.words(Words {
            words,
            cwd: config.cwd,
            env,
            user,
            tag: request.tag,
            wiring,
            timeout,
        })
    }
}

#[expect(
    refining_impl_trait,
    reason = "the concrete answers are what this program means to give"
)]
impl Process for ProcessService {
    async fn list(
        &self,
        _: RequestContext,
        _: ServiceRequest<'_, ListRequest>,
    ) -> ServiceResult<ListResponse> {
        let all = self.starter.table.all();
        let running = all.iter().filter(|proc| proc.state().exit.is_none());
        Response::ok(ListResponse {
            processes: running.map(|proc| listed(proc)).collect(),
            ..Default::default()
        })
    }

    async fn connect(
        &self,
        ctx: RequestContext,
        request: ServiceRequest<'_, ConnectRequest>,
    ) -> ServiceResult<ServiceStream<ConnectResponse>> {
        let request = request.to_owned_message();
        let proc = self
            .starter
            .table
            .running_or_late(&wanted(&request.process)?)?;
        let offsets = proc.state().totals;
        let options = Follow {
            offsets,
            keepalive: keepalive(&ctx),
            limit: timeout(&ctx)?,
            gate: Arc::clone(&self.gate),
        };
        let events = follow(proc, options).map(|event| {
            Ok(ConnectResponse {
                event: MessageField::some(event?),
                ..Default::default()
            })
        });
        Response::ok(Box::pin(events))
    }

    async fn start(
        &self,
        ctx: RequestContext,
        request: ServiceRequest<'_, StartRequest>,
    ) -> ServiceResult<ServiceStream<StartResponse>> {
        let user = acting_user(&ctx, &self.starter.settings)?;
        let proc = self.start_process(request.to_owned_message(), user, timeout(&ctx)?)?;
        let options = Follow {
            offsets: [0, 0],
            keepalive: keepalive(&ctx),
            limit: None,
            gate: Arc::clone(&self.gate),
        };
        let events = follow(proc, options).map(|event| {
            Ok(StartResponse {
                event: MessageField::some(event?),
                ..Default::default()
            })
        });
        Response::ok(Box::pin(events))
    }

    async fn update(
        &self,
        _: RequestContext,
        request: ServiceRequest<'_, UpdateRequest>,
    ) -> ServiceResult<UpdateResponse> {
        let request = request.to_owned_message();
        let proc = self.running(&request.process)?;
        if let Some(size) = request.pty.as_option().map(size_of).transpose()?.flatten() {
            proc.resize(size)?;
        }
        Response::ok(UpdateResponse::default())
    }

    async fn stream_input(
        &self,
        _: RequestContext,
        mut requests: connectrpc::InboundStream<StreamInputRequest>,
    ) -> ServiceResult<StreamInputResponse> {
        let mut target = None;
        while let Some(request) = requests.next().await {
            match request?.to_owned_message().event {
                Some(InputEvent::Start(start)) => target = Some(self.running(&start.process)?),
                Some(InputEvent::Data(data)) => {
                    let proc = target.as_ref().ok_or_else(|| {
                        ConnectError::invalid_argument(
                            "the first message must be start, naming the process",
                        )
                    })?;
                    deliver(proc, data.input.into_option()).await?;
                }
                Some(InputEvent::Keepalive(_)) | None => {}
            }
        }
        Response::ok(StreamInputResponse::default())
    }

    async fn send_input(
        &self,
        _: RequestContext,
        request: ServiceRequest<'_, SendInputRequest>,
    ) -> ServiceResult<SendInputResponse> {
        let request = request.to_owned_message();
        let proc = self.running(&request.process)?;
        deliver(&proc, request.input.into_option()).await?;
        Response::ok(SendInputResponse::default())
    }

    async fn send_signal(
        &self,
        _: RequestContext,
        request: ServiceRequest<'_, SendSignalRequest>,
    ) -> ServiceResult<SendSignalResponse> {
        let request = request.to_owned_message();
        let signal = signal_of(request.signal)?;
        self.running(&request.process)?.signal(signal)?;
        Response::ok(SendSignalResponse::default())
    }

    async fn close_stdin(
        &self,
        _: RequestContext,
        request: ServiceRequest<'_, CloseStdinRequest>,
    ) -> ServiceResult<CloseStdinResponse> {
        let request = request.to_owned_message();
        self.running(&request.process)?.close_stdin().await?;
        Response::ok(CloseStdinResponse::default())
    }
}

fn wanted(selector: &ProcessSelector) -> Result<Selector, Error> {
    match &selector.selector {
        Some(WireSelector::Pid(pid)) => Ok(Selector::Pid(i32::try_from(*pid).unwrap_or_default())),
        Some(WireSelector::Tag(tag)) => Ok(Selector::Tag(tag.clone())),
        None => Err(Error::BadRequest(
            "process must be selected by pid or tag".to_owned(),
        )),
    }
}

fn listed(proc: &Proc) -> ProcessInfo {
    let mut words = proc.about.words.iter().cloned();
    let config = ProcessConfig {
        cmd: words.next().unwrap_or_default(),
        args: words.collect(),
        envs: proc.about.env.iter().cloned().collect(),
        cwd: proc.about.cwd.clone(),
        ..Default::default()
    };
    ProcessInfo {
        config: MessageField::some(config),
        pid: proc.pid.unsigned_abs(),
        tag: proc.about.tag.clone(),
        ..Default::default()
    }
}

async fn deliver(proc: &Proc, input: Option<ProcessInput>) -> Result<(), Error> {
    // Half of it may be taken already: that is not asked for again.
    let _at_work = AtWork::begin();
    match input.and_then(|input| input.input) {
        Some(WireInput::Stdin(data)) => proc.write_input(&data, false).await,
        Some(WireInput::Pty(data)) => proc.write_input(&data, true).await,
        None => Err(Error::BadRequest("input must hold stdin or pty".to_owned())),
    }
}

fn size_of(pty: &PTY) -> Result<Option<Winsize>, Error> {
    let Some(size) = pty.size.as_option() else {
        return Ok(None);
    };
    match (u16::try_from(size.rows), u16::try_from(size.cols)) {
        (Ok(ws_row), Ok(ws_col)) => Ok(Some(Winsize {
            ws_row,
            ws_col,
            ws_xpixel: 0,
            ws_ypixel: 0,
        })),
        _ => Err(Error::BadRequest(format!(
            "a terminal has at most {} rows and columns",
            u16::MAX
        ))),
    }
}

fn signal_of(signal: EnumValue<Signal>) -> Result<rustix::process::Signal, Error> {
    match signal.as_known() {
        Some(Signal::SIGNAL_SIGTERM) => Ok(rustix::process::Signal::TERM),
        Some(Signal::SIGNAL_SIGKILL) => Ok(rustix::process::Signal::KILL),
        Some(Signal::SIGNAL_UNSPECIFIED) | None => Err(Error::BadRequest(
            "signal must be SIGNAL_SIGTERM or SIGNAL_SIGKILL".to_owned(),
        )),
    }
}
