//! Where programs on this machine find the server: one line in the data folder, rewritten at every start.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};

use crate::config::{Config, TlsConfig};
use crate::whole_file;

/// The file in the data folder.
const FILE: &str = "url";
/// The longest line that is read back, in bytes.
const LONGEST: usize = 512;

/// A server's address, and where it is noted.
#[derive(Debug)]
pub struct FoundAt {
    url: String,
    path: PathBuf,
}

impl FoundAt {
    /// As the settings have it.
    #[must_use]
    pub fn of(config: &Config) -> Self {
        let ip = config.listen.ip();
        let ip = match (ip.is_unspecified(), ip) {
            (true, IpAddr::V4(_)) => Ipv4Addr::LOCALHOST.into(),
            (true, IpAddr::V6(_)) => Ipv6Addr::LOCALHOST.into(),
            (false, ip) => ip,
        };
        let port = config.listen.port();
        let address = std::net::SocketAddr::new(ip, port);
        let url = match &config.tls {
            None => format!("http://{address}"),
            Some(TlsConfig::LocalCa) => format!("https://{address}"),
            // Others vouch for names.
            Some(TlsConfig::Files { .. }) => format!("https://{}:{port}", config.domain),
        };
        Self {
            url,
            path: config.data.join(FILE),
        }
    }

    /// Notes it. Without the note programs look where servers usually are.
    pub fn write(&self) {
        let text = format!("{}\n", self.url);
        let written = whole_file::write(&self.path, text.as_bytes(), 0o644);
        if let Err(error) = written {
            tracing::warn!(%error, path = %self.path.display(), "the address is not noted");
        }
    }
}

/// Where the server of a data folder was found last.
#[must_use]
pub fn noted(data: &Path) -> Option<String> {
    let text = std::fs::read_to_string(data.join(FILE)).ok()?;
    let url = text.trim();
    (!url.is_empty() && url.len() <= LONGEST).then(|| url.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Given;

    #[test]
    fn a_server_is_found_where_its_certificate_fits() {
        let dir = tempfile::tempdir().unwrap();
        let files = TlsConfig::Files {
            cert: "/c".into(),
            key: "/k".into(),
        };
        for (listen, tls, url) in [
            ("127.0.0.1:7070", None, "http://127.0.0.1:7070"),
            ("0.0.0.0:80", None, "http://127.0.0.1:80"),
            ("[::]:80", Some(TlsConfig::LocalCa), "https://[::1]:80"),
            (
                "10.1.2.3:7070",
                Some(TlsConfig::LocalCa),
                "https://10.1.2.3:7070",
            ),
            ("0.0.0.0:443", Some(files), "https://ice.example:443"),
        ] {
            let mut config = Config::load(Given {
                data: Some(dir.path().to_owned()),
                listen: Some(listen.to_owned()),
                domain: Some("ice.example".to_owned()),
                ..Given::default()
            })
            .unwrap();
            config.tls = tls;
            FoundAt::of(&config).write();
            assert_eq!(noted(dir.path()).as_deref(), Some(url));
        }
        std::fs::write(dir.path().join(FILE), "x".repeat(600)).unwrap();
        assert_eq!(noted(dir.path()), None);
    }
}
