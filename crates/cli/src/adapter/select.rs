//! Which local files a sync sends: git's own choice in a git tree, everything but what is made by tools elsewhere. Owns the
//! command lines of git; reads no file's content.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Folders that are left out where no git says what belongs to a project.
pub(super) const MADE: &[&str] = &[
    "node_modules",
    ".git",
    "dist",
    "dist-web",
    "build",
    ".cache",
    "coverage",
    ".venv",
    "venv",
    "__pycache__",
    "target",
    ".next",
    ".turbo",
];
/// The most files of one sync; the box takes as many entries of an archive.
const FILES: usize = 400_000;
/// The most globs.
const GLOBS: usize = 1_000;
/// The longest of them, in bytes.
const GLOB_LEN: usize = 200;

/// Globs of what is left alone: neither sent nor deleted. They know `*`, `**` and `?`.
pub(super) struct Excludes(Vec<String>);

impl Excludes {
    pub(super) fn new(globs: &[String]) -> Result<Self, String> {
        if globs.len() > GLOBS {
            return Err(format!("`exclude` must be a list of at most {GLOBS} globs"));
        }
        let mut known = Vec::new();
        for glob in globs {
            let plain = glob.trim_end_matches('/').trim_start_matches('/');
            if plain.is_empty() || plain.len() > GLOB_LEN || plain.contains(['[', '{', '\\']) {
                return Err(format!(
                    "`exclude` takes globs of `*`, `**` and `?`, at most {GLOB_LEN} bytes each; `{glob}` is none"
                ));
            }
            // Without a slash it fits at any depth.
            if glob.trim_end_matches('/').contains('/') {
                known.push(plain.to_owned());
            } else {
                known.push(format!("**/{plain}"));
            }
        }
        Ok(Self(known))
    }

    /// Whether a path, or a folder above it, is left alone.
    pub(super) fn cover(&self, path: &Path) -> bool {
        let mut above = path.ancestors().filter(|path| !path.as_os_str().is_empty());
        above.any(|path| {
            let path = path.as_os_str().as_bytes();
            self.0.iter().any(|glob| fits(glob.as_bytes(), path))
        })
    }
}

/// Whether a glob fits a whole path: `*` and `?` stay within a name, `**` crosses folders.
fn fits(glob: &[u8], path: &[u8]) -> bool {
    match glob {
        [] => path.is_empty(),
        [b'*', b'*', b'/', rest @ ..] => {
            let begins = |at: usize| at == 0 || path[at - 1] == b'/';
            (0..path.len()).any(|at| begins(at) && fits(rest, &path[at..]))
        }
        [b'*', b'*', rest @ ..] => (0..=path.len()).any(|at| fits(rest, &path[at..])),
        [b'*', rest @ ..] => {
            let name = path
                .iter()
                .position(|byte| *byte == b'/')
                .unwrap_or(path.len());
            (0..=name).any(|at| fits(rest, &path[at..]))
        }
        [b'?', rest @ ..] => {
            matches!(path, [byte, after @ ..] if *byte != b'/' && fits(rest, after))
        }
        [byte, rest @ ..] => {
            matches!(path, [other, after @ ..] if other == byte && fits(rest, after))
        }
    }
}

/// The files of a folder, relative to it, and how they were chosen.
pub(super) struct Selection {
    pub(super) paths: BTreeSet<PathBuf>,
    pub(super) how: &'static str,
    /// Whether git chose.
    pub(super) git: bool,
}

