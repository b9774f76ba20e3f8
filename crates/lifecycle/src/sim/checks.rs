//! What must hold after every event of a simulated life, judged by the model and not by the record's own word.
//! Owns each promise that is checked.

use alloc::format;
use alloc::string::String;

use super::world::World;
use crate::decision::Decision;
use crate::effect::Effect;
use crate::event::{Command, Event, Outcome, Processes};
use crate::policy::{AtEnd, StopFrozen};
use crate::sandbox::Sandbox;
use crate::state::{End, FreezeCause, State};
use crate::time::{DAY, Ms, Time};

/// What the simulation itself knows of the use of a box.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ledger {
    /// The latest use that it made.
    pub(crate) last_use: Time,
    /// Calls, takeovers and links under way that it made.
    pub(crate) holds: usize,
    /// Milliseconds in which the box was up.
    pub(crate) up_ms: Ms,
    /// Milliseconds of these in which it did not run, for the host was down.
    pub(crate) free_ms: Ms,
    /// Up to when that was counted.
    pub(crate) counted_to: Time,
    /// It is up, or was when its end began.
    pub(crate) up: bool,
    /// Milliseconds since the last use in which nobody could use it.
    pub(crate) gap_ms: Ms,
    /// When it was frozen last.
    pub(crate) frozen_at: Time,
    /// Milliseconds since then in which nobody could use it.
    pub(crate) gap_frozen_ms: Ms,
    /// Only its files were to be kept.
    pub(crate) files_only: bool,
}

impl Ledger {
    /// A use.
    pub(crate) fn used(&mut self, now: Time) {
        self.last_use = now;
        self.gap_ms = 0;
    }

    /// How long it was idle, as far as the simulation knows.
    fn idle_ms(&self, now: Time) -> Ms {
        now.since(self.last_use) - self.gap_ms
    }

    /// Follows when it was frozen, and what a freeze or a boot was to keep.
    pub(crate) fn watch(&mut self, now: Time, before: &State, state: &State, decision: &Decision) {
        let froze = match before {
            State::Freezing { .. } | State::Starting { .. } => {
                core::mem::discriminant(before) != core::mem::discriminant(state)
            }
            State::Ready
            | State::Frozen(_)
            | State::Thawing { .. }
            | State::Releasing { .. }
            | State::Stopping { .. }
            | State::Terminated { .. }
            | State::Interrupted { .. } => false,
        };
        if froze {
            self.frozen_at = now;
            self.gap_frozen_ms = 0;
        }
        for effect in &decision.effects {
            match effect {
                Effect::Freeze { ram_only, .. } => self.files_only = *ram_only,
                Effect::Boot { keep_files, .. } => self.files_only = *keep_files,
                Effect::Evict { .. }
                | Effect::Thaw { .. }
                | Effect::Release { .. }
                | Effect::Destroy { .. }
                | Effect::DropCopy { .. }
                | Effect::Save { .. }
                | Effect::Reach
                | Effect::StopRecording
                | Effect::FreezePhones => {}
            }
        }
    }

    /// Follows a pause of a box that stands still: what it was to keep may be less from then on (15.3).
    pub(crate) fn watch_pause(&mut self, before: &State, sb: &Sandbox, event: &Event) {
        let State::Frozen(is) = &sb.state else {
            return;
        };
        let was = match before {
            State::Frozen(frozen) | State::Thawing { from: frozen, .. } => Some(frozen.cause),
            State::Freezing { cause, .. } => Some(*cause),
            State::Starting { .. }
            | State::Ready
            | State::Releasing { .. }
            | State::Stopping { .. }
            | State::Terminated { .. }
            | State::Interrupted { .. } => None,
        };
        let asked = *event == Event::Command(Command::Pause { files_only: true });
        let at_end = is.cause == FreezeCause::Lifetime
            && sb
                .policy
                .lifetime
                .is_some_and(|lifetime| lifetime.at_end == AtEnd::KeepFiles);
        self.files_only |= was != Some(is.cause) && (asked || at_end);
    }

    /// Memory is given up only where no more than files was to be kept.
    pub(crate) fn files_only_on_purpose(&self, sb: &Sandbox) -> Result<(), String> {
        match &sb.state {
            State::Frozen(frozen) if frozen.keeps_files_only() && !self.files_only => {
                Err(format!("its memory was given up: {:?}", sb.state))
            }
            State::Frozen(_)
            | State::Starting { .. }
            | State::Ready
            | State::Freezing { .. }
            | State::Thawing { .. }
            | State::Releasing { .. }
            | State::Stopping { .. }
            | State::Terminated { .. }
            | State::Interrupted { .. } => Ok(()),
        }
    }

