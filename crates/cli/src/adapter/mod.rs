//! The stdio adapter of `icebox mcp`: an MCP server for the client that started it, and a client of one Icebox server. It
//! gives the conversation an id, says that it is there and when it leaves, does what needs the local disk, and forwards
//! everything else. Owns which calls are repeated when a connection breaks; knows no rule of a box.

mod commits;
mod compare;
mod left;
mod messages;
mod packages;
mod pull;
mod remote;
mod select;
mod sync;
mod tools;
mod upstream;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ErrorData,
    Implementation, ListToolsResult, PaginatedRequestParams, ProgressNotificationParam, ResultType,
    ServerCapabilities, ServerConfig,
};
use rmcp::service::{Peer, RequestContext, RoleServer};
use rmcp::{ServerHandler, ServiceExt as _};
use serde_json::{Map, Value, json};
use tokio::signal::unix::{SignalKind, signal};

use self::messages::Messages;
use self::tools::Tools;
use self::upstream::{Failure, Upstream};
use crate::error::CliError;
use crate::settings::Server;
use crate::stopwatch::Stopwatch;

/// How often the server hears that the conversation is there.
const HEARTBEAT: Duration = Duration::from_secs(60);
/// How long a heartbeat or the word of leaving may take.
const SIGN: Duration = Duration::from_secs(5);
/// How long a server that restarts is waited for.
const PATIENCE: Duration = Duration::from_secs(60);
/// The first and the longest pause between two tries.
const PAUSES: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(5));

const INSTRUCTIONS: &str = "\
Boxes are isolated Linux computers that belong to your account. Look at sandbox_list before you start one. A box that nobody \
uses for 10 minutes freezes with its memory; any call that needs it wakes it where it was. A frozen box is stopped for good \
24 h later: keep what matters elsewhere, and stop boxes you are done with. sandbox_sync sends local files, sandbox_pull \
fetches them. Commands run on when a call ends early. Lines under a result are for you: read them; \
`fromHuman` is what a person asks of you.";

/// Serves one MCP client on standard input and output, until it goes away or this program is told to end.
pub(crate) fn run(server: Server) -> Result<(), CliError> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build();
    let failed = |what: &str| {
        let what = what.to_owned();
        move |source| CliError::Io { what, source }
    };
    let runtime = runtime.map_err(failed("start"))?;
    let conversation = conversation().map_err(failed("make an id for the conversation"))?;
    let upstream = Arc::new(Upstream::new(server, conversation));
    let adapter = Adapter {
        upstream: Arc::clone(&upstream),
        began: Arc::new(AtomicBool::new(false)),
        started: Arc::default(),
        messages: Arc::default(),
        tools: Arc::default(),
        watched: Arc::default(),
    };
    let messages = Arc::clone(&adapter.messages);
    let began = Arc::clone(&adapter.began);
    let served = runtime.block_on(async {
        let told = told_to_end().map_err(failed("listen for signals"))?;
        let serving = async {
            let running = adapter.serve(rmcp::transport::stdio()).await;
            let running = running.map_err(std::io::Error::other);
            running
                .map_err(failed("begin with the client"))?
                .waiting()
                .await
                .ok();
            Ok(())
        };
        tokio::select! {
            served = serving => served,
            () = told => Ok(()),
        }
    });
    if began.load(Ordering::Acquire) {
        messages.confirm(&upstream);
        let path = format!("/v1/agents/{}/leave", upstream.conversation());
        // The server notices by itself, three minutes later.
        let _ = upstream.post(&path, &json!({}), SIGN);
    }
    // Calls under way and the read of standard input would be waited for.
    runtime.shutdown_background();
    served
}

/// A fresh id: whoever starts this program again is another conversation (rule 7.8).
fn conversation() -> std::io::Result<String> {
    let mut random = [0; 12];
    std::io::Read::read_exact(&mut std::fs::File::open("/dev/urandom")?, &mut random)?;
    let hex: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(format!("icebox-{hex}"))
}

