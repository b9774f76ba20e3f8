//! What every driver must do, as one suite of cases. The fake passes it in memory, real ones on real boxes.
//!
//! Owns the cases and nothing of any driver: a look into a box goes through [`Inside`].

mod reach;
mod renew;
mod snapshots;

use std::net::Ipv4Addr;

use async_trait::async_trait;
use icebox_lifecycle::{BoxId, CopyId, Processes, Seen};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::{
    BOXD_PORT, BoxSpec, Driver, DriverError, Egress, FreezeMode, NoListener, Origin, Size, Stream,
};

pub use snapshots::clean;

/// How a case looks into a box and leaves marks there.
#[async_trait]
pub trait Inside: Send + Sync {
    /// Writes a file in the box.
    async fn write_file(&self, id: BoxId, name: &str, content: &str);
    /// Reads it back; `None` when it is not there.
    async fn read_file(&self, id: BoxId, name: &str) -> Option<String>;
    /// Starts a program that keeps this word in its memory only, and goes on running.
    async fn remember(&self, id: BoxId, word: &str);
    /// Asks that program for its word; `None` when it does not run.
    async fn recall(&self, id: BoxId) -> Option<String>;
    /// Whether a program in the box has an answer from there.
    async fn reaches(&self, id: BoxId, address: Ipv4Addr) -> bool;
    /// What is left outside of boxes for what they reach: links, rules, networks, a line each.
    async fn left(&self) -> Vec<String>;
}

/// A driver and the way into its boxes.
pub struct Subject<'a> {
    /// The driver under test.
    pub driver: &'a dyn Driver,
    /// The way into its boxes.
    pub inside: &'a dyn Inside,
}

/// Every case by name; a test runner makes one test of each, or runs them one after the other.
pub const CASES: &[&str] = &[
    "boot_begins_anew_unless_files_are_kept",
    "freeze_leaves_a_standing_box_and_a_copy",
    "evict_needs_a_complete_copy",
    "thaw_brings_memory_and_files_back",
    "ten_rounds_lose_nothing",
    "ram_freeze_and_release",
    "cold_boot_keeps_files_only",
    "destroy_works_in_every_state",
    "connections_end_with_a_freeze",
    "what_is_listened_for_in_a_box_ends_with_a_freeze",
    "exited_tells_of_the_end",
    "unknown_boxes_are_gone",
    "a_running_box_is_never_thawed_over",
    "a_renewed_box_goes_on",
    "a_snapshot_holds_files_and_memory",
    "a_snapshot_of_files_boots_cold",
    "a_snapshot_needs_a_box_that_stands_still",
    "what_is_reached_changes_while_it_runs",
    "what_is_reached_is_as_asked_after_a_freeze",
    "a_fork_reaches_what_it_may_itself",
    "nothing_is_left_of_what_was_reached",
];

/// Runs one case on a box of its own.
///
/// # Panics
/// When the driver does not do what the case says, or the name is not in [`CASES`].
pub async fn run(subject: &Subject<'_>, case: &str, id: BoxId) {
    match case {
        "boot_begins_anew_unless_files_are_kept" => subject.boot_begins_anew(id).await,
        "freeze_leaves_a_standing_box_and_a_copy" => subject.freeze_leaves_a_standing_box(id).await,
        "evict_needs_a_complete_copy" => subject.evict_needs_a_copy(id).await,
        "thaw_brings_memory_and_files_back" => subject.thaw_brings_all_back(id).await,
        "ten_rounds_lose_nothing" => subject.ten_rounds(id).await,
        "ram_freeze_and_release" => subject.ram_freeze(id).await,
        "cold_boot_keeps_files_only" => subject.cold_boot(id).await,
        "destroy_works_in_every_state" => subject.destroy_everywhere(id).await,
        "connections_end_with_a_freeze" => subject.connections_end(id).await,
        "what_is_listened_for_in_a_box_ends_with_a_freeze" => subject.listeners_end(id).await,
        "exited_tells_of_the_end" => subject.exited(id).await,
        "unknown_boxes_are_gone" => subject.unknown_boxes(id).await,
        "a_running_box_is_never_thawed_over" => subject.never_thawed_over(id).await,
        "a_renewed_box_goes_on" => subject.renewed(id).await,
        "a_snapshot_holds_files_and_memory" => subject.snapshot_with_memory(id).await,
        "a_snapshot_of_files_boots_cold" => subject.snapshot_of_files(id).await,
        "a_snapshot_needs_a_box_that_stands_still" => subject.snapshot_when(id).await,
        "what_is_reached_changes_while_it_runs" => subject.reach_changes(id).await,
        "what_is_reached_is_as_asked_after_a_freeze" => subject.reach_after_freeze(id).await,
        "a_fork_reaches_what_it_may_itself" => subject.reach_of_fork(id).await,
        "nothing_is_left_of_what_was_reached" => subject.reach_leaves_nothing(id).await,
        unknown => panic!("no case {unknown}"),
    }
    clean(subject.driver, id).await;
    assert_eq!(subject.seen(id).await, None, "something of the box is left");
    subject.driver.leave().await;
    assert_eq!(subject.inside.left().await, Vec::<String>::new());
}

