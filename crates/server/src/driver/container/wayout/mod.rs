//! The way out of a box: `eth0` in it, a network namespace of its own in front of it that decides what passes (the
//! gateway), and a link from there to this host, which forwards and hides the address.
//!
//! ```text
//! box: eth0 169.254.1.2 -- lan 169.254.1.1 : gateway, policy and NAT : wan -- icebox<n> : host, NAT -- outside
//! ```
//!
//! Every box has the same address, so that the memory of a fork fits its network. The address stays on `lo` as well: a
//! socket that was closed for a freeze remembers it, and comes back with it. Everything of a gateway is in its namespace
//! and goes with it; the namespace is held by a mount at `run/<id>/gateway`. On the host there is one table of rules, for
//! all boxes.

mod resolvers;
mod rules;
mod tools;
mod trial;

use std::fs::{self, File};
use std::io;
use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use icebox_lifecycle::BoxId;
use rustix::mount::{UnmountFlags, mount_bind, unmount};
use rustix::thread::{UnshareFlags, unshare_unsafe};

use super::paths::BoxPaths;
use super::{Host, Trouble, While, fsutil, mount};
use crate::driver::Egress;

pub(super) use resolvers::RESOLV_CONF;
pub(super) use trial::look;

/// The address of every box, its network and the gateway's own.
pub(super) const BOX_ADDRESS: Ipv4Addr = Ipv4Addr::new(169, 254, 1, 2);
const GATEWAY: Ipv4Addr = Ipv4Addr::new(169, 254, 1, 1);
const LAN_BITS: u8 = 29;

/// The links between gateways and the host: pairs of addresses from here on.
const LINKS_FIRST: Ipv4Addr = Ipv4Addr::new(169, 254, 192, 0);
const LINKS_BITS: u8 = 18;
const LINKS: u32 = 1 << (31 - LINKS_BITS);

/// The default route by which addresses stay reachable in name while there is no `eth0`, or a connected socket of a
/// datagram could not be restored. It is the last choice.
const SPARE_ROUTE: &str = "default dev lo metric 4294967295";

/// What this host can do for boxes that want out.
#[derive(Default)]
pub(super) struct WayOut {
    /// Name servers that the settings name, instead of the host's.
    resolvers: std::sync::OnceLock<Vec<Ipv4Addr>>,
    /// Whether it works here, once that was tried.
    works: std::sync::OnceLock<Result<(), String>>,
    /// The link that is tried first.
    next_link: AtomicU32,
}

impl WayOut {
    /// Names the name servers of boxes, where it is not the host's that answer them. Only before the first box.
    pub(super) fn resolve_with(&self, resolvers: Vec<Ipv4Addr>) {
        // What was said first holds.
        let _ = self.resolvers.set(resolvers);
    }

    /// No box has a way out, whatever its setting. Only before the first one.
    pub(super) fn close(&self) {
        // As above.
        let _ = self.works.set(Err(
            "the settings of this server turn it off (`allowed` in `[egress]`)".to_owned(),
        ));
    }

    /// Whether boxes can have a way out here; if not, why, and what to do about it.
    pub(super) fn works(&self) -> Result<(), String> {
        self.works.get_or_init(trial::try_it).clone()
    }

    fn resolvers(&self) -> Vec<Ipv4Addr> {
        let named = self.resolvers.get().filter(|named| !named.is_empty());
        named
            .cloned()
            .unwrap_or_else(|| resolvers::of_host().usable)
    }
}

/// Makes the way out of a box whose first process is `pid` what `egress` says, whatever it was. Nothing passes at any
/// moment that neither the old nor the new setting lets through.
pub(super) fn settle(host: &Host, id: BoxId, pid: u32, egress: &Egress) -> Result<(), Trouble> {
    let paths = host.paths.of(id);
    if egress.is_closed() || host.way_out.works().is_err() {
        remove(&paths, Some(pid))?;
        return drop_spare_route(pid);
    }
    let rules = rules::of_box(egress, &host.way_out.resolvers());
    if let Some(gateway) = open_gateway(&paths)
        && has_link(pid)
    {
        require_host_rules()?;
        if fs::read_to_string(paths.egress()).is_ok_and(|applied| applied == rules) {
            return Ok(());
        }
        tools::nft(Some(&gateway), &rules)?;
        return fs::write(paths.egress(), rules).when("note what the box may reach");
    }
    let made = make(host, &paths, pid, &rules);
    if made.is_err() {
        // Half a way out is none.
        remove(&paths, Some(pid))?;
    }
    made
}

