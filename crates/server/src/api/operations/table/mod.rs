//! The table of all calls. To add one: its handler, and a row here.

mod account;

use super::{Operation, Taken, delete, get, patch, post, put};
use crate::api::{
    boxes, events, files, keep, links, metrics, ops, procs, snapshots, terminal, wiring,
};
use crate::commands::Kind;

/// The box is not there any more.
const ENDED: &[Kind] = &[Kind::BoxGone, Kind::Interrupted];
/// The box has to be woken, and stay awake.
const NEEDS_BOX: &[Kind] = &[
    Kind::BoxGone,
    Kind::Interrupted,
    Kind::TakenOver,
    Kind::NoCredits,
    Kind::LifetimeOver,
    Kind::Paused,
    Kind::NoCapacity,
    Kind::WakeFailed,
];
/// A new box has to come up.
const STARTS: &[Kind] = &[Kind::NoCredits, Kind::NoCapacity, Kind::StartFailed];

/// All calls; `test_clock`: those that move the time, too.
pub(in crate::api) fn table(test_clock: bool) -> Vec<Operation> {
    let mut all = general();
    all.extend(boxes());
    all.extend(inside());
    all.extend(commands());
    all.extend(account::messages());
    all.extend(account::kept());
    all.extend(account::environments());
    all.extend(account::logs());
    all.extend(account::webhooks());
    all.extend(account::accounts());
    if test_clock {
        all.extend(clock());
    }
    all
}

fn general() -> Vec<Operation> {
    vec![
        get("/healthz", "isUp", "Whether the program runs", ops::healthz),
        get("/readyz", "isReady", "Whether it serves", ops::readyz),
        get(
            "/metrics",
            "metrics",
            "Figures for Prometheus",
            metrics::metrics,
        )
        .about("Asks no box, so it wakes and holds none."),
        get("/openapi.json", "openapi", "This document", ops::openapi),
        get(
            "/v1/host",
            "host",
            "The host: its room, and what is on it",
            ops::host,
        ),
        get(
            "/v1/events",
            "events",
            "Every change of a box's state",
            events::events,
        )
        .about("In order, and none is lost over a restart.")
        .refuses(&[Kind::EventsGone]),
        post(
            "/v1/agents/{id}/heartbeat",
            "heartbeat",
            "A conversation is still there",
            ops::heartbeat,
        ),
        post(
            "/v1/agents/{id}/leave",
            "leave",
            "A conversation ended",
            ops::leave,
        ),
    ]
}

fn boxes() -> Vec<Operation> {
    vec![
        get("/v1/boxes", "listBoxes", "Boxes, most recently used first", boxes::list)
            .about("Wakes nothing and is no use.")
            .tools(&["sandbox_list"]),
        post("/v1/boxes", "startBox", "Start a box", boxes::start)
            .about("Answers once it is ready, unless `wait` is false. With `restore`, brings back one that the rules stopped.")
            .refuses(STARTS)
            .refuses(ENDED)
            .refuses(&[Kind::NotFound])
            .tools(&["sandbox_start"]),
        get("/v1/boxes/{id}", "lookAtBox", "Everything about a box", boxes::status)
            .about("Wakes nothing and is no use.")
            .tools(&["sandbox_status"]),
        patch("/v1/boxes/{id}", "changeBox", "Change what is set of a box", boxes::patch)
            .refuses(ENDED)
            .refuses(&[Kind::LifetimeOver, Kind::EgressFailed]),
        delete("/v1/boxes/{id}", "deleteBox", "Stop a box for good", boxes::stop)
            .about("May be repeated."),
        post("/v1/boxes/{id}/stop", "stopBox", "Stop a box for good", boxes::stop)
            .about("May be repeated. No copy is kept.")
            .tools(&["sandbox_stop"]),
        post("/v1/boxes/{id}/freeze", "freezeBox", "Freeze a box now", boxes::freeze)
            .about("May be repeated.")
            .refuses(ENDED)
            .refuses(&[Kind::InUse, Kind::FreezeFailed, Kind::TakenOver])
            .tools(&["sandbox_freeze"]),
        post("/v1/boxes/{id}/wake", "wakeBox", "Wake a box", boxes::wake)
            .about("May be repeated. Other calls wake a box by themselves.")
            .refuses(NEEDS_BOX)
            .tools(&["sandbox_wake"]),
        post("/v1/boxes/{id}/renew", "renewBox", "Give a box the daemon that new boxes get", boxes::renew)
            .about("May be repeated: a box that has it already is left as it is, and not woken. A box that is woken from memory carries \
                    the daemon that it froze with, also after an update of the server. What runs in it goes on, with its output and \
                    its deadlines, and so do terminals; streams of E2B's clients end and can be opened again.")
            .refuses(NEEDS_BOX)
            .refuses(&[Kind::RenewFailed]),
        post("/v1/boxes/{id}/fork", "forkBox", "New boxes with this one's memory and files", snapshots::fork)
            .refuses(ENDED)
            .refuses(STARTS)
            .refuses(&[Kind::SnapshotFailed, Kind::TakenOver])
            .tools(&["sandbox_fork"]),
        post("/v1/boxes/{id}/snapshots", "makeSnapshot", "Keep a box as it is now", snapshots::make)
            .refuses(ENDED)
            .refuses(&[Kind::SnapshotFailed, Kind::TooMany, Kind::TakenOver]),
        get("/v1/snapshots", "listSnapshots", "Snapshots, newest first", snapshots::list),
        get("/v1/snapshots/{id}", "snapshot", "One snapshot", snapshots::one),
        delete("/v1/snapshots/{id}", "removeSnapshot", "Remove a snapshot", snapshots::remove)
            .about("Boxes that were made from it stay."),
        post("/v1/boxes/{id}/link", "makeLink", "A signed link to a box's URL", links::make)
            .refuses(ENDED),
        delete("/v1/boxes/{id}/link", "revokeLinks", "Make all links worthless", links::revoke)
            .refuses(ENDED),
        post("/v1/boxes/{id}/wire", "wireBox", "Say where a name in a box leads", wiring::wire)
            .refuses(NEEDS_BOX)
            .tools(&["sandbox_wire"]),
        post("/v1/boxes/{id}/scene", "setScene", "Choose what people see first", wiring::scene)
            .refuses(NEEDS_BOX)
            .tools(&["sandbox_scene"]),
    ]
}

