//! What the adapter does in a box by itself, as housekeeping that is no step: running a command of its own, finding what is
//! stale in a folder, and deleting that.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};

use super::Call;
use super::select::{self, Excludes};

/// The deadline of such a command, in seconds, and how long its answer may take.
const LIMIT_SEC: u64 = 300;
const ANSWER: Duration = Duration::from_secs(LIMIT_SEC + 100);
/// How many files one command deletes; its input has its limit.
const DELETED_AT_ONCE: usize = 200;

/// Runs a command with `$D` being the folder that it is about; fails when the command does.
pub(super) fn exec(
    call: &Call,
    id: &str,
    cmd: &str,
    dest: &str,
    stdin: Option<&str>,
) -> Result<Value, String> {
    let body = json!({
        // The folder tells the server that this is the adapter's own work and no step.
        "cmd": format!(": /work/.psbx-sync/; {cmd}"),
        "env": {"D": dest},
        "stdin": stdin,
        "timeoutSec": LIMIT_SEC,
    });
    let path = format!("/v1/boxes/{id}/exec");
    // Whatever these do, doing it again changes nothing.
    let answer = super::patiently(super::Again::Freely, || {
        call.is_alive();
        call.upstream.post(&path, &body, ANSWER)
    });
    let answer = answer.map_err(|failure| failure.text())?;
    if answer["exitCode"] != 0 {
        let said = answer["stderr"].as_str().unwrap_or_default();
        return Err(format!(
            "the box's files cannot be listed or deleted: {said}"
        ));
    }
    Ok(answer)
}

/// Files in the box that are not among those that were chosen, and that git would not ignore.
pub(super) fn stale<'a>(
    here: &Path,
    there: impl Iterator<Item = &'a PathBuf>,
    files: &BTreeMap<PathBuf, PathBuf>,
    excludes: &Excludes,
) -> Result<Vec<PathBuf>, String> {
    let strange = there.filter(|path| !files.contains_key(*path) && !excludes.cover(path));
    let strange: Vec<PathBuf> = strange.cloned().collect();
    let ignored = select::ignored(here, &strange)?;
    let stale = strange.into_iter().filter(|path| !ignored.contains(path));
    Ok(stale.collect())
}

/// What deleting came to.
pub(super) struct Pruned {
    /// How many files are gone.
    pub(super) gone: usize,
    /// Why no more of them are.
    pub(super) error: Option<String>,
}

/// Deletes files in the box; those whose names cannot be told stay.
pub(super) fn prune(call: &Call, id: &str, dest: &str, stale: &[PathBuf]) -> Pruned {
    let names: Vec<&str> = stale.iter().filter_map(|path| path.to_str()).collect();
    let mut pruned = Pruned {
        gone: 0,
        error: None,
    };
    for some in names.chunks(DELETED_AT_ONCE) {
        let cmd = "cd \"/work/$D\" && xargs -0 -r rm -f --";
        if let Err(why) = exec(call, id, cmd, dest, Some(&some.join("\0"))) {
            pruned.error = Some(why);
            break;
        }
        pruned.gone += some.len();
    }
    pruned
}

/// Whether this can be the id of a box, so that it is nothing else in an address.
pub(super) fn is_id(id: &str) -> bool {
    !id.is_empty() && id.len() <= 64 && id.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

/// A value as it goes into a query.
pub(super) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}
