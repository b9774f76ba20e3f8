//! What a box looks like from outside (api.md section 2). Owns the fields of the view; when each of them is there is
//! decided by the server from the lifecycle's forecasts.

use std::collections::BTreeMap;
use std::fmt;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    ConnectionView, DiskView, EgressView, Keeps, LinkInView, LinkOutView, RunningView, WaitView,
    schema::Moment,
};

/// Where a box is in its life. Readers must tolerate new values (rule 2.3): they read as `unknown`.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the names are the documentation")]
pub enum Status {
    Claimed,
    Starting,
    Ready,
    Takeover,
    Freezing,
    Frozen,
    Thawing,
    Stopping,
    Terminated,
    Interrupted,
    Error,
    #[serde(other)]
    Unknown,
}

impl Status {
    /// The word on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Claimed => "claimed",
            Self::Starting => "starting",
            Self::Ready => "ready",
            Self::Takeover => "takeover",
            Self::Freezing => "freezing",
            Self::Frozen => "frozen",
            Self::Thawing => "thawing",
            Self::Stopping => "stopping",
            Self::Terminated => "terminated",
            Self::Interrupted => "interrupted",
            Self::Error => "error",
            Self::Unknown => "unknown",
        }
    }

    /// Whether the box is live: starting, ready, taken over or frozen, or between two of these (rule 2.7).
    #[must_use]
    pub fn is_live(self) -> bool {
        match self {
            Self::Claimed
            | Self::Starting
            | Self::Ready
            | Self::Takeover
            | Self::Freezing
            | Self::Frozen
            | Self::Thawing => true,
            Self::Stopping | Self::Terminated | Self::Interrupted | Self::Error | Self::Unknown => {
                false
            }
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// A box.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BoxView {
    /// 20 lowercase letters and digits.
    pub id: String,
    /// Where it is in its life.
    pub status: Status,
    /// Its name for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// What it is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub goal: Option<String>,
    /// When it was asked for.
    #[schemars(with = "Moment")]
    pub created_at: Timestamp,
    /// Its last use (rule 3.3).
    #[schemars(with = "Moment")]
    pub last_used_at: Timestamp,
    /// Why it is as it is, where that needs words (rule 2.8).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status_reason: Option<String>,
    /// Its own idle limit in minutes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_timeout_min: Option<u32>,
    /// When the rules stop it for good unless something uses it; absent when they never will (rule 6.3).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Moment>")]
    pub stops_at: Option<Timestamp>,
    /// Until when it can be brought back (rule 6.5).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Moment>")]
    pub restorable_until: Option<Timestamp>,
    /// It is pinned: no rule stops it while it is frozen (rule 13.5).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub keep: bool,
    /// Its place in the queue for room on the host: somebody wants it awake, or back (rule 5.9).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits_for_room: Option<WaitView>,
    /// When it freezes and what holds it awake; only for a ready or taken over box (rule 4.6).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub freeze: Option<FreezeView>,
    /// Where the memory of a frozen box is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tier: Option<Tier>,
    /// What the freeze kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keeps: Option<Keeps>,
    /// Why a frozen box has no copy on disk (rule 4.10).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot_error: Option<String>,
    /// The conversation that uses it; only on a live box (rule 7.5).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentView>,
    /// Its named ports.
    #[serde(default)]
    pub services: Vec<ServiceView>,
    /// What leads from it to other boxes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<LinkOutView>,
    /// What leads to it from other boxes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub linked_from: Vec<LinkInView>,
    /// What its environment lets it reach.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub connections: Vec<ConnectionView>,
    /// Where a browser finds the first of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scene_url: Option<String>,
    /// Where it finds the first that people open in a browser.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub web_url: Option<String>,
    /// Only who has a signed link may look at these (rule 8.8).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub private: Option<bool>,
    /// What it may reach outside.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub egress: Option<EgressView>,
    /// The environment that it was started in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub environment: Option<String>,
    /// What runs in it. Only a look at one box that runs has this and `disk`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub running: Option<RunningView>,
    /// What takes up room in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk: Option<DiskView>,
    /// How its daemon is, and what is wrong with it, where something is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health: Option<HealthView>,
    /// The image it started from.
    pub image: String,
    /// Which version of that image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_id: Option<String>,
    /// The daemon in it, asked live.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boxd_version: Option<String>,
    /// How large it is.
    pub size: SizeView,
    /// The host it is on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// The caller's own words from the start call.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, String>,
    /// When the runtime was asked about it last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Moment>")]
    pub observed_at: Option<Timestamp>,
    /// When its state was recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Moment>")]
    pub state_recorded_at: Option<Timestamp>,
    /// The last decisions about it, oldest first: which rule, in words. Lists leave them out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub why: Vec<WhyView>,
    /// What the last 30 calls did with it, oldest first (rule 11.3). Lists leave them out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<StepView>,
    /// What the caller has to know besides: boxes that are about to be stopped (rule 6.4).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notices: Vec<String>,
    /// Fields that were asked for but that no box has (rule 11.5).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unknown_fields: Vec<String>,
}

/// When a box freezes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FreezeView {
    /// When; absent while something without an end holds it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Moment>")]
    pub at: Option<Timestamp>,
    /// What holds it awake beyond the usual time.
    pub blocked_by: Vec<BlockView>,
}

