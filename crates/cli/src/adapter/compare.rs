//! What of the chosen files is in the box already, so that only the rest is sent: compared by kind, executable bit, size and
//! hash, links by where they lead. Owns how the box's folder is listed; deletes and sends nothing.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

use super::Call;
use super::remote::exec;

/// The most of a list of files in a box, in bytes.
const LISTING: u64 = 64 << 20;
/// The most files that are looked for by name instead of in a list of everything.
const BY_NAME: usize = 500;
/// The most names in the input of one command, in bytes; the input has its limit.
const NAMES: usize = 500_000;
/// The most that is hashed, in files and bytes. What is beyond is sent: that takes no longer.
const HASHED_FILES: usize = 20_000;
const HASHED_BYTES: u64 = 512 << 20;

/// Lists every file and link of a folder, but for those of git.
const LIST: &str = "cd \"/work/$D\" 2>/dev/null || exit 0; \
    find . -name .git -prune -o \\( -type f -o -type l \\) -printf '%y %m %s %P\\0%l\\0'";
/// Lists those that are named.
const LIST_NAMED: &str = "cd \"/work/$D\" 2>/dev/null || exit 0; \
    xargs -0 -r sh -c 'find \"$@\" -maxdepth 0 \\( -type f -o -type l \\) -printf \"%y %m %s %p\\0%l\\0\" 2>/dev/null; true' sh";
/// Hashes those that are named; what went away meanwhile is not among them.
const HASH: &str = "cd \"/work/$D\" && xargs -0 -r sha256sum -z -- 2>/dev/null; true";

/// A file or link in the box.
struct There {
    /// Where a link leads.
    link: Option<PathBuf>,
    executable: bool,
    bytes: u64,
}

/// What a folder of a box holds.
pub(super) struct Listing {
    there: BTreeMap<PathBuf, There>,
    /// Whether that is everything.
    pub(super) whole: bool,
}

impl Listing {
    /// Lists a folder; only these names of it where they are few and nothing else matters.
    pub(super) fn of(
        call: &Call,
        id: &str,
        dest: &str,
        files: &BTreeMap<PathBuf, PathBuf>,
        whole: bool,
    ) -> Result<Self, String> {
        let names = names(files.keys());
        let by_name = !whole && files.len() <= BY_NAME && names.len() == 1;
        let listed = if by_name {
            output(call, id, LIST_NAMED, dest, names.first())?
        } else {
            output(call, id, LIST, dest, None)?
        };
        Ok(Self {
            there: read(&listed),
            whole: !by_name,
        })
    }

    /// The names of everything that is there.
    pub(super) fn names(&self) -> impl Iterator<Item = &PathBuf> {
        self.there.keys()
    }

    /// The files that are not there, or not as they are here.
    pub(super) fn differing(
        &self,
        call: &Call,
        id: &str,
        dest: &str,
        files: &BTreeMap<PathBuf, PathBuf>,
    ) -> Result<BTreeMap<PathBuf, PathBuf>, String> {
        let mut differ = BTreeMap::new();
        let mut alike = BTreeMap::new();
        let mut bytes = 0;
        for (name, path) in files {
            let there = self.there.get(name);
            let compared = there.is_some_and(|there| {
                bytes += there.bytes;
                bytes <= HASHED_BYTES && alike.len() < HASHED_FILES && name.to_str().is_some()
            });
            match there.map(|there| same(there, path)) {
                Some(Same::Yes) => {}
                Some(Same::Perhaps) if compared => {
                    alike.insert(name.clone(), path.clone());
                }
                Some(Same::Perhaps | Same::No) | None => {
                    differ.insert(name.clone(), path.clone());
                }
            }
        }
        let mut hashes = HashMap::new();
        for some in names(alike.keys()) {
            let said = output(call, id, HASH, dest, Some(&some))?;
            hashes.extend(read_hashes(&said));
        }
        for (name, path) in alike {
            let there = hashes.get(&name);
            let here = hash(&path).map_err(|error| format!("{}: {error}", path.display()))?;
            if there != Some(&here) {
                differ.insert(name, path);
            }
        }
        Ok(differ)
    }
}

enum Same {
    Yes,
    No,
    /// As far as one can see without reading it.
    Perhaps,
}

fn same(there: &There, path: &Path) -> Same {
    let Ok(here) = fs::symlink_metadata(path) else {
        return Same::No;
    };
    if here.is_symlink() {
        let leads = fs::read_link(path).ok();
        return if leads.is_some() && leads == there.link {
            Same::Yes
        } else {
            Same::No
        };
    }
    let executable = here.permissions().mode() & 0o111 != 0;
    let alike = here.is_file()
        && there.link.is_none()
        && (executable, here.len()) == (there.executable, there.bytes);
    if alike { Same::Perhaps } else { Same::No }
}