    /// Counts the time up to `now`, at which the box came from `before` to its state.
    pub(crate) fn count(&mut self, now: Time, before: &State, sb: &Sandbox) {
        if self.up {
            self.up_ms += now.since(self.counted_to);
        }
        self.counted_to = now;
        match &sb.state {
            State::Starting { .. }
            | State::Ready
            | State::Freezing { .. }
            | State::Releasing { .. } => self.up = true,
            State::Frozen(_)
            | State::Thawing { .. }
            | State::Terminated { .. }
            | State::Interrupted { .. } => self.up = false,
            // It bills until its end is confirmed, if it did before. A freeze may be over and a limit past in one step.
            State::Stopping { end, .. } => {
                let freezing = matches!(before, State::Freezing { .. });
                match end {
                    End::OwnIdleLimit | End::FrozenUnused => self.up &= !freezing,
                    // It counts only while the box is up. An end that was set also comes to a box that stands still, and in
                    // the very step in which it began to or no longer does, which only the record knows.
                    End::Lifetime => self.up = sb.set_end().is_none() || sb.billed(),
                    End::Asked | End::Unneeded | End::StartFailed(_) | End::Interrupted(_) => {}
                }
            }
        }
    }
}

/// A box that does not run must not be made to by anything but somebody who comes, or the driver's answer.
pub(crate) fn no_wake_for_nothing(
    before: &State,
    event: &Event,
    decision: &Decision,
) -> Result<(), String> {
    let stood = match before {
        State::Frozen(_) | State::Terminated { .. } | State::Interrupted { .. } => true,
        State::Starting { .. }
        | State::Ready
        | State::Freezing { .. }
        | State::Thawing { .. }
        | State::Releasing { .. }
        | State::Stopping { .. } => false,
    };
    let woke = decision.effects.iter().any(|effect| match effect {
        Effect::Thaw { .. } | Effect::Release { .. } | Effect::Boot { .. } => true,
        Effect::Freeze { .. }
        | Effect::Evict { .. }
        | Effect::Destroy { .. }
        | Effect::DropCopy { .. }
        | Effect::Save { .. }
        | Effect::Reach
        | Effect::StopRecording
        | Effect::FreezePhones => false,
    });
    let wakes = match event {
        Event::CallBegan { .. }
        | Event::TakeoverBegan { .. }
        | Event::LinkOpened { .. }
        | Event::Command(_)
        | Event::Outcome { .. }
        | Event::Observed(_) => true,
        Event::CallEnded { .. }
        | Event::BackgroundBegan { .. }
        | Event::BackgroundEnded { .. }
        | Event::UrlRequest
        | Event::TakeoverInput
        | Event::TakeoverEnded
        | Event::LinkSource { .. }
        | Event::LinkClosed { .. }
        | Event::Recording { .. }
        | Event::Phones { .. }
        | Event::Gap { .. }
        | Event::Credits { .. }
        | Event::Warm { .. }
        | Event::WayOut { .. }
        | Event::Tick => false,
    };
    if stood && woke && !wakes {
        return Err(format!("woken for nothing by {event:?}"));
    }
    Ok(())
}

/// Nothing that holds a box awake is cut off by an idle freeze or one that was asked for.
pub(crate) fn no_freeze_under_a_hold(
    sb: &Sandbox,
    before: &State,
    event: &Event,
    now: Time,
    ledger: &Ledger,
) -> Result<(), String> {
    let State::Freezing { cause, .. } = &sb.state else {
        return Ok(());
    };
    if *before != State::Ready {
        return Ok(());
    }
    match cause {
        FreezeCause::NoCredits | FreezeCause::Lifetime => Ok(()),
        // A pause holds for nothing.
        FreezeCause::Asked if matches!(event, Event::Command(Command::Pause { .. })) => Ok(()),
        // A snapshot takes a moment, and then everything goes on.
        FreezeCause::Asked if sb.saving().is_some() => Ok(()),
        FreezeCause::Asked | FreezeCause::Idle if ledger.holds > 0 => {
            Err(format!("frozen under {} holds", ledger.holds))
        }
        FreezeCause::Asked => Ok(()),
        FreezeCause::Idle => {
            let least = sb.policy.freeze_after_ms.unwrap_or(Ms::MAX);
            let idle_ms = ledger.idle_ms(now);
            if idle_ms < least {
                return Err(format!("frozen after {idle_ms} ms, before {least}"));
            }
            Ok(())
        }
    }
}

/// Nothing is stopped for disuse before the time that its user was told.
pub(crate) fn no_stop_too_early(
    sb: &Sandbox,
    before: &State,
    now: Time,
    ledger: &Ledger,
) -> Result<(), String> {
    let (State::Stopping { end, .. } | State::Terminated { end, .. }) = &sb.state else {
        return Ok(());
    };
    if matches!(before, State::Stopping { .. } | State::Terminated { .. }) {
        return Ok(());
    }
    let idle_ms = ledger.idle_ms(now);
    let frozen_ms = now.since(ledger.frozen_at) - ledger.gap_frozen_ms;
    let early = match (end, sb.policy.stop_frozen) {
        (End::OwnIdleLimit, _) => idle_ms < sb.policy.idle_limit_ms.unwrap_or(Ms::MAX),
        (End::FrozenUnused, StopFrozen::AfterUseOrFreeze(ms)) => idle_ms.min(frozen_ms) < ms,
        (End::FrozenUnused, StopFrozen::AfterFreeze(ms)) => frozen_ms < ms,
        (End::FrozenUnused, StopFrozen::Never) => true,
        (
            End::Asked | End::Unneeded | End::Lifetime | End::StartFailed(_) | End::Interrupted(_),
            _,
        ) => false,
    };
    if early {
        return Err(format!(
            "{end:?} after {idle_ms} ms unused and {frozen_ms} ms frozen"
        ));
    }
    Ok(())
}