/// Something that holds a box awake.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BlockView {
    /// `background`, `url`, `recording`, `takeover`, `foreground`, `link` or `phone`.
    pub kind: String,
    /// More about it, such as the command line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Until when; absent when it holds until it ends by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Moment>")]
    pub until: Option<Timestamp>,
}

/// Where the memory of a frozen box is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Tier {
    /// Its processes stand still in RAM.
    Ram,
    /// On disk.
    Disk,
}

/// The conversation that uses a box.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentView {
    /// `working`, `away`, `idle` or `left`.
    pub state: String,
    /// Seconds since last use or start; 0 while in use.
    pub idle_sec: u64,
    /// It is the caller's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub this_conversation: Option<bool>,
    /// The calls that last used it carried no id (rule 7.7).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub untracked: Option<bool>,
}

/// A named port of a box.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServiceView {
    /// Its name.
    pub name: String,
    /// Its port inside the box.
    pub port: u16,
    /// Where the program really listens, or the port in the box of `fromBox`; absent when it is `port`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_port: Option<u16>,
    /// What `name:port` reaches in the box: `box`, its own program; `external`, a server elsewhere; `link`, another box.
    #[serde(default = "own_program")]
    pub mode: String,
    /// Where a server elsewhere is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external_base_url: Option<String>,
    /// The box that it leads to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_box: Option<String>,
    /// The label of the version that runs in that box.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The id of that version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version_id: Option<String>,
    /// The variables that were given with it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Where a browser finds it; of a link, at the box that it leads to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Whether people open it in a browser.
    pub web: bool,
    /// Why the name does not lead there at the moment, or the latest connection did not; tried again by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// The latest request in the last half hour that did not get through (rule 8.7).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_proxy_error: Option<ProxyErrorView>,
}

fn own_program() -> String {
    "box".to_owned()
}

/// A request through a URL that did not get through, or that the program itself failed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ProxyErrorView {
    /// When.
    #[schemars(with = "Moment")]
    pub at: Timestamp,
    /// The HTTP status that the client got.
    pub status: u16,
    /// What went wrong.
    pub error: String,
    /// How often something did since the last half hour without.
    pub count: u64,
}

/// What is wrong with a box.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HealthView {
    /// `ok` when the daemon in the box answers, `silent` when it does not; only in a look at one box that runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub daemon: Option<String>,
    /// Whether new boxes get another daemon than it has: `renew` exchanges it. Only in such a look.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub outdated: bool,
    /// How many processes there are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processes: Option<u32>,
    /// How many of its programs the kernel ended since it came up because the box had no memory left; only in such a look,
    /// and only when there were any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_kills: Option<u64>,
    /// Requests that did not get through, for every service and for URLs that match none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scene_errors: Vec<SceneErrorView>,
}

/// The latest such request at one place.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SceneErrorView {
    /// How the URL begins: a service's name, or a port.
    pub place: String,
    /// What happened.
    #[serde(flatten)]
    pub error: ProxyErrorView,
}

/// How large a box is.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SizeView {
    /// CPUs; parts of one are possible.
    pub cpus: f64,
    /// Memory in MiB.
    pub memory_mb: u64,
    /// Disk in GiB.
    pub disk_gb: u64,
}

/// One decision.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WhyView {
    /// When.
    #[schemars(with = "Moment")]
    pub at: Timestamp,
    /// The number of the rule.
    pub rule: String,
    /// What it came to, in words.
    pub text: String,
}

/// What one call did with a box; never its output.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StepView {
    /// When it began.
    #[schemars(with = "Moment")]
    pub at: Timestamp,
    /// `exec`, `start` or `stop`; readers must tolerate more.
    pub kind: String,
    /// What it did: of a command its line; at most 200 characters, cut with `…`.
    pub summary: String,
    /// Why, in the caller's words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// `background` for a command that nobody waited for, `restored` for the start of a box that existed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// The folder in the box that it was about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// How long it took, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ms: Option<u64>,
    /// Whether the call succeeded: true for a command that ran and failed.
    pub ok: bool,
    /// The command's exit code; absent for background commands and killed ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// The signal that ended the command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<String>,
    /// True for a command that its deadline ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timed_out: Option<bool>,
    /// Why the call failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// One line of `GET /v1/events`: the state of a box changed, or it lost or has got its way out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EventView {
    /// Its number: later events have larger ones. Hand it in as `since` to read on.
    pub seq: i64,
    /// When it happened.
    #[schemars(with = "Moment")]
    pub at: Timestamp,
    /// The id of the box.
    #[serde(rename = "box")]
    pub id: String,
    /// The status the box went to; `egress`: it reaches nothing outside although it may, or what it may again (rule 5.12).
    pub kind: String,
    /// The status it had; absent for a new box, and for what is not about its status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// The number of the rule that decided it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// What that rule came to, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rule_2_3_a_reader_goes_on_with_words_that_it_does_not_know() {
        for (word, status) in [
            ("\"frozen\"", Status::Frozen),
            ("\"error\"", Status::Error),
            ("\"unknown\"", Status::Unknown),
            ("\"hibernating\"", Status::Unknown),
        ] {
            assert_eq!(serde_json::from_str::<Status>(word).unwrap(), status);
        }
        assert!(!Status::Unknown.is_live());
        let block = r#"{"kind": "a new kind", "since": "a new field"}"#;
        let block: BlockView = serde_json::from_str(block).unwrap();
        assert_eq!(block.kind, "a new kind");
    }
}
