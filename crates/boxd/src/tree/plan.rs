//! What an archive asks for, entry by entry, as far as that can be judged without the box: names, kinds, links, amounts.
//! Nothing is written before an archive was read to its end and all of this holds.

use std::collections::HashMap;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use icebox_wire::place::{self, PATH_LEN, plain};
use tar::EntryType;

use super::Error;
use super::place::shown;

/// The most entries of an archive.
const ENTRIES: usize = 500_000;
/// The most bytes of all names together.
const NAMES: usize = 64 * 1024 * 1024;

/// What an entry is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A folder.
    Folder,
    /// A file, whose content is staged under the number of its entry.
    File {
        /// Its permissions.
        mode: u32,
    },
    /// A link by name.
    Link {
        /// Where it points.
        target: PathBuf,
    },
    /// Another name of an earlier file.
    Same {
        /// That file.
        target: PathBuf,
    },
}

/// One entry.
#[derive(Debug)]
pub(super) struct Planned {
    /// Where, below the destination.
    pub(super) path: PathBuf,
    /// What.
    pub(super) kind: Kind,
}

/// The entries so far.
#[derive(Default)]
pub(super) struct Plan {
    entries: Vec<Planned>,
    /// The latest entry of each path.
    known: HashMap<PathBuf, usize>,
    names: usize,
}

impl Plan {
    /// All entries, in the archive's order.
    pub(super) fn entries(&self) -> &[Planned] {
        &self.entries
    }

    /// Takes one entry, and gives the number of a file whose content has to be staged.
    ///
    /// # Errors
    ///
    /// What leaves the destination, is no file, folder or link, or comes in too large an amount.
    pub(super) fn take(
        &mut self,
        path: &Path,
        kind: EntryType,
        mode: u32,
        target: Option<&Path>,
        work_dest: &Path,
    ) -> Result<Option<usize>, Error> {
        let name = shown(path);
        let Some(path) = plain(path) else {
            return Err(Error::bad(format!(
                "the archive names `{name}`: every path must be relative and without `..`"
            )));
        };
        if path.as_os_str().is_empty() {
            // The folder itself, which most archives begin with.
            return Ok(None);
        }
        let bytes = path.as_os_str().as_bytes();
        self.names += bytes.len();
        if self.entries.len() >= ENTRIES || self.names > NAMES {
            return Err(Error::TooLarge(format!(
                "an archive may have at most {ENTRIES} entries and {NAMES} bytes of names"
            )));
        }
        if bytes.len() > PATH_LEN || bytes.contains(&0) {
            return Err(Error::bad(format!(
                "the archive names `{name}`: a path is at most {PATH_LEN} bytes, none of them NUL"
            )));
        }
        self.nothing_but_folders_above(&path)?;
        let kind = if kind.is_dir() {
            Kind::Folder
        } else if kind.is_symlink() {
            let target = target.unwrap_or(Path::new(""));
            if !stays_below(&path, target, work_dest) {
                return Err(Error::bad(format!(
                    "the archive's link `{name}` points out of the destination, to `{}`",
                    shown(target)
                )));
            }
            Kind::Link {
                target: target.to_owned(),
            }
        } else if kind.is_hard_link() {
            self.earlier_file(&name, target)?
        } else if kind.is_file() || kind.is_contiguous() || kind.is_gnu_sparse() {
            Kind::File { mode: mode & 0o777 }
        } else {
            return Err(Error::bad(format!(
                "the archive's `{name}` is neither a file nor a folder nor a link; devices and pipes are not taken"
            )));
        };
        let before = self.known.get(&path).map(|number| &self.entries[*number]);
        if before.is_some_and(|before| (before.kind == Kind::Folder) != (kind == Kind::Folder)) {
            return Err(Error::bad(format!(
                "the archive has `{name}` both as a folder and as something else"
            )));
        }
        let is_file = matches!(kind, Kind::File { .. });
        let number = self.entries.len();
        self.known.insert(path.clone(), number);
        self.entries.push(Planned { path, kind });
        Ok(is_file.then_some(number))
    }

