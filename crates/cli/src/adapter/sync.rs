//! `sandbox_sync`: chooses local files and sends them as one archive, which the box merges whole or not at all. Owns its
//! arguments, the guard against sending too much, and what is deleted in the box when that is asked for.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};

use icebox_wire::place::{self, WORK_DIR};
use serde::Deserialize;
use serde_json::{Value, json};

use super::Call;
use super::commits::{self, Unpacked};
use super::compare::Listing;
use super::left::{self, Left, Marks};
use super::packages;
use super::remote::{escaped, is_id, prune, stale};
use super::select::{self, Excludes, Selection};
use crate::tree;

/// The most that is sent when nothing else is said, in MiB.
const MAX_MB: u64 = 100;
/// The most that may be asked for.
const LARGEST_MB: u64 = 8_192;
/// Paths of each list in a result.
const SHOWN: usize = 20;
/// Paths that were sent, in a result.
const SENT: usize = 50;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Args {
    id: String,
    local_path: String,
    dest: String,
    commit: Option<String>,
    also_paths: Option<Vec<String>>,
    #[serde(default)]
    include_ignored: bool,
    #[serde(default)]
    exclude: Vec<String>,
    #[serde(default)]
    prune: bool,
    #[serde(default)]
    dry_run: bool,
    #[serde(default)]
    submodules: bool,
    baseline: Option<String>,
    baseline_deps: Option<bool>,
    #[serde(rename = "maxMB")]
    max_mb: Option<u64>,
}

/// What is sent: names in the box with where they are here.
pub(super) struct Files {
    pub(super) files: BTreeMap<PathBuf, PathBuf>,
    pub(super) how: String,
    /// Whether the files are a whole tree that git knows, so that what else is in the box is stale.
    pub(super) whole: bool,
    pub(super) excluded: Vec<PathBuf>,
    pub(super) commit: Option<String>,
    /// A commit's files, until they are sent.
    pub(super) unpacked: Option<Unpacked>,
    /// What stays here.
    pub(super) left: Left,
}

pub(super) fn run(call: &Call) -> Result<Value, String> {
    let args = Value::Object(call.arguments.clone());
    let args: Args = serde_json::from_value(args).map_err(|error| {
        // A client that has an old list of tools fetches a new one at these words.
        let said = error.to_string();
        match said.strip_prefix("missing field `") {
            Some(field) => format!("`{} is required", field.trim_end_matches(" at line 0")),
            None => format!("sandbox_sync: {said}"),
        }
    })?;
    let max_mb = args.max_mb.unwrap_or(MAX_MB);
    if !(1..=LARGEST_MB).contains(&max_mb) {
        return Err(format!(
            "`maxMB` must be a whole number from 1 to {LARGEST_MB}"
        ));
    }
    let dest = destination(&args.dest)?;
    let excludes = Excludes::new(&args.exclude)?;
    let here = std::path::absolute(&args.local_path);
    let here = here.map_err(|error| format!("`localPath`: {error}"))?;
    let found = fs::metadata(&here);
    let found = found.map_err(|error| {
        let shown: String = args.local_path.chars().take(300).collect();
        format!("`localPath`: {shown}: {error}")
    })?;
    if !found.is_dir() && !found.is_file() {
        return Err("`localPath` is neither a file nor a folder".to_owned());
    }
    let (files, dest) = if found.is_dir() {
        (choose(&args, &here, &excludes)?, dest)
    } else {
        one_file(&args, &here, &dest)?
    };
    if args.prune && (!files.whole || dest == ".") {
        return Err(
            "`prune` needs a whole git tree or a `commit`, and a folder of its own below /work"
                .to_owned(),
        );
    }
    if args.submodules && args.commit.is_none() {
        return Err(
            "`submodules` goes with `commit`; from the disk, sync the submodule's folder"
                .to_owned(),
        );
    }
    if args.baseline.is_some() && (dest == "." || !found.is_dir()) {
        return Err("`baseline` goes with a folder and a `dest` of its own below /work".to_owned());
    }
    if !is_id(&args.id) {
        return Err(format!("there is no box `{}`", args.id));
    }
    transfer(call, &args, &here, &excludes, &dest, files, max_mb)
}

