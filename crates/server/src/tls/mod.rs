//! TLS on the listener: a certificate of one's own, or one of an authority that this server makes for itself. Owns which
//! certificate a connection gets, and new ones in time: files that changed are read again, and an authority's certificates
//! are made anew a month before they end, both at the next handshake. Knows no HTTP but the names of its versions.

mod authority;
mod files;
mod names;
mod resolve;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use icebox_lifecycle::Time;
use rustls::ServerConfig;
use rustls::crypto::CryptoProvider;
use rustls::crypto::ring::Ticketer;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::clock::machine_now;
use crate::config::{Config, TlsConfig};
use authority::Authority;
use files::Files;
pub use names::Names;
use resolve::Resolver;

/// The folder of the server's own authority, in the data folder.
const FOLDER: &str = "tls";
/// The versions of HTTP, the better one first.
const PROTOCOLS: [&[u8]; 2] = [b"h2", b"http/1.1"];

/// Why there is no TLS.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read or written.
    #[error("cannot use {path}")]
    File {
        /// Which file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// A file holds something else.
    #[error("{path} {what}")]
    Unfit {
        /// Which file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// A certificate cannot be made.
    #[error("cannot make a certificate")]
    Make(#[from] rcgen::Error),
    /// The library refuses.
    #[error("cannot set TLS up")]
    Setup(#[from] rustls::Error),
}

/// Where the certificate of the server's own authority is, in a data folder.
#[must_use]
pub fn authority_path(data: &Path) -> PathBuf {
    data.join(FOLDER).join(authority::CERTIFICATE)
}

/// Where certificates come from.
enum Source {
    Files(Files),
    Authority(Box<Authority>),
}

/// Takes connections over TLS. Clones are the same one.
#[derive(Clone)]
pub struct Tls(Arc<Inner>);

struct Inner {
    acceptor: TlsAcceptor,
    source: Source,
    resolver: Arc<Resolver>,
    /// It was said that the files are no good.
    told: AtomicBool,
}

impl Tls {
    /// As the settings have it; `None` where they want none.
    pub fn load(config: &Config) -> Result<Option<Self>, TlsError> {
        let Some(wanted) = &config.tls else {
            return Ok(None);
        };
        let source = match wanted {
            TlsConfig::Files { cert, key } => Source::Files(Files::new(cert, key)),
            TlsConfig::LocalCa => {
                let folder = config.data.join(FOLDER);
                let names = Names::of(config);
                Source::Authority(Box::new(Authority::open(&folder, names, machine_now())?))
            }
        };
        let resolver = Arc::new(match &source {
            Source::Files(files) => {
                let Some(first) = files.look(machine_now())? else {
                    unreachable!("nobody looked at them before");
                };
                Resolver::fixed(first)
            }
            Source::Authority(authority) => {
                let (key, ends) = authority.leaf(None, machine_now())?;
                Resolver::minting(key, ends)
            }
        });
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_cert_resolver(Arc::clone(&resolver) as _);
        config.alpn_protocols = PROTOCOLS.map(<[u8]>::to_vec).to_vec();
        config.ticketer = Ticketer::new()?;
        Ok(Some(Self(Arc::new(Inner {
            acceptor: Arc::new(config).into(),
            source,
            resolver,
            told: AtomicBool::new(false),
        }))))
    }

    /// Shakes hands.
    pub(crate) async fn accept<S>(&self, stream: S) -> io::Result<TlsStream<S>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let inner = Arc::clone(&self.0);
        // Files are looked at off the threads for requests.
        let renewed = tokio::task::spawn_blocking(move || inner.renew(machine_now())).await;
        renewed.map_err(io::Error::other)?;
        let inner = &self.0;
        let start =
            tokio_rustls::LazyConfigAcceptor::new(rustls::server::Acceptor::default(), stream)
                .await?;
        if let Source::Authority(authority) = &inner.source
            && let Some(name) = start.client_hello().server_name()
        {
            inner.resolver.make_for(name, authority, machine_now());
        }
        start.into_stream(Arc::clone(inner.acceptor.config())).await
    }
}

impl Inner {
    /// Sees to it that the certificate is good. What cannot be had anew stays as it was.
    fn renew(&self, now: Time) {
        match &self.source {
            // One file may be replaced and the other not yet; that changes them again.
            Source::Files(files) => match files.look(now) {
                Ok(Some(key)) => {
                    self.resolver.put(key, None);
                    self.told.store(false, Ordering::Relaxed);
                    tracing::info!("a new certificate is in use");
                }
                Ok(None) => {}
                Err(error) => {
                    if !self.told.swap(true, Ordering::Relaxed) {
                        tracing::warn!(%error, "the certificate cannot be read again; the one before stays in use");
                    }
                }
            },
            Source::Authority(authority) if self.resolver.is_due(now) => {
                match authority.leaf(None, now) {
                    Ok((key, ends)) => self.resolver.put(key, Some(ends)),
                    Err(error) => tracing::error!(%error, "no new certificate"),
                }
            }
            Source::Authority(_) => {}
        }
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}
