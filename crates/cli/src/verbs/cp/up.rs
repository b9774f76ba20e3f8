//! Into a box: whole trees as an archive that the box merges in one go, streams and files outside its working directory one
//! by one.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use icebox_wire::rest::{FileResponse, SyncResponse};
use ureq::SendBody;
use ureq::http::Method;

use super::{Done, Place, is_contents, refuse_links};
use crate::client::{Client, WORK_LIMIT, escaped};
use crate::error::CliError;
use crate::printer;
use crate::progress::Told;
use crate::tree;

/// Sends a file or a folder of this machine.
pub(super) fn send(
    client: &Client,
    id: &str,
    from: &str,
    to: &Place,
    skip_links: bool,
) -> Result<Done, CliError> {
    let failed = || CliError::io(format!("copy {from}"));
    // What is named is followed; links in it are not.
    let path = fs::canonicalize(from).map_err(failed())?;
    let found = path.metadata().map_err(failed())?;
    let name = path.file_name().unwrap_or_default();
    let name = name.to_str().ok_or_else(|| {
        CliError::Usage(format!("the name of {from} is not text: give it another"))
    })?;
    if found.is_dir() {
        let into = !is_contents(from) && is_folder(client, id, &to.path)?;
        let dest = if into { to.join(name) } else { to.path.clone() };
        return send_folder(client, id, from, &path, &dest, skip_links);
    }
    let into = to.folder || is_folder(client, id, &to.path)?;
    let target = if into { to.join(name) } else { to.path.clone() };
    if !found.is_file() || target.starts_with('/') {
        let file = File::open(&path).map_err(failed())?;
        let length = found.is_file().then_some(found.len());
        return put(client, id, &target, file, length);
    }
    let (folder, name) = target.rsplit_once('/').unwrap_or((".", &target));
    let files = BTreeMap::from([(PathBuf::from(name), path)]);
    merge(client, id, folder, &files, from)
}

/// Sends standard input as a file.
pub(super) fn send_input(client: &Client, id: &str, to: &Place) -> Result<Done, CliError> {
    if to.folder || is_folder(client, id, &to.path)? {
        return Err(CliError::Usage(format!(
            "`{}` is a folder: name the file that standard input becomes",
            to.path
        )));
    }
    put(client, id, &to.path, std::io::stdin().lock(), None)
}

fn send_folder(
    client: &Client,
    id: &str,
    from: &str,
    path: &Path,
    dest: &str,
    skip_links: bool,
) -> Result<Done, CliError> {
    if dest.starts_with('/') {
        return Err(CliError::Usage(format!(
            "a folder goes below /work only: copy it there, and move it with `icebox exec BOX -- mv … {dest}`"
        )));
    }
    let listed = tree::list(path).map_err(CliError::io(format!("copy {from}")))?;
    refuse_links(&listed.left_out, skip_links, from)?;
    merge(client, id, dest, &listed.files, from)
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
    let body = SendBody::from_reader(&mut told);
    let answer = client.upload(Method::POST, &path, "application/gzip", body, WORK_LIMIT);
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
    let body = SendBody::from_reader(&mut told);
    let media = "application/octet-stream";
    let answer = client.upload(Method::PUT, &path, media, body, WORK_LIMIT);
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
