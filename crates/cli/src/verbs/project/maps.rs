//! `icebox project maps`: sending the source maps of a release. Owns finding them in a folder and the form of the upload.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use icebox_wire::rest::SourceMapsResponse;
use ureq::http::Method;

use super::path;
use crate::client::WORK_LIMIT;
use crate::error::CliError;
use crate::printer;
use crate::settings::Remote;
use crate::text::printable;

/// What separates the parts of an upload; nothing in JSON looks like it.
const BOUNDARY: &str = "icebox-source-maps-e1a9c0b7d2f4";
/// Maps in one upload, and what they may have together, in bytes: the server's limits, with room for the form.
const MAPS: usize = 200;
const UPLOAD: usize = 31 << 20;
/// How deep folders are looked into.
const DEPTH: usize = 20;

/// Send the source maps of a release, so that stacks name original files and lines
///
/// Takes every `.map` file below FOLDER, under the path at which its script is served: --at, and its path in FOLDER. A stack
/// is resolved once, when it arrives: send the maps before the release is used. What the sources say is not kept, only
/// what comes from where.
#[derive(Args)]
#[command(after_help = "\
Examples:
  icebox project maps shop dist --release 1.2
  icebox project maps shop dist/assets --release 1.2 --at /assets")]
pub(super) struct Maps {
    /// The project's name or id
    project: String,
    /// What the build made, as in `dist`
    folder: PathBuf,
    /// The release, as `data-release` has it
    #[arg(long)]
    release: String,
    /// The path at which FOLDER is served
    #[arg(long, default_value = "/")]
    at: String,
    #[command(flatten)]
    pub(super) remote: Remote,
}

impl Maps {
    pub(super) fn run(self) -> Result<ExitCode, CliError> {
        let mut files = Vec::new();
        find(&self.folder, String::new(), 0, &mut files)?;
        files.sort();
        if files.is_empty() {
            let text = format!("there is no `.map` file in {}", self.folder.display());
            return Err(CliError::Usage(text));
        }
        let client = self.remote.client()?;
        let path = path(&self.project, "/sourcemaps")?;
        let kind = format!("multipart/form-data; boundary={BOUNDARY}");
        let mut files = files.into_iter().peekable();
        while files.peek().is_some() {
            let mut upload = Upload::of(&self.release);
            let mut count = 0;
            while let Some(file) =
                files.next_if(|file| count == 0 || (count < MAPS && upload.fits(file)))
            {
                upload.add(&self.served(&file.below), &file.path)?;
                count += 1;
            }
            let answer =
                client.upload(Method::POST, &path, &kind, &upload.end()[..], WORK_LIMIT)?;
            if self.remote.json {
                printer::line(&answer.text)?;
            } else {
                told(&answer.read()?)?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }

    fn served(&self, below: &str) -> String {
        format!("/{}/{below}", self.at.trim_matches('/')).replace("//", "/")
    }
}

/// A map on this disk.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Found {
    /// Where in the folder.
    below: String,
    path: PathBuf,
    bytes: usize,
}

fn find(
    folder: &Path,
    below: String,
    depth: usize,
    found: &mut Vec<Found>,
) -> Result<(), CliError> {
    let failed = || CliError::io(format!("read the folder {}", folder.display()));
    for entry in fs::read_dir(folder).map_err(failed())? {
        let entry = entry.map_err(failed())?;
        let name = entry.file_name();
        // The name of what is served is text.
        let Some(name) = name.to_str() else { continue };
        let below = format!("{below}{name}");
        let kind = entry.file_type().map_err(failed())?;
        if kind.is_dir() && depth < DEPTH {
            find(&entry.path(), format!("{below}/"), depth + 1, found)?;
        } else if kind.is_file() && name.ends_with(".map") {
            let bytes = entry.metadata().map_err(failed())?.len();
            found.push(Found {
                below,
                path: entry.path(),
                bytes: usize::try_from(bytes).unwrap_or(usize::MAX),
            });
        }
    }
    Ok(())
}

/// An upload that grows.
struct Upload(Vec<u8>);

impl Upload {
    fn of(release: &str) -> Self {
        let mut upload = Self(Vec::new());
        upload.part("release", release.as_bytes());
        upload
    }

    fn fits(&self, file: &Found) -> bool {
        self.0.len().saturating_add(file.bytes) < UPLOAD
    }

    fn add(&mut self, served: &str, file: &Path) -> Result<(), CliError> {
        let content = fs::read(file).map_err(CliError::io(format!("read {}", file.display())))?;
        self.part(served, &content);
        Ok(())
    }

    fn part(&mut self, name: &str, content: &[u8]) {
        // As browsers write names in forms.
        let name = name.replace('"', "%22").replace(['\r', '\n'], "");
        let head =
            format!("--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n");
        self.0.extend_from_slice(head.as_bytes());
        self.0.extend_from_slice(content);
        self.0.extend_from_slice(b"\r\n");
    }

    fn end(mut self) -> Vec<u8> {
        self.0
            .extend_from_slice(format!("--{BOUNDARY}--\r\n").as_bytes());
        self.0
    }
}

fn told(sent: &SourceMapsResponse) -> Result<(), CliError> {
    for path in &sent.paths {
        printer::line(&format!(
            "{}: {}",
            printable(&sent.release),
            printable(path)
        ))?;
    }
    for release in &sent.removed_releases {
        printer::note(&format!(
            "The maps of release {} had to make room.",
            printable(release)
        ));
    }
    Ok(())
}
