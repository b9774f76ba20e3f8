//! What is known of a box besides its life: whose it is, its names, what it is made of. The lifecycle never looks at it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::driver;

/// An account.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct AccountId(pub i64);

/// A box as its owner described it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Whose it is.
    pub account: AccountId,
    /// Its name for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// What it is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub goal: Option<String>,
    /// The image it starts from.
    pub image: String,
    /// Its size.
    pub size: Size,
    /// Variables for every command in it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// The caller's own words.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, String>,
    /// Its named ports.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub services: Vec<Service>,
    /// Only who has a link may look at its URLs (rule 8.8).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub private: bool,
    /// What links to it are signed with; a new one makes the old links worthless.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link_secret: Option<String>,
    /// What an E2B client said of it, if one made it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub e2b: Option<Box<E2b>>,
}

/// What the E2B dialect keeps of a box that was made through it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct E2b {
    /// The template, as its client named it.
    pub template: String,
    /// What its daemon asks for, if it asks for anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access_token: Option<String>,
    /// What traffic to its ports must carry, unless everybody may reach them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traffic_token: Option<String>,
    /// Whether it may reach the internet, as far as its client said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub internet: Option<bool>,
    /// Its network settings, as its client gave them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<serde_json::Value>,
}

/// How large a box is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Size {
    /// CPUs, in thousandths.
    pub milli_cpus: u32,
    /// Memory in MiB.
    pub memory_mb: u64,
    /// Disk in GiB.
    pub disk_gb: u64,
}

/// A named port of a box.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Service {
    /// Its name.
    pub name: String,
    /// Its port inside the box.
    pub port: u16,
    /// Whether people open it in a browser.
    #[serde(default)]
    pub web: bool,
}

impl From<Size> for driver::Size {
    fn from(size: Size) -> Self {
        Self {
            milli_cpus: size.milli_cpus,
            memory_mb: size.memory_mb,
            disk_gb: size.disk_gb,
        }
    }
}
