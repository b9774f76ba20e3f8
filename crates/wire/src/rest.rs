//! The boxes dialect of REST: what clients send and what the server answers, field by field.
//!
//! Owns names, spelling (camelCase) and which fields may be absent. Deliberately knows no limits of a host, no status
//! codes and no lifecycle: the server checks values and translates by hand, so that either side may change.
//!
//! Requests refuse unknown fields; answers tolerate them, since a newer server may say more.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

/// The header that carries the id of a conversation (rule 7.1).
pub const AGENT_HEADER: &str = "x-psbx-agent";

/// The header of a client of MCP that says when a person's messages arrived, and drops what comes twice.
pub const CONFIRMS_HEADER: &str = "x-icebox-confirms";

/// The header of an output answer that says at which offset of the stream its body begins.
pub const OUTPUT_OFFSET_HEADER: &str = "x-icebox-offset";

/// The header of an output answer that says which bytes its body leaves out, as `from-to`: the one before the gap is
/// followed by the one at `to`. Absent when none is left out.
pub const OUTPUT_GAP_HEADER: &str = "x-icebox-gap";

/// Body of `POST /v1/boxes`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct StartRequest {
    /// What the box is for; at most 500 characters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub goal: Option<String>,
    /// A name for people; at most 60 characters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The image; `host` when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// How large; the server's defaults when absent.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "object")]
    pub size: Option<SizeRequest>,
    /// Variables for every command in the box.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Named ports.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub services: Vec<ServiceRequest>,
    /// Where every service declared here leads, but for links: `http://` or `https://`, a host, and perhaps a path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub external_base_url: Option<String>,
    /// Only who has a signed link may look at the box's URLs (rule 8.8); anybody who has one when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub private: Option<bool>,
    /// What it may reach outside; what is usual on the server, or what its snapshot could, when absent.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "object")]
    pub egress: Option<EgressRequest>,
    /// The environment it is in: what that says of the services declared here become variables.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub environment: Option<String>,
    /// Names of secrets to hand in.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<String>,
    /// The box's own idle limit in minutes, 1 to 10080 (rule 6.2).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_timeout_min: Option<u32>,
    /// A preset by name, or single fields (rules, section 1).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<PolicyRequest>,
    /// How long to wait for room on the host, in seconds, 0 to 1800; not at all when absent (rule 14.1).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait_for_capacity_sec: Option<u32>,
    /// Begin as this snapshot, by its id or name, instead of as the image.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<String>,
    /// `false`: boot on the files of a snapshot that has memory as well. With the memory when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<bool>,
    /// Bring back this stopped box instead of making a new one (rule 6.5).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restore: Option<String>,
    /// Free words of the caller, given back in every view.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, String>,
    /// `false`: answer at once, with a box that is still `starting`. Waits when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait: Option<bool>,
}

/// A size that is asked for; absent parts take the server's defaults.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct SizeRequest {
    /// CPUs; parts of one are allowed (`0.5`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus: Option<f64>,
    /// Memory in MiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_mb: Option<u64>,
    /// Disk in GiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk_gb: Option<u64>,
}

/// A named port of a box.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ServiceRequest {
    /// The name its URL begins with, and by which programs in the box reach it.
    pub name: String,
    /// The port inside the box.
    pub port: u16,
    /// Whether people open it in a browser.
    #[serde(default)]
    pub web: bool,
    /// Where the program really listens, or the port in the box of `fromBox`; the same port when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_port: Option<u16>,
    /// The id of another box of the account: the name leads there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_box: Option<String>,
    /// A published version of the service, by its label or id: it runs in a box of its own, to which the name leads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
}

/// `policy` in a request: the name of a preset, or fields to change.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum PolicyRequest {
    /// `agent`, `router` or `task`.
    Preset(String),
    /// Single fields; the others stay as they are (for a new box: as in the preset).
    Fields(PolicyFields),
}

