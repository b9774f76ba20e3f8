//! The network namespace in front of a box, held by a mount at `run/<id>/gateway`, and what is noted of it. Owns how one is made
//! and how all of it goes again; what passes is in `rules`.

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::time::Duration;

use rustix::mount::{UnmountFlags, mount_bind, unmount};
use serde::{Deserialize, Serialize};

use super::super::paths::BoxPaths;
use super::super::{Trouble, While, fsutil, mount};
use super::machine::Machine;
use super::{
    BOX_ADDRESS, GATEWAY, LAN_BITS, enter_new_network, has_link, in_thread, network_of, resolvers,
    tools,
};
use crate::clock::monotonic_now;
use crate::driver::Egress;

/// How long `eth0` may stay in a box after its gateway is gone.
const UNPLUG_LIMIT: Duration = Duration::from_secs(10);
const UNPLUG_INTERVAL: Duration = Duration::from_millis(2);

/// A way out that is whole.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Gateway {
    /// What it was made for.
    pub(super) egress: Egress,
    /// The rules that hold in it.
    pub(super) rules: String,
}

impl Gateway {
    /// The one of a box, and its namespace; `None` when there is none, or not all of one.
    pub(super) fn of(paths: &BoxPaths) -> Result<Option<(Self, File)>, Trouble> {
        let namespace = open(paths)?;
        Ok(Self::noted(paths).zip(namespace))
    }

    /// The one of a box as it was noted, without a look at whether it is there.
    pub(super) fn noted(paths: &BoxPaths) -> Option<Self> {
        serde_json::from_slice(&fs::read(paths.egress()).ok()?).ok()
    }

    /// Makes it in front of the box whose first process is `pid`. What may pass is settled before anything can, and it counts
    /// as whole only when all of it is there.
    pub(super) fn make(self, machine: &Machine, paths: &BoxPaths, pid: u32) -> Result<(), Trouble> {
        remove(paths, Some(pid))?;
        let place = paths.gateway();
        make_namespace(&place)?;
        let gateway = File::open(&place).when("open the box's gateway")?;
        tools::nft(Some(&gateway), &self.rules)?;
        let (ours, theirs) = machine.link(&place)?;
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
        self.note(paths)
    }

    /// Gives one that is there other rules. Until they are noted it does not count as whole.
    pub(super) fn change(self, paths: &BoxPaths, namespace: &File) -> Result<(), Trouble> {
        fsutil::remove_file(&paths.egress()).when("forget what the box may reach")?;
        tools::nft(Some(namespace), &self.rules)?;
        self.note(paths)
    }

    fn note(&self, paths: &BoxPaths) -> Result<(), Trouble> {
        let text = serde_json::to_vec(self).map_err(io::Error::other);
        text.and_then(|text| fs::write(paths.egress(), text))
            .when("note what the box may reach")
    }
}

/// Removes all of a way out that is there; from a box whose first process is `pid` at once.
pub(in super::super) fn remove(paths: &BoxPaths, pid: Option<u32>) -> Result<(), Trouble> {
    fsutil::remove_file(&paths.egress()).when("forget what the box may reach")?;
    let place = paths.gateway();
    let mut unplugged = Ok(());
    if let Some(gateway) = open(paths)? {
        unplugged = tools::unplug(&gateway);
        drop(gateway);
        // With the last hold on the namespace goes all that is in it, whatever came of the links: a moment later, then.
        unmount(&place, UnmountFlags::DETACH)
            .map_err(io::Error::from)
            .when("let go of the box's gateway")?;
    }
    fsutil::remove_file(&place).when("remove the box's gateway")?;
    let until = monotonic_now() + UNPLUG_LIMIT;
    let Some(pid) = pid else { return Ok(()) };
    while has_link(pid)? {
        if monotonic_now() > until {
            unplugged?;
            return Err(Trouble::Failed(
                "the box's eth0 does not go: something else holds its gateway".to_owned(),
            ));
        }
        std::thread::sleep(UNPLUG_INTERVAL);
    }
    Ok(())
}

/// A new network namespace that forwards, held by a mount at `place`.
fn make_namespace(place: &Path) -> Result<(), Trouble> {
    File::create(place).when("make the place of the box's gateway")?;
    in_thread(|| {
        enter_new_network()?;
        fs::write("/proc/sys/net/ipv4/ip_forward", "1")?;
        mount_bind("/proc/thread-self/ns/net", place)?;
        Ok(())
    })
    .when("make the box's gateway")
}

fn open(paths: &BoxPaths) -> Result<Option<File>, Trouble> {
    let place = paths.gateway();
    if !mount::is_mounted(&place).when("look for the box's gateway")? {
        return Ok(None);
    }
    File::open(&place).map(Some).when("open the box's gateway")
}
