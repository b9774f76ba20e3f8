//! Into a box: whole trees as an archive that the box merges in one go, streams and files outside its working directory one
//! by one.

use std::collections::BTreeMap;
use std::fs::{self, File, Metadata};
use std::io::Read;
use std::path::{Path, PathBuf};

use icebox_wire::place::{self, WORK_DIR};
use icebox_wire::rest::{FileResponse, SyncResponse};
use ureq::http::Method;

use super::{Done, Place, is_contents, refuse_links};
use crate::client::{Client, WORK_LIMIT, escaped};
use crate::error::CliError;
use crate::printer;
use crate::progress::Told;
use crate::tree;

/// Sends a file or a folder of this machine. What can be seen to be wrong here is said before the box is asked, which wakes it.
pub(super) fn send(
    client: &Client,
    id: &str,
    from: &str,
    to: &Place,
    skip_links: bool,
) -> Result<Done, CliError> {
    // What is named is followed; links in it are not.
    let found = fs::metadata(from).map_err(CliError::io(format!("copy {from}")))?;
    if found.is_dir() {
        send_folder(client, id, from, to, skip_links)
    } else {
        send_file(client, id, from, &found, to)
    }
}

/// Sends standard input as a file.
pub(super) fn send_input(client: &Client, id: &str, to: &Place) -> Result<Done, CliError> {
    may_be_named(&to.path)?;
    if to.folder || is_folder(client, id, &to.path)? {
        return Err(CliError::Usage(format!(
            "`{}` is a folder: name the file that standard input becomes",
            to.path
        )));
    }
    put(client, id, &to.path, std::io::stdin().lock(), None)
}

fn send_file(
    client: &Client,
    id: &str,
    from: &str,
    found: &Metadata,
    to: &Place,
) -> Result<Done, CliError> {
    let failed = || CliError::io(format!("copy {from}"));
    may_be_named(&to.path)?;
    let inside = to.join(&name(from)?);
    let file = File::open(from).map_err(failed())?;
    let into = to.folder || is_folder(client, id, &to.path)?;
    let target = if into { inside } else { to.path.clone() };
    // Only what lies on a disk under a name can be merged, which keeps its permissions.
    let path = fs::canonicalize(from).ok();
    let path = path.filter(|_| found.is_file() && !target.starts_with('/'));
    let Some(path) = path else {
        let length = found.is_file().then_some(found.len());
        return put(client, id, &target, file, length);
    };
    let (folder, name) = target.rsplit_once('/').unwrap_or((".", &target));
    let files = BTreeMap::from([(PathBuf::from(name), path)]);
    merge(client, id, folder, &files, from)
}

fn send_folder(
    client: &Client,
    id: &str,
    from: &str,
    to: &Place,
    skip_links: bool,
) -> Result<Done, CliError> {
    if to.path.starts_with('/') {
        return Err(CliError::Usage(format!(
            "a folder goes below /work only: copy it there, and move it with `icebox exec BOX -- mv … {}`",
            to.path
        )));
    }
    let wrong = |why: String| CliError::Usage(format!("{}: {why}", to.path));
    place::destination(Path::new(WORK_DIR), &to.path).map_err(wrong)?;
    let contents = is_contents(from);
    let inside = if contents {
        to.path.clone()
    } else {
        to.join(&name(from)?)
    };
    let listed = tree::list(Path::new(from)).map_err(CliError::io(format!("copy {from}")))?;
    refuse_links(&listed.left_out, skip_links, from)?;
    let into = !contents && is_folder(client, id, &to.path)?;
    let dest = if into { &inside } else { &to.path };
    merge(client, id, dest, &listed.files, from)
}

/// What a file or a folder of this machine is called: as it was named, also if that is a link.
fn name(from: &str) -> Result<String, CliError> {
    let path = Path::new(from);
    let name = match path.file_name() {
        Some(name) => name.to_owned(),
        // `.` and what ends with `..` have a name of their own elsewhere.
        None => {
            let real = fs::canonicalize(path).map_err(CliError::io(format!("copy {from}")))?;
            real.file_name().unwrap_or_default().to_owned()
        }
    };
    match name.to_str() {
        Some("") => Err(CliError::Usage(format!(
            "{from} has no name that it could go by: end it with `/.` for what is in it"
        ))),
        Some(name) => Ok(name.to_owned()),
        None => Err(CliError::Usage(format!(
            "the name of {from} is not text: give it another"
        ))),
    }
}

/// Refuses a path that no box lets a call name.
fn may_be_named(path: &str) -> Result<(), CliError> {
    match place::locate(Path::new(WORK_DIR), path) {
        Ok(_) => Ok(()),
        Err(why) => Err(CliError::Usage(format!("{path}: {why}"))),
    }
}

/// Has files merged into a folder below the working directory, all of them or none.
fn merge(
    client: &Client,
    id: &str,
    dest: &str,
    files: &BTreeMap<PathBuf, PathBuf>,
    from: &str,
) -> Result<Done, CliError> {
    let failed = || CliError::io(format!("copy {from}"));
    let archive = tree::pack(files).map_err(failed())?;
    let length = archive.metadata().map_err(failed())?.len();
    let path = format!("/v1/boxes/{id}/sync?dest={}", escaped(dest));
    let mut told = Told::new(archive, "sent", Some(length));
    let media = "application/gzip";
    let answer = client.upload_from(Method::POST, &path, media, &mut told, WORK_LIMIT);
    drop(told);
    let merged: SyncResponse = answer?.read()?;
    printer::notices(&merged.notices);
    let sent = files
        .values()
        .filter_map(|path| path.symlink_metadata().ok());
    let sent: Vec<_> = sent.filter(|found| !found.is_dir()).collect();
    Ok(Done {
        files: sent.len(),
        bytes: sent.iter().map(std::fs::Metadata::len).sum(),
        changed: Some(merged.changed),
    })
}

/// Writes one file, whole or not at all.
fn put(
    client: &Client,
    id: &str,
    to: &str,
    content: impl Read,
    length: Option<u64>,
) -> Result<Done, CliError> {
    let path = format!("/v1/boxes/{id}/files?path={}", escaped(to));
    let mut told = Told::new(content, "sent", length);
    let media = "application/octet-stream";
    let answer = client.upload_from(Method::PUT, &path, media, &mut told, WORK_LIMIT);
    let bytes = told.read_so_far();
    drop(told);
    let written: FileResponse = answer?.read()?;
    printer::notices(&written.notices);
    Ok(Done {
        files: 1,
        bytes,
        changed: None,
    })
}

/// Whether there is a folder at a path of the box. What is wrong with it otherwise, the copy itself is told.
fn is_folder(client: &Client, id: &str, path: &str) -> Result<bool, CliError> {
    // The working directory is always there.
    if path == "." {
        return Ok(true);
    }
    let path = format!("/v1/boxes/{id}/files?list=1&path={}", escaped(path));
    // It wakes a frozen box first.
    match client.get_within(&path, WORK_LIMIT) {
        Ok(_) => Ok(true),
        Err(CliError::Api { body, .. })
            if ["not_found", "bad_request"].contains(&body.code.as_str()) =>
        {
            Ok(false)
        }
        Err(error) => Err(error),
    }
}
