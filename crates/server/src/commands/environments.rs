//! Environments: settings of services under one name. A box that is started in one has, as variables of its commands, what
//! the environment says of the services that the box declares. Owns how settings are written: lines as of a `.env` file.

use std::collections::BTreeMap;
use std::sync::Arc;

use icebox_lifecycle::State;
use icebox_wire::rest::{
    EnvironmentRequest, EnvironmentServiceView, EnvironmentView, EnvironmentsResponse,
};

use super::check::{self, unfit};
use super::trouble::{Kind, Trouble, timestamp};
use super::{Caller, Commands};
use crate::engine::View;
use crate::record::AccountId;
use crate::store::{Beside, EnvironmentRow};

/// The most environments of an account.
const MOST: usize = 100;
/// The most services of one.
const MOST_SERVICES: usize = 100;

type Settings = BTreeMap<String, String>;

impl Commands {
    /// The account's environments, with the names of their settings.
    pub async fn environments(&self, caller: &Caller) -> Result<EnvironmentsResponse, Trouble> {
        let account = caller.account;
        let read = move |beside: &Beside| {
            Ok((
                beside.environments(account)?,
                beside.in_environments(account)?,
            ))
        };
        let (rows, boxes) = self.beside(read).await?;
        let views = self.0.engine.views();
        let live = |name: &str| {
            let of = boxes.iter().filter(|(of, _)| of == name);
            let live = of.filter(|(_, id)| views.get(*id).is_some_and(|view| is_live(&view)));
            live.count()
        };
        let shown = |row: EnvironmentRow| {
            let active_boxes = live(&row.name);
            self.environment(account, row, active_boxes)
        };
        let mut environments: Vec<EnvironmentView> =
            rows.into_iter().map(shown).collect::<Result<_, _>>()?;
        for environment in &mut environments {
            let connections = self.connections(account, &environment.name).await;
            environment.connector_online = (!connections.is_empty())
                .then(|| connections.iter().all(|connection| connection.online));
            environment.connections = connections;
        }
        Ok(EnvironmentsResponse { environments })
    }

    /// Makes an environment.
    pub async fn make_environment(
        &self,
        caller: &Caller,
        request: EnvironmentRequest,
    ) -> Result<EnvironmentView, Trouble> {
        let name = request.name;
        if !is_name(&name) {
            return Err(Trouble::bad("name", NAME));
        }
        let (account, asked, now) = (caller.account, name.clone(), self.0.clock.now());
        let made = move |beside: &Beside| beside.make_environment(account, &asked, now, MOST);
        match self.beside(made).await? {
            Some(true) => Ok(EnvironmentView {
                name,
                created_at: timestamp(now),
                services: Vec::new(),
                connector_online: None,
                connections: Vec::new(),
                active_boxes: 0,
            }),
            Some(false) => {
                let text = format!("there is an environment `{name}` already");
                Err(Trouble::new(Kind::BadRequest, text).with("field", "name"))
            }
            None => {
                let text = format!("an account has at most {MOST} environments; remove one first");
                Err(Trouble::new(Kind::TooMany, text))
            }
        }
    }

    /// Forgets an environment. Boxes in it go on without its settings and its connections.
    pub async fn remove_environment(&self, caller: &Caller, name: &str) -> Result<(), Trouble> {
        let _alone = self.0.wiring.lock().await;
        let (account, asked) = (caller.account, name.to_owned());
        let removed = self.beside(move |beside| beside.remove_environment(account, &asked));
        if !removed.await? {
            return Err(no_such(name, Kind::NotFound));
        }
        self.connections_changed(account, name, Vec::clear).await
    }

    /// Sets the settings of a service, which `text` has as a `.env` file; without it the service is forgotten.
    pub async fn set_service(
        &self,
        caller: &Caller,
        environment: &str,
        service: &str,
        text: Option<&str>,
    ) -> Result<EnvironmentServiceView, Trouble> {
        if !check::is_service(service) {
            let limit = "1 to 40 lowercase letters and digits, a letter first";
            return Err(Trouble::bad("service", limit));
        }
        let settings = text.map(parse).transpose()?.unwrap_or_default();
        check::env(&settings).map_err(|_| unfit("settings"))?;
        self.has_environment(caller, environment).await?;
        let keys = settings.keys().cloned().collect();
        let json = serde_json::to_vec(&settings).map_err(|error| Trouble::internal(&error))?;
        let account = caller.account;
        let (of, name) = (environment.to_owned(), service.to_owned());
        let sealed = text.map(|_| {
            let under = under(account, environment, service);
            self.0.keep.vault.seal(&under, &json)
        });
        let removes = sealed.is_none();
        let put = move |beside: &Beside| {
            beside.put_service(account, &of, &name, sealed.as_deref(), MOST_SERVICES)
        };
        if self.beside(put).await? {
            let name = service.to_owned();
            return Ok(EnvironmentServiceView { name, keys });
        }
        if removes {
            let text = format!("the environment `{environment}` has no service `{service}`");
            return Err(Trouble::new(Kind::NotFound, text));
        }
        let text = format!("an environment has at most {MOST_SERVICES} services");
        Err(Trouble::new(Kind::TooMany, text))
    }

    /// Whether the account has that environment.
    pub(super) async fn has_environment(&self, caller: &Caller, name: &str) -> Result<(), Trouble> {
        let account = caller.account;
        let rows = self
            .beside(move |beside| beside.environments(account))
            .await?;
        if rows.iter().any(|row| row.name == name) {
            return Ok(());
        }
        Err(no_such(name, Kind::BadRequest).with("field", "environment"))
    }