/// Chooses the files of `folder`.
pub(super) fn select(folder: &Path, everything: bool) -> Result<Selection, String> {
    if everything {
        return Ok(Selection {
            paths: walk(folder, &[".git"])?,
            how: "everything but .git",
            git: false,
        });
    }
    if !is_git(folder) {
        return Ok(Selection {
            paths: walk(folder, MADE)?,
            how: "everything but folders that tools make",
            git: false,
        });
    }
    let listed = git(folder, &["ls-files", "-co", "--exclude-standard", "-z"])?;
    let paths = split(&listed);
    // What git still knows and the disk has not is not there to be sent; a folder is a submodule.
    let paths = paths.filter(|path| {
        let found = fs::symlink_metadata(folder.join(path));
        found.is_ok_and(|found| !found.is_dir())
    });
    let paths = bounded(paths.collect())?;
    Ok(Selection {
        paths,
        how: "git: tracked files, and new ones that are not ignored",
        git: true,
    })
}

/// Whether git looks after a folder.
pub(super) fn is_git(folder: &Path) -> bool {
    git(folder, &["rev-parse", "--is-inside-work-tree"]).is_ok_and(|said| said.starts_with(b"true"))
}

/// The full name of a commit.
pub(super) fn commit(folder: &Path, revision: &str) -> Result<String, String> {
    if revision.is_empty() || revision.starts_with('-') || revision.len() > 200 {
        return Err("`commit` must be the name of a commit".to_owned());
    }
    let name = format!("{revision}^{{commit}}");
    let found = git(
        folder,
        &[
            "rev-parse",
            "--verify",
            "--quiet",
            "--end-of-options",
            &name,
        ],
    );
    let found = found.map_err(|_| format!("`commit`: git knows no commit `{revision}` here"))?;
    Ok(String::from_utf8_lossy(&found).trim().to_owned())
}

/// The files of a commit in `folder`, unpacked into `into`.
pub(super) fn checkout(folder: &Path, commit: &str, into: &Path) -> Result<(), String> {
    let archive = Command::new("git")
        .arg("-C")
        .arg(folder)
        .args(["archive", "--format=tar", commit])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    let mut archive = archive.map_err(|error| format!("git does not run: {error}"))?;
    let unpacked = match archive.stdout.take() {
        Some(tar) => tar::Archive::new(tar).unpack(into),
        None => Ok(()),
    };
    let ended = archive.wait().map_err(|error| format!("git: {error}"))?;
    unpacked.map_err(|error| format!("the commit's files cannot be unpacked: {error}"))?;
    if ended.success() {
        Ok(())
    } else {
        Err("git could not hand out the commit's files".to_owned())
    }
}

/// A submodule, as a commit has it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Submodule {
    /// Where it is.
    pub(super) path: PathBuf,
    /// The commit it is at.
    pub(super) commit: String,
}

/// The submodules of a commit below `folder`.
pub(super) fn submodules(folder: &Path, commit: &str) -> Result<Vec<Submodule>, String> {
    let listed = git(folder, &["ls-tree", "-r", "-z", commit])?;
    let read = |line: PathBuf| {
        let line = line.as_os_str().as_bytes();
        let tab = line.iter().position(|byte| *byte == b'\t')?;
        let about = std::str::from_utf8(&line[..tab]).ok()?;
        let commit = about.strip_prefix("160000 commit ")?;
        Some(Submodule {
            path: PathBuf::from(OsStr::from_bytes(&line[tab + 1..])),
            commit: commit.to_owned(),
        })
    };
    Ok(split(&listed).filter_map(read).collect())
}

