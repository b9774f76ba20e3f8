//! What of a local tree a sync leaves here, and what changed while it was read: looked at for the result, so that nobody takes
//! a part for the whole. Changes nothing but what is to be sent.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};
use serde_json::{Value, json};

use super::select;

/// Paths of each list in a result.
const SHOWN: usize = 20;
/// Names in a sentence.
const NAMED: usize = 5;

/// What is not sent, by why.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Left {
    /// This user may not read them.
    unreadable: Vec<PathBuf>,
    /// Neither file nor link.
    special: Vec<PathBuf>,
    /// Repositories of their own in a tree of git's.
    submodules: Vec<PathBuf>,
    /// Folders that tools make, where no git says what belongs to the project.
    made: Vec<PathBuf>,
    /// Folders with files that are sent and files that git ignores.
    partly: Vec<PathBuf>,
}

impl Left {
    /// Takes out of `files` what cannot be sent.
    pub(super) fn of(files: &mut BTreeMap<PathBuf, PathBuf>) -> Self {
        let mut left = Self::default();
        files.retain(|name, path| {
            let found = fs::symlink_metadata(&path);
            let list = match found.map(|found| (found.is_symlink(), found.is_file())) {
                // What is gone since is noticed when it is packed.
                Ok((true, _)) | Err(_) => return true,
                Ok((_, true)) if access(&*path, Access::READ_OK).is_ok() => return true,
                Ok((_, true)) => &mut left.unreadable,
                Ok((_, false)) => &mut left.special,
            };
            list.push(name.clone());
            false
        });
        left
    }

    /// Adds what the choice of git leaves here of a folder.
    pub(super) fn add_git(
        &mut self,
        here: &Path,
        files: &BTreeMap<PathBuf, PathBuf>,
    ) -> Result<(), String> {
        self.submodules = select::submodules_on_disk(here)?;
        let ignored = select::ignored_files(here)?;
        let above = |path: &Path| path.parent().map(Path::to_owned);
        let sent: BTreeSet<PathBuf> = files.keys().filter_map(|path| above(path)).collect();
        let partly: BTreeSet<PathBuf> = ignored.iter().filter_map(|path| above(path)).collect();
        self.partly = partly.intersection(&sent).cloned().collect();
        Ok(())
    }

    /// Adds what is left out where there is no git.
    pub(super) fn add_plain(&mut self, here: &Path, without: &[&str]) -> Result<(), String> {
        let (special, made) = select::left_by_walk(here, without)?;
        self.special.extend(special);
        self.made = made;
        Ok(())
    }

    /// Tells of it in a result.
    pub(super) fn tell(&self, result: &mut Value, notes: &mut Vec<String>) {
        let skipped = [
            &self.unreadable,
            &self.special,
            &self.submodules,
            &self.made,
        ];
        let skipped: Vec<&PathBuf> = skipped.into_iter().flatten().collect();
        if !skipped.is_empty() {
            result["skipped"] = some(&skipped);
        }
        if !self.partly.is_empty() {
            let partly: Vec<&PathBuf> = self.partly.iter().collect();
            result["partiallyIgnored"] = some(&partly);
        }
        let mut say = |paths: &[PathBuf], what: &str| {
            if !paths.is_empty() {
                notes.push(format!("{}: {}", what, named(paths)));
            }
        };
        say(
            &self.unreadable,
            "left out, for this user may not read them",
        );
        say(
            &self.special,
            "left out, for they are neither files nor links",
        );
        say(
            &self.submodules,
            "submodules are left out; sync each folder by itself, or send a `commit` with `submodules`",
        );
        say(
            &self.made,
            "no git says what belongs here, so folders that tools make are left out; `includeIgnored` sends them",
        );
        say(
            &self.partly,
            "git ignores files beside some that are sent; send those that are needed by `alsoPaths`; in",
        );
    }
}

/// How files looked before they were read.
pub(super) struct Marks(BTreeMap<PathBuf, Option<Mark>>);

#[derive(PartialEq, Eq)]
struct Mark {
    inode: u64,
    bytes: u64,
    changed: (i64, i64),
}

impl Marks {
    /// Notes how they look.
    pub(super) fn of(files: &BTreeMap<PathBuf, PathBuf>) -> Self {
        let marks = files.iter().map(|(name, path)| (name.clone(), mark(path)));
        Self(marks.collect())
    }

    /// Those that look otherwise now.
    pub(super) fn changed(&self, files: &BTreeMap<PathBuf, PathBuf>) -> Vec<PathBuf> {
        let changed = files.iter().filter(|(name, path)| {
            let before = self.0.get(*name);
            before.is_some_and(|before| *before != mark(path))
        });
        changed.map(|(name, _)| name.clone()).collect()
    }
}

fn mark(path: &Path) -> Option<Mark> {
    let found = fs::symlink_metadata(path).ok()?;
    Some(Mark {
        inode: found.ino(),
        bytes: found.len(),
        changed: (found.mtime(), found.mtime_nsec()),
    })
}

/// Tells in a result which files changed while they were read.
pub(super) fn tell_changed(changed: &[PathBuf], result: &mut Value, notes: &mut Vec<String>) {
    if changed.is_empty() {
        return;
    }
    let shown = changed.iter().take(SHOWN);
    result["changedWhileReading"] = shown.map(|path| shown_as(path)).collect::<Vec<_>>().into();
    notes.push(format!(
        "changed while they were read, so that what was sent may be half of each; sync again: {}",
        named(changed)
    ));
}

