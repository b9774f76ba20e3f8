//! Every question in every state: the table of what may be asked of a box, and that it tells the truth. A missing cell
//! fails, and so does a command that does something though it was not admitted, or nothing though it was.

use icebox_lifecycle::id::BOX_ID_LEN;
use icebox_lifecycle::state::TakeoverCause;
use icebox_lifecycle::time::{HOUR, MIN};
use icebox_lifecycle::{
    Admission, Ask, BoxId, CallId, CallKind, Command, CopyId, Event, Outcome, Policy, Processes,
    Refusal, Sandbox, Save, Seen, SnapshotId, Time,
};

/// The moment of every question: long before anything is due.
const NOW: Time = Time(1);

/// What may be asked, in the order of the table's columns.
fn asks() -> Vec<(Ask, Option<Command>)> {
    let mut other = Policy::AGENT;
    other.idle_limit_ms = Some(5 * HOUR);
    let call = |kind, writes| (Ask::Call { kind, writes }, None);
    let command = |command: Command| (Ask::from(&command), Some(command));
    vec![
        (Ask::Get, None),
        call(CallKind::Reads, false),
        call(CallKind::Wakes, false),
        call(CallKind::Acts, false),
        call(CallKind::Acts, true),
        command(Command::Freeze),
        command(Command::Pause { files_only: false }),
        command(Command::Wake { cold: false }),
        command(Command::Wake { cold: true }),
        command(Command::Stop),
        command(Command::Restore),
        command(Command::SetPolicy(Box::new(other))),
        command(Command::Keep(true)),
        command(Command::Reach),
        command(save(true)),
        command(save(false)),
    ]
}

/// One line a state. `+` go ahead, `=` already so, `~` wait, and the letter of a refusal: `$` credits, `G`one,
/// `I`nterrupted, `L`ate, `N`othing to restore, `T`aken over, `H`eld, `P`aused, no `M`emory.
const TABLE: &str = "
                       get read wakes acts writes freeze pause wake cold stop restore policy keep reach save files
starting                +   +    +     +    +      ~       ~    =    ~    +    =       +      +    +     ~    ~
starting-files          +   +    +     +    +      ~       ~    =    =    +    =       +      +    +     ~    ~
ready                   +   +    +     +    +      +       +    =    =    +    =       +      +    +     +    +
ready-taken-over        +   +    +     +    T      H       +    =    =    +    =       +      +    +     +    +
ready-calls             +   +    +     +    +      H       +    =    =    +    =       +      +    +     +    +
ready-no-credits        +   +    $     $    $      +       +    =    =    +    =       +      +    +     +    +
freezing                +   +    +     +    +      =       =    +    ~    +    +       +      +    +     +    +
freezing-wake           +   +    +     +    +      ~       ~    =    ~    +    =       +      +    +     +    +
freezing-no-credits     +   +    $     $    $      =       ~    $    ~    +    $       +      +    +     +    +
frozen                  +   +    +     +    +      =       =    +    +    +    +       +      +    +     +    +
frozen-no-credits       +   +    $     $    $      =       =    $    $    +    $       +      +    +     +    +
frozen-evicting         +   +    +     +    +      =       =    +    ~    +    +       +      +    +     +    +
frozen-evicting-wake    +   +    +     +    +      ~       ~    =    ~    +    =       +      +    +     +    +
thawing                 +   +    +     +    +      ~       ~    =    ~    +    =       +      +    +     ~    ~
releasing               +   +    +     +    +      ~       ~    =    ~    +    =       +      +    +     ~    ~
stopping                +   +    G     G    G      G       G    G    G    =    N       G      G    G     G    G
stopping-keep           +   +    G     G    G      G       G    G    G    +    ~       G      G    G     G    G
terminated              +   +    G     G    G      G       G    G    G    =    N       G      G    G     G    G
terminated-kept         +   +    G     G    G      G       G    G    G    +    +       G      G    G     G    G
terminated-dropping     +   +    G     G    G      G       G    G    G    =    L       G      G    G     G    G
interrupted-clearing    +   +    I     I    I      I       I    I    ~    +    I       I      I    I     I    ~
interrupted             +   +    I     I    I      I       I    I    +    +    I       I      I    I     I    +
";

