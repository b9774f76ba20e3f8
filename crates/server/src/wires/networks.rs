//! What environments let their boxes reach in networks that the host reaches: exactly the endpoints that were named, each by
//! its name. A name leads to a loopback address of its own in the box, where the server listens. Owns how endpoints are
//! written, those addresses, and how far away each is.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream;
use icebox_lifecycle::Time;
use sha2::{Digest as _, Sha256};
use tokio::time::Instant;

use super::{Source, lock};
use crate::clock::monotonic_now;
use crate::outside;
use crate::record::AccountId;
use crate::store::{Beside, StoreError};

/// The most endpoints of one connection.
pub const MOST_ENDPOINTS: usize = 64;
/// How long a look at an endpoint is good.
const LOOK_GOOD: Duration = Duration::from_secs(10);
/// How long one may take.
const LOOK_LIMIT: Duration = Duration::from_secs(2);
/// Looks under way at a time for one reader.
const LOOKS_AT_A_TIME: usize = 16;
/// The most looks that are remembered.
const MOST_LOOKS: usize = 10_000;
/// The longest name, in bytes.
const NAME_LEN: usize = 253;

/// Something that boxes reach by a name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Endpoint {
    /// The name in the box.
    pub name: String,
    /// The name or address that the server connects to.
    pub host: String,
    /// The port, here and there.
    pub port: u16,
}

impl Endpoint {
    /// Reads `host:port`, or `name=host:port`; what is wrong with it, otherwise.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        let (name, place) = match text.split_once('=') {
            Some((name, place)) => (Some(name), place),
            None => (None, text),
        };
        let (host, port) = place.rsplit_once(':').ok_or("has no port")?;
        let port: u16 = port
            .parse()
            .map_err(|_| "has a port that is not 1 to 65535")?;
        if port == 0 {
            return Err("has a port that is not 1 to 65535");
        }
        let bare = host
            .strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'));
        let is_address = match bare {
            Some(host) => host.parse::<Ipv6Addr>().is_ok(),
            None => host.parse::<Ipv4Addr>().is_ok(),
        };
        let host = bare.unwrap_or(host).to_ascii_lowercase();
        let is_localhost = host == "localhost" && name.is_some();
        if !is_address && !is_localhost && !is_name(&host) {
            return Err("has a host that is neither a name nor an address");
        }
        let name = match name {
            Some(name) => name.to_ascii_lowercase(),
            None if is_address => {
                return Err(
                    "is an address, which programs cannot find by name: write `name=address:port`",
                );
            }
            None => host.clone(),
        };
        if !is_name(&name) {
            return Err(
                "has a name that is not 1 to 253 letters, digits, dashes and dots, or is localhost",
            );
        }
        Ok(Self { name, host, port })
    }

    /// As it is written.
    #[must_use]
    pub fn text(&self) -> String {
        let Self { name, host, port } = self;
        let shown = if host.contains(':') {
            format!("[{host}]")
        } else {
            host.clone()
        };
        if name == host {
            format!("{shown}:{port}")
        } else {
            format!("{name}={shown}:{port}")
        }
    }
}

/// Whether a box can know something by this name. Addresses are none, nor is what programs take for their own machine.
fn is_name(name: &str) -> bool {
    let label = |label: &str| {
        let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '_';
        (1..=63).contains(&label.len()) && !label.starts_with('-') && label.chars().all(fits)
    };
    let last = name.rsplit('.').next().unwrap_or(name);
    (1..=NAME_LEN).contains(&name.len())
        && name.split('.').all(label)
        && last.contains(|c: char| c.is_ascii_lowercase())
        && last != "localhost"
}

/// The endpoints of one connection.
pub type Endpoints = Vec<Endpoint>;

/// A way from the boxes of an environment to some endpoints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connection {
    /// Its id.
    pub id: String,
    /// Its name for people.
    pub name: String,
    /// When it was made.
    pub created_at: Time,
    /// What it leads to.
    pub endpoints: Endpoints,
}

/// How an endpoint was when the server last looked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Look {
    /// It took a connection after so many milliseconds.
    Online(u64),
    /// It did not, for this reason.
    Offline(String),
}

