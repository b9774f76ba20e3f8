//! Out of a box: what arrives is put beside its place first, and there in one step when all of it has arrived.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::{Done, Place, refuse_links};
use crate::client::{Client, Content};
use crate::error::CliError;
use crate::interrupt::Interrupt;
use crate::printer;
use crate::progress::Told;
use crate::tree::{self, Arrived, Staged};

/// Fetches a file or a folder of a box.
pub(super) fn fetch(
    client: &Client,
    id: &str,
    from: &Place,
    to: &str,
    skip_links: bool,
) -> Result<Done, CliError> {
    let mut content = client.download(id, &from.path)?;
    // What has arrived by then is taken away again.
    let interrupt = Interrupt::watch()?;
    content.bytes = Box::new(Until {
        inner: content.bytes,
        interrupt: interrupt.clone(),
    });
    let here = Path::new(to);
    let is_folder = here.is_dir();
    let under_its_name = if content.archive {
        is_folder && !from.contents
    } else {
        is_folder || to.ends_with('/')
    };
    // A link that is named is followed; one that has the name of what arrives is not, for an earlier copy may have brought it.
    let named = real(here)?;
    let target = if under_its_name {
        named.join(from.name())
    } else {
        named
    };
    let fetched = if content.archive {
        fetch_folder(content, from, &target, skip_links)
    } else {
        fetch_file(content, &target, under_its_name)
    };
    fetched.or_else(|error| interrupt.check().and(Err(error)))
}

/// Where a path leads, in full.
fn real(path: &Path) -> Result<PathBuf, CliError> {
    let real = path.canonicalize().or_else(|_| std::path::absolute(path));
    real.map_err(CliError::io(format!("find {}", path.display())))
}

/// A reader that fails once somebody wants it to end.
struct Until<R> {
    inner: R,
    interrupt: Interrupt,
}

impl<R: Read> Read for Until<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.interrupt.check().map_err(io::Error::other)?;
        self.inner.read(into)
    }
}

/// Writes a file of a box to standard output.
pub(super) fn print(client: &Client, id: &str, from: &Place) -> Result<Done, CliError> {
    let mut content = client.download(id, &from.path)?;
    if content.archive {
        return Err(CliError::Usage(format!(
            "`{}` is a folder: `-` takes one file; name a folder here instead",
            from.path
        )));
    }
    let mut out = io::stdout().lock();
    match printer::copy(&mut content.bytes, &mut out)? {
        (bytes, None) => Ok(done(1, bytes)),
        (_, Some(error)) => Err(client.lost(error)),
    }
}

fn fetch_file(content: Content, target: &Path, under_its_name: bool) -> Result<Done, CliError> {
    let failed = || CliError::io(format!("write {}", target.display()));
    let mut told = Told::new(content.bytes, "fetched", content.length);
    let there = if under_its_name {
        target.symlink_metadata()
    } else {
        target.metadata()
    };
    match there {
        // What is no file, as /dev/null is none, is written to and never replaced.
        Ok(found) if !found.is_file() && !found.is_dir() && !found.is_symlink() => {
            let mut file = fs::OpenOptions::new()
                .write(true)
                .open(target)
                .map_err(failed())?;
            io::copy(&mut told, &mut file).map_err(failed())?;
        }
        Ok(_) | Err(_) => tree::save(&mut told, target, content.mode).map_err(failed())?,
    }
    Ok(done(1, told.read_so_far()))
}

fn fetch_folder(
    content: Content,
    from: &Place,
    target: &Path,
    skip_links: bool,
) -> Result<Done, CliError> {
    let failed = || CliError::io(format!("copy to {}", target.display()));
    // Known before anything is fetched.
    if target.symlink_metadata().is_ok_and(|found| !found.is_dir()) {
        let text = "it is a file or a link here, and a folder in the box";
        return Err(failed()(io::Error::other(text)));
    }
    let mut told = Told::new(content.bytes, "fetched", content.length);
    let arrived = Arrived::unpack(&mut told, target, Staged::Inside).map_err(failed())?;
    refuse_links(&arrived.left_out, skip_links, &from.path)?;
    let listed = tree::list(&arrived.top()).map_err(failed())?;
    let found = listed
        .files
        .values()
        .map(|path: &PathBuf| path.symlink_metadata());
    let found: Vec<_> = found.flatten().filter(|found| !found.is_dir()).collect();
    let bytes = found.iter().map(fs::Metadata::len).sum();
    arrived.settle(target).map_err(failed())?;
    Ok(done(found.len(), bytes))
}

fn done(files: usize, bytes: u64) -> Done {
    Done {
        files,
        bytes,
        changed: None,
    }
}
