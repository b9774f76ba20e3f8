//! The settings of the server: every one with its default, its limit and where it may be given. Owns reading the TOML
//! file and putting flags above it. Opens nothing and starts nothing.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde::Deserialize;

/// Where everything is kept when nothing else is said.
pub const DEFAULT_DATA: &str = "/var/lib/icebox";
/// Where the server listens when nothing else is said.
pub const DEFAULT_LISTEN: &str = "127.0.0.1:7070";
/// The domain of the boxes' URLs when nothing else is said.
pub const DEFAULT_DOMAIN: &str = "localhost";

/// All settings, checked.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The folder of the database, the key file and the boxes.
    pub data: PathBuf,
    /// The one address that is listened on.
    pub listen: SocketAddr,
    /// The domain under which boxes have their URLs.
    pub domain: String,
    /// Time stands still until `/v1/test/clock` moves it.
    pub test_clock: bool,
    /// What the host gives away at most.
    pub limits: Limits,
    /// How the boxes' URLs are reached.
    pub edge: EdgeConfig,
}

/// How the boxes' URLs, and the API, are reached from outside.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EdgeConfig {
    /// Names of the API besides `localhost`, addresses, the domain and `api.` before it.
    pub names: Vec<String>,
    /// Whether browsers speak HTTPS, and to which port, when something in front of the server passes requests on.
    pub public: Option<(bool, u16)>,
}

/// What the host gives away at most.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Boxes that are in RAM at a time: running, standing still there, or on the way (rule 14.1).
    pub running_boxes: usize,
    /// Memory for frozen boxes that stay warm, in MiB; 0: none do (rule 4.11).
    pub warm_memory_mb: u64,
    /// CPUs of a box that asks for none.
    pub default_cpus: f64,
    /// Memory of a box that asks for none, in MiB.
    pub default_memory_mb: u64,
    /// Disk of a box that asks for none, in GiB.
    pub default_disk_gb: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            running_boxes: 256,
            warm_memory_mb: 0,
            default_cpus: 2.0,
            default_memory_mb: 2048,
            default_disk_gb: 10,
        }
    }
}

/// What was given on the command line or in the environment; it wins over the file.
#[derive(Clone, Debug, Default)]
pub struct Given {
    /// `--data`
    pub data: Option<PathBuf>,
    /// `--listen`
    pub listen: Option<String>,
    /// `--domain`
    pub domain: Option<String>,
    /// `--config`
    pub config: Option<PathBuf>,
    /// `--test-clock`
    pub test_clock: bool,
}

/// The settings file, before it is checked.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct File {
    data: Option<PathBuf>,
    listen: Option<String>,
    domain: Option<String>,
    limits: Limits,
    edge: EdgeFile,
}

/// `[edge]` in the file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct EdgeFile {
    names: Vec<String>,
    public_url: Option<String>,
}

/// Why the settings are no good.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The settings file cannot be read.
    #[error("cannot read the settings file {path}")]
    Read {
        /// Which file.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// The settings file is not what it should be.
    #[error("the settings file {path} does not fit: {text}")]
    Parse {
        /// Which file.
        path: PathBuf,
        /// Where and why, over several lines.
        text: String,
    },
    /// One or more values are out of range; all of them are named.
    #[error("{}", .0.join("; "))]
    Values(Vec<String>),
}

impl Config {
    /// Puts the flags above the file above the defaults, and names every value that is no good at once.
    pub fn load(given: Given) -> Result<Self, ConfigError> {
        let file = given.config.as_deref().map(read).transpose()?;
        let file = file.unwrap_or_default();
        let mut wrong = Vec::new();
        let listen = given.listen.or(file.listen);
        let listen = listen.as_deref().unwrap_or(DEFAULT_LISTEN);
        let address = listen.parse().map_err(|_| {
            wrong.push(format!(
                "listen: `{listen}` is no address and port, such as {DEFAULT_LISTEN}"
            ));
        });
        let domain = given.domain.or(file.domain);
        let domain = domain.unwrap_or_else(|| DEFAULT_DOMAIN.to_owned());
        if domain.len() > 200 || !is_host_name(&domain) {
            wrong.push("domain: a host name of 1 to 200 characters".to_owned());
        }
        let edge = file.edge.check(&mut wrong);
        file.limits.check(&mut wrong);
        let data = given.data.or(file.data);
        match address {
            Ok(listen) if wrong.is_empty() => Ok(Self {
                data: data.unwrap_or_else(|| DEFAULT_DATA.into()),
                listen,
                domain,
                test_clock: given.test_clock,
                limits: file.limits,
                edge,
            }),
            Ok(_) | Err(()) => Err(ConfigError::Values(wrong)),
        }
    }
}

