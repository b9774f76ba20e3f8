//! Which addresses are on the public internet. Owns the list of those that are not: for an account that may not reach into
//! the host's own networks nothing else is connected to, whatever a name resolves to at that moment.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Whether an address may be somebody else's endpoint on the internet. Addresses that carry another one inside are what
/// that one is.
pub(super) fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => v4_is_public(address),
        IpAddr::V6(address) => v6_is_public(address),
    }
}

fn v4_is_public(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    let is_shared = a == 100 && (64..128).contains(&b);
    let is_special = a == 0 || a >= 240 || (a, b, c) == (192, 0, 0) || (a, b, c) == (192, 88, 99);
    let is_benchmark = a == 198 && (18..20).contains(&b);
    !(is_shared
        || is_special
        || is_benchmark
        || address.is_private()
        || address.is_loopback()
        || address.is_link_local()
        || address.is_multicast()
        || address.is_documentation())
}

fn v6_is_public(address: Ipv6Addr) -> bool {
    let [a, b, c, d, e, f, ..] = address.segments();
    if let Some(inner) = address.to_ipv4_mapped() {
        return v4_is_public(inner);
    }
    let inner = |high: u16, low: u16| {
        let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
        v4_is_public(Ipv4Addr::new(a, b, c, d))
    };
    let [.., g, h] = address.segments();
    match (a, b) {
        // What a network without IPv4 reaches the rest of the world by.
        (0x64, 0xff9b) if (c, d, e, f) == (0, 0, 0, 0) => inner(g, h),
        // 6to4.
        (0x2002, high) => inner(high, c),
        // Teredo, benchmarks and their like; documentation.
        (0x2001, b) => b >= 0x200 && b != 0xdb8,
        (0x3fff, b) => b >= 0x1000,
        (a, _) => (0x2000..0x4000).contains(&a),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_internet_is_public() {
        for (address, public) in [
            ("1.1.1.1", true),
            ("9.255.255.255", true),
            ("11.0.0.0", true),
            ("100.63.255.255", true),
            ("100.128.0.0", true),
            ("172.15.0.1", true),
            ("172.32.0.1", true),
            ("192.0.1.1", true),
            ("198.20.0.1", true),
            ("223.255.255.255", true),
            ("0.0.0.0", false),
            ("0.1.2.3", false),
            ("10.0.0.1", false),
            ("100.64.0.1", false),
            ("100.127.255.255", false),
            ("127.0.0.1", false),
            ("127.9.9.9", false),
            ("169.254.169.254", false),
            ("172.16.0.1", false),
            ("172.31.255.255", false),
            ("192.0.0.1", false),
            ("192.0.2.1", false),
            ("192.88.99.1", false),
            ("192.168.0.1", false),
            ("198.18.0.1", false),
            ("198.19.255.255", false),
            ("198.51.100.1", false),
            ("203.0.113.1", false),
            ("224.0.0.1", false),
            ("240.0.0.1", false),
            ("255.255.255.255", false),
            ("2606:4700::1111", true),
            ("2001:4860::8888", true),
            ("64:ff9b::101:101", true),
            ("2002:101:101::1", true),
            ("::ffff:1.1.1.1", true),
            ("::", false),
            ("::1", false),
            ("::7f00:1", false),
            ("::ffff:127.0.0.1", false),
            ("::ffff:10.0.0.1", false),
            ("64:ff9b::7f00:1", false),
            ("64:ff9b:1::101:101", false),
            ("100::1", false),
            ("2001::1", false),
            ("2001:db8::1", false),
            ("2002:7f00:1::1", false),
            ("2002:a00:1::1", false),
            ("3fff::1", false),
            ("5f00::1", false),
            ("fc00::1", false),
            ("fd12:3456::1", false),
            ("fe80::1", false),
            ("fec0::1", false),
            ("ff02::1", false),
        ] {
            assert_eq!(is_public(address.parse().unwrap()), public, "{address}");
        }
    }
}
