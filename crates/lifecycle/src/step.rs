//! The one place where a record changes: an event is applied, then every clock that is due strikes, in order
//! of precedence. What each rule says is in [`crate::rules`]; how states are entered, in [`crate::turn`].

use crate::admit::{Admission, Ask};
use crate::decision::{Change, Decision};
use crate::event::{Command, Event};
use crate::rules::{self, boundaries, usage};
use crate::sandbox::Sandbox;
use crate::state::FreezeCause;
use crate::time::{Ms, Time};
use crate::turn::Turn;
use crate::{observed, outcome, saving};

/// How many clocks may strike in one step. Each strike moves the box on, so a handful is the most there can be.
const MOST_STRIKES: usize = 16;

impl Sandbox {
    /// Applies an event at `now` and lets every clock strike that is due by then. An event that arrives with
    /// a deadline is applied first (3.8). Events that fit no longer, late outcomes and repeats change nothing.
    /// After a [`Event::Gap`] no clock strikes: send what was observed, or a tick, next.
    pub fn handle(&mut self, now: Time, event: Event) -> Decision {
        let decision = self.step(now, event);
        self.holds.settle();
        decision
    }

    fn step(&mut self, now: Time, event: Event) -> Decision {
        // After a gap nothing is known of the world yet: what is due waits for the next event, an observation or a tick.
        let looks = !matches!(event, Event::Gap { .. });
        let mut turn = Turn::new(self, now);
        apply(&mut turn, event);
        if !looks {
            return turn.out;
        }
        rules::idle_freeze::reconsider(&mut turn);
        strike(&mut turn);
        turn.out
    }

    /// When [`Event::Tick`] would next change something; later than the latest event, unless that was a gap.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Time> {
        rules::CLOCKS
            .iter()
            .filter_map(|clock| (clock.due)(self))
            .min()
    }
}

/// Lets the due clocks strike. An earlier rule may leave a later one nothing to do, so the list is read anew each time.
fn strike(turn: &mut Turn<'_>) {
    for _ in 0..MOST_STRIKES {
        let now = turn.now;
        let due = rules::CLOCKS
            .iter()
            .find(|clock| (clock.due)(turn.sb).is_some_and(|at| boundaries::is_due(at, now)));
        let Some(clock) = due else { return };
        (clock.strike)(turn);
    }
    debug_assert!(false, "clocks keep striking: {:?}", turn.sb.state);
}

/// Applies one event.
fn apply(turn: &mut Turn<'_>, event: Event) {
    match event {
        Event::CallBegan { call, kind, agent } => usage::call_began(turn, call, kind, agent),
        Event::CallEnded { call } => usage::call_ended(turn, call),
        Event::BackgroundBegan { exec, label } => rules::background::began(turn, exec, label),
        Event::BackgroundEnded { exec } => rules::background::ended(turn, &exec),
        Event::UrlRequest => rules::activity::request(turn),
        Event::TakeoverBegan { cause, until } => usage::takeover_began(turn, cause, until),
        Event::TakeoverInput => usage::takeover_input(turn),
        Event::TakeoverEnded => usage::takeover_ended(turn),
        Event::LinkOpened { from } => usage::link_opened(turn, from),
        Event::LinkSource {
            from,
            awake_by_itself,
        } => rules::holds::link_source(turn, from, awake_by_itself),
        Event::LinkClosed { from } => usage::link_closed(turn, from),
        Event::Recording { on } => rules::recording::changed(turn, on),
        Event::Phones { awake } => {
            if turn.sb.is_live() && turn.sb.holds.phones != awake {
                turn.sb.holds.phones = awake;
                turn.touch();
            }
        }
        Event::Command(command) => command_given(turn, command),
        Event::Outcome { op, outcome } => outcome::apply(turn, op, outcome),
        Event::WayOut { failure } => rules::way_out::settled(turn, failure),
        Event::Observed(seen) => observed::apply(turn, seen),
        Event::Gap { ms, ran } => rules::gaps::gap(turn, ms, ran),
        Event::Credits { any } => {
            if turn.sb.credits != any {
                turn.sb.credits = any;
                turn.promise();
            }
        }
        Event::Warm { keep } => {
            if turn.sb.warm != keep {
                turn.sb.warm = keep;
                turn.touch();
            }
        }
        Event::Tick => {}
    }
}

/// A command that was admitted; if it fits no longer, it changes nothing.
fn command_given(turn: &mut Turn<'_>, command: Command) {
    let ask = Ask::from(&command);
    if turn.sb.admit(turn.now, &ask) != Admission::Accept {
        return;
    }
    match command {
        Command::Freeze => {
            turn.because("2.1", "a call asked for it to be frozen");
            turn.freeze(FreezeCause::Asked);
        }
        Command::Pause { files_only } => rules::pause::asked(turn, files_only),
        Command::Wake { cold: true } => rules::cold_start::asked(turn),
        Command::Wake { cold: false } => rules::wake::arrived(turn, "a call asked for it"),
        Command::Stop => rules::asked_stop::asked(turn),
        Command::Unneeded => rules::asked_stop::unneeded(turn),
        Command::Restore => rules::restore::asked(turn),
        Command::SetPolicy(policy) => {
            turn.sb.policy = policy.into();
            turn.promise();
        }
        Command::Keep(keep) => {
            turn.sb.keep = keep;
            turn.promise();
        }
        Command::Reach => rules::way_out::changed(turn),
        Command::Save(save) => saving::asked(turn, save),
    }
}

/// Adds milliseconds of a gap to a mark, never past `now`: a mark is not in the future.
pub(crate) fn moved(gap: Ms, mark: Time, ms: Ms, now: Time) -> Ms {
    gap.saturating_add(ms).min(now.since(mark))
}

impl Decision {
    /// Nothing came of it.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        self.changed == Change::None && self.effects.is_empty() && self.reasons.is_empty()
    }
}
