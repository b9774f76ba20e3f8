//! Source maps as they are stored: by project, release and the served path of the script. Owns which go when there are too many;
//! what is in one is not its business.

use icebox_lifecycle::Time;
use rusqlite::{OptionalExtension as _, Transaction, TransactionBehavior, params};

use super::{LogTables, StoreError, lock, unsigned};

/// A source map to be kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewMap {
    /// The served path of the script.
    pub path: String,
    /// The map.
    pub body: Vec<u8>,
}

/// What keeping source maps came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeptMaps {
    /// They are kept; the maps of these older releases had to go.
    Kept(Vec<String>),
    /// The release alone would take up more than a project may.
    TooLarge,
    /// The project is gone.
    NoProject,
}

impl LogTables {
    /// Keeps maps of a release, in place of those of the same paths. When all maps of the project take up more than `most`,
    /// those of the releases that got none for the longest time go.
    pub fn put_maps(
        &self,
        number: i64,
        release: &str,
        maps: &[NewMap],
        now: Time,
        most: u64,
    ) -> Result<KeptMaps, StoreError> {
        let mut db = lock(&self.writer);
        let mut work = || {
            db.pragma_update(None, "synchronous", "FULL")?;
            let tx = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let done = put_maps(&tx, number, release, maps, now, most)?;
            match done {
                KeptMaps::Kept(_) => tx.commit()?,
                KeptMaps::TooLarge | KeptMaps::NoProject => tx.rollback()?,
            }
            Ok(done)
        };
        work().map_err(StoreError::Write)
    }

    /// The map of a script.
    pub fn map(
        &self,
        number: i64,
        release: &str,
        path: &str,
    ) -> Result<Option<Vec<u8>>, StoreError> {
        self.read(|db| {
            db.prepare_cached(
                "SELECT body FROM maps WHERE project = ?1 AND release = ?2 AND path = ?3",
            )?
            .query_row(params![number, release, path], |row| row.get(0))
            .optional()
        })
    }
}

fn put_maps(
    tx: &Transaction<'_>,
    number: i64,
    release: &str,
    maps: &[NewMap],
    now: Time,
    most: u64,
) -> rusqlite::Result<KeptMaps> {
    let there = "SELECT 1 FROM projects WHERE number = ?1";
    if !tx.prepare_cached(there)?.exists([number])? {
        return Ok(KeptMaps::NoProject);
    }
    for map in maps {
        tx.prepare_cached("INSERT OR REPLACE INTO maps VALUES (?1, ?2, ?3, ?4, ?5, ?6)")?
            .execute(params![
                number,
                release,
                map.path,
                now.0,
                i64::try_from(map.body.len()).unwrap_or(i64::MAX),
                map.body
            ])?;
    }
    let mut gone = Vec::new();
    loop {
        let sum = "SELECT coalesce(sum(bytes), 0) FROM maps WHERE project = ?1";
        let all = tx
            .prepare_cached(sum)?
            .query_row([number], |row| row.get(0))?;
        if unsigned(all) <= most {
            return Ok(KeptMaps::Kept(gone));
        }
        let oldest = tx
            .prepare_cached(
                "SELECT release FROM maps WHERE project = ?1 AND release <> ?2
                 GROUP BY release ORDER BY max(added_ms), release LIMIT 1",
            )?
            .query_row(params![number, release], |row| row.get::<_, String>(0))
            .optional()?;
        let Some(oldest) = oldest else {
            return Ok(KeptMaps::TooLarge);
        };
        tx.prepare_cached("DELETE FROM maps WHERE project = ?1 AND release = ?2")?
            .execute(params![number, oldest])?;
        gone.push(oldest);
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::tables;
    use super::*;

    #[test]
    fn maps_of_old_releases_make_room() {
        let (_dir, tables, number) = tables();
        let map = |path: &str, len: usize| NewMap {
            path: path.to_owned(),
            body: vec![b'm'; len],
        };
        let put = |release: &str, at: i64, map: NewMap| {
            tables
                .put_maps(number, release, &[map], Time(at), 100)
                .unwrap()
        };
        assert_eq!(put("1", 1, map("/a.js", 60)), KeptMaps::Kept(vec![]));
        assert_eq!(put("2", 2, map("/a.js", 30)), KeptMaps::Kept(vec![]));
        assert_eq!(put("3", 3, map("/a.js", 101)), KeptMaps::TooLarge);
        assert!(tables.map(number, "3", "/a.js").unwrap().is_none());
        let kept = put("3", 4, map("/a.js", 40));
        assert_eq!(kept, KeptMaps::Kept(vec!["1".to_owned()]));
        assert!(tables.map(number, "1", "/a.js").unwrap().is_none());
        assert_eq!(tables.map(number, "2", "/a.js").unwrap().unwrap().len(), 30);
        let replaced = put("3", 5, map("/a.js", 70));
        assert_eq!(replaced, KeptMaps::Kept(vec![]));
        tables.remove_project(number).unwrap();
        assert_eq!(put("4", 6, map("/a.js", 1)), KeptMaps::NoProject);
    }
}
