//! Accounts: what their credits are, changing them, and making accounts. Owns the limits of amounts and the words
//! about credits; what they mean for a box is the rules' (4.12, 5.3).

use std::sync::Arc;

use icebox_lifecycle::Time;
use icebox_lifecycle::credits::MicroCredits;
use icebox_wire::rest::{
    AccountBoxes, AccountView, AccountsResponse, CreditsRequest, CreditsView, NewAccountRequest,
    NewKeyResponse,
};

use super::check::unfit;
use super::keys::new_key;
use super::trouble::{Kind, Trouble, stamp, timestamp};
use super::{Caller, Commands};
use crate::engine::{Account, AccountChange, AskError, CreditsChange, MOST_CREDITS};
use crate::record::AccountId;
use crate::store::Keys;

/// Parts of a credit that are counted.
const MICRO: f64 = 1_000_000.0;
/// The longest name of an account, in characters.
const NAME_LEN: usize = 60;

impl Commands {
    /// The caller's own account.
    pub async fn account(&self, caller: &Caller) -> Result<AccountView, Trouble> {
        self.0.engine.settled().await;
        let account = self.0.engine.accounts().get(caller.account);
        let account = account.ok_or_else(|| Trouble::internal(&"the account has no record"))?;
        Ok(AccountView {
            notices: self.credits_notice(account.id).into_iter().collect(),
            ..self.account_view(&account)
        })
    }

    /// Every account.
    pub async fn accounts(&self) -> AccountsResponse {
        self.0.engine.settled().await;
        let accounts = self.0.engine.accounts().all();
        let accounts = accounts.iter().map(|account| self.account_view(account));
        AccountsResponse {
            accounts: accounts.collect(),
        }
    }

    /// The account of that name.
    pub async fn account_named(&self, name: &str) -> Result<AccountView, Trouble> {
        self.0.engine.settled().await;
        self.find_account(name)
            .map(|account| self.account_view(&account))
    }

    /// Changes the credits of an account.
    pub async fn set_credits(
        &self,
        name: &str,
        request: &CreditsRequest,
    ) -> Result<AccountView, Trouble> {
        let credits = credits_change(request)?;
        let change = AccountChange {
            name: self.find_account(name)?.name,
            make: false,
            credits: Some(credits),
            key: None,
            revoked: None,
        };
        let account = self.change_account(change).await?;
        Ok(self.account_view(&account))
    }

    /// Makes an account, with a key.
    pub async fn new_account(
        &self,
        keys: &Keys,
        request: &NewAccountRequest,
    ) -> Result<NewKeyResponse, Trouble> {
        let name = &request.name;
        let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-_".contains(c);
        if !(1..=NAME_LEN).contains(&name.len()) || !name.chars().all(fits) {
            let limit = format!("1 to {NAME_LEN} lowercase letters, digits, `-` and `_`");
            return Err(Trouble::bad("name", limit));
        }
        let credits = match request.credits {
            Some(credits) => Some(CreditsChange::Set(micro("credits", credits, 0)?)),
            None => None,
        };
        if self.0.engine.accounts().find(name).is_some() {
            let limit = format!("a new one: there is an account `{name}` already");
            return Err(Trouble::bad("name", limit));
        }
        let (key, hash) = Keys::fresh();
        let change = AccountChange {
            name: name.as_str().into(),
            make: true,
            credits,
            key: Some(hash),
            revoked: None,
        };
        let account = self.change_account(change).await?;
        keys.add(hash, account.id, self.0.clock.now());
        Ok(new_key(&account.name, key, &hash))
    }

    /// What to say under a result of this account, when its credits are about to run out or have (rule 4.12).
    pub(super) fn credits_notice(&self, id: AccountId) -> Option<String> {
        let account = self.0.engine.accounts().get(id)?;
        let warning = account.ledger.warning(self.0.clock.now())?;
        let name = &account.name;
        Some(match warning.minutes {
            0 => format!(
                "account {name}: it is out of credits; its boxes stay frozen, whole, until some are added."
            ),
            minutes => format!(
                "account {name}: its credits run out at {} (in {minutes} minutes) if its boxes stay up; \
                 then they freeze with their memory until some are added.",
                stamp(warning.at)
            ),
        })
    }

    pub(super) fn find_account(&self, name: &str) -> Result<Account, Trouble> {
        let account = self.0.engine.accounts().find(name);
        account.ok_or_else(|| no_such_account(name))
    }

    pub(super) async fn change_account(&self, change: AccountChange) -> Result<Account, Trouble> {
        let name = Arc::clone(&change.name);
        let changed = self.0.engine.change_account(change).await;
        changed.map_err(|error| {
            if matches!(error, AskError::NotFound) {
                no_such_account(&name)
            } else {
                Trouble::from_ask(error, "")
            }
        })
    }

    fn account_view(&self, account: &Account) -> AccountView {
        let (active, stopped) = self.0.engine.views().count(account.id);
        AccountView {
            account: account.name.to_string(),
            credits: credits_view(account, self.0.clock.now()),
            boxes: AccountBoxes { active, stopped },
            notices: Vec::new(),
        }
    }
}

fn credits_view(account: &Account, now: Time) -> CreditsView {
    let ledger = &account.ledger;
    let left = ledger.left(now);
    CreditsView {
        unlimited: left.is_none(),
        left: left.map(|left| credits(left.micro())),
        used: credits(ledger.used(now).micro()),
        per_hour: credits(ledger.per_hour()),
        runs_out_at: ledger.runs_out_at(now).map(timestamp),
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "the most there can be is far below 2^53 millionths"
)]
fn credits(micro: MicroCredits) -> f64 {
    micro as f64 / MICRO
}

fn no_such_account(name: &str) -> Trouble {
    Trouble::new(Kind::NotFound, format!("there is no account `{name}`"))
}

fn credits_change(request: &CreditsRequest) -> Result<CreditsChange, Trouble> {
    match (request.add, request.left, request.unlimited) {
        (Some(add), None, None) => Ok(CreditsChange::Add(micro("add", add, 1)?)),
        (None, Some(left), None) => Ok(CreditsChange::Set(micro("left", left, 0)?)),
        (None, None, Some(true)) => Ok(CreditsChange::Unlimited),
        (None, None, Some(false)) => Err(unfit("unlimited")),
        _ => Err(Trouble::new(
            Kind::BadRequest,
            "exactly one of `add`, `left` and `unlimited` has to be given",
        )),
    }
}

/// An amount of credits in millionths, of which there must be at least `least`.
fn micro(field: &str, credits: f64, least: MicroCredits) -> Result<MicroCredits, Trouble> {
    let micro = (credits * MICRO).round();
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a number that does not fit becomes the nearest one, which is out of range"
    )]
    let micro = micro as MicroCredits;
    if credits.is_finite() && (least..=MOST_CREDITS).contains(&micro) {
        Ok(micro)
    } else {
        Err(unfit(field))
    }
}
