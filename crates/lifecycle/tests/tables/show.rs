//! Shows what happened in the words of the tables. Owns one function a column.

use icebox_lifecycle::policy::{Keeps, Preset};
use icebox_lifecycle::state::{End, Frozen};
use icebox_lifecycle::time::{DAY, HOUR, MIN, Ms, SEC};
use icebox_lifecycle::{
    Admission, Change, Effect, Forecast, NoRestore, Presence, Refusal, Sandbox, State, Tier, Time,
};

use super::Happened;

/// One cell. `-` stands for nothing.
pub(crate) fn cell(
    column: &str,
    sb: &Sandbox,
    now: Time,
    happened: &Happened,
) -> Result<String, String> {
    let frozen = frozen(sb);
    Ok(match column {
        "state" => state(&sb.state),
        "effects" => list(happened.decision.effects.iter().map(effect)),
        "next" => time(sb.next_deadline()),
        "changed" => match happened.decision.changed {
            Change::None => "-".to_string(),
            Change::Activity => "activity".to_string(),
            Change::Transition => "transition".to_string(),
        },
        "rule" => list(
            happened
                .decision
                .reasons
                .iter()
                .map(|reason| reason.rule.to_string()),
        ),
        "why" => list(
            happened
                .decision
                .reasons
                .iter()
                .map(|reason| reason.text.clone()),
        ),
        "answer" => answer(happened.answer.as_ref()),
        "status" => sb.status().to_string(),
        "reason" => sb.status_reason().unwrap_or_else(nothing),
        "used" => time(Some(sb.last_use)),
        "idle" => duration(sb.idle_ms(now)),
        "forget" => time(sb.forget_at()),
        "billed" => duration(sb.meter.billed_ms(now)),
        "tier" => frozen.map_or_else(nothing, |frozen| match frozen.tier() {
            Tier::Ram => "ram".to_string(),
            Tier::Disk => "disk".to_string(),
        }),
        "keeps" => frozen.map_or_else(nothing, |frozen| match frozen.keeps() {
            Keeps::Files => "files".to_string(),
            Keeps::FilesAndMemory => "memory".to_string(),
        }),
        "error" => frozen
            .and_then(|frozen| {
                frozen
                    .snapshot_error
                    .as_deref()
                    .or(frozen.wake_error.as_deref())
            })
            .unwrap_or("-")
            .to_string(),
        "wayout" => sb.way_out.as_ref().map_or_else(nothing, |failure| {
            format!("{} x{}", failure.reason, failure.failures)
        }),
        "preset" => match sb.policy.preset {
            Preset::Agent => "agent".to_string(),
            Preset::Router => "router".to_string(),
            Preset::Task => "task".to_string(),
            Preset::E2b => "e2b".to_string(),
        },
        "agent" | "untracked" | "silent" | "beating" | "beat0" | "gone" => {
            conversation(column, sb, now)
        }
        _ => return ahead(column, &sb.forecast(now)),
    })
}

/// A cell about the conversation of a box, as it would be with the heartbeats that the column names.
fn conversation(column: &str, sb: &Sandbox, now: Time) -> String {
    let presence = match column {
        "agent" => return sb.agent.id.as_deref().unwrap_or("-").to_string(),
        "untracked" => return yes(sb.agent.untracked),
        "beating" => Some(beat(now)),
        "beat0" => Some(beat(Time(0))),
        "gone" => Some(Presence {
            heartbeat: Some(now),
            left: true,
        }),
        _ => None,
    };
    agent(sb, now, presence)
}

