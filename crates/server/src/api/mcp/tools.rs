//! The tools: name, words, hints, schema, and the command each one is. Owns the list that clients see; does nothing that
//! [`crate::commands`] does not.

use std::pin::Pin;
use std::sync::LazyLock;
use std::time::Duration;

use icebox_wire::rest::ListResponse;
use rmcp::model::{JsonObject, Tool as Listed, ToolAnnotations};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::handed::Handed;
use super::images::Images;
use super::schema::schema;
use super::shape::{shown, with_bg_id};
use super::{files, keep, logs, params, wiring};
use crate::api::App;
use crate::api::input::arguments;
use crate::api::view::SomeFields;
use crate::commands::check::{is_exec_id, takes, unfit};
use crate::commands::{Caller, Kind, Readiness, Trouble};
use crate::store::cut;

/// What a tool call came to: the fields of its result.
pub(super) type Outcome = Result<JsonObject, Trouble>;
type Running<'a> = Pin<Box<dyn Future<Output = Outcome> + Send + 'a>>;
type Run = for<'a> fn(&'a App, &'a Asking, JsonObject) -> Running<'a>;

/// Who calls a tool, and where they found this server.
pub(super) struct Asking {
    /// The caller.
    pub(super) caller: Caller,
    /// The beginning of addresses here.
    pub(super) base: String,
    /// It says by itself when messages of people arrived.
    pub(super) confirms: bool,
    /// Where what an answer hands over waits until its client has it.
    pub(super) handed: Handed,
    /// Images that come with the result.
    pub(super) images: Images,
}

/// The most boxes in one list.
const LISTED: usize = 100;
/// How long `wait` waits when the caller does not say.
const WAIT: Duration = Duration::from_secs(60);
const WAIT_MAX_SEC: u32 = 300;
const GRACE_MAX_SEC: u32 = 60;

/// A tool that runs here.
pub(super) struct Tool {
    /// As clients see it.
    pub(super) listed: Listed,
    /// What it does.
    pub(super) run: Run,
}

/// What a client may expect of a tool without knowing it.
#[derive(Clone, Copy)]
enum Hints {
    /// It changes nothing, and wakes nothing that would be billed.
    Reads,
    /// It changes something, and loses nothing.
    Adds,
    /// Something can be lost by it.
    Destroys,
}

