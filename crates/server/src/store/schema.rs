//! The tables, as a list of steps. `user_version` counts how many a file has seen; a step that was released is never
//! edited, another one is added.

use rusqlite::Connection;

use super::StoreError;

const STEPS: &[&str] = &[
    "
    CREATE TABLE meta (
        key TEXT PRIMARY KEY,
        value INTEGER NOT NULL
    ) WITHOUT ROWID;
    CREATE TABLE accounts (
        id INTEGER PRIMARY KEY,
        name TEXT NOT NULL UNIQUE,
        created_ms INTEGER NOT NULL
    );
    CREATE TABLE keys (
        hash BLOB PRIMARY KEY,
        account INTEGER NOT NULL REFERENCES accounts (id),
        label TEXT NOT NULL,
        created_ms INTEGER NOT NULL
    ) WITHOUT ROWID;
    CREATE TABLE boxes (
        id TEXT PRIMARY KEY,
        account INTEGER NOT NULL REFERENCES accounts (id),
        generation INTEGER NOT NULL,
        state TEXT NOT NULL,
        next_deadline_ms INTEGER,
        recorded_ms INTEGER NOT NULL,
        body TEXT NOT NULL,
        record TEXT NOT NULL
    ) WITHOUT ROWID;
    CREATE TABLE reasons (
        box TEXT NOT NULL,
        seq INTEGER NOT NULL,
        at_ms INTEGER NOT NULL,
        rule TEXT NOT NULL,
        text TEXT NOT NULL,
        PRIMARY KEY (box, seq)
    ) WITHOUT ROWID;
    CREATE TABLE events (
        seq INTEGER PRIMARY KEY AUTOINCREMENT,
        at_ms INTEGER NOT NULL,
        account INTEGER NOT NULL,
        box TEXT NOT NULL,
        kind TEXT NOT NULL,
        rule TEXT,
        body TEXT NOT NULL
    );
",
    // The events of one account in order, and what the calls on a box came to.
    "
    CREATE INDEX events_of ON events (account);
    CREATE TABLE steps (
        box TEXT NOT NULL,
        seq INTEGER NOT NULL,
        at_ms INTEGER NOT NULL,
        exec TEXT,
        ok INTEGER NOT NULL,
        body TEXT NOT NULL,
        PRIMARY KEY (box, seq)
    ) WITHOUT ROWID;
    CREATE UNIQUE INDEX steps_of_exec ON steps (box, exec) WHERE exec IS NOT NULL;
    CREATE INDEX steps_at ON steps (at_ms);
",
    // What accounts have left (NULL: they never run out) and used: millionths of a credit, and what is over of one.
    "
    CREATE TABLE credits (
        account INTEGER PRIMARY KEY REFERENCES accounts (id),
        left_micro INTEGER,
        left_rest INTEGER,
        used_micro INTEGER NOT NULL,
        used_rest INTEGER NOT NULL
    );
",
    // Times in which nobody could use a box, and the latest one that each row counts in already.
    "
    CREATE TABLE gaps (
        seq INTEGER PRIMARY KEY,
        at_ms INTEGER NOT NULL,
        ms INTEGER NOT NULL
    );
    ALTER TABLE boxes ADD COLUMN gap INTEGER NOT NULL DEFAULT 0;
",
    // Webhooks, and the events that wait for them. `next_ms` is there for the first in the line of a box only.
    "
    CREATE TABLE webhooks (
        id TEXT PRIMARY KEY,
        account INTEGER NOT NULL REFERENCES accounts (id),
        created_ms INTEGER NOT NULL,
        url TEXT NOT NULL,
        kinds TEXT NOT NULL,
        box TEXT,
        secret BLOB NOT NULL,
        enabled INTEGER NOT NULL,
        disabled_reason TEXT,
        position INTEGER NOT NULL
    ) WITHOUT ROWID;
    CREATE TABLE deliveries (
        hook TEXT NOT NULL REFERENCES webhooks (id),
        seq INTEGER NOT NULL,
        box TEXT NOT NULL,
        kind TEXT NOT NULL,
        state TEXT NOT NULL,
        next_ms INTEGER,
        tries INTEGER NOT NULL,
        tried_ms INTEGER,
        status INTEGER,
        error TEXT,
        PRIMARY KEY (hook, seq)
    ) WITHOUT ROWID;
    CREATE INDEX deliveries_due ON deliveries (hook, next_ms, seq) WHERE next_ms IS NOT NULL;
    CREATE INDEX deliveries_line ON deliveries (hook, box, seq) WHERE state = 'waiting';
    CREATE INDEX deliveries_over ON deliveries (hook, seq) WHERE state <> 'waiting';
",
    // Browsers that are signed in, and links with which one may. Both end with the key behind them.
    "
    CREATE TABLE sessions (
        hash BLOB PRIMARY KEY,
        key BLOB NOT NULL REFERENCES keys (hash) ON DELETE CASCADE,
        created_ms INTEGER NOT NULL,
        expires_ms INTEGER NOT NULL
    ) WITHOUT ROWID;
    CREATE INDEX sessions_of ON sessions (key);
    CREATE TABLE session_links (
        hash BLOB PRIMARY KEY,
        key BLOB NOT NULL REFERENCES keys (hash) ON DELETE CASCADE,
        expires_ms INTEGER NOT NULL
    ) WITHOUT ROWID;
    CREATE INDEX session_links_of ON session_links (key);
",
    // What accounts keep for their boxes: secrets and settings (sealed), and what a box was given of them.
    "
    CREATE TABLE secrets (
        account INTEGER NOT NULL REFERENCES accounts (id),
        name TEXT NOT NULL,
        sealed BLOB NOT NULL,
        created_ms INTEGER NOT NULL,
        changed_ms INTEGER NOT NULL,
        PRIMARY KEY (account, name)
    ) WITHOUT ROWID;
    CREATE TABLE environments (
        account INTEGER NOT NULL REFERENCES accounts (id),
        name TEXT NOT NULL,
        created_ms INTEGER NOT NULL,
        PRIMARY KEY (account, name)
    ) WITHOUT ROWID;
    CREATE TABLE environment_services (
        account INTEGER NOT NULL,
        environment TEXT NOT NULL,
        name TEXT NOT NULL,
        sealed BLOB NOT NULL,
        PRIMARY KEY (account, environment, name)
    ) WITHOUT ROWID;
    CREATE TABLE given (
        box TEXT NOT NULL,
        kind TEXT NOT NULL,
        name TEXT NOT NULL,
        sealed BLOB NOT NULL,
        PRIMARY KEY (box, kind, name)
    ) WITHOUT ROWID;
",
    // What is left for somebody to read: versions, messages of people to a box's agent, feedback to the operator.
    "
    CREATE TABLE versions (
        id TEXT PRIMARY KEY,
        account INTEGER NOT NULL REFERENCES accounts (id),
        service TEXT NOT NULL,
        label TEXT NOT NULL,
        image TEXT NOT NULL,
        note TEXT,
        git_sha TEXT,
        created_ms INTEGER NOT NULL,
        UNIQUE (account, service, label)
    ) WITHOUT ROWID;
    CREATE TABLE messages (
        seq INTEGER PRIMARY KEY AUTOINCREMENT,
        box TEXT NOT NULL,
        at_ms INTEGER NOT NULL,
        text TEXT NOT NULL,
        delivered_ms INTEGER,
        agent TEXT
    );
    CREATE INDEX messages_of ON messages (box, seq);
    CREATE TABLE feedback (
        seq INTEGER PRIMARY KEY AUTOINCREMENT,
        at_ms INTEGER NOT NULL,
        account INTEGER NOT NULL REFERENCES accounts (id),
        box TEXT,
        agent TEXT,
        task TEXT NOT NULL,
        usage TEXT NOT NULL,
        problems TEXT NOT NULL,
        suggestions TEXT NOT NULL
    );
",
    // Snapshots, which belong to no box.
    "
    CREATE TABLE snapshots (
        id TEXT PRIMARY KEY,
        account INTEGER NOT NULL REFERENCES accounts (id),
        body TEXT NOT NULL
    ) WITHOUT ROWID;
",
    // What the boxes of an environment reach in networks that the host reaches.
    "
    CREATE TABLE environment_connections (
        account INTEGER NOT NULL,
        environment TEXT NOT NULL,
        id TEXT NOT NULL,
        name TEXT NOT NULL,
        created_ms INTEGER NOT NULL,
        endpoints TEXT NOT NULL,
        PRIMARY KEY (account, environment, id)
    ) WITHOUT ROWID;
",
    // Starts that were asked for under a key of the caller's, and the boxes that came of them.
    "
    CREATE TABLE creations (
        account INTEGER NOT NULL REFERENCES accounts (id),
        key TEXT NOT NULL,
        asked BLOB NOT NULL,
        box TEXT NOT NULL,
        at_ms INTEGER NOT NULL,
        PRIMARY KEY (account, key)
    ) WITHOUT ROWID;
    CREATE INDEX creations_at ON creations (at_ms);
    CREATE INDEX creations_of ON creations (account, at_ms);
",
    // What starts a version, if it does not go on from memory.
    "
    ALTER TABLE versions ADD COLUMN cmd TEXT;
",
];

/// Brings the main file up to date; refuses one from a newer server.
pub(super) fn migrate(db: &mut Connection) -> Result<(), StoreError> {
    apply(db, STEPS)
}

/// Takes the steps that a file has not seen.
pub(super) fn apply(db: &mut Connection, steps: &[&str]) -> Result<(), StoreError> {
    let done: u32 = db
        .pragma_query_value(None, "user_version", |row| row.get(0))
        .map_err(StoreError::Migrate)?;
    let done = usize::try_from(done).unwrap_or(usize::MAX);
    if done > steps.len() {
        return Err(StoreError::Newer {
            found: done,
            known: steps.len(),
        });
    }
    for (step, sql) in steps.iter().enumerate().skip(done) {
        let apply = |db: &mut Connection| {
            let tx = db.transaction()?;
            tx.execute_batch(sql)?;
            tx.pragma_update(None, "user_version", i64::try_from(step + 1).unwrap_or(0))?;
            tx.commit()
        };
        apply(db).map_err(StoreError::Migrate)?;
    }
    Ok(())
}
