//! The names that the server's own authority vouches for: this server's and no others.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::config::Config;
use crate::edge::is_box_host;

/// The names of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names {
    /// Host names, in lower case; the names below them are the server's, too.
    pub(super) hosts: Vec<String>,
    /// Addresses besides loopback's.
    pub(super) addresses: Vec<IpAddr>,
    domain: String,
}

impl Names {
    /// Those in the settings.
    #[must_use]
    pub fn of(config: &Config) -> Self {
        let domain = config.domain.to_ascii_lowercase();
        let mut hosts = vec!["localhost".to_owned(), domain.clone()];
        let mut addresses = Vec::new();
        for name in &config.edge.names {
            match name.parse() {
                Ok(address) => addresses.push(address),
                Err(_) => hosts.push(name.to_ascii_lowercase()),
            }
        }
        let listen = config.listen.ip();
        if !listen.is_unspecified() && !listen.is_loopback() {
            addresses.push(listen);
        }
        hosts.sort();
        hosts.dedup();
        addresses.sort();
        addresses.dedup();
        Self {
            hosts,
            addresses,
            domain,
        }
    }

    /// What a certificate for the server itself says: its names, the boxes' names where one star may stand for them, and
    /// addresses.
    pub(super) fn of_server(&self) -> (Vec<String>, Vec<IpAddr>) {
        let mut hosts = self.hosts.clone();
        hosts.push(format!("api.{}", self.domain));
        if self.stars() {
            hosts.push(format!("*.{}", self.domain));
        }
        let loopback = [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
        let addresses = loopback.into_iter().chain(self.addresses.clone());
        (hosts, addresses.collect())
    }

    /// Whether this name needs a certificate of its own: a box's, below a domain of one label, where no client takes a star
    /// for it.
    pub(super) fn needs_own(&self, name: &str) -> bool {
        !self.stars() && is_box_host(name, &self.domain)
    }

    fn stars(&self) -> bool {
        self.domain.contains('.')
    }
}
