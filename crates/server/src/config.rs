//! The settings of the server: every one with its default, its limit and where it may be given. Owns reading the TOML
//! file and putting flags above it. Opens nothing and starts nothing.

mod egress;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use icebox_lifecycle::credits::Prices;
use icebox_lifecycle::fleet::Room;
use serde::Deserialize;

use crate::builds::BuildLimits;
use crate::driver::Capabilities;
use crate::logs::LogSettings;

pub use egress::EgressSettings;

/// Where everything is kept when nothing else is said.
pub const DEFAULT_DATA: &str = "/var/lib/icebox";
/// Where the server listens when nothing else is said.
pub const DEFAULT_LISTEN: &str = "127.0.0.1:7070";
/// The domain of the boxes' URLs when nothing else is said.
pub const DEFAULT_DOMAIN: &str = "localhost";

/// How often CPUs are given away when nothing else is said.
const CPU_OVERCOMMIT: u64 = 32;
const MILLI: u64 = 1_000;

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
    /// What box time costs.
    pub prices: Prices,
    /// What webhooks may do.
    pub webhooks: WebhookSettings,
    /// What boxes may reach outside.
    pub egress: EgressSettings,
    /// How much of what apps log is kept.
    pub logs: LogSettings,
    /// How the boxes' URLs are reached.
    pub edge: EdgeConfig,
    /// With what the listener speaks TLS; plain HTTP when absent.
    pub tls: Option<TlsConfig>,
}

/// With what the listener speaks TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TlsConfig {
    /// A certificate, with those of whoever vouches for it behind it, and its key. Both files are read again when they
    /// change.
    Files {
        /// The certificate's file.
        cert: PathBuf,
        /// The key's.
        key: PathBuf,
    },
    /// Certificates of an authority that this server makes for itself.
    LocalCa,
}

/// What webhooks may do.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct WebhookSettings {
    /// Whose webhooks, and whose boxes' services in mode `external`, may go to addresses that are not on the public internet:
    /// loopback, private networks, link-local ones.
    pub private_addresses: PrivateAddresses,
}

/// Whose webhooks, services or boxes may go to addresses that are not on the public internet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PrivateAddresses {
    /// No account's.
    Nobody,
    /// Those of the account that the first start made; its keys are the admin's.
    #[default]
    Admin,
    /// Every account's: for a server all of whose users may reach what it reaches.
    Everyone,
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
    /// Boxes that are up at a time: running, or on the way to or from it (rule 14.1).
    pub running_boxes: usize,
    /// What the memory limits of boxes in RAM, frozen ones there included, add up to at most, in MiB; when absent the
    /// memory of the machine, so that boxes that use all they may do not end each other.
    pub memory_mb: Option<u64>,
    /// What the CPUs of boxes that are up add up to at most; when absent 32 times those of the machine, for most boxes
    /// use little of theirs most of the time, and too few only make them slow.
    pub cpus: Option<f64>,
    /// Boxes of one account that are up at a time; when absent as many as fit on the host. The next two likewise.
    pub account_boxes: Option<usize>,
    /// The memory of one account's boxes in RAM, in MiB.
    pub account_memory_mb: Option<u64>,
    /// The CPUs of one account's boxes that are up.
    pub account_cpus: Option<f64>,
    /// Snapshots that one account may have.
    pub account_snapshots: usize,
    /// Memory for frozen boxes that stay warm, in MiB; 0: none do (rule 4.11).
    pub warm_memory_mb: u64,
    /// What builds made that is kept for equal builds, of all accounts together, in MiB; 0: nothing is.
    pub builds_mb: u64,
    /// The same of one account.
    pub account_builds_mb: u64,
    /// The same of one build, packed.
    pub build_mb: u64,
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
            memory_mb: None,
            cpus: None,
            account_boxes: None,
            account_memory_mb: None,
            account_cpus: None,
            account_snapshots: 100,
            warm_memory_mb: 0,
            builds_mb: 20_480,
            account_builds_mb: 8_192,
            build_mb: 2_048,
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
    /// `--tls`
    pub tls: bool,
}

/// The settings file, before it is checked.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct File {
    data: Option<PathBuf>,
    listen: Option<String>,
    domain: Option<String>,
    limits: Limits,
    credits: PriceList,
    webhooks: WebhookSettings,
    egress: EgressSettings,
    logs: LogSettings,
    edge: EdgeFile,
    tls: TlsFile,
}

/// `[tls]` in the file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct TlsFile {
    cert: Option<PathBuf>,
    key: Option<PathBuf>,
    local_ca: bool,
}

