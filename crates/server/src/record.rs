//! What is known of a box besides its life: whose it is, its names, what it is made of. The lifecycle never looks at it.

use std::collections::BTreeMap;
use std::sync::Arc;

use icebox_lifecycle::{BoxId, SnapshotId};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::driver::{self, Egress};

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
    pub name: Option<Box<str>>,
    /// What it is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub goal: Option<Box<str>>,
    /// The image it starts from; boxes of the same may share its name.
    #[serde(with = "text")]
    pub image: Arc<str>,
    /// Its size.
    pub size: Size,
    /// Variables for every command in it.
    #[serde(default, skip_serializing_if = "Texts::is_empty")]
    pub env: Texts,
    /// The caller's own words.
    #[serde(default, skip_serializing_if = "Texts::is_empty")]
    pub metadata: Texts,
    /// Its named ports.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub services: Vec<Service>,
    /// Only who has a link may look at its URLs (rule 8.8).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub private: bool,
    /// What it may reach outside.
    #[serde(default, skip_serializing_if = "Egress::is_default")]
    pub egress: Egress,
    /// What links to it are signed with; a new one makes the old links worthless.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link_secret: Option<Box<str>>,
    /// What an E2B client said of it, if one made it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub e2b: Option<Box<E2b>>,
    /// What it began as, if not as its image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Box<Origin>>,
    /// What people see first of it, if somebody chose.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scene: Option<Box<Scene>>,
    /// The version of a service that it runs, if it was started for that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runs: Option<Box<Runs>>,
}

/// A version that a box runs for another one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Runs {
    /// The id of the box whose name leads here. Once it has no use for this one any more, this one ends.
    pub for_box: Box<str>,
    /// The id of the version.
    pub version: Box<str>,
    /// Its name among the versions of the service.
    pub label: Box<str>,
}

/// What people see first of a box.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scene {
    /// What it is, instead of the first service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shows: Option<Shows>,
    /// What begins with one of these paths there is somewhere else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub elsewhere: Option<Elsewhere>,
}

/// What a scene is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Shows {
    /// A page of the box's.
    Page {
        /// The service or port, as its URL begins.
        place: String,
        /// Path and query, from the `/`.
        path: String,
    },
    /// A page of somebody else's.
    Url(String),
}

/// Paths that are forwarded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Elsewhere {
    /// The beginnings of the paths, each from the `/`.
    pub paths: Vec<String>,
    /// Where they go.
    pub base_url: String,
}

/// What a box began as. The snapshot may be gone since.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// The id of the snapshot.
    pub snapshot: String,
    /// Its programs went on; otherwise it booted on the files.
    pub memory: bool,
    /// It was made as a fork of this box.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fork_of: Option<String>,
}

impl Record {
    /// The service or port, as its URL begins, that people see first.
    #[must_use]
    pub fn scene_place(&self) -> Option<&str> {
        let shows = self.scene.as_deref().and_then(|scene| scene.shows.as_ref());
        match shows {
            Some(Shows::Page { place, .. }) => Some(place),
            Some(Shows::Url(_)) => None,
            None => self.services.first().map(|service| &*service.name),
        }
    }

    /// What it begins as, in the driver's words.
    #[must_use]
    pub fn origin(&self) -> Option<driver::Origin> {
        let origin = self.origin.as_deref()?;
        Some(driver::Origin {
            snapshot: SnapshotId::parse(&origin.snapshot)?,
            memory: origin.memory,
        })
    }
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

/// A shared text as JSON.
mod text {
    use super::{Arc, Deserialize as _, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(text: &Arc<str>, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(text)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Arc<str>, D::Error> {
        String::deserialize(from).map(Into::into)
    }
}

/// Texts by name, in the order of their names. There may be a million records, so that they take no more room than they
/// need.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Texts(Box<[(Box<str>, Box<str>)]>);

impl Texts {
    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The text of that name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        let found = self.0.binary_search_by(|(key, _)| (**key).cmp(name));
        found.ok().map(|at| &*self.0[at].1)
    }

    /// All of them, name and text.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, text)| (&**name, &**text))
    }

    /// A copy that can be changed.
    #[must_use]
    pub fn to_map(&self) -> BTreeMap<String, String> {
        let owned = |(name, text): (&str, &str)| (name.to_owned(), text.to_owned());
        self.iter().map(owned).collect()
    }
}

impl From<BTreeMap<String, String>> for Texts {
    fn from(map: BTreeMap<String, String>) -> Self {
        let boxed = |(name, text): (String, String)| (name.into(), text.into());
        Self(map.into_iter().map(boxed).collect())
    }
}

impl Serialize for Texts {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

impl<'de> Deserialize<'de> for Texts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        BTreeMap::deserialize(deserializer).map(Self::from)
    }
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

/// A name of a box for a port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Service {
    /// Its name.
    pub name: String,
    /// Its port inside the box.
    pub port: u16,
    /// Whether people open it in a browser.
    #[serde(default)]
    pub web: bool,
    /// What `name:port` reaches inside the box.
    #[serde(default, skip_serializing_if = "Leads::is_own")]
    pub leads: Leads,
}

/// What a service leads to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Leads {
    /// The box's own program on that port.
    #[default]
    Own,
    /// The box's own program on another port.
    OwnAt(u16),
    /// A server elsewhere that speaks HTTP.
    External(Box<str>),
    /// A port of another box.
    Link {
        /// The id of the box.
        id: Box<str>,
        /// The port in it.
        port: u16,
    },
}

impl Leads {
    /// Whether it is the usual, where nothing has to be done.
    #[must_use]
    pub fn is_own(&self) -> bool {
        *self == Self::Own
    }
}

impl Service {
    /// The port on which a program of the box listens for it, if one does.
    #[must_use]
    pub fn listens_on(&self) -> Option<u16> {
        match self.leads {
            Leads::Own => Some(self.port),
            Leads::OwnAt(port) => Some(port),
            Leads::External(_) | Leads::Link { .. } => None,
        }
    }

    /// The box and port that it is a link to.
    #[must_use]
    pub fn link(&self) -> Option<(BoxId, u16)> {
        match &self.leads {
            Leads::Link { id, port } => Some((BoxId::parse(id)?, *port)),
            Leads::Own | Leads::OwnAt(_) | Leads::External(_) => None,
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_an_object_in_json_and_found_by_name() {
        let json = r#"{"a":"1","b":"2","c":""}"#;
        let texts: Texts = serde_json::from_str(r#"{"c":"","a":"0","b":"2","a":"1"}"#).unwrap();
        assert_eq!(serde_json::to_string(&texts).unwrap(), json);
        assert_eq!((texts.get("b"), texts.get("d")), (Some("2"), None));
        assert_eq!(Texts::from(texts.to_map()), texts);
    }
}
