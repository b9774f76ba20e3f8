//! Reads tables: boxes, times, events and questions in words. Owns the words that may be written in a table.

use icebox_lifecycle::id::BOX_ID_LEN;
use icebox_lifecycle::policy::{AtEnd, Keeps, Lifetime, LifetimeFrom, Preset, StopFrozen, WokenBy};
use icebox_lifecycle::state::TakeoverCause;
use icebox_lifecycle::time::{DAY, HOUR, MIN, Ms, SEC};
use icebox_lifecycle::{
    Ask, BoxId, CallId, CallKind, Command, CopyId, Event, OpId, Outcome, Policy, Processes,
    Sandbox, Save, Seen, SnapshotId, Time,
};

/// A table.
pub(crate) struct Table {
    pub(crate) lines: Vec<Line>,
}

/// One line of it.
pub(crate) struct Line {
    pub(crate) number: usize,
    pub(crate) text: String,
    pub(crate) step: Step,
}

/// What a line says.
pub(crate) enum Step {
    /// A comment, a heading, or nothing.
    Text,
    /// A new box.
    Box(Start),
    /// Something happens to it.
    Row(Row),
}

/// Something happens.
pub(crate) struct Row {
    pub(crate) at: Time,
    pub(crate) event: String,
    written_at: String,
    pub(crate) cells: Vec<Cell>,
}

/// What is expected then.
pub(crate) struct Cell {
    pub(crate) column: String,
    pub(crate) text: String,
}

impl Table {
    /// Reads a table. Columns are parted by two or more spaces; the line that begins with `at` names them.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut columns: Vec<String> = Vec::new();
        let mut lines = Vec::new();
        for (index, text) in text.lines().enumerate() {
            let number = index + 1;
            let step = read_line(text, &mut columns).map_err(|what| format!("{number}: {what}"))?;
            let text = text.to_string();
            lines.push(Line { number, text, step });
        }
        Ok(Self { lines })
    }

    /// The table as text, its columns in line.
    pub(crate) fn show(&self) -> String {
        let rows: Vec<Vec<&str>> = self.lines.iter().map(Line::fields).collect();
        let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            let cells = rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let mut text = String::new();
        for (line, row) in self.lines.iter().zip(&rows) {
            if row.is_empty() {
                text.push_str(line.text.trim_end());
            } else {
                let cells = row.iter().zip(&widths);
                let cells: Vec<String> = cells
                    .map(|(cell, width)| format!("{cell:width$}"))
                    .collect();
                text.push_str(cells.join("  ").trim_end());
            }
            text.push('\n');
        }
        text
    }
}

impl Line {
    fn fields(&self) -> Vec<&str> {
        match &self.step {
            Step::Row(row) => {
                let cells = row.cells.iter().map(|cell| cell.text.as_str());
                [row.written_at.as_str(), row.event.as_str()]
                    .into_iter()
                    .chain(cells)
                    .collect()
            }
            Step::Text if self.text.starts_with("at ") => split(&self.text),
            Step::Text | Step::Box(_) => Vec::new(),
        }
    }
}

fn split(text: &str) -> Vec<&str> {
    text.split("  ")
        .map(str::trim)
        .filter(|field| !field.is_empty())
        .collect()
}

fn read_line(text: &str, columns: &mut Vec<String>) -> Result<Step, String> {
    if text.trim().is_empty() || text.starts_with('#') {
        return Ok(Step::Text);
    }
    if let Some(start) = text.strip_prefix("box ") {
        return Start::parse(start).map(Step::Box);
    }
    let mut fields = split(text).into_iter();
    if text.starts_with("at ") {
        *columns = fields.skip(2).map(str::to_string).collect();
        return Ok(Step::Text);
    }
    let written_at = fields.next().ok_or("no time")?.to_string();
    let event = fields.next().ok_or("no event")?.to_string();
    let cells = columns.iter().map(|column| Cell {
        column: column.clone(),
        text: fields.next().unwrap_or("").to_string(),
    });
    Ok(Step::Row(Row {
        at: Time(time(&written_at)?),
        event,
        written_at,
        cells: cells.collect(),
    }))
}

/// A box at the start of a table's part.
pub(crate) struct Start {
    policy: Policy,
    stage: Stage,
    agent: Option<Box<str>>,
}

#[derive(PartialEq)]
enum Stage {
    /// Being started.
    New,
    /// Ready since 0.
    Ready,
    /// Frozen by the idle rule, on disk as copy 1.
    Frozen,
}

impl Start {
    fn parse(text: &str) -> Result<Self, String> {
        let mut words = text.split_whitespace();
        let preset = words.next().ok_or("no preset")?;
        let preset = Preset::parse(preset).ok_or_else(|| format!("no preset `{preset}`"))?;
        let mut start = Self {
            policy: Policy::of(preset),
            stage: Stage::Ready,
            agent: None,
        };
        for word in words {
            match word {
                "new" => start.stage = Stage::New,
                "frozen" => start.stage = Stage::Frozen,
                _ => match word.split_once('=') {
                    Some(("by", agent)) => start.agent = Some(agent.into()),
                    _ => set(&mut start.policy, word)?,
                },
            }
        }
        Ok(start)
    }

