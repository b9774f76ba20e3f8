//! `icebox secret`: values that boxes have as variables and nobody is shown. Owns the verbs below it, and that a value never
//! comes by the command line, which other users of the machine can read.

use std::io::{IsTerminal as _, Read as _};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use icebox_wire::rest::{
    GiveRequest, GiveResponse, OkResponse, SecretRequest, SecretView, SecretsResponse,
};
use ureq::http::Method;

use crate::client::{WORK_LIMIT, escaped};
use crate::error::CliError;
use crate::printer::{self, Cell};
use crate::select::box_id;
use crate::settings::Remote;
use crate::text::printable;
use crate::words::Now;

/// A longer value is refused by the server anyway, in bytes.
const MAX_VALUE_BYTES: u64 = 64 * 1024;

/// Keep values that boxes have as variables and nobody is shown
///
/// A box gets the values that its start (--secret) or `give` names, as they are then; every later command in it has them
/// as variables. They are sealed in the server's database, never shown again, and not among the box's files. A command in
/// the box can read them, and so can whoever may run commands there; output is not searched for them.
#[derive(Args)]
#[command(disable_help_subcommand = true)]
#[command(after_help = "\
Examples:
  icebox secret set NPM_TOKEN < token.txt
  icebox secret ls
  icebox start --name web --secret NPM_TOKEN
  icebox secret give web NPM_TOKEN        to one that runs already
  icebox secret rm NPM_TOKEN")]
pub(crate) struct Secret {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    Set(Set),
    Ls(Ls),
    Give(Give),
    Rm(Rm),
}

impl Secret {
    pub(crate) fn run(self) -> Result<ExitCode, CliError> {
        match self.what {
            What::Set(verb) => verb.run()?,
            What::Ls(verb) => verb.run()?,
            What::Give(verb) => verb.run()?,
            What::Rm(verb) => verb.run()?,
        }
        Ok(ExitCode::SUCCESS)
    }

    pub(super) fn json(&self) -> bool {
        match &self.what {
            What::Set(verb) => verb.remote.json,
            What::Ls(verb) => verb.remote.json,
            What::Give(verb) => verb.remote.json,
            What::Rm(verb) => verb.remote.json,
        }
    }
}

/// Set a secret to what comes on standard input, without the line break at its end
#[derive(Args)]
#[command(after_help = "\
Examples:
  icebox secret set NPM_TOKEN < token.txt
  icebox secret set NPM_TOKEN --file token.txt
  icebox secret set NPM_TOKEN             typed at the terminal")]
struct Set {
    /// Its name, which is that of the variable: letters, digits and _
    name: String,
    /// Take the value from this file instead
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    #[command(flatten)]
    remote: Remote,
}

impl Set {
    fn run(self) -> Result<(), CliError> {
        let client = self.remote.client()?;
        let request = SecretRequest {
            value: self.value()?,
        };
        let path = format!("/v1/secrets/{}", escaped(&self.name));
        let answer = client.change(Method::PUT, &path, Some(&request))?;
        if self.remote.json {
            return printer::line(&answer.text);
        }
        let set: SecretView = answer.read()?;
        let verb = if set.created_at == set.changed_at {
            "is kept"
        } else {
            "has a new value; boxes that were given the old one keep that"
        };
        printer::line(&format!("{} {verb}", printable(&set.name)))
    }

    fn value(&self) -> Result<String, CliError> {
        let mut value = Vec::new();
        match &self.file {
            Some(path) => {
                let what = format!("read {}", path.display());
                let file = std::fs::File::open(path).map_err(CliError::io(&what))?;
                let read = file.take(MAX_VALUE_BYTES + 1).read_to_end(&mut value);
                read.map_err(CliError::io(&what))?;
            }
            None => {
                let input = std::io::stdin().lock();
                if input.is_terminal() {
                    printer::note(
                        "Type the value, then Enter and Ctrl-D. It is shown while you type.",
                    );
                }
                let read = input.take(MAX_VALUE_BYTES + 1).read_to_end(&mut value);
                read.map_err(CliError::io("read standard input"))?;
            }
        }
        let value = String::from_utf8(value);
        let value =
            value.map_err(|_| CliError::Usage("the value must be UTF-8 text".to_owned()))?;
        let value = value.strip_suffix('\n').unwrap_or(&value);
        Ok(value.strip_suffix('\r').unwrap_or(value).to_owned())
    }
}

/// List secrets, without their values
#[derive(Args)]
struct Ls {
    #[command(flatten)]
    remote: Remote,
}

impl Ls {
    fn run(self) -> Result<(), CliError> {
        let answer = self.remote.client()?.get("/v1/secrets")?;
        if self.remote.json {
            return printer::line(&answer.text);
        }
        let list: SecretsResponse = answer.read()?;
        if list.secrets.is_empty() {
            printer::note("No secrets. Keep one with `icebox secret set NAME < file`.");
            return Ok(());
        }
        let now = Now::here();
        let row = |secret: &SecretView| {
            [
                Cell::plain(&secret.name),
                Cell::plain(&now.ago(secret.changed_at)),
            ]
        };
        let rows: Vec<_> = list.secrets.iter().map(row).collect();
        printer::table(["NAME", "SET"], &rows)
    }
}

/// Give secrets to a box that was started without them; a frozen one wakes
#[derive(Args)]
struct Give {
    /// Its name, its id, or the beginning of its id
    #[arg(value_name = "BOX")]
    word: String,
    /// Which secrets
    #[arg(value_name = "NAME", required = true)]
    names: Vec<String>,
    #[command(flatten)]
    remote: Remote,
}

impl Give {
    fn run(self) -> Result<(), CliError> {
        let client = self.remote.client()?;
        let id = box_id(&client, &self.word)?;
        let request = GiveRequest { names: self.names };
        let path = format!("/v1/boxes/{id}/secrets");
        let answer = client.post(&path, Some(&request), WORK_LIMIT)?;
        if self.remote.json {
            return printer::line(&answer.text);
        }
        let given: GiveResponse = answer.read()?;
        printer::notices(&given.notices);
        let names = given.names.join(", ");
        printer::line(&format!(
            "{} has {}",
            printable(&self.word),
            printable(&names)
        ))
    }
}

/// Forget a secret; boxes that were given it keep it
#[derive(Args)]
struct Rm {
    /// Its name
    name: String,
    #[command(flatten)]
    remote: Remote,
}

impl Rm {
    fn run(self) -> Result<(), CliError> {
        let client = self.remote.client()?;
        let path = format!("/v1/secrets/{}", escaped(&self.name));
        let answer = client.change(Method::DELETE, &path, None::<&()>)?;
        if self.remote.json {
            return printer::line(&answer.text);
        }
        answer.read::<OkResponse>()?;
        printer::line(&format!("{} is forgotten", printable(&self.name)))
    }
}
