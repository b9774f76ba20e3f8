//! What each tool takes: the types that a client's arguments are read into and that its input schemas are made from.
//! Owns the words that teach an agent each argument; limits are checked where every dialect's are.

mod egress;

mod wiring;

use std::collections::BTreeMap;

use icebox_wire::rest;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;

use egress::Egress;

pub(super) use wiring::{Scene, Wire};

/// A tool that takes the id of a box and nothing else.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct OfBox {
    /// The box.
    pub(super) id: String,
}

/// A tool that takes nothing.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Nothing {}

/// `sandbox_start`.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Start {
    /// What the box is for, in one sentence for the person and for whoever picks it up later.
    #[schemars(length(max = 500))]
    pub(super) goal: String,
    /// A short name for people.
    #[schemars(length(min = 1, max = 60))]
    pub(super) name: Option<String>,
    /// Variables for every command in the box.
    pub(super) env: Option<BTreeMap<String, String>>,
    /// Names of the account's secrets, as variables of every command in the box; see `sandbox_secrets`.
    #[schemars(length(max = 100))]
    pub(super) secrets: Option<Vec<String>>,
    /// The environment it is in: what `sandbox_environments` says of the services declared here become variables.
    pub(super) environment: Option<String>,
    /// Ports that get a name: programs in the box reach `name:port`, people the URL of the same name.
    #[schemars(length(max = 32))]
    pub(super) services: Option<Vec<Service>>,
    /// All services declared here lead to this address at first: `https://`, a host, perhaps a path. Take one over with
    /// `sandbox_wire`, mode `box`, once your own runs.
    pub(super) external_base_url: Option<String>,
    /// How large; leave it out for the usual size.
    pub(super) size: Option<Size>,
    /// The image; `host` is the only one so far.
    pub(super) image: Option<String>,
    /// Stop the box for good after this many minutes without use, frozen or not. Without it: 24 h after it froze.
    #[schemars(range(min = 1, max = 10_080))]
    pub(super) idle_timeout_min: Option<u32>,
    /// `agent` (the default), `router`, `task`, or an object of single fields such as `freezeAfterSec`.
    #[serde(default)]
    #[schemars(schema_with = "policy")]
    pub(super) policy: Option<rest::PolicyRequest>,
    /// How long to wait for room when the host is full; 0 fails at once.
    #[schemars(range(max = 1_800))]
    pub(super) wait_for_capacity_sec: Option<u32>,
    /// Its URLs need a signed link, not only its unguessable name.
    pub(super) private: Option<bool>,
    /// What it may reach outside; leave it out for what is usual, which is the internet unless the server is set otherwise.
    pub(super) egress: Option<Egress>,
    /// The id of a box that the rules stopped: brings that one back as it was, programs included. Give `goal` with it.
    pub(super) restore: Option<String>,
    /// Words of your own, given back with the box.
    pub(super) metadata: Option<BTreeMap<String, String>>,
}

/// A named port.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Service {
    /// Lowercase letters and digits, a letter first.
    #[schemars(length(min = 1, max = 40))]
    name: String,
    /// Its port in the box.
    #[schemars(range(min = 1))]
    port: u16,
    /// Whether people open it in a browser.
    #[serde(default)]
    web: bool,
    /// Where its program really listens, or the port in `fromBox`, if that is another one.
    #[schemars(range(min = 1))]
    target_port: Option<u16>,
    /// Another box of the account: the name leads to a port there.
    from_box: Option<String>,
    /// A published version of this service, by label or id: it runs in a box of its own, to which the name leads.
    version: Option<String>,
}

/// A size.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Size {
    #[schemars(range(min = 0.1))]
    cpus: Option<f64>,
    #[schemars(range(min = 64))]
    memory_mb: Option<u64>,
    #[schemars(range(min = 1))]
    disk_gb: Option<u64>,
}

