//! Which server a verb talks to, and with which key. Owns the flags, the environment and the key file that say so.
//! Opens no connection.

use std::io;
use std::path::{Path, PathBuf};

use clap::Args;

use crate::client::Client;
use crate::error::CliError;
use crate::trust::Trust;

/// Where a server keeps everything when nothing else is said.
pub(crate) use icebox_server::config::DEFAULT_DATA;
/// Where a server is looked for when nothing else is said.
const DEFAULT_URL: &str = "http://127.0.0.1:7070";
/// The file that the first start of a server writes its key to.
pub(crate) const KEY_FILE: &str = "admin.key";
/// No key is longer; a longer file is something else.
const MAX_KEY_BYTES: usize = 256;

/// The flags of every verb that talks to a server.
#[derive(Args, Clone, Debug)]
pub(crate) struct Remote {
    /// The server [default: the one on this machine]
    #[arg(
        long,
        env = "ICEBOX_URL",
        hide_env_values = true,
        help_heading = "Server"
    )]
    url: Option<String>,
    /// The server's folder: its admin.key is used when ICEBOX_API_KEY is not set and the server is on this machine
    #[arg(long, env = "ICEBOX_DATA", default_value = DEFAULT_DATA, hide_env_values = true, help_heading = "Server")]
    data: PathBuf,
    /// Who vouches for the server, besides whom this machine trusts: certificates in PEM form
    #[arg(
        long,
        env = "ICEBOX_CA",
        value_name = "FILE",
        hide_env_values = true,
        help_heading = "Server"
    )]
    ca: Option<PathBuf>,
    /// Print the server's answer as JSON, and errors as JSON on standard error
    #[arg(long)]
    pub(crate) json: bool,
}

/// A server, and how it is spoken to.
pub(crate) struct Server {
    /// Its address, without a slash at the end.
    pub(crate) base: String,
    /// The key for it, or why there is none.
    pub(crate) key: Result<String, String>,
    /// Who vouches for it.
    pub(crate) trust: Trust,
}

impl Remote {
    /// A client for that server.
    pub(crate) fn client(&self) -> Result<Client, CliError> {
        self.server().map(Client::new)
    }

    /// That server.
    pub(crate) fn server(&self) -> Result<Server, CliError> {
        let noted = || icebox_server::address::noted(&self.data);
        let given = self.url.clone().filter(|url| !url.is_empty());
        let base = match &given {
            Some(url) => base_url(url)?,
            None => base_url(&noted().unwrap_or_else(|| DEFAULT_URL.to_owned()))?,
        };
        let here = given.is_none() || is_this_machine(&base);
        let key = match std::env::var("ICEBOX_API_KEY") {
            Ok(key) if !key.trim().is_empty() => Ok(key.trim().to_owned()),
            Ok(_) | Err(_) if here => read_key(&self.data.join(KEY_FILE)),
            // The key of the server here is nobody's business elsewhere.
            Ok(_) | Err(_) => Err("ICEBOX_API_KEY is not set".to_owned()),
        };
        let trust = if base.starts_with("https://") {
            self.trust(here)?
        } else {
            Trust::default()
        };
        Ok(Server { base, key, trust })
    }

    fn trust(&self, here: bool) -> Result<Trust, CliError> {
        let own = icebox_server::tls::authority_path(&self.data);
        let own = Some(own.as_path()).filter(|path| here && path.exists());
        let given = self
            .ca
            .as_deref()
            .filter(|path| !path.as_os_str().is_empty());
        let files: Vec<&Path> = given.into_iter().chain(own).collect();
        Trust::with(&files)
    }
}

impl Server {
    /// The one that keeps its things in this folder, spoken to with its own key, whatever the environment says.
    pub(crate) fn in_folder(data: &Path) -> Result<Self, CliError> {
        let remote = Remote {
            url: None,
            data: data.to_owned(),
            ca: None,
            json: false,
        };
        Ok(Self {
            key: read_key(&data.join(KEY_FILE)),
            ..remote.server()?
        })
    }
}

/// The key in a file; errors say what is the matter, as half a sentence.
pub(crate) fn read_key(path: &Path) -> Result<String, String> {
    let shown = path.display();
    match std::fs::read_to_string(path) {
        Ok(text) if text.len() <= MAX_KEY_BYTES && !text.trim().is_empty() => {
            Ok(text.trim().to_owned())
        }
        Ok(_) => Err(format!("{shown} holds no key")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err(format!("there is no key file {shown}"))
        }
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            Err(format!("only its owner (root) may read {shown}"))
        }
        Err(error) => Err(format!("{shown} cannot be read ({error})")),
    }
}

/// The address without a slash at its end; refused when it is not HTTP to a host.
fn base_url(url: &str) -> Result<String, CliError> {
    let trimmed = url.trim().trim_end_matches('/');
    let host = without_scheme(trimmed);
    let clean = |c: char| c.is_ascii_graphic() && !"?#@".contains(c);
    if host.is_empty() || host.starts_with([':', '/']) || !host.chars().all(clean) {
        return Err(CliError::Url {
            url: url.to_owned(),
        });
    }
    Ok(trimmed.to_owned())
}

fn without_scheme(url: &str) -> &str {
    let rest = url.strip_prefix("http://");
    rest.or_else(|| url.strip_prefix("https://"))
        .unwrap_or_default()
}

/// Whether an address names this machine's loopback.
fn is_this_machine(base: &str) -> bool {
    let authority = without_scheme(base).split('/').next().unwrap_or_default();
    let host = match authority.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => authority
            .rsplit_once(':')
            .map_or(authority, |(host, _)| host),
    };
    let address = host.parse::<std::net::IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_http_to_a_host() {
        for (given, expected) in [
            ("http://127.0.0.1:7070", Some("http://127.0.0.1:7070")),
            ("http://box.example/", Some("http://box.example")),
            ("http://h/under/", Some("http://h/under")),
            ("https://h:7443/", Some("https://h:7443")),
            ("https://", None),
            ("ftp://h", None),
            ("127.0.0.1:7070", None),
            ("http://", None),
            ("http://:80", None),
            ("http://user@h", None),
            ("http://h x", None),
        ] {
            assert_eq!(base_url(given).ok().as_deref(), expected, "{given}");
        }
    }

    #[test]
    fn the_local_key_is_for_loopback_only() {
        for (base, local) in [
            ("http://127.0.0.1:7070", true),
            ("http://127.9.9.9", true),
            ("http://localhost:1", true),
            ("http://[::1]:7070", true),
            ("https://[::1]:7070", true),
            ("https://localhost.example", false),
            ("http://10.0.0.1:7070", false),
            ("http://localhost.example", false),
            ("http://127.0.0.1.example:80", false),
            ("http://[2001:db8::1]:7070/127.0.0.1", false),
        ] {
            assert_eq!(is_this_machine(base), local, "{base}");
        }
    }

    #[test]
    fn a_key_file_is_read_without_its_line_end_and_a_bad_one_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(KEY_FILE);
        assert!(read_key(&path).unwrap_err().contains("no key file"));
        std::fs::write(&path, "e2b_00\n").unwrap();
        assert_eq!(read_key(&path).unwrap(), "e2b_00");
        std::fs::write(&path, "\n").unwrap();
        assert!(read_key(&path).unwrap_err().contains("holds no key"));
    }
}