/// All tools, in the order in which an agent needs them.
pub(super) static TOOLS: LazyLock<Vec<Tool>> = LazyLock::new(|| {
    vec![
        tool::<params::Start>(
            "sandbox_start",
            "Start a box",
            "Starts a box: an isolated Linux computer of your own, with `/work` as its working directory and the host's \
             software installed. Answers when it is ready. Look at `sandbox_list` first: a box of an earlier \
             conversation may have what you need. Unused for 10 minutes it freezes, memory and all; the next call wakes \
             it where it was. Stop it when the work is done.",
            Hints::Adds,
            |app, asking, args| Box::pin(start(app, asking, args)),
        ),
        tool::<params::Exec>(
            "sandbox_exec",
            "Run a command",
            "Runs a bash command in a box and answers with its exit code and the last 16 KB of each stream. Wakes a \
             frozen box first. A failing command is no error of the tool: look at `exitCode`. If the call ends early, \
             the command goes on: find it by `sandbox_procs`. Start servers with `background`, and with `readyPort` or \
             `readyLog` to go on once they are up.",
            Hints::Destroys,
            |app, asking, args| Box::pin(exec(app, asking, args)),
        ),
        tool::<params::Procs>(
            "sandbox_procs",
            "Look after commands",
            "Lists the commands that run in a box (`mine`: this conversation began it; `cpu`: how many CPUs it keeps busy just now), waits for the end of one or until \
             a server is up (`readyPort`, `readyLog`), or stops one with everything it started. `wait` answers with the \
             end of its output, also while it still runs (`running`).",
            Hints::Destroys,
            |app, asking, args| Box::pin(procs(app, asking, args)),
        ),
        tool::<params::Build>(
            "sandbox_build",
            "Build, or reuse a build",
            "Runs a build step in a folder of a box, or, when the content of the folder, the command, its variables and \
             the tools are as in an earlier build of this account, puts in place what that made (`reused`), in whichever \
             box that was. `out` names everything the command makes; what it changes besides is not kept.",
            Hints::Destroys,
            |app, asking, args| Box::pin(keep::build(app, asking, args)),
        ),
        tool::<params::Get>(
            "sandbox_get",
            "Get files out",
            "Gives an address for a file or a folder (as a tar.gz with the folder on top) of a box, at which anybody can \
             download it for an hour. Small images are in the result, too, to be looked at. Wakes a frozen box.",
            Hints::Reads,
            |app, asking, args| Box::pin(files::get(app, asking, args)),
        ),
        tool::<params::Sync>(
            "sandbox_sync",
            "Send local files",
            "Sends a folder or file of your machine into a box, only what differs, and by git's rules in a git tree: \
             tracked files and new ones that are not ignored. Files you deleted stay in the box unless you `prune`.",
            Hints::Destroys,
            |_, _, _| Box::pin(files::needs_the_adapter("sandbox_sync")),
        ),
        tool::<params::Pull>(
            "sandbox_pull",
            "Fetch files",
            "Fetches a file or a folder of a box to your machine.",
            Hints::Destroys,
            |_, _, _| Box::pin(files::needs_the_adapter("sandbox_pull")),
        ),
        tool::<params::Wire>(
            "sandbox_wire",
            "Say where a name leads",
            "Makes `name:port` in a box lead to the box's own program (mode `box`), to a server elsewhere (mode `external`, \
             plain HTTP in the box whatever it is there), to another box (`fromBox`), or to a published version (`version`), which is \
             started in a box of its own and ends when the name leads elsewhere; programs may run already. While a name \
             leads elsewhere, its port in the box is taken: switch it to `box` before your own program listens there. \
             Connections that were open before a freeze are closed after it: programs have to connect again. Gives the whole \
             table. Wakes a frozen box.",
            Hints::Destroys,
            |app, asking, args| Box::pin(wiring::wire(app, asking, args)),
        ),
        tool::<params::Scene>(
            "sandbox_scene",
            "Choose what people see first",
            "Chooses what `sceneUrl` leads to: one of the box's services, or a page. Without it that is the first service. \
             Wakes a frozen box.",
            Hints::Adds,
            |app, asking, args| Box::pin(wiring::scene(app, asking, args)),
        ),
        tool::<params::Secrets>(
            "sandbox_secrets",
            "Use secrets",
            "Without arguments: lists the names of the account's secrets, which a person sets; values are never shown. \
             With `id` and `names`: gives them to a box, as variables of every later command. Do not print them.",
            Hints::Adds,
            |app, asking, args| Box::pin(keep::secrets(app, asking, args)),
        ),
        tool::<params::Status>(
            "sandbox_status",
            "Look at a box",
            "Everything about one box: state, goal, the last steps, what runs in it, what takes up room, what keeps it \
             awake, when it freezes and when it is stopped for good, and the rules that decided so. Wakes nothing and is \
             no use.",
            Hints::Adds,
            |app, asking, args| Box::pin(status(app, asking, args)),
        ),
        tool::<params::List>(
            "sandbox_list",
            "List boxes",
            "The account's boxes, most recently used first. `agent.thisConversation` marks yours; any other may be \
             taken over by using it when its `agent.state` is `left` or `idle`. Wakes nothing and is no use.",
            Hints::Reads,
            |app, asking, args| Box::pin(list(app, asking, args)),
        ),
        tool::<params::Say>(
            "sandbox_say",
            "Tell the person something",
            "Shows one or two sentences to the person who watches a box. There is no answer here; what they write comes \
             as `fromHuman` with a later result. Wakes nothing and is no use.",
            Hints::Adds,
            |app, asking, args| Box::pin(keep::say(app, asking, args)),
        ),
        tool::<params::OfBox>(
            "sandbox_freeze",
            "Freeze a box",
            "Freezes a box now instead of when it has been idle: its memory goes to disk, its programs stand still until \
             the next call wakes it. Fails while something uses it.",
            Hints::Adds,
            |app, asking, args| Box::pin(freeze(app, asking, args)),
        ),
        tool::<params::Wake>(
            "sandbox_wake",
            "Wake a box",
            "Wakes a frozen box. Other calls do that by themselves; this one only saves their wait.",
            Hints::Adds,
            |app, asking, args| Box::pin(wake(app, asking, args)),
        ),
        tool::<params::Fork>(
            "sandbox_fork",
            "Fork a box",
            "Makes new boxes that go on from where this one is, with copies of its files and running programs: to try \
             several ways without setting up anew. The box itself runs on; what happens in one does not show in another. \
             Each fork is a box of its own: stop the ones you do not need.",
            Hints::Adds,
            |app, asking, args| Box::pin(fork(app, asking, args)),
        ),
        tool::<params::OfBox>(
            "sandbox_stop",
            "Stop a box for good",
            "Ends a box for good: its programs and its files are gone and cannot be brought back. Get what you need out \
             of it first.",
            Hints::Destroys,
            |app, asking, args| Box::pin(stop(app, asking, args)),
        ),
        tool::<params::PublishVersion>(
            "sandbox_publish_version",
            "Publish a version",
            "Keeps a version of a service under a label, for `sandbox_wire` and `sandbox_start` to run: a box as it is now \
             (`fromBox`), or a snapshot (`image`). A label means the same for ever: publishing it again as something else fails.",
            Hints::Destroys,
            |app, asking, args| Box::pin(keep::publish_version(app, asking, args)),
        ),
        tool::<params::Versions>(
            "sandbox_versions",
            "List versions",
            "The account's published versions, or those of one service, newest first.",
            Hints::Reads,
            |app, asking, args| Box::pin(keep::versions(app, asking, args)),
        ),
        tool::<params::Nothing>(
            "sandbox_environments",
            "List environments",
            "The account's environments: settings of services (their names only), which a box started with `environment` \
             has as variables for the services it declares, and what such a box reaches by name in networks of the operator's \
             (`connections`). People change them over REST.",
            Hints::Reads,
            |app, asking, args| Box::pin(keep::environments(app, asking, args)),
        ),
        tool::<logs::Search>(
            "logs_search",
            "Search application logs",
            "What the pages and programs of a project logged, oldest first: console lines, errors, rejections, events of \
             their own. `query` is a plain term, or a filter pattern as in `{ $.level = \"error\" && $.url = \"*/cart\" }`. \
             Pages may be short, even empty: go on while there is a `nextCursor`. Wakes nothing.",
            Hints::Reads,
            |app, asking, args| Box::pin(logs::search(app, asking, args)),
        ),
        tool::<logs::Errors>(
            "logs_errors",
            "List application errors",
            "The errors that the pages and programs of a project met, oldest first. `stackResolved` names the original file \
             and line where the release's source maps were uploaded before the error came. Wakes nothing.",
            Hints::Reads,
            |app, asking, args| Box::pin(logs::errors(app, asking, args)),
        ),
        tool::<logs::Tail>(
            "logs_tail",
            "Follow application logs",
            "What a project logs from now on: call it, do what you want to watch, then call it again with the `cursor` it \
             gave. Waits up to `waitSec` for the first row. Wakes nothing.",
            Hints::Reads,
            |app, asking, args| Box::pin(logs::tail(app, asking, args)),
        ),
        tool::<params::Feedback>(
            "sandbox_feedback",
            "Tell the operator what to improve",
            "Tells whoever runs this server how working with boxes went: what you did, what went wrong, what would help.",
            Hints::Destroys,
            |app, asking, args| Box::pin(keep::feedback(app, asking, args)),
        ),
    ]
});