/// `sandbox_exec`.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Exec {
    /// The box.
    pub(super) id: String,
    /// The command, for bash.
    #[schemars(length(min = 1, max = 131_072))]
    pub(super) cmd: String,
    /// One sentence for the person watching, in their language: why you run this.
    #[schemars(length(max = 200))]
    pub(super) note: String,
    /// Where it runs, relative to `/work`, which is the default.
    pub(super) cwd: Option<String>,
    /// More variables for this command.
    pub(super) env: Option<BTreeMap<String, String>>,
    /// Its deadline: 600 unless you say otherwise; then it is ended and `timedOut` is true. Background commands have
    /// none unless you give one.
    #[schemars(range(min = 1, max = 3_600))]
    pub(super) timeout_sec: Option<u32>,
    /// Answer at once with a `bgId` and let it run: servers, watchers, everything long. See `sandbox_procs`.
    pub(super) background: Option<bool>,
    /// It changes nothing: allowed while a person has the screen.
    pub(super) read_only: Option<bool>,
    /// What it reads from standard input; empty when left out.
    #[schemars(length(max = 1_048_576))]
    pub(super) stdin: Option<String>,
    /// With `background`: answer once this port in the box takes connections, or with an error when it ends first.
    #[schemars(range(min = 1, max = 65_535))]
    pub(super) ready_port: Option<u16>,
    /// With `background`: answer once a line of its output holds this text. With `readyPort`, both have to hold.
    #[schemars(length(min = 1, max = 1_000))]
    pub(super) ready_log: Option<String>,
    /// How long to wait for that; 60 unless you say otherwise. Then `ready` is false and it runs on.
    #[schemars(range(min = 1, max = 300))]
    pub(super) ready_sec: Option<u32>,
    /// 16 lowercase hex digits of your choice: repeating a call with the same id never runs it twice, it answers with the
    /// first run's result.
    #[schemars(regex(pattern = r"^[0-9a-f]{16}$"))]
    pub(super) exec_id: Option<String>,
    /// How long to wait for room when the box is frozen and the host is full; 30 unless you say otherwise.
    #[schemars(range(max = 1_800))]
    pub(super) wait_for_capacity_sec: Option<u32>,
}

/// `sandbox_procs`.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Procs {
    /// The box.
    pub(super) id: String,
    /// `list` (the default), `wait` for one to end, or `stop` one.
    #[serde(default)]
    pub(super) action: ProcsAction,
    /// Which command: the `bgId` or `execId` of its `sandbox_exec`. Required by `wait` and `stop`.
    pub(super) bg_id: Option<String>,
    /// `list`: also those that ended.
    pub(super) all: Option<bool>,
    /// `wait`: how long at most; 60 unless you say otherwise.
    #[schemars(range(max = 300))]
    pub(super) wait_sec: Option<u32>,
    /// `wait`: for its `end` (the default), or until it is `ready`.
    pub(super) until: Option<Until>,
    /// `wait`: it is ready when this port in the box takes connections.
    #[schemars(range(min = 1, max = 65_535))]
    pub(super) ready_port: Option<u16>,
    /// `wait`: it is ready when a line of its output holds this text. With `readyPort`, both have to hold.
    #[schemars(length(min = 1, max = 1_000))]
    pub(super) ready_log: Option<String>,
    /// `stop`: how long it may take to end by itself before it is killed.
    #[schemars(range(max = 60))]
    pub(super) grace_sec: Option<u32>,
}

/// What `sandbox_procs` does.
#[derive(Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum ProcsAction {
    #[default]
    List,
    Wait,
    Stop,
}

/// What `sandbox_procs` waits for.
#[derive(Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum Until {
    End,
    Ready,
}

/// `sandbox_build`.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Build {
    /// The box.
    pub(super) id: String,
    /// The folder it is built in: relative to `/work`, or absolute below it. Its whole content is compared.
    #[schemars(length(min = 1, max = 1_000))]
    pub(super) dir: String,
    /// The command, for bash.
    #[schemars(length(min = 1, max = 131_072))]
    pub(super) cmd: String,
    /// Everything it makes: paths relative to `dir`.
    #[schemars(length(min = 1, max = 20))]
    pub(super) out: Vec<String>,
    /// One sentence for the person watching, in their language: why you build this.
    #[schemars(length(max = 200))]
    pub(super) note: String,
    /// More variables for this command; they are compared, too.
    pub(super) env: Option<BTreeMap<String, String>>,
    /// Its deadline: 600 unless you say otherwise.
    #[schemars(range(min = 1, max = 3_600))]
    pub(super) timeout_sec: Option<u32>,
}