/// Sends what differs, and says what came of it.
fn transfer(
    call: &Call,
    args: &Args,
    here: &Path,
    excludes: &Excludes,
    dest: &str,
    files: Files,
    max_mb: u64,
) -> Result<Value, String> {
    let id = &args.id;
    let below = files.whole && dest != ".";
    let listing = Listing::of(call, id, dest, &files.files, below)?;
    let differing = listing.differing(call, id, dest, &files.files)?;
    let sent = total(&differing)?;
    if sent.bytes > max_mb << 20 && !args.dry_run {
        return Err(format!(
            "{} MB would be sent, more than `maxMB` ({max_mb}); the largest folders: {}",
            sent.bytes >> 20,
            sent.largest.join(", ")
        ));
    }
    let mut result = about(args, here, dest, &files, &differing);
    let mut notes = Vec::new();
    files.left.tell(&mut result, &mut notes);
    if args.dry_run {
        result["dryRun"] = true.into();
        result["totalMB"] = megabytes(total(&files.files)?.bytes).into();
        result["sendMB"] = megabytes(sent.bytes).into();
        result["largest"] = sent.largest.into();
    } else {
        let sent = send(call, id, dest, here, &differing)?;
        if !differing.is_empty() {
            result["uploadedBytes"] = sent.bytes.into();
            result["uploadedMB"] = megabytes(sent.bytes).into();
        }
        result["changedOnBox"] = sent.changed;
        left::tell_changed(&sent.changed_here, &mut result, &mut notes);
    }
    if !notes.is_empty() {
        result["notes"] = notes.into();
    }
    if let Some(revision) = args.baseline.as_ref().filter(|_| !args.dry_run) {
        let with_packages = args.baseline_deps.unwrap_or(true);
        let sent = commits::send_baseline(call, id, dest, here, revision, with_packages);
        result["baseline"] = sent?;
    }
    if below && listing.whole {
        let stale = stale(here, listing.names(), &files.files, excludes)?;
        if !stale.is_empty() {
            result["staleInDest"] = some(&stale);
        }
        if args.prune && !args.dry_run {
            let pruned = prune(call, id, dest, &stale);
            result["pruned"] = pruned.gone.into();
            if pruned.gone < stale.len() {
                result["pruneFailed"] = (stale.len() - pruned.gone).into();
            }
            if let Some(why) = pruned.error {
                result["pruneError"] = why.into();
            }
        }
    }
    let amiss = packages::amiss(call, id, dest, &files.files)?;
    if !amiss.is_empty() {
        result["deps"] = amiss.into();
    }
    Ok(result)
}

/// What was chosen, and what of it is not in the box yet.
fn about(
    args: &Args,
    here: &Path,
    dest: &str,
    files: &Files,
    differing: &BTreeMap<PathBuf, PathBuf>,
) -> Value {
    let paths = differing.keys().take(SENT);
    let paths: Vec<String> = paths.map(|path| path.display().to_string()).collect();
    let mut result = json!({
        "ok": true,
        "dest": dest,
        "remotePath": format!("/work/{dest}").trim_end_matches("/."),
        "selected": files.how,
        "files": files.files.len(),
        "sentFiles": differing.len(),
        "sentPaths": paths,
        "uploadedBytes": 0,
        "uploadedMB": 0,
    });
    if let Some(commit) = &files.commit {
        result["commitSha"] = commit.as_str().into();
    }
    if !files.excluded.is_empty() {
        result["excluded"] = some(&files.excluded);
    }
    if let Some(unpacked) = files.unpacked.as_ref().filter(|_| args.submodules) {
        result["submodules"] = unpacked.with.clone().into();
        result["submodulesMissing"] = unpacked.without.clone().into();
    }
    // It is a word of warning, and no reason to fail.
    let uncommitted = select::uncommitted(here).unwrap_or_default();
    if !uncommitted.is_empty() {
        result["uncommitted"] = some(&uncommitted);
    }
    result
}

