//! Commits as folders to send: unpacked, with their submodules where that is asked for, and one more beside the tree as its
//! baseline. Owns what a baseline gets of the tree's packages.

use std::path::Path;

use serde_json::{Value, json};

use super::Call;
use super::select::{self, Submodule};
use super::{remote, sync};

/// How deep submodules may be in each other.
const DEEPEST: usize = 8;

/// A commit's files, until this is dropped.
pub(super) struct Unpacked {
    pub(super) dir: tempfile::TempDir,
    /// Submodules whose files are among them.
    pub(super) with: Vec<String>,
    /// Submodules that are not here, or not at the commit that is recorded.
    pub(super) without: Vec<String>,
}

/// Unpacks a commit of the repository that `here` is in.
pub(super) fn unpack(here: &Path, commit: &str, submodules: bool) -> Result<Unpacked, String> {
    let dir = tempfile::tempdir();
    let dir = dir.map_err(|error| format!("no room for the commit: {error}"))?;
    let mut unpacked = Unpacked {
        dir,
        with: Vec::new(),
        without: Vec::new(),
    };
    let into = unpacked.dir.path().to_owned();
    select::checkout(here, commit, &into)?;
    if submodules {
        add_submodules(&mut unpacked, here, commit, Path::new(""), DEEPEST)?;
    }
    Ok(unpacked)
}

fn add_submodules(
    unpacked: &mut Unpacked,
    here: &Path,
    commit: &str,
    below: &Path,
    deepest: usize,
) -> Result<(), String> {
    for Submodule { path, commit } in select::submodules(here, commit)? {
        let (there, name) = (here.join(&path), below.join(&path));
        let shown = name.display().to_string();
        let known = deepest > 0
            && there.join(".git").exists()
            && select::commit(&there, &commit).is_ok_and(|found| found == commit);
        if !known {
            unpacked.without.push(shown);
            continue;
        }
        let into = unpacked.dir.path().join(&name);
        std::fs::create_dir_all(&into).map_err(|error| format!("{shown}: {error}"))?;
        select::checkout(&there, &commit, &into)?;
        unpacked.with.push(shown);
        add_submodules(unpacked, &there, &commit, &name, deepest - 1)?;
    }
    Ok(())
}

/// Sends another commit to `<dest>-baseline`, and gives it the packages that are installed in `dest`.
pub(super) fn send_baseline(
    call: &Call,
    id: &str,
    dest: &str,
    here: &Path,
    revision: &str,
    with_packages: bool,
) -> Result<Value, String> {
    let commit = select::commit(here, revision);
    let commit = commit.map_err(|why| why.replace("`commit`", "`baseline`"))?;
    let unpacked = unpack(here, &commit, false)?;
    let paths = select::walk(unpacked.dir.path(), &[])?;
    let from = unpacked.dir.path().to_owned();
    let files = paths
        .into_iter()
        .map(|path| (path.clone(), from.join(path)));
    let files = files.collect();
    let beside = format!("{}-baseline", dest.trim_end_matches('/'));
    let sent = sync::send(call, id, &beside, here, &files)?;
    let mut result = json!({
        "dest": beside,
        "remotePath": format!("/work/{beside}"),
        "commitSha": commit,
        "files": files.len(),
        "changedOnBox": sent.changed,
    });
    if with_packages {
        let linked = remote::exec(call, id, PACKAGES, dest.trim_end_matches('/'), None)?;
        let linked = linked["stdout"].as_str().unwrap_or_default();
        result["deps"] = linked.lines().collect::<Vec<_>>().into();
    }
    Ok(result)
}

/// Links the packages of a tree into its baseline, where that has none, without what Vite made of them.
const PACKAGES: &str = "cd \"/work/$D\" || exit 1; \
    find . -name node_modules -prune -type d -printf '%P\\0' | while IFS= read -r -d '' at; do \
    to=\"/work/$D-baseline/$at\"; \
    [ -d \"${to%/*}\" ] && [ ! -e \"$to\" ] || continue; \
    cp -al -- \"$at\" \"$to\" && rm -rf -- \"$to/.vite\" \"$to/.cache/vite\" && printf '%s\\n' \"$at\"; done";

#[cfg(test)]
mod tests {
    use std::fs;
    use std::process::Command;

    use super::*;

    fn git(folder: &Path, words: &[&str]) -> String {
        let output = Command::new("git")
            .args(["-c", "user.name=t", "-c", "user.email=t@localhost"])
            .args(["-c", "protocol.file.allow=always", "-C"])
            .arg(folder)
            .args(words)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{words:?}: {said}");
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    fn repository(at: &Path, file: &str) {
        fs::create_dir_all(at).unwrap();
        git(at, &["init", "-q"]);
        fs::write(at.join(file), file).unwrap();
        git(at, &["add", "-A"]);
        git(at, &["commit", "-qm", "one"]);
    }

    #[test]
    fn submodules_come_at_the_commit_that_is_recorded() {
        let dir = tempfile::tempdir().unwrap();
        let (inner, outer) = (dir.path().join("inner"), dir.path().join("outer"));
        repository(&inner, "a");
        repository(&outer, "b");
        let url = inner.to_str().unwrap();
        git(&outer, &["submodule", "add", "-q", url, "sub"]);
        git(&outer, &["commit", "-qm", "two"]);
        // What is newer in the submodule is not part of the commit.
        fs::write(outer.join("sub/new"), "new").unwrap();
        git(&outer.join("sub"), &["add", "-A"]);
        git(&outer.join("sub"), &["commit", "-qm", "newer"]);
        let head = git(&outer, &["rev-parse", "HEAD"]);
        let plain = unpack(&outer, &head, false).unwrap();
        assert!(!plain.dir.path().join("sub/a").exists());
        let whole = unpack(&outer, &head, true).unwrap();
        assert_eq!(fs::read(whole.dir.path().join("sub/a")).unwrap(), b"a");
        assert!(!whole.dir.path().join("sub/new").exists());
        assert_eq!(
            (whole.with, whole.without),
            (vec!["sub".to_owned()], vec![])
        );
        git(&outer, &["submodule", "deinit", "-f", "-q", "sub"]);
        let without = unpack(&outer, &head, true).unwrap();
        assert_eq!(without.without, ["sub"]);
    }
}
