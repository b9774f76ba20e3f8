//! What builds made, kept on the host for equal builds later: files under `<data>/builds`, one folder an account, named by
//! what went in and by a checksum of what is in them. Owns how much is kept: the one that was used longest ago goes first.
//! An account never sees another one's. A crash leaves whole files only.

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use xxhash_rust::xxh3::Xxh3;

use crate::clock::machine_now;
use crate::random;
use crate::record::AccountId;

/// How much is read at a time, in bytes.
const PIECE: usize = 1 << 20;

/// How much is kept, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BuildLimits {
    /// Of one build.
    pub one: u64,
    /// Of an account.
    pub account: u64,
    /// Of all accounts together.
    pub all: u64,
}

/// Everything that is kept.
pub struct Builds {
    root: PathBuf,
    limits: BuildLimits,
    /// Held while something is added or removed.
    changing: Mutex<()>,
}

/// One that is kept.
#[derive(Debug)]
pub struct Kept {
    path: PathBuf,
    sum: String,
    /// Its bytes, from the beginning.
    pub file: File,
    /// How many there are.
    pub bytes: u64,
}

/// One that is being added.
pub struct Adding {
    path: PathBuf,
    file: File,
    hash: Xxh3,
    bytes: u64,
    account: AccountId,
}

impl Builds {
    /// Takes the folder, and removes what a crash left half-written.
    pub fn open(data: &Path, limits: BuildLimits) -> io::Result<Self> {
        let root = data.join("builds");
        let unfinished = root.join("unfinished");
        match fs::remove_dir_all(&unfinished) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        let mut make = fs::DirBuilder::new();
        make.recursive(true).mode(0o700).create(&unfinished)?;
        Ok(Self {
            root,
            limits,
            changing: Mutex::new(()),
        })
    }

    /// The limits.
    #[must_use]
    pub fn limits(&self) -> BuildLimits {
        self.limits
    }

    /// What an equal build of the account made; it counts as used now.
    pub fn find(&self, account: AccountId, inputs: &str) -> io::Result<Option<Kept>> {
        let prefix = format!("{inputs}-");
        for entry in listed(&self.folder(account))? {
            let name = entry.file_name();
            let sum = name.to_str().and_then(|name| name.strip_prefix(&prefix));
            let Some(sum) = sum else {
                continue;
            };
            let file = match File::open(entry.path()) {
                Ok(file) => file,
                // It had to go meanwhile.
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
                Err(error) => return Err(error),
            };
            file.set_modified(now())?;
            return Ok(Some(Kept {
                bytes: file.metadata()?.len(),
                path: entry.path(),
                sum: sum.to_owned(),
                file,
            }));
        }
        Ok(None)
    }

