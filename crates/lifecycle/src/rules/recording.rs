//! Rule 4.4: recordings. Owns how long one holds a box, and its end.

use core::mem;

use crate::effect::Effect;
use crate::rules::Rule;
use crate::sandbox::Sandbox;
use crate::time::Time;
use crate::turn::Turn;

/// The rule.
pub const RULE: Rule = Rule {
    number: "4.4",
    also: &[],
    name: "recording",
    elsewhere: None,
    title: "Recordings",
    sentence: "A recording keeps the box awake until 1 hour after its last use. After that, once nothing else keeps the box \
               awake, the recording is stopped without being uploaded.",
};

/// Until when a recording holds it.
pub(crate) fn until(sb: &Sandbox) -> Option<Time> {
    sb.holds
        .recording
        .then(|| sb.idle_since() + sb.policy.recording_hold_ms)
}

/// One began or ended. The calls that do this are use, not the recording.
pub(crate) fn changed(turn: &mut Turn<'_>, on: bool) {
    if turn.sb.is_live() && turn.sb.holds.recording != on {
        turn.sb.holds.recording = on;
        turn.touch();
    }
}

/// The box freezes: whatever is being recorded stops.
pub(crate) fn stop(turn: &mut Turn<'_>) {
    if mem::take(&mut turn.sb.holds.recording) {
        turn.effect(Effect::StopRecording);
    }
}
