//! `icebox webhook`: endpoints that are sent what happens to boxes. Owns the verbs below it and how webhooks and
//! deliveries look to a person.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use icebox_wire::rest::{
    DeliveriesResponse, DeliveryView, WebhookPatch, WebhookRequest, WebhookTestResponse,
    WebhookView, WebhooksResponse,
};
use ureq::http::Method;

use crate::client::READ_LIMIT;
use crate::error::CliError;
use crate::printer::{self, Cell};
use crate::select::box_id;
use crate::settings::Remote;
use crate::text::printable;
use crate::words::Now;

/// No secret is longer; a longer file is something else.
const MAX_SECRET_BYTES: u64 = 256;

/// Have an endpoint of yours told what happens to boxes
///
/// Each event is posted as JSON, signed as the Standard Webhooks convention has it, at least once and in order for each
/// box; what fails is tried again for a day. An endpoint answers with any 2xx status; with 410 it is left alone from then
/// on. Only the admin's account may name endpoints on this machine or a private network, unless the server's settings say
/// otherwise.
#[derive(Args)]
#[command(after_help = "\
Examples:
  icebox webhook add https://hooks.example/icebox --kind frozen --kind terminated
  icebox webhook ls
  icebox webhook test wh_0123456789abcdef
  icebox webhook deliveries wh_0123456789abcdef
  icebox webhook rm wh_0123456789abcdef

To verify a message: HMAC-SHA256 over `<webhook-id>.<webhook-timestamp>.<body>`, with the bytes that the base64 behind
`whsec_` stands for as its key. Its base64 is what `webhook-signature` has behind `v1,`. Refuse timestamps that are more
than five minutes off, and take a `webhook-id` that comes twice for a repeat.")]
pub(crate) struct Webhook {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    Add(Add),
    Ls(Ls),
    Set(Set),
    Rm(Rm),
    Test(Test),
    Deliveries(Deliveries),
}

impl Webhook {
    pub(crate) fn run(self) -> Result<ExitCode, CliError> {
        match self.what {
            What::Add(verb) => verb.run(),
            What::Ls(verb) => verb.run(),
            What::Set(verb) => verb.run(),
            What::Rm(verb) => verb.run(),
            What::Test(verb) => verb.run(),
            What::Deliveries(verb) => verb.run(),
        }
    }

    pub(super) fn json(&self) -> bool {
        match &self.what {
            What::Add(verb) => verb.remote.json,
            What::Ls(verb) => verb.remote.json,
            What::Set(verb) => verb.remote.json,
            What::Rm(verb) => verb.remote.json,
            What::Test(verb) => verb.remote.json,
            What::Deliveries(verb) => verb.remote.json,
        }
    }
}

/// Add a webhook; it is sent what happens from now on
///
/// The server makes a secret and shows it this once, unless --secret-file has one.
#[derive(Args)]
#[command(after_help = "\
Examples:
  icebox webhook add https://hooks.example/icebox
  icebox webhook add https://hooks.example/icebox --kind frozen --kind terminated
  icebox webhook add http://127.0.0.1:8080/ --box web --secret-file secret.txt")]
struct Add {
    /// Where to: http:// or https://
    #[arg(value_name = "URL")]
    endpoint: String,
    /// Only events of this kind, as in `frozen`; may be given several times
    #[arg(long = "kind", value_name = "KIND")]
    kinds: Vec<String>,
    /// Only events of this box
    #[arg(long = "box", value_name = "BOX")]
    of_box: Option<String>,
    /// A file with a secret of yours: `whsec_` and the base64 of 24 to 64 bytes
    #[arg(long, value_name = "FILE")]
    secret_file: Option<PathBuf>,
    /// Send it nothing before `icebox webhook set --enable`
    #[arg(long)]
    disabled: bool,
    #[command(flatten)]
    remote: Remote,
}