const FIRST: CopyId = CopyId(1);
const SECOND: CopyId = CopyId(2);

/// Whether what is said at one end is heard at the other.
async fn carries(from: &mut Stream, to: &mut Stream) {
    let mut heard = [0; 4];
    from.write_all(b"word").await.expect("write");
    to.read_exact(&mut heard).await.expect("read");
    assert_eq!(&heard, b"word");
}

impl Subject<'_> {
    async fn boot_begins_anew(&self, id: BoxId) {
        self.booted(id).await;
        self.inside.write_file(id, "mark", "one").await;
        self.boot(id, true)
            .await
            .expect("boot again with files kept");
        assert_eq!(
            self.inside.read_file(id, "mark").await.as_deref(),
            Some("one")
        );
        self.boot(id, false).await.expect("boot anew");
        assert_eq!(self.inside.read_file(id, "mark").await, None);
    }

    async fn freeze_leaves_a_standing_box(&self, id: BoxId) {
        self.booted(id).await;
        self.driver
            .freeze(id, FreezeMode::Copy(FIRST))
            .await
            .expect("freeze");
        self.expect(id, Processes::Stopped, Some(FIRST)).await;
        self.driver
            .freeze(id, FreezeMode::Copy(FIRST))
            .await
            .expect("the same freeze again");
        self.expect(id, Processes::Stopped, Some(FIRST)).await;
        self.driver
            .release(id, &Egress::default())
            .await
            .expect("release");
        self.driver
            .drop_copy(id, FIRST)
            .await
            .expect("drop the copy");
        self.expect(id, Processes::Running, None).await;
        self.driver
            .drop_copy(id, FIRST)
            .await
            .expect("drop it again");
    }

    async fn evict_needs_a_copy(&self, id: BoxId) {
        self.booted(id).await;
        self.inside.remember(id, "kept").await;
        self.driver
            .freeze(id, FreezeMode::RamOnly)
            .await
            .expect("freeze in RAM");
        let refused = self.driver.evict(id, FIRST).await;
        assert!(
            matches!(refused, Err(DriverError::Refused(_))),
            "{refused:?}"
        );
        self.expect(id, Processes::Stopped, None).await;
        self.driver
            .release(id, &Egress::default())
            .await
            .expect("release");
        assert_eq!(self.inside.recall(id).await.as_deref(), Some("kept"));
    }

    async fn thaw_brings_all_back(&self, id: BoxId) {
        self.booted(id).await;
        self.inside.write_file(id, "mark", "on disk").await;
        self.inside.remember(id, "in memory").await;
        self.frozen_to_disk(id, FIRST).await;
        self.driver.evict(id, FIRST).await.expect("evict again");
        self.driver.thaw(id, FIRST).await.expect("thaw");
        self.expect(id, Processes::Stopped, Some(FIRST)).await;
        self.driver
            .thaw(id, FIRST)
            .await
            .expect("the same thaw again");
        self.driver
            .release(id, &Egress::default())
            .await
            .expect("release");
        self.driver
            .release(id, &Egress::default())
            .await
            .expect("the same release again");
        assert_eq!(
            self.inside.read_file(id, "mark").await.as_deref(),
            Some("on disk")
        );
        assert_eq!(self.inside.recall(id).await.as_deref(), Some("in memory"));
    }

    async fn ten_rounds(&self, id: BoxId) {
        self.booted(id).await;
        self.inside.remember(id, "all along").await;
        for round in 1..=10_u32 {
            let name = format!("round-{round}");
            self.inside.write_file(id, &name, &name).await;
            let copy = CopyId(round);
            self.frozen_to_disk(id, copy).await;
            self.driver.thaw(id, copy).await.expect("thaw");
            self.driver
                .release(id, &Egress::default())
                .await
                .expect("release");
            self.driver
                .drop_copy(id, copy)
                .await
                .expect("drop the copy");
            for earlier in 1..=round {
                let name = format!("round-{earlier}");
                assert_eq!(
                    self.inside.read_file(id, &name).await,
                    Some(name.clone()),
                    "{round}"
                );
            }
            assert_eq!(
                self.inside.recall(id).await.as_deref(),
                Some("all along"),
                "{round}"
            );
        }
    }

    async fn ram_freeze(&self, id: BoxId) {
        self.booted(id).await;
        self.inside.remember(id, "warm").await;
        self.driver
            .freeze(id, FreezeMode::RamOnly)
            .await
            .expect("freeze in RAM");
        self.driver
            .freeze(id, FreezeMode::RamOnly)
            .await
            .expect("again");
        self.expect(id, Processes::Stopped, None).await;
        self.driver
            .release(id, &Egress::default())
            .await
            .expect("release");
        self.expect(id, Processes::Running, None).await;
        assert_eq!(self.inside.recall(id).await.as_deref(), Some("warm"));
    }

    async fn cold_boot(&self, id: BoxId) {
        self.booted(id).await;
        self.inside.write_file(id, "mark", "kept").await;
        self.inside.remember(id, "lost").await;
        self.frozen_to_disk(id, FIRST).await;
        self.boot(id, true).await.expect("cold boot");
        assert_eq!(
            self.inside.read_file(id, "mark").await.as_deref(),
            Some("kept")
        );
        assert_eq!(self.inside.recall(id).await, None);
        // One that was left its files alone is like any other once it booted.
        let left = self.driver.destroy(id, true).await;
        left.expect("end all but its files");
        self.boot(id, true).await.expect("another cold boot");
        self.inside.remember(id, "found").await;
        self.frozen_to_disk(id, SECOND).await;
        self.driver.thaw(id, SECOND).await.expect("thaw");
        let none = Egress::default();
        self.driver.release(id, &none).await.expect("release");
        assert_eq!(self.inside.recall(id).await.as_deref(), Some("found"));
    }

    async fn destroy_everywhere(&self, id: BoxId) {
        self.booted(id).await;
        self.destroyed(id).await;
        self.booted(id).await;
        self.driver
            .freeze(id, FreezeMode::RamOnly)
            .await
            .expect("freeze in RAM");
        self.destroyed(id).await;
        self.booted(id).await;
        self.frozen_to_disk(id, FIRST).await;
        self.destroyed(id).await;
        self.booted(id).await;
        self.inside.write_file(id, "mark", "kept").await;
        self.frozen_to_disk(id, SECOND).await;
        self.driver.thaw(id, SECOND).await.expect("thaw");
        self.driver
            .destroy(id, true)
            .await
            .expect("destroy all but the files");
        self.expect(id, Processes::Absent, None).await;
        self.boot(id, true).await.expect("boot on the kept files");
        assert_eq!(
            self.inside.read_file(id, "mark").await.as_deref(),
            Some("kept")
        );
    }

    async fn connections_end(&self, id: BoxId) {
        self.booted(id).await;
        let mut open = self.driver.connect(id, BOXD_PORT).await.expect("connect");
        self.driver
            .freeze(id, FreezeMode::RamOnly)
            .await
            .expect("freeze");
        let read = open.read(&mut [0_u8; 1]).await;
        assert!(matches!(read, Ok(0) | Err(_)), "{read:?}");
        assert!(
            self.driver.connect(id, BOXD_PORT).await.is_err(),
            "connected to a frozen box"
        );
        self.driver
            .release(id, &Egress::default())
            .await
            .expect("release");
        drop(
            self.driver
                .connect(id, BOXD_PORT)
                .await
                .expect("connect again"),
        );
    }

    async fn listeners_end(&self, id: BoxId) {
        const PORT: u16 = 4_321;
        let listen = || self.driver.listen(id, Ipv4Addr::LOCALHOST, PORT);
        let refused = listen().await.err();
        assert!(
            matches!(refused, Some(NoListener::Unreachable(_))),
            "{refused:?}"
        );
        self.booted(id).await;
        let mut listener = listen().await.expect("listen");
        let taken = listen().await.err();
        assert_eq!(taken, Some(NoListener::Taken(PORT)));
        let mut inside = self.driver.connect(id, PORT).await.expect("connect");
        let mut taken = listener.accept().await.expect("accept");
        carries(&mut inside, &mut taken).await;
        carries(&mut taken, &mut inside).await;
        self.driver
            .freeze(id, FreezeMode::Copy(FIRST))
            .await
            .expect("freeze");
        for open in [&mut inside, &mut taken] {
            let read = open.read(&mut [0; 1]).await;
            assert!(matches!(read, Ok(0) | Err(_)), "{read:?}");
        }
        assert!(listener.accept().await.is_err(), "it takes no more");
        let refused = listen().await.err();
        assert!(
            matches!(refused, Some(NoListener::Unreachable(_))),
            "{refused:?}"
        );
        self.driver.evict(id, FIRST).await.expect("evict");
        self.driver.thaw(id, FIRST).await.expect("thaw");
        let none = Egress::default();
        self.driver.release(id, &none).await.expect("release");
        drop(listener);
        let mut listener = listen().await.expect("listen again");
        let (inside, taken) = tokio::join!(self.driver.connect(id, PORT), listener.accept());
        drop((inside.expect("connect again"), taken.expect("accept again")));
        drop(listener);
        drop(
            listen()
                .await
                .expect("one that was dropped leaves its port"),
        );
    }

    async fn exited(&self, id: BoxId) {
        self.booted(id).await;
        let (told, destroyed) =
            tokio::join!(self.driver.exited(id), self.driver.destroy(id, false));
        destroyed.expect("destroy");
        assert!(!told.expect("watch").is_empty());
    }

    async fn unknown_boxes(&self, id: BoxId) {
        fn gone<T>(result: Result<T, DriverError>) -> bool {
            matches!(result, Err(DriverError::Gone(_)))
        }
        assert!(gone(self.driver.freeze(id, FreezeMode::Copy(FIRST)).await));
        assert!(gone(self.driver.thaw(id, FIRST).await));
        assert!(gone(self.driver.release(id, &Egress::default()).await));
        assert!(self.driver.connect(id, BOXD_PORT).await.is_err());
        self.driver
            .drop_copy(id, FIRST)
            .await
            .expect("drop a copy that is not there");
        self.booted(id).await;
        assert!(gone(self.driver.thaw(id, SECOND).await));
        self.expect(id, Processes::Running, None).await;
    }

    async fn never_thawed_over(&self, id: BoxId) {
        self.booted(id).await;
        self.inside.remember(id, "before").await;
        self.frozen_to_disk(id, FIRST).await;
        self.driver.thaw(id, FIRST).await.expect("thaw");
        self.driver
            .release(id, &Egress::default())
            .await
            .expect("release");
        self.inside.write_file(id, "mark", "after").await;
        let refused = self.driver.thaw(id, FIRST).await;
        assert!(
            matches!(refused, Err(DriverError::Refused(_))),
            "{refused:?}"
        );
        assert_eq!(
            self.inside.read_file(id, "mark").await.as_deref(),
            Some("after")
        );
        assert_eq!(self.inside.recall(id).await.as_deref(), Some("before"));
    }

    async fn booted(&self, id: BoxId) {
        self.boot(id, false).await.expect("boot");
        self.expect(id, Processes::Running, None).await;
    }

    async fn boot(&self, id: BoxId, keep_files: bool) -> Result<(), DriverError> {
        let booted = self.driver.boot(&spec(id, None), keep_files).await;
        booted.map(drop)
    }

    async fn frozen_to_disk(&self, id: BoxId, copy: CopyId) {
        self.driver
            .freeze(id, FreezeMode::Copy(copy))
            .await
            .expect("freeze");
        self.driver.evict(id, copy).await.expect("evict");
        self.expect(id, Processes::Absent, Some(copy)).await;
    }

    async fn destroyed(&self, id: BoxId) {
        self.driver.destroy(id, false).await.expect("destroy");
        self.driver.destroy(id, false).await.expect("destroy again");
        assert_eq!(self.seen(id).await, None, "something of the box is left");
    }

    async fn expect(&self, id: BoxId, processes: Processes, copy: Option<CopyId>) {
        let seen = self.seen(id).await.expect("the driver lists the box");
        assert_eq!((seen.processes, seen.copy), (processes, copy));
    }

    async fn seen(&self, id: BoxId) -> Option<Seen> {
        let listed = self.driver.list().await.expect("list");
        listed
            .into_iter()
            .find(|(listed, _)| *listed == id)
            .map(|(_, seen)| seen)
    }
}

fn spec(id: BoxId, origin: Option<Origin>) -> BoxSpec {
    BoxSpec {
        id,
        image: "host".to_owned(),
        size: Size {
            milli_cpus: 1_000,
            memory_mb: 512,
            disk_gb: 1,
        },
        env: std::collections::BTreeMap::new(),
        egress: Egress::default(),
        origin,
    }
}
