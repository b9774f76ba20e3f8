//! A copy of a box on disk: its manifest, its checksums, and what makes it complete.
//!
//! A copy is a folder whose manifest was written last and made durable before the folder got its name.
//! Anything else is debris. Whether a copy may still be used is not decided here: the record says so.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use super::fsutil;

/// The layout of a copy.
const VERSION: u32 = 1;

const MANIFEST: &str = "manifest.json";

/// Where CRIU's images lie in a copy.
pub(super) const IMAGES: &str = "img";

/// What a copy consists of and what it needs to be restored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Manifest {
    pub(super) version: u32,
    pub(super) host: HostFacts,
    pub(super) image: String,
    pub(super) boxd: String,
    pub(super) files: Vec<FileSum>,
}

/// What of a host restored memory depends on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct HostFacts {
    pub(super) kernel: String,
    pub(super) criu: String,
    pub(super) cpu_flags: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FileSum {
    pub(super) name: String,
    pub(super) bytes: u64,
    pub(super) xxh3: String,
}

/// Why a copy is not used.
#[derive(Debug, thiserror::Error)]
pub(super) enum CopyError {
    /// It is damaged or incomplete; the text says where.
    #[error("the copy is damaged: {0}")]
    Damaged(String),
    /// It was made on a host this one does not stand in for.
    #[error("the copy does not fit this host: {0}")]
    Unfit(String),
    /// The disk did not answer.
    #[error("the copy cannot be read")]
    Io(#[from] io::Error),
}

impl HostFacts {
    /// The facts of this host.
    pub(super) fn here(criu_version: &str) -> Self {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let flags = cpuinfo.lines().find_map(|l| {
            l.strip_prefix("flags")
                .or_else(|| l.strip_prefix("Features"))
        });
        let mut cpu_flags: Vec<String> = flags
            .and_then(|l| l.split_once(':'))
            .map(|(_, list)| list.split_whitespace().map(str::to_owned).collect())
            .unwrap_or_default();
        cpu_flags.sort();
        Self {
            kernel: rustix::system::uname()
                .release()
                .to_string_lossy()
                .into_owned(),
            criu: criu_version.to_owned(),
            cpu_flags,
        }
    }

    /// Whether memory from `self` can go on here. A newer kernel may do; missing CPU features never do.
    fn fits(&self, here: &Self) -> Result<(), CopyError> {
        let missing: Vec<&str> = self
            .cpu_flags
            .iter()
            .filter(|flag| here.cpu_flags.binary_search(flag).is_err())
            .map(String::as_str)
            .collect();
        if missing.is_empty() {
            return Ok(());
        }
        Err(CopyError::Unfit(format!(
            "its programs may use CPU features that are missing here ({})",
            missing.join(", ")
        )))
    }
}

/// The checksums of every image file in `dir`, by name.
pub(super) fn sums(dir: &Path) -> io::Result<Vec<FileSum>> {
    let images = dir.join(IMAGES);
    let mut files = Vec::new();
    for entry in fs::read_dir(&images)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        // The log and the statistics are for people; restoring needs neither.
        if !name.ends_with(".img") {
            continue;
        }
        let (bytes, xxh3) = sum(&entry.path())?;
        files.push(FileSum { name, bytes, xxh3 });
    }
    files.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(files)
}

fn sum(path: &Path) -> io::Result<(u64, String)> {
    let mut file = File::open(path)?;
    let mut hash = Xxh3::new();
    let mut buffer = vec![0_u8; 1 << 18];
    let mut bytes = 0_u64;
    loop {
        let read = file.read(&mut buffer)?;
        if read == 0 {
            return Ok((bytes, format!("{:016x}", hash.digest())));
        }
        hash.update(&buffer[..read]);
        bytes += read as u64;
    }
}

impl Manifest {
    pub(super) fn new(host: HostFacts, image: &str, boxd: &str, files: Vec<FileSum>) -> Self {
        Self {
            version: VERSION,
            host,
            image: image.to_owned(),
            boxd: boxd.to_owned(),
            files,
        }
    }

    /// Writes it into `dir`, durably. The last thing that happens to a copy before it gets its name.
    pub(super) fn write(&self, dir: &Path) -> io::Result<()> {
        let body = serde_json::to_string(self).map_err(io::Error::other)?;
        // The sum of the first line is on the second, so that a damaged manifest is noticed too.
        let text = format!("{body}\n{:016x}\n", xxh3_64(body.as_bytes()));
        let path = dir.join(MANIFEST);
        fs::write(&path, text)?;
        fsutil::sync_file(&File::open(&path)?, &path)?;
        fsutil::sync_dir(dir)
    }

    /// Reads the manifest of a copy and checks what can be checked at once: that it is whole, that this
    /// host fits, and that every file is there with its size.
    pub(super) fn read(dir: &Path, here: &HostFacts) -> Result<Self, CopyError> {
        let text = fs::read_to_string(dir.join(MANIFEST))?;
        let damaged = |what: &str| CopyError::Damaged(what.to_owned());
        let mut lines = text.lines();
        let body = lines
            .next()
            .ok_or_else(|| damaged("its manifest is empty"))?;
        let sum = format!("{:016x}", xxh3_64(body.as_bytes()));
        if lines.next() != Some(sum.as_str()) {
            return Err(damaged("its manifest does not match its checksum"));
        }
        let manifest: Self = serde_json::from_str(body)
            .map_err(|e| CopyError::Damaged(format!("its manifest cannot be understood: {e}")))?;
        if manifest.version != VERSION {
            let version = manifest.version;
            return Err(CopyError::Unfit(format!(
                "it has layout {version}, this server reads {VERSION}"
            )));
        }
        manifest.host.fits(here)?;
        for file in &manifest.files {
            let meta = fs::metadata(dir.join(IMAGES).join(&file.name));
            let bytes = meta.map(|m| m.len()).unwrap_or(0);
            if bytes != file.bytes {
                let (name, expected) = (&file.name, file.bytes);
                let text = format!("{name} has {bytes} bytes instead of {expected}");
                return Err(CopyError::Damaged(text));
            }
        }
        Ok(manifest)
    }

    /// Reads every byte of the copy and compares the checksums.
    pub(super) fn verify(&self, dir: &Path) -> Result<(), CopyError> {
        for file in &self.files {
            let (_, xxh3) = sum(&dir.join(IMAGES).join(&file.name))?;
            if xxh3 != file.xxh3 {
                let text = format!("{} does not match its checksum", file.name);
                return Err(CopyError::Damaged(text));
            }
        }
        Ok(())
    }
}

/// Whether a copy is complete enough to be counted on; reading it may still find damage.
pub(super) fn is_complete(dir: &Path) -> io::Result<bool> {
    fsutil::is_file(&dir.join(MANIFEST))
}
