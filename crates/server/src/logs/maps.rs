//! Source maps: taking them in for a release, and having those at hand that stacks ask for. Owns their limits and the few that
//! stay in memory.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use icebox_wire::rest::SourceMapsResponse;
use sourcemap::SourceMap;

use super::stack::path_of;
use super::{Logs, Shared, internal, shape};
use crate::commands::{Caller, Kind, Trouble};
use crate::store::{KeptMaps, NewMap, cut};

/// The largest upload, in bytes.
pub const UPLOAD_LIMIT: usize = 32 << 20;
/// The longest name of a release, in characters.
pub const RELEASE_LEN: usize = 100;
/// Maps in one upload.
const MAPS: usize = 200;
/// The longest served path, in bytes.
const PATH_LEN: usize = 500;
/// What the maps in memory have at most, in pieces of scripts.
const AT_HAND: usize = 3_000_000;
/// How many are at hand, answers that there is none among them.
const AT_HAND_COUNT: usize = 200;

/// One file of an upload.
#[derive(Debug)]
pub struct MapUpload {
    /// The served path of the map or of its script, or a URL with it.
    pub path: String,
    /// The map.
    pub content: Vec<u8>,
}

/// Which map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MapKey {
    pub(super) project: i64,
    pub(super) release: String,
    pub(super) path: String,
}

/// A map, or that there is none.
type Known = (MapKey, Option<Arc<SourceMap>>);

/// The maps that were asked for last, the latest in front; `None` for those that are not there.
#[derive(Default)]
pub(super) struct Maps(Mutex<VecDeque<Known>>);

impl Maps {
    /// What is known of a map.
    pub(super) fn get(&self, key: &MapKey) -> Option<Option<Arc<SourceMap>>> {
        self.with(|list| {
            let at = list.iter().position(|(other, _)| other == key)?;
            let found = list.remove(at)?;
            let map = found.1.clone();
            list.push_front(found);
            Some(map)
        })
    }

    pub(super) fn put(&self, key: MapKey, map: Option<Arc<SourceMap>>) {
        let size = |map: &Option<Arc<SourceMap>>| {
            let count = map.as_ref().map_or(0, |map| map.get_token_count());
            usize::try_from(count).unwrap_or(usize::MAX)
        };
        self.with(|list| {
            list.retain(|(other, _)| *other != key);
            list.push_front((key, map));
            let mut all: usize = list.iter().map(|(_, map)| size(map)).sum();
            while list.len() > AT_HAND_COUNT || (all > AT_HAND && list.len() > 1) {
                if let Some((_, map)) = list.pop_back() {
                    all -= size(&map);
                }
            }
        });
    }

    /// Forgets everything about a project.
    pub(super) fn forget(&self, project: i64) {
        self.with(|list| list.retain(|(key, _)| key.project != project));
    }

    fn with<T>(&self, change: impl FnOnce(&mut VecDeque<Known>) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Logs {
    /// A place for an upload, which is in memory whole while it has one.
    pub fn begin_upload(&self) -> Result<tokio::sync::SemaphorePermit<'_>, Trouble> {
        self.0.uploads.try_acquire().map_err(|_| {
            let text = "other source maps are being uploaded; try again in a moment";
            Trouble::new(Kind::Busy, text)
        })
    }

    /// Keeps source maps of a release: all of them, or none.
    pub async fn add_maps(
        &self,
        caller: &Caller,
        named: &str,
        release: String,
        uploads: Vec<MapUpload>,
    ) -> Result<SourceMapsResponse, Trouble> {
        let project = self.0.project(caller, named)?;
        if release.is_empty() || release.chars().count() > RELEASE_LEN || release.contains('\0') {
            let takes = format!("a part with a text of 1 to {RELEASE_LEN} characters");
            return Err(Trouble::bad("release", takes));
        }
        if uploads.is_empty() || uploads.len() > MAPS {
            let text =
                format!("1 to {MAPS} parts, each named by the path at which its script is served");
            return Err(Trouble::bad("files", text));
        }
        let number = project.number;
        self.0
            .blocking(move |shared| shared.add_maps(number, release, &uploads))
            .await
    }
}

impl Shared {
    fn add_maps(
        &self,
        number: i64,
        release: String,
        uploads: &[MapUpload],
    ) -> Result<SourceMapsResponse, Trouble> {
        let mut maps = Vec::with_capacity(uploads.len());
        for upload in uploads {
            let shown = cut(&upload.path, 100);
            let path = served(&upload.path).ok_or_else(|| {
                let takes = format!(
                    "named by the path at which its script is served, as in `/assets/app.js`, at most {PATH_LEN} bytes; \
                     `{shown}` is none"
                );
                Trouble::bad("files", takes)
            })?;
            let body = shape::kept(&upload.content).map_err(|why| {
                let text = format!("`{shown}` cannot be used: {why}");
                Trouble::new(Kind::BadRequest, text).with("field", shown)
            })?;
            maps.push(NewMap { path, body });
        }
        let now = self.commands.clock().now();
        let most_mb = self.settings().project_maps_mb;
        let kept = self
            .tables
            .put_maps(number, &release, &maps, now, most_mb << 20);
        // Also what was known not to be there.
        self.maps.forget(number);
        match kept.map_err(internal)? {
            KeptMaps::Kept(removed_releases) => Ok(SourceMapsResponse {
                release,
                paths: maps.into_iter().map(|map| map.path).collect(),
                removed_releases,
            }),
            KeptMaps::TooLarge => {
                let text = format!(
                    "the maps of one release may take up {most_mb} MiB without their sources' contents, and these are more"
                );
                Err(Trouble::new(Kind::TooLarge, text).with("limitMb", most_mb))
            }
            KeptMaps::NoProject => Err(Trouble::new(Kind::NotFound, "the project was removed")),
        }
    }
}

/// The served path of the script whose map it is.
fn served(named: &str) -> Option<String> {
    let named = named.strip_prefix('~').unwrap_or(named);
    let path = path_of(named)?;
    let path = path.strip_suffix(".map").unwrap_or(path);
    (path.len() > 1 && path.len() <= PATH_LEN && !path.contains('\0')).then(|| path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_is_named_by_what_it_is_of() {
        let long = format!("/{}", "a".repeat(PATH_LEN));
        let table = [
            ("/assets/app.js.map", Some("/assets/app.js")),
            ("/assets/app.js", Some("/assets/app.js")),
            ("https://app.example/app.js.map?x", Some("/app.js")),
            ("~/app.js", Some("/app.js")),
            ("app.js", None),
            ("/.map", None),
            ("", None),
            (&long, None),
        ];
        for (named, expected) in table {
            assert_eq!(served(named).as_deref(), expected, "{named}");
        }
    }

    #[test]
    fn the_latest_maps_stay_at_hand() {
        let maps = Maps::default();
        let key = |path: usize| MapKey {
            project: 1,
            release: "1".to_owned(),
            path: path.to_string(),
        };
        for path in 0..=AT_HAND_COUNT {
            maps.put(key(path), None);
            assert!(maps.get(&key(0)).is_some(), "it is asked for all the time");
        }
        assert!(maps.get(&key(1)).is_none());
        assert!(maps.get(&key(2)).is_some());
        maps.forget(1);
        assert!(maps.get(&key(0)).is_none());
    }
}
