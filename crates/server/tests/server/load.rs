//! A rough measure, not a benchmark: many frozen boxes are cheap, and the loop keeps up.

use std::net::Ipv4Addr;
use std::sync::Arc;

use futures_util::StreamExt as _;
use icebox_lifecycle::{
    BoxId, Command, CopyId, Event, Outcome, Policy, Processes, Sandbox, Seen, SnapshotId, Time,
};
use icebox_server::boxd::Boxds;
use icebox_server::clock::Clock;
use icebox_server::driver::fake::Fake;
use icebox_server::driver::{
    BoxSpec, Capabilities, Counters, Driver, DriverError, Egress, FreezeMode, Listener,
    NoConnection, NoListener, Reaches, Stream,
};
use icebox_server::engine::{Engine, Parts};
use icebox_server::store::{Batch, Put, Store};
use serde_json::json;

use crate::rig::{MIN, Rig};

fn resident_kb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmRSS:"))
        .unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[tokio::test]
async fn a_thousand_frozen_boxes_are_cheap_and_freeze_in_one_advance() {
    const BOXES: usize = 1_000;
    let rig = Arc::new(
        Rig::with(icebox_server::config::Limits {
            running_boxes: BOXES,
            memory_mb: Some(1 << 30),
            cpus: Some(1e6),
            ..icebox_server::config::Limits::default()
        })
        .await,
    );
    let before_kb = resident_kb();
    let starts = (0..BOXES).map(|_| {
        let client = rig.client();
        async move { client.post("/v1/boxes", json!({})).await.expect(201) }
    });
    let started: Vec<_> = futures_util::stream::iter(starts)
        .buffer_unordered(32)
        .collect()
        .await;
    assert_eq!(started.len(), BOXES);
    rig.advance(10 * MIN).await;
    let host = rig.get("/v1/host").await.expect(200);
    assert_eq!(host["boxes"], json!({ "frozen": BOXES }));
    let grown_kb = resident_kb().saturating_sub(before_kb);
    println!("{BOXES} frozen boxes: {grown_kb} KiB more, the fake world included");
    assert!(grown_kb < 64 * 1024, "{grown_kb} KiB");
}

#[tokio::test]
async fn a_call_is_written_once_with_its_end() {
    const CALLS: u64 = 200;
    let rig = Rig::new().await;
    let id = rig.ready_box().await;
    let counters = rig.engine().counters();
    let commits = counters.commits();
    for _ in 0..CALLS {
        rig.exec(id, "true").await.expect(200);
    }
    rig.engine().settled().await;
    let commits = counters.commits() - commits;
    // A machine that is slow for a moment writes the beginning of a call by itself.
    let most = CALLS + CALLS / 2;
    assert!((CALLS..=most).contains(&commits), "{commits} commits");
}

#[tokio::test]
async fn the_use_that_a_call_is_survives_the_end_of_the_server() {
    let mut rig = Rig::new().await;
    let id = rig.ready_box().await;
    rig.advance(5 * MIN).await;
    let client = rig.client();
    drop(tokio::spawn(async move {
        client.exec(id, json!({ "cmd": "hang" })).await;
    }));
    rig.until_running(id).await;
    let used = rig.status(id).await["lastUsedAt"].clone();
    rig.restart().await;
    assert!(rig.status(id).await["lastUsedAt"].as_str() >= used.as_str());
}

/// A host with nothing but frozen boxes on disk.
struct AllFrozen(Vec<icebox_lifecycle::BoxId>);

#[async_trait::async_trait]
impl Driver for AllFrozen {
    fn capabilities(&self) -> Capabilities {
        Fake::new().capabilities()
    }
    async fn boot(&self, _: &BoxSpec, _: bool) -> Result<Reaches, DriverError> {
        Err(DriverError::Failed("not here".into()))
    }
    async fn freeze(&self, _: BoxId, _: FreezeMode) -> Result<(), DriverError> {
        Err(DriverError::Failed("not here".into()))
    }
    async fn evict(&self, _: BoxId, _: CopyId) -> Result<(), DriverError> {
        Ok(())
    }
    async fn thaw(&self, _: BoxId, _: CopyId) -> Result<(), DriverError> {
        Err(DriverError::Failed("not here".into()))
    }
    async fn release(&self, _: BoxId, _: &Egress) -> Result<Reaches, DriverError> {
        Err(DriverError::Failed("not here".into()))
    }

    async fn reach(&self, _: BoxId, _: &Egress) -> Result<Reaches, DriverError> {
        Err(DriverError::Failed("not here".into()))
    }
    async fn renew(&self, _: BoxId) -> Result<(), DriverError> {
        Ok(())
    }
    async fn destroy(&self, _: BoxId, _: bool) -> Result<(), DriverError> {
        Ok(())
    }
    async fn drop_copy(&self, _: BoxId, _: CopyId) -> Result<(), DriverError> {
        Ok(())
    }

    async fn save(&self, _: BoxId, _: Option<CopyId>, _: SnapshotId) -> Result<u64, DriverError> {
        Err(DriverError::Failed("nothing is saved here".to_owned()))
    }

    async fn drop_snapshot(&self, _: SnapshotId) -> Result<(), DriverError> {
        Ok(())
    }

