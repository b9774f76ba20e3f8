//! `icebox key ls`, `new`, `add`, `credits`: accounts over REST, with the admin key. Owns the words about credits.

use clap::Args;
use icebox_wire::rest::{
    AccountView, AccountsResponse, CreditsRequest, NewAccountRequest, NewKeyResponse,
};

use crate::client::{Answer, READ_LIMIT, escaped};
use crate::error::CliError;
use crate::printer::{self, Cell};
use crate::settings::Remote;
use crate::words::Now;

/// List accounts: what they have left, what they use and when that is used up; or the keys of one
#[derive(Args)]
#[command(after_help = "\
Examples:
  icebox key ls                           accounts
  icebox key ls team                      the keys of one")]
pub(super) struct Ls {
    /// List the keys of this account: their ids, and how many browsers are signed in with each
    #[arg(value_name = "ACCOUNT")]
    account: Option<String>,
    #[command(flatten)]
    pub(super) remote: Remote,
}

/// Make an account, and print a key for it
///
/// The server keeps no more than the key's hash, so that it cannot be shown again.
#[derive(Args)]
#[command(after_help = "\
Examples:
  icebox key new team                     unlimited
  icebox key new team --credits 100
  key=$(icebox key new team)              the key alone is on standard output")]
pub(super) struct New {
    /// Its name: 1 to 60 lowercase letters, digits, `-` and `_`
    #[arg(value_name = "ACCOUNT")]
    account: String,
    /// What it begins with; without it, it is unlimited
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    credits: Option<f64>,
    #[command(flatten)]
    pub(super) remote: Remote,
}

/// Make another key for an account, and print it
#[derive(Args)]
#[command(after_help = "\
Examples:
  icebox key add team")]
pub(super) struct Add {
    /// Its name
    #[arg(value_name = "ACCOUNT")]
    account: String,
    #[command(flatten)]
    pub(super) remote: Remote,
}

/// Show or change the credits of an account
///
/// Boxes that froze for want of credits do not wake by themselves when some are added: the next call wakes them.
#[derive(Args)]
#[command(after_help = "\
Examples:
  icebox key credits                      one's own
  icebox key credits team --add 50
  icebox key credits team --left 0        freezes all boxes of the account
  icebox key credits team --unlimited")]
pub(super) struct Credits {
    /// Its name; one's own account when left out
    #[arg(value_name = "ACCOUNT")]
    account: Option<String>,
    /// So many more; an account that was unlimited has just these from now on
    #[arg(
        long,
        value_name = "N",
        group = "change",
        allow_negative_numbers = true
    )]
    add: Option<f64>,
    /// So many, whatever it had
    #[arg(
        long,
        value_name = "N",
        group = "change",
        allow_negative_numbers = true
    )]
    left: Option<f64>,
    /// They never run out
    #[arg(long, group = "change")]
    unlimited: bool,
    #[command(flatten)]
    pub(super) remote: Remote,
}

impl Ls {
    pub(super) fn run(self) -> Result<(), CliError> {
        if let Some(account) = &self.account {
            return super::revoke::list(account, &self.remote);
        }
        let answer = self.remote.client()?.get("/v1/accounts")?;
        if self.remote.json {
            return printer::line(&answer.text);
        }
        let list: AccountsResponse = answer.read()?;
        let now = Now::here();
        let rows: Vec<_> = list.accounts.iter().map(|it| row(it, &now)).collect();
        let heads = ["ACCOUNT", "LEFT", "AN HOUR", "USED", "BOXES", "RUNS OUT"];
        printer::table(heads, &rows)
    }
}

impl New {
    pub(super) fn run(self) -> Result<(), CliError> {
        let request = NewAccountRequest {
            name: self.account,
            credits: self.credits,
        };
        let client = self.remote.client()?;
        let answer = client.post("/v1/accounts", Some(&request), READ_LIMIT)?;
        print_key(&answer, self.remote.json)
    }
}

impl Add {
    pub(super) fn run(self) -> Result<(), CliError> {
        let path = format!("/v1/accounts/{}/keys", escaped(&self.account));
        let client = self.remote.client()?;
        let answer = client.post(&path, None::<&()>, READ_LIMIT)?;
        print_key(&answer, self.remote.json)
    }
}