/// A cell about what is ahead of a box.
fn ahead(column: &str, forecast: &Forecast) -> Result<String, String> {
    Ok(match column {
        "freeze" => time(forecast.freeze_at),
        "canfreeze" => yes(forecast.can_freeze),
        "blocked" => list(forecast.blocked_by.iter().map(|hold| match hold.until {
            Some(until) => format!("{}:{}", hold.kind.as_str(), time(Some(until))),
            None => hold.kind.as_str().to_string(),
        })),
        "stops" => time(forecast.stops_at),
        "by" => forecast.stop_rule.unwrap_or("-").to_string(),
        "restorable" => time(forecast.restorable_until),
        "ends" => time(forecast.ends_at),
        "left" => forecast.remaining_ms.map_or_else(nothing, duration),
        "warn" => forecast
            .warn
            .map_or_else(nothing, |warn| warn.minutes.to_string()),
        _ => return Err(format!("no column `{column}`")),
    })
}

fn beat(at: Time) -> Presence {
    Presence {
        heartbeat: Some(at),
        left: false,
    }
}

fn nothing() -> String {
    "-".to_string()
}

fn yes(yes: bool) -> String {
    if yes { "yes" } else { "no" }.to_string()
}

fn list(items: impl Iterator<Item = String>) -> String {
    let items: Vec<String> = items.collect();
    if items.is_empty() {
        nothing()
    } else {
        items.join(", ")
    }
}

fn agent(sb: &Sandbox, now: Time, presence: Option<Presence>) -> String {
    sb.agent_view(now, presence)
        .map_or_else(nothing, |agent| agent.state.as_str().to_string())
}

fn frozen(sb: &Sandbox) -> Option<&Frozen> {
    match &sb.state {
        State::Frozen(frozen) => Some(frozen),
        State::Starting { .. }
        | State::Ready
        | State::Freezing { .. }
        | State::Thawing { .. }
        | State::Releasing { .. }
        | State::Stopping { .. }
        | State::Terminated { .. }
        | State::Interrupted { .. } => None,
    }
}

fn time(time: Option<Time>) -> String {
    time.map_or_else(nothing, |time| duration(time.0))
}

/// A length of time, in the words of [`super::read::time`].
fn duration(ms: Ms) -> String {
    let mut rest = ms;
    let mut parts = Vec::new();
    // One millisecond before something round reads better than a day and 59 minutes and so on.
    let before = rest % SEC == SEC - 1;
    if before {
        rest += 1;
    }
    for (unit, name) in [(DAY, "d"), (HOUR, "h"), (MIN, "m"), (SEC, "s"), (1, "")] {
        if rest / unit > 0 {
            parts.push(format!("{}{name}", rest / unit));
            rest %= unit;
        }
    }
    let mut text = parts.join("+");
    if text.is_empty() {
        text.push('0');
    }
    if before {
        text.push_str("-1");
    }
    text
}

fn state(state: &State) -> String {
    match state {
        State::Starting {
            keep_files: false, ..
        } => "starting".to_string(),
        State::Starting {
            keep_files: true, ..
        } => "starting(files)".to_string(),
        State::Ready => "ready".to_string(),
        State::Freezing { wake: false, .. } => "freezing".to_string(),
        State::Freezing { wake: true, .. } => "freezing(wake)".to_string(),
        State::Frozen(frozen) => {
            let mut words = vec![if frozen.resident { "ram" } else { "disk" }.to_string()];
            words.extend(frozen.copy.map(|copy| copy.0.to_string()));
            words.extend(frozen.evicting.map(|_| "evicting".to_string()));
            words.extend(frozen.wake.then(|| "wake".to_string()));
            format!("frozen({})", words.join(" "))
        }
        State::Thawing { retried: false, .. } => "thawing".to_string(),
        State::Thawing { retried: true, .. } => "thawing(again)".to_string(),
        State::Releasing { wake: true, .. } => "releasing".to_string(),
        State::Releasing { wake: false, .. } => "releasing(undo)".to_string(),
        State::Stopping {
            end: why,
            keep: None,
            ..
        } => format!("stopping({})", end(why)),
        State::Stopping {
            end: why,
            keep: Some(_),
            ..
        } => format!("stopping({} keep)", end(why)),
        State::Terminated {
            end: why,
            kept: None,
            ..
        } => format!("terminated({})", end(why)),
        State::Terminated {
            end: why,
            kept: Some(kept),
            ..
        } => {
            let kept = if kept.dropping.is_some() {
                "dropping"
            } else {
                "kept"
            };
            format!("terminated({} {kept})", end(why))
        }
        State::Interrupted { op: Some(_), .. } => "interrupted(clearing)".to_string(),
        State::Interrupted { op: None, .. } => "interrupted".to_string(),
    }
}