/// The folder in the box, relative to `/work`.
fn destination(dest: &str) -> Result<String, String> {
    let path = place::destination(Path::new(WORK_DIR), dest)?;
    let path = if path.as_os_str().is_empty() {
        Path::new(".")
    } else {
        &path
    };
    Ok(path.to_string_lossy().into_owned())
}

fn choose(args: &Args, here: &Path, excludes: &Excludes) -> Result<Files, String> {
    let also = args.also_paths.as_deref().unwrap_or_default();
    let also = chosen(here, also)?;
    // Whether the folder was looked through, so that something of it may be left.
    let walked = args.commit.is_none() && also.is_empty();
    let (selection, from, unpacked, commit) = match &args.commit {
        Some(revision) => {
            let commit = select::commit(here, revision)?;
            let unpacked = commits::unpack(here, &commit, args.submodules)?;
            let paths = select::walk(unpacked.dir.path(), &[])?;
            let selection = Selection {
                paths,
                how: "the commit's files",
                git: true,
            };
            let from = unpacked.dir.path().to_owned();
            (selection, from, Some(unpacked), Some(commit))
        }
        None if !also.is_empty() => {
            let selection = Selection {
                paths: BTreeSet::new(),
                how: "only `alsoPaths`",
                git: false,
            };
            (selection, here.to_owned(), None, None)
        }
        None => (
            select::select(here, args.include_ignored)?,
            here.to_owned(),
            None,
            None,
        ),
    };
    let (paths, how, whole) = (selection.paths, selection.how.to_owned(), selection.git);
    let mut files: BTreeMap<_, _> = paths
        .into_iter()
        .map(|path| (path.clone(), from.join(path)))
        .collect();
    files.extend(also.into_iter().map(|path| (path.clone(), here.join(path))));
    let excluded: Vec<PathBuf> = files
        .keys()
        .filter(|path| excludes.cover(path))
        .cloned()
        .collect();
    files.retain(|path, _| !excludes.cover(path));
    let mut left = Left::of(&mut files);
    if walked {
        match (whole, args.include_ignored) {
            (true, _) => left.add_git(here, &files)?,
            (false, true) => left.add_plain(here, &[])?,
            (false, false) => left.add_plain(here, select::MADE)?,
        }
    }
    Ok(Files {
        left,
        files,
        how,
        whole,
        excluded,
        commit,
        unpacked,
    })
}

/// Files named one by one, and those in folders that are.
fn chosen(here: &Path, named: &[String]) -> Result<Vec<PathBuf>, String> {
    let mut paths = Vec::new();
    for name in named {
        let path = Path::new(name);
        if !path
            .components()
            .all(|part| matches!(part, Component::Normal(_) | Component::CurDir))
        {
            return Err(format!(
                "`alsoPaths`: `{name}` must be relative and without `..`"
            ));
        }
        let found = fs::symlink_metadata(here.join(path));
        let found = found.map_err(|error| format!("`alsoPaths`: `{name}`: {error}"))?;
        if found.is_dir() {
            let inside = select::walk(&here.join(path), &[".git"])?;
            paths.extend(inside.into_iter().map(|inner| path.join(inner)));
        } else {
            paths.push(path.to_owned());
        }
    }
    Ok(paths)
}

