//! Trees of files as gzipped archives, as a box takes and hands them out: packing local ones, and unpacking those of a box,
//! which is not trusted. Nothing is written outside the target, and the target changes only when everything has arrived.
//! Knows no server.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read, Write as _};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Component, Path, PathBuf};

use flate2::Compression;
use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;

/// The most that is fetched, in bytes, before and after unpacking.
pub(crate) const LARGEST: u64 = 16 << 30;
/// The permissions of a file of which nothing else is known.
const PLAIN: u32 = 0o644;

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
                || (kind.is_symlink() && stays(&name, &fs::read_link(entry.path())?));
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

/// A folder of a box that has arrived beside the place that it is meant for. Dropped, it is gone.
pub(crate) struct Arrived {
    staging: tempfile::TempDir,
    /// Links that lead out of the folder, and special files, which were not made.
    pub(crate) left_out: Vec<PathBuf>,
    /// Links in the archive, which are made when all else is there, so that nothing is written through one.
    links: Vec<(PathBuf, PathBuf)>,
}

impl Arrived {
    /// Unpacks an archive of one folder beside `target`.
    pub(crate) fn unpack(body: &mut impl Read, target: &Path) -> io::Result<Self> {
        let above = target.parent();
        let above = above.ok_or_else(|| io::Error::other("it is no place for a folder"))?;
        fs::create_dir_all(above)?;
        let staging = tempfile::Builder::new()
            .prefix(".icebox-pull-")
            .tempdir_in(above)?;
        let mut arrived = Self {
            staging,
            left_out: Vec::new(),
            links: Vec::new(),
        };
        fs::create_dir(arrived.top())?;
        arrived.take_all(body)?;
        Ok(arrived)
    }

    /// Where it is now.
    pub(crate) fn top(&self) -> PathBuf {
        self.staging.path().join("top")
    }

    fn take_all(&mut self, body: &mut impl Read) -> io::Result<()> {
        let mut archive = tar::Archive::new(MultiGzDecoder::new(body).take(LARGEST));
        for entry in archive.entries()? {
            self.take(&mut entry?)?;
        }
        for (inner, _) in &self.links {
            if let Some(folder) = self.top().join(inner).parent() {
                fs::create_dir_all(folder)?;
            }
        }
        for (inner, target) in &self.links {
            symlink(target, self.top().join(inner))?;
        }
        Ok(())
    }

    fn take(&mut self, entry: &mut tar::Entry<'_, impl Read>) -> io::Result<()> {
        let path = entry.path()?.into_owned();
        let inner: PathBuf = path.components().skip(1).collect();
        let plain = inner
            .components()
            .all(|part| matches!(part, Component::Normal(_)));
        let kind = entry.header().entry_type();
        let to = self.top().join(&inner);
        if !plain {
            self.left_out.push(path);
        } else if kind.is_dir() {
            fs::create_dir_all(&to)?;
        } else if kind.is_symlink() {
            let target = entry.link_name()?.unwrap_or_default().into_owned();
            if stays(&inner, &target) {
                self.links.push((inner, target));
            } else {
                self.left_out.push(inner);
            }
        } else if kind.is_file() {
            if let Some(folder) = to.parent() {
                fs::create_dir_all(folder)?;
            }
            let mode = entry.header().mode()? & 0o777;
            let mut file = File::create_new(&to)?;
            io::copy(entry, &mut file)?;
            file.set_permissions(fs::Permissions::from_mode(mode | 0o600))?;
        } else {
            self.left_out.push(inner);
        }
        Ok(())
    }

    /// Moves what was at `target` out of the way; it goes with the staging.
    pub(crate) fn set_aside(&self, target: &Path) -> io::Result<()> {
        fs::rename(target, self.staging.path().join("before"))
    }

    /// Puts it at `target`: in one step, or file by file into a folder that is there.
    pub(crate) fn settle(self, target: &Path) -> io::Result<()> {
        if fs::symlink_metadata(target).is_err() {
            return fs::rename(self.top(), target);
        }
        // The target itself may be a link: it was named.
        let target = target.canonicalize()?;
        fits(&self.top(), &target)?;
        merge(&self.top(), &target)
    }
}

/// Files never replace folders, nor the other way round, and no link that is there already is followed: an earlier copy may
/// have brought it. Found before the first file moves.
fn fits(from: &Path, to: &Path) -> io::Result<()> {
    let refuse = |is: &str, arrives: &str| {
        let text = format!("{} is {is} here and {arrives} in the box", to.display());
        Err(io::Error::new(io::ErrorKind::AlreadyExists, text))
    };
    let Ok(there) = fs::symlink_metadata(to) else {
        return Ok(());
    };
    if !from.symlink_metadata()?.is_dir() {
        return if there.is_dir() {
            refuse("a folder", "none")
        } else {
            Ok(())
        };
    }
    if there.is_symlink() {
        return refuse("a link", "a folder");
    }
    if !there.is_dir() {
        return refuse("a file", "a folder");
    }
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        fits(&entry.path(), &to.join(entry.file_name()))?;
    }
    Ok(())
}

/// Moves what is in the folder `from` into the folder `to`.
fn merge(from: &Path, to: &Path) -> io::Result<()> {
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        if entry.file_type()?.is_dir() && target.is_dir() {
            merge(&source, &target)?;
        } else {
            fs::rename(&source, &target)?;
        }
    }
    Ok(())
}