impl Credits {
    pub(super) fn run(self) -> Result<(), CliError> {
        let client = self.remote.client()?;
        let request = CreditsRequest {
            add: self.add,
            left: self.left,
            unlimited: self.unlimited.then_some(true),
        };
        let changes = request != CreditsRequest::default();
        let answer = match &self.account {
            None if changes => {
                let text = "say which account: `icebox key credits ACCOUNT …`";
                return Err(CliError::Usage(text.to_owned()));
            }
            None => client.get("/v1/account")?,
            Some(name) if changes => {
                let path = format!("/v1/accounts/{}/credits", escaped(name));
                client.post(&path, Some(&request), READ_LIMIT)?
            }
            Some(name) => client.get(&format!("/v1/accounts/{}", escaped(name)))?,
        };
        if self.remote.json {
            return printer::line(&answer.text);
        }
        let view: AccountView = answer.read()?;
        printer::line(&sentence(&view, &Now::here()))
    }
}

/// The key alone on standard output, so that it can be kept in a variable.
fn print_key(answer: &Answer, json: bool) -> Result<(), CliError> {
    if json {
        return printer::line(&answer.text);
    }
    let made: NewKeyResponse = answer.read()?;
    let account = crate::text::printable(&made.account);
    printer::note(&format!(
        "icebox: a key for the account {account}; it is not shown again"
    ));
    printer::line(&made.key)
}

fn row(view: &AccountView, now: &Now) -> [Cell; 6] {
    let credits = &view.credits;
    let left = match credits.left {
        Some(left) if left <= 0.0 => Cell::styled(printer::RED, &amount(left)),
        Some(left) => Cell::plain(&amount(left)),
        None => Cell::plain("unlimited"),
    };
    [
        Cell::plain(&view.account),
        left,
        Cell::plain(&amount(credits.per_hour)),
        Cell::plain(&amount(credits.used)),
        Cell::plain(&view.boxes.active.to_string()),
        Cell::plain(&runs_out(view, now).unwrap_or_else(|| "-".to_owned())),
    ]
}

/// All of it, in words.
fn sentence(view: &AccountView, now: &Now) -> String {
    let credits = &view.credits;
    let left = credits.left.map_or_else(
        || "unlimited credits".to_owned(),
        |left| format!("{} credits left", amount(left)),
    );
    let rate = amount(credits.per_hour);
    let runs_out = match runs_out(view, now) {
        Some(when) if credits.left.is_some_and(|left| left > 0.0) => format!(", runs out {when}"),
        Some(_) => ": its boxes stay frozen until some are added".to_owned(),
        None => String::new(),
    };
    let text = format!("{}: {left}, uses {rate} an hour{runs_out}", view.account);
    crate::text::printable(&text)
}

fn runs_out(view: &AccountView, now: &Now) -> Option<String> {
    let at = view.credits.runs_out_at?;
    Some(match view.credits.left {
        Some(left) if left <= 0.0 => "it has".to_owned(),
        Some(_) | None => now.at(at),
    })
}

/// An amount without zeros that say nothing.
fn amount(credits: f64) -> String {
    let text = format!("{credits:.4}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" { "0" } else { text }.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use icebox_wire::rest::{AccountBoxes, CreditsView};

    #[test]
    fn an_amount_has_no_zeros_that_say_nothing() {
        for (credits, said) in [
            (0.0, "0"),
            (-0.000_01, "0"),
            (12.0, "12"),
            (0.5, "0.5"),
            (-1.25, "-1.25"),
            (0.333_333, "0.3333"),
            (100.0, "100"),
        ] {
            assert_eq!(amount(credits), said);
        }
    }

    #[test]
    fn an_account_says_what_it_has_and_what_happens_then() {
        let said = |left: Option<f64>, runs_out_at: Option<&str>| {
            let credits = CreditsView {
                unlimited: left.is_none(),
                left,
                used: 7.0,
                per_hour: 0.5,
                runs_out_at: runs_out_at.map(|at| at.parse().expect("a time")),
            };
            let view = AccountView {
                account: "team".to_owned(),
                credits,
                boxes: AccountBoxes::default(),
                notices: Vec::new(),
            };
            sentence(&view, &Now::here())
        };
        assert_eq!(
            said(None, None),
            "team: unlimited credits, uses 0.5 an hour"
        );
        assert_eq!(
            said(Some(2.0), None),
            "team: 2 credits left, uses 0.5 an hour"
        );
        let soon = said(Some(2.0), Some("2026-03-04T13:00:00Z"));
        assert!(
            soon.contains("2 credits left, uses 0.5 an hour, runs out "),
            "{soon}"
        );
        let out = said(Some(-0.5), Some("2026-03-04T13:00:00Z"));
        assert_eq!(
            out,
            "team: -0.5 credits left, uses 0.5 an hour: its boxes stay frozen until some are added"
        );
    }
}
