//! What goes into the database comes out again, whole turns at a time.

use icebox_lifecycle::sandbox::{Background, Call, Link, Retry, Takeover};
use icebox_lifecycle::state::{End, FreezeCause, Frozen, Kept, TakeoverCause};
use icebox_lifecycle::{CallId, CopyId, OpId, Policy, State};

use super::*;
use crate::record::Size;

fn id(letter: &str) -> BoxId {
    BoxId::parse(&letter.repeat(20)).unwrap()
}

fn record() -> Record {
    Record {
        account: AccountId(1),
        name: Some("n".into()),
        goal: None,
        image: "host".into(),
        size: Size {
            milli_cpus: 500,
            memory_mb: 512,
            disk_gb: 1,
        },
        env: std::collections::BTreeMap::from([("A".to_owned(), "b".to_owned())]).into(),
        metadata: Default::default(),
        services: vec![crate::record::Service {
            name: "api".into(),
            port: 8_000,
            web: true,
            leads: crate::record::Leads::Link {
                id: "c".repeat(20).into(),
                port: 9_000,
            },
        }],
        private: false,
        egress: crate::driver::Egress::default(),
        link_secret: None,
        e2b: None,
        origin: Some(Box::new(crate::record::Origin {
            snapshot: "snapaaaaaaaaaaaaaaaa".into(),
            memory: true,
            fork_of: Some("b".repeat(20)),
        })),
        scene: Some(Box::new(crate::record::Scene {
            shows: Some(crate::record::Shows::Url("https://example.com/".into())),
            elsewhere: Some(crate::record::Elsewhere {
                paths: vec!["/api".into()],
                base_url: "https://example.com".into(),
            }),
        })),
        runs: Some(Box::new(crate::record::Runs {
            for_box: "d".repeat(20).into(),
            version: "ver_0123456789abcdef".into(),
            label: "v1".into(),
        })),
    }
}

/// A box with something in every field.
fn full(state: State) -> Sandbox {
    let (mut sandbox, _) = Sandbox::new(id("a"), Policy::TASK, Time(5), Some("agent".into()));
    sandbox.state = state;
    sandbox.last_request = Some(Time(6));
    sandbox.gaps.since_request = 7;
    sandbox.holds.calls.push(Call {
        id: CallId(8),
        since: Time(9),
    });
    sandbox.holds.takeover = Some(Takeover {
        cause: TakeoverCause::Review,
        since: Time(10),
        until: Time(11),
    });
    sandbox.holds.links.push(Link {
        from: id("b"),
        awake_by_itself: true,
    });
    sandbox.holds.background.push(Background {
        exec: "x".into(),
        label: "npm".into(),
    });
    sandbox.holds.recording = true;
    sandbox.holds.phones = 2;
    sandbox.after_phones = Some(FreezeCause::Lifetime);
    sandbox.freeze_failure = Some(Box::new(Retry {
        failures: 3,
        at: Some(Time(12)),
        reason: "full".into(),
    }));
    sandbox.way_out = sandbox.freeze_failure.clone();
    sandbox.retry = sandbox.freeze_failure.clone();
    sandbox.kept_until = Some(Time(13));
    sandbox.credits = false;
    sandbox.meter.free_ms = 14;
    sandbox.keep = true;
    sandbox.warm = true;
    sandbox
}

