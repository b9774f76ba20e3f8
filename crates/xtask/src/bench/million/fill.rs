//! The database of the million: boxes as the lifecycle makes them, with records like those of agents, written by the
//! store itself. Owns what the boxes are like.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context;
use icebox_lifecycle::time::{DAY, HOUR, MIN};
use icebox_lifecycle::{
    BoxId, CallId, CallKind, CopyId, Event, Ms, OpId, Outcome, Policy, Reason, Sandbox, Time,
};
use icebox_server::clock::machine_now;
use icebox_server::random;
use icebox_server::record::{AccountId, Leads, Record, Service, Size};
use icebox_server::store::{Announced, Batch, Ending, HistoryStep, Put, Store};

use super::{DUE, DUE_AFTER_MS, host};

/// Boxes that run, on which events come in.
pub(super) const READY: usize = 100;
/// The account that the store makes first.
const ACCOUNT: AccountId = AccountId(1);
/// How long the server was down before it is started.
const DOWN_MS: Ms = 5 * MIN;
/// Boxes written in one commit.
const AT_A_TIME: usize = 10_000;

/// Fills a data folder with so many boxes; gives the size of the database. The first ones are due [`DUE_AFTER_MS`] after
/// the start, the next ones run, all others are frozen for a while yet.
pub(super) fn fill(data: &Path, boxes: usize) -> anyhow::Result<u64> {
    let last_seen = machine_now() - DOWN_MS;
    let mut store = Store::open(data)?;
    store.keys(data, last_seen)?;
    let mut ids: Vec<BoxId> = (0..boxes).map(|_| random::box_id()).collect();
    ids.sort_unstable();
    for (chunk, some) in ids.chunks(AT_A_TIME).enumerate() {
        let made: Vec<Made> = some
            .iter()
            .enumerate()
            .map(|(n, id)| made(*id, chunk * AT_A_TIME + n, last_seen))
            .collect();
        commit(&mut store, &made, last_seen)?;
    }
    drop(store);
    host::write(data, &ids)?;
    let file = std::fs::metadata(data.join("icebox.db")).context("look at the database")?;
    Ok(file.len())
}

/// One box and what is told of it.
struct Made {
    sandbox: Sandbox,
    record: Record,
    reasons: Vec<Reason>,
    recorded_at: Time,
}

fn made(id: BoxId, number: usize, last_seen: Time) -> Made {
    let n = i64::try_from(number).unwrap_or(i64::MAX);
    let ready = (DUE..DUE + READY).contains(&number);
    // A day after its freeze it stops: some a minute after the server was last seen, the others hours later.
    let frozen_at = if number < DUE {
        last_seen - DAY + DUE_AFTER_MS
    } else if ready {
        last_seen
    } else {
        last_seen - HOUR - n * 7_919 % (20 * HOUR)
    };
    let used = if ready {
        last_seen
    } else {
        frozen_at - 10 * MIN
    };
    let began = used - 30 * MIN;
    let agent = format!("{n:08x}-{:04x}-4c1d-9e1f-{:012x}", n % 65_521, n * 48_271);
    let mut policy = Policy::AGENT;
    if number.is_multiple_of(10) && number >= DUE && !ready {
        policy.idle_limit_ms = Some(7 * DAY);
    }
    let (mut sandbox, decision) = Sandbox::new(id, policy, began, Some(agent.into()));
    let mut reasons = decision.reasons;
    let mut take = |at: Time, event: Event| reasons.extend(sandbox.handle(at, event).reasons);
    take(began, done(1));
    let call = CallId(1);
    take(
        used - MIN,
        Event::CallBegan {
            call,
            kind: CallKind::Acts,
            agent: None,
        },
    );
    take(used, Event::CallEnded { call });
    if !ready {
        take(frozen_at, Event::Tick);
        take(frozen_at, done(2));
        take(frozen_at, done(3));
    }
    Made {
        sandbox,
        record: record(n),
        reasons,
        recorded_at: if ready { began } else { frozen_at },
    }
}

/// The copy that a box made here has once it is frozen.
pub(super) const COPY: CopyId = CopyId(1);

fn done(op: u64) -> Event {
    Event::Outcome {
        op: OpId(op),
        outcome: Outcome::Done,
    }
}

/// What agents give their boxes: a goal, often a name, sometimes services, words of their own, variables.
fn record(n: i64) -> Record {
    let some = |every: i64| n % every == 0;
    let mut record = Record {
        account: ACCOUNT,
        name: some(2).then(|| format!("checkout {n}").into()),
        goal: Some(
            format!("Fix the flaky test number {n} in the checkout and open a review").into(),
        ),
        image: "host".into(),
        size: Size {
            milli_cpus: 2_000,
            memory_mb: 2_048,
            disk_gb: 10,
        },
        env: Default::default(),
        metadata: Default::default(),
        services: Vec::new(),
        private: false,
        egress: icebox_server::driver::Egress::default(),
        link_secret: None,
        e2b: None,
        origin: None,
        scene: None,
        runs: None,
    };
    if some(3) {
        record.services.push(Service {
            name: "web".into(),
            port: 3_000,
            web: true,
            leads: Leads::Own,
        });
    }
    if some(4) {
        let words = [
            ("user", format!("u_{n:010}")),
            ("ticket", format!("SHOP-{n}")),
        ];
        let words = words.map(|(key, value)| (key.to_owned(), value));
        record.metadata = BTreeMap::from(words).into();
    }
    if some(10) {
        record.env = BTreeMap::from([("NODE_ENV".to_owned(), "development".to_owned())]).into();
    }
    record
}

fn commit(store: &mut Store, made: &[Made], last_seen: Time) -> anyhow::Result<()> {
    let mut batch = Batch {
        last_seen: Some(last_seen),
        ..Batch::default()
    };
    for one in made {
        let (sandbox, id) = (&one.sandbox, one.sandbox.id);
        let status = sandbox.status().as_str();
        batch.puts.push(Put {
            sandbox,
            record: Some(&one.record),
            account: ACCOUNT,
            generation: 5,
            recorded_at: one.recorded_at,
            status,
            deadline: sandbox.next_deadline(),
        });
        batch
            .reasons
            .extend(one.reasons.iter().map(|reason| (id, reason)));
        batch.events.push(Announced {
            at: one.recorded_at,
            account: ACCOUNT,
            id,
            kind: status.to_owned(),
            rule: Some("4.1"),
            body: r#"{"from":"ready","text":"nothing keeps it awake"}"#.to_owned(),
        });
        batch.steps.push((id, step(sandbox.created_at)));
    }
    store.commit(&batch).context("write boxes")
}

fn step(at: Time) -> HistoryStep {
    HistoryStep {
        at,
        exec: None,
        kind: "start",
        summary: "Fix the flaky test in the checkout and open a review".to_owned(),
        note: None,
        detail: None,
        target: None,
        ending: Ending {
            ms: Some(412),
            ..Ending::default()
        },
    }
}