/// The connections of an account, by environment.
type OfAccount = BTreeMap<String, Vec<Connection>>;

/// All of them.
#[derive(Default)]
pub struct Networks {
    all: RwLock<HashMap<AccountId, OfAccount>>,
    looks: Mutex<HashMap<(String, u16), (Instant, Look)>>,
}

impl Networks {
    pub(super) fn load(&self, beside: &Beside) -> Result<(), StoreError> {
        let mut all: HashMap<AccountId, OfAccount> = HashMap::new();
        for (account, environment, connection) in beside.connections()? {
            let of = all.entry(account).or_default();
            of.entry(environment).or_default().push(connection);
        }
        *self.all.write().unwrap_or_else(PoisonError::into_inner) = all;
        Ok(())
    }

    /// The connections of an environment, oldest first.
    #[must_use]
    pub fn of(&self, account: AccountId, environment: &str) -> Vec<Connection> {
        let all = self.all.read().unwrap_or_else(PoisonError::into_inner);
        let of = all.get(&account).and_then(|of| of.get(environment));
        of.cloned().unwrap_or_default()
    }

    /// Takes notice of how the connections of an environment are now.
    pub fn set(&self, account: AccountId, environment: &str, connections: Vec<Connection>) {
        let mut all = self.all.write().unwrap_or_else(PoisonError::into_inner);
        let of = all.entry(account).or_default();
        if connections.is_empty() {
            of.remove(environment);
        } else {
            of.insert(environment.to_owned(), connections);
        }
    }

    /// Whether an account has any.
    pub(super) fn has_any(&self, account: AccountId) -> bool {
        let all = self.all.read().unwrap_or_else(PoisonError::into_inner);
        all.get(&account).is_some_and(|of| !of.is_empty())
    }

    /// What a box reaches, each at an address of its own; `None` for one that is in no environment.
    pub(super) async fn of_box(
        &self,
        beside: &Arc<Beside>,
        source: Source,
    ) -> Result<Option<Vec<(Ipv4Addr, Endpoint)>>, StoreError> {
        if !self.has_any(source.account) {
            return Ok(None);
        }
        let beside = Arc::clone(beside);
        let read = tokio::task::spawn_blocking(move || beside.given(source.id)).await;
        let given = match read {
            Ok(given) => given?,
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        };
        let Some(environment) = given.environment else {
            return Ok(None);
        };
        let connections = self.of(source.account, &environment);
        let endpoints: BTreeSet<Endpoint> = connections
            .into_iter()
            .flat_map(|connection| connection.endpoints)
            .collect();
        Ok(Some(placed(endpoints)))
    }

    /// How endpoints are, at most 10 s ago.
    pub async fn look(&self, endpoints: &[Endpoint]) -> Vec<Look> {
        let mut looks = Vec::with_capacity(endpoints.len());
        for endpoint in endpoints {
            looks.push(self.look_at(endpoint));
        }
        let looks = stream::iter(looks).buffered(LOOKS_AT_A_TIME);
        looks.collect().await
    }

    async fn look_at(&self, Endpoint { host, port, .. }: &Endpoint) -> Look {
        let key = (host.clone(), *port);
        let began = monotonic_now();
        let known = lock(&self.looks).get(&key).cloned();
        if let Some((at, look)) = known
            && began.duration_since(at) < LOOK_GOOD
        {
            return look;
        }
        let connected = outside::connect(host, *port, true);
        let look = match tokio::time::timeout(LOOK_LIMIT, connected).await {
            Ok(Ok(_)) => {
                let ms = monotonic_now().duration_since(began).as_millis();
                Look::Online(u64::try_from(ms).unwrap_or(u64::MAX))
            }
            Ok(Err(why)) => Look::Offline(why),
            Err(_) => Look::Offline(format!("no answer within {} s", LOOK_LIMIT.as_secs())),
        };
        let mut looks = lock(&self.looks);
        if looks.len() >= MOST_LOOKS {
            looks.retain(|_, (at, _)| began.duration_since(*at) < LOOK_GOOD);
        }
        if looks.len() < MOST_LOOKS {
            looks.insert(key, (monotonic_now(), look.clone()));
        }
        look
    }
}