fn states() -> Vec<State> {
    let frozen = Frozen {
        at: Time(1),
        cause: FreezeCause::Idle,
        resident: true,
        copy: Some(CopyId(2)),
        snapshot_error: Some("e".into()),
        evicting: Some(OpId(3)),
        wake: true,
        wake_error: Some("w".into()),
    };
    let op = OpId(4);
    vec![
        State::Starting {
            op,
            keep_files: true,
        },
        State::Ready,
        State::Freezing {
            op,
            copy: CopyId(5),
            cause: FreezeCause::NoCredits,
            ram_only: true,
            wake: true,
            save: Some(icebox_lifecycle::Save {
                snapshot: SnapshotId::from_random([7; 20]),
                memory: true,
            }),
        },
        State::Frozen(frozen.clone()),
        State::Thawing {
            op,
            from: frozen.clone(),
            retried: true,
        },
        State::Releasing {
            op,
            failures: 1,
            wake: true,
        },
        State::Stopping {
            op,
            end: End::StartFailed("s".into()),
            keep: Some(Box::new(frozen.clone())),
            failures: 2,
            retry_at: Some(Time(6)),
        },
        State::Terminated {
            at: Time(7),
            end: End::Interrupted("i".into()),
            kept: Some(Box::new(Kept {
                frozen,
                until: Time(8),
                dropping: Some(op),
            })),
        },
        State::Interrupted {
            at: Time(9),
            reason: "r".into(),
            files_until: Some(Time(10)),
            op: Some(op),
        },
    ]
}

fn put<'a>(sandbox: &'a Sandbox, record: Option<&'a Record>, generation: u64) -> Put<'a> {
    Put {
        sandbox,
        record,
        account: AccountId(1),
        generation,
        recorded_at: Time(3),
        status: "ready",
        deadline: None,
    }
}

fn open(data: &Path) -> Store {
    let mut store = Store::open(data).unwrap();
    store.keys(data, Time(0)).unwrap();
    store
}

fn load(store: &Store) -> Vec<Loaded> {
    let mut loaded = Vec::new();
    store.load(|row| loaded.push(row)).unwrap();
    loaded
}

#[test]
fn every_state_comes_back_as_it_was() {
    for state in states() {
        let data = tempfile::tempdir().unwrap();
        let (sandbox, record) = (full(state), record());
        let mut store = open(data.path());
        let batch = Batch {
            puts: vec![put(&sandbox, Some(&record), 1)],
            durable: true,
            ..Batch::default()
        };
        store.commit(&batch).unwrap();
        drop(store);
        let loaded = load(&open(data.path()));
        assert_eq!(loaded.len(), 1);
        assert_eq!(loaded[0].sandbox, sandbox);
        assert_eq!(loaded[0].record, record);
        assert_eq!((loaded[0].generation, loaded[0].recorded_at), (1, Time(3)));
    }
}

#[test]
fn an_update_without_a_record_keeps_the_record() {
    let data = tempfile::tempdir().unwrap();
    let (mut sandbox, record) = (full(State::Ready), record());
    let mut store = open(data.path());
    let mut batch = Batch::default();
    batch.puts.push(put(&sandbox, Some(&record), 1));
    store.commit(&batch).unwrap();
    drop(batch);
    sandbox.last_use = Time(99);
    let batch = Batch {
        puts: vec![put(&sandbox, None, 2)],
        last_seen: Some(Time(100)),
        ..Batch::default()
    };
    store.commit(&batch).unwrap();
    let loaded = load(&store);
    assert_eq!(
        (loaded[0].sandbox.last_use, &loaded[0].record),
        (Time(99), &record)
    );
    assert_eq!(store.last_seen().unwrap(), Some(Time(100)));
}

fn gap(at: i64, ms: i64) -> Gap {
    Gap { at: Time(at), ms }
}

/// Commits these boxes, and a gap that they count in.
fn commit(store: &mut Store, boxes: &[&Sandbox], gap: Option<Gap>) {
    let record = record();
    let puts = boxes.iter().map(|sandbox| put(sandbox, Some(&record), 1));
    let batch = Batch {
        puts: puts.collect(),
        gap,
        ..Batch::default()
    };
    store.commit(&batch).unwrap();
}

