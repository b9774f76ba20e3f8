//! What a box hands out, on its way to a place here. Nothing is written outside the target, also by a copy that comes after
//! this one, and the target changes only when everything has arrived.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Read, Write as _};
use std::os::unix::fs::{
    DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, symlink,
};
use std::path::{Component, Path, PathBuf};

use flate2::read::MultiGzDecoder;
use icebox_wire::place::stays_below;
use rustix::fs::{Access, access};

use super::{LARGEST, at};

/// The permissions of a file of which nothing else is known.
const PLAIN: u32 = 0o644;
/// What the owner keeps of a file and of a folder, to be able to replace and remove them.
const OWN_FILE: u32 = 0o600;
const OWN_FOLDER: u32 = 0o700;

/// Where a folder waits until all of it is there.
#[derive(Clone, Copy)]
pub(crate) enum Staged {
    /// In the target, if that is a folder: the one above may be somebody else's, or on another disk.
    Inside,
    /// Beside the target, which can then be set aside.
    Beside,
}

/// A folder of a box that has arrived. Dropped, it is gone.
pub(crate) struct Arrived {
    staging: tempfile::TempDir,
    /// Links that lead out of the folder, and special files, which were not made.
    pub(crate) left_out: Vec<PathBuf>,
    /// Links in the archive, which are made when all else is there, so that nothing is written through one.
    links: Vec<(PathBuf, PathBuf)>,
}

impl Arrived {
    /// Unpacks an archive of one folder that is meant for `target`. A link at that place is not followed.
    pub(crate) fn unpack(body: &mut impl Read, target: &Path, staged: Staged) -> io::Result<Self> {
        Self::unpack_within(body, target, staged, LARGEST)
    }

    /// The same, of at most so many bytes.
    fn unpack_within(
        body: &mut impl Read,
        target: &Path,
        staged: Staged,
        largest: u64,
    ) -> io::Result<Self> {
        let is_folder = fs::symlink_metadata(target).is_ok_and(|found| found.is_dir());
        let around = match staged {
            Staged::Inside if is_folder => Some(target),
            Staged::Inside | Staged::Beside => target.parent(),
        };
        let around = around.ok_or_else(|| io::Error::other("it is no place for a folder"))?;
        fs::create_dir_all(around)?;
        let staging = tempfile::Builder::new()
            .prefix(".icebox-pull-")
            .tempdir_in(around)
            .map_err(|error| at(around, &error))?;
        let mut arrived = Self {
            staging,
            left_out: Vec::new(),
            links: Vec::new(),
        };
        arrived.take_all(body, largest)?;
        Ok(arrived)
    }

    /// Where it is now.
    pub(crate) fn top(&self) -> PathBuf {
        self.staging.path().join("top")
    }

    fn take_all(&mut self, body: &mut impl Read, largest: u64) -> io::Result<()> {
        let mut archive = tar::Archive::new(Limited {
            inner: MultiGzDecoder::new(body),
            left: largest,
        });
        for entry in archive.entries()? {
            self.take(&mut entry?)?;
        }
        // It is whole only if it ends where its compression does, which has a checksum there.
        io::copy(&mut archive.into_inner(), &mut io::sink())?;
        fs::create_dir_all(self.top())?;
        self.make_links()
    }