/// Lets a running box reach this from now on: what is open to other places ends.
pub(super) fn change(host: &Host, id: BoxId, egress: &Egress) -> Result<(), Trouble> {
    let Some(pid) = host.first_process(id) else {
        return Ok(());
    };
    let settled = settle(host, id, pid, egress);
    if settled.is_err() {
        // Rather no way out than the wrong one.
        remove(&host.paths.of(id), Some(pid))?;
    }
    let mut peers = tools::peers(pid)?;
    peers.retain(|peer| settled.is_err() || !(egress.allows(*peer) || is_gateway(*peer)));
    tools::end_connections(pid, &peers)?;
    settled
}

/// Ends every connection of a standing box to outside: the peers are not there any more when it goes on.
pub(super) fn disconnect(pid: u32) -> Result<(), Trouble> {
    if has_address(pid) {
        tools::end_all_connections(pid)?;
    }
    Ok(())
}

/// Takes `eth0` away from a standing box, so that its network can be part of a copy.
pub(super) fn unplug(paths: &BoxPaths, pid: u32) -> Result<(), Trouble> {
    if !has_address(pid) {
        return Ok(());
    }
    let spare = format!("route replace {SPARE_ROUTE}\n");
    tools::ip(Some(&network_of(pid)?), &spare)?;
    remove(paths, Some(pid))
}

/// Removes the way out of a box, if it has one; with its first process, if there is one, at once.
pub(super) fn remove(paths: &BoxPaths, pid: Option<u32>) -> Result<(), Trouble> {
    if let Some(pid) = pid.filter(|pid| has_link(*pid)) {
        tools::ip(Some(&network_of(pid)?), "link del eth0\n")?;
    }
    let place = paths.gateway();
    if mount::is_mounted(&place) {
        // With the last hold on the namespace goes all that is in it.
        unmount(&place, UnmountFlags::DETACH)
            .map_err(io::Error::from)
            .when("let go of the box's gateway")?;
    }
    fsutil::remove_file(&place).when("remove the box's gateway")?;
    fsutil::remove_file(&paths.egress()).when("forget what the box may reach")
}

fn make(host: &Host, paths: &BoxPaths, pid: u32, rules: &str) -> Result<(), Trouble> {
    remove(paths, Some(pid))?;
    require_host_rules()?;
    let place = paths.gateway();
    make_gateway(&place)?;
    let gateway = File::open(&place).when("open the box's gateway")?;
    // What may pass is settled before anything can.
    tools::nft(Some(&gateway), rules)?;
    let link = make_link(host, &place)?;
    let (ours, theirs) = link_addresses(link);
    let network = format!("/proc/{pid}/ns/net");
    let name_server = resolvers::SECOND;
    tools::ip(
        Some(&gateway),
        &format!(
            "link set wan addrgenmode none\n\
             addr add {theirs}/31 dev wan\n\
             link set wan up\n\
             route add default via {ours}\n\
             link add lan type veth peer name eth0 netns {network}\n\
             link set lan addrgenmode none\n\
             addr add {GATEWAY}/{LAN_BITS} dev lan\n\
             addr add {name_server}/{LAN_BITS} dev lan\n\
             link set lan up\n"
        ),
    )?;
    tools::ip(
        Some(&network_of(pid)?),
        &format!(
            "addr replace {BOX_ADDRESS}/32 dev lo\n\
             link set eth0 addrgenmode none\n\
             addr add {BOX_ADDRESS}/{LAN_BITS} dev eth0\n\
             link set eth0 up\n\
             route add default via {GATEWAY} dev eth0 src {BOX_ADDRESS}\n"
        ),
    )?;
    fs::write(paths.egress(), rules).when("note what the box may reach")
}