/// The tool of that name.
pub(super) fn find(name: &str) -> Option<&'static Tool> {
    TOOLS.iter().find(|tool| tool.listed.name == name)
}

fn tool<T: JsonSchema>(
    name: &'static str,
    title: &'static str,
    description: &'static str,
    hints: Hints,
    run: Run,
) -> Tool {
    let hints = match hints {
        Hints::Reads => ToolAnnotations::with_title(title).read_only(true),
        Hints::Adds => ToolAnnotations::with_title(title)
            .read_only(false)
            .destructive(false),
        Hints::Destroys => ToolAnnotations::with_title(title)
            .read_only(false)
            .destructive(true),
    };
    let listed = Listed::new(name, description, schema::<T>())
        .with_title(title)
        .with_annotations(hints.open_world(false));
    Tool { listed, run }
}

async fn start(app: &App, Asking { caller, .. }: &Asking, args: JsonObject) -> Outcome {
    let args: params::Start = arguments(args)?;
    if args.goal.trim().is_empty() {
        let text = "`goal` is required: one sentence that says what the box is for";
        return Err(Trouble::new(Kind::BadRequest, text).with("field", "goal"));
    }
    let view = app.commands.start(caller, args.into_rest()).await?;
    fields(shown(app.show(caller, &view)))
}