/// Names, each ended by NUL, as the input of as many commands as it takes. Those that no input can carry are left out.
fn names<'a>(paths: impl Iterator<Item = &'a PathBuf>) -> Vec<String> {
    let mut inputs = vec![String::new()];
    for name in paths.filter_map(|path| path.to_str()) {
        if inputs
            .last()
            .is_some_and(|last| last.len() + name.len() > NAMES)
        {
            inputs.push(String::new());
        }
        if let Some(last) = inputs.last_mut() {
            // Whatever it begins with, it is no option.
            last.extend(["./", name, "\0"]);
        }
    }
    inputs
}

/// The whole output of a command in the box.
pub(super) fn output(
    call: &Call,
    id: &str,
    cmd: &str,
    dest: &str,
    stdin: Option<&String>,
) -> Result<Vec<u8>, String> {
    let done = exec(call, id, cmd, dest, stdin.map(String::as_str))?;
    let url = done["outputUrl"].as_str().unwrap_or_default();
    let response = call.upstream.download(&format!("{url}?stream=stdout"));
    let response = response.map_err(|failure| failure.text())?;
    let mut said = Vec::new();
    let body = response.into_body().into_reader();
    let read = body.take(LISTING).read_to_end(&mut said);
    read.map_err(|error| format!("the list of the box's files broke off: {error}"))?;
    Ok(said)
}

/// Reads what [`LIST`] prints: kind, mode, size and name of each, and where it leads.
fn read(listed: &[u8]) -> BTreeMap<PathBuf, There> {
    let mut parts = listed.split(|byte| *byte == 0);
    let mut there = BTreeMap::new();
    while let (Some(about), Some(link)) = (parts.next(), parts.next()) {
        let mut words = about.splitn(4, |byte| *byte == b' ');
        let mut word = || words.next().unwrap_or_default();
        let (kind, mode, bytes, name) = (word(), word(), word(), word());
        let number = |word: &[u8], radix| {
            let word = std::str::from_utf8(word).unwrap_or_default();
            u64::from_str_radix(word, radix).unwrap_or_default()
        };
        let name = name.strip_prefix(b"./").unwrap_or(name);
        let found = There {
            link: (kind == b"l").then(|| PathBuf::from(OsStr::from_bytes(link))),
            executable: number(mode, 8) & 0o111 != 0,
            bytes: number(bytes, 10),
        };
        there.insert(PathBuf::from(OsStr::from_bytes(name)), found);
    }
    there
}

/// Reads what [`HASH`] prints.
fn read_hashes(said: &[u8]) -> impl Iterator<Item = (PathBuf, String)> {
    said.split(|byte| *byte == 0).filter_map(|line| {
        let (hash, name) = line.split_at_checked(64)?;
        let name = name.get(2..)?;
        let name = name.strip_prefix(b"./").unwrap_or(name);
        let name = std::ffi::OsString::from_vec(name.to_vec());
        Some((name.into(), String::from_utf8(hash.to_vec()).ok()?))
    })
}

fn hash(path: &Path) -> io::Result<String> {
    let (mut hasher, mut file) = (Sha256::new(), File::open(path)?);
    let mut buffer = vec![0; 256 * 1024];
    loop {
        match file.read(&mut buffer)? {
            0 => break,
            read => hasher.update(&buffer[..read]),
        }
    }
    let hash = hasher.finalize();
    Ok(hash.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listing_is_read_whatever_the_names() {
        let listed = b"f 644 5 a b\0\0f 755 0 ./run\nme\0\0l 777 3 to\0a b\0";
        let there = read(listed);
        let names: Vec<_> = there
            .keys()
            .map(|name| name.display().to_string())
            .collect();
        assert_eq!(names, ["a b", "run\nme", "to"]);
        let about = |name: &str| {
            let there = &there[Path::new(name)];
            (there.executable, there.bytes, there.link.clone())
        };
        assert_eq!(about("a b"), (false, 5, None));
        assert_eq!(about("run\nme"), (true, 0, None));
        assert_eq!(about("to"), (true, 3, Some("a b".into())));
        assert!(read(b"").is_empty());
    }

    #[test]
    fn what_differs_is_seen_without_reading_where_that_can_be() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        fs::write(&file, "hello").unwrap();
        let there = |link: Option<&str>, executable, bytes| There {
            link: link.map(PathBuf::from),
            executable,
            bytes,
        };
        assert!(matches!(same(&there(None, false, 5), &file), Same::Perhaps));
        for other in [
            there(None, true, 5),
            there(None, false, 4),
            there(Some("file"), false, 5),
        ] {
            assert!(matches!(same(&other, &file), Same::No));
        }
        let link = dir.path().join("link");
        std::os::unix::fs::symlink("file", &link).unwrap();
        assert!(matches!(
            same(&there(Some("file"), true, 4), &link),
            Same::Yes
        ));
        assert!(matches!(
            same(&there(Some("other"), true, 4), &link),
            Same::No
        ));
        assert!(matches!(same(&there(None, false, 5), &link), Same::No));
        let expected = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";
        assert_eq!(hash(&file).unwrap(), expected);
        let said = format!("{expected}  ./file\0");
        let read: Vec<_> = read_hashes(said.as_bytes()).collect();
        assert_eq!(read, [(PathBuf::from("file"), expected.to_owned())]);
    }
}