/// `sandbox_secrets`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Secrets {
    /// The box that is given some; leave it out to list the names of all.
    pub(super) id: Option<String>,
    /// Which ones.
    #[schemars(length(min = 1, max = 100))]
    pub(super) names: Option<Vec<String>>,
}

/// `sandbox_versions`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Versions {
    /// Only those of this service.
    #[schemars(length(min = 1, max = 40))]
    pub(super) service: Option<String>,
}

/// `sandbox_publish_version`.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct PublishVersion {
    /// The service.
    #[schemars(length(min = 1, max = 40))]
    pub(super) service: String,
    /// The version's name, new among those of the service.
    #[schemars(length(min = 1, max = 100))]
    pub(super) label: String,
    /// What it runs from: `snapshot:` and the id or name of a snapshot. Give this or `fromBox`.
    #[schemars(length(min = 1, max = 500))]
    pub(super) image: Option<String>,
    /// A box to keep as it is now, with what runs in it: the version goes on from there.
    pub(super) from_box: Option<String>,
    /// The command that starts it, for bash in `/work`. With it only the files are kept, and `env` can be given when it is wired;
    /// without it what runs now goes on.
    #[schemars(length(min = 1, max = 131_072))]
    pub(super) cmd: Option<String>,
    /// Why it is published.
    #[schemars(length(max = 200))]
    pub(super) note: Option<String>,
    /// The commit it was built from.
    #[schemars(length(min = 7, max = 64))]
    pub(super) git_sha: Option<String>,
}

/// `sandbox_say`.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Say {
    /// The box.
    pub(super) id: String,
    /// One or two sentences, in the person's language.
    #[schemars(length(min = 1, max = 500))]
    pub(super) text: String,
    /// 16 lowercase hex digits of your choice: a repeat with the same ones is not shown again.
    #[schemars(regex(pattern = r"^[0-9a-f]{16}$"))]
    pub(super) say_id: Option<String>,
}

/// `sandbox_feedback`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Feedback {
    /// What you were doing.
    #[schemars(length(max = 4_000))]
    pub(super) task: String,
    /// How you used boxes for it.
    #[schemars(length(max = 4_000))]
    pub(super) usage: String,
    /// What went wrong.
    #[schemars(length(max = 4_000))]
    pub(super) problems: String,
    /// What would have helped.
    #[schemars(length(max = 4_000))]
    pub(super) suggestions: String,
    /// The box it is about, if it is about one.
    pub(super) id: Option<String>,
}

/// `sandbox_get`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Get {
    /// The box.
    pub(super) id: String,
    /// A file or a folder: relative to `/work`, or absolute below `/work`, `/tmp` or `/dev/shm`. Give this or `paths`.
    #[schemars(length(min = 1, max = 4_096))]
    pub(super) path: Option<String>,
    /// Several of them.
    #[schemars(length(min = 1, max = 100))]
    pub(super) paths: Option<Vec<String>>,
}

/// `sandbox_sync`, which the adapter answers: the schema is all there is of it here.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[expect(
    dead_code,
    reason = "only the schema is used: the arguments mean nothing without the caller's disk"
)]
pub(super) struct Sync {
    /// The box.
    id: String,
    /// The folder or file on your machine.
    local_path: String,
    /// Where it goes, relative to `/work`.
    dest: String,
    /// Send this commit's files instead of what is on disk.
    commit: Option<String>,
    /// With `commit`: these paths from disk on top. Without: only these.
    also_paths: Option<Vec<String>>,
    /// Send what `.gitignore` leaves out, too (never `.git`).
    include_ignored: Option<bool>,
    /// Globs of what is neither sent nor deleted. Without a slash they fit at any depth.
    exclude: Option<Vec<String>>,
    /// Delete files in the box that are not in your tree.
    prune: Option<bool>,
    /// With `commit`: the files of initialised submodules, too, at the commits it records.
    submodules: Option<bool>,
    /// Also send this commit, to `<dest>-baseline`, to compare with.
    baseline: Option<String>,
    /// Link the packages in `node_modules` of `dest` into the baseline (the default).
    baseline_deps: Option<bool>,
    /// Only say what would be sent.
    dry_run: Option<bool>,
    /// Refuse to send more than this; 100 unless you say otherwise.
    #[serde(rename = "maxMB")]
    #[schemars(range(min = 1, max = 8_192))]
    max_mb: Option<u32>,
}

