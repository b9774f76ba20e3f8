//! `icebox tls`: the certificate authority that a server on this machine made for itself, and how to trust it.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde_json::json;

use crate::error::CliError;
use crate::printer;
use crate::settings::DEFAULT_DATA;

/// Encryption: the certificate authority of a server on this machine
#[derive(Args)]
#[command(disable_help_subcommand = true)]
#[command(after_help = "\
Examples:
  icebox serve --tls                      a server with an authority of its own
  icebox tls ca                           where its certificate is, and how to trust it")]
pub(crate) struct Tls {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    Ca(Ca),
}

/// Show where the certificate of the server's own authority is, and how to trust it
///
/// `icebox serve --tls` makes the authority at its first start, unless the settings name a certificate of yours. It can
/// vouch for this server's names alone, whoever gets hold of its key, so that trusting it risks nothing else. The file
/// holds no secret; copy it to the machines that are to reach the server.
#[derive(Args)]
#[command(after_help = "\
Examples:
  icebox tls ca
  curl --cacert \"$(icebox tls ca)\" https://localhost:7070/healthz
  icebox tls ca --pem > icebox-ca.pem     to copy it elsewhere")]
struct Ca {
    /// Print the certificate itself
    #[arg(long)]
    pem: bool,
    /// Print path and certificate as JSON
    #[arg(long, conflicts_with = "pem")]
    json: bool,
    /// The server's folder
    #[arg(long, env = "ICEBOX_DATA", default_value = DEFAULT_DATA, hide_env_values = true)]
    data: PathBuf,
}

impl Tls {
    pub(crate) fn run(self) -> Result<ExitCode, CliError> {
        let What::Ca(ca) = self.what;
        ca.run()?;
        Ok(ExitCode::SUCCESS)
    }

    /// Whether errors are wanted as JSON.
    pub(crate) fn json(&self) -> bool {
        let What::Ca(ca) = &self.what;
        ca.json
    }
}

impl Ca {
    fn run(self) -> Result<(), CliError> {
        let path = icebox_server::tls::authority_path(&self.data);
        let shown = path.display().to_string();
        let pem = match std::fs::read_to_string(&path) {
            Ok(pem) => pem,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Err(CliError::Usage(format!(
                    "there is no {shown}: `icebox serve --tls` makes it at its first start; \
                     --data names another folder"
                )));
            }
            Err(error) => return Err(CliError::io(format!("read {shown}"))(error)),
        };
        if self.pem {
            return printer::line(pem.trim_end());
        }
        if self.json {
            return printer::line(&json!({ "path": shown, "pem": pem }).to_string());
        }
        printer::line(&shown)?;
        printer::note(&how_to_trust(&shown));
        Ok(())
    }
}

fn how_to_trust(path: &str) -> String {
    format!(
        "
`icebox` on this machine trusts it by itself. For one program:
  export ICEBOX_CA={path}               icebox on another machine
  export SSL_CERT_FILE={path}           Python, curl and whatever else uses OpenSSL; for this server alone
  export NODE_EXTRA_CA_CERTS={path}     Node

For the whole machine, as root:
  cp {path} /usr/local/share/ca-certificates/icebox.crt && update-ca-certificates      Debian, Ubuntu
  cp {path} /etc/pki/ca-trust/source/anchors/icebox.pem && update-ca-trust             Fedora
  security add-trusted-cert -d -r trustRoot -k /Library/Keychains/System.keychain {path}   macOS

Firefox, and Chromium on Linux, have lists of their own: import it in their settings as an authority, or
  certutil -d sql:$HOME/.pki/nssdb -A -t C -n icebox -i {path}"
    )
}
