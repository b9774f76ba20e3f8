//! How this program speaks to a server: limits of connections that all verbs share, and whom TLS trusts. That is whom this
//! machine trusts, and the authority of a server here or the one in `--ca`.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};
use ureq::Agent;
use ureq::config::ConfigBuilder;
use ureq::tls::{Certificate, RootCerts, TlsConfig};
use ureq::typestate::AgentScope;

use crate::error::CliError;

/// How long a connection may take to open.
pub(crate) const CONNECT_LIMIT: Duration = Duration::from_secs(5);

/// Whom TLS trusts; nobody where none is spoken.
#[derive(Clone, Debug, Default)]
pub(crate) struct Trust(Option<Arc<Vec<Certificate<'static>>>>);

impl Trust {
    /// Whom this machine trusts, and the authorities in these files besides.
    pub(crate) fn with(files: &[&Path]) -> Result<Self, CliError> {
        let mut trusted: Vec<CertificateDer<'static>> = Vec::new();
        for path in files {
            let shown = path.display();
            let pem = std::fs::read(path).map_err(CliError::io(format!("read {shown}")))?;
            let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
            let found = found.unwrap_or_default();
            if found.is_empty() {
                let text = format!("{shown} holds no certificate in PEM form");
                return Err(CliError::Usage(text));
            }
            trusted.extend(found);
        }
        // What cannot be read there is trusted by nobody, and the rest may be enough.
        trusted.extend(rustls_native_certs::load_native_certs().certs);
        let trusted = trusted.iter();
        let trusted = trusted.map(|der| Certificate::from_der(der).to_owned());
        Ok(Self(Some(Arc::new(trusted.collect()))))
    }

    /// What every connection to a server has in common.
    pub(crate) fn agent(&self) -> ConfigBuilder<AgentScope> {
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .proxy(None)
            .max_redirects(0)
            .no_delay(true)
            .timeout_connect(Some(CONNECT_LIMIT))
            .user_agent(concat!("icebox/", env!("CARGO_PKG_VERSION")));
        let Some(trusted) = &self.0 else {
            return config;
        };
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        config.tls_config(
            TlsConfig::builder()
                .root_certs(RootCerts::Specific(Arc::clone(trusted)))
                .unversioned_rustls_crypto_provider(provider)
                .build(),
        )
    }
}

impl Trust {
    /// The same for connections that carry something else than single calls; `None` where no TLS is spoken.
    pub(crate) fn tls(&self) -> Option<Result<ClientConfig, CliError>> {
        let trusted = self.0.as_ref()?;
        let mut roots = RootCertStore::empty();
        let certificates = trusted.iter().map(|one| one.der().to_vec().into());
        roots.add_parsable_certificates(certificates);
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map(|builder| builder.with_root_certificates(roots).with_no_client_auth());
        Some(config.map_err(|error| CliError::Usage(format!("TLS cannot be set up: {error}"))))
    }
}

/// What was wrong with TLS, if that is why a request failed.
pub(crate) fn trouble(error: &ureq::Error) -> Option<&rustls::Error> {
    if let ureq::Error::Rustls(trouble) = error {
        return Some(trouble);
    }
    let ureq::Error::Io(error) = error else {
        return None;
    };
    error.get_ref()?.downcast_ref()
}
