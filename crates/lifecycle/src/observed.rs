//! What becomes of a box when the driver is asked what exists: after a server start, or when a watched process
//! ended. There is no other code for recovery. Owns one answer a state.

use alloc::boxed::Box;

use crate::effect::Effect;
use crate::event::{Processes, Seen};
use crate::id::CopyId;
use crate::rules::{self, freeze_commit};
use crate::saving::{self, Save};
use crate::state::{FreezeCause, Frozen, State};
use crate::turn::Turn;

/// Applies what was seen. Calls and links run through the server, so none of them outlived whatever led to this;
/// a person's hold is a promise with an end of its own and stays.
pub(crate) fn apply(turn: &mut Turn<'_>, seen: Seen) {
    let used = !turn.sb.holds.calls.is_empty() || turn.sb.linked();
    if used {
        turn.used();
    }
    turn.sb.holds.calls.clear();
    turn.sb.holds.links.clear();
    match turn.sb.state {
        State::Starting { keep_files, .. } => turn.boot(keep_files),
        State::Ready => ready(turn, seen),
        State::Freezing {
            copy,
            cause,
            ram_only,
            wake,
            save,
            ..
        } => {
            let freeze = Freeze {
                copy,
                cause,
                ram_only,
                wake,
                save,
            };
            freezing(turn, seen, &freeze);
        }
        State::Frozen(_) => frozen(turn, seen),
        State::Thawing { .. } => thawing(turn, seen),
        State::Releasing { failures, wake, .. } => releasing(turn, seen, failures, wake),
        State::Stopping { .. } | State::Terminated { .. } => rules::teardown::again(turn, &seen),
        State::Interrupted { .. } => rules::interrupted::again(turn),
    }
}

/// What to say when nothing is known of an end.
fn detail(seen: Seen) -> Box<str> {
    if seen.detail.is_empty() {
        "its processes were gone when the server looked".into()
    } else {
        seen.detail
    }
}

fn ready(turn: &mut Turn<'_>, seen: Seen) {
    drop_outdated(turn, &seen);
    match seen.processes {
        Processes::Running => {}
        Processes::Stopped => turn.release(None, false),
        Processes::Absent => turn.interrupt(detail(seen)),
    }
}

/// A box that runs, or is about to, has no copy on record: one that is there was to be removed when a crash came.
fn drop_outdated(turn: &mut Turn<'_>, seen: &Seen) {
    if let Some(copy) = seen.copy {
        turn.effect(Effect::DropCopy { copy });
    }
}

struct Freeze {
    copy: CopyId,
    cause: FreezeCause,
    ram_only: bool,
    wake: bool,
    save: Option<Save>,
}

/// A complete copy of a box that still stands, or of one that is gone, is good: nothing ran since. Otherwise
/// the freeze is repeated to its end, for a dump cut short may have left connections half repaired.
fn freezing(turn: &mut Turn<'_>, seen: Seen, freeze: &Freeze) {
    let complete = !freeze.ram_only && seen.copy == Some(freeze.copy);
    let resident = match seen.processes {
        Processes::Running => return again(turn, freeze),
        Processes::Stopped if complete => true,
        Processes::Stopped => return again(turn, freeze),
        Processes::Absent if complete || freeze.ram_only => false,
        Processes::Absent => return turn.interrupt(detail(seen)),
    };
    let copy = complete.then_some(freeze.copy);
    saving::stands(turn, freeze.save, copy);
    freeze_commit::commit(turn, freeze.cause, resident, copy, None);
    if freeze.wake && turn.sb.may_wake(turn.now).is_ok() {
        turn.wake();
    }
}

fn again(turn: &mut Turn<'_>, freeze: &Freeze) {
    turn.start_freeze(freeze.cause, freeze.ram_only, freeze.wake);
    saving::goes_on(turn, freeze.save);
    if !freeze.ram_only {
        turn.effect(Effect::DropCopy { copy: freeze.copy });
    }
}

fn frozen(turn: &mut Turn<'_>, seen: Seen) {
    let State::Frozen(frozen) = &turn.sb.state else {
        return;
    };
    let frozen = frozen.clone();
    let copy = frozen.copy.filter(|copy| seen.copy == Some(*copy));
    let files_only = frozen.keeps_files_only();
    let resident = match seen.processes {
        Processes::Running => {
            // Something let it run behind our back: its copy must never be used again.
            turn.start_freeze(frozen.cause, files_only, frozen.wake);
            if let Some(copy) = frozen.copy {
                turn.effect(Effect::DropCopy { copy });
            }
            return;
        }
        Processes::Stopped => true,
        Processes::Absent if copy.is_some() || files_only => false,
        Processes::Absent => return turn.interrupt(detail(seen)),
    };
    let lost = frozen.copy.is_some() && copy.is_none();
    let found = Frozen {
        resident,
        copy,
        snapshot_error: if lost {
            Some("its copy was not there any more".into())
        } else {
            frozen.snapshot_error.clone()
        },
        evicting: None,
        wake: false,
        ..frozen.clone()
    };
    if found != frozen {
        turn.go(State::Frozen(found));
    }
    turn.sb.retry = None;
    if frozen.wake && turn.sb.may_wake(turn.now).is_ok() {
        turn.wake();
    }
}

fn thawing(turn: &mut Turn<'_>, seen: Seen) {
    let State::Thawing { from, retried, .. } = &turn.sb.state else {
        return;
    };
    let (from, retried) = (from.clone(), *retried);
    match seen.processes {
        Processes::Running => turn.release(from.copy, true),
        Processes::Stopped | Processes::Absent => turn.thaw(from, retried),
    }
}

fn releasing(turn: &mut Turn<'_>, seen: Seen, failures: u8, wake: bool) {
    drop_outdated(turn, &seen);
    match seen.processes {
        Processes::Running | Processes::Stopped => {
            turn.sb.retry = None;
            let op = turn.next_op();
            turn.go(State::Releasing { op, failures, wake });
            turn.effect(Effect::Release { op });
        }
        Processes::Absent => turn.interrupt(detail(seen)),
    }
}
