//! The server's own authority: made at the first start with `local_ca`, kept in the data folder, trusted by whoever wants
//! to. Owns what its certificates say. It can vouch for this server's names alone, whoever gets hold of its key.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use icebox_lifecycle::Time;
use icebox_lifecycle::time::DAY;
use rcgen::{
    BasicConstraints, CertificateParams, CidrSubnet, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, GeneralSubtree, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    NameConstraints, SanType,
};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use rustls::sign::CertifiedKey;
use time::OffsetDateTime;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::files::cannot_use;
use super::names::Names;
use super::{TlsError, provider};
use crate::{random, whole_file};

/// Its certificate's file.
pub(super) const CERTIFICATE: &str = "ca.pem";
/// Its key's file.
const KEY: &str = "ca.key";
/// How long it lasts. Everybody who trusts it has to do so again afterwards.
const AUTHORITY_MS: i64 = 10 * 365 * DAY;
/// How long a certificate of its lasts.
const LEAF_MS: i64 = 90 * DAY;
/// Clocks of clients may be behind.
const BEFORE_MS: i64 = DAY;
/// Networks that are this machine's own, as address and length of the prefix.
const LOOPBACK: [(IpAddr, u8); 2] = [
    (IpAddr::V4(std::net::Ipv4Addr::new(127, 0, 0, 0)), 8),
    (IpAddr::V6(std::net::Ipv6Addr::LOCALHOST), 128),
];

/// The authority.
pub(super) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: CertificateDer<'static>,
    names: Names,
}

impl Authority {
    /// Takes the one in the folder; makes another one where there is none, or none that may vouch for these names.
    pub(super) fn open(folder: &Path, names: Names, now: Time) -> Result<Self, TlsError> {
        std::fs::create_dir_all(folder).map_err(cannot_use(folder))?;
        let (certificate, key) = (folder.join(CERTIFICATE), folder.join(KEY));
        let found = match (read(&certificate)?, read(&key)?) {
            (Some(certificate), Some(key)) => found(&certificate, &key, &names, now),
            (Some(_), None) | (None, Some(_)) => Err("one of its files is missing"),
            (None, None) => Err("there was none"),
        };
        let why = match found {
            Ok((issuer, certificate)) => {
                return Ok(Self {
                    issuer,
                    certificate,
                    names,
                });
            }
            Err(why) => why,
        };
        let made = make(&names, now)?;
        whole_file::write(&key, made.key.serialize_pem().as_bytes(), 0o600)
            .map_err(cannot_use(&key))?;
        whole_file::write(&certificate, made.pem.as_bytes(), 0o644)
            .map_err(cannot_use(&certificate))?;
        tracing::warn!(
            path = %certificate.display(), why,
            "made a certificate authority of this server's own; `icebox tls ca` says how to trust it"
        );
        let der = CertificateDer::from_pem_slice(made.pem.as_bytes());
        let der = der.map_err(|error| TlsError::Unfit {
            path: certificate,
            what: error.to_string(),
        })?;
        Ok(Self {
            issuer: Issuer::from_ca_cert_der(&der, made.key)?,
            certificate: der,
            names,
        })
    }

    /// Whom it vouches for.
    pub(super) fn names(&self) -> &Names {
        &self.names
    }

    /// A certificate for one name, or for the server itself, and when it ends.
    pub(super) fn leaf(
        &self,
        name: Option<&str>,
        now: Time,
    ) -> Result<(Arc<CertifiedKey>, Time), TlsError> {
        let (hosts, addresses) = match name {
            Some(name) => (vec![name.to_owned()], Vec::new()),
            None => self.names.of_server(),
        };
        let ends = now + LEAF_MS;
        let mut params = CertificateParams::new(hosts.clone())?;
        let addresses = addresses.into_iter().map(SanType::IpAddress);
        params.subject_alt_names.extend(addresses);
        params.distinguished_name = called(&hosts[0]);
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        lasts(&mut params, now, ends);
        let key = KeyPair::generate()?;
        let leaf = params.signed_by(&key, &self.issuer)?;
        let chain = vec![leaf.der().clone(), self.certificate.clone()];
        let key = PrivatePkcs8KeyDer::from(key.serialize_der());
        let certified = CertifiedKey::from_der(chain, key.into(), &provider())?;
        Ok((Arc::new(certified), ends))
    }
}