    /// Makes it.
    pub(crate) fn make(&self) -> Sandbox {
        let id = box_id("a");
        let (mut sandbox, _) = Sandbox::new(id, self.policy.clone(), Time(0), self.agent.clone());
        if self.stage == Stage::New {
            return sandbox;
        }
        done(&mut sandbox, Time(0));
        if self.stage == Stage::Frozen {
            let at = sandbox.next_deadline().expect("it freezes");
            sandbox.handle(at, Event::Tick);
            done(&mut sandbox, at);
            done(&mut sandbox, at);
        }
        sandbox
    }
}

fn done(sandbox: &mut Sandbox, at: Time) {
    let op = sandbox.awaited().expect("an answer is awaited");
    let outcome = Outcome::Done;
    sandbox.handle(at, Event::Outcome { op, outcome });
}

/// Sets one field of a policy, as `field=value`.
pub(crate) fn set(policy: &mut Policy, word: &str) -> Result<(), String> {
    let (field, value) = word
        .split_once('=')
        .ok_or_else(|| format!("what is `{word}`?"))?;
    match (field, value) {
        ("freeze", "never") => policy.freeze_after_ms = None,
        ("freeze", _) => policy.freeze_after_ms = Some(time(value)?),
        ("keeps", "files") => policy.keeps = Keeps::Files,
        ("keeps", "memory") => policy.keeps = Keeps::FilesAndMemory,
        ("stop", "never") => policy.stop_frozen = StopFrozen::Never,
        ("stop", _) => {
            policy.stop_frozen = match value.strip_prefix("sleep:") {
                Some(value) => StopFrozen::AfterFreeze(time(value)?),
                None => StopFrozen::AfterUseOrFreeze(time(value)?),
            };
        }
        ("restorable", _) => policy.restorable_ms = time(value)?,
        ("idle", "none") => policy.idle_limit_ms = None,
        ("idle", _) => policy.idle_limit_ms = Some(time(value)?),
        ("life", "none") => policy.lifetime = None,
        ("life", _) => {
            let old = policy.lifetime;
            policy.lifetime = Some(Lifetime {
                ms: time(value)?,
                from: old.map_or(LifetimeFrom::Creation, |old| old.from),
                at_end: old.map_or(AtEnd::Destroy, |old| old.at_end),
            });
        }
        ("end", "freeze" | "files") => {
            if let Some(lifetime) = &mut policy.lifetime {
                lifetime.at_end = match value {
                    "files" => AtEnd::KeepFiles,
                    _ => AtEnd::Freeze,
                };
            }
        }
        ("from", _) => {
            if let Some(lifetime) = &mut policy.lifetime {
                lifetime.from = LifetimeFrom::Moment(Time(time(value)?));
            }
        }
        ("woken", "any") => policy.woken_by = WokenBy::AnyCall,
        ("woken", "resume") => policy.woken_by = WokenBy::Resume,
        ("woken", _) => policy.woken_by = WokenBy::AnyCallFor(time(value)?),
        ("bg", _) => policy.background_hold_ms = time(value)?,
        ("url", _) => policy.url_hold_ms = time(value)?,
        ("rec", _) => policy.recording_hold_ms = time(value)?,
        _ => return Err(format!("what is `{word}`?")),
    }
    Ok(())
}

/// Reads a time such as `0`, `10m`, `10m-1`, `2h+10m+1`. Bare numbers are milliseconds.
pub(crate) fn time(text: &str) -> Result<Ms, String> {
    let mut sum = 0;
    let mut rest = text;
    let mut sign = 1;
    loop {
        let end = rest.find(['+', '-']).unwrap_or(rest.len());
        sum += sign * one_time(&rest[..end]).ok_or_else(|| format!("no time: `{text}`"))?;
        let Some(next) = rest[end..].chars().next() else {
            return Ok(sum);
        };
        sign = if next == '+' { 1 } else { -1 };
        rest = &rest[end + 1..];
    }
}

fn one_time(text: &str) -> Option<Ms> {
    let unit = match text.chars().last()? {
        's' => SEC,
        'm' => MIN,
        'h' => HOUR,
        'd' => DAY,
        _ => return text.parse().ok(),
    };
    Some(text[..text.len() - 1].parse::<Ms>().ok()? * unit)
}

/// A box id that is one letter, twenty times.
pub(crate) fn box_id(letter: &str) -> BoxId {
    BoxId::parse(&letter.repeat(20)).expect("a letter makes an id")
}