async fn exec(app: &App, Asking { caller, .. }: &Asking, args: JsonObject) -> Outcome {
    let args: params::Exec = arguments(args)?;
    if args.note.trim().is_empty() {
        let text = "`note` is required: one sentence that says why the command is run";
        return Err(Trouble::new(Kind::BadRequest, text).with("field", "note"));
    }
    let id = args.id.clone();
    let done = app.commands.exec(caller, &id, args.into_rest()).await?;
    fields(done)
}

async fn procs(app: &App, Asking { caller, .. }: &Asking, args: JsonObject) -> Outcome {
    let args: params::Procs = arguments(args)?;
    if args.wait_sec.is_some_and(|sec| sec > WAIT_MAX_SEC) {
        return Err(unfit("waitSec"));
    }
    if args.grace_sec.is_some_and(|sec| sec > GRACE_MAX_SEC) {
        return Err(unfit("graceSec"));
    }
    let seconds = |sec: u32| Duration::from_secs(u64::from(sec));
    match args.action {
        params::ProcsAction::List => list_procs(app, caller, args).await,
        params::ProcsAction::Wait => {
            let wait = args.wait_sec.map_or(WAIT, seconds);
            let exec_id = required(args.bg_id.as_deref())?;
            let when = Readiness::of(args.ready_port, args.ready_log.as_deref())?;
            let until = args.until.map(|until| match until {
                params::Until::End => "end",
                params::Until::Ready => "ready",
            });
            match crate::api::procs::until(until, when)? {
                None => {
                    let ended = app.commands.wait_proc(caller, &args.id, exec_id, wait);
                    with_bg_id(ended.await?)
                }
                Some(when) => {
                    let up = app
                        .commands
                        .wait_ready(caller, &args.id, exec_id, &when, wait);
                    with_bg_id(up.await?)
                }
            }
        }
        params::ProcsAction::Stop => {
            let exec_id = required(args.bg_id.as_deref())?;
            let grace = args.grace_sec.map(seconds);
            let stopped = app.commands.stop_proc(caller, &args.id, exec_id, grace);
            with_bg_id(stopped.await?)
        }
    }
}

/// The commands of a box: those that run, all that are known, or one.
async fn list_procs(app: &App, caller: &Caller, args: params::Procs) -> Outcome {
    let procs = match args.bg_id.as_deref() {
        Some(bg_id) => vec![one_proc(app, caller, &args.id, bg_id).await?],
        None => {
            let mut procs = app.commands.procs(caller, &args.id).await?;
            if args.all != Some(true) {
                procs.retain(|proc| proc.running);
            }
            let procs = procs.into_iter().map(with_bg_id);
            procs.collect::<Result<_, _>>()?
        }
    };
    let whose = |mut proc: JsonObject| {
        let id = proc.get("execId").and_then(Value::as_str);
        let own = |id| app.commands.is_own_command(caller, &args.id, id);
        if id.is_some_and(own) {
            proc.insert("mine".to_owned(), true.into());
        }
        Value::Object(proc)
    };
    let procs: Vec<Value> = procs.into_iter().map(whose).collect();
    Ok(JsonObject::from_iter([("procs".to_owned(), procs.into())]))
}

