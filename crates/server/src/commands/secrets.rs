//! Secrets of an account, and handing them to its boxes as variables of every later command. A box has the values of the
//! moment it was given them; the values are sealed in the database, are never shown, and never lie among a box's files.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use icebox_lifecycle::BoxId;
use icebox_wire::rest::{SecretRequest, SecretView, SecretsResponse};

use super::check::{self, unfit};
use super::trouble::{Kind, Trouble, timestamp};
use super::{Caller, Commands};
use crate::engine::View;
use crate::record::AccountId;
use crate::store::SecretRow;

/// The most secrets of an account.
const MOST: usize = 500;
/// The most that one box is given, and names in one call.
pub(super) const MOST_OF_BOX: usize = 100;
/// The longest value, in bytes: a variable has to fit beside others.
const VALUE_LEN: usize = 32 * 1024;
/// The most that the values of one box come to, in bytes: the kernel hands a program 2 MiB with its arguments.
const ALL_LEN: usize = 256 * 1024;
/// The longest name.
const NAME_LEN: usize = 100;

/// Secrets on their way to a box, and the environment it is in.
#[derive(Default)]
pub(super) struct Gift {
    values: Vec<(String, Vec<u8>)>,
    environment: Option<String>,
}

impl Gift {
    pub(super) fn is_empty(&self) -> bool {
        self.values.is_empty() && self.environment.is_none()
    }
}

impl Commands {
    /// The names of the account's secrets.
    pub async fn secrets(&self, caller: &Caller) -> Result<SecretsResponse, Trouble> {
        let account = caller.account;
        let rows = self.beside(move |beside| beside.secrets(account)).await?;
        let secrets = rows.into_iter().map(view).collect();
        Ok(SecretsResponse { secrets })
    }

    /// Sets a secret.
    pub async fn set_secret(
        &self,
        caller: &Caller,
        name: &str,
        request: SecretRequest,
    ) -> Result<SecretView, Trouble> {
        if !is_name(name) {
            return Err(Trouble::bad("name", NAME));
        }
        let value = request.value;
        if value.is_empty() || value.len() > VALUE_LEN || value.contains('\0') {
            return Err(unfit("value"));
        }
        let (account, name) = (caller.account, name.to_owned());
        let sealed = self
            .0
            .keep
            .vault
            .seal(&of_account(account, &name), value.as_bytes());
        let now = self.0.clock.now();
        let put = move |beside: &crate::store::Beside| {
            beside.put_secret(account, &name, &sealed, now, MOST)
        };
        let row = self.beside(put).await?.ok_or_else(|| {
            let text = format!("an account has at most {MOST} secrets; remove one first");
            Trouble::new(Kind::TooMany, text)
        })?;
        Ok(view(row))
    }

    /// Forgets a secret. Boxes that were given it keep it.
    pub async fn remove_secret(&self, caller: &Caller, name: &str) -> Result<(), Trouble> {
        let (account, asked) = (caller.account, name.to_owned());
        let removed = self.beside(move |beside| beside.remove_secret(account, &asked));
        if removed.await? {
            return Ok(());
        }
        Err(no_such_secret(name, Kind::NotFound))
    }

    /// Gives secrets to a box that runs, or wakes: the names of all it has then.
    pub async fn give_secrets(
        &self,
        caller: &Caller,
        id: &str,
        names: &[String],
    ) -> Result<Vec<String>, Trouble> {
        if names.is_empty() {
            return Err(unfit("names"));
        }
        let id = self.find(caller, id)?.id();
        let gift = self.gift("names", caller, names, None).await?;
        let (call, _) = self.acting(caller, id, false).await?;
        self.hand_over(id, gift).await?;
        call.end().await;
        let rows = self.beside(move |beside| beside.given(id)).await?;
        Ok(rows.secrets.into_iter().map(|(name, _)| name).collect())
    }

    /// What a box is to be given, looked up. `field` is what the names were given as.
    pub(super) async fn gift(
        &self,
        field: &str,
        caller: &Caller,
        names: &[String],
        environment: Option<String>,
    ) -> Result<Gift, Trouble> {
        if names.len() > MOST_OF_BOX {
            return Err(unfit(field));
        }
        if let Some(name) = &environment {
            self.has_environment(caller, name).await?;
        }
        let mut values = Vec::with_capacity(names.len());
        for name in names.iter().collect::<BTreeSet<_>>() {
            let (account, asked) = (caller.account, name.clone());
            let sealed = self.beside(move |beside| beside.secret(account, &asked));
            let Some(sealed) = sealed.await? else {
                return Err(no_such_secret(name, Kind::BadRequest).with("field", field));
            };
            let value = self.opened(&of_account(account, name), &sealed)?;
            values.push((name.clone(), value));
        }
        if values.iter().map(|(_, value)| value.len()).sum::<usize>() > ALL_LEN {
            let limit = format!("secrets of together at most {ALL_LEN} bytes");
            return Err(Trouble::bad(field, limit));
        }
        Ok(Gift {
            values,
            environment,
        })
    }

