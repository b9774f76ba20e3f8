//! What the driver itself remembers of a box, beside its files: `box.json`.

use std::collections::BTreeMap;
use std::fs;
use std::io;

use icebox_lifecycle::BoxId;
use serde::{Deserialize, Serialize};

use super::bootid;
use super::fsutil;
use super::paths::{BoxPaths, Paths};
use super::userns;
use crate::driver::{BoxSpec, Size};

/// What a box is made of, as of its last boot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Record {
    /// The generation below its upper layer. It never changes: the upper layer fits no other.
    pub(super) image: String,
    /// The checksum of the boxd it runs; a restored box carries an old one.
    pub(super) boxd: String,
    /// The first of its 65536 ids on the host. Its files belong to them.
    pub(super) uid_base: u32,
    pub(super) milli_cpus: u32,
    pub(super) memory_mb: u64,
    pub(super) disk_gb: u64,
    pub(super) env: BTreeMap<String, String>,
    /// Of its latest boot; empty where that was before there were any.
    #[serde(default)]
    pub(super) boot_id: String,
}

impl Record {
    pub(super) fn new(spec: &BoxSpec, image: String, boxd: String, uid_base: u32) -> Self {
        Self {
            image,
            boxd,
            uid_base,
            milli_cpus: spec.size.milli_cpus,
            memory_mb: spec.size.memory_mb,
            disk_gb: spec.size.disk_gb,
            env: spec.env.clone(),
            boot_id: bootid::fresh(),
        }
    }

    pub(super) fn size(&self) -> Size {
        Size {
            milli_cpus: self.milli_cpus,
            memory_mb: self.memory_mb,
            disk_gb: self.disk_gb,
        }
    }

    pub(super) fn save(&self, paths: &BoxPaths) -> io::Result<()> {
        let text = serde_json::to_vec_pretty(self).map_err(io::Error::other)?;
        fsutil::write_atomic(&paths.record(), &text)
    }

    /// `None` when there is none.
    pub(super) fn load(paths: &BoxPaths) -> io::Result<Option<Self>> {
        match fs::read(paths.record()) {
            Ok(bytes) => serde_json::from_slice(&bytes)
                .map(Some)
                .map_err(io::Error::other),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Every box that has a folder, with its record if that can be read.
pub(super) fn all(paths: &Paths) -> io::Result<Vec<(BoxId, Option<Record>)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(paths.boxes())? {
        if let Some(id) = entry?.file_name().to_str().and_then(BoxId::parse) {
            let record = Record::load(&paths.of(id)).unwrap_or(None);
            found.push((id, record));
        }
    }
    Ok(found)
}

/// A range of ids that no box has; shared ones when all are taken, spread by `id`.
pub(super) fn free_uid_base(taken: &[u32], id: BoxId) -> u32 {
    let base = |range: u32| userns::FIRST + range * userns::IDS;
    let free = (0..userns::RANGES).map(base).find(|b| !taken.contains(b));
    free.unwrap_or_else(|| {
        let spread = id.as_str().bytes().fold(0_u32, |sum, b| {
            sum.wrapping_mul(31).wrapping_add(u32::from(b))
        });
        base(spread % userns::RANGES)
    })
}
