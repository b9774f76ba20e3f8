//! Uploads on their way: each file is written beside its place and put there by a rename when everything arrived.
//!
//! Until then nothing that was there changes, and when the upload fails in any way, nothing of it stays. A few files
//! cannot be replaced by a rename: those with several names, those of another user, those in a directory the user may
//! not write to. Their content is collected elsewhere and written into them at the end, after the room was reserved.
//! Everything here blocks; what needs the user's rights runs inside [`Acting::run`].

use std::collections::{BTreeMap, HashSet};
use std::ffi::OsStr;
use std::fs::{self, File, Metadata, OpenOptions, Permissions};
use std::io::{self, Seek as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, fchown};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD, FallocateFlags, accessat, fallocate};

use super::acting::Acting;
use super::metadata;
use super::tree::MadeDirs;
use crate::error::Error;
use crate::id::ExecId;

/// The most files in one upload.
pub(crate) const MAX_FILES: usize = 10_000;

/// How many files of one upload stay open until the end.
const MAX_OPEN: usize = 64;

/// How many links after one another are followed.
const MAX_LINKS: usize = 40;

/// How the names of unfinished files begin.
const PREFIX: &str = ".boxd-upload-";

/// What the name of an unfinished file says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Unfinished {
    /// A file is there already that will be replaced.
    pub(crate) replaces: bool,
}

impl Unfinished {
    /// Reads a name; none when it is not that of an unfinished upload.
    pub(crate) fn of_name(name: &OsStr) -> Option<Self> {
        let (kind, id) = name.to_str()?.strip_prefix(PREFIX)?.split_once('-')?;
        ExecId::parse(id).ok()?;
        match kind {
            "new" => Some(Self { replaces: false }),
            "old" => Some(Self { replaces: true }),
            _ => None,
        }
    }

    /// A name that nothing has yet.
    pub(crate) fn fresh_name(self) -> String {
        let kind = if self.replaces { "old" } else { "new" };
        format!("{PREFIX}{kind}-{}", ExecId::fresh())
    }
}

/// An upload of one or more files.
pub(crate) struct Staging {
    acting: Acting,
    metadata: BTreeMap<String, String>,
    /// Where content is collected that cannot be written beside its place.
    spool_dir: PathBuf,
    staged: Vec<Staged>,
    targets: HashSet<PathBuf>,
    made: MadeDirs,
}

/// One file of an upload.
struct Staged {
    /// As the client named it.
    asked: PathBuf,
    /// With links resolved.
    target: PathBuf,
    /// Written and not put into place; open for as long as few are.
    content: Content,
    file: Option<File>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Content {
    /// In this file beside the target.
    Beside(PathBuf),
    /// In a file that has no name.
    Spooled,
    /// In its place.
    Placed,
}

impl Staging {
    pub(crate) fn new(
        acting: Acting,
        metadata: BTreeMap<String, String>,
        spool_dir: PathBuf,
    ) -> Self {
        Self {
            acting,
            metadata,
            spool_dir,
            staged: Vec::new(),
            targets: HashSet::new(),
            made: MadeDirs::default(),
        }
    }

    /// Prepares for the content of the file at `path`, which [`Self::write`] takes.
    pub(crate) fn begin(&mut self, path: PathBuf) -> Result<(), Error> {
        if self.staged.len() >= MAX_FILES {
            return Err(Error::BadRequest(format!(
                "more than {MAX_FILES} files in one upload"
            )));
        }
        let acting = self.acting.clone();
        let mut staged = acting.run(|| self.prepare(path))?;
        if staged.content == Content::Spooled {
            staged.file = Some(spool(&self.spool_dir)?);
        }
        self.staged.push(staged);
        Ok(())
    }

    /// Adds to the file begun last.
    pub(crate) fn write(&mut self, data: &[u8]) -> Result<(), Error> {
        let Some((file, path)) = self.current() else {
            return Ok(());
        };
        file.write_all(data).map_err(Error::file("write", path))
    }