impl Limits {
    fn check(&self, wrong: &mut Vec<String>) {
        if !(1..=100_000).contains(&self.running_boxes) {
            wrong.push("limits.running_boxes: 1 to 100000".to_owned());
        }
        if !(0.1..=1024.0).contains(&self.default_cpus) {
            wrong.push("limits.default_cpus: 0.1 to 1024".to_owned());
        }
        if !(64..=4_194_304).contains(&self.default_memory_mb) {
            wrong.push("limits.default_memory_mb: 64 to 4194304".to_owned());
        }
        if !(1..=65_536).contains(&self.default_disk_gb) {
            wrong.push("limits.default_disk_gb: 1 to 65536".to_owned());
        }
    }
}

impl EdgeFile {
    fn check(self, wrong: &mut Vec<String>) -> EdgeConfig {
        if self.names.len() > 100 || !self.names.iter().all(|name| is_host_name(name)) {
            wrong.push("edge.names: at most 100 host names, without ports".to_owned());
        }
        let public = self.public_url.as_deref().map(|url| {
            public(url).unwrap_or_else(|| {
                let like = "edge.public_url: such as https://boxes.example.com, without a path";
                wrong.push(like.to_owned());
                (false, 80)
            })
        });
        EdgeConfig {
            names: self.names,
            public,
        }
    }
}

/// Whether this can be the name of a host: labels of letters, digits and dashes.
fn is_host_name(name: &str) -> bool {
    name.split('.').all(|label| {
        let fits = |c: char| c.is_ascii_alphanumeric() || c == '-';
        !label.is_empty() && label.len() <= 63 && label.chars().all(fits)
    })
}

/// Whether a URL is HTTPS, and its port.
fn public(url: &str) -> Option<(bool, u16)> {
    let uri: http::Uri = url.parse().ok()?;
    let https = match uri.scheme_str()? {
        "https" => true,
        "http" => false,
        _ => return None,
    };
    let authority = uri.authority()?;
    let bare = uri.path_and_query().is_none_or(|rest| rest.as_str() == "/");
    let port = authority.port_u16().unwrap_or(if https { 443 } else { 80 });
    bare.then_some((https, port))
}

fn read(path: &Path) -> Result<File, ConfigError> {
    let text = std::fs::read_to_string(path).map_err(|source| ConfigError::Read {
        path: path.to_owned(),
        source,
    })?;
    toml::from_str(&text).map_err(|error| ConfigError::Parse {
        path: path.to_owned(),
        text: error.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_those_of_the_contract() {
        let config = Config::load(Given::default()).unwrap();
        assert_eq!(config.listen.to_string(), "127.0.0.1:7070");
        assert_eq!(config.domain, "localhost");
        assert_eq!(config.data, PathBuf::from("/var/lib/icebox"));
    }

    #[test]
    fn a_flag_wins_over_the_file_and_an_unknown_key_is_refused_by_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("icebox.toml");
        std::fs::write(
            &path,
            "domain = \"a.example\"\n[limits]\nrunning_boxes = 3\n",
        )
        .unwrap();
        let given = |domain: Option<&str>| Given {
            config: Some(path.clone()),
            domain: domain.map(str::to_owned),
            ..Given::default()
        };
        let config = Config::load(given(None)).unwrap();
        assert_eq!(config.domain, "a.example");
        assert_eq!(config.limits.running_boxes, 3);
        assert_eq!(Config::load(given(Some("b"))).unwrap().domain, "b");
        std::fs::write(&path, "domian = \"x\"\n").unwrap();
        let refused = Config::load(given(None)).unwrap_err().to_string();
        assert!(refused.contains("domian"), "{refused}");
    }

    #[test]
    fn how_the_server_is_reached_is_read_from_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("icebox.toml");
        let load = |text: &str| {
            std::fs::write(&path, text).unwrap();
            let config = Some(path.clone());
            Config::load(Given {
                config,
                ..Given::default()
            })
        };
        let config =
            load("[edge]\nnames = [\"ice.example\"]\npublic_url = \"https://b.example\"\n");
        let edge = config.unwrap().edge;
        assert_eq!(
            (edge.names, edge.public),
            (vec!["ice.example".to_owned()], Some((true, 443)))
        );
        for (text, field) in [
            ("[edge]\nnames = [\"a:80\"]", "edge.names"),
            ("[edge]\npublic_url = \"ftp://x\"", "edge.public_url"),
            ("[edge]\npublic_url = \"https://x/path\"", "edge.public_url"),
            ("domain = \"a b\"", "domain"),
        ] {
            let refused = load(text).unwrap_err().to_string();
            assert!(refused.contains(field), "{text}: {refused}");
        }
    }

    #[test]
    fn all_bad_values_are_named_at_once() {
        let given = Given {
            listen: Some("nowhere".into()),
            domain: Some(String::new()),
            ..Given::default()
        };
        let text = Config::load(given).unwrap_err().to_string();
        assert!(text.contains("listen") && text.contains("domain"), "{text}");
    }
}
