//! The way out of a box: `eth0` in it, a network namespace of its own in front of it that decides what passes (the
//! gateway), and a link from there to this machine, which forwards and hides the address.
//!
//! ```text
//! box: eth0 169.254.1.2 -- lan 169.254.1.1 : gateway, policy and NAT : wan -- icebox<n> : machine, NAT -- outside
//! ```
//!
//! Every box has the same address, so that the memory of a fork fits its network. The address stays on `lo` as well: a
//! socket that was closed for a freeze remembers it, and comes back with it. Everything of a gateway is in its namespace
//! and goes with it. On the machine there is one table of rules, for all boxes.

mod gateway;
mod machine;
mod resolvers;
mod rules;
mod sweep;
mod tools;
mod trial;

use std::fs::File;
use std::io;
use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::{Mutex, OnceLock, PoisonError};

use icebox_lifecycle::BoxId;
use rustix::thread::{UnshareFlags, unshare_unsafe};

use super::paths::BoxPaths;
use super::{Host, Trouble, While, fsutil};
use crate::driver::egress::Range;
use crate::driver::{Egress, Reaches};
use gateway::Gateway;
use machine::Machine;

pub(super) use gateway::remove;
pub(super) use resolvers::RESOLV_CONF;
pub(super) use sweep::Sweeper;
pub(super) use trial::look;

/// The address of every box, its network and the gateway's own.
pub(super) const BOX_ADDRESS: Ipv4Addr = Ipv4Addr::new(169, 254, 1, 2);
const GATEWAY: Ipv4Addr = Ipv4Addr::new(169, 254, 1, 1);
const LAN_BITS: u8 = 29;

/// The default route by which addresses stay reachable in name while there is no `eth0`, or a connected socket of a
/// datagram could not be restored. It is the last choice.
const SPARE_ROUTE: &str = "default dev lo metric 4294967295";

/// What this machine can do for boxes that want out.
#[derive(Default)]
pub(super) struct WayOut {
    /// Name servers that the settings name, instead of the machine's.
    resolvers: OnceLock<Vec<Ipv4Addr>>,
    /// Why no box has one, if that was decided.
    closed: OnceLock<String>,
    /// Whether it works here, once that was tried.
    works: Mutex<Option<Result<(), String>>>,
    machine: Machine,
}

impl WayOut {
    /// Names the name servers of boxes, where it is not the machine's that answer them. Only before the first box.
    pub(super) fn resolve_with(&self, resolvers: Vec<Ipv4Addr>) {
        // What was said first holds.
        let _ = self.resolvers.set(resolvers);
    }

    /// No box has a way out, whatever its setting. Only before the first one.
    pub(super) fn close(&self) {
        let why = "the settings of this server turn it off (`allowed` in `[egress]`)";
        // As above.
        let _ = self.closed.set(why.to_owned());
    }

    /// Whether boxes can have a way out here; if not, why, and what to do about it. It is tried once; what does not work is
    /// tried again now and then, but not here.
    pub(super) fn works(&self) -> Result<(), String> {
        if let Some(why) = self.closed.get() {
            return Err(why.clone());
        }
        let mut works = self.works.lock().unwrap_or_else(PoisonError::into_inner);
        works.get_or_insert_with(trial::try_it).clone()
    }

    /// Tries again what did not work.
    fn try_again(&self) {
        if self.closed.get().is_some() || self.works().is_ok() {
            return;
        }
        let tried = trial::try_it();
        if tried.is_ok() {
            tracing::info!("boxes can have a way out by now");
        }
        *self.works.lock().unwrap_or_else(PoisonError::into_inner) = Some(tried);
    }

    /// What ways out are made for, as it is now.
    fn surroundings(&self) -> Result<Surroundings, Trouble> {
        let named = self.resolvers.get().filter(|named| !named.is_empty());
        Ok(Surroundings {
            resolvers: named
                .cloned()
                .unwrap_or_else(|| resolvers::of_machine().usable),
            machine: machine::own_addresses()?,
        })
    }

    /// The server ends: what no box needs any more is taken back.
    pub(super) fn leave(&self) -> Result<(), Trouble> {
        match self.works() {
            Ok(()) => self.machine.leave(),
            Err(_) => Ok(()),
        }
    }
}

/// What is around boxes.
struct Surroundings {
    /// Who resolves names for them.
    resolvers: Vec<Ipv4Addr>,
    /// The addresses of the machine that they are on.
    machine: Vec<Range>,
}

impl Surroundings {
    /// The way out that a box with this setting has.
    fn gateway(&self, egress: &Egress) -> Gateway {
        Gateway {
            egress: egress.clone(),
            rules: rules::of_box(egress, &self.resolvers, &self.machine),
        }
    }
}