fn told_to_end() -> std::io::Result<impl Future<Output = ()>> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut hang_up = signal(SignalKind::hangup())?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
            _ = hang_up.recv() => {}
        }
    })
}

type Started = Arc<Mutex<BTreeSet<String>>>;

#[derive(Clone)]
struct Adapter {
    upstream: Arc<Upstream>,
    /// Whether a tool was called: only then is the conversation there for the server.
    began: Arc<AtomicBool>,
    /// Boxes that this conversation was told it started.
    started: Started,
    /// What people said to it.
    messages: Arc<Messages>,
    /// Which tools it was told there are.
    tools: Arc<Tools>,
    /// Whether somebody looks if these change.
    watched: Arc<AtomicBool>,
}

impl ServerHandler for Adapter {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder()
            .enable_tools()
            .enable_tool_list_changed()
            .build();
        ServerConfig::new(capabilities)
            .with_server_info(Implementation::new("icebox", env!("CARGO_PKG_VERSION")))
            .with_instructions(INSTRUCTIONS)
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let (tools, upstream) = (Arc::clone(&self.tools), Arc::clone(&self.upstream));
        let asked = tokio::task::spawn_blocking(move || tools.list(&upstream));
        let answer = asked.await.map_err(internal)?;
        let (tools, _) =
            answer.map_err(|failure| ErrorData::internal_error(failure.text(), None))?;
        if !self.watched.swap(true, Ordering::AcqRel) {
            let (known, upstream) = (Arc::clone(&self.tools), Arc::clone(&self.upstream));
            tokio::spawn(known.watch(upstream, context.peer));
        }
        let tools = serde_json::from_value(tools).map_err(internal)?;
        Ok(ListToolsResult::with_all_items(tools))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        self.begin();
        let (alive, mut alives) = tokio::sync::mpsc::channel::<()>(1);
        let cancelled = Arc::new(AtomicBool::new(false));
        let arguments = request.arguments.unwrap_or_default();
        let of_box = arguments.get("id").and_then(Value::as_str);
        let of_box = of_box.map(str::to_owned);
        let call = Call {
            upstream: Arc::clone(&self.upstream),
            name: request.name.into_owned(),
            arguments,
            cancelled: Arc::clone(&cancelled),
            started: Arc::clone(&self.started),
            alive,
        };
        let mut running = tokio::task::spawn_blocking(move || call.run());
        let began = Stopwatch::start();
        loop {
            tokio::select! {
                done = &mut running => {
                    let mut result = done.map_err(internal)?;
                    self.came(of_box, &mut result, context.peer);
                    return Ok(result.into());
                }
                () = context.ct.cancelled() => {
                    cancelled.store(true, Ordering::Release);
                    return Ok(failed("the call was cancelled; a command that it began goes on").into());
                }
                Some(()) = alives.recv() => {
                    if let Some(token) = context.meta.get_progress_token() {
                        let waited = began.elapsed().as_secs_f64();
                        let progress = ProgressNotificationParam::new(token, waited);
                        // A client that does not listen is none of the call's business.
                        let _ = context.peer.notify_progress(progress).await;
                    }
                }
            }
        }
    }
}

/// Whether a call came to nothing for want of an argument.
fn lacks_an_argument(result: &CallToolResult) -> bool {
    let text = result.content.first().and_then(ContentBlock::as_text);
    result.is_error == Some(true) && text.is_some_and(|text| text.text.contains("is required"))
}

fn internal(error: impl std::fmt::Display) -> ErrorData {
    ErrorData::internal_error(error.to_string(), None)
}

impl Adapter {
    /// A result is on its way to the client.
    fn came(&self, of_box: Option<String>, result: &mut CallToolResult, client: Peer<RoleServer>) {
        // A start that was looked up is told as the box that it made.
        let of_box = of_box.or_else(|| {
            let id = result.structured_content.as_ref()?.get("id")?;
            id.as_str().map(str::to_owned)
        });
        if of_box.is_some_and(|of_box| self.messages.arrive(&of_box, result)) {
            let (messages, upstream) = (Arc::clone(&self.messages), Arc::clone(&self.upstream));
            tokio::task::spawn_blocking(move || messages.confirm(&upstream));
        }
        if lacks_an_argument(result) {
            // The client may know the tools of an older server.
            let (tools, upstream) = (Arc::clone(&self.tools), Arc::clone(&self.upstream));
            tokio::spawn(tools.check(upstream, client));
        }
    }