#[test]
fn every_cell_is_decided_on_purpose() {
    let mut really = String::new();
    for (name, sandbox, now) in states() {
        really.push_str(&format!("{name:22}"));
        for (ask, _) in asks() {
            really.push(' ');
            really.push(letter(&sandbox.admit(now, &ask)));
        }
        really.push('\n');
    }
    let squeeze = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    let told: Vec<String> = TABLE.trim().lines().skip(1).map(squeeze).collect();
    let seen: Vec<String> = really.lines().map(squeeze).collect();
    assert_eq!(told, seen);
}

#[test]
fn what_is_not_admitted_changes_nothing_and_what_is_does_something() {
    for (name, sandbox, now) in states() {
        for (ask, command) in asks() {
            let Some(command) = command else { continue };
            let mut after = sandbox.clone();
            let decision = after.handle(now, Event::Command(command.clone()));
            let admitted = sandbox.admit(now, &ask) == Admission::Accept;
            assert_eq!(
                decision.is_nothing(),
                !admitted,
                "{command:?} in {name}: {decision:?}"
            );
            // A snapshot of a box that stands still is made beside it, and what it may reach is kept there.
            let beside = matches!(command, Command::Save(_) | Command::Reach) && admitted;
            let same = after == sandbox;
            assert!(same != admitted || beside, "{command:?} in {name}");
            after.check().expect("the record makes sense");
        }
    }
}

#[test]
fn a_call_that_is_not_admitted_leaves_no_trace() {
    for (name, sandbox, now) in states() {
        for kind in [CallKind::Acts, CallKind::Wakes, CallKind::Reads] {
            let ask = Ask::Call {
                kind,
                writes: false,
            };
            let mut after = sandbox.clone();
            let call = CallId(77);
            let agent = Some("another".into());
            after.handle(now, Event::CallBegan { call, kind, agent });
            let traced = kind != CallKind::Reads && sandbox.admit(now, &ask) == Admission::Accept;
            assert_eq!(after != sandbox, traced, "{kind:?} in {name}");
        }
    }
}

#[test]
fn after_any_two_commands_the_record_makes_sense() {
    for (name, sandbox, now) in states() {
        for (_, first) in asks() {
            for (_, second) in asks() {
                let mut after = sandbox.clone();
                for command in [first.clone(), second].into_iter().flatten() {
                    after.handle(now, Event::Command(command));
                    after
                        .check()
                        .unwrap_or_else(|what| panic!("{name}: {what}"));
                }
            }
        }
    }
}

#[test]
fn what_the_driver_sees_fits_every_state() {
    let copies = [None, Some(CopyId(1)), Some(CopyId(9))];
    let processes = [Processes::Running, Processes::Stopped, Processes::Absent];
    for (name, sandbox, now) in states() {
        for (processes, copy) in processes
            .iter()
            .flat_map(|p| copies.iter().map(move |c| (p, c)))
        {
            let mut after = sandbox.clone();
            let seen = Seen {
                processes: *processes,
                copy: *copy,
                detail: "".into(),
            };
            after.handle(now, Event::Observed(seen));
            after
                .check()
                .unwrap_or_else(|what| panic!("{name}, {processes:?} {copy:?}: {what}"));
            assert!(
                after.holds.calls.is_empty() && after.holds.links.is_empty(),
                "{name}: no call outlives a restart"
            );
        }
    }
}

fn letter(admission: &Admission) -> char {
    match admission {
        Admission::Accept => '+',
        Admission::AlreadySo => '=',
        Admission::Wait => '~',
        Admission::Refuse(refusal) => match refusal {
            Refusal::NoCredits => '$',
            Refusal::Gone { .. } => 'G',
            Refusal::Interrupted { .. } => 'I',
            Refusal::RestoreTooLate { .. } => 'L',
            Refusal::CannotRestore(_) => 'N',
            Refusal::TakenOver(_) => 'T',
            Refusal::Held { .. } => 'H',
            Refusal::Paused => 'P',
            Refusal::NoMemory { .. } => 'M',
            Refusal::LifetimeOver | Refusal::Policy(_) | Refusal::CapLowered => '?',
        },
    }
}

