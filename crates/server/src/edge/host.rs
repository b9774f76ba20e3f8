//! For whom a request is: the API, a program in a box, or nobody here. Owns the form of the boxes' host names. A page that
//! made a name of its own point at this machine (DNS rebinding) reaches nothing, for only our names are answered.

use std::net::IpAddr;

use http::Request;
use http::header::HOST;
use http::uri::Authority;
use icebox_lifecycle::BoxId;

/// The names that are ours.
#[derive(Clone, Debug)]
pub(super) struct Names {
    domain: String,
    others: Vec<String>,
}

/// Whom a request is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum For {
    /// The API.
    Api,
    /// A program in a box, named by its service or port.
    Program {
        /// The service's name, or its port.
        service: String,
        /// The box.
        id: BoxId,
    },
    /// A name that is not ours.
    Stranger,
    /// It does not say, or says two things.
    Unclear,
}

impl Names {
    /// The boxes' domain, and further names of the API.
    pub(super) fn new(domain: &str, others: &[String]) -> Self {
        Self {
            domain: domain.to_ascii_lowercase(),
            others: others
                .iter()
                .map(|name| name.to_ascii_lowercase())
                .collect(),
        }
    }

    /// Whom a request is for.
    pub(super) fn of<B>(&self, request: &Request<B>) -> For {
        match authority(request) {
            Some(authority) => self.named(&authority),
            None => For::Unclear,
        }
    }

    fn named(&self, authority: &Authority) -> For {
        let host = authority.host().to_ascii_lowercase();
        let host = host.strip_suffix('.').unwrap_or(&host);
        let address = host.trim_start_matches('[').trim_end_matches(']');
        if address.parse::<IpAddr>().is_ok() || self.is_api(host) {
            return For::Api;
        }
        match program_at(host, &self.domain) {
            Some((service, id)) => For::Program {
                service: service.to_owned(),
                id,
            },
            None => For::Stranger,
        }
    }

    fn is_api(&self, host: &str) -> bool {
        host == "localhost"
            || host == self.domain
            || host.strip_prefix("api.") == Some(&self.domain)
            || self.others.iter().any(|name| name == host)
    }
}

/// Whether a host, in lower case, is a box's: one label before the domain.
pub(crate) fn is_box_host(host: &str, domain: &str) -> bool {
    program_at(host, domain).is_some()
}

/// The box whose host it is, in lower case.
pub(crate) fn box_at(host: &str, domain: &str) -> Option<BoxId> {
    program_at(host, domain).map(|(_, id)| id)
}

/// The service or port, and the box, that a host below the domain stands for.
fn program_at<'h>(host: &'h str, domain: &str) -> Option<(&'h str, BoxId)> {
    let label = host.strip_suffix(domain)?.strip_suffix('.')?;
    let (service, id) = label.rsplit_once('-')?;
    let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let fits = !service.is_empty() && service.chars().all(is_name);
    Some((service, BoxId::parse(id)?)).filter(|_| fits)
}

/// The one host that a request names; `None` when it names none, or more than one.
fn authority<B>(request: &Request<B>) -> Option<Authority> {
    let mut hosts = request.headers().get_all(HOST).iter();
    let (host, second) = (hosts.next(), hosts.next());
    if second.is_some() {
        return None;
    }
    let host = match host {
        Some(host) => Some(Authority::try_from(host.as_bytes()).ok()?),
        None => None,
    };
    // HTTP/2 says it in the request line, and so may HTTP/1.1.
    let line = request.uri().authority().cloned();
    let named = match (host, line) {
        (Some(host), Some(line)) if host != line => return None,
        (host, line) => line.or(host)?,
    };
    (!named.as_str().contains('@')).then_some(named)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "abcdefghij0123456789";

    fn of(lines: &[&str], uri: &str) -> For {
        let names = Names::new("Boxes.example", &["icebox.example".to_owned()]);
        let mut request = Request::builder().uri(uri);
        for host in lines {
            request = request.header(HOST, *host);
        }
        names.of(&request.body(()).unwrap())
    }

    #[test]
    fn names_lead_where_they_should() {
        let program = |service: &str| For::Program {
            service: service.to_owned(),
            id: BoxId::parse(ID).unwrap(),
        };
        let table: &[(&str, For)] = &[
            ("127.0.0.1:7070", For::Api),
            ("[::1]:7070", For::Api),
            ("10.1.2.3", For::Api),
            ("localhost:7070", For::Api),
            ("LocalHost", For::Api),
            ("localhost.", For::Api),
            ("boxes.example", For::Api),
            ("api.boxes.example:443", For::Api),
            ("icebox.example", For::Api),
            (&format!("web-{ID}.boxes.example:7070"), program("web")),
            (&format!("8080-{ID}.BOXES.example."), program("8080")),
            (&format!("web-{ID}.localhost"), For::Stranger),
            (
                &format!("web-{ID}.boxes.example.evil.example"),
                For::Stranger,
            ),
            (&format!("web-{ID}.evilboxes.example"), For::Stranger),
            (&format!("a.web-{ID}.boxes.example"), For::Stranger),
            (&format!("we_b-{ID}.boxes.example"), For::Stranger),
            (&format!("-{ID}.boxes.example"), For::Stranger),
            (&format!("{ID}.boxes.example"), For::Stranger),
            ("web-short.boxes.example", For::Stranger),
            ("rebound.attacker.example", For::Stranger),
            ("api.icebox.example", For::Stranger),
            ("user@localhost", For::Unclear),
            ("local host", For::Unclear),
            ("", For::Unclear),
        ];
        for (host, expected) in table {
            assert_eq!(&of(&[host], "/"), expected, "{host}");
        }
    }

    #[test]
    fn two_hosts_are_none() {
        assert_eq!(of(&[], "/"), For::Unclear);
        assert_eq!(of(&["localhost", "localhost"], "/"), For::Unclear);
        assert_eq!(of(&["localhost"], "http://boxes.example/"), For::Unclear);
        assert_eq!(of(&["localhost"], "http://LOCALHOST/"), For::Api);
        assert_eq!(of(&[], "http://localhost/"), For::Api);
    }
}