    /// The file begun last has all its content.
    pub(crate) fn end(&mut self) -> Result<(), Error> {
        let (acting, metadata) = (self.acting.clone(), self.metadata.clone());
        let keep_open = self.staged.len() <= MAX_OPEN;
        let Some(last) = self.staged.last_mut() else {
            return Ok(());
        };
        if let (Content::Beside(_), Some(file)) = (&last.content, &last.file)
            && !metadata.is_empty()
        {
            let kept = acting.run(|| {
                metadata::replace(file, &metadata)
                    .map_err(Error::file("keep metadata of", &last.asked))
            });
            kept?;
        }
        if !keep_open && last.content != Content::Spooled {
            last.file = None;
        }
        Ok(())
    }

    /// Puts every file into its place. Answers with their paths, in the order they came.
    pub(crate) fn commit(mut self) -> Result<Vec<PathBuf>, Error> {
        let (acting, metadata) = (self.acting.clone(), self.metadata.clone());
        acting.run(|| {
            for staged in &mut self.staged {
                staged.place(&metadata)?;
            }
            Ok(())
        })?;
        std::mem::take(&mut self.made).keep();
        let staged = std::mem::take(&mut self.staged);
        Ok(staged.into_iter().map(|staged| staged.asked).collect())
    }

    fn current(&mut self) -> Option<(&mut File, &Path)> {
        let last = self.staged.last_mut()?;
        Some((last.file.as_mut()?, &last.asked))
    }

    /// Decides how the file gets to its place, and opens what it is collected in. Runs as the user.
    fn prepare(&mut self, asked: PathBuf) -> Result<Staged, Error> {
        let target = follow_links(&asked)?;
        if !self.targets.insert(target.clone()) {
            return Err(Error::BadRequest(format!(
                "{} is in this upload twice",
                asked.display()
            )));
        }
        let existing = existing(&target)?;
        if existing.is_none()
            && let Some(parent) = target.parent()
        {
            self.made.add(MadeDirs::up_to(parent)?);
        }
        let replaceable = existing.as_ref().is_none_or(|meta| {
            meta.nlink() == 1
                && (self.acting.has_roots_rights() || meta.uid() == self.acting.user.uid)
        });
        let beside = if replaceable {
            match beside(&target, existing.as_ref(), &self.acting) {
                Ok(opened) => Some(opened),
                // The user may change the file and not its directory.
                Err(error) if existing.is_some() && is_refusal(&error) => None,
                Err(error) => return Err(Error::file("write", &target)(error)),
            }
        } else {
            None
        };
        let (content, file) = match beside {
            Some((path, file)) => (Content::Beside(path), Some(file)),
            None => (Content::Spooled, None),
        };
        Ok(Staged {
            asked,
            target,
            content,
            file,
        })
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        let (staged, mut made) = (
            std::mem::take(&mut self.staged),
            std::mem::take(&mut self.made),
        );
        let undone = self.acting.run(|| {
            for staged in staged {
                if let Content::Beside(path) = staged.content {
                    // Somebody else may have removed it.
                    drop(fs::remove_file(path));
                }
            }
            made.remove();
            Ok(())
        });
        // Without the user's rights nothing was made either.
        drop(undone);
    }
}

impl Staged {
    fn place(&mut self, metadata: &BTreeMap<String, String>) -> Result<(), Error> {
        match &self.content {
            Content::Beside(path) => {
                fs::rename(path, &self.target).map_err(Error::file("write", &self.asked))?;
                if let Some(file) = &self.file {
                    let replaces = path.file_name().and_then(Unfinished::of_name);
                    tell_watchers(file, replaces.is_some_and(|unfinished| unfinished.replaces));
                }
            }
            Content::Spooled => {
                self.copy_into_place(metadata)
                    .map_err(Error::file("write", &self.asked))?;
            }
            Content::Placed => {}
        }
        self.content = Content::Placed;
        self.file = None;
        Ok(())
    }