/// `sandbox_pull`, which the adapter answers.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[expect(
    dead_code,
    reason = "only the schema is used: the arguments mean nothing without the caller's disk"
)]
pub(super) struct Pull {
    /// The box.
    id: String,
    /// The file or folder in the box, as for `sandbox_get`.
    path: String,
    /// Where it goes on your machine. What is in a folder lands directly in it.
    local_path: String,
    /// Unpack a folder (the default) or keep its archive.
    extract: Option<bool>,
    /// Replace the target instead of merging into it.
    clean: Option<bool>,
}

/// `sandbox_status`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Status {
    /// The box.
    pub(super) id: String,
    /// Only these fields (`id` and `status` come anyway), to keep the answer short.
    #[schemars(length(max = 64))]
    pub(super) fields: Option<Vec<String>>,
}

/// `sandbox_list`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct List {
    /// Also boxes that were stopped in the last 7 days.
    pub(super) all: Option<bool>,
}

/// `sandbox_wake`.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Wake {
    /// The box.
    pub(super) id: String,
    /// Give its memory up and begin anew with its files: only when it cannot be woken otherwise.
    pub(super) cold_restart: Option<bool>,
    /// How long to wait for room when the box is frozen and the host is full; 30 unless you say otherwise.
    #[schemars(range(max = 1_800))]
    pub(super) wait_for_capacity_sec: Option<u32>,
}

/// `sandbox_fork`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Fork {
    /// The box to fork.
    pub(super) id: String,
    /// How many new boxes; 1 unless you say otherwise.
    #[schemars(range(min = 1, max = 20))]
    pub(super) count: Option<u32>,
    /// A name for people; several get a number behind it.
    #[schemars(length(min = 1, max = 60))]
    pub(super) name: Option<String>,
}

impl Start {
    pub(super) fn into_rest(self) -> rest::StartRequest {
        let services = self.services.unwrap_or_default();
        rest::StartRequest {
            goal: Some(self.goal),
            name: self.name,
            image: self.image,
            size: self.size.map(|size| rest::SizeRequest {
                cpus: size.cpus,
                memory_mb: size.memory_mb,
                disk_gb: size.disk_gb,
            }),
            env: self.env.unwrap_or_default(),
            services: services.into_iter().map(Service::into_rest).collect(),
            external_base_url: self.external_base_url,
            secrets: self.secrets.unwrap_or_default(),
            environment: self.environment,
            idle_timeout_min: self.idle_timeout_min,
            policy: self.policy,
            wait_for_capacity_sec: self.wait_for_capacity_sec,
            snapshot: None,
            memory: None,
            restore: self.restore,
            metadata: self.metadata.unwrap_or_default(),
            wait: None,
            private: self.private,
            egress: self.egress.map(Egress::into_rest),
        }
    }
}

impl Service {
    fn into_rest(self) -> rest::ServiceRequest {
        rest::ServiceRequest {
            name: self.name,
            port: self.port,
            web: self.web,
            target_port: self.target_port,
            from_box: self.from_box,
            version: self.version,
        }
    }
}

impl Exec {
    pub(super) fn into_rest(self) -> rest::ExecRequest {
        rest::ExecRequest {
            cmd: self.cmd,
            cwd: self.cwd,
            env: self.env.unwrap_or_default(),
            timeout_sec: self.timeout_sec,
            background: self.background.unwrap_or(false),
            read_only: self.read_only.unwrap_or(false),
            stdin: self.stdin,
            note: Some(self.note),
            ready_port: self.ready_port,
            ready_log: self.ready_log,
            ready_sec: self.ready_sec,
            exec_id: self.exec_id,
            wait_for_capacity_sec: self.wait_for_capacity_sec,
        }
    }
}

/// A policy is a name or an object; its fields are checked, and named, when it is read.
fn policy(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "description": "`agent` (the default), `router`, `task`, or an object of single fields: preset, freezeAfterSec, \
                        keeps, stopFrozenAfterSec, restorableSec, lifetimeSec, atEnd, backgroundHoldSec, urlHoldSec, \
                        recordingHoldSec",
        "type": ["string", "object"],
    })
}
