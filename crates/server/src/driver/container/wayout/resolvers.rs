//! Who answers the questions of boxes for names: the host's own name servers, as far as a box can be led to them.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, UdpSocket};

/// The gateway's address for the second name server; the first is asked at the gateway's own.
pub(super) const SECOND: Ipv4Addr = Ipv4Addr::new(169, 254, 1, 3);

/// `/etc/resolv.conf` of every box. The gateway knows who that is.
pub(in super::super) const RESOLV_CONF: &str = "nameserver 169.254.1.1\nnameserver 169.254.1.3\n";

/// Where the host names them: for a stub on loopback, systemd-resolved and NetworkManager keep those behind it.
const PLACES: [&str; 3] = [
    "/etc/resolv.conf",
    "/run/systemd/resolve/resolv.conf",
    "/run/NetworkManager/no-stub-resolv.conf",
];

/// The name servers of the host.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Found {
    /// Those that boxes can be led to.
    pub(super) usable: Vec<Ipv4Addr>,
    /// Those that only this machine reaches, or that have IPv6 addresses only.
    pub(super) others: Vec<IpAddr>,
}

/// Looks for them. The first place that names one that can be used wins.
pub(super) fn of_machine() -> Found {
    let mut found = Found::default();
    for place in PLACES {
        let text = fs::read_to_string(place).unwrap_or_default();
        let (usable, others) = sorted(&text, is_own);
        found.others.extend(others);
        if !usable.is_empty() {
            found.usable = usable;
            break;
        }
    }
    found
}

fn sorted(text: &str, is_own: impl Fn(Ipv4Addr) -> bool) -> (Vec<Ipv4Addr>, Vec<IpAddr>) {
    let (mut usable, mut others) = (Vec::new(), Vec::new());
    for line in text.lines() {
        let mut words = line.split_whitespace();
        if words.next() != Some("nameserver") {
            continue;
        }
        match words.next().and_then(|word| word.parse().ok()) {
            Some(IpAddr::V4(address)) if !address.is_loopback() && !is_own(address) => {
                usable.push(address);
            }
            Some(address) => others.push(address),
            None => {}
        }
    }
    (usable, others)
}

/// Whether this machine has that address: boxes do not reach its services, a name server among them.
fn is_own(address: Ipv4Addr) -> bool {
    UdpSocket::bind((address, 0)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_servers_that_boxes_reach() {
        let text = "# stub\nsearch example.com\nnameserver 127.0.0.53\nnameserver 10.0.0.2\n\
                    nameserver 10.0.0.9\nnameserver fd00::1\nnameserver\noptions edns0\n";
        let (usable, others) = sorted(text, |address| address == Ipv4Addr::new(10, 0, 0, 9));
        assert_eq!(usable, [Ipv4Addr::new(10, 0, 0, 2)]);
        let others: Vec<String> = others.iter().map(IpAddr::to_string).collect();
        assert_eq!(others, ["127.0.0.53", "10.0.0.9", "fd00::1"]);
    }
}