/// Single fields of a policy. `null` means "never" or "none" where that is possible.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct PolicyFields {
    /// The preset that the other fields start from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preset: Option<String>,
    /// Freeze after this long without activity, in seconds; `null`: never (rule 4.1).
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "given")]
    pub freeze_after_sec: Option<Option<u32>>,
    /// `files` or `files_and_memory`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keeps: Option<Keeps>,
    /// A frozen box stops for good after this long, in seconds; `null`: never (rule 6.1).
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "given")]
    pub stop_frozen_after_sec: Option<Option<u32>>,
    /// How long the copy of a box stopped by a rule is kept, in seconds (rule 6.5).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restorable_sec: Option<u32>,
    /// How long the box may be up, in seconds; `null`: without limit (rule 12.4).
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "given")]
    pub lifetime_sec: Option<Option<u32>>,
    /// What happens at the end of the lifetime: `destroy` or `pause`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at_end: Option<AtEnd>,
    /// A background command holds until last use plus this, in seconds (rule 4.3).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub background_hold_sec: Option<u32>,
    /// URL requests hold until last use plus this, in seconds (rule 3.4).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url_hold_sec: Option<u32>,
    /// A recording holds until last use plus this, in seconds (rule 4.4).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recording_hold_sec: Option<u32>,
}

/// What a freeze keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Keeps {
    /// Files only.
    Files,
    /// Files and memory.
    FilesAndMemory,
}

/// What happens at the end of a lifetime.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AtEnd {
    /// The box is destroyed.
    Destroy,
    /// The box is frozen.
    Pause,
}

/// Body of `PATCH /v1/boxes/{id}`; an absent field stays, `null` clears it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct PatchRequest {
    /// A name for people; at most 60 characters.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "given")]
    pub name: Option<Option<String>>,
    /// What the box is for; at most 500 characters.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "given")]
    pub goal: Option<Option<String>>,
    /// The box's own idle limit in minutes, 1 to 10080 (rule 6.2).
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "given")]
    pub idle_timeout_min: Option<Option<u32>>,
    /// A preset by name, or single fields.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<PolicyRequest>,
    /// Pin against the sleep TTL, or let go (rule 13.5).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep: Option<bool>,
    /// Only who has a signed link may look at the box's URLs (rule 8.8).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub private: Option<bool>,
    /// What it may reach outside from now on; the lists are replaced, too.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "object")]
    pub egress: Option<EgressRequest>,
}

/// Body of `POST /v1/boxes/{id}/wake`; may be left out.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct WakeRequest {
    /// Give the memory up and start the programs anew on the files (rule 5.7).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub cold_restart: bool,
    /// How long to wait for room on a full host, in seconds, 0 to 1800; 30 when absent (rule 5.9).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait_for_capacity_sec: Option<u32>,
}

/// Body of `POST /v1/boxes/{id}/exec`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ExecRequest {
    /// The command, for bash.
    pub cmd: String,
    /// Where it runs, relative to `/work`, which is the default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// More variables.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// The command's deadline in seconds: 600 when absent, at most 3600 (rule 12.1). A background command has none unless it is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_sec: Option<u32>,
    /// Answer at once and let it run (rule 4.3).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub background: bool,
    /// The command changes nothing: allowed while a person has the screen (rule 9.1).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub read_only: bool,
    /// What it reads from standard input; empty when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdin: Option<String>,
    /// Why it is run, for people; at most 200 characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// With `background`: answer once this port in the box takes connections.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_port: Option<u16>,
    /// With `background`: answer once a line of its output holds this text; at most 1000 bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_log: Option<String>,
    /// How long to wait for that, in seconds, 1 to 300; 60 when absent. Then it answers with `ready: false`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_sec: Option<u32>,
    /// 16 hex digits of the client's choice: a repeat answers with the first run's result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exec_id: Option<String>,
    /// How long to wait for room if the box is frozen and the host full, in seconds, 0 to 1800; 30 when absent (rule 5.9).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_for_capacity_sec: Option<u32>,
}

