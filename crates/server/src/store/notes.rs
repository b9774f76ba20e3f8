//! What is left for somebody to read: published versions, messages of people to whoever holds a box, and feedback of agents to
//! the operator.

use icebox_lifecycle::{BoxId, Time};
use rusqlite::{OptionalExtension as _, Row, params};

use super::StoreError;
use super::beside::Beside;
use crate::record::AccountId;

/// A published version of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VersionRow {
    /// Its id.
    pub id: String,
    /// Of which service.
    pub service: String,
    /// Its name among the versions of that service.
    pub label: String,
    /// The image.
    pub image: String,
    /// The command that starts it.
    pub cmd: Option<String>,
    /// Why it was published.
    pub note: Option<String>,
    /// The commit it was built from.
    pub git_sha: Option<String>,
    /// When.
    pub created_at: Time,
}

/// What publishing came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Published {
    /// It is new.
    New,
    /// There is one of that label; the caller sees whether it is the same.
    There(VersionRow),
    /// The account has as many as it may have.
    TooMany,
}

/// A message of a person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MessageRow {
    /// Its number.
    pub seq: i64,
    /// When it was left.
    pub at: Time,
    /// What it says.
    pub text: String,
    /// When it arrived, if it did.
    pub delivered_at: Option<Time>,
    /// At which conversation.
    pub agent: Option<String>,
}

/// What an agent says to the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FeedbackRow {
    /// When.
    pub at: Time,
    /// Whose key it was.
    pub account: AccountId,
    /// The box it is about.
    pub of_box: Option<String>,
    /// The conversation.
    pub agent: Option<String>,
    /// What the agent was doing.
    pub task: String,
    /// How it used the boxes.
    pub usage: String,
    /// What went wrong.
    pub problems: String,
    /// What would be better.
    pub suggestions: String,
}

const VERSION: &str =
    "SELECT id, service, label, image, note, git_sha, created_ms, cmd FROM versions";

fn version(row: &Row<'_>) -> rusqlite::Result<VersionRow> {
    Ok(VersionRow {
        id: row.get(0)?,
        service: row.get(1)?,
        label: row.get(2)?,
        image: row.get(3)?,
        note: row.get(4)?,
        git_sha: row.get(5)?,
        created_at: Time(row.get(6)?),
        cmd: row.get(7)?,
    })
}

impl Beside {
    /// Keeps a version, unless its service has one of that label.
    pub fn publish(
        &self,
        account: AccountId,
        new: &VersionRow,
        most: usize,
    ) -> Result<Published, StoreError> {
        self.write(|tx| {
            let sql = format!("{VERSION} WHERE account = ?1 AND service = ?2 AND label = ?3");
            let there = tx
                .query_row(&sql, params![account.0, new.service, new.label], version)
                .optional()?;
            if let Some(there) = there {
                return Ok(Published::There(there));
            }
            let of_account = "SELECT count(*) FROM versions WHERE account = ?1";
            let count: i64 = tx.query_row(of_account, [account.0], |row| row.get(0))?;
            if usize::try_from(count).is_ok_and(|count| count >= most) {
                return Ok(Published::TooMany);
            }
            tx.execute(
                "INSERT INTO versions VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
                params![
                    new.id,
                    account.0,
                    new.service,
                    new.label,
                    new.image,
                    new.note,
                    new.git_sha,
                    new.created_at.0,
                    new.cmd
                ],
            )?;
            Ok(Published::New)
        })
    }

    /// The version of a service that has this label or id.
    pub fn version(
        &self,
        account: AccountId,
        service: &str,
        named: &str,
    ) -> Result<Option<VersionRow>, StoreError> {
        self.read(|db| {
            let sql = format!(
                "{VERSION} WHERE account = ?1 AND service = ?2 AND (label = ?3 OR id = ?3)
                 ORDER BY label = ?3 DESC LIMIT 1"
            );
            db.query_row(&sql, params![account.0, service, named], version)
                .optional()
        })
    }

    /// The versions of an account, or of one service, newest first.
    pub fn versions(
        &self,
        account: AccountId,
        service: Option<&str>,
        limit: usize,
    ) -> Result<Vec<VersionRow>, StoreError> {
        self.read(|db| {
            let sql = format!(
                "{VERSION} WHERE account = ?1 AND (service = ?2 OR ?2 IS NULL)
                 ORDER BY created_ms DESC, id LIMIT ?3"
            );
            let limit = i64::try_from(limit).unwrap_or(i64::MAX);
            db.prepare_cached(&sql)?
                .query_map(params![account.0, service, limit], version)?
                .collect()
        })
    }

