//! The container driver, on real boxes, against the suite that every driver passes.

#[path = "../../xtask/src/outside.rs"]
#[expect(
    dead_code,
    unreachable_pub,
    reason = "it is a module of other tests, which need more of it"
)]
mod outside;

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use icebox_lifecycle::BoxId;
use icebox_server::boxd::Boxds;
use icebox_server::driver::conformance::{self, Inside, Subject};
use icebox_server::driver::container::ContainerDriver;
use icebox_wire::boxd::ExecRequest;

/// A program that keeps a word in its memory only.
const REMEMBERING: &str = include_str!("remembering.py");

const RECALL: &str = "[ -p /run/ask ] && timeout 20 bash -c 'echo >/run/ask; cat /run/answer'";

/// Looks into a box by commands that boxd runs.
struct ByCommands {
    boxds: Boxds,
}

impl ByCommands {
    /// The output of a command, if it ended well.
    async fn run(&self, id: BoxId, cmd: String, background: bool) -> Option<String> {
        // The driver may have closed the connections of the last call: a pool is for one stretch of running.
        self.boxds.forget(id);
        let request = ExecRequest {
            cmd,
            background,
            ..ExecRequest::default()
        };
        let answer = self
            .boxds
            .client(id)
            .exec(request)
            .await
            .expect("boxd answers");
        let result = answer.into_owned().result;
        let ended_well = background || result.proc.exit_code == Some(0);
        ended_well.then(|| {
            String::from_utf8_lossy(&result.stdout_tail)
                .trim()
                .to_owned()
        })
    }
}

#[async_trait]
impl Inside for ByCommands {
    async fn write_file(&self, id: BoxId, name: &str, content: &str) {
        let written = self
            .run(id, format!("echo '{content}' >/work/{name}"), false)
            .await;
        assert!(written.is_some(), "{name} was not written");
    }

    async fn read_file(&self, id: BoxId, name: &str) -> Option<String> {
        self.run(id, format!("cat /work/{name}"), false).await
    }

    async fn remember(&self, id: BoxId, word: &str) {
        let program = format!("exec python3 - '{word}' <<'END'\n{REMEMBERING}END\n");
        self.run(id, program, true).await;
        let ready = "timeout 20 bash -c 'until [ -e /run/remembering ]; do sleep 0.01; done'";
        assert!(
            self.run(id, ready.to_owned(), false).await.is_some(),
            "nothing remembers"
        );
    }

    async fn recall(&self, id: BoxId) -> Option<String> {
        self.run(id, RECALL.to_owned(), false).await
    }

    async fn reaches(&self, id: BoxId, address: Ipv4Addr) -> bool {
        let talk = outside::talk_to(&address.to_string());
        self.run(id, talk, false).await.is_some()
    }

    async fn left(&self) -> Vec<String> {
        outside::left().expect("a look")
    }
}

/// One folder for all cases, so that the image is made once. Boxes of different cases do not meet in it.
fn data() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("box-conformance")
}

/// Runs a case on networks of its own, which its threads inherit.
fn check(case: &str) {
    let _outside = outside::enter().expect("networks of its own (needs root)");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(run(case));
}

async fn run(case: &str) {
    let boxd = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/boxd/boxd");
    let driver = ContainerDriver::open(&data(), &boxd).expect("boxes can run here");
    let driver = Arc::new(driver);
    let inside = ByCommands {
        boxds: Boxds::new(driver.clone()),
    };
    let subject = Subject {
        driver: &*driver,
        inside: &inside,
    };
    let mut random = [0_u8; 20];
    rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty()).expect("random");
    let cleaning = Cleaning {
        driver: driver.clone(),
        id: BoxId::from_random(random),
    };
    conformance::run(&subject, case, cleaning.id).await;
}

/// Removes the box of a case that failed.
struct Cleaning {
    driver: Arc<ContainerDriver>,
    id: BoxId,
}

impl Drop for Cleaning {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        let (driver, id) = (self.driver.clone(), self.id);
        // A thread of its own: this one is inside a runtime that is unwinding.
        let cleaned = std::thread::spawn(move || {
            let runtime = tokio::runtime::Runtime::new().map_err(|e| e.to_string())?;
            runtime.block_on(conformance::clean(&*driver, id));
            Ok::<(), String>(())
        });
        eprintln!("removed box {id}: {:?}", cleaned.join());
    }
}

macro_rules! cases {
    ($($test:ident: $case:literal,)*) => {
        $(#[test]
        fn $test() {
            check($case);
        })*

        #[test]
        fn every_case_is_a_test() {
            let tested = [$($case),*];
            assert_eq!(conformance::CASES, tested);
        }
    };
}

cases! {
    box_boot_begins_anew: "boot_begins_anew_unless_files_are_kept",
    box_freeze_leaves_a_standing_box: "freeze_leaves_a_standing_box_and_a_copy",
    box_evict_needs_a_copy: "evict_needs_a_complete_copy",
    box_thaw_brings_all_back: "thaw_brings_memory_and_files_back",
    box_ten_rounds: "ten_rounds_lose_nothing",
    box_ram_freeze: "ram_freeze_and_release",
    box_cold_boot: "cold_boot_keeps_files_only",
    box_destroy_everywhere: "destroy_works_in_every_state",
    box_connections_end: "connections_end_with_a_freeze",
    box_listeners_end: "what_is_listened_for_in_a_box_ends_with_a_freeze",
    box_exited_tells: "exited_tells_of_the_end",
    box_unknown_is_gone: "unknown_boxes_are_gone",
    box_running_is_never_thawed_over: "a_running_box_is_never_thawed_over",
    box_renewed: "a_renewed_box_goes_on",
    box_snapshot_with_memory: "a_snapshot_holds_files_and_memory",
    box_snapshot_of_files: "a_snapshot_of_files_boots_cold",
    box_snapshot_when: "a_snapshot_needs_a_box_that_stands_still",
    box_reach_changes: "what_is_reached_changes_while_it_runs",
    box_reach_after_freeze: "what_is_reached_is_as_asked_after_a_freeze",
    box_reach_of_fork: "a_fork_reaches_what_it_may_itself",
    box_reach_leaves_nothing: "nothing_is_left_of_what_was_reached",
}
