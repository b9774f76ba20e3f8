//! Files of the data folder that are there whole or not at all. Owns how they are written; what is in them is others'.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// Writes a file under another name first and renames it, and returns once that is durable. A crash leaves the old
/// content or the new one. Nobody but those whom `mode` lets in can read it at any moment.
pub(crate) fn write(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    let fresh = path.with_extension("new");
    if let Err(error) = fs::remove_file(&fresh)
        && error.kind() != io::ErrorKind::NotFound
    {
        return Err(error);
    }
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(&fresh)?;
    file.write_all(content)?;
    file.sync_all()?;
    fs::rename(&fresh, path)?;
    let folder = match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        Some(_) | None => Path::new("."),
    };
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn what_a_crash_left_behind_is_written_over() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("admin.key");
        fs::write(dir.path().join("admin.new"), "half of").unwrap();
        for content in ["one", "another"] {
            write(&path, content.as_bytes(), 0o600).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), content);
        }
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
