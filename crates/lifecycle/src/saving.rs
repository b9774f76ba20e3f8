//! Snapshots of a box: what one is made of is copied while the box stands still. Owns when that is; what becomes of the
//! snapshot is not the box's business.

use crate::admit::{Admission, Refusal};
use crate::effect::Effect;
use crate::id::{CopyId, SnapshotId};
use crate::policy::Keeps;
use crate::sandbox::Sandbox;
use crate::state::{FreezeCause, State};
use crate::time::Time;
use crate::turn::Turn;

/// A snapshot that somebody wants of a box.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Save {
    /// What to call it.
    pub snapshot: SnapshotId,
    /// With the memory; otherwise the files alone.
    pub memory: bool,
}

/// Whether one can be made at this moment.
pub(crate) fn admit(sb: &Sandbox, now: Time, memory: bool) -> Result<Admission, Refusal> {
    match &sb.state {
        State::Ready => Ok(Admission::Accept),
        // A freeze that is under way does for it as well, if it writes what is wanted.
        State::Freezing { save, ram_only, .. } => Ok(if save.is_some() || (memory && *ram_only) {
            Admission::Wait
        } else {
            Admission::Accept
        }),
        State::Frozen(frozen) => {
            if memory && frozen.copy.is_none() {
                let error = frozen.snapshot_error.clone();
                return Err(Refusal::NoMemory { error });
            }
            Ok(Admission::Accept)
        }
        State::Starting { .. } | State::Thawing { .. } | State::Releasing { .. } => {
            Ok(Admission::Wait)
        }
        State::Interrupted {
            files_until: Some(until),
            op,
            ..
        } if !memory && now < *until => Ok(op.map_or(Admission::Accept, |_| Admission::Wait)),
        State::Interrupted { .. } | State::Stopping { .. } | State::Terminated { .. } => {
            sb.live(now).map(|()| Admission::Wait)
        }
    }
}

/// A call asked for it. Admission has made sure that it can be.
pub(crate) fn asked(turn: &mut Turn<'_>, save: Save) {
    match &mut turn.sb.state {
        State::Ready => {
            turn.because("2.1", "a call asked for a snapshot of it");
            // Whoever wants files alone needs no copy of the memory for that; but if the box may not run on afterwards, what
            // its policy keeps must be there.
            let ram_only = !save.memory && turn.sb.policy.keeps == Keeps::Files;
            turn.start_freeze(FreezeCause::Asked, ram_only, true);
            goes_on(turn, Some(save));
        }
        State::Freezing { save: wanted, .. } => {
            *wanted = Some(save);
            turn.promise();
        }
        State::Frozen(frozen) => {
            let copy = frozen.copy;
            stands(turn, Some(save), copy);
        }
        State::Interrupted { .. } => stands(turn, Some(save), None),
        State::Starting { .. }
        | State::Thawing { .. }
        | State::Releasing { .. }
        | State::Stopping { .. }
        | State::Terminated { .. } => {}
    }
}

/// The freeze that a snapshot waits for has begun, perhaps anew.
pub(crate) fn goes_on(turn: &mut Turn<'_>, wanted: Option<Save>) {
    if let State::Freezing { save, .. } = &mut turn.sb.state {
        *save = wanted;
    }
}

/// It stands still, with this good copy: the moment for a snapshot that somebody waits for. What was asked for later is done
/// later, so the box does not run before it is made. Nothing comes of one whose memory could not be copied.
pub(crate) fn stands(turn: &mut Turn<'_>, save: Option<Save>, copy: Option<CopyId>) {
    let Some(Save { snapshot, memory }) = save else {
        return;
    };
    if memory && copy.is_none() {
        return;
    }
    turn.effect(Effect::Save {
        snapshot,
        copy: copy.filter(|_| memory),
    });
}