fn end(end: &End) -> &'static str {
    match end {
        End::Asked => "asked",
        End::Unneeded => "unneeded",
        End::FrozenUnused => "frozen-unused",
        End::OwnIdleLimit => "own-limit",
        End::Lifetime => "lifetime",
        End::StartFailed(_) => "start-failed",
        End::Interrupted(_) => "interrupted",
    }
}

fn effect(effect: &Effect) -> String {
    match effect {
        Effect::Boot {
            keep_files: false, ..
        } => "boot".to_string(),
        Effect::Boot {
            keep_files: true, ..
        } => "boot(files)".to_string(),
        Effect::Freeze { ram_only: true, .. } => "freeze(ram)".to_string(),
        Effect::Freeze { copy, .. } => format!("freeze({})", copy.0),
        Effect::Evict { .. } => "evict".to_string(),
        Effect::Thaw { copy, .. } => format!("thaw({})", copy.0),
        Effect::Release { .. } => "release".to_string(),
        Effect::Destroy {
            keep_files: false, ..
        } => "destroy".to_string(),
        Effect::Destroy {
            keep_files: true, ..
        } => "clear".to_string(),
        Effect::DropCopy { copy } => format!("drop({})", copy.0),
        Effect::Save { copy: None, .. } => "save(files)".to_string(),
        Effect::Save {
            copy: Some(copy), ..
        } => format!("save({})", copy.0),
        Effect::Reach => "reach".to_string(),
        Effect::StopRecording => "stop-recording".to_string(),
        Effect::FreezePhones => "freeze-phones".to_string(),
    }
}

fn answer(answer: Option<&Admission>) -> String {
    let refusal = match answer {
        None => return nothing(),
        Some(Admission::Accept) => return "accept".to_string(),
        Some(Admission::AlreadySo) => return "already so".to_string(),
        Some(Admission::Wait) => return "wait".to_string(),
        Some(Admission::Refuse(refusal)) => refusal,
    };
    match refusal {
        Refusal::NoCredits => "no credits".to_string(),
        Refusal::Gone {
            at,
            end: why,
            restorable_until,
        } => {
            format!(
                "gone {} {} {}",
                time(*at),
                end(why),
                time(*restorable_until)
            )
        }
        Refusal::Interrupted { files_until, .. } => format!("interrupted {}", time(*files_until)),
        Refusal::RestoreTooLate { until } => format!("too late {}", time(Some(*until))),
        Refusal::CannotRestore(NoRestore::StoppedByCall) => "stopped by a call".to_string(),
        Refusal::CannotRestore(NoRestore::Unneeded) => "unneeded".to_string(),
        Refusal::CannotRestore(NoRestore::NeverFrozen) => "never frozen".to_string(),
        Refusal::TakenOver(takeover) => format!(
            "taken over {:?} {}..{}",
            takeover.cause,
            time(Some(takeover.since)),
            time(Some(takeover.until))
        ),
        Refusal::Held { by } => {
            let by: Vec<&str> = by.iter().map(|kind| kind.as_str()).collect();
            format!("held by {}", by.join(" "))
        }
        Refusal::LifetimeOver => "lifetime over".to_string(),
        Refusal::Paused => "paused".to_string(),
        Refusal::NoMemory { .. } => "no memory".to_string(),
        Refusal::Policy(error) => error.to_string(),
        Refusal::CapLowered => "cap lowered".to_string(),
    }
}
