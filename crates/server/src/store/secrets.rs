//! Secrets and the settings of environments, sealed: what they say is not known here. Also which box was given what.

use std::collections::HashSet;

use icebox_lifecycle::{BoxId, Time};
use rusqlite::{OptionalExtension as _, params};

use super::StoreError;
use super::beside::Beside;
use crate::record::AccountId;

/// A secret by its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretRow {
    /// Its name.
    pub name: String,
    /// When it was made.
    pub created_at: Time,
    /// When its value was last set.
    pub changed_at: Time,
}

/// What a box was given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GivenRows {
    /// Its secrets: name and sealed value.
    pub secrets: Vec<(String, Vec<u8>)>,
    /// The environment it was started in.
    pub environment: Option<String>,
}

/// An environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnvironmentRow {
    /// Its name.
    pub name: String,
    /// When it was made.
    pub created_at: Time,
    /// Its services, each with its sealed settings.
    pub services: Vec<(String, Vec<u8>)>,
}

impl Beside {
    /// The secrets of an account, by name.
    pub fn secrets(&self, account: AccountId) -> Result<Vec<SecretRow>, StoreError> {
        self.read(|db| {
            db.prepare_cached(
                "SELECT name, created_ms, changed_ms FROM secrets WHERE account = ?1 ORDER BY name",
            )?
            .query_map([account.0], |row| {
                Ok(SecretRow {
                    name: row.get(0)?,
                    created_at: Time(row.get(1)?),
                    changed_at: Time(row.get(2)?),
                })
            })?
            .collect()
        })
    }

    /// Sets a secret; `None` when the account has `most` others already.
    pub fn put_secret(
        &self,
        account: AccountId,
        name: &str,
        sealed: &[u8],
        now: Time,
        most: usize,
    ) -> Result<Option<SecretRow>, StoreError> {
        self.write(|tx| {
            let others: i64 = tx.query_row(
                "SELECT count(*) FROM secrets WHERE account = ?1 AND name <> ?2",
                params![account.0, name],
                |row| row.get(0),
            )?;
            if usize::try_from(others).is_ok_and(|others| others >= most) {
                return Ok(None);
            }
            let created = tx.query_row(
                "INSERT INTO secrets VALUES (?1, ?2, ?3, ?4, ?4)
                 ON CONFLICT DO UPDATE SET sealed = excluded.sealed, changed_ms = excluded.changed_ms
                 RETURNING created_ms",
                params![account.0, name, sealed, now.0],
                |row| row.get(0),
            )?;
            Ok(Some(SecretRow {
                name: name.to_owned(),
                created_at: Time(created),
                changed_at: now,
            }))
        })
    }

    /// Forgets a secret: whether it was there.
    pub fn remove_secret(&self, account: AccountId, name: &str) -> Result<bool, StoreError> {
        self.write(|tx| {
            let sql = "DELETE FROM secrets WHERE account = ?1 AND name = ?2";
            Ok(tx.execute(sql, params![account.0, name])? > 0)
        })
    }

    /// The sealed value of a secret.
    pub fn secret(&self, account: AccountId, name: &str) -> Result<Option<Vec<u8>>, StoreError> {
        self.read(|db| {
            db.prepare_cached("SELECT sealed FROM secrets WHERE account = ?1 AND name = ?2")?
                .query_row(params![account.0, name], |row| row.get(0))
                .optional()
        })
    }

    /// The boxes that were given anything. What was given to boxes that are no more is forgotten first.
    pub fn with_given(&self) -> Result<HashSet<BoxId>, StoreError> {
        self.write(|tx| {
            tx.execute(
                "DELETE FROM given WHERE box NOT IN (SELECT id FROM boxes)",
                [],
            )?;
            let mut query = tx.prepare("SELECT DISTINCT box FROM given")?;
            let ids = query.query_map([], |row| row.get::<_, String>(0))?;
            let mut all = HashSet::new();
            for id in ids {
                all.extend(BoxId::parse(&id?));
            }
            Ok(all)
        })
    }

    /// Gives a box secrets, over those of the same names, and the environment it is started in.
    pub fn give(
        &self,
        id: BoxId,
        secrets: &[(String, Vec<u8>)],
        environment: Option<&str>,
    ) -> Result<(), StoreError> {
        self.write(|tx| {
            let mut put =
                tx.prepare_cached("INSERT OR REPLACE INTO given VALUES (?1, ?2, ?3, ?4)")?;
            for (name, sealed) in secrets {
                put.execute(params![id.as_str(), "secret", name, sealed])?;
            }
            if let Some(name) = environment {
                put.execute(params![id.as_str(), "environment", name, Vec::<u8>::new()])?;
            }
            Ok(())
        })
    }

    /// What a box was given.
    pub fn given(&self, id: BoxId) -> Result<GivenRows, StoreError> {
        self.read(|db| {
            let mut query = db.prepare_cached(
                "SELECT kind, name, sealed FROM given WHERE box = ?1 ORDER BY name",
            )?;
            let mut rows = query.query([id.as_str()])?;
            let mut given = GivenRows::default();
            while let Some(row) = rows.next()? {
                let (kind, name): (String, String) = (row.get(0)?, row.get(1)?);
                if kind == "secret" {
                    given.secrets.push((name, row.get(2)?));
                } else {
                    given.environment = Some(name);
                }
            }
            Ok(given)
        })
    }