/// Answer to an exec. For a background command only `execId` and `bgId` are there.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExecResponse {
    /// Names the command in `procs` and output calls.
    pub exec_id: String,
    /// The same, for a background command.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bg_id: Option<String>,
    /// Whether it is up, when that was waited for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready: Option<bool>,
    /// Its exit code; absent if it was killed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// The signal that ended it, by name (`SIGKILL`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signal: Option<String>,
    /// Whether its deadline ended it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timed_out: Option<bool>,
    /// Why it ended, when it was not by itself: the box had no memory left.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_reason: Option<String>,
    /// The last 16 KB of its standard output, as text (bytes that are not UTF-8 are replaced).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stdout: Option<String>,
    /// The last 16 KB of its standard error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stderr: Option<String>,
    /// Whether either stream was longer than what is here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub truncated: Option<bool>,
    /// Where the whole output is (a path on this server).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_url: Option<String>,
    /// How long it ran, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ms: Option<u64>,
    /// What the caller has to know besides: boxes that are about to be stopped (rule 6.4).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notices: Vec<String>,
}

/// Answer of `GET /v1/boxes`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ListResponse {
    /// The boxes, most recently used first.
    pub boxes: Vec<BoxView>,
    /// Hand it in as `cursor` for the next page; absent on the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
    /// The server's time as it answered, so that readers can say how far off a moment is; absent on servers that do not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Moment>")]
    pub at: Option<Timestamp>,
    /// The host's places for boxes that are up; absent on servers that do not say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slots: Option<SlotsView>,
    /// What the caller has to know besides: boxes that are about to be stopped (rule 6.4).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notices: Vec<String>,
}

/// `{"error", "code", …}`: every answer that is not a success.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ErrorBody {
    /// A sentence a person can act on.
    pub error: String,
    /// The machine's word for it.
    pub code: String,
    /// What else the code promises (`restorableUntil`, `outcome`, …).
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

/// Body of `POST /v1/test/clock`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AdvanceRequest {
    /// How far to move the server's time forward, in seconds.
    pub advance_sec: u64,
}

/// Answer of both `/v1/test/clock` calls.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ClockResponse {
    /// The server's time.
    #[schemars(with = "Moment")]
    pub now: Timestamp,
}

/// Answer of `GET /v1/host`: what the host can do, and what is on it that no record names.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HostView {
    /// The server's version.
    pub version: String,
    /// The driver's name.
    pub driver: String,
    /// Why memory cannot be written to disk here; absent where it can.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checkpoint_error: Option<String>,
    /// CPUs that boxes may use together.
    pub cpus: u32,
    /// Memory that one box may have at most, in MiB.
    pub memory_mb: u64,
    /// Disk that one box may have at most, in GiB.
    pub disk_gb: u64,
    /// Why boxes reach nothing outside here; absent where they can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub egress_error: Option<String>,
    /// How many boxes there are in each status.
    pub boxes: BTreeMap<String, u64>,
    /// The room there is, who has it and who waits for it; absent on servers that do not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity: Option<CapacityView>,
    /// Boxes the driver has but no record names; they are never removed by themselves.
    pub orphans: Vec<String>,
    /// Outcomes that answered nothing the engine waited for, since the start.
    pub dropped_outcomes: u64,
}

/// Answer of the two `/v1/agents/…` calls.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OkResponse {
    /// Always true.
    pub ok: bool,
}

mod account;
mod capacity;
mod egress;
mod files;
mod inside;
mod keep;
mod link;
mod logs;
mod procs;
mod schema;
mod session;
mod snapshot;
mod view;
mod webhook;
mod wire;
pub use account::*;
pub use capacity::*;
pub use egress::*;
pub use files::*;
pub use inside::*;
pub use keep::*;
pub use link::*;
pub use logs::*;
pub use procs::*;
use schema::Moment;
pub use session::*;
pub use snapshot::*;
pub use view::*;
pub use webhook::*;
pub use wire::*;