/// The one that was found; why it will not do, otherwise.
fn found(
    certificate: &str,
    key: &str,
    names: &Names,
    now: Time,
) -> Result<(Issuer<'static, KeyPair>, CertificateDer<'static>), &'static str> {
    const UNREADABLE: &str = "its files cannot be understood";
    let der = CertificateDer::from_pem_slice(certificate.as_bytes()).map_err(|_| UNREADABLE)?;
    let key = KeyPair::from_pem(key).map_err(|_| UNREADABLE)?;
    let (_, parsed) = X509Certificate::from_der(&der).map_err(|_| UNREADABLE)?;
    if parsed.public_key().raw != rcgen::PublicKeyData::subject_public_key_info(&key) {
        return Err("its files do not go together");
    }
    let ends = Time(
        parsed
            .validity()
            .not_after
            .timestamp()
            .saturating_mul(1_000),
    );
    if ends.since(now) < 2 * LEAF_MS {
        return Err("it is about to end");
    }
    if !covers(&parsed, names) {
        return Err("it may not vouch for the names in the settings");
    }
    let issuer = Issuer::from_ca_cert_der(&der, key).map_err(|_| UNREADABLE)?;
    Ok((issuer, der))
}

/// Whether an authority may vouch for all of these names.
fn covers(authority: &X509Certificate<'_>, names: &Names) -> bool {
    let Ok(Some(constraints)) = authority.name_constraints() else {
        return false;
    };
    let permitted = constraints.value.permitted_subtrees.as_deref();
    let permitted = permitted.unwrap_or_default();
    let host = |wanted: &String| {
        permitted
            .iter()
            .any(|tree| matches!(&tree.base, GeneralName::DNSName(name) if name == wanted))
    };
    let address = |wanted: &IpAddr| {
        let wanted = match CidrSubnet::from_addr_prefix(*wanted, width(*wanted)) {
            CidrSubnet::V4(address, mask) => [&address[..], &mask[..]].concat(),
            CidrSubnet::V6(address, mask) => [&address[..], &mask[..]].concat(),
        };
        permitted
            .iter()
            .any(|tree| matches!(&tree.base, GeneralName::IPAddress(net) if *net == wanted))
    };
    names.hosts.iter().all(host) && names.addresses.iter().all(address)
}

struct Made {
    pem: String,
    key: KeyPair,
}

fn make(names: &Names, now: Time) -> Result<Made, TlsError> {
    let hosts = names.hosts.iter().cloned().map(GeneralSubtree::DnsName);
    let single = names
        .addresses
        .iter()
        .map(|address| (*address, width(*address)));
    let networks = LOOPBACK.into_iter().chain(single).map(|(address, prefix)| {
        GeneralSubtree::IpAddress(CidrSubnet::from_addr_prefix(address, prefix))
    });
    let mut params = CertificateParams::default();
    // Clients that trust several of them tell them apart by name.
    params.distinguished_name = called(&format!("Icebox local CA {}", random::hex::<4>()));
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.name_constraints = Some(NameConstraints {
        permitted_subtrees: hosts.chain(networks).collect(),
        excluded_subtrees: Vec::new(),
    });
    lasts(&mut params, now, now + AUTHORITY_MS);
    let key = KeyPair::generate()?;
    let pem = params.self_signed(&key)?.pem();
    Ok(Made { pem, key })
}

fn called(name: &str) -> DistinguishedName {
    let mut called = DistinguishedName::new();
    // The field takes no more, and nobody reads it.
    let name: String = name.chars().take(64).collect();
    called.push(DnType::CommonName, name);
    called
}

fn lasts(params: &mut CertificateParams, now: Time, ends: Time) {
    params.not_before = moment(now - BEFORE_MS);
    params.not_after = moment(ends);
}

fn moment(at: Time) -> OffsetDateTime {
    OffsetDateTime::from_unix_timestamp(at.0 / 1_000).unwrap_or(OffsetDateTime::UNIX_EPOCH)
}

fn width(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

fn read(path: &PathBuf) -> Result<Option<String>, TlsError> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(cannot_use(path)(error)),
    }
}
