//! `sandbox_pull`: fetches a file or a folder of a box to the local disk. Owns its arguments, and which folders `clean` does
//! not replace.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use icebox_wire::tree::ARCHIVE_HEADER;
use serde::Deserialize;
use serde_json::{Value, json};

use super::Call;
use super::remote::{escaped, is_id};
use super::select;
use crate::tree::{Arrived, LARGEST, Staged, save};

/// Paths in a result.
const SHOWN: usize = 50;
/// Paths that are gone, in a result.
const REMOVED: usize = 20;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Args {
    id: String,
    path: String,
    #[serde(alias = "dest")]
    local_path: String,
    #[serde(default = "yes")]
    extract: bool,
    #[serde(default)]
    clean: bool,
}

fn yes() -> bool {
    true
}

pub(super) fn run(call: &Call) -> Result<Value, String> {
    let args = Value::Object(call.arguments.clone());
    let args: Args =
        serde_json::from_value(args).map_err(|error| format!("sandbox_pull: {error}"))?;
    if !is_id(&args.id) {
        return Err(format!("there is no box `{}`", args.id));
    }
    let target = std::path::absolute(&args.local_path);
    let target = target.map_err(|error| format!("`localPath`: {error}"))?;
    if args.clean {
        may_be_replaced(&target)?;
    }
    let path = format!("/v1/boxes/{}/files?path={}", args.id, escaped(&args.path));
    let response = super::patiently(super::Again::Freely, || call.upstream.download(&path));
    let response = response.map_err(|failure| failure.text())?;
    let archive = response.headers().get(ARCHIVE_HEADER);
    let archive = archive.is_some_and(|value| value == "true");
    let mut body = Counting {
        inner: response
            .into_body()
            .into_with_config()
            .limit(LARGEST)
            .reader(),
        bytes: 0,
    };
    if !archive || !args.extract {
        let name = Path::new(&args.path).file_name().map(PathBuf::from);
        let target = if target.is_dir() || args.local_path.ends_with('/') {
            target.join(name.unwrap_or_else(|| "file".into()))
        } else {
            target
        };
        save(&mut body, &target, None)
            .map_err(|error| format!("cannot write {}: {error}", target.display()))?;
        return Ok(json!({
            "ok": true, "localPath": target, "bytes": body.bytes, "extracted": false, "files": 1,
        }));
    }
    // The target itself may be a link: it was named.
    let target = target.canonicalize().unwrap_or(target);
    let failed = |error: io::Error| format!("cannot unpack to {}: {error}", target.display());
    let staged = if args.clean {
        Staged::Beside
    } else {
        Staged::Inside
    };
    let arrived = Arrived::unpack(&mut body, &target, staged).map_err(failed)?;
    let left_out = arrived.left_out.len();
    let paths = select::walk(&arrived.top(), &[])?;
    let mut result = json!({
        "ok": true, "localPath": target, "bytes": body.bytes, "extracted": true, "files": paths.len(),
        "paths": paths.iter().take(SHOWN).map(|path| path.display().to_string()).collect::<Vec<_>>(),
    });
    if left_out > 0 {
        result["notes"] = json!([format!(
            "{left_out} links that lead out of the folder, and special files, are left out"
        )]);
    }
    if args.clean && target.exists() {
        let before = select::walk(&target, &[])?;
        let removed: Vec<_> = before.difference(&paths).collect();
        result["removed"] = removed.len().into();
        let shown = removed.iter().take(REMOVED);
        let shown = shown.map(|path| path.display().to_string());
        result["removedPaths"] = shown.collect::<Vec<_>>().into();
        arrived.set_aside(&target).map_err(failed)?;
    }
    arrived.settle(&target).map_err(failed)?;
    Ok(result)
}

/// A folder that can be given up for another one.
fn may_be_replaced(target: &Path) -> Result<(), String> {
    let refuse = |why: &str| {
        Err(format!(
            "`clean` does not replace {}: {why}",
            target.display()
        ))
    };
    let Ok(found) = fs::symlink_metadata(target) else {
        return Ok(());
    };
    if !found.is_dir() {
        return refuse("it is no folder");
    }
    let Ok(real) = target.canonicalize() else {
        return refuse("it cannot be looked at");
    };
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let places = [std::env::current_dir().ok(), home];
    let holds = |place: &PathBuf| {
        place
            .canonicalize()
            .unwrap_or_else(|_| place.clone())
            .starts_with(&real)
    };
    if real.parent().is_none() || places.iter().flatten().any(holds) {
        return refuse("it holds your home or the working directory");
    }
    if real.join(".git").exists() {
        return refuse("it is a git checkout");
    }
    Ok(())
}

/// Counts what comes.
struct Counting<R> {
    inner: R,
    bytes: u64,
}

impl<R: Read> Read for Counting<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let len = self.inner.read(into)?;
        self.bytes += u64::try_from(len).unwrap_or(0);
        Ok(len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checkout_and_the_working_directory_are_not_replaced() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(may_be_replaced(dir.path()), Ok(()));
        assert_eq!(may_be_replaced(&dir.path().join("new")), Ok(()));
        fs::create_dir(dir.path().join(".git")).unwrap();
        assert!(
            may_be_replaced(dir.path())
                .unwrap_err()
                .contains("git checkout")
        );
        assert!(may_be_replaced(Path::new("/")).is_err());
        assert!(may_be_replaced(&std::env::current_dir().unwrap()).is_err());
    }
}
