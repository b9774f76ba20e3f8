//! `icebox cp`: files and folders into a box and out of it. Owns which side is the box, and what the two places mean; `up`
//! sends and `down` fetches.

mod down;
mod up;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use icebox_wire::place::WORK_DIR;
use serde_json::json;

use crate::client::Client;
use crate::error::CliError;
use crate::printer::{self, note};
use crate::select::box_id;
use crate::settings::Remote;
use crate::text::{bytes, printable};

/// Links that are named when they lead out.
const NAMED: usize = 3;

/// Copy files and folders into a box, or out of it
///
/// One side is BOX:PATH. PATH is relative to /work, or absolute below /work, /tmp or /dev/shm; folders go into a box below
/// /work only. `-` is standard input or output, for one file. A frozen box wakes first.
///
/// Into a folder that exists, the source goes under its own name; otherwise DST is the copy. A source that ends with `/.`
/// stands for what is in the folder, and a file goes into a DST that ends with `/`. Folders above are made. What is there
/// already and not in the source stays. Files keep their permissions, but: outside /work a new file in a box has 644; here
/// the umask holds, and a file that is replaced keeps those that it has.
///
/// Nothing is left half done: a file or a folder that cannot be copied whole is not copied. A link that is named is followed;
/// those in a folder are copied as links, and one that leads out of it is refused. A local name with a colon is written ./a:b.
#[derive(Args)]
#[command(after_help = "\
Examples:
  icebox cp notes.txt web:                a file, to /work/notes.txt
  icebox cp src web:app                   a folder: into app if that exists, as app otherwise
  icebox cp src/. web:app                 what is in it, into app
  icebox cp web:app/dist .                a folder, to ./dist
  icebox cp web:/tmp/core.log -           a file, to standard output
  pg_dump shop | icebox cp - web:shop.sql")]
pub(crate) struct Cp {
    /// What is copied: a path here, BOX:PATH, or -
    #[arg(value_name = "SRC")]
    from: String,
    /// Where to: BOX:PATH, a path here, or -
    #[arg(value_name = "DST")]
    to: String,
    /// Leave links that lead out of the folder where they are, and copy the rest
    #[arg(long)]
    skip_links: bool,
    #[command(flatten)]
    pub(super) remote: Remote,
}

/// One side of a copy.
#[derive(Debug, PartialEq, Eq)]
enum Side {
    /// A path on this machine.
    Here(String),
    /// Standard input or output.
    Stream,
    /// A box, and a path in it.
    Box(String, Place),
}

/// A path in a box.
#[derive(Debug, PartialEq, Eq)]
struct Place {
    /// As the server takes it: relative to the working directory, which itself is `.`, or absolute elsewhere.
    path: String,
    /// It was written as a folder, with a slash at its end.
    folder: bool,
    /// It was written as what is in the folder, with `/.` at its end.
    contents: bool,
}

/// What a copy came to.
struct Done {
    files: usize,
    bytes: u64,
    /// How many files are not as they were, where that is known.
    changed: Option<u64>,
}

impl Cp {
    pub(crate) fn run(self) -> Result<ExitCode, CliError> {
        let (from, to) = (Side::of(&self.from), Side::of(&self.to));
        let to_stdout = to == Side::Stream;
        let open = |word: &str| -> Result<(Client, String), CliError> {
            let client = self.remote.client()?;
            let id = box_id(&client, word)?;
            Ok((client, id))
        };
        let done = match (from, to) {
            (Side::Here(from), Side::Box(word, place)) => {
                let (client, id) = open(&word)?;
                up::send(&client, &id, &from, &place, self.skip_links)?
            }
            (Side::Stream, Side::Box(word, place)) => {
                let (client, id) = open(&word)?;
                up::send_input(&client, &id, &place)?
            }
            (Side::Box(word, place), Side::Here(to)) => {
                let (client, id) = open(&word)?;
                down::fetch(&client, &id, &place, &to, self.skip_links)?
            }
            (Side::Box(word, place), Side::Stream) => {
                let (client, id) = open(&word)?;
                down::print(&client, &id, &place)?
            }
            (Side::Box(..), Side::Box(..)) => {
                let text = "both sides are in boxes: copy to this machine first, and on from there";
                return Err(CliError::Usage(text.to_owned()));
            }
            (Side::Here(_) | Side::Stream, Side::Here(_) | Side::Stream) => {
                let text =
                    "no side is in a box: write one as BOX:PATH, as in `icebox cp notes.txt web:`";
                return Err(CliError::Usage(text.to_owned()));
            }
        };
        self.tell(&done, to_stdout)?;
        Ok(ExitCode::SUCCESS)
    }