    fn nothing_but_folders_above(&self, path: &Path) -> Result<(), Error> {
        let above = path.ancestors().skip(1);
        for folder in above.filter(|folder| !folder.as_os_str().is_empty()) {
            let known = self.known.get(folder).map(|number| &self.entries[*number]);
            if known.is_some_and(|entry| entry.kind != Kind::Folder) {
                return Err(Error::bad(format!(
                    "the archive has both `{}` and something below it",
                    shown(folder)
                )));
            }
        }
        Ok(())
    }

    fn earlier_file(&self, name: &str, target: Option<&Path>) -> Result<Kind, Error> {
        let target = target.and_then(plain).unwrap_or_default();
        let known = self.known.get(&target).map(|number| &self.entries[*number]);
        match known.map(|entry| &entry.kind) {
            Some(Kind::File { .. } | Kind::Same { .. }) => Ok(Kind::Same { target }),
            Some(Kind::Folder | Kind::Link { .. }) | None => Err(Error::bad(format!(
                "the archive's `{name}` is another name of `{}`, which is no earlier file of the archive",
                shown(&target)
            ))),
        }
    }
}

/// Whether a link at `path` ends up below the destination, by its words. Absolute ones may name the destination.
fn stays_below(path: &Path, target: &Path, work_dest: &Path) -> bool {
    if target.as_os_str().is_empty() {
        return false;
    }
    if target.is_absolute() {
        // Counted from the destination, as from a link that is in it.
        return target
            .strip_prefix(work_dest)
            .is_ok_and(|rest| place::stays_below(Path::new("link"), rest));
    }
    place::stays_below(path, target)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(
        plan: &mut Plan,
        path: &str,
        kind: EntryType,
        target: Option<&str>,
    ) -> Result<Option<usize>, String> {
        let target = target.map(Path::new);
        plan.take(
            Path::new(path),
            kind,
            0o4755,
            target,
            Path::new("/work/app"),
        )
        .map_err(|error| error.to_string())
    }

    #[test]
    fn links_stay_below_the_destination() {
        let rows = [
            ("a", "b", true),
            ("a/b", "../c", true),
            ("a/b", "../../c", false),
            ("a", "..", false),
            ("a", "b/../../c", false),
            ("a", "/etc/passwd", false),
            ("a", "/work/app/x", true),
            ("a", "/work/app/../x", false),
            ("a", "/work/apple", false),
            ("a", "", false),
        ];
        for (path, target, stays) in rows {
            let said = stays_below(Path::new(path), Path::new(target), Path::new("/work/app"));
            assert_eq!(said, stays, "{path} -> {target}");
        }
    }

    #[test]
    fn a_plan_refuses_what_is_no_tree_of_files() {
        let rows = [
            ("../x", EntryType::Regular, None, "without `..`"),
            ("/x", EntryType::Regular, None, "must be relative"),
            ("d", EntryType::Char, None, "neither a file"),
            ("d", EntryType::Fifo, None, "neither a file"),
            ("l", EntryType::Symlink, Some("../x"), "points out"),
            ("l", EntryType::Link, Some("other"), "no earlier file"),
            ("file/x", EntryType::Regular, None, "both `file`"),
            ("file", EntryType::Directory, None, "both as a folder"),
        ];
        for (path, kind, target, expected) in rows {
            let mut plan = Plan::default();
            take(&mut plan, "file", EntryType::Regular, None).unwrap();
            let said = take(&mut plan, path, kind, target).unwrap_err();
            assert!(said.contains(expected), "{path}: {said}");
        }
    }

    #[test]
    fn a_file_loses_the_right_to_change_users() {
        let mut plan = Plan::default();
        assert_eq!(take(&mut plan, "./", EntryType::Directory, None), Ok(None));
        assert_eq!(
            take(&mut plan, "./a//b", EntryType::Regular, None),
            Ok(Some(0))
        );
        assert_eq!(plan.entries()[0].path, Path::new("a/b"));
        assert_eq!(plan.entries()[0].kind, Kind::File { mode: 0o755 });
        assert_eq!(take(&mut plan, "c", EntryType::Link, Some("a/b")), Ok(None));
    }
}
