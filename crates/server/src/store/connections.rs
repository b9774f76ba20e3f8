//! The connections of environments: which endpoints their boxes reach.

use icebox_lifecycle::Time;
use rusqlite::{Row, params};

use super::StoreError;
use super::beside::Beside;
use crate::record::AccountId;
use crate::wires::{Connection, Endpoint};

impl Beside {
    /// All of them, with the account and the environment, oldest first.
    pub fn connections(&self) -> Result<Vec<(AccountId, String, Connection)>, StoreError> {
        self.read(|db| {
            db.prepare_cached(
                "SELECT account, environment, id, name, created_ms, endpoints FROM environment_connections
                 ORDER BY created_ms, id",
            )?
            .query_map([], |row| {
                Ok((AccountId(row.get(0)?), row.get(1)?, connection(row)?))
            })?
            .collect()
        })
    }

    /// Makes one, or sets what it leads to: `false` when there is no such environment, or when that has `most` others.
    pub fn put_connection(
        &self,
        account: AccountId,
        environment: &str,
        connection: &Connection,
        most: usize,
    ) -> Result<bool, StoreError> {
        let endpoints: Vec<String> = connection.endpoints.iter().map(Endpoint::text).collect();
        self.write(|tx| {
            let put = tx.execute(
                "INSERT OR REPLACE INTO environment_connections
                 SELECT ?1, ?2, ?3, ?4, ?5, ?6
                 WHERE EXISTS (SELECT 1 FROM environments WHERE account = ?1 AND name = ?2)
                 AND (SELECT count(*) FROM environment_connections
                      WHERE account = ?1 AND environment = ?2 AND id <> ?3) < ?7",
                params![
                    account.0,
                    environment,
                    connection.id,
                    connection.name,
                    connection.created_at.0,
                    endpoints.join(" "),
                    i64::try_from(most).unwrap_or(i64::MAX)
                ],
            )?;
            Ok(put > 0)
        })
    }

    /// Forgets one: whether it was there.
    pub fn remove_connection(
        &self,
        account: AccountId,
        environment: &str,
        id: &str,
    ) -> Result<bool, StoreError> {
        self.write(|tx| {
            let sql = "DELETE FROM environment_connections
                       WHERE account = ?1 AND environment = ?2 AND id = ?3";
            Ok(tx.execute(sql, params![account.0, environment, id])? > 0)
        })
    }
}

fn connection(row: &Row<'_>) -> rusqlite::Result<Connection> {
    let endpoints: String = row.get(5)?;
    Ok(Connection {
        id: row.get(2)?,
        name: row.get(3)?,
        created_at: Time(row.get(4)?),
        // What could not be read was not written by us.
        endpoints: endpoints
            .split(' ')
            .filter_map(|text| Endpoint::parse(text).ok())
            .collect(),
    })
}
