//! The way to a URL: reading it, finding out where its name leads, and a connection there, with TLS for `https`. Owns where a connection may go. That is decided for the very address that is connected to, so that a name that
//! changes its mind gets nowhere.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use axum::http::Uri;
use tokio::net::TcpStream;
use tokio::sync::OnceCell;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use super::address;
use crate::driver::Stream;

/// The longest URL, in bytes.
const URL_LEN: usize = 2_000;
/// Addresses of one name that are tried.
const ADDRESSES: usize = 4;

/// What a URL names.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Target {
    /// Whether it is spoken to over TLS.
    pub tls: bool,
    /// Its name or address, without brackets.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// What the `Host` header says.
    pub authority: String,
    /// Path and query.
    pub path: String,
}

impl Target {
    /// Reads an address; what is wrong with it, otherwise.
    pub fn parse(url: &str) -> Result<Self, &'static str> {
        if url.len() > URL_LEN {
            return Err("it is longer than 2000 bytes");
        }
        if !url.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err("it holds spaces or letters beyond ASCII");
        }
        if url.contains('#') {
            return Err("it has a fragment");
        }
        let uri: Uri = url.parse().map_err(|_| "it cannot be read")?;
        let tls = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            Some(_) | None => return Err("it does not begin with http:// or https://"),
        };
        let authority = uri.authority().ok_or("it names no host")?.as_str();
        if authority.contains('@') {
            return Err("it has a user in it");
        }
        let given = uri.host().unwrap_or_default();
        let host = given.strip_prefix('[').unwrap_or(given);
        let host = host.strip_suffix(']').unwrap_or(host);
        let fits = if given.starts_with('[') {
            host.parse::<Ipv6Addr>().is_ok()
        } else {
            is_host(host)
        };
        if !fits {
            return Err("its host is neither a name nor an address");
        }
        let standard = if tls { 443 } else { 80 };
        // By hand: the parser takes a port that is none for no port at all.
        let port = match authority.strip_prefix(given) {
            Some("") => Some(standard),
            rest => {
                let port = rest.and_then(|rest| rest.strip_prefix(':')?.parse().ok());
                port.filter(|port| *port > 0)
            }
        };
        Ok(Self {
            tls,
            host: host.to_owned(),
            port: port.ok_or("its port is not 1 to 65535")?,
            authority: authority.to_owned(),
            path: uri
                .path_and_query()
                .map_or_else(|| "/".to_owned(), ToString::to_string),
        })
    }

    /// Whether it is an address that only those may reach who may reach private ones.
    pub fn is_private_address(&self) -> bool {
        let address = self.host.parse::<IpAddr>();
        address.is_ok_and(|address| !address::is_public(address))
    }
}

fn is_host(host: &str) -> bool {
    let of_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    host.parse::<IpAddr>().is_ok() || ((1..=253).contains(&host.len()) && host.bytes().all(of_name))
}

/// Opens connections.
#[derive(Default)]
pub struct Dialer {
    /// Made at the first use of TLS, for that reads the certificates that this machine trusts.
    tls: OnceCell<TlsConnector>,
}

impl Dialer {
    /// A dialer that trusts these certificates and no others.
    #[cfg(test)]
    pub(crate) fn trusting(roots: RootCertStore) -> Self {
        let tls = client(roots).expect("the protocol versions are known");
        Self {
            tls: OnceCell::new_with(Some(tls)),
        }
    }

    /// A connection to a port of a host, with TLS or without; why there is none, in words, otherwise.
    pub async fn open(
        &self,
        tls: bool,
        host: &str,
        port: u16,
        private_too: bool,
    ) -> Result<Stream, String> {
        let stream = connect(host, port, private_too).await?;
        if !tls {
            return Ok(Box::new(stream));
        }
        let tls = self.tls.get_or_try_init(trusted).await?;
        let name = ServerName::try_from(host.to_owned());
        let name = name.map_err(|error| format!("no TLS with that host: {error}"))?;
        let stream = tls.connect(name, stream).await;
        Ok(Box::new(
            stream.map_err(|error| format!("no TLS with it: {error}"))?,
        ))
    }
}

/// A connection to a port of a host; why there is none, in words, otherwise. Without `private_too` only to the public internet.
pub async fn connect(host: &str, port: u16, private_too: bool) -> Result<TcpStream, String> {
    let found = tokio::net::lookup_host((host, port)).await;
    let found = found.map_err(|error| format!("its name leads nowhere: {error}"))?;
    let may = |to: &SocketAddr| private_too || address::is_public(to.ip());
    let found: Vec<SocketAddr> = found.filter(may).take(ADDRESSES).collect();
    let mut last = "its name leads to no address on the public internet, \
                    and this account may have nothing else connected to"
        .to_owned();
    for to in found {
        match TcpStream::connect(to).await {
            Ok(stream) => {
                // Without it a small message may wait for an answer to nothing; with an error it merely does.
                let _ = stream.set_nodelay(true);
                return Ok(stream);
            }
            Err(error) => last = format!("no connection to it: {error}"),
        }
    }
    Err(last)
}

async fn trusted() -> Result<TlsConnector, String> {
    let load = || {
        let found = rustls_native_certs::load_native_certs();
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(found.certs);
        if roots.is_empty() {
            return Err("this machine trusts no certificates; install ca-certificates".to_owned());
        }
        client(roots)
    };
    let loaded = tokio::task::spawn_blocking(load).await;
    loaded.unwrap_or_else(|error| Err(error.to_string()))
}

fn client(roots: RootCertStore) -> Result<TlsConnector, String> {
    let provider = tokio_rustls::rustls::crypto::ring::default_provider();
    let config = ClientConfig::builder_with_provider(Arc::new(provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_strictly() {
        let target = Target::parse("https://hooks.example:8443/a?b=c").unwrap();
        assert_eq!(
            (target.tls, &*target.host, target.port, &*target.path),
            (true, "hooks.example", 8443, "/a?b=c")
        );
        assert_eq!(target.authority, "hooks.example:8443");
        let plain = Target::parse("http://[::1]").unwrap();
        assert_eq!((&*plain.host, plain.port, &*plain.path), ("::1", 80, "/"));
        let long = format!("http://a/{}", "x".repeat(2_000));
        for url in [
            "",
            "/",
            "hooks.example",
            "ftp://a/",
            "file:///etc/passwd",
            "http://",
            "http:///x",
            "http://a@b/",
            "http://a:b@c/",
            "http://a b/",
            "http://a/#x",
            "http://a:0/",
            "http://a:99999/",
            "http://a:/",
            "http://ä/",
            "http://a%2e/",
            "http://a\r\nx: y/",
            "http://[::1/",
            "http://[v1.x]/",
            "http://a,b/",
            &long,
        ] {
            assert!(Target::parse(url).is_err(), "{url}");
        }
    }

    #[tokio::test]
    async fn whatever_a_private_address_is_called_it_is_not_connected_to() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        for host in [
            "127.0.0.1",
            "localhost",
            "127.1",
            "2130706433",
            "0x7f.1",
            "0177.0.0.1",
            "[::ffff:127.0.0.1]",
            "0.0.0.0",
            "0",
        ] {
            let target = Target::parse(&format!("http://{host}:{port}/")).unwrap();
            let connected = connect(&target.host, target.port, false).await;
            assert!(connected.is_err(), "{host}");
        }
        connect("127.1", port, true).await.unwrap();
    }
}