#[test]
fn a_row_is_told_the_gaps_since_it_was_written_also_after_a_restart() {
    let data = tempfile::tempdir().unwrap();
    let mut store = open(data.path());
    let boxes = ["a", "b", "c"].map(|letter| Sandbox {
        id: id(letter),
        ..full(State::Ready)
    });
    let [a, b, c] = &boxes;
    commit(&mut store, &[a, b], None);
    commit(&mut store, &[b], Some(gap(1_000, 100)));
    let missed = |store: &Store| -> Vec<Option<Gap>> {
        load(store).into_iter().map(|row| row.missed).collect()
    };
    assert_eq!(missed(&store), [Some(gap(1_000, 100)), None]);
    drop(store);
    let mut store = open(data.path());
    commit(&mut store, &[c], Some(gap(2_000, 30)));
    assert_eq!(
        missed(&store),
        [Some(gap(1_030, 130)), Some(gap(2_000, 30)), None]
    );
    commit(&mut store, &[a, b], None);
    assert_eq!(missed(&store), [None, None, None]);
    let count = |store: &Store| -> i64 {
        let sql = "SELECT count(*) FROM gaps";
        store.db.query_row(sql, [], |row| row.get(0)).unwrap()
    };
    assert_eq!(count(&store), 1, "what every row counts in is forgotten");
    drop(store);
    let mut store = open(data.path());
    commit(&mut store, &[a], Some(gap(3_000, 7)));
    let later = Some(gap(3_000, 7));
    assert_eq!(missed(&store), [None, later, later]);
}

#[test]
fn gaps_that_are_counted_in_at_once_move_a_box_as_one_after_the_other_would() {
    // The second mark lies in the first gap, and the third in the second: no mark is moved past the end of a gap.
    let gaps = [gap(1_000, 100), gap(1_500, 50), gap(9_000, 2_000)];
    for used in [500, 950, 999, 1_000] {
        let (mut one_by_one, _) = Sandbox::new(id("a"), Policy::AGENT, Time(used), None);
        let data = tempfile::tempdir().unwrap();
        let mut store = open(data.path());
        commit(&mut store, &[&one_by_one], None);
        for gap in gaps {
            commit(&mut store, &[], Some(gap));
            one_by_one.handle(
                gap.at,
                icebox_lifecycle::Event::Gap {
                    ms: gap.ms,
                    ran: true,
                },
            );
        }
        let row = load(&store).remove(0);
        let (mut at_once, missed) = (row.sandbox, row.missed.unwrap());
        at_once.handle(
            missed.at,
            icebox_lifecycle::Event::Gap {
                ms: missed.ms,
                ran: true,
            },
        );
        assert_eq!(at_once, one_by_one, "used at {used}");
    }
}

#[test]
fn the_last_reasons_are_kept_and_go_with_their_box() {
    let data = tempfile::tempdir().unwrap();
    let mut store = open(data.path());
    let reasons: Vec<Reason> = (0..120)
        .map(|at| Reason {
            at: Time(at),
            rule: "4.1",
            text: format!("reason {at}"),
        })
        .collect();
    for reason in &reasons {
        let batch = Batch {
            reasons: vec![(id("a"), reason)],
            ..Batch::default()
        };
        store.commit(&batch).unwrap();
    }
    let reader = store.reader().unwrap();
    let why = reader.why(id("a")).unwrap();
    let texts: Vec<i64> = why.iter().map(|why| why.at.0).collect();
    assert_eq!(texts, (70..120).collect::<Vec<_>>());
    let batch = Batch {
        removed: vec![id("a")],
        ..Batch::default()
    };
    store.commit(&batch).unwrap();
    assert_eq!(reader.why(id("a")).unwrap(), []);
}

#[test]
fn a_database_of_a_newer_server_is_left_alone() {
    let data = tempfile::tempdir().unwrap();
    let store = open(data.path());
    store.db.pragma_update(None, "user_version", 99).unwrap();
    drop(store);
    let refused = Store::open(data.path()).unwrap_err();
    assert!(
        matches!(refused, StoreError::Newer { found: 99, .. }),
        "{refused}"
    );
}

fn step(at: i64, exec: Option<&str>, error: Option<&str>) -> HistoryStep {
    HistoryStep {
        at: Time(at),
        exec: exec.map(str::to_owned),
        kind: "exec",
        summary: format!("step {at}"),
        note: None,
        detail: None,
        target: None,
        ending: Ending {
            error: error.map(str::to_owned),
            ..Ending::default()
        },
    }
}