/// Reads an event.
pub(crate) fn event(text: &str) -> Result<Event, String> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let call = |kind, call: &str, agent: Option<&str>| {
        let call = CallId(call.parse().map_err(|_| format!("no call: `{call}`"))?);
        let agent = agent.map(Into::into);
        Ok::<Event, String>(Event::CallBegan { call, kind, agent })
    };
    Ok(match words.as_slice() {
        ["tick"] => Event::Tick,
        ["call", id] => call(CallKind::Acts, id, None)?,
        ["call", id, "by", agent] => call(CallKind::Acts, id, Some(agent))?,
        ["wakes", id] => call(CallKind::Wakes, id, None)?,
        ["wakes", id, "by", agent] => call(CallKind::Wakes, id, Some(agent))?,
        ["read", id] => call(CallKind::Reads, id, None)?,
        ["read", id, "by", agent] => call(CallKind::Reads, id, Some(agent))?,
        ["end", call] => Event::CallEnded {
            call: CallId(call.parse().map_err(|_| format!("no call: `{call}`"))?),
        },
        ["bg", exec] => Event::BackgroundBegan {
            exec: (*exec).into(),
            label: format!("npm run {exec}").into(),
        },
        ["bgend", exec] => Event::BackgroundEnded {
            exec: (*exec).into(),
        },
        ["url"] => Event::UrlRequest,
        ["takeover", cause, until] => Event::TakeoverBegan {
            cause: match *cause {
                "person" => TakeoverCause::Person,
                "asked" => TakeoverCause::Asked,
                "review" => TakeoverCause::Review,
                _ => return Err(format!("no cause: `{cause}`")),
            },
            until: Time(time(until)?),
        },
        ["input"] => Event::TakeoverInput,
        ["handback"] => Event::TakeoverEnded,
        ["link", from] => Event::LinkOpened { from: box_id(from) },
        ["linksource", from, awake] => Event::LinkSource {
            from: box_id(from),
            awake_by_itself: *awake == "awake",
        },
        ["unlink", from] => Event::LinkClosed { from: box_id(from) },
        ["rec", on] => Event::Recording { on: *on == "on" },
        ["phones", awake] => Event::Phones {
            awake: awake.parse().map_err(|_| format!("no number: `{awake}`"))?,
        },
        ["seen", processes] => seen(processes, None)?,
        ["seen", processes, copy] => seen(processes, Some(copy))?,
        ["gap", ms] => Event::Gap {
            ms: time(ms)?,
            ran: true,
        },
        ["gap", ms, "asleep"] => Event::Gap {
            ms: time(ms)?,
            ran: false,
        },
        ["credits", any] => Event::Credits { any: *any == "yes" },
        ["warm", keep] => Event::Warm {
            keep: *keep == "yes",
        },
        ["wayout", "made"] => Event::WayOut { failure: None },
        ["wayout", why @ ..] => Event::WayOut {
            failure: Some(why.join(" ").into()),
        },
        ["late", op] => Event::Outcome {
            op: OpId(op.parse().map_err(|_| format!("no number: `{op}`"))?),
            outcome: Outcome::Done,
        },
        _ => Event::Command(command(&words)?),
    })
}

fn seen(processes: &str, copy: Option<&str>) -> Result<Event, String> {
    Ok(Event::Observed(Seen {
        processes: match processes {
            "running" => Processes::Running,
            "stopped" => Processes::Stopped,
            "absent" => Processes::Absent,
            _ => return Err(format!("what is seen: `{processes}`?")),
        },
        copy: match copy {
            Some(copy) => Some(CopyId(
                copy.parse().map_err(|_| format!("no copy: `{copy}`"))?,
            )),
            None => None,
        },
        detail: "".into(),
    }))
}

fn command(words: &[&str]) -> Result<Command, String> {
    Ok(match words {
        ["freeze"] => Command::Freeze,
        ["pause"] => Command::Pause { files_only: false },
        ["pause", "files"] => Command::Pause { files_only: true },
        ["wake"] => Command::Wake { cold: false },
        ["coldwake"] => Command::Wake { cold: true },
        ["stop"] => Command::Stop,
        ["unneeded"] => Command::Unneeded,
        ["restore"] => Command::Restore,
        ["keep", keep] => Command::Keep(*keep == "yes"),
        ["reach"] => Command::Reach,
        ["save"] => save(true),
        ["save", "files"] => save(false),
        ["policy", preset, fields @ ..] => {
            let preset = Preset::parse(preset).ok_or_else(|| format!("no preset `{preset}`"))?;
            let mut policy = Policy::of(preset);
            for field in fields {
                set(&mut policy, field)?;
            }
            Command::SetPolicy(Box::new(policy))
        }
        _ => return Err(format!("what is `{}`?", words.join(" "))),
    })
}

fn save(memory: bool) -> Command {
    let snapshot = SnapshotId::from_random([0; BOX_ID_LEN]);
    Command::Save(Save { snapshot, memory })
}

/// Reads a question.
pub(crate) fn ask(text: &str) -> Result<Ask, String> {
    let call = |kind, writes| Ask::Call { kind, writes };
    Ok(match text {
        "call" => call(CallKind::Acts, false),
        "write" => call(CallKind::Acts, true),
        "wakes" => call(CallKind::Wakes, false),
        "read" => call(CallKind::Reads, false),
        "get" => Ask::Get,
        _ => Ask::from(&command(&text.split_whitespace().collect::<Vec<_>>())?),
    })
}