impl TlsFile {
    fn check(self, flag: bool, wrong: &mut Vec<String>) -> Option<TlsConfig> {
        match (self.cert, self.key) {
            (Some(cert), Some(key)) if !self.local_ca => Some(TlsConfig::Files { cert, key }),
            (None, None) => (self.local_ca || flag).then_some(TlsConfig::LocalCa),
            (Some(_), Some(_)) => {
                wrong.push("tls: either `cert` and `key`, or `local_ca`".to_owned());
                None
            }
            (Some(_), None) | (None, Some(_)) => {
                wrong.push("tls: `cert` and `key` go together".to_owned());
                None
            }
        }
    }
}

/// `[credits]`: what box time costs, in credits.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct PriceList {
    /// An hour of one CPU.
    cpu_hour: f64,
    /// An hour of a GiB of memory.
    gib_hour: f64,
}

impl Default for PriceList {
    fn default() -> Self {
        let Prices { cpu_hour, gib_hour } = Prices::default();
        Self {
            cpu_hour: cpu_hour as f64 / MICRO,
            gib_hour: gib_hour as f64 / MICRO,
        }
    }
}

/// Parts of a credit that prices may have.
const MICRO: f64 = 1_000_000.0;

impl PriceList {
    fn check(&self, wrong: &mut Vec<String>) -> Prices {
        let mut price = |name: &str, credits: f64| {
            if !(0.0..=1_000.0).contains(&credits) {
                wrong.push(format!("credits.{name}: 0 to 1000 credits"));
            }
            // A value out of range was refused, so that this fits.
            (credits * MICRO).round() as i64
        };
        Prices {
            cpu_hour: price("cpu_hour", self.cpu_hour),
            gib_hour: price("gib_hour", self.gib_hour),
        }
    }
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
        let tls = file.tls.check(given.tls, &mut wrong);
        file.limits.check(&mut wrong);
        file.egress.check(&mut wrong);
        file.logs.check(&mut wrong);
        let prices = file.credits.check(&mut wrong);
        let data = given.data.or(file.data);
        match address {
            Ok(listen) if wrong.is_empty() => Ok(Self {
                data: data.unwrap_or_else(|| DEFAULT_DATA.into()),
                listen,
                domain,
                test_clock: given.test_clock,
                limits: file.limits,
                prices,
                webhooks: file.webhooks,
                egress: file.egress,
                logs: file.logs,
                edge,
                tls,
            }),
            Ok(_) | Err(()) => Err(ConfigError::Values(wrong)),
        }
    }
}

impl Limits {
    /// What there is for boxes on this machine altogether (rule 14.1).
    #[must_use]
    pub fn host_room(&self, machine: &Capabilities) -> Room {
        let cpus = self.cpus.map_or_else(
            || u64::from(machine.cpus) * MILLI * CPU_OVERCOMMIT,
            milli_cpus,
        );
        Room {
            boxes: self.running_boxes as u64,
            memory_mb: self.memory_mb.unwrap_or(machine.memory_mb),
            milli_cpus: cpus,
        }
    }

    /// What each account may have of it.
    #[must_use]
    pub fn account_room(&self) -> Room {
        Room {
            boxes: self.account_boxes.map_or(u64::MAX, |boxes| boxes as u64),
            memory_mb: self.account_memory_mb.unwrap_or(u64::MAX),
            milli_cpus: self.account_cpus.map_or(u64::MAX, milli_cpus),
        }
    }

    /// What is kept of what builds made.
    #[must_use]
    pub fn builds(&self) -> BuildLimits {
        let bytes = |mb: u64| mb.saturating_mul(1 << 20);
        BuildLimits {
            one: bytes(self.build_mb),
            account: bytes(self.account_builds_mb),
            all: bytes(self.builds_mb),
        }
    }