    async fn snapshots(&self) -> Result<Vec<SnapshotId>, DriverError> {
        Ok(Vec::new())
    }
    async fn list(&self) -> Result<Vec<(BoxId, Seen)>, DriverError> {
        let seen = |id: &BoxId| {
            let seen = Seen {
                processes: Processes::Absent,
                copy: Some(CopyId(1)),
                detail: "".into(),
            };
            (*id, seen)
        };
        Ok(self.0.iter().map(seen).collect())
    }
    async fn usage(&self, _: BoxId, _: bool) -> Result<Counters, DriverError> {
        Err(DriverError::Failed("not here".into()))
    }
    async fn exited(&self, _: BoxId) -> Result<String, DriverError> {
        std::future::pending().await
    }
    async fn connect(&self, _: BoxId, _: u16) -> Result<Stream, NoConnection> {
        Err(NoConnection::Unreachable("not here".into()))
    }
    async fn listen(&self, _: BoxId, _: Ipv4Addr, _: u16) -> Result<Box<dyn Listener>, NoListener> {
        Err(NoListener::Unreachable("not here".into()))
    }
}

/// Rows of frozen boxes, all of one account, used one second after the other.
fn fill(store: &mut Store, count: usize) -> Vec<BoxId> {
    let ids: Vec<BoxId> = (0..count)
        .map(|_| icebox_server::random::box_id())
        .collect();
    let record = icebox_server::record::Record {
        account: icebox_server::record::AccountId(1),
        name: Some("measured".into()),
        goal: Some("a box to be counted".into()),
        image: "host".into(),
        size: icebox_server::record::Size {
            milli_cpus: 1_000,
            memory_mb: 512,
            disk_gb: 1,
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
    for some in ids.chunks(10_000) {
        let boxes: Vec<Sandbox> = some
            .iter()
            .enumerate()
            .map(|(n, id)| frozen(*id, i64::try_from(n).unwrap() * 1_000))
            .collect();
        let mut batch = Batch::default();
        batch.puts.extend(boxes.iter().map(|sandbox| Put {
            sandbox,
            record: Some(&record),
            account: record.account,
            generation: 1,
            recorded_at: sandbox.last_use,
            status: "frozen",
            deadline: sandbox.next_deadline(),
        }));
        store.commit(&batch).unwrap();
    }
    ids
}

fn frozen(id: BoxId, used_ms: i64) -> Sandbox {
    let begin = START + used_ms;
    let (mut sandbox, _) = Sandbox::new(id, Policy::AGENT, begin, None);
    done(&mut sandbox, begin, 1);
    sandbox.handle(begin, Event::Command(Command::Freeze));
    done(&mut sandbox, begin, 2);
    done(&mut sandbox, begin, 3);
    sandbox
}

/// Its operation of this number was done.
fn done(sandbox: &mut Sandbox, now: Time, op: u64) {
    let outcome = Event::Outcome {
        op: icebox_lifecycle::OpId(op),
        outcome: Outcome::Done,
    };
    sandbox.handle(now, outcome);
}

const START: Time = Time(1_700_000_000_000);

#[tokio::test]
async fn many_records_are_loaded_quickly_and_lists_do_not_care_how_many() {
    let count: usize = std::env::var("ICEBOX_TEST_BOXES").map_or(10_000, |n| n.parse().unwrap());
    let dir = tempfile::tempdir().unwrap();
    let mut store = Store::open(dir.path()).unwrap();
    let clock = Clock::test(START + 60_000_000);
    store.keys(dir.path(), clock.now()).unwrap();
    let ids = fill(&mut store, count);
    let file = std::fs::metadata(dir.path().join("icebox.db"))
        .unwrap()
        .len();
    let before_kb = resident_kb();
    let driver: Arc<dyn Driver> = Arc::new(AllFrozen(ids));
    let parts = Parts {
        store,
        clock,
        boxds: Arc::new(Boxds::new(Arc::clone(&driver))),
        driver,
        limits: Default::default(),
        prices: Default::default(),
    };
    #[expect(
        clippy::disallowed_methods,
        reason = "measures how long something took"
    )]
    let begin = std::time::Instant::now();
    let engine = Engine::start(parts).await.unwrap();
    let started = begin.elapsed();
    let grown_kb = resident_kb().saturating_sub(before_kb);
    #[expect(
        clippy::disallowed_methods,
        reason = "measures how long something took"
    )]
    let begin = std::time::Instant::now();
    let page = engine
        .views()
        .list(icebox_server::record::AccountId(1), false, None, 100);
    let listed = begin.elapsed();
    assert_eq!(page.len(), 100.min(count));
    let used: Vec<Time> = page.iter().map(|view| view.sandbox.last_use).collect();
    assert!(used.is_sorted_by(|a, b| a >= b), "most recently used first");
    println!(
        "{count} records: {} B each on disk, {} B each in memory, loaded in {started:?}, 100 listed in {listed:?}",
        file / count as u64,
        grown_kb * 1024 / count as u64
    );
    assert!(grown_kb * 1024 / (count as u64) < 4096, "{grown_kb} KiB");
    engine.shut_down().await;
}
