//! The programs that configure networks (`ip`, `nft`, `ss`), run in the network that is meant. Owns their command lines and
//! what they say when they fail.

use std::fs::File;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::Command;

use super::super::{Trouble, programs};
use super::{BOX_ADDRESS, network_of};

/// Peers that are ended with one command line.
const AT_A_TIME: usize = 100;

/// Gives `ip` a list of commands; the first that fails ends it. Without a network: in the server's own.
pub(super) fn ip(network: Option<&File>, commands: &str) -> Result<(), Trouble> {
    run(network, "ip", &["-batch", "-"], commands).map(drop)
}

/// Removes both links of a gateway, and with them their other ends.
pub(super) fn unplug(gateway: &File) -> Result<(), Trouble> {
    // Half a gateway has the second alone, or none.
    for links in ["link del lan\nlink del wan\n", "link del wan\n"] {
        match ip(Some(gateway), links) {
            Err(Trouble::Failed(text)) if text.contains("Cannot find device") => {}
            unplugged => return unplugged,
        }
    }
    Ok(())
}

/// Gives `nft` rules, which take effect all at once or not at all.
pub(super) fn nft(network: Option<&File>, rules: &str) -> Result<(), Trouble> {
    run(network, "nft", &["-f", "-"], rules).map(drop)
}

/// The table that is made in the server's own network, in the words of `nft`; an error when it is not there.
pub(super) fn table() -> Result<String, Trouble> {
    run(None, "nft", &["list", "table", "inet", "icebox"], "")
}

/// The chains of the server's own network, in the same words.
pub(super) fn chains() -> Result<String, Trouble> {
    run(None, "nft", &["list", "chains"], "")
}

/// The addresses that a box is connected to outside, each once.
pub(super) fn peers(pid: u32) -> Result<Vec<Ipv4Addr>, Trouble> {
    let text = sockets(pid, &["-Htunw"])?;
    let mut peers: Vec<Ipv4Addr> = text.lines().filter_map(peer_in).collect();
    peers.sort_unstable();
    peers.dedup();
    Ok(peers)
}

/// Ends the connections of a box to these addresses.
pub(super) fn end_connections(pid: u32, peers: &[Ipv4Addr]) -> Result<(), Trouble> {
    for some in peers.chunks(AT_A_TIME) {
        let named: Vec<String> = some.iter().map(|peer| format!("dst {peer}")).collect();
        sockets(pid, &["-HtunwK", "(", &named.join(" or "), ")"])?;
    }
    Ok(())
}

/// Ends every connection of a box to outside.
pub(super) fn end_all_connections(pid: u32) -> Result<(), Trouble> {
    sockets(pid, &["-HtunwK"]).map(drop)
}

/// Asks `ss` about sockets of the box with an address outside.
fn sockets(pid: u32, arguments: &[&str]) -> Result<String, Trouble> {
    let own = BOX_ADDRESS.to_string();
    let mut all = arguments.to_vec();
    all.extend(["src", &own]);
    run(Some(&network_of(pid)?), "ss", &all, "")
}

/// The address of the peer in a line of `ss`: the last of its columns, with the port.
fn peer_in(line: &str) -> Option<Ipv4Addr> {
    let peer = line.split_whitespace().nth(5)?;
    peer.rsplit_once(':')?.0.parse().ok()
}

fn run(
    network: Option<&File>,
    program: &'static str,
    arguments: &[&str],
    input: &str,
) -> Result<String, Trouble> {
    let mut command = Command::new(program);
    command.args(arguments);
    if let Some(network) = network {
        let network = network.as_raw_fd();
        // SAFETY: one system call on a descriptor that is open until the child has been started.
        unsafe {
            command.pre_exec(move || match libc::setns(network, libc::CLONE_NEWNET) {
                0 => Ok(()),
                _ => Err(io::Error::last_os_error()),
            });
        }
    }
    let output = programs::run(&mut command, input, programs::SHORT);
    let output = output.map_err(|error| {
        let advice = if error.kind() == io::ErrorKind::NotFound {
            "; install it (packages nftables and iproute2)"
        } else {
            ""
        };
        Trouble::Failed(format!("cannot run {program}: {error}{advice}"))
    })?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    let first = output.stderr.lines().next().unwrap_or("it gave no reason");
    Err(Trouble::Failed(format!("{program} failed: {first}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_are_read() {
        for (line, peer) in [
            (
                "tcp ESTAB 0 0 169.254.1.2:43536 1.1.1.1:80",
                Some("1.1.1.1"),
            ),
            (
                "udp   ESTAB 0      0      169.254.1.2:53589 8.8.8.8:53   ",
                Some("8.8.8.8"),
            ),
            ("udp UNCONN 0 0 169.254.1.2:5 *:*", None),
            ("", None),
        ] {
            assert_eq!(
                peer_in(line),
                peer.map(|peer| peer.parse().unwrap()),
                "{line}"
            );
        }
    }
}
