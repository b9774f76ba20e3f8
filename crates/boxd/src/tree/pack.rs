//! Handing files out: one file as it is, a folder as a gzipped tar with the folder as its top entry.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;
use rustix::fs::OFlags;
use tar::{Builder, EntryType, Header};

use super::Error;
use super::place::{self, Roots, refused, shown};

/// How deep folders are followed.
const DEEPEST: usize = 256;

/// What is at a path.
pub(super) enum Found {
    /// A file, and how it was when it was looked at.
    File(File, Look),
    /// A folder: its open form, and the name it gets in the archive.
    Folder(PathBuf, PathBuf),
}

/// How a file is.
#[derive(Clone, Copy)]
pub(super) struct Look {
    /// How long.
    pub(super) len: u64,
    /// Its permissions.
    pub(super) mode: u32,
}

/// Looks at what a path names.
pub(super) fn open(roots: &Roots, path: &str) -> Result<Found, Error> {
    let (root, path) = roots.locate(path)?;
    let open = place::open(
        place::root(&root)?,
        &path,
        OFlags::RDONLY | OFlags::NONBLOCK,
    );
    let file = File::from(open.map_err(|error| refused(&path, error))?);
    let metadata = file.metadata();
    let metadata = metadata.map_err(Error::failed(format!("cannot look at {}", shown(&path))))?;
    if metadata.is_file() {
        let look = Look {
            len: metadata.len(),
            mode: metadata.mode() & 0o777,
        };
        return Ok(Found::File(file, look));
    }
    if !metadata.is_dir() {
        return Err(Error::bad(format!(
            "`{}` is neither a file nor a folder",
            shown(&path)
        )));
    }
    let whole = root.join(&path);
    let name = whole.file_name().map(PathBuf::from);
    Ok(Found::Folder(whole, name.unwrap_or_else(|| "root".into())))
}

impl Found {
    /// Whether it is a folder.
    pub(super) fn is_dir(&self) -> bool {
        matches!(self, Self::Folder(..))
    }

    /// How the file that is sent is; a folder's archive says that of each.
    pub(super) fn look(&self) -> Option<Look> {
        match self {
            Self::File(_, look) => Some(*look),
            Self::Folder(..) => None,
        }
    }

    /// Sends it.
    pub(super) fn send(self, to: &mut impl Write) -> io::Result<()> {
        match self {
            Self::File(file, Look { len, .. }) => {
                // One that grows meanwhile is sent as long as it was; one that shrinks breaks off.
                let sent = io::copy(&mut file.take(len), to)?;
                if sent < len {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                Ok(())
            }
            Self::Folder(path, name) => {
                let mut archive = Builder::new(GzEncoder::new(to, Compression::fast()));
                append_folder(&mut archive, &path, &name, 0)?;
                archive.into_inner()?.finish()?;
                Ok(())
            }
        }
    }
}

fn append_folder(
    archive: &mut Builder<impl Write>,
    path: &Path,
    name: &Path,
    depth: usize,
) -> io::Result<()> {
    if depth > DEEPEST {
        return Err(io::Error::other("folders are nested too deep"));
    }
    let metadata = fs::symlink_metadata(path)?;
    append(
        archive,
        EntryType::Directory,
        &metadata,
        name,
        io::empty(),
        0,
    )?;
    let mut entries: Vec<_> = fs::read_dir(path)?.collect::<Result<_, _>>()?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let (path, name) = (entry.path(), name.join(entry.file_name()));
        // What went away since is not there any more.
        let Ok(metadata) = fs::symlink_metadata(&path) else {
            continue;
        };
        if metadata.is_dir() {
            append_folder(archive, &path, &name, depth + 1)?;
        } else if metadata.is_symlink() {
            let Ok(target) = fs::read_link(&path) else {
                continue;
            };
            let mut header = header(EntryType::Symlink, &metadata, 0);
            archive.append_link(&mut header, &name, &target)?;
        } else if metadata.is_file()
            && let Ok(file) = File::open(&path)
        {
            // As long as its header says, whatever is written to it meanwhile.
            let len = metadata.len();
            let content = file.take(len).chain(io::repeat(0)).take(len);
            append(archive, EntryType::Regular, &metadata, &name, content, len)?;
        }
    }
    Ok(())
}

fn append(
    archive: &mut Builder<impl Write>,
    kind: EntryType,
    metadata: &fs::Metadata,
    name: &Path,
    content: impl Read,
    len: u64,
) -> io::Result<()> {
    let mut header = header(kind, metadata, len);
    archive.append_data(&mut header, name, content)
}

fn header(kind: EntryType, metadata: &fs::Metadata, len: u64) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(metadata.mode() & 0o777);
    header.set_mtime(u64::try_from(metadata.mtime()).unwrap_or(0));
    header.set_size(len);
    header
}