/// A new network namespace that forwards, held by a mount at `place`.
fn make_gateway(place: &Path) -> Result<(), Trouble> {
    File::create(place).when("make the place of the box's gateway")?;
    in_thread(|| {
        enter_new_network()?;
        fs::write("/proc/sys/net/ipv4/ip_forward", "1")?;
        mount_bind("/proc/thread-self/ns/net", place)?;
        Ok(())
    })
    .when("make the box's gateway")
}

/// Makes the link between the host and a gateway; gives its number. Other servers on this host make links, too.
fn make_link(host: &Host, gateway: &Path) -> Result<u32, Trouble> {
    let first = host.way_out.next_link.fetch_add(1, Ordering::Relaxed);
    let first = first.wrapping_add(std::process::id());
    for offset in 0..LINKS {
        let link = first.wrapping_add(offset) % LINKS;
        let (ours, _) = link_addresses(link);
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
            made => return made.map(|()| link),
        }
    }
    Err(Trouble::Failed(format!(
        "all {LINKS} links between boxes and this host are taken"
    )))
}

/// The host's address on a link, and the gateway's.
fn link_addresses(link: u32) -> (Ipv4Addr, Ipv4Addr) {
    let ours = LINKS_FIRST.to_bits() + 2 * link;
    (Ipv4Addr::from_bits(ours), Ipv4Addr::from_bits(ours + 1))
}

/// The host forwards, and has the rules that keep boxes from it and from each other. Made anew each time: somebody may
/// have emptied the host's firewall since.
fn require_host_rules() -> Result<(), Trouble> {
    const FORWARD: &str = "/proc/sys/net/ipv4/ip_forward";
    let forwards = fs::read_to_string(FORWARD).when("ask whether this host forwards")?;
    tools::nft(None, &rules::of_host())?;
    if forwards.trim() != "1" {
        tracing::info!("this host forwards from now on (net.ipv4.ip_forward): boxes reach outside");
        fs::write(FORWARD, "1").when("let this host forward")?;
    }
    Ok(())
}

fn drop_spare_route(pid: u32) -> Result<(), Trouble> {
    // `lo` with no destination and no mask: the spare route.
    let routes = fs::read_to_string(format!("/proc/{pid}/net/route")).unwrap_or_default();
    if routes
        .lines()
        .any(|line| line.starts_with("lo\t00000000\t"))
    {
        tools::ip(
            Some(&network_of(pid)?),
            &format!("route del {SPARE_ROUTE}\n"),
        )?;
    }
    Ok(())
}

fn open_gateway(paths: &BoxPaths) -> Option<File> {
    let place = paths.gateway();
    mount::is_mounted(&place).then(|| File::open(&place).ok())?
}

fn network_of(pid: u32) -> Result<File, Trouble> {
    File::open(format!("/proc/{pid}/ns/net")).when("open the box's network")
}

/// Whether the box has `eth0`.
fn has_link(pid: u32) -> bool {
    let devices = fs::read_to_string(format!("/proc/{pid}/net/dev")).unwrap_or_default();
    devices
        .lines()
        .any(|line| line.trim_start().starts_with("eth0:"))
}

/// Whether the box has, or had, a way out.
fn has_address(pid: u32) -> bool {
    let table = fs::read_to_string(format!("/proc/{pid}/net/fib_trie")).unwrap_or_default();
    table.contains(&format!("{BOX_ADDRESS}\n"))
}

fn is_gateway(address: Ipv4Addr) -> bool {
    address == GATEWAY || address == resolvers::SECOND
}

fn enter_new_network() -> io::Result<()> {
    // SAFETY: only the network namespace of this thread changes, and descriptors stay shared as they are.
    unsafe { unshare_unsafe(UnshareFlags::NEWNET) }.map_err(Into::into)
}

/// Runs `work` on a thread of its own: one that changed its namespace must not go back to a pool.
fn in_thread<T: Send>(work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("icebox-wayout".to_owned());
        let thread = thread.spawn_scoped(scope, work)?;
        let panicked = |_| io::Error::other("the thread in another network panicked");
        thread.join().map_err(panicked)?
    })
}
