//! Which certificate a handshake gets. Owns the one for the server itself, and those for single boxes' names, which are
//! made when a client asks for the first time.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use icebox_lifecycle::Time;
use icebox_lifecycle::time::DAY;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use super::authority::Authority;

/// How long before the end of a certificate the next one is made.
const BEFORE_END_MS: i64 = 30 * DAY;
/// Names with a certificate of their own that are remembered.
const MOST_NAMES: usize = 4_096;

/// The certificates in use.
#[derive(Debug)]
pub(super) struct Resolver(RwLock<InUse>);

#[derive(Debug)]
struct InUse {
    own: Arc<CertifiedKey>,
    /// When the own one ends, if new ones are made here.
    ends: Option<Time>,
    of_names: HashMap<String, (Arc<CertifiedKey>, Time)>,
}

impl Resolver {
    /// One certificate for everybody.
    pub(super) fn fixed(own: Arc<CertifiedKey>) -> Self {
        Self(RwLock::new(InUse {
            own,
            ends: None,
            of_names: HashMap::new(),
        }))
    }

    /// One until then, and others for single names.
    pub(super) fn minting(own: Arc<CertifiedKey>, ends: Time) -> Self {
        let Self(in_use) = Self::fixed(own);
        let mut in_use = in_use.into_inner().unwrap_or_else(PoisonError::into_inner);
        in_use.ends = Some(ends);
        Self(RwLock::new(in_use))
    }

    /// Whether it is time for a new one.
    pub(super) fn is_due(&self, now: Time) -> bool {
        let in_use = self.0.read().unwrap_or_else(PoisonError::into_inner);
        in_use.ends.is_some_and(|ends| is_due(ends, now))
    }

    /// Uses another certificate for the server itself.
    pub(super) fn put(&self, own: Arc<CertifiedKey>, ends: Option<Time>) {
        let mut in_use = self.0.write().unwrap_or_else(PoisonError::into_inner);
        (in_use.own, in_use.ends) = (own, ends);
    }

    /// Makes a certificate for a name, if it needs one of its own.
    pub(super) fn make_for(&self, name: &str, authority: &Authority, now: Time) {
        let name = name.to_ascii_lowercase();
        if !authority.names().needs_own(&name) || self.has(&name, now) {
            return;
        }
        match authority.leaf(Some(&name), now) {
            Ok(made) => {
                let mut in_use = self.0.write().unwrap_or_else(PoisonError::into_inner);
                if in_use.of_names.len() >= MOST_NAMES {
                    in_use.of_names.clear();
                }
                in_use.of_names.insert(name, made);
            }
            Err(error) => tracing::error!(%error, %name, "no certificate for a box's name"),
        }
    }

    fn has(&self, name: &str, now: Time) -> bool {
        let in_use = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let known = in_use.of_names.get(name);
        known.is_some_and(|(_, ends)| !is_due(*ends, now))
    }
}

fn is_due(ends: Time, now: Time) -> bool {
    ends.since(now) < BEFORE_END_MS
}

impl ResolvesServerCert for Resolver {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let in_use = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let name = hello.server_name().map(str::to_ascii_lowercase);
        let of_name = name.and_then(|name| in_use.of_names.get(&name));
        let key = of_name.map_or(&in_use.own, |(key, _)| key);
        Some(Arc::clone(key))
    }
}
