//! Where browsers find the boxes. Owns the form of a box's URL; reading one is `host`'s.

use icebox_lifecycle::BoxId;

use crate::config::Config;
use crate::record::{Record, Service};

/// What all URLs have in common.
#[derive(Clone, Debug)]
pub struct Urls {
    scheme: &'static str,
    domain: String,
    /// With its colon; empty where browsers know it.
    port: String,
    /// Something in front of the server passes requests on.
    in_front: bool,
}

impl Urls {
    /// As the settings have it.
    #[must_use]
    pub fn of(config: &Config) -> Self {
        let own = config.listen.port();
        let own = (config.tls.is_some(), own);
        let (https, port) = config.edge.public.unwrap_or(own);
        let (scheme, usual) = if https { ("https", 443) } else { ("http", 80) };
        Self {
            scheme,
            domain: config.domain.to_ascii_lowercase(),
            port: if port == usual {
                String::new()
            } else {
                format!(":{port}")
            },
            in_front: config.edge.public.is_some(),
        }
    }

    /// `http` or `https`, as clients see it.
    #[must_use]
    pub fn scheme(&self) -> &'static str {
        self.scheme
    }

    /// What comes after the name of a box's port: the domain, and the server's port where browsers do not know it.
    #[must_use]
    pub fn authority(&self) -> String {
        format!("{}{}", self.domain, self.port)
    }

    /// The URL of a service, or of a port.
    #[must_use]
    pub fn of_place(&self, id: BoxId, place: &str) -> String {
        let Self {
            scheme,
            domain,
            port,
            ..
        } = self;
        format!("{scheme}://{place}-{id}.{domain}{port}/")
    }

    /// The server itself, as whoever asked for `asked` finds it; from outside, where something in front passes requests on.
    #[must_use]
    pub fn of_server(&self, asked: &str) -> String {
        let Self {
            scheme,
            domain,
            port,
            ..
        } = self;
        if self.in_front || asked.is_empty() {
            format!("{scheme}://{domain}{port}")
        } else {
            format!("{scheme}://{asked}")
        }
    }

    /// A signed link to it.
    #[must_use]
    pub fn of_link(&self, id: BoxId, place: &str, token: &str) -> String {
        let url = self.of_place(id, place);
        let base = url.trim_end_matches('/');
        format!("{base}{}?token={token}", super::link::ENTER_PATH)
    }

    /// The URL of what people see first of a box, of the services that `fits`.
    #[must_use]
    pub fn first(
        &self,
        id: BoxId,
        record: &Record,
        fits: impl Fn(&Service) -> bool,
    ) -> Option<String> {
        let first = record.services.iter().find(|service| fits(service))?;
        Some(self.of_place(id, &first.name))
    }
}
