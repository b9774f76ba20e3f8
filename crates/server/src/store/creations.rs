//! Starts that were asked for under a key of the caller's: which box each key stands for, and what was asked. Owns how many
//! of them are kept.

use icebox_lifecycle::{BoxId, Time};
use rusqlite::{OptionalExtension as _, params};

use super::StoreError;
use super::beside::Beside;
use crate::record::AccountId;

/// The most keys that are kept of an account; the oldest go first.
const MOST: i64 = 10_000;

/// A digest of what was asked for.
pub type Asked = [u8; 32];

/// What a key stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// For this box; whether it is there shows elsewhere.
    Box(BoxId),
    /// For something else than what is asked for now.
    Other,
}

impl Beside {
    /// What `key` stands for: for what it did before, unless that was at `kept_from` or earlier; from now on for `fresh`.
    pub fn claim(
        &self,
        account: AccountId,
        key: &str,
        asked: &Asked,
        fresh: BoxId,
        now: Time,
        kept_from: Time,
    ) -> Result<Claim, StoreError> {
        self.write(|tx| {
            tx.prepare_cached("DELETE FROM creations WHERE at_ms <= ?1")?
                .execute([kept_from.0])?;
            let there: Option<(Asked, String)> = tx
                .prepare_cached("SELECT asked, box FROM creations WHERE account = ?1 AND key = ?2")?
                .query_row(params![account.0, key], |row| {
                    Ok((row.get(0)?, row.get(1)?))
                })
                .optional()?;
            if let Some((before, id)) = there {
                let id = BoxId::parse(&id).filter(|_| before == *asked);
                return Ok(id.map_or(Claim::Other, Claim::Box));
            }
            tx.prepare_cached("INSERT INTO creations VALUES (?1, ?2, ?3, ?4, ?5)")?
                .execute(params![account.0, key, asked, fresh.as_str(), now.0])?;
            tx.prepare_cached(
                "DELETE FROM creations WHERE account = ?1 AND key IN (
                     SELECT key FROM creations WHERE account = ?1 AND key <> ?2
                     ORDER BY at_ms DESC LIMIT -1 OFFSET ?3)",
            )?
            .execute(params![account.0, key, MOST - 1])?;
            Ok(Claim::Box(fresh))
        })
    }

    /// The key stands for nothing any more, if it stood for that box: nothing came of it.
    pub fn unclaim(&self, account: AccountId, key: &str, id: BoxId) -> Result<(), StoreError> {
        self.write(|tx| {
            tx.prepare_cached("DELETE FROM creations WHERE account = ?1 AND key = ?2 AND box = ?3")?
                .execute(params![account.0, key, id.as_str()])
                .map(drop)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Store;

    const ASKED: Asked = [1; 32];

    fn id(letter: &str) -> BoxId {
        BoxId::parse(&letter.repeat(icebox_lifecycle::id::BOX_ID_LEN)).unwrap()
    }

    fn claim(beside: &Beside, key: &str, asked: Asked, fresh: &str, now: i64) -> Claim {
        let kept_from = Time(now - 100);
        let claimed = beside.claim(AccountId(1), key, &asked, id(fresh), Time(now), kept_from);
        claimed.unwrap()
    }

    fn beside(data: &tempfile::TempDir) -> (Store, Beside) {
        let mut store = Store::open(data.path()).unwrap();
        store.keys(data.path(), Time(0)).unwrap();
        let beside = store.beside().unwrap();
        (store, beside)
    }

    #[test]
    fn a_key_stands_for_one_box_until_its_time_is_over() {
        let data = tempfile::tempdir().unwrap();
        let (_store, beside) = beside(&data);
        assert_eq!(claim(&beside, "k", ASKED, "a", 0), Claim::Box(id("a")));
        assert_eq!(claim(&beside, "k", ASKED, "b", 99), Claim::Box(id("a")));
        assert_eq!(claim(&beside, "k", [2; 32], "b", 99), Claim::Other);
        assert_eq!(claim(&beside, "other", ASKED, "c", 99), Claim::Box(id("c")));
        assert_eq!(claim(&beside, "k", [2; 32], "b", 100), Claim::Box(id("b")));
        // Only the box that it stands for frees it.
        beside.unclaim(AccountId(1), "k", id("a")).unwrap();
        assert_eq!(claim(&beside, "k", ASKED, "d", 100), Claim::Other);
        beside.unclaim(AccountId(1), "k", id("b")).unwrap();
        assert_eq!(claim(&beside, "k", ASKED, "d", 100), Claim::Box(id("d")));
    }

    #[test]
    fn of_too_many_keys_the_oldest_go() {
        let data = tempfile::tempdir().unwrap();
        let (_store, beside) = beside(&data);
        let fill = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?1)
                    INSERT INTO creations SELECT 1, 'k' || i, ?2, ?3, i FROM n";
        let filled = beside.write(|tx| tx.execute(fill, params![MOST, ASKED, id("a").as_str()]));
        assert_eq!(filled.unwrap(), 10_000);
        let claim = |key: &str, fresh| {
            let (now, kept_from) = (Time(20_000), Time(0));
            let claimed = beside.claim(AccountId(1), key, &ASKED, id(fresh), now, kept_from);
            claimed.unwrap()
        };
        assert_eq!(claim("new", "b"), Claim::Box(id("b")));
        assert_eq!(claim("k2", "c"), Claim::Box(id("a")));
        assert_eq!(claim("k1", "c"), Claim::Box(id("c")), "it was the oldest");
    }
}