/// Reads a field that may be `null`, so that "absent" and "null" stay apart.
fn given<'de, D, T>(deserializer: D) -> Result<Option<Option<T>>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    Option::<T>::deserialize(deserializer).map(Some)
}

/// Reads an object only: serde would take a list, too, and fill the fields in their order.
fn object<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    struct Object<T>(PhantomData<T>);
    impl<'de, T: Deserialize<'de>> Visitor<'de> for Object<T> {
        type Value = Option<T>;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }
        fn visit_unit<E>(self) -> Result<Self::Value, E> {
            Ok(None)
        }
        fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
            T::deserialize(MapAccessDeserializer::new(map)).map(Some)
        }
    }
    deserializer.deserialize_any(Object(PhantomData))
}

impl<'de> Deserialize<'de> for PolicyRequest {
    // By hand, since serde's untagged enums lose which field was wrong.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = PolicyRequest;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(
                    "the name of a preset (agent, router, task) or an object of policy fields",
                )
            }
            fn visit_str<E>(self, name: &str) -> Result<Self::Value, E> {
                Ok(PolicyRequest::Preset(name.to_owned()))
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                PolicyFields::deserialize(MapAccessDeserializer::new(map))
                    .map(PolicyRequest::Fields)
            }
        }
        deserializer.deserialize_any(Either)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn null_and_absent_stay_apart_in_a_patch() {
        let absent: PatchRequest = serde_json::from_str("{}").unwrap();
        let null: PatchRequest = serde_json::from_str(r#"{"idleTimeoutMin":null}"#).unwrap();
        assert_eq!(absent.idle_timeout_min, None);
        assert_eq!(null.idle_timeout_min, Some(None));
        assert_eq!(
            serde_json::to_string(&null).unwrap(),
            r#"{"idleTimeoutMin":null}"#
        );
    }

    #[test]
    fn an_unknown_field_is_refused_by_name_even_inside_a_policy() {
        let top = serde_json::from_str::<StartRequest>(r#"{"gaol":"x"}"#).unwrap_err();
        assert!(top.to_string().contains("unknown field `gaol`"), "{top}");
        let inner = serde_json::from_str::<StartRequest>(r#"{"policy":{"freezeAfter":1}}"#);
        let inner = inner.unwrap_err().to_string();
        assert!(inner.contains("unknown field `freezeAfter`"), "{inner}");
        assert!(inner.contains("freezeAfterSec"), "{inner}");
    }

    #[test]
    fn a_size_is_an_object() {
        let size = |json: &str| serde_json::from_str::<StartRequest>(json);
        let read = size(r#"{"size":{"cpus":0.5}}"#).unwrap().size.unwrap();
        assert_eq!(read.cpus, Some(0.5));
        assert_eq!(size(r#"{"size":null}"#).unwrap().size, None);
        assert!(size(r#"{"size":[1,512,3]}"#).is_err());
    }

    #[test]
    fn a_policy_is_a_name_or_fields() {
        let name: StartRequest = serde_json::from_str(r#"{"policy":"agent"}"#).unwrap();
        assert_eq!(name.policy, Some(PolicyRequest::Preset("agent".into())));
        let fields: StartRequest =
            serde_json::from_str(r#"{"policy":{"freezeAfterSec":null}}"#).unwrap();
        let Some(PolicyRequest::Fields(fields)) = fields.policy else {
            panic!("an object reads as fields");
        };
        assert_eq!(fields.freeze_after_sec, Some(None));
    }

    #[test]
    fn a_status_this_client_does_not_know_reads_as_unknown() {
        let status: Status = serde_json::from_str(r#""hibernating""#).unwrap();
        assert_eq!(status, Status::Unknown);
    }
}