/// Makes the way out of a box whose first process is `pid` what `egress` says, whatever it was; it has none where that cannot
/// be done. Nothing passes at any moment that neither the old nor the new setting lets through.
///
/// # Errors
/// It may still have the way out that it had.
pub(super) fn settle(
    host: &Host,
    id: BoxId,
    pid: u32,
    egress: &Egress,
) -> Result<Reaches, Trouble> {
    let paths = host.paths.of(id);
    let why = if egress.is_closed() {
        None
    } else {
        let works = host.way_out.works().map_err(Trouble::Failed);
        let Err(why) = works.and_then(|()| make(host, &paths, pid, egress)) else {
            return Ok(Reaches::AsAsked);
        };
        tracing::warn!(%id, %why, "the way out of the box cannot be made");
        Some(why.to_string())
    };
    // Half a way out is none, and none is better than the wrong one.
    close(&paths, pid).map_err(|trouble| match &why {
        Some(why) => Trouble::Failed(format!(
            "{why}; nor could what there was be taken away: {trouble}"
        )),
        None => trouble,
    })?;
    Ok(why.map_or(Reaches::AsAsked, Reaches::Nothing))
}

/// Takes the way out of a box away, if it has one. Its programs hear at once that there is none.
fn close(paths: &BoxPaths, pid: u32) -> Result<(), Trouble> {
    remove(paths, Some(pid))?;
    if let Err(trouble) = drop_spare_route(pid) {
        // They hear it after a while, then. No box may fail to run for that.
        tracing::warn!(%trouble, "a box has a route that leads nowhere");
    }
    Ok(())
}

fn make(host: &Host, paths: &BoxPaths, pid: u32, egress: &Egress) -> Result<(), Trouble> {
    let wanted = host.way_out.surroundings()?.gateway(egress);
    match Gateway::of(paths)? {
        Some((found, namespace)) if has_link(pid)? => {
            host.way_out.machine.require()?;
            if found == wanted {
                return Ok(());
            }
            wanted.change(paths, &namespace)
        }
        Some(_) | None => wanted.make(&host.way_out.machine, paths, pid),
    }
}

/// Lets a running box reach this from now on: what is open to other places ends.
pub(super) fn change(host: &Host, id: BoxId, egress: &Egress) -> Result<Reaches, Trouble> {
    let stands = || host.hierarchies.of(id).is_frozen();
    let Some(pid) = host.first_process(id)? else {
        return Ok(Reaches::AsAsked);
    };
    if stands().when("look at the box's cgroup")? {
        // It has what it may reach when it next runs.
        return Ok(Reaches::AsAsked);
    }
    let reaches = settle(host, id, pid, egress)?;
    let ended = end_connections(pid, |peer| {
        reaches == Reaches::AsAsked && (egress.allows(peer) || is_gateway(peer))
    });
    let Err(why) = ended else {
        return Ok(reaches);
    };
    // Its programs would wait for what does not come any more.
    close(&host.paths.of(id), pid)?;
    Ok(Reaches::Nothing(why.to_string()))
}

/// Ends the connections of a box to outside that are not to be kept.
fn end_connections(pid: u32, keeps: impl Fn(Ipv4Addr) -> bool) -> Result<(), Trouble> {
    if !has_address(pid)? {
        return Ok(());
    }
    let mut peers = tools::peers(pid)?;
    peers.retain(|peer| !keeps(*peer));
    tools::end_connections(pid, &peers)
}

/// Ends every connection of a standing box to outside: the peers are not there any more when it goes on.
pub(super) fn disconnect(pid: u32) -> Result<(), Trouble> {
    if has_address(pid)? {
        tools::end_all_connections(pid)?;
    }
    Ok(())
}

/// Takes `eth0` away from a standing box, so that its network can be part of a copy.
pub(super) fn unplug(paths: &BoxPaths, pid: u32) -> Result<(), Trouble> {
    if !has_address(pid)? {
        return Ok(());
    }
    let spare = format!("route replace {SPARE_ROUTE}\n");
    tools::ip(Some(&network_of(pid)?), &spare)?;
    remove(paths, Some(pid))
}

fn drop_spare_route(pid: u32) -> Result<(), Trouble> {
    // `lo` with no destination and no mask: the spare route.
    let routes = shown(pid, "route").when("list the box's routes")?;
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

fn network_of(pid: u32) -> Result<File, Trouble> {
    File::open(format!("/proc/{pid}/ns/net")).when("open the box's network")
}

/// Whether the box has `eth0`.
fn has_link(pid: u32) -> Result<bool, Trouble> {
    let devices = shown(pid, "dev").when("list the box's links")?;
    Ok(devices
        .lines()
        .any(|line| line.trim_start().starts_with("eth0:")))
}

/// Whether the box has, or had, a way out.
fn has_address(pid: u32) -> Result<bool, Trouble> {
    let routes = shown(pid, "fib_trie").when("list the box's addresses")?;
    Ok(routes.contains(&format!("{BOX_ADDRESS}\n")))
}

/// What the kernel shows of the network of a process; nothing of one that has ended.
fn shown(pid: u32, what: &str) -> io::Result<String> {
    let shown = fsutil::read_unless_gone(Path::new(&format!("/proc/{pid}/net/{what}")))?;
    Ok(shown.unwrap_or_default())
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
