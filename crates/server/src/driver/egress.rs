//! What a box may reach outside: data, its text form and the question of one address. Owns which addresses no setting
//! opens; knows nothing of how a runtime enforces it.

use std::fmt;
use std::net::Ipv4Addr;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// What a box may reach outside. Boxes have no IPv6.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Egress {
    /// The internet, but for what is denied; otherwise nothing but what is allowed.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub open: bool,
    /// What it reaches in any case. Private networks are reached only by ranges of their own here.
    #[serde(skip_serializing_if = "<[Range]>::is_empty")]
    pub allow: Box<[Range]>,
    /// What it does not reach, unless it is allowed.
    #[serde(skip_serializing_if = "<[Range]>::is_empty")]
    pub deny: Box<[Range]>,
}

/// Addresses that begin with the same bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Range {
    first: Ipv4Addr,
    bits: u8,
}

/// A text that is no range of IPv4 addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not an IPv4 address or CIDR range")]
pub struct NotARange;

/// Never reached, whatever is allowed: this machine itself, cloud metadata and all that is link-local, the way out of other
/// boxes, groups, what is reserved.
pub const NEVER: [Range; 5] = [
    Range::of([0, 0, 0, 0], 8),
    Range::of([127, 0, 0, 0], 8),
    Range::of([169, 254, 0, 0], 16),
    Range::of([224, 0, 0, 0], 4),
    Range::of([240, 0, 0, 0], 4),
];

/// Networks that are not the internet: reached only where a range within one of them is allowed.
pub const PRIVATE: [Range; 6] = [
    Range::of([10, 0, 0, 0], 8),
    Range::of([100, 64, 0, 0], 10),
    Range::of([172, 16, 0, 0], 12),
    Range::of([192, 0, 0, 0], 24),
    Range::of([192, 168, 0, 0], 16),
    Range::of([198, 18, 0, 0], 15),
];

impl Egress {
    /// The internet.
    #[must_use]
    pub fn open() -> Self {
        Self {
            open: true,
            ..Self::default()
        }
    }

    /// Whether nothing was ever said.
    #[must_use]
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Whether there is no way out at all.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        !self.open && self.allow.is_empty()
    }

    /// Whether a connection to `address` is let through. Name servers of the host are reached besides.
    #[must_use]
    pub fn allows(&self, address: Ipv4Addr) -> bool {
        let in_any = |ranges: &[Range]| ranges.iter().any(|range| range.has(address));
        if in_any(&NEVER) {
            return false;
        }
        if in_any(&PRIVATE) {
            let mut private = self.allow.iter().filter(|range| range.is_private());
            return private.any(|range| range.has(address));
        }
        in_any(&self.allow) || (self.open && !in_any(&self.deny))
    }
}

impl Range {
    const fn of(first: [u8; 4], bits: u8) -> Self {
        let [a, b, c, d] = first;
        Self {
            first: Ipv4Addr::new(a, b, c, d),
            bits,
        }
    }

    /// Whether `address` is one of them.
    #[must_use]
    pub fn has(&self, address: Ipv4Addr) -> bool {
        address.to_bits() & mask(self.bits) == self.first.to_bits()
    }

    /// Whether all of `other` are among them.
    #[must_use]
    pub fn holds(&self, other: &Self) -> bool {
        self.bits <= other.bits && self.has(other.first)
    }

    /// Whether all of them are in one private network.
    #[must_use]
    pub fn is_private(&self) -> bool {
        PRIVATE.iter().any(|network| network.holds(self))
    }
}

fn mask(bits: u8) -> u32 {
    u32::MAX.checked_shl(32 - u32::from(bits)).unwrap_or(0)
}

impl FromStr for Range {
    type Err = NotARange;

    /// Reads `10.0.0.0/8` or `10.1.2.3`. Bits behind the prefix do not matter.
    fn from_str(text: &str) -> Result<Self, NotARange> {
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, bits),
            None => (text, "32"),
        };
        let address: Ipv4Addr = address.parse().map_err(|_| NotARange)?;
        let plain = !bits.is_empty() && bits.bytes().all(|b| b.is_ascii_digit());
        let bits: u8 = bits.parse().map_err(|_| NotARange)?;
        if !plain || bits > 32 {
            return Err(NotARange);
        }
        let first = Ipv4Addr::from_bits(address.to_bits() & mask(bits));
        Ok(Self { first, bits })
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.first)?;
        if self.bits < 32 {
            write!(f, "/{}", self.bits)?;
        }
        Ok(())
    }
}