/// A single file lands at `dest` itself, or in it when that ends with a slash.
fn one_file(args: &Args, here: &Path, dest: &str) -> Result<(Files, String), String> {
    if args.commit.is_some() || args.also_paths.is_some() {
        return Err("`commit` and `alsoPaths` go with a folder".to_owned());
    }
    let name = here.file_name().map(PathBuf::from);
    let name = name.ok_or("`localPath` names no file")?;
    let (folder, name) = if args.dest.ends_with('/') || dest == "." {
        (dest.trim_end_matches('/').to_owned(), name)
    } else {
        let path = Path::new(dest);
        let above = path.parent().filter(|above| !above.as_os_str().is_empty());
        let above = above.map_or(".".to_owned(), |above| above.display().to_string());
        (above, path.file_name().map_or(name, PathBuf::from))
    };
    let files = Files {
        files: BTreeMap::from([(name, here.to_owned())]),
        how: "one file".to_owned(),
        whole: false,
        excluded: Vec::new(),
        commit: None,
        unpacked: None,
        left: Left::default(),
    };
    Ok((files, folder))
}

struct Total {
    bytes: u64,
    largest: Vec<String>,
}

fn total(files: &BTreeMap<PathBuf, PathBuf>) -> Result<Total, String> {
    let mut folders: BTreeMap<String, u64> = BTreeMap::new();
    let mut bytes = 0;
    for (name, path) in files {
        let found = fs::symlink_metadata(path);
        let found = found.map_err(|error| format!("{}: {error}", path.display()))?;
        bytes += found.len();
        let top = name
            .components()
            .next()
            .map(|part| part.as_os_str().to_string_lossy());
        *folders
            .entry(top.unwrap_or_default().into_owned())
            .or_default() += found.len();
    }
    let mut folders: Vec<_> = folders.into_iter().collect();
    folders.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
    let largest = folders.into_iter().take(10);
    let largest = largest.map(|(name, bytes)| format!("{name} ({} MB)", megabytes(bytes)));
    Ok(Total {
        bytes,
        largest: largest.collect(),
    })
}

pub(super) struct Sent {
    pub(super) bytes: u64,
    pub(super) changed: Value,
    /// What changed while it was read.
    pub(super) changed_here: Vec<PathBuf>,
}

/// Packs the files and sends them. The archive is a file first, so that a connection that breaks can be tried again.
pub(super) fn send(
    call: &Call,
    id: &str,
    dest: &str,
    here: &Path,
    files: &BTreeMap<PathBuf, PathBuf>,
) -> Result<Sent, String> {
    let failed = |error: std::io::Error| format!("cannot pack the files: {error}");
    let marks = Marks::of(files);
    let archive = tree::pack(files).map_err(failed)?;
    let changed_here = marks.changed(files);
    let bytes = archive.metadata().map_err(failed)?.len();
    let mut path = format!("/v1/boxes/{id}/sync?dest={}", escaped(dest));
    if let Some(repo) = select::repo(here) {
        path.push_str(&format!("&repo={}", escaped(&repo)));
    }
    // Merging the same files twice is merging them once.
    let answer = super::patiently(super::Again::Freely, || {
        std::io::Seek::rewind(&mut &archive)
            .map_err(|error| super::Failure::NotSent(error.to_string()))?;
        call.is_alive();
        call.upstream.upload(&path, &mut &archive)
    });
    let mut answer = answer.map_err(|failure| failure.text())?;
    Ok(Sent {
        bytes,
        changed: answer["changed"].take(),
        changed_here,
    })
}

fn some(paths: &[PathBuf]) -> Value {
    let shown = paths.iter().take(SHOWN);
    let shown: Vec<String> = shown.map(|path| path.display().to_string()).collect();
    json!({"count": paths.len(), "paths": shown})
}

#[expect(clippy::cast_precision_loss, reason = "a figure for people")]
fn megabytes(bytes: u64) -> f64 {
    (bytes as f64 / 1024.0 / 1024.0 * 10.0).round() / 10.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_destination_is_below_the_working_directory() {
        for (given, expected) in [
            ("app", Some("app")),
            ("/work/app", Some("app")),
            ("/work", Some(".")),
            ("a/b/", Some("a/b")),
            ("", None),
            ("/etc", None),
            ("/workshop", None),
            ("~/x", None),
            ("a/../b", None),
        ] {
            assert_eq!(destination(given).ok().as_deref(), expected, "{given}");
        }
    }
}