/// One command of a list; with what its call answered, when that waited for its end.
async fn one_proc(app: &App, caller: &Caller, id: &str, bg_id: &str) -> Outcome {
    let bg_id = required(Some(bg_id))?;
    let found = app.commands.wait_proc(caller, id, bg_id, Duration::ZERO);
    let found = found.await?;
    let mut shown = with_bg_id(&found.proc)?;
    if found.proc.running {
        // What it uses is measured for all at once.
        let procs = app.commands.procs(caller, id).await?;
        let measured = procs.iter().find(|proc| proc.exec_id == found.proc.exec_id);
        let cpu = measured.and_then(|proc| proc.cpu);
        shown.extend(cpu.map(|cpu| ("cpu".to_owned(), cpu.into())));
    }
    if !found.proc.background && !found.proc.running && !found.proc.recorded {
        shown.insert("result".to_owned(), Value::Object(fields(&found)?));
    }
    Ok(shown)
}

/// The id of a command, which `list` does without.
fn required(bg_id: Option<&str>) -> Result<&str, Trouble> {
    match bg_id {
        None => {
            let what = takes("bgId").unwrap_or_default();
            let text = format!("`bgId` is required with this action: {what}");
            Err(Trouble::new(Kind::BadRequest, text).with("field", "bgId"))
        }
        Some(id) if is_exec_id(id) => Ok(id),
        Some(id) => Err(Trouble::new(
            Kind::NotFound,
            format!("bgId not found: `{}` is no id of a command", cut(id, 64)),
        )),
    }
}

async fn status(app: &App, Asking { caller, .. }: &Asking, args: JsonObject) -> Outcome {
    let args: params::Status = arguments(args)?;
    let found = app.commands.look(caller, &args.id).await?;
    let some = args.fields.map(|some| some.join(","));
    let whole = app.look(caller, &found, some.as_deref()).await?;
    match some {
        Some(some) => fields(SomeFields::of(whole, &some)?),
        None => fields(whole),
    }
}

async fn list(app: &App, Asking { caller, .. }: &Asking, args: JsonObject) -> Outcome {
    let args: params::List = arguments(args)?;
    app.commands.engine().settled().await;
    let views = app.commands.engine().views();
    let all = args.all.unwrap_or(false);
    let page = views.list(caller.account, all, None, LISTED);
    fields(ListResponse {
        boxes: page.iter().map(|view| app.show(caller, view)).collect(),
        ..ListResponse::default()
    })
}

async fn freeze(app: &App, Asking { caller, .. }: &Asking, args: JsonObject) -> Outcome {
    let args: params::OfBox = arguments(args)?;
    let view = app.commands.freeze(caller, &args.id).await?;
    fields(shown(app.show(caller, &view)))
}

async fn wake(app: &App, Asking { caller, .. }: &Asking, args: JsonObject) -> Outcome {
    let args: params::Wake = arguments(args)?;
    let request = icebox_wire::rest::WakeRequest {
        cold_restart: args.cold_restart.unwrap_or(false),
        wait_for_capacity_sec: args.wait_for_capacity_sec,
    };
    let view = app.commands.wake(caller, &args.id, &request).await?;
    fields(shown(app.show(caller, &view)))
}

async fn fork(app: &App, Asking { caller, .. }: &Asking, args: JsonObject) -> Outcome {
    let args: params::Fork = arguments(args)?;
    let request = icebox_wire::rest::ForkRequest {
        count: args.count,
        name: args.name,
    };
    fields(app.fork(caller, &args.id, request).await?)
}

async fn stop(app: &App, Asking { caller, .. }: &Asking, args: JsonObject) -> Outcome {
    let args: params::OfBox = arguments(args)?;
    let view = app.commands.stop(caller, &args.id).await?;
    fields(shown(app.show(caller, &view)))
}

/// The fields of a result. What has to be known besides goes under it as lines of its own.
pub(super) fn fields(result: impl Serialize) -> Outcome {
    match serde_json::to_value(result) {
        Ok(Value::Object(mut fields)) => {
            fields.remove("notices");
            Ok(fields)
        }
        Ok(_) => Err(Trouble::internal(&"a result is no JSON object")),
        Err(error) => Err(Trouble::internal(&error)),
    }
}
