//! A certificate and its key in files that somebody else renews. Owns noticing that they changed.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use icebox_lifecycle::Time;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use sha2::{Digest as _, Sha256};

use super::{TlsError, provider};

/// The largest file that is read, in bytes.
const LARGEST: u64 = 1024 * 1024;

/// A change so short ago may hide another one: clocks of filesystems are coarse.
const COARSE_MS: i64 = 2_000;

/// Where they are, and how they were when they were looked at last.
pub(super) struct Files {
    cert: PathBuf,
    key: PathBuf,
    seen: Mutex<Option<Seen>>,
}

/// How they were.
struct Seen {
    stamps: [Stamp; 2],
    /// The stamps would tell a later change.
    settled: bool,
    digest: [u8; 32],
}

/// What tells one state of a file from another: its place on the disk, its size, and the time of its last change in
/// milliseconds and the rest of that in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Stamp(u64, u64, i64, i64);

impl Files {
    pub(super) fn new(cert: &Path, key: &Path) -> Self {
        Self {
            cert: cert.to_owned(),
            key: key.to_owned(),
            seen: Mutex::new(None),
        }
    }

    /// Reads them if they changed since the last time; the first time they did. `None` when they did not.
    pub(super) fn look(&self, now: Time) -> Result<Option<Arc<CertifiedKey>>, TlsError> {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let stamps = [stamp(&self.cert)?, stamp(&self.key)?];
        if seen
            .as_ref()
            .is_some_and(|seen| seen.settled && seen.stamps == stamps)
        {
            return Ok(None);
        }
        let cert = std::fs::read(&self.cert).map_err(cannot_use(&self.cert))?;
        let key = std::fs::read(&self.key).map_err(cannot_use(&self.key))?;
        let digest = Sha256::new().chain_update(&cert).chain_update(&key);
        let digest = digest.finalize().into();
        let same = seen.as_ref().is_some_and(|seen| seen.digest == digest);
        *seen = Some(Seen {
            stamps,
            settled: stamps.iter().all(|Stamp(.., at, _)| now.0 - at > COARSE_MS),
            digest,
        });
        if same {
            return Ok(None);
        }
        self.parse(&cert, &key).map(Some)
    }

    fn parse(&self, cert: &[u8], key: &[u8]) -> Result<Arc<CertifiedKey>, TlsError> {
        let unfit = |path: &Path, what: String| TlsError::Unfit {
            path: path.to_owned(),
            what,
        };
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(cert).collect();
        let chain = chain.map_err(|error| {
            let what = format!("holds no certificates in PEM form: {error}");
            unfit(&self.cert, what)
        })?;
        if chain.is_empty() {
            let what = "holds no certificate in PEM form".to_owned();
            return Err(unfit(&self.cert, what));
        }
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| {
            let what = format!("holds no private key in PEM form: {error}");
            unfit(&self.key, what)
        })?;
        let key = CertifiedKey::from_der(chain, key, &provider()).map_err(|error| {
            let cert = self.cert.display();
            unfit(&self.key, format!("does not go with {cert}: {error}"))
        })?;
        Ok(Arc::new(key))
    }
}

fn stamp(path: &Path) -> Result<Stamp, TlsError> {
    let meta: Metadata = std::fs::metadata(path).map_err(cannot_use(path))?;
    if meta.len() > LARGEST {
        return Err(TlsError::Unfit {
            path: path.to_owned(),
            what: format!("is larger than {LARGEST} bytes"),
        });
    }
    Ok(Stamp(
        meta.ino(),
        meta.size(),
        meta.ctime() * 1_000,
        meta.ctime_nsec(),
    ))
}

pub(super) fn cannot_use(path: &Path) -> impl FnOnce(std::io::Error) -> TlsError {
    move |source| TlsError::File {
        path: path.to_owned(),
        source,
    }
}
