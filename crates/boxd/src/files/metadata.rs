//! A file's metadata: words a client attaches to what it uploads, kept as extended attributes under `user.e2b.`.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;

use axum::http::HeaderMap;
use rustix::fs::{XattrFlags, flistxattr, fremovexattr, fsetxattr, getxattr, listxattr};

use crate::error::Error;

/// In front of every key.
const PREFIX: &str = "user.e2b.";

/// In front of every header that carries one.
const HEADER: &str = "x-metadata-";

/// The longest key: 255 bytes are an attribute's name, the prefix included.
const MAX_KEY_BYTES: usize = 246;

/// The most all keys and values take.
const MAX_BYTES: usize = 4096;

/// The most the names of one file's attributes take, by the kernel's own limit.
const MAX_NAMES_BYTES: usize = 64 * 1024;

/// What the headers of an upload say.
pub(crate) fn of_headers(headers: &HeaderMap) -> Result<BTreeMap<String, String>, Error> {
    let mut found = BTreeMap::new();
    for (name, value) in headers {
        // Header names are lowercase already.
        let Some(key) = name.as_str().strip_prefix(HEADER) else {
            continue;
        };
        let value = value.as_bytes();
        if key.is_empty() || key.len() > MAX_KEY_BYTES {
            return Err(Error::BadRequest(format!(
                "a metadata key has 1 to {MAX_KEY_BYTES} characters, and {key:?} has {}",
                key.len()
            )));
        }
        if !value.iter().all(|byte| (0x20..=0x7e).contains(byte)) {
            return Err(Error::BadRequest(format!(
                "the value of metadata {key:?} must be printable ASCII"
            )));
        }
        found.insert(key.to_owned(), String::from_utf8_lossy(value).into_owned());
    }
    let size: usize = found
        .iter()
        .map(|(key, value)| key.len() + value.len())
        .sum();
    if size > MAX_BYTES {
        return Err(Error::BadRequest(format!(
            "metadata takes {size} bytes in all; at most {MAX_BYTES}"
        )));
    }
    Ok(found)
}

/// What the file at `path` has. Nothing where the file system keeps none.
pub(crate) fn of(path: &Path) -> BTreeMap<String, String> {
    let mut names = Vec::new();
    let mut found = BTreeMap::new();
    // Most files have none, and then this asks once.
    match rustix::fs::listxattr_query(path) {
        Ok(len @ 1..=MAX_NAMES_BYTES) => names.reserve(len),
        Ok(_) | Err(_) => return found,
    }
    if listxattr(path, rustix::buffer::spare_capacity(&mut names)).is_err() {
        return found;
    }
    for key in keys(&names) {
        let mut value = Vec::with_capacity(MAX_NAMES_BYTES);
        let name = format!("{PREFIX}{key}");
        if getxattr(path, name, rustix::buffer::spare_capacity(&mut value)).is_ok() {
            found.insert(key, String::from_utf8_lossy(&value).into_owned());
        }
    }
    found
}

/// Makes `metadata` all that the file has.
pub(crate) fn replace(file: &File, metadata: &BTreeMap<String, String>) -> rustix::io::Result<()> {
    let mut names = Vec::with_capacity(MAX_NAMES_BYTES);
    if flistxattr(file, rustix::buffer::spare_capacity(&mut names)).is_ok() {
        for key in keys(&names).filter(|key| !metadata.contains_key(key)) {
            fremovexattr(file, format!("{PREFIX}{key}"))?;
        }
    }
    for (key, value) in metadata {
        let name = format!("{PREFIX}{key}");
        fsetxattr(file, name, value.as_bytes(), XattrFlags::empty())?;
    }
    Ok(())
}

/// The keys among the names that a list of attributes holds, each ended by NUL.
fn keys(names: &[u8]) -> impl Iterator<Item = String> {
    let names = names.split(|byte| *byte == 0);
    names.filter_map(|name| {
        let key = name.strip_prefix(PREFIX.as_bytes())?;
        String::from_utf8(key.to_vec()).ok()
    })
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderName, HeaderValue};

    use super::*;

    fn headers(pairs: &[(&str, &[u8])]) -> HeaderMap {
        let pair = |(name, value): &(&str, &[u8])| {
            let name = HeaderName::try_from(*name).expect("a header's name");
            (name, HeaderValue::from_bytes(value).expect("a value"))
        };
        pairs.iter().map(pair).collect()
    }

    #[test]
    fn headers_become_lowercase_keys() {
        let found = of_headers(&headers(&[
            ("X-Metadata-Author", b"alice"),
            ("X-Other", b"x"),
            ("x-metadata-empty", b""),
        ]));
        let expected = [("author", "alice"), ("empty", "")];
        let expected = expected.map(|(key, value)| (key.to_owned(), value.to_owned()));
        assert_eq!(found.expect("valid"), BTreeMap::from(expected));
    }

    #[test]
    fn limits_are_named() {
        let long_key = format!("x-metadata-{}", "k".repeat(247));
        let long_value = vec![b'v'; 4090];
        for (name, value, words) in [
            (long_key.as_str(), &b"v"[..], "246"),
            ("x-metadata-", b"v", "246"),
            ("x-metadata-a", "ü".as_bytes(), "ASCII"),
            ("x-metadata-metadata", &long_value, "4096"),
        ] {
            let error = of_headers(&headers(&[(name, value)])).expect_err("refused");
            assert!(error.to_string().contains(words), "{error}");
        }
    }
}