/// Writes a file that is there whole or not at all.
pub(crate) fn save(body: &mut impl Read, target: &Path, mode: Option<u32>) -> io::Result<()> {
    // A name without a folder is one in the working directory.
    let above = target
        .parent()
        .filter(|above| !above.as_os_str().is_empty());
    let above = above.unwrap_or(Path::new("."));
    fs::create_dir_all(above)?;
    let mut file = tempfile::NamedTempFile::new_in(above)?;
    io::copy(body, &mut file)?;
    file.flush()?;
    // A temporary file is for its owner only; this one is a file like any other.
    let mode = fs::Permissions::from_mode(mode.unwrap_or(PLAIN) & 0o777);
    file.as_file().set_permissions(mode)?;
    file.persist(target)?;
    Ok(())
}

/// Whether a link at `path` leads to something in the same folder, by its words.
pub(crate) fn stays(path: &Path, target: &Path) -> bool {
    let mut depth = path.components().count().saturating_sub(1);
    for part in target.components() {
        match part {
            Component::Normal(_) => depth += 1,
            Component::CurDir => {}
            Component::ParentDir if depth > 0 => depth -= 1,
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_that_lead_out_are_left_out() {
        for (path, target, inside) in [
            ("a", "b", true),
            ("a/b", "../c", true),
            ("a", "../c", false),
            ("a", "/etc/passwd", false),
        ] {
            assert_eq!(
                stays(Path::new(path), Path::new(target)),
                inside,
                "{path} -> {target}"
            );
        }
    }

    /// An archive of entries: a name, its content, or where it points.
    fn archive(entries: &[(&str, Result<&str, &str>)]) -> Vec<u8> {
        let mut tar = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
        for (name, what) in entries {
            let mut header = tar::Header::new_gnu();
            header.set_mode(0o755);
            match what {
                Ok(content) => {
                    header.set_size(u64::try_from(content.len()).unwrap());
                    tar.append_data(&mut header, name, content.as_bytes())
                        .unwrap();
                }
                Err(target) => {
                    header.set_entry_type(tar::EntryType::Symlink);
                    header.set_size(0);
                    tar.append_link(&mut header, name, target).unwrap();
                }
            }
        }
        tar.into_inner().unwrap().finish().unwrap()
    }

    fn unpack(archive: &[u8], target: &Path) -> io::Result<Arrived> {
        Arrived::unpack(&mut &archive[..], target)
    }

    #[test]
    fn an_archive_writes_nothing_outside() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("t");
        let entries = [
            ("top/run", Ok("x")),
            ("top/out", Err("/etc")),
            ("top/in", Err("run")),
        ];
        let arrived = unpack(&archive(&entries), &target).unwrap();
        assert_eq!(arrived.left_out, [Path::new("out")]);
        arrived.settle(&target).unwrap();
        assert_eq!(fs::read_link(target.join("in")).unwrap(), Path::new("run"));
        let mode = fs::metadata(target.join("run")).unwrap().permissions();
        assert_eq!(mode.mode() & 0o777, 0o755);
        let left: Vec<_> = fs::read_dir(dir.path()).unwrap().collect();
        assert_eq!(left.len(), 1, "no staging is left: {left:?}");
    }

    #[test]
    fn nothing_is_written_through_a_link() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("t");
        // Inside by its words, and outside once the first link is followed.
        let entries = [
            ("top/d/up", Err("..")),
            ("top/d/e/out", Err("../../d/up/..")),
            ("top/d/e/out/escaped", Ok("x")),
        ];
        assert!(unpack(&archive(&entries), &target).is_err());
        assert!(!dir.path().join("escaped").exists() && !target.exists());
        // Nor through one that an earlier copy brought.
        let before = [("top/a", Err("b"))];
        unpack(&archive(&before), &target)
            .unwrap()
            .settle(&target)
            .unwrap();
        let after = [("top/a/x", Ok("x"))];
        let arrived = unpack(&archive(&after), &target).unwrap();
        assert!(arrived.settle(&target).is_err());
    }

    #[test]
    fn what_was_packed_is_unpacked_with_its_modes_and_empty_folders() {
        let dir = tempfile::tempdir().unwrap();
        let from = dir.path().join("from");
        fs::create_dir_all(from.join("empty")).unwrap();
        fs::write(from.join("run"), "#!/bin/sh").unwrap();
        fs::set_permissions(from.join("run"), fs::Permissions::from_mode(0o750)).unwrap();
        symlink("run", from.join("link")).unwrap();
        let names = ["empty", "run", "link"];
        let files = names.map(|name| (Path::new("top").join(name), from.join(name)));
        let mut packed = pack(&files.into()).unwrap();
        let to = dir.path().join("to");
        let arrived = Arrived::unpack(&mut packed, &to).unwrap();
        arrived.settle(&to).unwrap();
        assert!(to.join("empty").is_dir());
        assert_eq!(fs::read_link(to.join("link")).unwrap(), Path::new("run"));
        let mode = fs::metadata(to.join("run")).unwrap().permissions();
        assert_eq!(mode.mode() & 0o777, 0o750);
    }

    #[test]
    fn a_file_that_breaks_off_changes_nothing() {
        struct Broken;
        impl Read for Broken {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                Err(io::ErrorKind::ConnectionReset.into())
            }
        }
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("file");
        fs::write(&target, "old").unwrap();
        assert!(save(&mut b"half".chain(Broken), &target, None).is_err());
        assert_eq!(fs::read_to_string(&target).unwrap(), "old");
        save(&mut &b"new"[..], &target, Some(0o700)).unwrap();
        assert_eq!(fs::read_to_string(&target).unwrap(), "new");
        let left: Vec<_> = fs::read_dir(dir.path()).unwrap().collect();
        assert_eq!(left.len(), 1, "{left:?}");
    }
}
