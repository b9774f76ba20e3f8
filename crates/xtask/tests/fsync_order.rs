//! Rule 4.9: a freeze becomes durable in one order, and memory is released last; read from the trace that
//! the server writes of its own fsyncs.

use std::fs;

use serde_json::json;
use xtask::harness::Instance;

/// What the trace must hold after a freeze was asked for, in this order; other lines may stand between.
const FREEZE: &[&str] = &[
    "step freeze.stopped",
    "step freeze.disconnected",
    "step freeze.dumped",
    "syncfs boxes/<id>/upper",
    "fsync boxes/<id>/copies/<n>.tmp/manifest.json",
    "fsync-dir boxes/<id>/copies/<n>.tmp",
    "rename boxes/<id>/copies/<n>",
    "fsync-dir boxes/<id>/copies",
    "step freeze.renamed",
    "commit icebox.db",
    "step evict.killed",
];

/// And after a thaw: "no copy" is on record before the box may run.
const THAW: &[&str] = &[
    "step thaw.restored",
    "commit icebox.db",
    "step release.begun",
    "step release.running",
];

#[test]
fn box_4_9_freeze_and_thaw_become_durable_in_order() {
    let mut instance = Instance::new("fsync-order", false).expect("a data folder");
    let trace = instance.data.join("steps.trace");
    let trace_text = trace.to_string_lossy().into_owned();
    instance
        .start(&[("ICEBOX_STEP_TRACE", &trace_text)])
        .expect("a server");
    let id = instance.start_box(json!({})).expect("a box");
    for (act, order) in [("freeze", FREEZE), ("wake", THAW)] {
        fs::write(&trace, "").expect("begin a new trace");
        instance
            .post(&format!("/v1/boxes/{id}/{act}"), json!({}))
            .expect(act);
        if act == "freeze" {
            // Giving the memory back comes after the answer.
            xtask::harness::until(std::time::Duration::from_secs(30), || {
                Ok(fs::read_to_string(&trace)?
                    .contains("step evict.unmounted")
                    .then_some(()))
            })
            .expect("the memory is given back");
        }
        let text = fs::read_to_string(&trace).expect("read the trace");
        let seen = normal(&text, &instance.data.to_string_lossy(), &id);
        let mut rest = seen.iter();
        for line in order {
            assert!(
                rest.any(|l| l == line),
                "{act}: {line:?} is missing or late in\n{}",
                seen.join("\n")
            );
        }
    }
    instance
        .post(&format!("/v1/boxes/{id}/stop"), json!({}))
        .expect("stop");
}

/// The trace with the names of this run taken out.
fn normal(text: &str, data: &str, id: &str) -> Vec<String> {
    let data = fs::canonicalize(data)
        .expect("the data folder")
        .to_string_lossy()
        .into_owned();
    let lines = text.lines().map(|line| {
        let line = line.replace(&format!("{data}/"), "").replace(id, "<id>");
        match line.split_once("/copies/") {
            Some((before, after)) => {
                let rest = after.trim_start_matches(|c: char| c.is_ascii_digit());
                format!("{before}/copies/<n>{rest}")
            }
            None => line,
        }
    });
    lines.collect()
}