    fn copy_into_place(&mut self, metadata: &BTreeMap<String, String>) -> io::Result<()> {
        let Some(spooled) = &mut self.file else {
            return Ok(());
        };
        let mut target = OpenOptions::new()
            .write(true)
            .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
            .open(&self.target)?;
        if !target.metadata()?.is_file() {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        let len = spooled.metadata()?.len();
        if len > 0 {
            match fallocate(&target, FallocateFlags::KEEP_SIZE, 0, len) {
                // Not every file system can reserve room.
                Ok(()) | Err(rustix::io::Errno::OPNOTSUPP) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        spooled.rewind()?;
        io::copy(spooled, &mut target)?;
        target.set_len(len)?;
        match metadata::replace(&target, metadata) {
            Err(rustix::io::Errno::OPNOTSUPP) if metadata.is_empty() => Ok(()),
            replaced => Ok(replaced?),
        }
    }
}

/// Where writing to `path` ends up.
fn follow_links(path: &Path) -> Result<PathBuf, Error> {
    let mut path = path.to_owned();
    for _ in 0..MAX_LINKS {
        match fs::read_link(&path) {
            Ok(target) => {
                let parent = path.parent().unwrap_or(Path::new("/"));
                path = parent.join(target);
            }
            // Not a link, or nothing.
            Err(_) => return Ok(path),
        }
    }
    Err(Error::file("write", &path)(io::Error::from_raw_os_error(
        libc::ELOOP,
    )))
}

/// What is at `target`: a file the user may write to, or nothing.
fn existing(target: &Path) -> Result<Option<Metadata>, Error> {
    let meta = match fs::symlink_metadata(target) {
        Ok(meta) => meta,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Error::file("write", target)(error)),
    };
    if !meta.is_file() {
        let kind = if meta.is_dir() {
            "a directory"
        } else {
            "not a file"
        };
        return Err(Error::BadRequest(format!("{} is {kind}", target.display())));
    }
    accessat(CWD, target, Access::WRITE_OK, AtFlags::EACCESS)
        .map_err(Error::file("write", target))?;
    Ok(Some(meta))
}

/// Makes the file that collects content beside its place, with the mode and, if root acts, the owner it is to have.
fn beside(
    target: &Path,
    existing: Option<&Metadata>,
    acting: &Acting,
) -> io::Result<(PathBuf, File)> {
    let unfinished = Unfinished {
        replaces: existing.is_some(),
    };
    let path = target.with_file_name(unfinished.fresh_name());
    let file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(&path)?;
    let prepared = existing.map_or(Ok(()), |meta| {
        if acting.user.uid == 0 {
            fchown(&file, Some(meta.uid()), Some(meta.gid()))?;
        }
        file.set_permissions(Permissions::from_mode(meta.mode() & 0o777))
    });
    match prepared {
        Ok(()) => Ok((path, file)),
        Err(error) => {
            drop(fs::remove_file(&path));
            Err(error)
        }
    }
}

fn is_refusal(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EACCES | libc::EPERM | libc::EROFS)
    )
}

/// A file without a name, for boxd's eyes only.
fn spool(dir: &Path) -> Result<File, Error> {
    let open = || {
        fs::create_dir_all(dir)?;
        let path = dir.join(format!("spool-{}", ExecId::fresh()));
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)?;
        fs::remove_file(&path)?;
        Ok(file)
    };
    open().map_err(|error: io::Error| Error::file("collect an upload in", dir)(error))
}

/// Makes watchers of the file's new name see that it was written: reserving room that it has already counts as that.
fn tell_watchers(file: &File, replaces: bool) {
    let len = file.metadata().map_or(0, |meta| meta.len());
    if len > 0 || replaces {
        // Where it cannot be done, watchers see the arrival only.
        let _ = fallocate(file, FallocateFlags::KEEP_SIZE, 0, len.max(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unfinished_files_are_known_by_name() {
        for replaces in [true, false] {
            let unfinished = Unfinished { replaces };
            let name = unfinished.fresh_name();
            assert_eq!(Unfinished::of_name(OsStr::new(&name)), Some(unfinished));
        }
        for name in [
            "file",
            ".boxd-upload-",
            ".boxd-upload-new-x",
            ".boxd-upload-neu-0123456789abcdef",
        ] {
            assert_eq!(Unfinished::of_name(OsStr::new(name)), None, "{name}");
        }
    }
}
