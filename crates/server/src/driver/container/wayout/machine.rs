//! This machine's side of the ways out: the one table of rules that keeps boxes from it and from each other, that it forwards,
//! the links to gateways, and which addresses are its own. Owns nothing that is in a gateway.
//!
//! Servers share the table and the links. Whoever changes them, or takes the one back because there are none of the other, holds
//! a lock on the network itself.

use std::fs::{self, File};
use std::io;
use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

use super::super::{Trouble, While, fsutil};
use super::{rules, tools};
use crate::driver::egress::{NEVER, Range};

/// The links between gateways and this machine: pairs of addresses from here on.
pub(super) const LINKS_FIRST: Ipv4Addr = Ipv4Addr::new(169, 254, 192, 0);
pub(super) const LINKS_BITS: u8 = 18;
const LINKS: u32 = 1 << (31 - LINKS_BITS);

/// What a server knows of this side.
#[derive(Default)]
pub(super) struct Machine {
    /// The table as it was shown when it was made last.
    table: Mutex<Option<String>>,
    /// The link that is tried first.
    next_link: AtomicU32,
}

impl Machine {
    /// Makes sure that the machine forwards, and that the table is there as it was made: somebody may have emptied the
    /// machine's firewall since.
    pub(super) fn require(&self) -> Result<(), Trouble> {
        let _alone = lock().when("lock this machine's network")?;
        self.make_whole()
    }

    /// Makes a link to a gateway; gives its addresses, the machine's first.
    pub(super) fn link(&self, gateway: &Path) -> Result<(Ipv4Addr, Ipv4Addr), Trouble> {
        let _alone = lock().when("lock this machine's network")?;
        self.make_whole()?;
        let first = self.next_link.fetch_add(1, Ordering::Relaxed);
        let first = first.wrapping_add(std::process::id());
        for offset in 0..LINKS {
            let link = first.wrapping_add(offset) % LINKS;
            let (ours, theirs) = addresses_of(link);
            let gateway = gateway.display();
            let made = tools::ip(
                None,
                &format!(
                    "link add icebox{link} type veth peer name wan netns {gateway}\n\
                     link set icebox{link} addrgenmode none\n\
                     addr add {ours}/31 dev icebox{link}\n\
                     link set icebox{link} up\n"
                ),
            );
            match made {
                Err(Trouble::Failed(text)) if text.contains("File exists") => {}
                made => return made.map(|()| (ours, theirs)),
            }
        }
        Err(Trouble::Failed(format!(
            "all {LINKS} links between boxes and this machine are taken"
        )))
    }

    /// Takes the table back, unless boxes have links that need it. That the machine forwards stays: others may rely on it by
    /// now.
    pub(super) fn leave(&self) -> Result<(), Trouble> {
        let _alone = lock().when("lock this machine's network")?;
        let devices = fs::read_to_string(DEVICES).when("list this machine's links")?;
        let is_ours = |line: &str| line.trim_start().starts_with("icebox");
        if devices.lines().any(is_ours) {
            return Ok(());
        }
        *self.table.lock().unwrap_or_else(PoisonError::into_inner) = None;
        tools::nft(None, rules::NONE)
    }

    fn make_whole(&self) -> Result<(), Trouble> {
        let mut known = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        if known.is_none() || *known != tools::table().ok() {
            if known.is_some() {
                tracing::warn!(
                    "somebody changed this machine's firewall: the rules between boxes and it are made again"
                );
            }
            tools::nft(None, &rules::of_machine())?;
            *known = Some(tools::table()?);
        }
        let forwards = fs::read_to_string(FORWARD).when("ask whether this machine forwards")?;
        if forwards.trim() != "1" {
            tracing::info!(
                "this machine forwards from now on (net.ipv4.ip_forward): boxes reach outside"
            );
            fs::write(FORWARD, "1").when("let this machine forward")?;
        }
        Ok(())
    }
}

const FORWARD: &str = "/proc/sys/net/ipv4/ip_forward";
/// Of this thread: it may be in another network than the first one.
const DEVICES: &str = "/proc/thread-self/net/dev";
const ROUTES: &str = "/proc/thread-self/net/fib_trie";

/// The machine's own addresses, in order, without those that no setting opens anyway.
pub(super) fn own_addresses() -> Result<Vec<Range>, Trouble> {
    let routes = fs::read_to_string(ROUTES).when("list this machine's addresses")?;
    Ok(local_in(&routes))
}

/// The local destinations in a `fib_trie`: an address in one line, how many bits of it count in the next.
fn local_in(routes: &str) -> Vec<Range> {
    let mut address = "";
    let mut found = Vec::new();
    for line in routes.lines().map(str::trim) {
        if let Some(leaf) = line.strip_prefix("|-- ") {
            address = leaf;
        } else if let Some(bits) = line.strip_suffix(" host LOCAL") {
            found.extend(format!("{address}{bits}").parse::<Range>());
        }
    }
    found.retain(|range| !NEVER.iter().any(|never| never.holds(range)));
    found.sort_unstable();
    found.dedup();
    found
}

/// The machine's address on a link, and the gateway's.
fn addresses_of(link: u32) -> (Ipv4Addr, Ipv4Addr) {
    let ours = LINKS_FIRST.to_bits() + 2 * link;
    (Ipv4Addr::from_bits(ours), Ipv4Addr::from_bits(ours + 1))
}

/// Holds off everybody else on this network, of whichever server, until it is dropped. What is done meanwhile is soon over.
fn lock() -> io::Result<File> {
    fsutil::lock(Path::new("/proc/thread-self/ns/net"))
}

#[cfg(test)]
mod tests {
    use rustix::fs::{FlockOperation, flock};
    use rustix::io::Errno;

    use super::*;

    #[test]
    fn own_addresses_are_found_among_the_routes() {
        let routes = "Main:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 0.0.0.0\n        /0 universe UNICAST\n     |-- 10.1.2.3\n        \
                      /32 host LOCAL\n     |-- 10.1.2.255\n        /32 link BROADCAST\n     |-- 127.0.0.0\n        \
                      /8 host LOCAL\n     |-- 169.254.192.6\n        /32 host LOCAL\n     |-- 9.9.0.0\n        \
                      /16 link UNICAST\n        /24 host LOCAL\nLocal:\n     |-- 10.1.2.3\n        /32 host LOCAL\n";
        let found: Vec<String> = local_in(routes).iter().map(Range::to_string).collect();
        assert_eq!(found, ["9.9.0.0/24", "10.1.2.3"]);
    }

    #[test]
    fn one_at_a_time_changes_the_network() {
        let held = lock().expect("a lock");
        let network = File::open("/proc/thread-self/ns/net").expect("the network");
        let taken = flock(&network, FlockOperation::NonBlockingLockExclusive);
        assert_eq!(taken, Err(Errno::WOULDBLOCK));
        drop(held);
        drop(lock().expect("it is free again"));
    }
}
