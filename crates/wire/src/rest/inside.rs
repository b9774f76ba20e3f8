//! What goes on in a box that runs (rules 11.4, 11.6). Only a look at one box has it.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::schema::Moment;

/// What runs in a box.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunningView {
    /// The commands of calls; at most 100.
    pub commands: Vec<RunningCommandView>,
    /// Databases that were made with `psbx-testdb`.
    pub containers: Vec<ContainerView>,
}

/// A command that runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunningCommandView {
    /// Its id.
    pub exec_id: String,
    /// Its command line, cut short.
    pub cmd: String,
    /// Whether it was started in the background.
    pub background: bool,
    /// How long it has run, in milliseconds.
    pub ms: u64,
}

/// A database in a box.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ContainerView {
    /// Its name.
    pub name: String,
    /// What it is.
    pub image: String,
    /// `running` or `stopped`.
    pub status: String,
    /// Where it listens.
    pub ports: Vec<u16>,
    /// The file in the box that says how it is reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub env_file: Option<String>,
}

/// What takes up room in a box. Sizes are in units of 1024.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DiskView {
    /// When it was measured; good for 30 s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Moment>")]
    pub measured_at: Option<Timestamp>,
    /// The file systems.
    pub filesystems: Vec<FilesystemView>,
    /// What is in `/work`, largest first; at most 100.
    pub work: Vec<UsedView>,
    /// What tools keep to be faster, and make again when it is gone.
    pub caches: Vec<UsedView>,
    /// What is in the folders for temporary files, from 1 MB.
    pub temp: Vec<UsedView>,
    /// Parts of these that are not known yet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_measured: Vec<String>,
    /// They are still being measured: look again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub measuring: bool,
}

/// A file system of a box.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FilesystemView {
    /// Where it is.
    pub path: String,
    /// How large it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_gb: Option<f64>,
    /// How much is used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used_gb: Option<f64>,
    /// How much is free.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub free_gb: Option<f64>,
    /// It is the same as that one, whose sizes these are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub same_as: Option<String>,
}

/// A file or folder that takes up room.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct UsedView {
    /// Where it is.
    pub path: String,
    /// How much.
    pub mb: f64,
}