/// Which of these paths git ignores.
pub(super) fn ignored(folder: &Path, paths: &[PathBuf]) -> Result<BTreeSet<PathBuf>, String> {
    let child = Command::new("git")
        .arg("-C")
        .arg(folder)
        .args(["check-ignore", "--no-index", "-z", "--stdin"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    let mut child = child.map_err(|error| format!("git does not run: {error}"))?;
    let mut names = Vec::new();
    for path in paths {
        names.extend_from_slice(path.as_os_str().as_bytes());
        names.push(0);
    }
    let mut input = child.stdin.take();
    let writing = std::thread::spawn(move || {
        if let Some(input) = &mut input {
            // One that ends early says so by its exit code.
            let _ = std::io::Write::write_all(input, &names);
        }
    });
    let output = child.wait_with_output();
    let output = output.map_err(|error| format!("git: {error}"))?;
    if writing.join().is_err() || !matches!(output.status.code(), Some(0 | 1)) {
        return Err("git could not say which files it ignores".to_owned());
    }
    Ok(split(&output.stdout).collect())
}

/// Files of a folder that are not as its last commit has them; new ones that are not ignored among them.
pub(super) fn uncommitted(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let words = [
        "status",
        "--porcelain=v1",
        "-z",
        "--no-renames",
        "--untracked-files=all",
        "--",
        ".",
    ];
    let listed = git(folder, &words)?;
    // Names begin at the top of the tree.
    let above = git(folder, &["rev-parse", "--show-prefix"])?;
    let above = above.strip_suffix(b"\n").unwrap_or(&above);
    let name = |line: PathBuf| {
        let name = line.as_os_str().as_bytes().get(3..)?.strip_prefix(above)?;
        Some(PathBuf::from(OsStr::from_bytes(name)))
    };
    Ok(split(&listed).filter_map(name).collect())
}

/// Submodules of a folder, which git names and whose files it does not.
pub(super) fn submodules_on_disk(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let listed = git(folder, &["ls-files", "-s", "-z"])?;
    let name = |line: PathBuf| {
        let line = line.as_os_str().as_bytes();
        let tab = line.iter().position(|byte| *byte == b'\t')?;
        let is_submodule = line.starts_with(b"160000 ");
        is_submodule.then(|| PathBuf::from(OsStr::from_bytes(&line[tab + 1..])))
    };
    Ok(split(&listed).filter_map(name).collect())
}

/// Files that git ignores; not those of folders that it ignores whole.
pub(super) fn ignored_files(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let words = ["ls-files", "-oi", "--exclude-standard", "--directory", "-z"];
    let listed = git(folder, &words)?;
    let is_file = |path: &PathBuf| !path.as_os_str().as_bytes().ends_with(b"/");
    Ok(split(&listed).filter(is_file).collect())
}

/// The name people know a project by.
pub(super) fn repo(folder: &Path) -> Option<String> {
    let top = git(folder, &["rev-parse", "--show-toplevel"]).ok()?;
    let top = String::from_utf8(top).ok()?;
    let name = Path::new(top.trim()).file_name()?.to_str()?;
    Some(name.chars().take(100).collect())
}

fn git(folder: &Path, words: &[&str]) -> Result<Vec<u8>, String> {
    let output = Command::new("git")
        .arg("-C")
        .arg(folder)
        .args(words)
        .stdin(Stdio::null())
        .output();
    let output = output.map_err(|error| format!("git does not run: {error}"))?;
    if output.status.success() {
        Ok(output.stdout)
    } else {
        let said = String::from_utf8_lossy(&output.stderr);
        Err(format!("git: {}", said.trim()))
    }
}

/// Names that each end with NUL.
pub(super) fn split(names: &[u8]) -> impl Iterator<Item = PathBuf> {
    let names = names.split(|byte| *byte == 0);
    let names = names.filter(|name| !name.is_empty());
    names.map(|name| PathBuf::from(OsStr::from_bytes(name)))
}

/// Every file and link below a folder, without folders of these names.
pub(super) fn walk(folder: &Path, without: &[&str]) -> Result<BTreeSet<PathBuf>, String> {
    let mut found = BTreeSet::new();
    let mut folders = vec![PathBuf::new()];
    while let Some(at) = folders.pop() {
        let listed = fs::read_dir(folder.join(&at));
        let listed = listed.map_err(|error| format!("cannot list {}: {error}", at.display()))?;
        for entry in listed {
            let entry = entry.map_err(|error| format!("cannot list {}: {error}", at.display()))?;
            let name = entry.file_name();
            let kind = entry.file_type();
            let kind = kind.map_err(|error| format!("cannot list {}: {error}", at.display()))?;
            if kind.is_dir() {
                if !without.iter().any(|other| name == *other) {
                    folders.push(at.join(name));
                }
            } else if kind.is_file() || kind.is_symlink() {
                found.insert(at.join(name));
            }
        }
        if found.len() > FILES {
            break;
        }
    }
    bounded(found)
}

/// What a walk without folders of these names passes over: what is neither file nor link, and those folders.
pub(super) fn left_by_walk(
    folder: &Path,
    without: &[&str],
) -> Result<(Vec<PathBuf>, Vec<PathBuf>), String> {
    let (mut special, mut left) = (Vec::new(), Vec::new());
    let mut folders = vec![PathBuf::new()];
    while let Some(at) = folders.pop() {
        let failed = |error: std::io::Error| format!("cannot list {}: {error}", at.display());
        for entry in fs::read_dir(folder.join(&at)).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let (name, kind) = (entry.file_name(), entry.file_type().map_err(failed)?);
            if kind.is_dir() && without.iter().any(|other| name == *other) {
                left.push(at.join(name));
            } else if kind.is_dir() {
                folders.push(at.join(name));
            } else if !kind.is_file() && !kind.is_symlink() {
                special.push(at.join(name));
            }
        }
    }
    special.sort();
    left.sort();
    Ok((special, left))
}

fn bounded(paths: BTreeSet<PathBuf>) -> Result<BTreeSet<PathBuf>, String> {
    if paths.len() > FILES {
        return Err(format!(
            "a sync sends at most {FILES} files; name a smaller folder or `exclude` some"
        ));
    }
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globs_without_a_slash_fit_at_any_depth() {
        let globs = ["*.log", "/docs", "a/**/z", "tmp/"].map(str::to_owned);
        let excludes = Excludes::new(&globs).unwrap();
        for (path, covered) in [
            ("x.log", true),
            ("a/b/x.log", true),
            ("x.logs", false),
            ("docs", true),
            ("docs/a", true),
            ("b/docs", false),
            ("a/z", true),
            ("a/b/c/z", true),
            ("b/a/z", false),
            ("tmp/x", true),
            ("b/tmp/x", true),
        ] {
            assert_eq!(excludes.cover(Path::new(path)), covered, "{path}");
        }
        assert!(Excludes::new(&["[".to_owned()]).is_err());
    }

    #[test]
    fn git_chooses_in_a_git_tree() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::write(at("a"), "a").unwrap();
        fs::create_dir_all(at("node_modules/x")).unwrap();
        fs::write(at("node_modules/x/y"), "y").unwrap();
        fs::write(at("b.log"), "b").unwrap();
        let names = |selection: Selection| {
            let names = selection.paths.into_iter();
            names
                .map(|path| path.display().to_string())
                .collect::<Vec<_>>()
        };
        assert_eq!(names(select(dir.path(), false).unwrap()), ["a", "b.log"]);
        git(dir.path(), &["init", "-q"]).unwrap();
        fs::write(at(".gitignore"), "*.log\nnode_modules\n").unwrap();
        assert_eq!(
            names(select(dir.path(), false).unwrap()),
            [".gitignore", "a"]
        );
        assert_eq!(
            names(select(dir.path(), true).unwrap()),
            [".gitignore", "a", "b.log", "node_modules/x/y"]
        );
        fs::create_dir(at("below")).unwrap();
        fs::write(at("below/c d"), "c").unwrap();
        let changed = uncommitted(dir.path()).unwrap();
        assert_eq!(changed, [".gitignore", "a", "below/c d"].map(PathBuf::from));
        let changed = uncommitted(&at("below")).unwrap();
        assert_eq!(changed, [PathBuf::from("c d")]);
        let paths = [PathBuf::from("b.log"), PathBuf::from("a")];
        let ignored = ignored(dir.path(), &paths).unwrap();
        assert_eq!(
            ignored.into_iter().collect::<Vec<_>>(),
            [Path::new("b.log")]
        );
        assert!(commit(dir.path(), "HEAD").is_err(), "there is none yet");
    }
}