fn save(memory: bool) -> Command {
    let snapshot = SnapshotId::from_random([0; BOX_ID_LEN]);
    Command::Save(Save { snapshot, memory })
}

fn new() -> Sandbox {
    let id = BoxId::parse("abcdefghijklmnopqrst").expect("an id");
    Sandbox::new(id, Policy::AGENT, Time(0), None).0
}

fn answered(mut sandbox: Sandbox, outcome: Outcome) -> Sandbox {
    let op = sandbox.awaited().expect("an answer is awaited");
    sandbox.handle(NOW, Event::Outcome { op, outcome });
    sandbox
}

fn done(sandbox: Sandbox) -> Sandbox {
    answered(sandbox, Outcome::Done)
}

fn after(mut sandbox: Sandbox, event: Event) -> Sandbox {
    sandbox.handle(NOW, event);
    sandbox
}

fn failed() -> Outcome {
    Outcome::Failed {
        reason: "no".into(),
    }
}

fn command(command: Command) -> Event {
    Event::Command(command)
}

/// A box in every state that matters to admission, and the moment of the question.
fn states() -> Vec<(&'static str, Sandbox, Time)> {
    let ready = done(new());
    let freezing = after(ready.clone(), command(Command::Freeze));
    let evicting = done(freezing.clone());
    let frozen = done(evicting.clone());
    let wake = || command(Command::Wake { cold: false });
    let broke = || Event::Credits { any: false };
    let thawing = after(frozen.clone(), wake());
    let absent = Seen {
        processes: Processes::Absent,
        copy: None,
        detail: "".into(),
    };
    let clearing = after(ready.clone(), Event::Observed(absent));
    let broke_freezing = after(ready.clone(), broke());
    let call = Event::CallBegan {
        call: CallId(1),
        kind: CallKind::Acts,
        agent: None,
    };
    let takeover = Event::TakeoverBegan {
        cause: TakeoverCause::Person,
        until: Time(30 * MIN),
    };
    let stopping = after(ready.clone(), command(Command::Stop));
    let warm = done(after(
        after(ready.clone(), Event::Warm { keep: true }),
        command(Command::Freeze),
    ));
    let unused = warm.next_deadline().expect("it stops");
    let tick = |mut sandbox: Sandbox| {
        let at = sandbox.next_deadline().expect("something is due");
        sandbox.handle(at, Event::Tick);
        sandbox
    };
    let kept = tick(frozen.clone());
    let files = after(frozen.clone(), command(Command::Wake { cold: true }));
    let dropping = tick(kept.clone());
    let gone = Time(dropping.kept_until.expect("it was kept").0 + 1);
    vec![
        ("starting", new(), NOW),
        ("starting-files", files, NOW),
        ("ready", ready.clone(), NOW),
        ("ready-taken-over", after(ready.clone(), takeover), NOW),
        ("ready-calls", after(ready.clone(), call), NOW),
        (
            "ready-no-credits",
            done(answered(broke_freezing.clone(), failed())),
            NOW,
        ),
        ("freezing", freezing.clone(), NOW),
        ("freezing-wake", after(freezing.clone(), wake()), NOW),
        ("freezing-no-credits", broke_freezing, NOW),
        ("frozen", frozen.clone(), NOW),
        ("frozen-no-credits", after(frozen, broke()), NOW),
        ("frozen-evicting", evicting.clone(), NOW),
        ("frozen-evicting-wake", after(evicting, wake()), NOW),
        ("thawing", thawing.clone(), NOW),
        ("releasing", done(thawing), NOW),
        ("stopping", stopping.clone(), NOW),
        ("stopping-keep", tick(warm), unused),
        ("terminated", done(stopping), NOW),
        ("terminated-kept", kept, unused),
        ("terminated-dropping", dropping, gone),
        ("interrupted-clearing", clearing.clone(), NOW),
        ("interrupted", done(clearing), NOW),
    ]
}
