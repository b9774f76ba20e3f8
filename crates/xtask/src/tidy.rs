//! What must hold of the tree itself: file sizes, headers, and who may know what. Each rule is a row of
//! [`RULES`]; a finding names the file, the line and what to do.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;

/// Lines of a file, without its tests.
const LONGEST_FILE: usize = 500;

/// A word that only some places may use.
struct Rule {
    word: &'static str,
    /// Where the rule looks; a folder below the repository.
    within: &'static str,
    /// Files and folders that may use it.
    allowed: &'static [&'static str],
    why: &'static str,
}

const RULES: &[Rule] = &[
    Rule {
        word: "SystemTime::now",
        within: "crates",
        allowed: &[
            "crates/server/src/clock.rs",
            "crates/boxd",
            "crates/xtask",
            "crates/cli",
        ],
        why: "the server reads the time in clock.rs only",
    },
    Rule {
        word: "StatusCode",
        within: "crates/server/src",
        allowed: &[
            "crates/server/src/api/error.rs",
            "crates/server/src/api/e2b/error.rs",
            "crates/server/src/edge/answer.rs",
        ],
        why: "status codes live in one file per dialect",
    },
    Rule {
        word: "rusqlite",
        within: "crates",
        allowed: &["crates/server/src/store", "crates/server/Cargo.toml"],
        why: "SQL lives in the store",
    },
    Rule {
        word: ".handle(",
        within: "crates/server/src",
        allowed: &["crates/server/src/engine"],
        why: "only the engine changes the state of a box",
    },
    Rule {
        word: "runc",
        within: "crates/server/src",
        allowed: &["crates/server/src/driver"],
        why: "a runtime stays inside its driver",
    },
    Rule {
        word: "extern crate std",
        within: "crates/lifecycle/src",
        allowed: &["crates/lifecycle/src/lib.rs"],
        why: "the lifecycle is no_std, so that the compiler keeps clocks and files out",
    },
];

/// Checks the tree at `root` and returns what is not tidy, a line each.
pub fn check(root: &Path) -> anyhow::Result<Vec<String>> {
    let mut found = Vec::new();
    for path in rust_files(root)? {
        let text = fs::read_to_string(root.join(&path)).with_context(|| format!("read {path}"))?;
        check_file(&path, &text, &mut found);
    }
    check_rule_tables(root, &mut found)?;
    Ok(found)
}

fn check_file(path: &str, text: &str, found: &mut Vec<String>) {
    if !text.starts_with("//!") {
        found.push(format!(
            "{path}:1: begin with `//!`: what the file owns and what it does not"
        ));
    }
    let code = without_tests(text);
    if code.len() > LONGEST_FILE && !is_test(path) {
        let lines = code.len();
        found.push(format!(
            "{path}: {lines} lines without its tests, at most {LONGEST_FILE}"
        ));
    }
    for (number, line) in code.iter().enumerate() {
        let number = number + 1;
        if ["TODO", "FIXME", "XXX"]
            .iter()
            .any(|word| line.contains(word))
            && !path.ends_with("tidy.rs")
        {
            found.push(format!("{path}:{number}: do it now, or file an issue"));
        }
        if line.contains("#[allow(") && !path.ends_with("tidy.rs") {
            found.push(format!("{path}:{number}: use #[expect(…, reason = \"…\")]"));
        }
        check_words(path, number, line, found);
    }
}

fn check_words(path: &str, number: usize, line: &str, found: &mut Vec<String>) {
    let code = line.split("//").next().unwrap_or("");
    for rule in RULES {
        let applies = path.starts_with(rule.within)
            && !is_test(path)
            && !path.ends_with("tidy.rs")
            && !rule.allowed.iter().any(|allowed| path.starts_with(allowed));
        if applies && has_word(code, rule.word) {
            found.push(format!("{path}:{number}: `{}`: {}", rule.word, rule.why));
        }
    }
}

/// Whether `word` stands in `code` and not as a part of a longer one.
fn has_word(code: &str, word: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    code.match_indices(word).any(|(at, _)| {
        let before = code[..at].chars().next_back();
        let after = code[at + word.len()..].chars().next();
        let begins = !before.is_some_and(is_part) || !word.starts_with(is_part);
        let ends = !after.is_some_and(is_part) || !word.ends_with(is_part);
        begins && ends
    })
}

/// The lines before a file's own tests.
fn without_tests(text: &str) -> Vec<&str> {
    text.lines()
        .take_while(|line| line.trim() != "#[cfg(test)]")
        .collect()
}

fn is_test(path: &str) -> bool {
    path.contains("/tests/") || path.ends_with("/tests.rs")
}

/// Every rule of the rule book has a table of tests with its number.
fn check_rule_tables(root: &Path, found: &mut Vec<String>) -> anyhow::Result<()> {
    let tables = root.join("crates/lifecycle/testdata");
    let names: Vec<String> = fs::read_dir(&tables)
        .with_context(|| format!("list {}", tables.display()))?
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    for name in &names {
        let is_table = name.starts_with(|c: char| c.is_ascii_digit()) && name.ends_with(".txt");
        if !is_table && name != "README.md" {
            found.push(format!(
                "crates/lifecycle/testdata/{name}: name it `<rule number>_<what>.txt`"
            ));
        }
    }
    Ok(())
}

/// All Rust files of the crates, as paths below `root` with `/`.
fn rust_files(root: &Path) -> anyhow::Result<Vec<String>> {
    let mut files = Vec::new();
    let mut folders = vec![PathBuf::from("crates")];
    while let Some(folder) = folders.pop() {
        let entries = fs::read_dir(root.join(&folder));
        for entry in entries.with_context(|| format!("list {}", folder.display()))? {
            let entry = entry?;
            let path = folder.join(entry.file_name());
            if entry.file_type()?.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "rs") {
                files.push(path.to_string_lossy().into_owned());
            }
        }
    }
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What `check_file` says of a file, in one line.
    fn said(path: &str, text: &str) -> String {
        let mut found = Vec::new();
        check_file(path, text, &mut found);
        found.join(" | ")
    }

    #[test]
    fn each_rule_can_fail() {
        let rows = [
            ("crates/a/src/x.rs", "fn a() {}", "begin with"),
            (
                "crates/server/src/x.rs",
                "//! x\nuse axum::http::StatusCode;",
                "one file per dialect",
            ),
            (
                "crates/server/src/x.rs",
                "//! x\nuse rusqlite::Row;",
                "SQL lives in the store",
            ),
            (
                "crates/server/src/x.rs",
                "//! x\nsandbox.handle(now, event);",
                "only the engine",
            ),
            (
                "crates/server/src/x.rs",
                "//! x\n#[allow(dead_code)]",
                "#[expect(",
            ),
            (
                "crates/server/src/engine/x.rs",
                "//! x\nSystemTime::now();",
                "clock.rs only",
            ),
        ];
        for (path, text, expected) in rows {
            let said = said(path, text);
            assert!(
                said.contains(expected),
                "{path}: {said:?} lacks {expected:?}"
            );
        }
        assert_eq!(
            said("crates/server/src/x.rs", "//! x\nfile.truncate();"),
            ""
        );
        let long = format!("//! x\n{}", "line\n".repeat(LONGEST_FILE));
        assert!(said("crates/a/src/x.rs", &long).contains("at most 500"));
        assert_eq!(said("crates/a/tests/x.rs", &long), "");
    }

    #[test]
    fn the_tree_is_tidy() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let found = check(&root).expect("the tree can be read");
        assert!(found.is_empty(), "{}", found.join("\n"));
    }
}
