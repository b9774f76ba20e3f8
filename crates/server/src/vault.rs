//! Seals values for the database, so that a copy of it alone gives none of them away. Owns the key, which is a file of its
//! own beside the database, and what a sealed value is bound to. Who may use a value is not decided here.
//!
//! Sealed is ChaCha20-Poly1305 under a random nonce, which goes in front; the name of what is sealed is authenticated with
//! it, so that a value cannot be passed off as another one.

use std::fmt;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};

use crate::{random, whole_file};

/// The key's file in the data folder.
pub const KEY_FILE: &str = "secrets.key";
const KEY_LEN: usize = 32;

/// Why there is no vault.
#[derive(Debug, thiserror::Error)]
#[error("cannot use the key of secrets in {path}")]
pub struct VaultError {
    path: PathBuf,
    source: io::Error,
}

/// A value could not be opened: it was sealed with another key, or it was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a sealed value does not open: the database and {KEY_FILE} are not of the same server; set the value again"
)]
pub struct Unopened;

/// Seals and opens.
pub struct Vault(LessSafeKey);

impl fmt::Debug for Vault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Vault(…)")
    }
}

impl Vault {
    /// Takes the key in the data folder, or makes one.
    pub fn open(data: &Path) -> Result<Self, VaultError> {
        let path = data.join(KEY_FILE);
        let key = read_or_make(&path).map_err(|source| VaultError { path, source })?;
        Ok(Self::with(&key))
    }

    fn with(key: &[u8; KEY_LEN]) -> Self {
        #[expect(clippy::expect_used, reason = "the length is that of the algorithm")]
        let key = UnboundKey::new(&CHACHA20_POLY1305, key).expect("a key of the right length");
        Self(LessSafeKey::new(key))
    }

    /// Seals a value under a name.
    #[must_use]
    pub fn seal(&self, name: &str, value: &[u8]) -> Vec<u8> {
        let nonce = random::bytes::<NONCE_LEN>();
        let mut text = value.to_vec();
        let sealed = self.0.seal_in_place_append_tag(
            Nonce::assume_unique_for_key(nonce),
            Aad::from(name.as_bytes()),
            &mut text,
        );
        #[expect(clippy::expect_used, reason = "it fails for values of 256 GB only")]
        sealed.expect("a value of a few KiB");
        [nonce.as_slice(), &text].concat()
    }

    /// Opens what was sealed under that name.
    pub fn unseal(&self, name: &str, sealed: &[u8]) -> Result<Vec<u8>, Unopened> {
        let (nonce, text) = sealed.split_at_checked(NONCE_LEN).ok_or(Unopened)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| Unopened)?;
        let mut text = text.to_vec();
        let opened = self
            .0
            .open_in_place(nonce, Aad::from(name.as_bytes()), &mut text);
        let len = opened.map_err(|_| Unopened)?.len();
        text.truncate(len);
        Ok(text)
    }
}

fn read_or_make(path: &Path) -> io::Result<[u8; KEY_LEN]> {
    match std::fs::File::open(path) {
        Ok(mut file) => {
            let mut key = [0; KEY_LEN];
            file.read_exact(&mut key)?;
            if file.read(&mut [0])? > 0 {
                let text = format!("it must be {KEY_LEN} bytes long");
                return Err(io::Error::new(io::ErrorKind::InvalidData, text));
            }
            Ok(key)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => make(path),
        Err(error) => Err(error),
    }
}

/// Makes a key, which is durable before anything can be sealed with it.
fn make(path: &Path) -> io::Result<[u8; KEY_LEN]> {
    let key = random::bytes::<KEY_LEN>();
    whole_file::write(path, &key, 0o600)?;
    Ok(key)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn what_is_sealed_opens_under_its_name_and_key_only() {
        let dir = tempfile::tempdir().unwrap();
        let vault = Vault::open(dir.path()).unwrap();
        let sealed = vault.seal("a", b"value");
        assert!(!sealed.windows(5).any(|part| part == b"value"));
        assert_ne!(sealed, vault.seal("a", b"value"), "nonces differ");
        assert_eq!(vault.unseal("a", &sealed).unwrap(), b"value");
        assert_eq!(vault.unseal("b", &sealed), Err(Unopened));
        let mut changed = sealed.clone();
        *changed.last_mut().unwrap() ^= 1;
        for wrong in [&changed[..], &sealed[..5], &[]] {
            assert_eq!(vault.unseal("a", wrong), Err(Unopened));
        }
        let again = Vault::open(dir.path()).unwrap();
        assert_eq!(again.unseal("a", &sealed).unwrap(), b"value");
        let mode = std::fs::metadata(dir.path().join(KEY_FILE)).unwrap();
        assert_eq!(mode.permissions().mode() & 0o777, 0o600);
        let other = tempfile::tempdir().unwrap();
        let other = Vault::open(other.path()).unwrap();
        assert_eq!(other.unseal("a", &sealed), Err(Unopened));
    }

    #[test]
    fn a_key_that_is_cut_short_is_no_key_and_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        for bytes in [&[7; 31][..], &[7; 33]] {
            std::fs::write(dir.path().join(KEY_FILE), bytes).unwrap();
            assert!(Vault::open(dir.path()).is_err());
            assert_eq!(std::fs::read(dir.path().join(KEY_FILE)).unwrap(), bytes);
        }
    }
}
