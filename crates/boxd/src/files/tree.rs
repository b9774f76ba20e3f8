//! What the filesystem service does to paths: stat, list, make, move, remove.
//!
//! Everything here blocks and runs as whoever the thread is.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use icebox_wire::filesystem::EntryInfo;

use super::carry::carry;
use super::entry::{Names, entry};
use crate::error::Error;

/// The most entries one listing has.
const MAX_ENTRIES: usize = 200_000;

/// Describes one path.
pub(crate) fn stat(path: &Path) -> Result<EntryInfo, Error> {
    entry(path, &Names::read()).map_err(|error| {
        // A file above it means as well that it does not exist.
        let missing = error.kind() == io::ErrorKind::NotADirectory;
        let error = if missing { not_found() } else { error };
        Error::file("find", path)(error)
    })
}

/// Lists `depth` levels under a directory in the order of a walk: each directory before what it holds, names sorted.
/// Links are listed and not followed. What vanishes meanwhile, or may not be looked into, is left out.
pub(crate) fn list(path: &Path, depth: u32) -> Result<Vec<EntryInfo>, Error> {
    let meta = fs::metadata(path).map_err(Error::file("list", path))?;
    if !meta.is_dir() {
        return Err(not_a_directory(path));
    }
    let names = Names::read();
    let mut entries = Vec::new();
    let mut levels = vec![children(path).map_err(Error::file("list", path))?];
    while let Some(level) = levels.last_mut() {
        let Some(child) = level.next() else {
            levels.pop();
            continue;
        };
        let Ok(info) = entry(&child, &names) else {
            continue;
        };
        if entries.len() >= MAX_ENTRIES {
            return Err(Error::Limit(format!(
                "more than {MAX_ENTRIES} entries; list fewer levels, or a directory below"
            )));
        }
        let descend = !info.is_symlink
            && info.permissions.starts_with('d')
            && u32::try_from(levels.len()).is_ok_and(|level| level < depth);
        entries.push(info);
        if descend && let Ok(below) = children(&child) {
            levels.push(below);
        }
    }
    Ok(entries)
}

/// The paths in a directory, sorted.
fn children(dir: &Path) -> io::Result<std::vec::IntoIter<PathBuf>> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(dir)? {
        if paths.len() > MAX_ENTRIES {
            break;
        }
        paths.push(entry?.path());
    }
    paths.sort_unstable();
    Ok(paths.into_iter())
}

/// Makes a directory and those above it.
pub(crate) fn make_dir(path: &Path) -> Result<EntryInfo, Error> {
    match fs::metadata(path) {
        Ok(meta) if meta.is_dir() => return Err(Error::Exists(path.to_string_lossy().into())),
        Ok(_) => return Err(not_a_directory(path)),
        Err(_) => {}
    }
    let made = MadeDirs::up_to(path)?;
    let info = stat(path)?;
    made.keep();
    Ok(info)
}

/// Renames, making the directories above the destination.
pub(crate) fn move_to(source: &Path, destination: &Path) -> Result<EntryInfo, Error> {
    fs::symlink_metadata(source).map_err(Error::file("find", source))?;
    let made = match destination.parent() {
        Some(parent) => MadeDirs::up_to(parent)?,
        None => MadeDirs::default(),
    };
    let moved = match fs::rename(source, destination) {
        Err(error) if error.kind() == io::ErrorKind::CrossesDevices => carry(source, destination),
        moved => moved,
    };
    moved.map_err(Error::file("move", source))?;
    made.keep();
    stat(destination)
}

/// Removes whatever is there, if anything is.
pub(crate) fn remove(path: &Path) -> Result<(), Error> {
    if path.parent().is_none() {
        return Err(Error::BadRequest("the root directory stays".to_owned()));
    }
    let removed = match fs::symlink_metadata(path) {
        Ok(meta) if meta.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if is_missing(&error) => Ok(()),
        result => result.map_err(Error::file("remove", path)),
    }
}

/// Directories that were made on the way to something else. They go again unless they are kept.
#[derive(Debug, Default)]
pub(crate) struct MadeDirs(Vec<PathBuf>);

impl MadeDirs {
    /// Makes `dir` and what is missing above it.
    pub(crate) fn up_to(dir: &Path) -> Result<Self, Error> {
        let missing =
            |dir: &&Path| fs::symlink_metadata(dir).is_err_and(|error| is_missing(&error));
        let missing: Vec<&Path> = dir.ancestors().take_while(missing).collect();
        let mut made = Self::default();
        for dir in missing.into_iter().rev() {
            match fs::create_dir(dir) {
                Ok(()) => made.0.push(dir.to_owned()),
                // Another call was faster.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(Error::file("make the directory", dir)(error)),
            }
        }
        if dir.is_dir() {
            Ok(made)
        } else {
            Err(not_a_directory(dir))
        }
    }

    /// Takes over what `other` would remove.
    pub(crate) fn add(&mut self, mut other: Self) {
        self.0.append(&mut other.0);
    }

    /// Lets them stay.
    pub(crate) fn keep(mut self) {
        self.0.clear();
    }

    /// Removes those that are empty.
    pub(crate) fn remove(&mut self) {
        for dir in self.0.drain(..).rev() {
            // Something else was put into it meanwhile: then it stays.
            drop(fs::remove_dir(dir));
        }
    }
}

impl Drop for MadeDirs {
    fn drop(&mut self) {
        self.remove();
    }
}

fn is_missing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    )
}

fn not_found() -> io::Error {
    io::Error::from_raw_os_error(libc::ENOENT)
}

fn not_a_directory(path: &Path) -> Error {
    Error::file("use as a directory", path)(io::Error::from_raw_os_error(libc::ENOTDIR))
}
