//! Moving a staged archive into place, file by file and each in one step. Whatever stands in the way is found before the
//! first file moves.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, linkat, openat, readlinkat, renameat, statat, symlinkat,
};
use rustix::io::Errno;

use super::Error;
use super::place::{folder, made_folder, refused, shown, split};
use super::plan::{Kind, Plan, Planned};
use super::stage::Staging;

/// Moves everything into `dest` below `work`: how many files and links are not as they were.
pub(super) fn apply(
    work: &OwnedFd,
    dest: &Path,
    plan: &Plan,
    staging: &Staging,
) -> Result<u64, Error> {
    if let Some(dest) = folder(work, dest)? {
        for entry in plan.entries() {
            nothing_in_the_way(&dest, entry)?;
        }
    }
    let mut moving = Moving {
        dest: made_folder(work, dest)?,
        staging,
        above: None,
    };
    let mut changed = 0;
    for (number, entry) in plan.entries().iter().enumerate() {
        changed += u64::from(moving.move_in(number, entry)?);
    }
    Ok(changed)
}

/// Files never replace folders, nor the other way round.
fn nothing_in_the_way(dest: &OwnedFd, entry: &Planned) -> Result<(), Error> {
    let (above, name) = split(&entry.path);
    let Some(above) = folder(dest, above)? else {
        return Ok(());
    };
    let found = match statat(&above, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(found) => FileType::from_raw_mode(found.st_mode),
        Err(Errno::NOENT) => return Ok(()),
        Err(error) => return Err(refused(&entry.path, error)),
    };
    let path = shown(&entry.path);
    match (&entry.kind, found) {
        (Kind::Folder, FileType::Directory) => Ok(()),
        (Kind::Folder, FileType::Symlink) => match folder(dest, &entry.path)? {
            Some(_) => Ok(()),
            None => Err(Error::bad(format!(
                "`{path}` is a link to nothing in the box, and a folder in the archive; remove it first"
            ))),
        },
        (Kind::Folder, _) => Err(Error::bad(format!(
            "`{path}` is a file in the box, and a folder in the archive; remove it first"
        ))),
        (_, FileType::Directory) => Err(Error::bad(format!(
            "`{path}` is a folder in the box, and none in the archive; remove it first"
        ))),
        (_, _) => Ok(()),
    }
}

struct Moving<'a> {
    dest: OwnedFd,
    staging: &'a Staging,
    /// The folder of the last entry, for the next one is mostly there, too.
    above: Option<(PathBuf, OwnedFd)>,
}

impl Moving<'_> {
    /// Moves one entry into place; whether that changed anything.
    fn move_in(&mut self, number: usize, entry: &Planned) -> Result<bool, Error> {
        let staged = Staging::name(number);
        let (above, name) = split(&entry.path);
        let failed = |error: Errno| {
            Error::failed(format!("cannot write {}", shown(&entry.path)))(error.into())
        };
        match &entry.kind {
            Kind::Folder => {
                made_folder(&self.dest, &entry.path)?;
                return Ok(false);
            }
            Kind::File { mode } => {
                let staged = self.open_staged(&staged).map_err(failed)?;
                let above = self.above(above)?;
                let existing = openat(
                    above,
                    name,
                    // A pipe that is there already must not make anybody wait.
                    OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC,
                    Mode::empty(),
                );
                if let Ok(existing) = existing
                    && is_same(existing.into(), staged, *mode).unwrap_or(false)
                {
                    return Ok(false);
                }
            }
            Kind::Link { target } => {
                let existing = readlinkat(self.above(above)?, name, Vec::new());
                if existing
                    .is_ok_and(|existing| existing.as_bytes() == target.as_os_str().as_bytes())
                {
                    return Ok(false);
                }
                symlinkat(target, &self.staging.folder, &staged).map_err(failed)?;
            }
            Kind::Same { target } => {
                let (target_above, target) = split(target);
                let from = made_folder(&self.dest, target_above)?;
                let to = self.above(above)?;
                let inode = |folder: &OwnedFd, name| {
                    let found = statat(folder, name, AtFlags::SYMLINK_NOFOLLOW);
                    found.map(|found| (found.st_dev, found.st_ino))
                };
                let of_target = inode(&from, target).map_err(failed)?;
                if inode(to, name) == Ok(of_target) {
                    return Ok(false);
                }
                let linked = linkat(
                    &from,
                    target,
                    &self.staging.folder,
                    &staged,
                    AtFlags::empty(),
                );
                linked.map_err(failed)?;
            }
        }
        let staging = self.staging.folder.as_fd();
        let above = self.above(above)?;
        renameat(staging, &staged, above, name).map_err(failed)?;
        Ok(true)
    }

    fn open_staged(&self, name: &str) -> Result<File, Errno> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        openat(&self.staging.folder, name, flags, Mode::empty()).map(File::from)
    }

    fn above(&mut self, path: &Path) -> Result<&OwnedFd, Error> {
        if !matches!(&self.above, Some((known, _)) if known == path) {
            self.above = None;
        }
        let dest = &self.dest;
        match &mut self.above {
            Some((_, folder)) => Ok(folder),
            none => {
                let folder = made_folder(dest, path)?;
                Ok(&none.insert((path.to_owned(), folder)).1)
            }
        }
    }
}

/// Whether two files are the same to whoever reads or runs them. Such a file stays as it is: what was built from it stays
/// newer than it.
fn is_same(mut existing: File, mut staged: File, mode: u32) -> io::Result<bool> {
    let (one, other) = (existing.metadata()?, staged.metadata()?);
    if !one.is_file() || one.len() != other.len() || one.mode() & 0o777 != mode {
        return Ok(false);
    }
    let (mut left, mut right) = (vec![0; 64 * 1024], vec![0; 64 * 1024]);
    loop {
        let len = staged.read(&mut right)?;
        if len == 0 {
            return Ok(true);
        }
        match existing.read_exact(&mut left[..len]) {
            Ok(()) if left[..len] == right[..len] => {}
            Ok(()) => return Ok(false),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(false),
            Err(error) => return Err(error),
        }
    }
}