#[test]
fn a_busy_box_keeps_few_steps_and_a_repeat_replaces_a_failure_only() {
    let data = tempfile::tempdir().unwrap();
    let mut store = open(data.path());
    let steps = (0..500).map(|at| (id("a"), step(at, None, None)));
    let mut batch = Batch {
        steps: steps.collect(),
        ..Batch::default()
    };
    let repeated = [
        step(7, Some("x"), Some("no")),
        step(8, Some("x"), None),
        step(9, Some("x"), Some("late")),
    ];
    batch
        .steps
        .extend(repeated.into_iter().map(|step| (id("b"), step)));
    store.commit(&batch).unwrap();
    let count: i64 = store
        .db
        .query_row("SELECT count(*) FROM steps", [], |row| row.get(0))
        .unwrap();
    assert_eq!(count, 200 + 1);
    let reader = store.reader().unwrap();
    let shown = reader.steps(id("a"), Time(0)).unwrap();
    let at: Vec<i64> = shown.iter().map(|step| step.at.0).collect();
    assert_eq!(at, (470..500).collect::<Vec<_>>());
    let shown = reader.steps(id("b"), Time(0)).unwrap();
    assert_eq!((shown.len(), &shown[0].ending.error), (1, &None));
}

#[test]
fn a_sweep_takes_what_is_too_old_and_numbers_are_never_used_again() {
    let data = tempfile::tempdir().unwrap();
    let mut store = open(data.path());
    let event = |at: i64| Announced {
        at: Time(at),
        account: AccountId(1),
        id: id("a"),
        kind: "ready".into(),
        rule: Some("2.1"),
        body: "{}".into(),
    };
    let batch = Batch {
        events: [1, 2, 2, 3].map(event).into(),
        steps: [1, 2].map(|at| (id("a"), step(at, None, None))).into(),
        ..Batch::default()
    };
    store.commit(&batch).unwrap();
    let reader = store.reader().unwrap();
    let mut sweep = |from: i64, events: Vec<Announced>| {
        let batch = Batch {
            kept_from: Some(Time(from)),
            ..Batch::default()
        };
        store.commit(&batch).unwrap();
        let batch = Batch {
            events,
            ..Batch::default()
        };
        store.commit(&batch).unwrap();
        let page = reader.events(AccountId(1), 0, 10).unwrap();
        let seqs: Vec<i64> = page.events.iter().map(|event| event.seq).collect();
        (page.oldest, page.newest, seqs)
    };
    assert_eq!(sweep(2, Vec::new()), (2, 4, vec![2, 3, 4]));
    assert_eq!(sweep(9, Vec::new()), (5, 4, vec![]));
    assert_eq!(sweep(9, vec![event(9)]), (5, 5, vec![5]));
    assert_eq!(reader.steps(id("a"), Time(0)).unwrap(), []);
}

#[test]
fn a_database_from_before_there_were_steps_is_brought_up_to_date() {
    let data = tempfile::tempdir().unwrap();
    let store = open(data.path());
    store
        .db
        .execute_batch(
            "DROP TABLE creations; DROP TABLE snapshots; DROP TABLE sessions; DROP TABLE session_links;
             DROP TABLE secrets; DROP TABLE environments; DROP TABLE environment_services; DROP TABLE given;
             DROP TABLE environment_connections;
             DROP TABLE versions; DROP TABLE messages; DROP TABLE feedback;
             DROP TABLE credits; DROP TABLE deliveries; DROP TABLE webhooks; DROP TABLE steps; DROP INDEX events_of;
             DROP TABLE gaps; ALTER TABLE boxes DROP COLUMN gap;
             PRAGMA user_version = 1",
        )
        .unwrap();
    drop(store);
    let mut store = open(data.path());
    let batch = Batch {
        steps: vec![(id("a"), step(1, None, None))],
        ..Batch::default()
    };
    store.commit(&batch).unwrap();
    let reader = store.reader().unwrap();
    assert_eq!(reader.steps(id("a"), Time(0)).unwrap().len(), 1);
}