    /// The first call of a tool begins the heartbeats.
    fn begin(&self) {
        if self.began.swap(true, Ordering::AcqRel) {
            return;
        }
        let (upstream, messages) = (Arc::clone(&self.upstream), Arc::clone(&self.messages));
        tokio::spawn(async move {
            let mut beat = tokio::time::interval(HEARTBEAT);
            loop {
                beat.tick().await;
                let (upstream, messages) = (Arc::clone(&upstream), Arc::clone(&messages));
                let sent = tokio::task::spawn_blocking(move || {
                    let path = format!("/v1/agents/{}/heartbeat", upstream.conversation());
                    // The next one is a minute away.
                    let _ = upstream.post(&path, &json!({"client": "icebox mcp"}), SIGN);
                    messages.confirm(&upstream);
                });
                if sent.await.is_err() {
                    return;
                }
            }
        });
    }
}

/// One call of a tool.
struct Call {
    upstream: Arc<Upstream>,
    name: String,
    arguments: Map<String, Value>,
    cancelled: Arc<AtomicBool>,
    started: Started,
    alive: tokio::sync::mpsc::Sender<()>,
}

impl Call {
    fn run(mut self) -> CallToolResult {
        match self.name.as_str() {
            "sandbox_sync" => local(sync::run(&self)),
            "sandbox_pull" => local(pull::run(&self)),
            "sandbox_exec" => {
                self.name_it("execId");
                self.forward()
            }
            "sandbox_say" => {
                self.name_it("sayId");
                self.forward()
            }
            "sandbox_start" => self.start(),
            _ => self.forward(),
        }
    }

    /// With an id of its own a call can be repeated without doing twice what it does.
    fn name_it(&mut self, field: &str) {
        let has_id = self.arguments.get(field).is_some_and(Value::is_string);
        if !has_id && let Ok(id) = conversation() {
            let id: String = id.chars().rev().take(16).collect();
            self.arguments.insert(field.to_owned(), id.into());
        }
    }

    /// A start whose answer is lost is looked up, so that the same box is not started twice.
    fn start(&self) -> CallToolResult {
        let arguments = Value::Object(self.arguments.clone());
        let answer = match self.tool(&self.name, &arguments) {
            Err(Failure::Lost(why)) => match self.look_up() {
                Some(id) => self.tool("sandbox_status", &json!({"id": id})),
                None => Err(Failure::Lost(why)),
            },
            answer => answer,
        };
        if let Ok(answer) = &answer
            && let Some(id) = answer["structuredContent"]["id"].as_str()
        {
            let mut started = self.started.lock().unwrap_or_else(PoisonError::into_inner);
            started.insert(id.to_owned());
        }
        self.told(answer)
    }

    /// The box that a lost start made, if it made one: this conversation's, of that goal and name, and not told before.
    fn look_up(&self) -> Option<String> {
        let listed = self.tool("sandbox_list", &json!({})).ok()?;
        let boxes = listed["structuredContent"]["boxes"].as_array()?;
        let same = |shown: &Value, field: &str| {
            shown.get(field).and_then(Value::as_str)
                == self.arguments.get(field).and_then(Value::as_str)
        };
        let started = self.started.lock().unwrap_or_else(PoisonError::into_inner);
        let found = boxes.iter().find(|shown| {
            shown["agent"]["thisConversation"] == true
                && same(shown, "goal")
                && same(shown, "name")
                && shown["id"].as_str().is_some_and(|id| !started.contains(id))
        });
        found?["id"].as_str().map(str::to_owned)
    }

    fn forward(&self) -> CallToolResult {
        let arguments = Value::Object(self.arguments.clone());
        self.told(self.tool(&self.name, &arguments))
    }

