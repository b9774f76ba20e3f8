//! The crash matrix, each step once: one test for each thing that can be under way.

use xtask::crash::{cells, run_cell};
use xtask::harness::Instance;

/// Runs every cell of one act, one after the other.
fn check(act: &str) {
    let mut instance = Instance::new(&format!("test-{act}"), true).expect("a data folder");
    let cells: Vec<_> = cells().into_iter().filter(|cell| cell.act == act).collect();
    assert!(!cells.is_empty(), "no step of {act}");
    for cell in cells {
        if let Err(error) = run_cell(&mut instance, cell) {
            panic!("{cell:?}: {error:#}");
        }
    }
}

#[test]
fn box_start_survives_a_crash_at_every_step() {
    check("start");
}

#[test]
fn box_freeze_survives_a_crash_at_every_step() {
    check("freeze");
}

#[test]
fn box_thaw_survives_a_crash_at_every_step() {
    check("thaw");
}

#[test]
fn box_restore_survives_a_crash_at_every_step() {
    check("restore");
}

#[test]
fn box_stop_survives_a_crash_at_every_step() {
    check("stop");
}

#[test]
fn box_renew_survives_a_crash_at_every_step() {
    check("renew");
}

#[test]
fn box_begin_survives_a_crash_at_every_step() {
    check("begin");
}

#[test]
fn box_save_survives_a_crash_at_every_step() {
    check("save");
}

#[test]
fn box_unsave_survives_a_crash_at_every_step() {
    check("unsave");
}
