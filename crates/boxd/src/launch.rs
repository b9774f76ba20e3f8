//! What a process starts with: environment, working directory, program, user, checked before anything is made.
//!
//! Starting it is `spawn`'s.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use crate::error::Error;
use crate::users::User;

/// The longest single argument or variable, NUL included, that Linux hands to a program.
const MAX_STRING: usize = 128 * 1024;

/// Where programs are looked up unless a variable says otherwise.
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Variables, each name once.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Env(BTreeMap<String, String>);

impl Env {
    /// What every process of `user` gets; a login shell is not needed for it (one costs up to 0.2 s).
    pub(crate) fn of(user: &User) -> Self {
        let mut env = Self::default();
        env.set("PATH", DEFAULT_PATH);
        env.set("HOME", &user.home);
        env.set("USER", &user.name);
        env.set("LOGNAME", &user.name);
        env.set("SHELL", &user.shell);
        env.set("LANG", "C.UTF-8");
        env
    }

    /// Adds or replaces one variable.
    pub(crate) fn set(&mut self, name: &str, value: &str) {
        self.0.insert(name.to_owned(), value.to_owned());
    }

    /// Adds or replaces many.
    pub(crate) fn extend<'a>(&mut self, more: impl IntoIterator<Item = (&'a str, &'a str)>) {
        for (name, value) in more {
            self.set(name, value);
        }
    }

    /// Whether bash would read more than its command line because of a variable here.
    pub(crate) fn changes_bash(&self) -> bool {
        let special =
            |name: &String| matches!(name.as_str(), "BASH_ENV" | "SHELLOPTS" | "BASHOPTS");
        self.0
            .keys()
            .any(|name| special(name) || name.starts_with("BASH_FUNC_"))
    }

    fn strings(&self) -> Result<Vec<CString>, Error> {
        if let Some(name) = self
            .0
            .keys()
            .find(|name| name.is_empty() || name.contains('='))
        {
            return Err(Error::BadRequest(format!(
                "{name:?} cannot be the name of a variable"
            )));
        }
        self.0
            .iter()
            .map(|(name, value)| c_string("a variable", format!("{name}={value}")))
            .collect()
    }
}

/// A checked start.
#[derive(Debug)]
pub(crate) struct Launch {
    /// The program's path.
    pub(crate) program: CString,
    /// Its words, the program's name first.
    pub(crate) args: Vec<CString>,
    pub(crate) env: Vec<CString>,
    pub(crate) cwd: CString,
    pub(crate) user: User,
}

impl Launch {
    /// Checks `words` (a program and its arguments) for `user`. `cwd` exists already; PWD is set to it.
    pub(crate) fn new(
        words: &[String],
        mut env: Env,
        cwd: &Path,
        user: User,
    ) -> Result<Self, Error> {
        let first = words
            .first()
            .filter(|word| !word.is_empty())
            .ok_or_else(|| Error::BadRequest("a command is needed and was empty".to_owned()))?;
        let cwd_text = cwd.to_string_lossy();
        env.set("PWD", &cwd_text);
        let args = words
            .iter()
            .map(|word| c_string("an argument", word.clone()))
            .collect::<Result<Vec<_>, _>>()?;
        let path = env.0.get("PATH").map_or(DEFAULT_PATH, String::as_str);
        let program =
            find_program(first, path, cwd).ok_or_else(|| Error::NoProgram(first.clone()))?;
        Ok(Self {
            program: c_string("the program's path", program.to_string_lossy().into_owned())?,
            args,
            env: env.strings()?,
            cwd: c_string("cwd", cwd_text.into_owned())?,
            user,
        })
    }
}

/// Resolves a working directory: relative ones start at `base`, empty is `base`.
pub(crate) fn directory(asked: &str, base: &Path) -> Result<PathBuf, Error> {
    let path = if asked.is_empty() {
        base.to_owned()
    } else {
        base.join(asked)
    };
    if path.is_dir() {
        Ok(path)
    } else {
        Err(Error::NoCwd(path.to_string_lossy().into_owned()))
    }
}

fn c_string(what: &'static str, text: String) -> Result<CString, Error> {
    if text.len() >= MAX_STRING {
        return Err(Error::TooLong {
            what,
            len: text.len(),
            max: MAX_STRING - 1,
        });
    }
    CString::new(text).map_err(|_| Error::NulByte(what))
}

/// Finds a program as `execvp` would, and only an executable file.
fn find_program(name: &str, path: &str, cwd: &Path) -> Option<PathBuf> {
    let runs = |file: &PathBuf| {
        file.metadata()
            .is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
    };
    if name.contains('/') {
        return Some(cwd.join(name)).filter(runs);
    }
    path.split(':')
        .map(|dir| cwd.join(dir).join(name))
        .find(runs)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn launch(words: &[&str], env: Env) -> Result<Launch, Error> {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        let user = User::find("root")?;
        Launch::new(&words, env, Path::new("/"), user)
    }

    #[test]
    fn a_program_is_found_in_path_and_pwd_is_set() {
        let launch = launch(&["sh", "-c", "true"], Env::default()).expect("sh exists");
        assert!(launch.program.to_bytes().ends_with(b"/sh"));
        assert!(launch.env.contains(&CString::from(c"PWD=/")));
    }

    #[test]
    fn bad_starts_say_what_is_wrong() {
        let long = "x".repeat(MAX_STRING);
        let error = |words: &[&str], env| launch(words, env).expect_err("must fail").to_string();
        assert!(error(&[], Env::default()).contains("empty"));
        assert!(error(&["no-such-program"], Env::default()).contains("no-such-program"));
        assert!(error(&["/etc"], Env::default()).contains("/etc"));
        assert!(error(&["sh", &long], Env::default()).contains("131072 bytes; at most 131071"));
        assert!(error(&["sh", "a\0b"], Env::default()).contains("NUL"));
        let mut env = Env::default();
        env.set("A=B", "c");
        assert!(error(&["sh"], env).contains("A=B"));
    }

    #[test]
    fn directories_are_checked_and_relative_ones_have_a_base() {
        assert_eq!(
            directory("", Path::new("/usr")).expect("exists"),
            Path::new("/usr")
        );
        assert_eq!(
            directory("bin", Path::new("/usr")).expect("exists"),
            Path::new("/usr/bin")
        );
        assert!(directory("/etc/passwd", Path::new("/")).is_err());
    }
}
