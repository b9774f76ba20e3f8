//! Whether the packages that a synced project wants are installed in the box: its lock files here, against `node_modules`
//! there. Installs nothing.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use super::Call;
use super::compare::output;

/// Lock files, and where their tool notes in `node_modules` what it installed.
const LOCKS: &[(&str, &str)] = &[
    ("package-lock.json", ".package-lock.json"),
    ("npm-shrinkwrap.json", ".package-lock.json"),
    ("pnpm-lock.yaml", ".pnpm/lock.yaml"),
    ("yarn.lock", ""),
    ("bun.lock", ""),
];
/// The most projects that are looked at in one tree.
const PROJECTS: usize = 50;
/// The largest lock file, in bytes.
const LOCK: u64 = 16 << 20;

/// Says of each folder that is read, and of the note in it, whether it is there, and what the note says.
const NOTES: &str = "cd \"/work/$D\" 2>/dev/null || exit 0; \
    while IFS= read -r -d '' at && IFS= read -r -d '' note; do \
    if [ -d \"$at/node_modules\" ]; then printf 'there\\0'; else printf 'missing\\0'; fi; \
    [ -z \"$note\" ] || head -c 16777216 -- \"$at/node_modules/$note\" 2>/dev/null | tr -d '\\0'; printf '\\0'; done";

/// What is amiss: the folders whose packages are missing in the box, or not those that the lock file wants.
pub(super) fn amiss(
    call: &Call,
    id: &str,
    dest: &str,
    files: &BTreeMap<PathBuf, PathBuf>,
) -> Result<Vec<Value>, String> {
    let found: Vec<_> = files
        .iter()
        .filter_map(|(name, path)| lock(name, path))
        .collect();
    let found = &found[..found.len().min(PROJECTS)];
    if found.is_empty() {
        return Ok(Vec::new());
    }
    let asked: String = found
        .iter()
        .map(|lock| format!("{}\0{}\0", lock.dir, lock.note))
        .collect();
    let said = output(call, id, NOTES, dest, Some(&asked))?;
    let mut said = said.split(|byte| *byte == 0);
    let mut amiss = Vec::new();
    for lock in found {
        let (Some(state), Some(note)) = (said.next(), said.next()) else {
            break;
        };
        let wanted = std::fs::read(lock.path).unwrap_or_default();
        amiss.extend(judge(lock, state, note, &wanted));
    }
    Ok(amiss)
}

/// A lock file of a project.
struct Lock<'a> {
    dir: &'a str,
    file: &'static str,
    note: &'static str,
    path: &'a Path,
}

fn lock<'a>(name: &'a Path, path: &'a Path) -> Option<Lock<'a>> {
    let own = name.file_name()?;
    let (file, note) = LOCKS.iter().find(|(file, _)| own == *file)?;
    let small = path.metadata().is_ok_and(|found| found.len() <= LOCK);
    let dir = match name.parent()?.to_str()? {
        "" => ".",
        dir => dir,
    };
    (small
        && !name
            .components()
            .any(|part| part.as_os_str() == "node_modules"))
    .then_some(Lock {
        dir,
        file,
        note,
        path,
    })
}

fn judge(lock: &Lock<'_>, state: &[u8], note: &[u8], wanted: &[u8]) -> Option<Value> {
    let mut amiss = json!({"dir": lock.dir, "lock": lock.file});
    if state == b"missing" {
        amiss["state"] = "missing".into();
        return Some(amiss);
    }
    if lock.note.is_empty() || wanted.is_empty() {
        // What is installed is not noted anywhere.
        return None;
    }
    amiss["state"] = "stale".into();
    if Path::new(lock.file)
        .extension()
        .is_some_and(|kind| kind == "yaml")
    {
        return (note != wanted).then_some(amiss);
    }
    let wanted = packages(wanted)?;
    let installed = packages(note).unwrap_or_default();
    let differ = wanted.iter().filter(|(at, package)| {
        match installed.get(*at) {
            Some(there) => there["version"] != package["version"],
            // Those for other systems are left out by the tool itself.
            None => package["optional"] != true,
        }
    });
    let differ = differ.count();
    if differ == 0 {
        return None;
    }
    amiss["differ"] = differ.into();
    amiss["wanted"] = wanted.len().into();
    Some(amiss)
}

/// The packages of npm's lock files of version 2 and newer, by where they lie; not those that are part of the project.
fn packages(lock: &[u8]) -> Option<Map<String, Value>> {
    let mut lock: Value = serde_json::from_slice(lock).ok()?;
    let Value::Object(mut packages) = lock["packages"].take() else {
        return None;
    };
    packages.retain(|at, package| at.contains("node_modules/") && package["link"] != true);
    Some(packages)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn npm(versions: &[(&str, &str)]) -> Vec<u8> {
        let packages = versions.iter().map(|(name, version)| {
            let optional = name.starts_with("optional");
            (
                format!("node_modules/{name}"),
                json!({"version": version, "optional": optional}),
            )
        });
        let mut packages: Map<String, Value> = packages.collect();
        packages.insert(String::new(), json!({"version": "1.0.0"}));
        packages.insert(
            "node_modules/own".to_owned(),
            json!({"resolved": "own", "link": true}),
        );
        json!({"lockfileVersion": 3, "packages": packages})
            .to_string()
            .into_bytes()
    }

    #[test]
    fn packages_are_missing_stale_or_as_they_should_be() {
        let name = Path::new("web/package-lock.json");
        let file = tempfile::NamedTempFile::new().unwrap();
        let lock = lock(name, file.path()).unwrap();
        let wanted = npm(&[("a", "1"), ("b", "2"), ("optional", "1")]);
        let judged = |state: &[u8], note: &[u8]| judge(&lock, state, note, &wanted);
        let base = json!({"dir": "web", "lock": "package-lock.json"});
        let with = |more: Value| {
            let mut base = base.clone();
            base.as_object_mut()
                .unwrap()
                .extend(more.as_object().unwrap().clone());
            Some(base)
        };
        assert_eq!(judged(b"missing", b""), with(json!({"state": "missing"})));
        assert_eq!(judged(b"there", &npm(&[("a", "1"), ("b", "2")])), None);
        let stale = |differ: usize| with(json!({"state": "stale", "differ": differ, "wanted": 3}));
        assert_eq!(
            judged(b"there", &npm(&[("a", "1"), ("b", "1"), ("optional", "1")])),
            stale(1)
        );
        assert_eq!(judged(b"there", &npm(&[("optional", "2")])), stale(3));
        assert_eq!(
            judged(b"there", b""),
            stale(2),
            "nobody noted what is installed"
        );
    }

    #[test]
    fn other_tools_are_known_as_far_as_they_note_what_they_did() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let judged = |name: &str, state: &str, note: &str| {
            let lock = lock(Path::new(name), file.path()).unwrap();
            judge(&lock, state.as_bytes(), note.as_bytes(), b"wanted")
        };
        assert_eq!(judged("pnpm-lock.yaml", "there", "wanted"), None);
        assert_eq!(
            judged("pnpm-lock.yaml", "there", "old").unwrap()["state"],
            "stale"
        );
        assert_eq!(
            judged("yarn.lock", "missing", "").unwrap()["state"],
            "missing"
        );
        assert_eq!(judged("yarn.lock", "there", ""), None);
        assert!(lock(Path::new("node_modules/a/yarn.lock"), file.path()).is_none());
        assert!(lock(Path::new("Cargo.lock"), file.path()).is_none());
    }
}