    /// Leaves a message for whoever holds a box: its number, or `None` when `most` wait there already.
    pub fn leave_message(
        &self,
        id: BoxId,
        text: &str,
        now: Time,
        most: usize,
    ) -> Result<Option<i64>, StoreError> {
        self.write(|tx| {
            let sql = "SELECT count(*) FROM messages WHERE box = ?1 AND delivered_ms IS NULL";
            let waiting: i64 = tx.query_row(sql, [id.as_str()], |row| row.get(0))?;
            if usize::try_from(waiting).is_ok_and(|waiting| waiting >= most) {
                return Ok(None);
            }
            tx.execute(
                "INSERT INTO messages (box, at_ms, text) VALUES (?1, ?2, ?3)",
                params![id.as_str(), now.0, text],
            )?;
            Ok(Some(tx.last_insert_rowid()))
        })
    }

    /// What waits at a box, oldest first.
    pub fn waiting_messages(&self, id: BoxId) -> Result<Vec<MessageRow>, StoreError> {
        self.read(|db| {
            db.prepare_cached(
                "SELECT seq, at_ms, text, delivered_ms, agent FROM messages
                 WHERE box = ?1 AND delivered_ms IS NULL ORDER BY seq",
            )?
            .query_map([id.as_str()], message)?
            .collect()
        })
    }

    /// Marks messages of a box as arrived. Those that are so already stay as they are.
    pub fn messages_arrived(
        &self,
        id: BoxId,
        seqs: &[i64],
        agent: Option<&str>,
        now: Time,
    ) -> Result<(), StoreError> {
        self.write(|tx| {
            let mut mark = tx.prepare_cached(
                "UPDATE messages SET delivered_ms = ?3, agent = ?4
                 WHERE box = ?1 AND seq = ?2 AND delivered_ms IS NULL",
            )?;
            for seq in seqs {
                mark.execute(params![id.as_str(), seq, now.0, agent])?;
            }
            Ok(())
        })
    }

    /// The boxes at which messages wait.
    pub fn with_messages(&self) -> Result<Vec<BoxId>, StoreError> {
        self.write(|tx| {
            tx.execute(
                "DELETE FROM messages WHERE box NOT IN (SELECT id FROM boxes)",
                [],
            )?;
            let mut query =
                tx.prepare("SELECT DISTINCT box FROM messages WHERE delivered_ms IS NULL")?;
            let ids = query.query_map([], |row| row.get::<_, String>(0))?;
            let mut all = Vec::new();
            for id in ids {
                all.extend(BoxId::parse(&id?));
            }
            Ok(all)
        })
    }

    /// The latest messages that were left at a box, oldest first.
    pub fn messages(&self, id: BoxId, limit: usize) -> Result<Vec<MessageRow>, StoreError> {
        self.read(|db| {
            let limit = i64::try_from(limit).unwrap_or(i64::MAX);
            let mut latest: Vec<_> = db
                .prepare_cached(
                    "SELECT seq, at_ms, text, delivered_ms, agent FROM messages
                     WHERE box = ?1 ORDER BY seq DESC LIMIT ?2",
                )?
                .query_map(params![id.as_str(), limit], message)?
                .collect::<rusqlite::Result<_>>()?;
            latest.reverse();
            Ok(latest)
        })
    }

    /// Keeps what an agent says to the operator; the oldest go when there are more than `most`.
    pub fn add_feedback(&self, said: &FeedbackRow, most: usize) -> Result<(), StoreError> {
        self.write(|tx| {
            tx.execute(
                "INSERT INTO feedback (at_ms, account, box, agent, task, usage, problems, suggestions)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
                params![
                    said.at.0,
                    said.account.0,
                    said.of_box,
                    said.agent,
                    said.task,
                    said.usage,
                    said.problems,
                    said.suggestions
                ],
            )?;
            tx.execute(
                "DELETE FROM feedback WHERE seq <= (
                     SELECT seq FROM feedback ORDER BY seq DESC LIMIT 1 OFFSET ?1)",
                [i64::try_from(most).unwrap_or(i64::MAX)],
            )?;
            Ok(())
        })
    }

    /// The latest feedback, newest first.
    pub fn feedback(&self, limit: usize) -> Result<Vec<FeedbackRow>, StoreError> {
        self.read(|db| {
            let limit = i64::try_from(limit).unwrap_or(i64::MAX);
            db.prepare_cached(
                "SELECT at_ms, account, box, agent, task, usage, problems, suggestions
                 FROM feedback ORDER BY seq DESC LIMIT ?1",
            )?
            .query_map([limit], |row| {
                Ok(FeedbackRow {
                    at: Time(row.get(0)?),
                    account: AccountId(row.get(1)?),
                    of_box: row.get(2)?,
                    agent: row.get(3)?,
                    task: row.get(4)?,
                    usage: row.get(5)?,
                    problems: row.get(6)?,
                    suggestions: row.get(7)?,
                })
            })?
            .collect()
        })
    }
}

fn message(row: &Row<'_>) -> rusqlite::Result<MessageRow> {
    Ok(MessageRow {
        seq: row.get(0)?,
        at: Time(row.get(1)?),
        text: row.get(2)?,
        delivered_at: row.get::<_, Option<i64>>(3)?.map(Time),
        agent: row.get(4)?,
    })
}