    /// Gives it, durably, before anything can run with it.
    pub(super) async fn hand_over(&self, id: BoxId, gift: Gift) -> Result<(), Trouble> {
        if gift.is_empty() {
            return Ok(());
        }
        let vault = &self.0.keep.vault;
        let seal = |(name, value): (String, Vec<u8>)| {
            let sealed = vault.seal(&of_box(id, &name), &value);
            (name, sealed)
        };
        let rows: Vec<_> = gift.values.into_iter().map(seal).collect();
        let environment = gift.environment;
        let give =
            move |beside: &crate::store::Beside| beside.give(id, &rows, environment.as_deref());
        self.beside(give).await?;
        self.0.keep.given.add(id);
        Ok(())
    }

    /// Gives a box what another was given, as it has it.
    pub(super) async fn pass_on(&self, from: BoxId, to: BoxId) -> Result<(), Trouble> {
        if !self.0.keep.given.has(from) {
            return Ok(());
        }
        let rows = self.beside(move |beside| beside.given(from)).await?;
        let mut gift = Gift {
            values: Vec::with_capacity(rows.secrets.len()),
            environment: rows.environment,
        };
        for (name, sealed) in rows.secrets {
            let value = self.opened(&of_box(from, &name), &sealed)?;
            gift.values.push((name, value));
        }
        self.hand_over(to, gift).await
    }

    /// Takes it back from a box that did not come to be.
    pub(super) async fn take_back(&self, id: BoxId) {
        if self.0.keep.given.remove(id)
            && let Err(trouble) = self.beside(move |beside| beside.take_back(id)).await
        {
            // The next server forgets it.
            tracing::warn!(%id, trouble = %trouble.text, "what a box was given stays behind");
        }
    }

    /// The variables that a box was given: what its environment says of the services it declares, and over that its
    /// secrets. What the box itself was started with wins over its environment.
    pub(super) async fn given(
        &self,
        view: &Arc<View>,
    ) -> Result<BTreeMap<String, String>, Trouble> {
        let id = view.id();
        if !self.0.keep.given.has(id) {
            return Ok(BTreeMap::new());
        }
        let rows = self.beside(move |beside| beside.given(id)).await?;
        let mut variables = match &rows.environment {
            Some(name) => self.settings_for(view, name).await?,
            None => BTreeMap::new(),
        };
        for (name, sealed) in rows.secrets {
            let value = self.opened(&of_box(id, &name), &sealed)?;
            variables.insert(name, String::from_utf8_lossy(&value).into_owned());
        }
        Ok(variables)
    }

    /// The environment that a box was started in.
    pub async fn environment_of(&self, id: BoxId) -> Result<Option<String>, Trouble> {
        if !self.0.keep.given.has(id) {
            return Ok(None);
        }
        let rows = self.beside(move |beside| beside.given(id)).await?;
        Ok(rows.environment)
    }

    pub(super) fn opened(&self, name: &str, sealed: &[u8]) -> Result<Vec<u8>, Trouble> {
        let opened = self.0.keep.vault.unseal(name, sealed);
        opened.map_err(|error| Trouble::new(Kind::Internal, error.to_string()))
    }
}

/// What a name of a secret takes.
const NAME: &str = "1 to 100 letters, digits and _, no digit first";

fn is_name(name: &str) -> bool {
    name.len() <= NAME_LEN && check::is_variable(name)
}

fn no_such_secret(name: &str, kind: Kind) -> Trouble {
    let name: String = name.chars().take(NAME_LEN).collect();
    let text = format!(
        "there is no secret `{name}`; sandbox_secrets and `icebox secret ls` list them, PUT /v1/secrets/NAME and \
         `icebox secret set NAME` make one"
    );
    Trouble::new(kind, text)
}

/// What the value of an account's secret is sealed under.
fn of_account(account: AccountId, name: &str) -> String {
    format!("secret/{}/{name}", account.0)
}

fn of_box(id: BoxId, name: &str) -> String {
    format!("given/{id}/{name}")
}

fn view(row: SecretRow) -> SecretView {
    SecretView {
        name: row.name,
        created_at: timestamp(row.created_at),
        changed_at: timestamp(row.changed_at),
    }
}