/// Without a crash, no copy is left behind that the record does not name.
pub(crate) fn has_no_more_copies(sb: &Sandbox, world: &World, now: Time) -> Result<(), String> {
    let named = match &sb.state {
        State::Frozen(frozen) => frozen.copy,
        State::Terminated { .. } => sb.kept().and_then(|kept| kept.frozen.copy),
        State::Ready => None,
        State::Starting { .. }
        | State::Freezing { .. }
        | State::Thawing { .. }
        | State::Releasing { .. }
        | State::Stopping { .. }
        | State::Interrupted { .. } => return Ok(()),
    };
    if world.copies.iter().any(|(copy, _)| Some(*copy) != named) {
        return Err(format!(
            "copies left behind at {now:?}: {:?} but {world:?}",
            sb.state
        ));
    }
    Ok(())
}

/// A settled box has what its record says: processes, or a good copy, or files where it keeps no more.
pub(crate) fn has_what_it_says(sb: &Sandbox, world: &World, now: Time) -> Result<(), String> {
    let whole = match &sb.state {
        State::Ready => world.processes == Processes::Running,
        State::Frozen(frozen) if frozen.resident => world.processes == Processes::Stopped,
        State::Frozen(frozen) => frozen.copy.map_or(world.files, |copy| world.is_good(copy)),
        State::Terminated { .. } => sb.kept().is_none_or(|kept| {
            now >= kept.until || kept.frozen.copy.is_some_and(|copy| world.is_good(copy))
        }),
        State::Interrupted { files_until, .. } => files_until.is_none() || world.files,
        State::Starting { .. }
        | State::Freezing { .. }
        | State::Thawing { .. }
        | State::Releasing { .. }
        | State::Stopping { .. } => true,
    };
    if whole {
        return Ok(());
    }
    Err(format!("{:?} but really {world:?}", sb.state))
}

/// Plays a copy of the record forward with nothing happening and a driver that answers at once: it must freeze and stop
/// at exactly the moments that were forecast.
pub(crate) fn forecast_comes_true(sb: &Sandbox, now: Time) -> Result<(), String> {
    let known = match &sb.state {
        State::Ready | State::Freezing { wake: false, .. } => true,
        State::Frozen(frozen) => !frozen.wake,
        State::Freezing { .. }
        | State::Starting { .. }
        | State::Thawing { .. }
        | State::Releasing { .. }
        | State::Stopping { .. }
        | State::Terminated { .. }
        | State::Interrupted { .. } => false,
    };
    // The end of a takeover is a use that nobody has to make: what comes after it is not forecast.
    if !known || sb.holds.takeover.is_some() {
        return Ok(());
    }
    let forecast = sb.forecast(now);
    let (froze, stopped) = play(sb.clone(), now)?;
    if froze != forecast.freeze_at {
        return Err(format!(
            "freezes at {froze:?}, forecast {:?} at {now:?} in {sb:?}",
            forecast.freeze_at
        ));
    }
    if stopped != forecast.stops_at {
        return Err(format!(
            "stops at {stopped:?}, forecast {:?} at {now:?} in {sb:?}",
            forecast.stops_at
        ));
    }
    Ok(())
}

/// When it freezes and when it stops if nothing happens.
fn play(mut sb: Sandbox, now: Time) -> Result<(Option<Time>, Option<Time>), String> {
    let horizon = now + 200 * DAY;
    let mut froze = None;
    let mut at = now;
    for _ in 0..64 {
        while let Some(op) = sb.awaited() {
            let outcome = Outcome::Done;
            sb.handle(at, Event::Outcome { op, outcome });
        }
        if !sb.is_live() {
            return Ok((froze, Some(at)));
        }
        match sb.next_deadline() {
            Some(next) if next <= horizon => at = next,
            Some(_) | None => return Ok((froze, None)),
        }
        let ready = sb.state == State::Ready;
        let mut decision = sb.handle(at, Event::Tick);
        if decision.effects.contains(&Effect::FreezePhones) && sb.state == State::Ready {
            decision = sb.handle(at, Event::Phones { awake: 0 });
        }
        if decision.is_nothing() {
            return Err(format!(
                "a deadline at {at:?} that changes nothing in {sb:?}"
            ));
        }
        if ready && sb.awaited().is_some() && sb.is_live() && froze.is_none() {
            froze = Some(at);
        }
    }
    Err(format!("it never settles: {sb:?}"))
}