    fn check(&self, wrong: &mut Vec<String>) {
        let boxes = |boxes: &usize| (1..=100_000).contains(boxes);
        let memory = |mb: &u64| (64..=1 << 40).contains(mb);
        let cpus = |cpus: &f64| (0.1..=1_000_000.0).contains(cpus);
        if !self.memory_mb.iter().all(memory) {
            wrong.push("limits.memory_mb: 64 to 1099511627776".to_owned());
        }
        if !self.cpus.iter().all(cpus) {
            wrong.push("limits.cpus: 0.1 to 1000000".to_owned());
        }
        if !self.account_boxes.iter().all(boxes) {
            wrong.push("limits.account_boxes: 1 to 100000".to_owned());
        }
        if self.account_snapshots > 100_000 {
            wrong.push("limits.account_snapshots: 0 to 100000".to_owned());
        }
        if !self.account_memory_mb.iter().all(memory) {
            wrong.push("limits.account_memory_mb: 64 to 1099511627776".to_owned());
        }
        if !self.account_cpus.iter().all(cpus) {
            wrong.push("limits.account_cpus: 0.1 to 1000000".to_owned());
        }
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

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "it was checked to be in a range far within"
)]
fn milli_cpus(cpus: f64) -> u64 {
    (cpus * 1_000.0).round() as u64
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
        assert_eq!(config.prices, Prices::default());
        std::fs::write(&path, "[credits]\ncpu_hour = 0.05\ngib_hour = 0\n").unwrap();
        let prices = Config::load(given(None)).unwrap().prices;
        assert_eq!((prices.cpu_hour, prices.gib_hour), (50_000, 0));
        std::fs::write(&path, "[credits]\ncpu_hour = -1\n").unwrap();
        let refused = Config::load(given(None)).unwrap_err().to_string();
        assert!(refused.contains("credits.cpu_hour: 0 to 1000"), "{refused}");
        std::fs::write(&path, "domian = \"x\"\n").unwrap();
        let refused = Config::load(given(None)).unwrap_err().to_string();
        assert!(refused.contains("domian"), "{refused}");
    }

    #[test]
    fn room_is_the_machines_unless_the_settings_say_otherwise() {
        let machine = Capabilities {
            name: "test",
            checkpoint: Ok(()),
            egress: Ok(()),
            cpus: 4,
            memory_mb: 8_000,
            disk_gb: 10,
        };
        let room = Limits::default().host_room(&machine);
        let parts = (room.boxes, room.memory_mb, room.milli_cpus);
        assert_eq!(parts, (256, 8_000, 128_000));
        assert_eq!(Limits::default().account_room(), Room::ENDLESS);
        let limits: Limits =
            toml::from_str("memory_mb = 16000\ncpus = 2.5\naccount_boxes = 3\naccount_cpus = 1")
                .unwrap();
        let room = limits.host_room(&machine);
        assert_eq!((room.memory_mb, room.milli_cpus), (16_000, 2_500));
        let account = limits.account_room();
        assert_eq!((account.boxes, account.milli_cpus), (3, 1_000));
        assert_eq!(account.memory_mb, u64::MAX);
        let mut wrong = Vec::new();
        let none: Limits = toml::from_str("account_boxes = 0\ncpus = 0.0").unwrap();
        none.check(&mut wrong);
        assert_eq!(wrong.len(), 2, "{wrong:?}");
    }

    #[test]
    fn private_addresses_are_the_admins_unless_the_file_says_otherwise() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("icebox.toml");
        let load = |text: &str| {
            std::fs::write(&path, text).unwrap();
            Config::load(Given {
                config: Some(path.clone()),
                ..Given::default()
            })
        };
        let whose = |text: &str| load(text).unwrap().webhooks.private_addresses;
        assert_eq!(whose(""), PrivateAddresses::Admin);
        assert_eq!(
            whose("[webhooks]\nprivate_addresses = \"everyone\"\n"),
            PrivateAddresses::Everyone
        );
        assert_eq!(
            whose("[webhooks]\nprivate_addresses = \"nobody\"\n"),
            PrivateAddresses::Nobody
        );
        let refused = load("[webhooks]\nprivate_addresses = \"all\"\n").unwrap_err();
        assert!(refused.to_string().contains("everyone"), "{refused}");
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
    fn tls_is_off_of_ones_own_or_local() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("icebox.toml");
        let load = |text: &str, tls: bool| {
            std::fs::write(&path, text).unwrap();
            Config::load(Given {
                config: Some(path.clone()),
                tls,
                ..Given::default()
            })
        };
        let files = TlsConfig::Files {
            cert: "/c".into(),
            key: "/k".into(),
        };
        let own = "[tls]\ncert = \"/c\"\nkey = \"/k\"\n";
        for (text, flag, expected) in [
            ("", false, None),
            ("", true, Some(TlsConfig::LocalCa)),
            ("[tls]\nlocal_ca = true\n", false, Some(TlsConfig::LocalCa)),
            (own, false, Some(files.clone())),
            (own, true, Some(files)),
        ] {
            assert_eq!(load(text, flag).unwrap().tls, expected, "{text} {flag}");
        }
        for text in [
            "[tls]\ncert = \"/c\"\n",
            "[tls]\ncert = \"/c\"\nkey = \"/k\"\nlocal_ca = true\n",
            "[tls]\nca = true\n",
        ] {
            let refused = load(text, false).unwrap_err().to_string();
            assert!(refused.contains("cert"), "{text}: {refused}");
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
