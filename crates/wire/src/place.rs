//! Which places in a box a call may name, by their words: boxd holds to it, and its server refuses by it before it wakes a
//! box for what cannot be. Owns no file: where links lead is for the kernel in the box to say.

use std::path::{Component, Path, PathBuf};

/// The working directory of a box.
pub const WORK_DIR: &str = "/work";
/// The longest path, in bytes.
pub const PATH_LEN: usize = 4_096;
/// Folders outside the working directory that a call may name.
const OTHERS: &[&str] = &["/tmp", "/dev/shm"];

/// The folder in which a path lies that may be named, and the rest of it.
///
/// # Errors
///
/// What is wrong with it, for a person, about the field `path`.
pub fn locate(work_dir: &Path, path: &str) -> Result<(PathBuf, PathBuf), String> {
    if path.is_empty() || path.len() > PATH_LEN || path.contains('\0') {
        return Err(format!(
            "`path` must be 1 to {PATH_LEN} bytes, none of them NUL"
        ));
    }
    let given = Path::new(path);
    let roots = std::iter::once(work_dir).chain(OTHERS.iter().map(Path::new));
    let mut found = roots.filter_map(|root| Some((root, given.strip_prefix(root).ok()?)));
    let (root, rest) = match found.next() {
        Some(found) => found,
        None if given.is_relative() => (work_dir, given),
        None => {
            return Err(
                "`path` must be relative to /work, or below /work, /tmp or /dev/shm".to_owned(),
            );
        }
    };
    let rest = plain(rest).ok_or("`path` must not contain `..`")?;
    Ok((root.to_owned(), rest))
}

/// Like [`locate`], for a file that is to be written.
///
/// # Errors
///
/// As there, and for a path that names no file.
pub fn locate_file(work_dir: &Path, path: &str) -> Result<(PathBuf, PathBuf), String> {
    let (root, rest) = locate(work_dir, path)?;
    if rest.as_os_str().is_empty() || path.ends_with('/') {
        return Err("`path` must name a file".to_owned());
    }
    Ok((root, rest))
}

/// The folder that a tree is merged into, relative to the working directory.
///
/// # Errors
///
/// What is wrong with it, for a person, about the field `dest`.
pub fn destination(work_dir: &Path, dest: &str) -> Result<PathBuf, String> {
    let given = Path::new(dest);
    let given = given.strip_prefix(work_dir).unwrap_or(given);
    let wrong =
        dest.is_empty() || dest.len() > PATH_LEN || dest.starts_with('~') || dest.contains('\0');
    plain(given).filter(|_| !wrong).ok_or_else(|| {
        format!(
            "`dest` must be a folder below /work: relative, at most {PATH_LEN} bytes, without `..` and `~`"
        )
    })
}

/// Whether a link at `path`, in a folder, leads to something in the same folder, by its words. A relative `path` has a name.
#[must_use]
pub fn stays_below(path: &Path, target: &Path) -> bool {
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

/// A relative path without `.` and doubled slashes; `None` if it has a `..` or begins at the root.
#[must_use]
pub fn plain(path: &Path) -> Option<PathBuf> {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::Normal(name) => plain.push(name),
            Component::CurDir => {}
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    Some(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(found: Result<(PathBuf, PathBuf), String>) -> String {
        match found {
            Ok((root, rest)) => format!("{} + {}", root.display(), rest.display()),
            Err(why) => why,
        }
    }

    #[test]
    fn only_what_lies_below_the_folders_is_located() {
        let long = "a".repeat(PATH_LEN + 1);
        let outside = "`path` must be relative to /work, or below /work, /tmp or /dev/shm";
        let up = "`path` must not contain `..`";
        let length = "`path` must be 1 to 4096 bytes, none of them NUL";
        let rows = [
            ("a/./b//c", "/work + a/b/c"),
            (".", "/work + "),
            ("/work/a", "/work + a"),
            ("/tmp/a", "/tmp + a"),
            ("/dev/shm", "/dev/shm + "),
            ("/works/a", outside),
            ("/etc/x", outside),
            ("..", up),
            ("a/../../b", up),
            ("/tmp/../etc/x", up),
            ("", length),
            ("a\0b", length),
            (&long, length),
        ];
        for (path, wanted) in rows {
            let found = shown(locate(Path::new(WORK_DIR), path));
            assert_eq!(found, wanted, "{path}");
        }
    }

    #[test]
    fn what_is_written_has_a_name() {
        for path in [".", "/work", "/tmp/", "a/"] {
            let found = shown(locate_file(Path::new(WORK_DIR), path));
            assert_eq!(found, "`path` must name a file", "{path}");
        }
        let found = shown(locate_file(Path::new(WORK_DIR), "a/b"));
        assert_eq!(found, "/work + a/b");
    }

    #[test]
    fn a_destination_is_a_folder_below_the_working_directory() {
        let long = "a".repeat(PATH_LEN + 1);
        let of = |dest: &str| destination(Path::new(WORK_DIR), dest).ok();
        for (dest, wanted) in [
            ("app", "app"),
            ("./app/", "app"),
            ("/work/app", "app"),
            ("/work", ""),
        ] {
            assert_eq!(of(dest).as_deref(), Some(Path::new(wanted)), "{dest}");
        }
        for dest in [
            "",
            "..",
            "../x",
            "app/../../x",
            "/etc",
            "/tmp/x",
            "~",
            "~/x",
            "a\0",
            &long,
        ] {
            assert_eq!(of(dest), None, "{dest}");
        }
    }

    #[test]
    fn links_that_lead_out_are_told_by_their_words() {
        for (path, target, inside) in [
            ("a", "b", true),
            ("a/b", "../c", true),
            ("a", "../c", false),
            ("a", "/etc/passwd", false),
            ("a/b", "c/../../../d", false),
        ] {
            let stays = stays_below(Path::new(path), Path::new(target));
            assert_eq!(stays, inside, "{path} -> {target}");
        }
    }
}
