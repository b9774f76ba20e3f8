//! From a command line to the words of a program.
//!
//! A command line is bash's to interpret, but the commonest ones are only words. Those are run without a shell, which
//! saves bash's start (about a millisecond). Whatever bash would read differently goes to bash.

use crate::launch::Env;

/// Shells in the order of preference; a small image may only have the second.
const SHELLS: [&str; 2] = ["/bin/bash", "/bin/sh"];

/// The longest line looked at for the short way.
const LONGEST_PLAIN: usize = 1024;

/// First words that bash does not look up in PATH, sorted. `true` and `false` are left out: the programs do the same.
const BASHS_OWN: [&str; 75] = [
    ".",
    ":",
    "alias",
    "bg",
    "bind",
    "break",
    "builtin",
    "caller",
    "case",
    "cd",
    "command",
    "compgen",
    "complete",
    "compopt",
    "continue",
    "coproc",
    "declare",
    "dirs",
    "disown",
    "do",
    "done",
    "echo",
    "elif",
    "else",
    "enable",
    "esac",
    "eval",
    "exec",
    "exit",
    "export",
    "fc",
    "fg",
    "fi",
    "for",
    "function",
    "getopts",
    "hash",
    "help",
    "history",
    "if",
    "in",
    "jobs",
    "kill",
    "let",
    "local",
    "logout",
    "mapfile",
    "popd",
    "printf",
    "pushd",
    "pwd",
    "read",
    "readarray",
    "readonly",
    "return",
    "select",
    "set",
    "shift",
    "shopt",
    "source",
    "suspend",
    "test",
    "then",
    "time",
    "times",
    "trap",
    "type",
    "typeset",
    "ulimit",
    "umask",
    "unalias",
    "unset",
    "until",
    "wait",
    "while",
];

/// The words of `line` when bash would do nothing but look up the first and run it.
pub(crate) fn plain_words(line: &str, env: &Env) -> Option<Vec<String>> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_./:@%+=,- ".contains(c);
    if line.len() > LONGEST_PLAIN || !line.chars().all(plain) || env.changes_bash() {
        return None;
    }
    let words: Vec<String> = line
        .split(' ')
        .filter(|word| !word.is_empty())
        .map(str::to_owned)
        .collect();
    let first = words.first()?;
    let own = BASHS_OWN.binary_search(&first.as_str()).is_ok();
    (!own && !first.contains('=') && !first.starts_with('%')).then_some(words)
}

/// The words that make a shell run `line`.
pub(crate) fn shell_words(line: &str) -> Vec<String> {
    let shell = SHELLS
        .into_iter()
        .find(|path| std::path::Path::new(path).exists())
        .unwrap_or(SHELLS[0]);
    vec![shell.to_owned(), "-c".to_owned(), line.to_owned()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Option<Vec<String>> {
        plain_words(line, &Env::default())
    }

    #[test]
    fn plain_lines_skip_the_shell() {
        assert_eq!(words("true").expect("plain"), ["true"]);
        assert_eq!(
            words(" dd if=/dev/zero  count=1 ").expect("plain"),
            ["dd", "if=/dev/zero", "count=1"]
        );
    }

    #[test]
    fn whatever_bash_reads_differently_goes_to_bash() {
        let lines = [
            "", "echo a", "a; b", "ls *", "x=1 env", "cat ~", "a\nb", "a #b", "! true", "a 'b'",
            "a > b", "%1", "cd /",
        ];
        for line in lines {
            assert_eq!(words(line), None, "{line:?}");
        }
    }

    #[test]
    fn an_environment_that_changes_bash_goes_to_bash() {
        let mut env = Env::default();
        env.set("BASH_ENV", "/etc/x");
        assert_eq!(plain_words("true", &env), None);
    }

    #[test]
    fn the_list_is_sorted_for_its_search() {
        assert!(BASHS_OWN.is_sorted());
    }
}