fn inside() -> Vec<Operation> {
    let archive = Taken::Media(files::ARCHIVE, None);
    vec![
        post("/v1/boxes/{id}/sync", "sync", "Merge a tree of files into a box", files::sync)
            .about("A tar.gz; whole or not at all.")
            .takes(archive)
        .tools(&["sandbox_sync"])
            .refuses(NEEDS_BOX),
        get("/v1/boxes/{id}/files", "readFile", "Read a file, or list a folder", files::read)
            .refuses(NEEDS_BOX)
            .tools(&["sandbox_get", "sandbox_pull"]),
        put("/v1/boxes/{id}/files", "writeFile", "Write a file", files::write)
            .refuses(NEEDS_BOX),
        get("/v1/downloads/{token}",
            "download",
            "What a tool handed out",
            files::handed_out,
        )
        .about("The address is all that is needed, for an hour.")
        .refuses(NEEDS_BOX),
        get("/v1/boxes/{id}/terminal", "openTerminal", "A terminal over a WebSocket", terminal::open)
            .about(
                "From the client, bytes are typed and `{\"cols\", \"rows\"}` resizes. To it, bytes are what the terminal shows, and a \
                 text says `{\"pid\"}` first, `{\"asleep\": true|false}` as the box freezes and thaws, `{\"error\"}` of what was typed \
                 in vain, and `{\"ended\": {\"exitCode\"}}` last.",
            )
            .refuses(NEEDS_BOX),
    ]
}

fn commands() -> Vec<Operation> {
    vec![
        post(
            "/v1/boxes/{id}/exec",
            "exec",
            "Run a command in a box",
            procs::exec,
        )
        .about("Wakes a frozen box first. A command that fails is no error of the call.")
        .refuses(NEEDS_BOX)
        .refuses(&[Kind::NotReady])
        .tools(&["sandbox_exec"]),
        post(
            "/v1/boxes/{id}/build",
            "build",
            "Build, or reuse an equal build",
            keep::build,
        )
        .refuses(NEEDS_BOX)
        .refuses(&[Kind::InUse])
        .tools(&["sandbox_build"]),
        get(
            "/v1/boxes/{id}/procs",
            "listCommands",
            "Commands of a box",
            procs::list,
        )
        .refuses(NEEDS_BOX)
        .tools(&["sandbox_procs"]),
        get(
            "/v1/boxes/{id}/procs/{exec}",
            "command",
            "One command, perhaps once it ended or is ready",
            procs::one,
        )
        .refuses(NEEDS_BOX)
        .refuses(&[Kind::NotReady])
        .tools(&["sandbox_procs"]),
        post(
            "/v1/boxes/{id}/procs/{exec}/stop",
            "stopCommand",
            "Stop a command with everything it started",
            procs::stop,
        )
        .refuses(NEEDS_BOX)
        .tools(&["sandbox_procs"]),
        get(
            "/v1/boxes/{id}/procs/{exec}/output",
            "output",
            "A command's output, from any byte on",
            procs::output,
        )
        .refuses(NEEDS_BOX),
    ]
}

fn clock() -> Vec<Operation> {
    vec![
        get(
            "/v1/test/clock",
            "clock",
            "The server's time",
            ops::read_clock,
        ),
        post(
            "/v1/test/clock",
            "advanceClock",
            "Move it forward, until all that came due is done",
            ops::advance_clock,
        ),
    ]
}