    /// Takes back what a box was given that did not come to be.
    pub fn take_back(&self, id: BoxId) -> Result<(), StoreError> {
        self.write(|tx| {
            tx.execute("DELETE FROM given WHERE box = ?1", [id.as_str()])?;
            Ok(())
        })
    }

    /// The environments of an account, by name.
    pub fn environments(&self, account: AccountId) -> Result<Vec<EnvironmentRow>, StoreError> {
        self.read(|db| {
            let mut all: Vec<EnvironmentRow> = db
                .prepare_cached(
                    "SELECT name, created_ms FROM environments WHERE account = ?1 ORDER BY name",
                )?
                .query_map([account.0], |row| {
                    Ok(EnvironmentRow {
                        name: row.get(0)?,
                        created_at: Time(row.get(1)?),
                        services: Vec::new(),
                    })
                })?
                .collect::<rusqlite::Result<_>>()?;
            let mut query = db.prepare_cached(
                "SELECT name, sealed FROM environment_services
                 WHERE account = ?1 AND environment = ?2 ORDER BY name",
            )?;
            for one in &mut all {
                let rows = query.query_map(params![account.0, one.name], |row| {
                    Ok((row.get(0)?, row.get(1)?))
                })?;
                one.services = rows.collect::<rusqlite::Result<_>>()?;
            }
            Ok(all)
        })
    }

    /// Makes an environment: `None` when the account has `most` already, `false` when that one was there.
    pub fn make_environment(
        &self,
        account: AccountId,
        name: &str,
        now: Time,
        most: usize,
    ) -> Result<Option<bool>, StoreError> {
        self.write(|tx| {
            let made = tx.execute(
                "INSERT OR IGNORE INTO environments
                 SELECT ?1, ?2, ?3 WHERE (SELECT count(*) FROM environments WHERE account = ?1) < ?4",
                params![account.0, name, now.0, i64::try_from(most).unwrap_or(i64::MAX)],
            )?;
            let there: bool = tx.query_row(
                "SELECT count(*) > 0 FROM environments WHERE account = ?1 AND name = ?2",
                params![account.0, name],
                |row| row.get(0),
            )?;
            Ok(there.then_some(made > 0))
        })
    }

    /// Forgets an environment with its services: whether it was there.
    pub fn remove_environment(&self, account: AccountId, name: &str) -> Result<bool, StoreError> {
        self.write(|tx| {
            let of = params![account.0, name];
            let sql = "DELETE FROM environment_services WHERE account = ?1 AND environment = ?2";
            tx.execute(sql, of)?;
            let sql = "DELETE FROM environment_connections WHERE account = ?1 AND environment = ?2";
            tx.execute(sql, of)?;
            let sql = "DELETE FROM environments WHERE account = ?1 AND name = ?2";
            Ok(tx.execute(sql, of)? > 0)
        })
    }

    /// Sets the settings of a service, or forgets the service: `false` when there is no such environment, or when it has
    /// `most` other services.
    pub fn put_service(
        &self,
        account: AccountId,
        environment: &str,
        name: &str,
        sealed: Option<&[u8]>,
        most: usize,
    ) -> Result<bool, StoreError> {
        self.write(|tx| {
            let Some(sealed) = sealed else {
                let sql = "DELETE FROM environment_services
                           WHERE account = ?1 AND environment = ?2 AND name = ?3";
                return Ok(tx.execute(sql, params![account.0, environment, name])? > 0);
            };
            let put = tx.execute(
                "INSERT OR REPLACE INTO environment_services
                 SELECT ?1, ?2, ?3, ?4
                 WHERE EXISTS (SELECT 1 FROM environments WHERE account = ?1 AND name = ?2)
                 AND (SELECT count(*) FROM environment_services
                      WHERE account = ?1 AND environment = ?2 AND name <> ?3) < ?5",
                params![
                    account.0,
                    environment,
                    name,
                    sealed,
                    i64::try_from(most).unwrap_or(i64::MAX)
                ],
            )?;
            Ok(put > 0)
        })
    }

    /// The sealed settings of the services of an environment.
    pub fn settings(
        &self,
        account: AccountId,
        environment: &str,
    ) -> Result<Vec<(String, Vec<u8>)>, StoreError> {
        self.read(|db| {
            db.prepare_cached(
                "SELECT name, sealed FROM environment_services
                 WHERE account = ?1 AND environment = ?2 ORDER BY name",
            )?
            .query_map(params![account.0, environment], |row| {
                Ok((row.get(0)?, row.get(1)?))
            })?
            .collect()
        })
    }

    /// How many boxes are in each environment of an account, those that may still run.
    pub fn in_environments(&self, account: AccountId) -> Result<Vec<(String, BoxId)>, StoreError> {
        self.read(|db| {
            let mut query = db.prepare_cached(
                "SELECT given.name, given.box FROM given JOIN boxes ON boxes.id = given.box
                 WHERE boxes.account = ?1 AND given.kind = 'environment'",
            )?;
            let rows = query.query_map([account.0], |row| {
                Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?))
            })?;
            let mut all = Vec::new();
            for row in rows {
                let (name, id) = row?;
                all.extend(BoxId::parse(&id).map(|id| (name, id)));
            }
            Ok(all)
        })
    }
}