    fn told(&self, answer: Result<Value, Failure>) -> CallToolResult {
        let result = answer.map(serde_json::from_value::<CallToolResult>);
        match result {
            Ok(Ok(mut result)) => {
                // The client may speak a newer version of the protocol than is spoken to the server.
                result.result_type = Some(ResultType::COMPLETE);
                result
            }
            Ok(Err(error)) => failed(&format!("the server's answer is not understood: {error}")),
            Err(failure @ Failure::Lost(_)) => failed(&format!(
                "{}; {} may have run all the same: look at `steps` in sandbox_status before you repeat it",
                failure.text(),
                self.name
            )),
            Err(failure) => failed(&failure.text()),
        }
    }

    /// Calls a tool of the server.
    fn tool(&self, name: &str, arguments: &Value) -> Result<Value, Failure> {
        let params = json!({"name": name, "arguments": arguments, "_meta": {"progressToken": 1}});
        patiently(Again::of(name, arguments), || {
            if self.cancelled.load(Ordering::Acquire) {
                return Err(Failure::Cancelled);
            }
            self.upstream
                .ask("tools/call", &params, &self.cancelled, &|| self.is_alive())
        })
    }

    /// Lets the client know that the call goes on.
    fn is_alive(&self) {
        // One that is told already is enough.
        let _ = self.alive.try_send(());
    }
}

/// What may be repeated when nobody knows how far a call got.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Again {
    /// It changes nothing, or a repeat joins the first run.
    Freely,
    /// Only what was never sent.
    NeverSentOnly,
}

impl Again {
    fn of(name: &str, arguments: &Value) -> Self {
        let listing = arguments["action"]
            .as_str()
            .is_none_or(|action| action != "stop");
        match name {
            "sandbox_list"
            | "sandbox_get"
            | "sandbox_freeze"
            | "sandbox_wake"
            | "sandbox_stop"
            | "sandbox_secrets"
            | "sandbox_scene"
            | "sandbox_wire"
            | "sandbox_versions"
            | "sandbox_environments"
            | "sandbox_publish_version"
            | "logs_search"
            | "logs_errors"
            | "logs_tail" => Self::Freely,
            "sandbox_exec" if arguments["execId"].is_string() => Self::Freely,
            "sandbox_say" if arguments["sayId"].is_string() => Self::Freely,
            // What people said comes again until it is confirmed.
            "sandbox_status" => Self::Freely,
            "sandbox_procs" if listing => Self::Freely,
            _ => Self::NeverSentOnly,
        }
    }
}

/// Tries until the server answers, as long as that is safe and not for too long.
fn patiently<T>(again: Again, attempt: impl Fn() -> Result<T, Failure>) -> Result<T, Failure> {
    patiently_for(PATIENCE, again, attempt)
}

fn patiently_for<T>(
    patience: Duration,
    again: Again,
    attempt: impl Fn() -> Result<T, Failure>,
) -> Result<T, Failure> {
    let mut failing: Option<Stopwatch> = None;
    let (mut pause, longest) = PAUSES;
    loop {
        let failure = match attempt() {
            Ok(done) => return Ok(done),
            Err(failure) => failure,
        };
        let safe = match &failure {
            Failure::NotSent(_) => true,
            // The server as a whole does not work: no tool ran.
            Failure::Said { status: 503, .. } => true,
            Failure::Lost(_) => again == Again::Freely,
            Failure::Said { .. } | Failure::Cancelled => false,
        };
        let failing = failing.get_or_insert_with(Stopwatch::start);
        if !safe || failing.elapsed() >= patience {
            return Err(failure);
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(longest);
    }
}

/// The result of a tool that ran here.
fn local(done: Result<Value, String>) -> CallToolResult {
    match done {
        Ok(fields) => {
            let mut result = CallToolResult::success(vec![ContentBlock::text(fields.to_string())]);
            result.structured_content = Some(fields);
            result
        }
        Err(text) => failed(&text),
    }
}

fn failed(text: &str) -> CallToolResult {
    CallToolResult::error(vec![ContentBlock::text(text)])
}
