//! Trees of files as gzipped archives, as a box takes and hands them out: packing local ones, and in `arrived` unpacking those
//! of a box, which is not trusted. Knows no server.

mod arrived;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;
use icebox_wire::place::stays_below;

pub(crate) use self::arrived::{Arrived, Staged, save};

/// The most that is fetched, in bytes, before and after unpacking.
pub(crate) const LARGEST: u64 = 16 << 30;

/// Packs files, links and folders (names in the archive with where they are here) into a file without a name, so that a
/// connection that breaks can be tried again.
pub(crate) fn pack(files: &BTreeMap<PathBuf, PathBuf>) -> io::Result<File> {
    let archive = tempfile::tempfile()?;
    let mut tar = tar::Builder::new(GzEncoder::new(archive, Compression::fast()));
    tar.follow_symlinks(false);
    for (name, path) in files {
        append(&mut tar, name, path).map_err(|error| at(path, &error))?;
    }
    let mut archive = tar.into_inner()?.finish()?;
    io::Seek::rewind(&mut archive)?;
    Ok(archive)
}

fn append(tar: &mut tar::Builder<impl io::Write>, name: &Path, path: &Path) -> io::Result<()> {
    let found = fs::symlink_metadata(path)?;
    let mut header = tar::Header::new_gnu();
    header.set_mode(found.permissions().mode() & 0o777);
    header.set_size(0);
    if found.is_symlink() {
        header.set_entry_type(tar::EntryType::Symlink);
        tar.append_link(&mut header, name, fs::read_link(path)?)?;
    } else if found.is_dir() {
        header.set_entry_type(tar::EntryType::Directory);
        tar.append_data(&mut header, name, io::empty())?;
    } else if found.is_file() {
        header.set_size(found.len());
        // As long as its header says, whatever an editor does meanwhile.
        let file = File::open(path)?.take(found.len());
        let mut file = file.chain(io::repeat(0)).take(found.len());
        tar.append_data(&mut header, name, &mut file)?;
    }
    Ok(())
}

/// The error, with the path that it is about.
fn at(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// What there is below a folder of this machine.
#[derive(Default)]
pub(crate) struct Listed {
    /// Files, links and folders: names with where they are.
    pub(crate) files: BTreeMap<PathBuf, PathBuf>,
    /// Links that lead out of the folder, and what is neither file nor folder nor link.
    pub(crate) left_out: Vec<PathBuf>,
}

/// Lists all of a folder.
pub(crate) fn list(folder: &Path) -> io::Result<Listed> {
    let mut listed = Listed::default();
    let mut folders = vec![PathBuf::new()];
    while let Some(inner) = folders.pop() {
        let path = folder.join(&inner);
        for entry in fs::read_dir(&path).map_err(|error| at(&path, &error))? {
            let entry = entry?;
            let (name, kind) = (inner.join(entry.file_name()), entry.file_type()?);
            if kind.is_dir() {
                folders.push(name.clone());
            }
            let taken = kind.is_dir()
                || kind.is_file()
                || (kind.is_symlink() && stays_below(&name, &fs::read_link(entry.path())?));
            if taken {
                listed.files.insert(name, entry.path());
            } else {
                listed.left_out.push(name);
            }
        }
    }
    listed.left_out.sort();
    Ok(listed)
}
