//! Requests that a box's service has somewhere else: how they are addressed there. Owns what the server elsewhere is told, and
//! that no request goes round in a circle.

use std::sync::LazyLock;

use http::header::{HOST, HeaderName, HeaderValue, VIA};
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{Request, Uri};

use super::forward::{FORWARDED_FOR, FORWARDED_HOST, FORWARDED_PROTO};
use super::pool::{ForwardError, Spot};
use crate::outside::Target;
use crate::random;
use crate::record::Elsewhere;

/// What a request to a box is for.
#[derive(Clone, Copy, Debug)]
pub enum Place<'a> {
    /// A program in it, on this port.
    Port(u16),
    /// A server elsewhere, which one of its services leads to; the path of the request goes behind that of the target.
    Elsewhere {
        /// Where it is.
        target: &'a Target,
        /// Whether that may be at a private address.
        private_too: bool,
    },
}

impl Place<'_> {
    pub(super) fn spot(&self) -> Spot {
        match self {
            Self::Port(port) => Spot::Port(*port),
            Self::Elsewhere {
                target,
                private_too,
            } => Spot::Elsewhere {
                tls: target.tls,
                host: target.host.clone(),
                port: target.port,
                private_too: *private_too,
            },
        }
    }
}

/// By what this server knows its own requests, in `Via`. New with each start, so that it names this one alone.
static ITSELF: LazyLock<String> = LazyLock::new(|| format!("icebox-{}", random::hex::<8>()));

/// What it is not told: who came, and by which name.
const KEPT_BACK: [HeaderName; 3] = [FORWARDED_FOR, FORWARDED_HOST, FORWARDED_PROTO];

/// Addresses a request to a server elsewhere: its host, its path before that of the request.
pub(super) fn address(parts: &mut Parts, target: &Target) -> Result<(), ForwardError> {
    let mut seen = parts.headers.get_all(VIA).iter();
    if seen.any(|via| via.to_str().is_ok_and(|via| via.contains(&**ITSELF))) {
        return Err(ForwardError::Circle);
    }
    if let Ok(via) = HeaderValue::from_str(&format!("1.1 {}", *ITSELF)) {
        parts.headers.append(VIA, via);
    }
    for name in KEPT_BACK {
        parts.headers.remove(name);
    }
    let cannot = || ForwardError::Elsewhere(target.host.clone(), "it has no such path".to_owned());
    let host = HeaderValue::from_str(&target.authority).map_err(|_| cannot())?;
    parts.headers.insert(HOST, host);
    let asked = parts.uri.path_and_query().map_or("/", PathAndQuery::as_str);
    if target.path.len() > 1 && climbs(parts.uri.path()) {
        return Err(cannot());
    }
    let path = format!("{}{asked}", target.path.trim_end_matches('/'));
    parts.uri = Uri::try_from(path).map_err(|_| cannot())?;
    Ok(())
}

/// Whether a request is for one of the paths that a scene has elsewhere.
pub(super) fn is_for<B>(elsewhere: &Elsewhere, request: &Request<B>) -> bool {
    let path = request.uri().path();
    let mut paths = elsewhere.paths.iter();
    let begins = paths.any(|beginning| {
        let rest = path.strip_prefix(beginning.trim_end_matches('/'));
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    });
    begins && !climbs(path)
}

/// Whether a path may lead out of the one that it begins with, however that is written.
pub(crate) fn climbs(path: &str) -> bool {
    let path = path.to_ascii_lowercase().replace("%2e", ".");
    let path = path
        .replace("%2f", "/")
        .replace("%5c", "/")
        .replace('\\', "/");
    path.split('/').any(|part| part == ".." || part == ".")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addressed(url: &str, path: &str) -> Result<Parts, ForwardError> {
        let request = Request::builder().uri(path).header(HOST, "api:3000");
        let (mut parts, ()) = request.body(()).unwrap().into_parts();
        address(&mut parts, &Target::parse(url).unwrap()).map(|()| parts)
    }

    #[test]
    fn the_path_goes_behind_that_of_the_target() {
        for (url, path, there) in [
            ("http://a.example", "/x?y=1", "/x?y=1"),
            ("http://a.example/", "/", "/"),
            ("https://a.example:8443/v2/", "/x", "/v2/x"),
            ("https://a.example/v2", "/", "/v2/"),
        ] {
            let parts = addressed(url, path).unwrap();
            assert_eq!(parts.uri, there, "{url} {path}");
            assert!(
                parts.headers[HOST]
                    .to_str()
                    .unwrap()
                    .starts_with("a.example")
            );
        }
        for path in ["/../x", "/%2E%2e/x", "/y/..%2fx", "/./x"] {
            assert!(addressed("http://a.example/v2", path).is_err(), "{path}");
        }
    }

    #[test]
    fn a_request_that_comes_back_is_refused() {
        let mut parts = addressed("http://a.example", "/").unwrap();
        let target = Target::parse("http://b.example").unwrap();
        let again = address(&mut parts, &target);
        assert!(matches!(again, Err(ForwardError::Circle)), "{again:?}");
    }

    #[test]
    fn paths_are_compared_by_their_parts() {
        let elsewhere = Elsewhere {
            paths: vec!["/api".to_owned(), "/v1/".to_owned()],
            base_url: String::new(),
        };
        for (path, is) in [
            ("/api", true),
            ("/api/x", true),
            ("/api?x", true),
            ("/apix", false),
            ("/v1", true),
            ("/v1/x", true),
            ("/", false),
            ("/x/api", false),
            ("/api/../secret", false),
            ("/api/%2e%2E/secret", false),
            ("/api/..%5Csecret", false),
            ("/api/..x", true),
        ] {
            let request = Request::builder().uri(path).body(()).unwrap();
            assert_eq!(is_for(&elsewhere, &request), is, "{path}");
        }
    }
}
