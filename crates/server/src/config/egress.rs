//! The settings for what boxes may reach outside.

use std::net::Ipv4Addr;

use icebox_wire::rest::EgressMode;
use serde::Deserialize;

use super::PrivateAddresses;

/// What boxes may reach outside. Never this host's own services, other boxes or cloud metadata.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EgressSettings {
    /// Whether any box reaches anything.
    pub allowed: bool,
    /// What a box reaches about which its starter says nothing. Boxes of E2B's clients reach the internet then.
    pub default: EgressMode,
    /// Who answers the questions of boxes for names, instead of the host's name servers; the second is asked when the first
    /// does not answer. They are reached whatever a box may reach.
    pub resolvers: Vec<Ipv4Addr>,
    /// Whose boxes may be allowed to reach private networks, by naming ranges within them.
    pub private_addresses: PrivateAddresses,
}

impl Default for EgressSettings {
    fn default() -> Self {
        Self {
            allowed: true,
            default: EgressMode::Open,
            resolvers: Vec::new(),
            private_addresses: PrivateAddresses::Admin,
        }
    }
}

impl EgressSettings {
    pub(super) fn check(&self, wrong: &mut Vec<String>) {
        let fits = |address: &Ipv4Addr| !address.is_loopback() && !address.is_unspecified();
        if self.resolvers.len() > 2 || !self.resolvers.iter().all(fits) {
            wrong.push(
                "egress.resolvers: at most 2 IPv4 addresses of other machines (boxes do not reach this one)".to_owned(),
            );
        }
    }
}
