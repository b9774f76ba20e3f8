//! Signing in to the dashboard: a browser shows a key, or the token of a link that somebody with a key made, and gets a
//! cookie instead. Owns how long it is good, how many there are, and who may try; knows no HTTP beyond the cookie itself.
//!
//! - A session lasts 14 days from the moment of signing in, and is not prolonged by use: nothing is written while it is
//!   used, and a stolen cookie ends by itself. Signing out, and revoking the key behind it, ends it at once.
//! - A link is good for ten minutes and once; a link that was used twice at the same moment lets one in.
//! - Cookies and tokens are 256 random bits, of which a hash is kept.
//! - An address that failed [`attempts::MOST`] times within a minute is not looked at until that is over.

pub(crate) mod attempts;

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use icebox_lifecycle::Time;
use icebox_lifecycle::time::{DAY, MIN, SEC};

use crate::clock::Clock;
use crate::commands::{Kind, Trouble};
use crate::random;
use crate::record::AccountId;
use crate::store::{
    Holder, Keys, Proof, SecretHash, SessionTables, StoreError, StoredLink, StoredSession, hash,
};
use attempts::Attempts;

/// The names of the cookie: where browsers know that the connection is safe, and where not. The first can be set by this
/// very host only.
pub const COOKIES: [&str; 2] = ["__Host-icebox-session", "icebox-session"];

/// How long a session lasts.
const SESSION_MS: i64 = 14 * DAY;
/// How long a link is good.
const LINK_MS: i64 = 10 * MIN;
/// Sessions of an account; one more closes the oldest.
const MOST_SESSIONS: usize = 50;
/// Links of a key that wait to be used; one more makes the oldest worthless.
const MOST_LINKS: usize = 20;

const SESSION_PREFIX: &str = "ibs_";
const LINK_PREFIX: &str = "ibl_";
/// Random bytes of a secret.
const SECRET_LEN: usize = 32;

/// The cookie's name, as clients see the server.
#[must_use]
pub fn cookie_name(scheme: &str) -> &'static str {
    let [safe, plain] = COOKIES;
    if scheme == "https" { safe } else { plain }
}

/// A cookie that signs in until `end`, or signs out, with no secret.
#[must_use]
pub fn cookie(scheme: &str, secret: Option<&str>, now: Time, end: Time) -> String {
    let name = cookie_name(scheme);
    let secure = if scheme == "https" { "; Secure" } else { "" };
    let sec = if secret.is_some() {
        (end.since(now) / SEC).max(0)
    } else {
        0
    };
    let secret = secret.unwrap_or_default();
    format!("{name}={secret}; Path=/; HttpOnly; SameSite=Strict; Max-Age={sec}{secure}")
}