fn some(paths: &[&PathBuf]) -> Value {
    let shown = paths.iter().take(SHOWN);
    let shown: Vec<String> = shown.map(|path| shown_as(path)).collect();
    json!({"count": paths.len(), "paths": shown})
}

/// The top of the tree has a name, too.
fn shown_as(path: &Path) -> String {
    if path.as_os_str().is_empty() {
        return ".".to_owned();
    }
    path.display().to_string()
}

fn named(paths: &[PathBuf]) -> String {
    let mut names: Vec<String> = paths
        .iter()
        .take(NAMED)
        .map(|path| shown_as(path))
        .collect();
    if paths.len() > NAMED {
        names.push(format!("and {} more", paths.len() - NAMED));
    }
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::process::Command;

    use super::*;

    fn told(left: &Left) -> Value {
        let (mut result, mut notes) = (json!({}), Vec::new());
        left.tell(&mut result, &mut notes);
        result["notes"] = notes.into();
        result
    }

    #[test]
    fn what_cannot_be_sent_is_taken_out_and_told() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::write(at("file"), "x").unwrap();
        symlink("nowhere", at("link")).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, at("pipe"), 0o600.into()).unwrap();
        let names = ["file", "link", "pipe", "gone"].map(PathBuf::from);
        let mut files: BTreeMap<_, _> = names
            .map(|name| (name.clone(), dir.path().join(name)))
            .into();
        let left = Left::of(&mut files);
        let kept: Vec<_> = files
            .keys()
            .map(|name| name.display().to_string())
            .collect();
        assert_eq!(kept, ["file", "gone", "link"]);
        let told = told(&left);
        assert_eq!(told["skipped"], json!({"count": 1, "paths": ["pipe"]}));
        assert_eq!(
            told["notes"],
            json!(["left out, for they are neither files nor links: pipe"])
        );
        assert_eq!(self::told(&Left::default()), json!({"notes": []}));
    }

    #[test]
    fn without_git_folders_that_tools_make_are_told() {
        let dir = tempfile::tempdir().unwrap();
        for folder in ["node_modules/a/node_modules", "src/dist", "src/kept"] {
            fs::create_dir_all(dir.path().join(folder)).unwrap();
        }
        rustix::fs::mkfifoat(rustix::fs::CWD, dir.path().join("src/pipe"), 0o600.into()).unwrap();
        let mut left = Left::default();
        left.add_plain(dir.path(), select::MADE).unwrap();
        let told = told(&left);
        let paths = json!(["src/pipe", "node_modules", "src/dist"]);
        assert_eq!(told["skipped"], json!({"count": 3, "paths": paths}));
    }

    #[test]
    fn folders_that_git_sends_in_part_are_told_and_so_are_submodules() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let git = |words: &[&str]| {
            let done = Command::new("git")
                .arg("-C")
                .arg(dir.path())
                .args(words)
                .output();
            assert!(done.unwrap().status.success(), "{words:?}");
        };
        git(&["init", "-q"]);
        for folder in ["src/all/ignored", "whole", "other"] {
            fs::create_dir_all(at(folder)).unwrap();
        }
        let ignore = "*.local\nwhole/\n.env\nsrc/all/ignored/*\n";
        for (name, text) in [
            (".gitignore", ignore),
            (".env", "A=1"),
            ("src/a", "a"),
            ("src/b.local", "b"),
            ("src/all/ignored/c", "c"),
            ("whole/d", "d"),
            ("other/e", "e"),
        ] {
            fs::write(at(name), text).unwrap();
        }
        git(&["init", "-q", "sub"]);
        let commit = [
            "-c",
            "user.name=t",
            "-c",
            "user.email=t@localhost",
            "-C",
            "sub",
        ];
        git(&[&commit[..], &["commit", "-q", "--allow-empty", "-m", "x"]].concat());
        git(&["add", "-A"]);
        let selected = select::select(dir.path(), false).unwrap().paths.into_iter();
        let mut files: BTreeMap<_, _> = selected
            .map(|name| (name.clone(), at("").join(name)))
            .collect();
        let mut left = Left::of(&mut files);
        left.add_git(dir.path(), &files).unwrap();
        let told = told(&left);
        assert_eq!(
            told["partiallyIgnored"],
            json!({"count": 2, "paths": [".", "src"]})
        );
        assert_eq!(told["skipped"], json!({"count": 1, "paths": ["sub"]}));
        assert_eq!(told["notes"].as_array().unwrap().len(), 2, "{told}");
    }

    #[test]
    fn a_file_that_changes_while_it_is_read_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let names = ["grows", "replaced", "gone", "stays"].map(PathBuf::from);
        let files: BTreeMap<_, _> = names
            .map(|name| (name.clone(), dir.path().join(name)))
            .into();
        for path in files.values() {
            fs::write(path, "one").unwrap();
        }
        let marks = Marks::of(&files);
        assert!(marks.changed(&files).is_empty());
        fs::write(dir.path().join("grows"), "one two").unwrap();
        fs::write(dir.path().join("new"), "two").unwrap();
        fs::rename(dir.path().join("new"), dir.path().join("replaced")).unwrap();
        fs::remove_file(dir.path().join("gone")).unwrap();
        let changed = marks.changed(&files);
        let (mut result, mut notes) = (json!({}), Vec::new());
        tell_changed(&changed, &mut result, &mut notes);
        assert_eq!(
            result["changedWhileReading"],
            json!(["gone", "grows", "replaced"])
        );
        assert!(
            notes[0].ends_with("sync again: gone, grows, replaced"),
            "{notes:?}"
        );
    }
}