impl TryFrom<String> for Range {
    type Error = NotARange;

    fn try_from(text: String) -> Result<Self, NotARange> {
        text.parse()
    }
}

impl From<Range> for String {
    fn from(range: Range) -> Self {
        range.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges(texts: &[&str]) -> Box<[Range]> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn ranges_are_read_and_written() {
        for (text, read) in [
            ("10.0.0.0/8", Some("10.0.0.0/8")),
            ("10.1.2.3/8", Some("10.0.0.0/8")),
            ("10.1.2.3", Some("10.1.2.3")),
            ("10.1.2.3/32", Some("10.1.2.3")),
            ("0.0.0.0/0", Some("0.0.0.0/0")),
            ("255.255.255.255/1", Some("128.0.0.0/1")),
            ("10.0.0.0/33", None),
            ("10.0.0.0/-1", None),
            ("10.0.0.0/+8", None),
            ("10.0.0.0/", None),
            ("10.0.0/8", None),
            ("::/0", None),
            ("example.com", None),
            ("", None),
        ] {
            let range = text.parse::<Range>().ok().map(|range| range.to_string());
            assert_eq!(range.as_deref(), read, "{text}");
        }
    }

    #[test]
    fn what_is_let_through() {
        let none: &[&str] = &[];
        for (open, allow, deny, address, through) in [
            (false, none, none, "1.1.1.1", false),
            (true, none, none, "1.1.1.1", true),
            (true, none, &["1.1.1.0/24"], "1.1.1.1", false),
            (true, none, &["1.1.1.0/24"], "1.1.2.1", true),
            (true, &["1.1.1.1"], &["1.1.1.0/24"], "1.1.1.1", true),
            (true, &["1.1.1.1"], &["0.0.0.0/0"], "1.1.1.2", false),
            (false, &["1.1.1.1"], none, "1.1.1.1", true),
            (false, &["1.1.1.1"], none, "1.1.1.2", false),
            // Private networks have to be named.
            (true, none, none, "10.0.0.1", false),
            (true, none, none, "172.16.0.1", false),
            (true, none, none, "100.127.0.1", false),
            (true, &["0.0.0.0/0"], none, "192.168.1.1", false),
            (true, &["8.0.0.0/5"], none, "10.0.0.1", false),
            (true, &["10.0.0.0/8"], none, "10.9.9.9", true),
            (false, &["10.1.0.0/16"], none, "10.1.0.1", true),
            (false, &["10.1.0.0/16"], none, "10.2.0.1", false),
            // Nothing opens these.
            (true, &["0.0.0.0/0"], none, "169.254.169.254", false),
            (true, &["169.254.169.254"], none, "169.254.169.254", false),
            (true, &["127.0.0.1"], none, "127.0.0.1", false),
            (true, &["224.0.0.1"], none, "224.0.0.1", false),
        ] {
            let egress = Egress {
                open,
                allow: ranges(allow),
                deny: ranges(deny),
            };
            let said = egress.allows(address.parse().unwrap());
            assert_eq!(said, through, "{open} {allow:?} {deny:?} {address}");
        }
    }

    #[test]
    fn only_what_differs_from_nothing_is_kept() {
        let closed = serde_json::to_string(&Egress::default()).unwrap();
        assert_eq!(closed, "{}");
        let egress = Egress {
            open: true,
            allow: ranges(&["10.0.0.0/8"]),
            deny: ranges(&["1.1.1.1"]),
        };
        let text = serde_json::to_string(&egress).unwrap();
        assert_eq!(
            text,
            r#"{"open":true,"allow":["10.0.0.0/8"],"deny":["1.1.1.1"]}"#
        );
        assert_eq!(serde_json::from_str::<Egress>(&text).unwrap(), egress);
    }
}