    fn tell(&self, done: &Done, to_stdout: bool) -> Result<(), CliError> {
        if to_stdout {
            return Ok(());
        }
        if self.remote.json {
            let (files, bytes, changed) = (done.files, done.bytes, done.changed);
            let mut told = json!({"ok": true, "files": files, "bytes": bytes});
            if let Some(changed) = changed {
                told["changed"] = changed.into();
            }
            return printer::line(&told.to_string());
        }
        let files = if done.files == 1 { "file" } else { "files" };
        note(&format!(
            "icebox: {} {files}, {}, to {}",
            done.files,
            bytes(done.bytes),
            printable(&self.to)
        ));
        Ok(())
    }
}

impl Side {
    fn of(text: &str) -> Self {
        if text == "-" {
            return Self::Stream;
        }
        match text.split_once(':') {
            Some((word, path)) if !word.is_empty() && !word.contains('/') => {
                Self::Box(word.to_owned(), Place::of(path))
            }
            Some(_) | None => Self::Here(text.to_owned()),
        }
    }
}

impl Place {
    fn of(text: &str) -> Self {
        let contents = is_contents(text);
        let folder = contents || text.is_empty() || text.ends_with('/');
        let path = text.strip_suffix("/.").unwrap_or(text);
        let path = match path.trim_end_matches('/') {
            "" if text.starts_with('/') => "/",
            path => path,
        };
        let path = match path.strip_prefix(WORK_DIR) {
            Some(rest) if rest.is_empty() || rest.starts_with('/') => rest.trim_start_matches('/'),
            Some(_) | None => path,
        };
        let path = if path.is_empty() { "." } else { path };
        Self {
            path: path.to_owned(),
            folder,
            contents,
        }
    }

    /// What it is called in the folder that it is in.
    fn name(&self) -> &str {
        let name = Path::new(&self.path).file_name();
        name.and_then(|name| name.to_str()).unwrap_or("work")
    }

    /// The path of something in it.
    fn join(&self, name: &str) -> String {
        match self.path.as_str() {
            "." => name.to_owned(),
            path => format!("{path}/{name}"),
        }
    }
}

/// Whether a path is written as what is in the folder.
fn is_contents(text: &str) -> bool {
    text == "." || text.ends_with("/.")
}

/// Refuses links that lead out, unless they are to be left where they are.
fn refuse_links(links: &[PathBuf], skip: bool, what: &str) -> Result<(), CliError> {
    if links.is_empty() {
        return Ok(());
    }
    let mut named: Vec<_> = links
        .iter()
        .take(NAMED)
        .map(|link| format!("`{}`", printable(&link.display().to_string())))
        .collect();
    if links.len() > NAMED {
        named.push(format!("{} more", links.len() - NAMED));
    }
    let named = named.join(", ");
    if skip {
        note(&format!("icebox: left out, for they lead out: {named}"));
        return Ok(());
    }
    let text = format!(
        "links in it lead out of the folder, or are neither files nor folders: {named}; nothing was copied; --skip-links \
         leaves them out"
    );
    Err(CliError::io(format!("copy {}", printable(what)))(
        std::io::Error::other(text),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_side_with_a_colon_is_in_a_box_unless_it_is_a_path() {
        let here = |text: &str| Side::Here(text.to_owned());
        assert_eq!(Side::of("-"), Side::Stream);
        for text in ["a", "./a:b", "/x/y:z", ":a"] {
            assert_eq!(Side::of(text), here(text), "{text}");
        }
        let Side::Box(word, place) = Side::of("web:a:b") else {
            panic!("it is in a box");
        };
        assert_eq!((word.as_str(), place.path.as_str()), ("web", "a:b"));
    }

    #[test]
    fn a_place_is_relative_to_the_working_directory() {
        for (text, path, folder, contents, name) in [
            ("", ".", true, false, "work"),
            (".", ".", true, true, "work"),
            ("/work", ".", false, false, "work"),
            ("/work/", ".", true, false, "work"),
            ("app", "app", false, false, "app"),
            ("app/", "app", true, false, "app"),
            ("app/.", "app", true, true, "app"),
            ("/work/a/b", "a/b", false, false, "b"),
            ("/workshop", "/workshop", false, false, "workshop"),
            ("/tmp/x", "/tmp/x", false, false, "x"),
            ("/", "/", true, false, "work"),
        ] {
            let place = Place::of(text);
            assert_eq!(
                (place.path.as_str(), place.folder, place.contents),
                (path, folder, contents),
                "{text}"
            );
            assert_eq!(place.name(), name, "{text}");
        }
        assert_eq!(Place::of("").join("x"), "x");
        assert_eq!(Place::of("/work/a").join("x"), "a/x");
    }
}