    /// Begins to add one.
    pub fn add(&self, account: AccountId) -> io::Result<Adding> {
        let path = self.root.join("unfinished").join(random::hex::<8>());
        let file = fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)?;
        Ok(Adding {
            path,
            file,
            hash: Xxh3::new(),
            bytes: 0,
            account,
        })
    }

    /// Keeps one that was added whole. Others go to make room, those used longest ago first. `false`: it is too large.
    pub fn keep(&self, adding: Adding, inputs: &str) -> io::Result<bool> {
        let room = self
            .limits
            .account
            .min(self.limits.all)
            .min(self.limits.one);
        if adding.bytes > room {
            return Ok(false);
        }
        adding.file.sync_all()?;
        let _one_at_a_time = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let folder = self.folder(adding.account);
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&folder)?;
        // An equal build was kept meanwhile, or is damaged: this one takes its place.
        for entry in listed(&folder)? {
            let name = entry.file_name();
            if name.to_str().is_some_and(|name| name.starts_with(inputs)) {
                fs::remove_file(entry.path())?;
            }
        }
        self.make_room(&folder, adding.bytes)?;
        let name = format!("{inputs}-{:032x}", adding.hash.digest128());
        fs::rename(&adding.path, folder.join(name))?;
        File::open(&folder)?.sync_all()?;
        Ok(true)
    }

    /// Removes one that is damaged.
    pub fn remove(&self, kept: &Kept) -> io::Result<()> {
        let _one_at_a_time = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        match fs::remove_file(&kept.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    fn make_room(&self, folder: &Path, bytes: u64) -> io::Result<()> {
        let own = files(folder)?;
        self.evict(own, self.limits.account.saturating_sub(bytes))?;
        let mut all = Vec::new();
        for entry in listed(&self.root)? {
            if entry.file_type()?.is_dir() && entry.file_name() != "unfinished" {
                all.extend(files(&entry.path())?);
            }
        }
        self.evict(all, self.limits.all.saturating_sub(bytes))
    }

    fn evict(&self, mut files: Vec<(SystemTime, u64, PathBuf)>, room: u64) -> io::Result<()> {
        files.sort();
        let mut total: u64 = files.iter().map(|(_, bytes, _)| bytes).sum();
        for (_, bytes, path) in files {
            if total <= room {
                break;
            }
            fs::remove_file(path)?;
            total -= bytes;
        }
        Ok(())
    }

    fn folder(&self, account: AccountId) -> PathBuf {
        self.root.join(account.0.to_string())
    }
}

impl Kept {
    /// Whether it is as it was kept. Leaves the file at its beginning.
    pub fn is_whole(&mut self) -> io::Result<bool> {
        let mut hash = Xxh3::new();
        let mut piece = vec![0; PIECE];
        loop {
            let read = self.file.read(&mut piece)?;
            if read == 0 {
                break;
            }
            hash.update(&piece[..read]);
        }
        io::Seek::rewind(&mut self.file)?;
        Ok(format!("{:032x}", hash.digest128()) == self.sum)
    }
}

impl Adding {
    /// Adds a piece.
    pub fn write(&mut self, piece: &[u8]) -> io::Result<()> {
        self.hash.update(piece);
        self.bytes += piece.len() as u64;
        self.file.write_all(piece)
    }

    /// How many bytes there are.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for Adding {
    fn drop(&mut self) {
        // Not there any more once it is kept; the next start removes what stays behind.
        let _ = fs::remove_file(&self.path);
    }
}

/// What is in a folder, which may not be there.
fn listed(folder: &Path) -> io::Result<Vec<fs::DirEntry>> {
    match fs::read_dir(folder) {
        Ok(entries) => entries.collect(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

fn files(folder: &Path) -> io::Result<Vec<(SystemTime, u64, PathBuf)>> {
    let of = |entry: fs::DirEntry| {
        let meta = entry.metadata()?;
        Ok((meta.modified()?, meta.len(), entry.path()))
    };
    listed(folder)?.into_iter().map(of).collect()
}

fn now() -> SystemTime {
    let since = Duration::from_millis(u64::try_from(machine_now().0).unwrap_or(0));
    SystemTime::UNIX_EPOCH + since
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: AccountId = AccountId(1);
    const TWO: AccountId = AccountId(2);

    fn builds(data: &Path, account: u64, all: u64) -> Builds {
        let limits = BuildLimits {
            one: 100,
            account,
            all,
        };
        Builds::open(data, limits).unwrap()
    }

    fn keep(builds: &Builds, account: AccountId, inputs: &str, content: &[u8]) -> bool {
        let mut adding = builds.add(account).unwrap();
        adding.write(content).unwrap();
        let kept = builds.keep(adding, inputs).unwrap();
        if let Some(kept) = builds.find(account, inputs).unwrap() {
            // In the order in which they were made, however coarse the file system's clock is.
            let at = SystemTime::UNIX_EPOCH + Duration::from_secs(u64::from(inputs.as_bytes()[0]));
            kept.file.set_modified(at).unwrap();
        }
        kept
    }

    fn has(builds: &Builds, account: AccountId, inputs: &str) -> bool {
        let path = builds.folder(account);
        let mut listed = listed(&path).unwrap().into_iter();
        listed.any(|entry| entry.file_name().to_str().unwrap().starts_with(inputs))
    }

    #[test]
    fn what_was_kept_is_found_whole_and_by_its_own_account_only() {
        let dir = tempfile::tempdir().unwrap();
        let kept = builds(dir.path(), 100, 100);
        assert!(keep(&kept, ONE, "a", b"content"));
        assert!(kept.find(TWO, "a").unwrap().is_none());
        assert!(kept.find(ONE, "b").unwrap().is_none());
        let mut found = builds(dir.path(), 100, 100)
            .find(ONE, "a")
            .unwrap()
            .unwrap();
        assert!(found.is_whole().unwrap());
        let mut content = String::new();
        found.file.read_to_string(&mut content).unwrap();
        assert_eq!((content.as_str(), found.bytes), ("content", 7));
        fs::write(&found.path, b"damaged").unwrap();
        let mut found = kept.find(ONE, "a").unwrap().unwrap();
        assert!(!found.is_whole().unwrap());
        kept.remove(&found).unwrap();
        assert!(kept.find(ONE, "a").unwrap().is_none());
    }

    #[test]
    fn the_one_used_longest_ago_goes_first() {
        let dir = tempfile::tempdir().unwrap();
        let kept = builds(dir.path(), 20, 30);
        assert!(keep(&kept, ONE, "a", &[0; 10]));
        assert!(keep(&kept, ONE, "b", &[0; 10]));
        kept.find(ONE, "a").unwrap().unwrap();
        assert!(keep(&kept, ONE, "c", &[0; 10]));
        assert!(has(&kept, ONE, "a") && !has(&kept, ONE, "b") && has(&kept, ONE, "c"));
        assert!(keep(&kept, TWO, "d", &[0; 10]));
        assert!(has(&kept, ONE, "a"), "there is room for three");
        assert!(keep(&kept, TWO, "e", &[0; 10]));
        assert!(!has(&kept, ONE, "c"), "the oldest of all accounts");
        assert!(!keep(&kept, TWO, "f", &[0; 21]), "more than an account has");
        assert!(has(&kept, TWO, "d"), "nothing goes for what does not fit");
    }

    #[test]
    fn what_a_crash_left_half_written_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let kept = builds(dir.path(), 100, 100);
        let mut adding = kept.add(ONE).unwrap();
        adding.write(b"half").unwrap();
        std::mem::forget(adding);
        let unfinished = dir.path().join("builds/unfinished");
        assert_eq!(fs::read_dir(&unfinished).unwrap().count(), 1);
        drop(builds(dir.path(), 100, 100));
        assert_eq!(fs::read_dir(&unfinished).unwrap().count(), 0);
    }
}
