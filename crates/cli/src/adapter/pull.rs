//! `sandbox_pull`: fetches a file or a folder of a box to the local disk. What a box holds is not trusted: nothing is
//! written outside the target, and the target changes only when everything has arrived.

use std::fs::{self, File};
use std::io::{self, Read, Write as _};
use std::path::{Component, Path, PathBuf};

use flate2::read::MultiGzDecoder;
use icebox_wire::tree::ARCHIVE_HEADER;
use serde::Deserialize;
use serde_json::{Value, json};

use super::Call;
use super::remote::{escaped, is_id};
use super::select;

/// The most that is fetched, in bytes, before and after unpacking.
const LARGEST: u64 = 16 << 30;
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
        save(&mut body, &target)
            .map_err(|error| format!("cannot write {}: {error}", target.display()))?;
        return Ok(json!({
            "ok": true, "localPath": target, "bytes": body.bytes, "extracted": false, "files": 1,
        }));
    }
    let failed = |error: io::Error| format!("cannot unpack to {}: {error}", target.display());
    let above = target
        .parent()
        .ok_or("`localPath` is no place for a folder")?;
    fs::create_dir_all(above).map_err(failed)?;
    let staging = tempfile::Builder::new()
        .prefix(".icebox-pull-")
        .tempdir_in(above);
    let staging = staging.map_err(failed)?;
    let left_out = unpack(&mut body, staging.path()).map_err(failed)?;
    let arrived = staging.path().join("top");
    fs::create_dir_all(&arrived).map_err(failed)?;
    let paths = select::walk(&arrived, &[])?;
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
        fs::rename(&target, staging.path().join("before")).map_err(failed)?;
    }
    if target.exists() {
        for path in &paths {
            let to = target.join(path);
            fs::create_dir_all(to.parent().unwrap_or(&target)).map_err(failed)?;
            fs::rename(arrived.join(path), to).map_err(failed)?;
        }
    } else {
        fs::rename(&arrived, &target).map_err(failed)?;
    }
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

/// Writes a file that is there whole or not at all.
fn save(body: &mut impl Read, target: &Path) -> io::Result<()> {
    let above = target.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(above)?;
    let mut file = tempfile::NamedTempFile::new_in(above)?;
    io::copy(body, &mut file)?;
    file.flush()?;
    // A temporary file is for its owner only; this one is a file like any other.
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    file.as_file().set_permissions(mode)?;
    file.persist(target)?;
    Ok(())
}

/// Unpacks an archive of one folder as `top`; how many entries were left out.
fn unpack(body: &mut impl Read, into: &Path) -> io::Result<usize> {
    let mut archive = tar::Archive::new(MultiGzDecoder::new(body).take(LARGEST));
    let mut left_out = 0;
    for entry in archive.entries()? {
        let mut entry = entry?;
        let path = entry.path()?.into_owned();
        let inner: PathBuf = path.components().skip(1).collect();
        let plain = inner
            .components()
            .all(|part| matches!(part, Component::Normal(_)));
        if !plain {
            left_out += 1;
            continue;
        }
        let to = into.join("top").join(&inner);
        if let Some(folder) = to.parent() {
            fs::create_dir_all(folder)?;
        }
        let kind = entry.header().entry_type();
        if kind.is_dir() {
            fs::create_dir_all(&to)?;
        } else if kind.is_symlink() {
            let target = entry.link_name()?.unwrap_or_default().into_owned();
            if stays(&inner, &target) {
                std::os::unix::fs::symlink(target, &to)?;
            } else {
                left_out += 1;
            }
        } else if kind.is_file() {
            let mode = entry.header().mode()? & 0o777;
            let mut file = File::create_new(&to)?;
            io::copy(&mut entry, &mut file)?;
            file.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(mode | 0o600))?;
        } else {
            left_out += 1;
        }
    }
    Ok(left_out)
}

/// Whether a link at `path` leads to something in the same folder, by its words.
fn stays(path: &Path, target: &Path) -> bool {
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
    fn links_that_lead_out_are_left_out() {
        for (path, target, inside) in [
            ("a", "b", true),
            ("a/b", "../c", true),
            ("a", "../c", false),
            ("a", "/etc/passwd", false),
        ] {
            assert_eq!(
                stays(Path::new(path), Path::new(target)),
                inside,
                "{path} -> {target}"
            );
        }
    }

    #[test]
    fn an_archive_writes_nothing_outside() {
        let mut tar = tar::Builder::new(flate2::write::GzEncoder::new(
            Vec::new(),
            flate2::Compression::fast(),
        ));
        let mut header = tar::Header::new_gnu();
        header.set_size(1);
        header.set_mode(0o755);
        tar.append_data(&mut header, "top/run", &b"x"[..]).unwrap();
        header.set_entry_type(tar::EntryType::Symlink);
        header.set_size(0);
        tar.append_link(&mut header, "top/out", "/etc").unwrap();
        tar.append_link(&mut header, "top/in", "run").unwrap();
        let archive = tar.into_inner().unwrap().finish().unwrap();
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(unpack(&mut &archive[..], dir.path()).unwrap(), 1);
        let names = select::walk(&dir.path().join("top"), &[]).unwrap();
        assert_eq!(
            names.into_iter().collect::<Vec<_>>(),
            [Path::new("in"), Path::new("run")]
        );
    }

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