    /// Makes the links. Their folders come first, so that none of these can be another link.
    fn make_links(&mut self) -> io::Result<()> {
        let top = self.top();
        for (inner, _) in &self.links {
            if let Some(folder) = top.join(inner).parent() {
                fs::create_dir_all(folder)?;
            }
        }
        let links = std::mem::take(&mut self.links);
        let (made, astray): (Vec<_>, Vec<_>) = links
            .into_iter()
            .partition(|(inner, target)| goes_back_through_folders(&top, inner, target));
        self.left_out
            .extend(astray.into_iter().map(|(inner, _)| inner));
        for (inner, target) in &made {
            symlink(target, top.join(inner))?;
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
        let mode = entry.header().mode()? & 0o777;
        // Without a slash at its end, which the top would have.
        let to = self.top().join(&inner).components().collect::<PathBuf>();
        if !plain {
            self.left_out.push(path);
        } else if kind.is_dir() {
            make_folder(&to, mode)?;
        } else if kind.is_symlink() {
            let target = entry.link_name()?.unwrap_or_default().into_owned();
            if stays_below(&inner, &target) {
                self.links.push((inner, target));
            } else {
                self.left_out.push(inner);
            }
        } else if kind.is_file() {
            if let Some(folder) = to.parent() {
                fs::create_dir_all(folder)?;
            }
            // The kernel takes off what the umask forbids.
            let mut options = File::options();
            let options = options.write(true).create_new(true).mode(mode | OWN_FILE);
            io::copy(entry, &mut options.open(&to)?)?;
        } else {
            self.left_out.push(inner);
        }
        Ok(())
    }

    /// Moves what was at `target` out of the way; it goes with the staging, which is beside it.
    pub(crate) fn set_aside(&self, target: &Path) -> io::Result<()> {
        fs::rename(target, self.staging.path().join("before"))
    }

    /// Puts it at `target`: in one step, or file by file into a folder that is there.
    pub(crate) fn settle(self, target: &Path) -> io::Result<()> {
        if fs::symlink_metadata(target).is_err() {
            return fs::rename(self.top(), target);
        }
        fits(&self.top(), target)?;
        merge(&self.top(), target)
    }
}

fn make_folder(path: &Path, mode: u32) -> io::Result<()> {
    if let Some(above) = path.parent() {
        fs::create_dir_all(above)?;
    }
    match DirBuilder::new().mode(mode | OWN_FOLDER).create(path) {
        // Something in it came first.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        made => made,
    }
}

/// Whether a link that stays inside by its words goes back (`..`) only out of what is a folder for good. Behind the name of
/// another link, or of nothing yet, it would lead to where that link does, and from there out.
fn goes_back_through_folders(top: &Path, inner: &Path, target: &Path) -> bool {
    let mut here = top.join(inner);
    here.pop();
    for part in target.components() {
        match part {
            Component::ParentDir => {
                if !fs::symlink_metadata(&here).is_ok_and(|found| found.is_dir()) {
                    return false;
                }
                here.pop();
            }
            Component::Normal(name) => here.push(name),
            Component::CurDir | Component::RootDir | Component::Prefix(_) => {}
        }
    }
    true
}

/// Files never replace folders, nor the other way round, and no link that is there already is followed: an earlier copy may
/// have brought it. Folders that get something can be written to. All found before the first file moves.
fn fits(from: &Path, to: &Path) -> io::Result<()> {
    let refuse = |is: &str, arrives: &str| {
        let text = format!("{} is {is} here and {arrives} in the box", to.display());
        Err(io::Error::new(io::ErrorKind::AlreadyExists, text))
    };
    let Ok(there) = fs::symlink_metadata(to) else {
        return Ok(());
    };
    let arriving = from.symlink_metadata()?;
    if !arriving.is_dir() {
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
    let mut gets_something = false;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let place = to.join(entry.file_name());
        fits(&entry.path(), &place)?;
        let merged = entry.file_type()?.is_dir() && place.symlink_metadata().is_ok();
        gets_something |= !merged;
    }
    if !gets_something {
        return Ok(());
    }
    if there.dev() != arriving.dev() {
        let text = format!(
            "{} is on another disk than the folder that it is in: copy to it by itself",
            to.display()
        );
        return Err(io::Error::new(io::ErrorKind::CrossesDevices, text));
    }
    access(to, Access::WRITE_OK | Access::EXEC_OK).map_err(|error| at(to, &error.into()))
}

/// Moves what is in the folder `from` into the folder `to`.
fn merge(from: &Path, to: &Path) -> io::Result<()> {
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        if entry.file_type()?.is_dir() && target.is_dir() {
            merge(&source, &target)?;
            continue;
        }
        if let (true, Some(mode)) = (entry.file_type()?.is_file(), mode_of(&target)) {
            fs::set_permissions(&source, fs::Permissions::from_mode(mode))?;
        }
        fs::rename(&source, &target)?;
    }
    Ok(())
}

/// The permissions that whoever owns a file that is there gave it. What replaces it keeps them.
fn mode_of(target: &Path) -> Option<u32> {
    let found = fs::symlink_metadata(target).ok()?;
    found.is_file().then(|| found.permissions().mode() & 0o777)
}

/// Writes a file that is there whole or not at all. A link at that place is replaced.
pub(crate) fn save(body: &mut impl Read, target: &Path, mode: Option<u32>) -> io::Result<()> {
    // A name without a folder is one in the working directory.
    let above = target
        .parent()
        .filter(|above| !above.as_os_str().is_empty());
    let above = above.unwrap_or(Path::new("."));
    fs::create_dir_all(above)?;
    // The kernel takes off what the umask forbids.
    let mode = (mode.unwrap_or(PLAIN) & 0o777) | OWN_FILE;
    let mut file = tempfile::Builder::new()
        .permissions(fs::Permissions::from_mode(mode))
        .tempfile_in(above)?;
    io::copy(body, &mut file)?;
    file.flush()?;
    if let Some(mode) = mode_of(target) {
        file.as_file()
            .set_permissions(fs::Permissions::from_mode(mode))?;
    }
    file.persist(target)?;
    Ok(())
}