/// Gives each name a loopback address, the same one at every time as far as possible, for programs remember addresses.
fn placed(endpoints: BTreeSet<Endpoint>) -> Vec<(Ipv4Addr, Endpoint)> {
    let mut taken: HashMap<Ipv4Addr, String> = HashMap::new();
    let mut all = Vec::with_capacity(endpoints.len());
    for endpoint in endpoints {
        let mut address = first_address(&endpoint.name);
        while taken
            .get(&address)
            .is_some_and(|name| *name != endpoint.name)
        {
            address = within(u32::from(address) + 1);
        }
        taken.insert(address, endpoint.name.clone());
        all.push((address, endpoint));
    }
    all
}

fn first_address(name: &str) -> Ipv4Addr {
    let [a, b, c, d, ..] = <[u8; 32]>::from(Sha256::digest(name.as_bytes()));
    within(u32::from_be_bytes([a, b, c, d]))
}

/// An address from 127.64.0.1 to 127.127.255.254, away from those that programs take by themselves.
fn within(number: u32) -> Ipv4Addr {
    const HOSTS: u32 = 0x003f_ffff;
    let host = (number & HOSTS).clamp(1, HOSTS - 1);
    Ipv4Addr::from(u32::from(Ipv4Addr::new(127, 64, 0, 0)) | host)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_read_strictly() {
        let read = |text: &str| Endpoint::parse(text).map(|read| (read.name, read.host, read.port));
        let is = |name: &str, host: &str, port| Ok((name.to_owned(), host.to_owned(), port));
        assert_eq!(
            read("DB.internal:5432"),
            is("db.internal", "db.internal", 5432)
        );
        assert_eq!(read("cache=10.0.0.5:6379"), is("cache", "10.0.0.5", 6379));
        assert_eq!(read("six=[fd00::1]:80"), is("six", "fd00::1", 80));
        assert_eq!(read("here=localhost:80"), is("here", "localhost", 80));
        for text in [
            "",
            "db",
            "db:",
            ":5432",
            "db:0",
            "db:70000",
            "db:x",
            "10.0.0.5:80",
            "[::1]:80",
            "localhost:80",
            "a.localhost:80",
            "localhost=10.0.0.1:80",
            "a b:80",
            "a\nb:80",
            "-a:80",
            "a..b:80",
            "=a:80",
            "1=10.0.0.1:80",
            "10.0.0.1=db:80",
            "ä:80",
            "a=b=c:80",
            "x=[::1:80",
            "x=::1:80",
            "a/b:80",
            "u@h:80",
        ] {
            assert!(Endpoint::parse(text).is_err(), "{text:?}");
        }
        for text in [
            "db.internal:5432",
            "cache=10.0.0.5:6379",
            "six=[fd00::1]:80",
        ] {
            assert_eq!(Endpoint::parse(text).unwrap().text(), text);
        }
    }

    #[test]
    fn each_name_has_an_address_of_its_own_and_keeps_it() {
        let endpoint = |n: u32, port| Endpoint {
            name: format!("host{n}.test"),
            host: "h".to_owned(),
            port,
        };
        let all: BTreeSet<_> = (0..5_000)
            .flat_map(|n| [endpoint(n, 1), endpoint(n, 2)])
            .collect();
        let placed = placed(all);
        let of: BTreeMap<_, _> = placed.iter().map(|(at, one)| (&one.name, *at)).collect();
        assert!(placed.iter().all(|(at, one)| of[&one.name] == *at));
        let addresses: BTreeSet<_> = of.values().collect();
        assert_eq!(addresses.len(), 5_000);
        let range = Ipv4Addr::new(127, 64, 0, 1)..=Ipv4Addr::new(127, 127, 255, 254);
        assert!(addresses.iter().all(|address| range.contains(*address)));
        let alone = super::placed(BTreeSet::from([endpoint(7, 1)]));
        assert_eq!(alone[0].0, first_address("host7.test"));
    }
}