impl Add {
    fn run(self) -> Result<ExitCode, CliError> {
        let client = self.remote.client()?;
        let of_box = self.of_box.map(|word| box_id(&client, &word));
        let request = WebhookRequest {
            url: self.endpoint,
            kinds: self.kinds,
            of_box: of_box.transpose()?,
            secret: self.secret_file.map(secret).transpose()?,
            enabled: self.disabled.then_some(false),
        };
        let answer = client.post("/v1/webhooks", Some(&request), READ_LIMIT)?;
        if self.remote.json {
            printer::line(&answer.text)?;
        } else {
            told(&answer.read()?)?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// List webhooks
#[derive(Args)]
struct Ls {
    #[command(flatten)]
    remote: Remote,
}

impl Ls {
    fn run(self) -> Result<ExitCode, CliError> {
        let answer = self.remote.client()?.get("/v1/webhooks")?;
        if self.remote.json {
            printer::line(&answer.text)?;
            return Ok(ExitCode::SUCCESS);
        }
        let list: WebhooksResponse = answer.read()?;
        if list.webhooks.is_empty() {
            printer::note("No webhooks. Add one with `icebox webhook add URL`.");
            return Ok(ExitCode::SUCCESS);
        }
        let rows: Vec<_> = list.webhooks.iter().map(row).collect();
        printer::table(["ID", "STATE", "WAITING", "EVENTS", "URL"], &rows)?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Change a webhook
#[derive(Args)]
#[command(after_help = "\
Examples:
  icebox webhook set wh_0123456789abcdef --kind frozen
  icebox webhook set wh_0123456789abcdef --all-kinds --all-boxes
  icebox webhook set wh_0123456789abcdef --to https://hooks.example/new
  icebox webhook set wh_0123456789abcdef --new-secret
  icebox webhook set wh_0123456789abcdef --disable")]
struct Set {
    /// Its id
    id: String,
    /// Where to, for what waits already, too
    #[arg(long = "to", value_name = "URL")]
    endpoint: Option<String>,
    /// Only events of this kind from now on; may be given several times
    #[arg(long = "kind", value_name = "KIND", conflicts_with = "all_kinds")]
    kinds: Vec<String>,
    /// Events of all kinds from now on
    #[arg(long)]
    all_kinds: bool,
    /// Only events of this box from now on
    #[arg(long = "box", value_name = "BOX", conflicts_with = "all_boxes")]
    of_box: Option<String>,
    /// Events of all boxes from now on
    #[arg(long)]
    all_boxes: bool,
    /// A file with another secret
    #[arg(long, value_name = "FILE", conflicts_with = "new_secret")]
    secret_file: Option<PathBuf>,
    /// Another secret, which the server makes and shows this once
    #[arg(long)]
    new_secret: bool,
    /// Send it what happens from now on
    #[arg(long, conflicts_with = "disable")]
    enable: bool,
    /// Send it nothing, and drop what waits
    #[arg(long)]
    disable: bool,
    #[command(flatten)]
    remote: Remote,
}

impl Set {
    fn run(self) -> Result<ExitCode, CliError> {
        let client = self.remote.client()?;
        let of_box = self.of_box.map(|word| box_id(&client, &word)).transpose()?;
        let given = self.secret_file.map(secret).transpose()?;
        let kinds = (self.all_kinds || !self.kinds.is_empty()).then_some(self.kinds);
        let patch = WebhookPatch {
            url: self.endpoint,
            kinds,
            of_box: (self.all_boxes || of_box.is_some()).then_some(of_box),
            secret: (self.new_secret || given.is_some()).then_some(given),
            enabled: (self.enable || self.disable).then_some(self.enable),
        };
        let answer = client.change(Method::PATCH, &path(&self.id, "")?, Some(&patch))?;
        if self.remote.json {
            printer::line(&answer.text)?;
        } else {
            told(&answer.read()?)?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Remove webhooks, and all that waits for them
#[derive(Args)]
struct Rm {
    /// Their ids
    #[arg(value_name = "ID", required = true)]
    ids: Vec<String>,
    #[command(flatten)]
    remote: Remote,
}

impl Rm {
    fn run(self) -> Result<ExitCode, CliError> {
        let client = self.remote.client()?;
        for id in &self.ids {
            let answer = client.change(Method::DELETE, &path(id, "")?, None::<&()>)?;
            if self.remote.json {
                printer::line(&answer.text)?;
            } else {
                printer::line(&format!("{id}: removed"))?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Send a webhook a test message, once; ends with 1 if the endpoint did not take it
#[derive(Args)]
struct Test {
    /// Its id
    id: String,
    #[command(flatten)]
    remote: Remote,
}

impl Test {
    fn run(self) -> Result<ExitCode, CliError> {
        let path = path(&self.id, "/test")?;
        let answer = self.remote.client()?.post(&path, None::<&()>, READ_LIMIT)?;
        let tested: WebhookTestResponse = answer.read()?;
        if self.remote.json {
            printer::line(&answer.text)?;
        } else {
            let what = match (&tested.error, tested.status) {
                (Some(error), _) => format!("not taken: {error}"),
                (None, Some(status)) => format!("taken, with HTTP status {status}"),
                (None, None) => "taken".to_owned(),
            };
            printer::line(&format!("{}: {}", self.id, printable(&what)))?;
        }
        Ok(ExitCode::from(u8::from(!tested.ok)))
    }
}

/// List what became of the latest events for a webhook, newest first
#[derive(Args)]
struct Deliveries {
    /// Its id
    id: String,
    /// How many at most
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u16).range(1..=1000))]
    limit: u16,
    #[command(flatten)]
    remote: Remote,
}

impl Deliveries {
    fn run(self) -> Result<ExitCode, CliError> {
        let path = path(&self.id, &format!("/deliveries?limit={}", self.limit))?;
        let answer = self.remote.client()?.get(&path)?;
        if self.remote.json {
            printer::line(&answer.text)?;
            return Ok(ExitCode::SUCCESS);
        }
        let list: DeliveriesResponse = answer.read()?;
        if list.deliveries.is_empty() {
            printer::note("Nothing happened that it is to be sent.");
            return Ok(ExitCode::SUCCESS);
        }
        let now = Now::here();
        let rows = list.deliveries.iter().map(|one| delivery_row(one, &now));
        let rows: Vec<_> = rows.collect();
        printer::table(["EVENT", "KIND", "BOX", "TRIES", "WHAT"], &rows)?;
        Ok(ExitCode::SUCCESS)
    }
}

/// The path of one webhook. Nothing in an id may turn it into another path.
fn path(id: &str, below: &str) -> Result<String, CliError> {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if id.is_empty() || !id.chars().all(fits) {
        let text = format!("`{id}` is no id of a webhook; `icebox webhook ls` shows them");
        return Err(CliError::Usage(text));
    }
    Ok(format!("/v1/webhooks/{id}{below}"))
}

/// The secret in a file.
fn secret(path: PathBuf) -> Result<String, CliError> {
    use std::io::Read as _;
    let failed = || CliError::io(format!("read the secret in {}", path.display()));
    let file = std::fs::File::open(&path).map_err(failed())?;
    let mut text = String::new();
    let read = file.take(MAX_SECRET_BYTES).read_to_string(&mut text);
    read.map_err(failed())?;
    Ok(text.trim().to_owned())
}

/// What became of one webhook, for a person.
fn told(view: &WebhookView) -> Result<(), CliError> {
    let what = if view.enabled {
        format!("{} go to {}", events(view), view.url)
    } else {
        format!("nothing is sent to {}", view.url)
    };
    printer::line(&format!("{}: {}", view.id, printable(&what)))?;
    if let Some(secret) = &view.secret {
        printer::line(&format!("secret: {}", printable(secret)))?;
        printer::note("The secret is not shown again: its endpoint needs it to verify messages.");
    }
    Ok(())
}

/// Which events it is sent.
fn events(view: &WebhookView) -> String {
    let kinds = match view.kinds.as_slice() {
        [] => "all events".to_owned(),
        kinds => kinds.join(", "),
    };
    match &view.of_box {
        Some(id) => format!("{kinds} of {id}"),
        None => kinds,
    }
}

fn row(view: &WebhookView) -> [Cell; 5] {
    let state = match (&view.disabled_reason, view.enabled) {
        (_, true) => Cell::styled(printer::GREEN, "enabled"),
        (None, false) => Cell::styled(printer::DIM, "disabled"),
        (Some(reason), false) => Cell::styled(printer::RED, &format!("disabled: {reason}")),
    };
    [
        Cell::plain(&view.id),
        state,
        Cell::plain(&view.waiting.to_string()),
        Cell::plain(&events(view)),
        Cell::plain(&view.url),
    ]
}

fn delivery_row(one: &DeliveryView, now: &Now) -> [Cell; 5] {
    let error = one.error.as_deref().unwrap_or_default();
    let (style, what) = match (one.state.as_str(), one.next_try_at, one.tries) {
        ("delivered", ..) => {
            let at = one.tried_at.map_or(String::new(), |at| now.at(at));
            (printer::GREEN, format!("delivered {at}"))
        }
        ("waiting", Some(_), 0) => (printer::YELLOW, "about to be sent".to_owned()),
        ("waiting", Some(at), _) => {
            let text = format!("{error}; again {}", now.at(at));
            (printer::YELLOW, text)
        }
        ("waiting", None, _) => {
            let text = "waits for an earlier event of its box".to_owned();
            (printer::YELLOW, text)
        }
        _ => (printer::RED, format!("given up: {error}")),
    };
    [
        Cell::plain(&one.seq.to_string()),
        Cell::plain(&one.kind),
        Cell::plain(&one.of_box),
        Cell::plain(&one.tries.to_string()),
        Cell::styled(style, &what),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_cannot_become_another_path() {
        assert_eq!(path("wh_01", "/test").unwrap(), "/v1/webhooks/wh_01/test");
        for id in ["", "..", "../boxes", "a/b", "a?b", "a b", "%2e"] {
            assert!(path(id, "").is_err(), "{id}");
        }
    }
}