/// A reader that fails after so many bytes: an end there would look like the archive's.
struct Limited<R> {
    inner: R,
    left: u64,
}

impl<R: Read> Read for Limited<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let len = self.inner.read(into)?;
        let left = self.left.checked_sub(len as u64);
        self.left = left.ok_or_else(|| io::Error::other("it unpacks to more than is taken"))?;
        Ok(len)
    }
}

#[cfg(test)]
mod tests {
    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::super::pack;
    use super::*;

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
        Arrived::unpack(&mut &archive[..], target, Staged::Inside)
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
        let entries = [("top/out", Err("in")), ("top/out/escaped", Ok("x"))];
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
        // Nor through the place itself.
        let link = dir.path().join("link");
        symlink("t", &link).unwrap();
        let arrived = unpack(&archive(&after), &link).unwrap();
        assert!(arrived.settle(&link).is_err());
        save(&mut &b"x"[..], &link, None).unwrap();
        assert!(link.symlink_metadata().unwrap().is_file());
    }

    #[test]
    fn a_link_goes_back_out_of_folders_only() {
        let others = [
            ("top/d/up", Err("..")),
            ("top/d/e/file", Ok("x")),
            ("top/packages/ws/cli", Ok("x")),
            ("top/ws", Err("packages/ws")),
        ];
        for (target, taken) in [
            ("../../d/up/../.bashrc", false),
            // Nothing yet, and a link out of the next archive.
            ("../later/../.bashrc", false),
            ("file/../x", false),
            ("../e/../e/file", true),
            ("../../d/up/x", true),
            ("../../ws/cli", true),
        ] {
            let dir = tempfile::tempdir().unwrap();
            let mut entries = vec![("top/d/e/out", Err(target))];
            entries.extend(others);
            let arrived = unpack(&archive(&entries), &dir.path().join("t")).unwrap();
            assert_eq!(arrived.left_out.is_empty(), taken, "{target}");
            let made = arrived.top().join("d/e/out").is_symlink();
            assert_eq!(made, taken, "{target}");
        }
    }

    #[test]
    fn an_archive_is_whole_or_nothing() {
        let whole = archive(&[("top/file", Ok("x"))]);
        let end = whole.len();
        let mut flipped = whole.clone();
        // In the checksum, which is behind all that a tar has.
        flipped[end - 8] ^= 1;
        let unpacked = 4 * 512;
        for (bytes, limit, taken) in [
            (&whole[..], LARGEST, true),
            (&whole[..end - 1], LARGEST, false),
            (&whole[..end / 2], LARGEST, false),
            (&flipped, LARGEST, false),
            (&whole, unpacked, true),
            (&whole, unpacked - 1, false),
            // Between two entries, where an end would look like the archive's.
            (&whole, 1024, false),
        ] {
            let dir = tempfile::tempdir().unwrap();
            let target = dir.path().join("t");
            let arrived = Arrived::unpack_within(&mut &bytes[..], &target, Staged::Inside, limit);
            assert_eq!(arrived.is_ok(), taken, "{} bytes, {limit}", bytes.len());
        }
    }

    #[test]
    fn into_a_folder_that_is_there_everything_happens_inside_it() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("t");
        fs::create_dir(&target).unwrap();
        fs::write(target.join("kept"), "old").unwrap();
        fs::set_permissions(target.join("kept"), fs::Permissions::from_mode(0o600)).unwrap();
        let entries = [("top/kept", Ok("new")), ("top/run", Ok("x"))];
        let arrived = unpack(&archive(&entries), &target).unwrap();
        assert!(arrived.top().starts_with(&target));
        arrived.settle(&target).unwrap();
        let mode = |name: &str| {
            let found = fs::metadata(target.join(name)).unwrap();
            found.permissions().mode() & 0o777
        };
        assert_eq!((mode("kept"), mode("run")), (0o600, 0o755));
        assert_eq!(fs::read_to_string(target.join("kept")).unwrap(), "new");
        assert_eq!(fs::read_dir(&target).unwrap().count(), 2);
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
        let arrived = Arrived::unpack(&mut packed, &to, Staged::Inside).unwrap();
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
        fs::set_permissions(&target, fs::Permissions::from_mode(0o640)).unwrap();
        save(&mut &b"new"[..], &target, Some(0o777)).unwrap();
        assert_eq!(fs::read_to_string(&target).unwrap(), "new");
        assert_eq!(mode_of(&target), Some(0o640));
        let left: Vec<_> = fs::read_dir(dir.path()).unwrap().collect();
        assert_eq!(left.len(), 1, "{left:?}");
    }
}
