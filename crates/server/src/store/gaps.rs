//! Times in which nobody could use a box (rule 3.6). A gap concerns every box, and writing a million rows for one would
//! take longer than most gaps: it is written once, and each row says which gaps its times count in already. Whoever loads
//! a row counts the later ones in. Owns their table and their sum; what a gap does to a box is the lifecycle's.

use icebox_lifecycle::{Ms, Time};
use rusqlite::{Connection, Transaction, params};

/// Time in which nobody could use a box.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// When it ended.
    pub at: Time,
    /// How long it was, in milliseconds.
    pub ms: Ms,
}

/// All gaps that a row may not count in yet.
#[derive(Debug, Default)]
pub(super) struct Gaps(
    /// By number: that gap and all later ones as one.
    Vec<(i64, Gap)>,
);

impl Gaps {
    pub(super) fn load(db: &Connection) -> rusqlite::Result<Self> {
        let mut query = db.prepare("SELECT seq, at_ms, ms FROM gaps ORDER BY seq DESC")?;
        let mut rows = query.query([])?;
        let mut gaps: Vec<(i64, Gap)> = Vec::new();
        while let Some(row) = rows.next()? {
            let gap = Gap {
                at: Time(row.get(1)?),
                ms: row.get(2)?,
            };
            let later = gaps.last().map(|(_, later)| *later);
            gaps.push((row.get(0)?, gap.and(later)));
        }
        gaps.reverse();
        Ok(Self(gaps))
    }

    /// What a row has missed that counts in the gaps up to this number.
    pub(super) fn after(&self, counted: i64) -> Option<Gap> {
        let next = self.0.partition_point(|(number, _)| *number <= counted);
        self.0.get(next).map(|(_, gap)| *gap)
    }
}

impl Gap {
    /// This gap and the later ones as one. A gap moves a mark, but not past the gap's own end; the later ones move it from
    /// there, each not past its own end either.
    fn and(self, later: Option<Self>) -> Self {
        later.map_or(self, |rest| Self {
            at: rest.at.min(self.at + rest.ms),
            ms: self.ms.saturating_add(rest.ms),
        })
    }
}

/// Writes one; gives its number.
pub(super) fn add(tx: &Transaction<'_>, gap: Gap) -> rusqlite::Result<i64> {
    tx.prepare_cached("INSERT INTO gaps (at_ms, ms) VALUES (?1, ?2)")?
        .execute(params![gap.at.0, gap.ms])?;
    Ok(tx.last_insert_rowid())
}

/// The number of the latest one; 0 before the first.
pub(super) fn latest(db: &Connection) -> rusqlite::Result<i64> {
    db.query_row("SELECT coalesce(max(seq), 0) FROM gaps", [], |row| {
        row.get(0)
    })
}

/// Forgets those that every row counts in; the latest stays, so that no number comes twice.
pub(super) fn forget(db: &Connection, counted: i64) -> rusqlite::Result<()> {
    db.execute(
        "DELETE FROM gaps WHERE seq <= ?1 AND seq < (SELECT max(seq) FROM gaps)",
        [counted],
    )?;
    Ok(())
}
