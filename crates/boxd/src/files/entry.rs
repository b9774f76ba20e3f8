//! What a client is told about one file: type, size, mode, owner, times, metadata.

use std::collections::HashMap;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::Path;

use buffa::MessageField;
use buffa_types::google::protobuf::Timestamp;
use icebox_wire::filesystem::{EntryInfo, FileType};

use super::metadata;
use crate::users;

/// The names behind the numbers of users and groups, read once for a whole listing.
#[derive(Debug, Default)]
pub(crate) struct Names {
    users: HashMap<u32, String>,
    groups: HashMap<u32, String>,
}

impl Names {
    pub(crate) fn read() -> Self {
        Self {
            users: users::names("/etc/passwd"),
            groups: users::names("/etc/group"),
        }
    }
}

/// Describes what is at `path`. A link has the type, mode and metadata of what it leads to; the rest is its own.
pub(crate) fn entry(path: &Path, names: &Names) -> io::Result<EntryInfo> {
    let own = fs::symlink_metadata(path)?;
    let is_symlink = own.file_type().is_symlink();
    let target = if is_symlink {
        fs::metadata(path).ok()
    } else {
        None
    };
    let meta = target.as_ref().unwrap_or(&own);
    let kind = file_type(meta);
    let name_of = |names: &HashMap<u32, String>, id: u32| {
        let named = names.get(&id).cloned();
        named.unwrap_or_else(|| id.to_string())
    };
    let has_metadata = matches!(
        kind,
        FileType::FILE_TYPE_FILE | FileType::FILE_TYPE_DIRECTORY
    );
    Ok(EntryInfo {
        name: path.file_name().map_or_else(
            || "/".to_owned(),
            |name| name.to_string_lossy().into_owned(),
        ),
        r#type: kind.into(),
        path: path.to_string_lossy().into_owned(),
        size: i64::try_from(own.len()).unwrap_or(i64::MAX),
        mode: meta.mode() & 0o777,
        permissions: permissions(meta),
        owner: name_of(&names.users, own.uid()),
        group: name_of(&names.groups, own.gid()),
        modified_time: MessageField::some(Timestamp::from_unix(
            own.mtime(),
            i32::try_from(own.mtime_nsec()).unwrap_or_default(),
        )),
        symlink_target: is_symlink.then(|| leads_to(path)),
        metadata: if has_metadata {
            metadata::of(path).into_iter().collect()
        } else {
            Default::default()
        },
        is_symlink,
        ..Default::default()
    })
}

/// The file at the end of all links, or what the link says when there is none.
fn leads_to(link: &Path) -> String {
    let target = fs::canonicalize(link).or_else(|_| fs::read_link(link));
    target.unwrap_or_default().to_string_lossy().into_owned()
}

fn file_type(meta: &Metadata) -> FileType {
    let kind = meta.file_type();
    if kind.is_dir() {
        FileType::FILE_TYPE_DIRECTORY
    } else if kind.is_file() {
        FileType::FILE_TYPE_FILE
    } else if kind.is_symlink() {
        FileType::FILE_TYPE_SYMLINK
    } else {
        FileType::FILE_TYPE_UNSPECIFIED
    }
}

/// As the first column of `ls -l`.
fn permissions(meta: &Metadata) -> String {
    let kind = meta.file_type();
    let mode = meta.mode();
    let first = match () {
        () if kind.is_dir() => 'd',
        () if kind.is_symlink() => 'l',
        () if kind.is_fifo() => 'p',
        () if kind.is_socket() => 's',
        () if kind.is_char_device() => 'c',
        () if kind.is_block_device() => 'b',
        () => '-',
    };
    let mut text = String::from(first);
    for (shift, special, letter) in [(6, 0o4000, 's'), (3, 0o2000, 's'), (0, 0o1000, 't')] {
        let bits = mode >> shift;
        text.push(if bits & 4 != 0 { 'r' } else { '-' });
        text.push(if bits & 2 != 0 { 'w' } else { '-' });
        text.push(match (bits & 1 != 0, mode & special != 0) {
            (true, false) => 'x',
            (false, false) => '-',
            (true, true) => letter,
            (false, true) => letter.to_ascii_uppercase(),
        });
    }
    text
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn permissions_read_like_ls() {
        let dir = tempfile::tempdir().expect("a directory");
        for (mode, text) in [
            (0o755, "drwxr-xr-x"),
            (0o1777, "drwxrwxrwt"),
            (0o6640, "drwSr-S---"),
            (0, "d---------"),
        ] {
            fs::set_permissions(dir.path(), fs::Permissions::from_mode(mode)).expect("ours");
            let meta = fs::metadata(dir.path()).expect("there");
            assert_eq!(permissions(&meta), text);
        }
    }

    #[test]
    fn links_show_what_they_lead_to() {
        let dir = tempfile::tempdir().expect("a directory");
        let at = |name: &str| dir.path().join(name);
        fs::write(at("file"), "12345").expect("written");
        std::os::unix::fs::symlink("file", at("link")).expect("linked");
        std::os::unix::fs::symlink("nowhere", at("broken")).expect("linked");
        let names = Names::read();
        let link = entry(&at("link"), &names).expect("there");
        assert_eq!(link.r#type, FileType::FILE_TYPE_FILE);
        assert_eq!((link.is_symlink, link.mode), (true, 0o644));
        let target = link.symlink_target.expect("a target");
        assert!(
            target.ends_with("/file") && target.starts_with('/'),
            "{target}"
        );
        let broken = entry(&at("broken"), &names).expect("there");
        assert_eq!(broken.r#type, FileType::FILE_TYPE_SYMLINK);
        assert_eq!(broken.symlink_target.as_deref(), Some("nowhere"));
        assert!(entry(&at("none"), &names).is_err());
    }
}
