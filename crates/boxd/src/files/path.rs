//! From the text of a path to the path that is meant.

use std::path::{Component, Path, PathBuf};

use super::acting::Acting;
use crate::error::Error;

/// The longest path the kernel takes, without its NUL.
const MAX_PATH_BYTES: usize = 4095;

/// `~` is the acting user's home; a relative path begins at the settings' directory or at that home. `.` and `..` are
/// resolved by the text alone, so the result is what the client would compute.
pub(crate) fn resolve(text: &str, acting: &Acting) -> Result<PathBuf, Error> {
    if text.contains('\0') {
        return Err(Error::NulByte("path"));
    }
    let home = Path::new(&acting.user.home);
    let base = match acting.workdir.as_str() {
        "" => home,
        workdir => Path::new(workdir),
    };
    let joined = match text.strip_prefix('~') {
        Some("") => home.to_owned(),
        Some(rest) if rest.starts_with('/') => home.join(rest.trim_start_matches('/')),
        Some(_) | None => base.join(text),
    };
    let path = clean(&joined);
    let len = path.as_os_str().len();
    if len > MAX_PATH_BYTES {
        return Err(Error::TooLong {
            what: "path",
            len,
            max: MAX_PATH_BYTES,
        });
    }
    Ok(path)
}

fn clean(path: &Path) -> PathBuf {
    let mut cleaned = PathBuf::from("/");
    for part in path.components() {
        match part {
            Component::ParentDir => {
                cleaned.pop();
            }
            Component::Normal(name) => cleaned.push(name),
            Component::Prefix(_) | Component::RootDir | Component::CurDir => {}
        }
    }
    cleaned
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::users::User;

    fn acting(workdir: &str) -> Acting {
        let mut user = User::find("root").expect("root exists");
        user.home = "/home/user".to_owned();
        Acting {
            user,
            as_root: false,
            workdir: workdir.to_owned(),
        }
    }

    #[test]
    fn paths_begin_where_they_should() {
        for (text, workdir, path) in [
            ("", "", "/home/user"),
            ("a/b", "", "/home/user/a/b"),
            ("a", "/code", "/code/a"),
            ("~", "/code", "/home/user"),
            ("~/a", "/code", "/home/user/a"),
            ("~//etc", "", "/home/user/etc"),
            ("~a", "", "/home/user/~a"),
            ("/", "", "/"),
            ("/a/./b//c/../d/", "", "/a/b/d"),
            ("../../../../etc", "", "/etc"),
            ("/..", "", "/"),
        ] {
            let resolved = resolve(text, &acting(workdir)).expect("a path");
            assert_eq!(resolved, Path::new(path), "{text:?} from {workdir:?}");
        }
    }

    #[test]
    fn what_no_file_can_be_called_is_refused() {
        let long = "x/".repeat(3000);
        for (text, words) in [("a\0b", "NUL"), (long.as_str(), "at most 4095")] {
            let error = resolve(text, &acting("")).expect_err("refused").to_string();
            assert!(error.contains(words), "{error}");
        }
    }
}