/// What a browser shows to be signed in.
pub enum Credential<'c> {
    /// A key.
    Key(&'c str),
    /// The token of a link.
    Token(&'c str),
}

/// A browser that was just signed in.
#[derive(Debug)]
pub struct SignedIn {
    /// What the cookie says.
    pub secret: String,
    /// Who it is.
    pub session: Session,
}

/// A browser that is signed in.
#[derive(Clone, Copy, Debug)]
pub struct Session {
    /// Who has the key behind it.
    pub holder: Holder,
    /// When it ends.
    pub expires_at: Time,
}

/// A link that signs in.
#[derive(Debug)]
pub struct Link {
    /// What it says.
    pub token: String,
    /// Until when it is good.
    pub expires_at: Time,
}

/// All sessions. In memory, so that a call is let in without touching the disk. Clones are the same ones.
#[derive(Clone)]
pub struct Sessions(Arc<Inner>);

struct Inner {
    keys: Arc<Keys>,
    clock: Clock,
    tables: Arc<SessionTables>,
    open: RwLock<HashMap<SecretHash, StoredSession>>,
    attempts: Attempts,
}

impl Sessions {
    /// Loads those that are not over.
    pub fn load(keys: Arc<Keys>, clock: Clock, tables: SessionTables) -> Result<Self, StoreError> {
        let open = tables.all(clock.now())?.into_iter();
        Ok(Self(Arc::new(Inner {
            keys,
            clock,
            tables: Arc::new(tables),
            open: RwLock::new(open.map(|session| (session.hash, session)).collect()),
            attempts: Attempts::default(),
        })))
    }

    /// Whose session this is; `None` when it is over, or the key behind it was revoked.
    #[must_use]
    pub fn find(&self, secret: &str) -> Option<Session> {
        let hash = hash_of(secret, SESSION_PREFIX)?;
        let session = *self.read().get(&hash)?;
        if session.expires_at <= self.0.clock.now() {
            return None;
        }
        Some(Session {
            holder: self.0.keys.holder_of(&session.key)?,
            expires_at: session.expires_at,
        })
    }

    /// How many browsers are signed in with a key.
    #[must_use]
    pub fn count(&self, holder: &Holder) -> usize {
        let now = self.0.clock.now();
        let open = self.read();
        let of_key = open.values().filter(|session| session.key == holder.key);
        of_key.filter(|session| session.expires_at > now).count()
    }

    /// Signs a browser in; `instead` of the session it had, if any.
    pub async fn sign_in(
        &self,
        credential: Credential<'_>,
        from: Option<IpAddr>,
        instead: Option<&str>,
    ) -> Result<SignedIn, Trouble> {
        let now = self.0.clock.now();
        if let Some(wait_sec) = self.0.attempts.wait_sec(from, now) {
            let text = format!(
                "too many tries to sign in failed from this address; try again in {wait_sec} s"
            );
            let mut trouble = Trouble::new(Kind::Busy, text);
            trouble.retry_after_sec = Some(wait_sec);
            return Err(trouble);
        }
        let (proof, refusal) = match credential {
            Credential::Key(key) => {
                let holder = self.0.keys.holder(key.trim());
                (holder.map(|holder| Proof::Key(holder.key)), NO_KEY)
            }
            Credential::Token(token) => (hash_of(token, LINK_PREFIX).map(Proof::Link), NO_LINK),
        };
        let secret = secret(SESSION_PREFIX);
        let opened = match proof {
            Some(proof) => self.open(proof, &secret, now).await?,
            None => None,
        };
        let Some(holder) = opened.and_then(|session| self.0.keys.holder_of(&session.key)) else {
            self.0.attempts.failed(from, now);
            return Err(Trouble::new(Kind::Unauthorized, refusal));
        };
        if let Some(instead) = instead {
            self.sign_out(instead).await?;
        }
        Ok(SignedIn {
            secret,
            session: Session {
                holder,
                expires_at: now + SESSION_MS,
            },
        })
    }

    /// Ends a session; one that is over already is.
    pub async fn sign_out(&self, secret: &str) -> Result<(), Trouble> {
        let Some(hash) = hash_of(secret, SESSION_PREFIX) else {
            return Ok(());
        };
        if self.write().remove(&hash).is_some() {
            self.with(move |tables| tables.close(&hash)).await?;
        }
        Ok(())
    }

    /// Makes a link that signs in as the holder of a key.
    pub async fn link(&self, holder: &Holder) -> Result<Link, Trouble> {
        let now = self.0.clock.now();
        let token = secret(LINK_PREFIX);
        let link = StoredLink {
            hash: hash(&token),
            key: holder.key,
            expires_at: now + LINK_MS,
        };
        let kept = self.with(move |tables| tables.add_link(&link, now, MOST_LINKS));
        if !kept.await? {
            return Err(Trouble::new(Kind::Unauthorized, NO_KEY));
        }
        Ok(Link {
            token,
            expires_at: link.expires_at,
        })
    }

    /// Forgets the sessions of a key that was revoked; in the database they went with it.
    pub fn forget(&self, account: AccountId) {
        let keys = &self.0.keys;
        let held = |session: &StoredSession| keys.holder_of(&session.key).is_some();
        self.write().retain(|_, session| held(session));
        tracing::info!(account = account.0, "a key was revoked");
    }

    async fn open(
        &self,
        proof: Proof,
        secret: &str,
        now: Time,
    ) -> Result<Option<StoredSession>, Trouble> {
        let (hash, end) = (hash(secret), now + SESSION_MS);
        let opened = self.with(move |tables| tables.open(proof, hash, now, end, MOST_SESSIONS));
        let Some((session, closed)) = opened.await? else {
            return Ok(None);
        };
        let mut open = self.write();
        for hash in closed {
            open.remove(&hash);
        }
        open.retain(|_, session| session.expires_at > now);
        open.insert(session.hash, session);
        Ok(Some(session))
    }

    /// Does something with the tables, off the threads for requests.
    async fn with<T: Send + 'static>(
        &self,
        work: impl FnOnce(&SessionTables) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, Trouble> {
        let tables = Arc::clone(&self.0.tables);
        let done = tokio::task::spawn_blocking(move || work(&tables)).await;
        done.map_err(|error| Trouble::internal(&error))?
            .map_err(|error| Trouble::internal(&error))
    }

    fn read(&self) -> RwLockReadGuard<'_, HashMap<SecretHash, StoredSession>> {
        self.0.open.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, HashMap<SecretHash, StoredSession>> {
        self.0.open.write().unwrap_or_else(PoisonError::into_inner)
    }
}

const NO_KEY: &str = "no valid key; the first one is in `admin.key` in the server's data folder, \
                      and `icebox dashboard` prints a link that signs in without one";
const NO_LINK: &str = "this link was used already, or is more than 10 minutes old; \
                       `icebox dashboard` prints another one";

fn secret(prefix: &str) -> String {
    format!("{prefix}{}", random::hex::<SECRET_LEN>())
}

/// What is kept of a secret; `None` for anything that cannot be one.
fn hash_of(secret: &str, prefix: &str) -> Option<SecretHash> {
    let random = secret.strip_prefix(prefix)?;
    let fits = random.len() == 2 * SECRET_LEN && random.bytes().all(|b| b.is_ascii_hexdigit());
    fits.then(|| hash(secret))
}
