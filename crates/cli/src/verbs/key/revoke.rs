//! `icebox key revoke`, and the list of an account's keys that it chooses from. Over REST, with the admin key.

use clap::Args;
use icebox_wire::rest::{KeyView, KeysResponse, RevokeKeyRequest};

use crate::client::{READ_LIMIT, escaped};
use crate::error::CliError;
use crate::printer::{self, Cell};
use crate::settings::Remote;
use crate::text::printable;
use crate::words::Now;

/// Let a key in no more, from this moment on
///
/// Programs that use it are refused, and browsers that signed in with it are signed out. Boxes stay as they are: they
/// belong to the account, which can be given another key with `icebox key add`.
///
/// The key in `admin.key` cannot be revoked. To replace it, remove that file and restart the server, which makes a new
/// one; then revoke the one it had.
#[derive(Args)]
#[command(after_help = "\
Examples:
  icebox key ls team                      which keys there are
  icebox key revoke team 3f9a61c2d7b0     by the id in that list
  icebox key revoke team e2b_…            or by the key itself")]
pub(super) struct Revoke {
    /// The account's name
    #[arg(value_name = "ACCOUNT")]
    account: String,
    /// The key, or its id in `icebox key ls ACCOUNT`
    #[arg(value_name = "KEY|ID")]
    key: String,
    #[command(flatten)]
    pub(super) remote: Remote,
}

impl Revoke {
    pub(super) fn run(self) -> Result<(), CliError> {
        let path = format!("/v1/accounts/{}/keys/revoke", escaped(&self.account));
        let is_key = self.key.starts_with("e2b_");
        let (key, id) = if is_key {
            (Some(self.key), None)
        } else {
            (None, Some(self.key))
        };
        let request = RevokeKeyRequest { id, key };
        let answer = self
            .remote
            .client()?
            .post(&path, Some(&request), READ_LIMIT)?;
        if self.remote.json {
            return printer::line(&answer.text);
        }
        printer::line(&format!("{}: the key is revoked", printable(&self.account)))
    }
}

/// The keys of an account.
pub(super) fn list(account: &str, remote: &Remote) -> Result<(), CliError> {
    let path = format!("/v1/accounts/{}/keys", escaped(account));
    let answer = remote.client()?.get(&path)?;
    if remote.json {
        return printer::line(&answer.text);
    }
    let keys: KeysResponse = answer.read()?;
    let now = Now::here();
    let row = |key: &KeyView| {
        [
            Cell::plain(&key.id),
            Cell::plain(&now.at(key.created_at)),
            Cell::plain(&key.sessions.to_string()),
            Cell::plain(if key.admin { "admin" } else { "" }),
        ]
    };
    let rows: Vec<_> = keys.keys.iter().map(row).collect();
    printer::table(["KEY", "MADE", "BROWSERS", ""], &rows)
}
