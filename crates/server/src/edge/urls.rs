//! Where browsers find the boxes. Owns the form of a box's URL; reading one is `host`'s.

use http::Request;
use http::uri::PathAndQuery;
use icebox_lifecycle::BoxId;

use crate::config::Config;
use crate::record::{Record, Service, Shows};

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

    /// Where a request for one box finds the same at a service, or port, of another.
    #[must_use]
    pub fn of_path<B>(&self, id: BoxId, place: &str, request: &Request<B>) -> String {
        let path = request
            .uri()
            .path_and_query()
            .map_or("/", PathAndQuery::as_str);
        let url = self.of_place(id, place);
        format!("{}{path}", url.trim_end_matches('/'))
    }

    /// The URL of a service; that of a link is at the box that it leads to.
    #[must_use]
    pub fn of_service(&self, id: BoxId, service: &Service) -> String {
        match service.link() {
            Some((of, port)) => self.of_place(of, &port.to_string()),
            None => self.of_place(id, &service.name),
        }
    }

    /// The URL of the first service that people open.
    #[must_use]
    pub fn web(&self, id: BoxId, record: &Record) -> Option<String> {
        let first = record.services.iter().find(|service| service.web)?;
        Some(self.of_service(id, first))
    }

    /// The URL of what people see first of a box: what was chosen, or the first service.
    #[must_use]
    pub fn scene(&self, id: BoxId, record: &Record) -> Option<String> {
        let shows = record
            .scene
            .as_deref()
            .and_then(|scene| scene.shows.as_ref());
        match shows {
            Some(Shows::Url(url)) => Some(url.clone()),
            Some(Shows::Page { place, path }) => {
                let service = record.services.iter().find(|known| known.name == *place);
                let url = service.map_or_else(
                    || self.of_place(id, place),
                    |service| self.of_service(id, service),
                );
                Some(format!("{}{path}", url.trim_end_matches('/')))
            }
            None => {
                let first = record.services.first()?;
                Some(self.of_service(id, first))
            }
        }
    }
}