    /// What an environment says of the services that a box declares, in their order.
    pub(super) async fn settings_for(
        &self,
        view: &Arc<View>,
        environment: &str,
    ) -> Result<Settings, Trouble> {
        let (account, asked) = (view.record.account, environment.to_owned());
        let rows = self
            .beside(move |beside| beside.settings(account, &asked))
            .await?;
        let mut all = Settings::new();
        for service in &view.record.services {
            let row = rows.iter().find(|(name, _)| *name == service.name);
            let Some((name, sealed)) = row else {
                continue;
            };
            let settings = self.unsealed(account, environment, name, sealed)?;
            all.extend(settings);
        }
        all.retain(|name, _| view.record.env.get(name).is_none());
        Ok(all)
    }

    fn environment(
        &self,
        account: AccountId,
        row: EnvironmentRow,
        active_boxes: usize,
    ) -> Result<EnvironmentView, Trouble> {
        let mut services = Vec::with_capacity(row.services.len());
        for (name, sealed) in row.services {
            let settings = self.unsealed(account, &row.name, &name, &sealed)?;
            let keys = settings.into_keys().collect();
            services.push(EnvironmentServiceView { name, keys });
        }
        Ok(EnvironmentView {
            name: row.name,
            created_at: timestamp(row.created_at),
            services,
            connector_online: None,
            connections: Vec::new(),
            active_boxes,
        })
    }

    fn unsealed(
        &self,
        account: AccountId,
        environment: &str,
        service: &str,
        sealed: &[u8],
    ) -> Result<Settings, Trouble> {
        let json = self.opened(&under(account, environment, service), sealed)?;
        serde_json::from_slice(&json).map_err(|error| Trouble::internal(&error))
    }
}

fn is_live(view: &View) -> bool {
    match view.sandbox.state {
        State::Stopping { .. } | State::Terminated { .. } | State::Interrupted { .. } => false,
        State::Starting { .. }
        | State::Ready
        | State::Freezing { .. }
        | State::Frozen(_)
        | State::Thawing { .. }
        | State::Releasing { .. } => true,
    }
}

pub(super) const NAME: &str = "1 to 40 lowercase letters, digits and dashes, a letter first";

pub(super) fn is_name(name: &str) -> bool {
    (1..=40).contains(&name.len())
        && name.starts_with(|c: char| c.is_ascii_lowercase())
        && name
            .chars()
            .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
}

fn no_such(name: &str, kind: Kind) -> Trouble {
    let name: String = name.chars().take(40).collect();
    let text = format!(
        "there is no environment `{name}`; sandbox_environments lists them, POST /v1/environments makes one"
    );
    Trouble::new(kind, text)
}

/// What settings are sealed under.
fn under(account: AccountId, environment: &str, service: &str) -> String {
    format!("settings/{}/{environment}/{service}", account.0)
}

/// Reads lines as of a `.env` file: `NAME=value`, with `export` before it or not, the value in single quotes (as it is), in
/// double quotes (with `\n`, `\"`, `\\`, `\$`), or plain up to ` #`. Nothing is put in for `$`.
fn parse(text: &str) -> Result<Settings, Trouble> {
    let mut settings = Settings::new();
    for (at, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let wrong = |what: &str| {
            let text = format!("line {} of the settings {what}", at + 1);
            Trouble::new(Kind::BadRequest, text).with("field", "settings")
        };
        let line = line.strip_prefix("export ").unwrap_or(line);
        let (name, value) = line.split_once('=').ok_or_else(|| wrong("has no `=`"))?;
        let name = name.trim();
        if !check::is_variable(name) {
            return Err(wrong("does not begin with the name of a variable"));
        }
        let value =
            value_of(value.trim()).ok_or_else(|| wrong("has a quote that is not closed"))?;
        settings.insert(name.to_owned(), value);
    }
    Ok(settings)
}

fn value_of(text: &str) -> Option<String> {
    if let Some(rest) = text.strip_prefix('\'') {
        return rest.split_once('\'').map(|(value, _)| value.to_owned());
    }
    let Some(rest) = text.strip_prefix('"') else {
        let plain = text.split(" #").next().unwrap_or(text);
        return Some(plain.trim_end().to_owned());
    };
    let mut value = String::new();
    let mut chars = rest.chars();
    loop {
        match chars.next()? {
            '"' => return Some(value),
            '\\' => match chars.next()? {
                'n' => value.push('\n'),
                't' => value.push('\t'),
                'r' => value.push('\r'),
                other => value.push(other),
            },
            other => value.push(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read_as_people_write_them() {
        let text = "\u{20}# of the shop\nA=1\nexport B = two words # not this\nC='$x # \\n'\nD=\"a\\nb \\\"c\\\"\"\nE=\n";
        let read = parse(text).unwrap();
        let all: Vec<_> = read.iter().map(|(k, v)| (&**k, &**v)).collect();
        assert_eq!(
            all,
            [
                ("A", "1"),
                ("B", "two words"),
                ("C", "$x # \\n"),
                ("D", "a\nb \"c\""),
                ("E", "")
            ]
        );
        for (wrong, said) in [
            ("A", "line 1"),
            ("A=1\n2B=1", "line 2"),
            ("A='x", "quote"),
            ("A=\"x\\", "quote"),
        ] {
            let text = parse(wrong).unwrap_err().text;
            assert!(text.contains(said), "{wrong:?}: {text}");
        }
    }
}
