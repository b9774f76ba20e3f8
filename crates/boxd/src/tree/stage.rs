//! Taking an archive in: it is read to its end into a folder of its own first, so that one that is cut off, too large or
//! wrong leaves the box as it was.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use flate2::read::MultiGzDecoder;
use tar::Archive;

use super::Error;
use super::merge::apply;
use super::place::{self, Roots};
use super::plan::Plan;
use crate::id;

/// The most bytes of an archive once it is unpacked.
const UNPACKED: u64 = 16 << 30;
/// Where archives are unpacked, in the working directory, so that files can be moved from there in one step.
const STAGING: &str = ".icebox-sync";

/// Merges a gzipped tar into the folder `dest` of the working directory: how many files and links it changed.
pub(super) fn merge(roots: &Roots, dest: &str, archive: impl Read) -> Result<u64, Error> {
    let dest = roots.destination(dest)?;
    let work = place::root(roots.work_dir())?;
    // Before anything is read: a destination that leads elsewhere is no destination.
    place::folder(&work, &dest)?;
    let staging = Staging::make(roots.work_dir())?;
    let plan = read(archive, &staging, &roots.work_dir().join(&dest))?;
    apply(&work, &dest, &plan, &staging)
}

/// A folder for the contents of one archive, gone when it is dropped.
pub(super) struct Staging {
    path: PathBuf,
    /// The open folder.
    pub(super) folder: OwnedFd,
}

impl Staging {
    fn make(work_dir: &Path) -> Result<Self, Error> {
        let above = work_dir.join(STAGING);
        let path = above.join(format!("{:016x}", id::random()));
        let mut builder = fs::DirBuilder::new();
        let made = builder.recursive(true).mode(0o700).create(&path);
        made.map_err(Error::failed("cannot make a folder for the archive"))?;
        match place::root(&path) {
            Ok(folder) => Ok(Self { path, folder }),
            Err(error) => {
                remove(&path);
                Err(error)
            }
        }
    }

    /// The name of the content of an entry.
    pub(super) fn name(number: usize) -> String {
        number.to_string()
    }

    fn path(&self, number: usize) -> PathBuf {
        self.path.join(Self::name(number))
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        remove(&self.path);
    }
}

fn remove(staging: &Path) {
    // What cannot be removed stays where a person finds it; nothing depends on it.
    let _ = fs::remove_dir_all(staging);
    if let Some(above) = staging.parent() {
        // Another archive may be using it.
        let _ = fs::remove_dir(above);
    }
}

/// Reads an archive to its end.
fn read(archive: impl Read, staging: &Staging, work_dest: &Path) -> Result<Plan, Error> {
    let unpacked = Limited {
        inner: MultiGzDecoder::new(archive),
        left: UNPACKED,
    };
    let mut archive = Archive::new(unpacked);
    let mut plan = Plan::default();
    let mut left = UNPACKED;
    for entry in archive.entries().map_err(unreadable)? {
        let entry = entry.map_err(unreadable)?;
        let path = entry.path().map_err(unreadable)?.into_owned();
        let target = entry.link_name().map_err(unreadable)?;
        let mode = entry.header().mode().map_err(unreadable)?;
        let kind = entry.header().entry_type();
        let staged = plan.take(&path, kind, mode, target.as_deref(), work_dest)?;
        if let Some(number) = staged {
            let file = File::create_new(staging.path(number));
            let mut file = file.map_err(Error::failed("cannot write the archive's files"))?;
            // A file with holes says little and unpacks to much.
            let copied = copy(&mut entry.take(left + 1), &mut file)?;
            if copied > left {
                return Err(too_much());
            }
            left -= copied;
            let permissions = fs::Permissions::from_mode(mode & 0o777);
            let set = file.set_permissions(permissions);
            set.map_err(Error::failed("cannot write the archive's files"))?;
        }
    }
    // The archive is whole only if it ends where its compression does.
    let mut rest = archive.into_inner();
    io::copy(&mut rest, &mut io::sink()).map_err(unreadable)?;
    Ok(plan)
}

fn copy(from: &mut impl Read, file: &mut File) -> Result<u64, Error> {
    let mut buffer = vec![0; 128 * 1024];
    let mut copied = 0;
    loop {
        let len = match from.read(&mut buffer) {
            Ok(0) => return Ok(copied),
            Ok(len) => len,
            Err(error) => return Err(unreadable(error)),
        };
        let written = io::Write::write_all(file, &buffer[..len]);
        written.map_err(Error::failed("cannot write the archive's files"))?;
        copied += u64::try_from(len).unwrap_or(u64::MAX);
    }
}

fn unreadable(error: io::Error) -> Error {
    if error.get_ref().is_some_and(|inner| inner.is::<TooMuch>()) {
        return too_much();
    }
    Error::bad(format!(
        "the body must be a whole gzipped tar; nothing was changed ({error})"
    ))
}

fn too_much() -> Error {
    Error::TooLarge(format!(
        "an archive may unpack to at most {UNPACKED} bytes; nothing was changed"
    ))
}

/// A reader that fails after so many bytes.
struct Limited<R> {
    inner: R,
    left: u64,
}

#[derive(Debug, thiserror::Error)]
#[error("it unpacks to too much")]
struct TooMuch;

impl<R: Read> Read for Limited<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let len = self.inner.read(into)?;
        self.left = match self
            .left
            .checked_sub(u64::try_from(len).unwrap_or(u64::MAX))
        {
            Some(left) => left,
            None => return Err(io::Error::other(TooMuch)),
        };
        Ok(len)
    }
}
