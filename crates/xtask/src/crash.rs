//! The crash matrix: the server, CRIU, or both are killed at every step of start, freeze, thaw, stop, restore, renew and
//! snapshots, on real boxes. Afterwards each box is ready, frozen with a good copy, or gone on purpose; what
//! runs in it goes on; nothing leaks.

use std::fs;

use anyhow::{Context, ensure};
use icebox_server::steps::STEPS;
use serde_json::{Value, json};

use crate::harness::Instance;

/// What keeps memory, a connection and a lock in a box.
const WITNESS: &str = include_str!("crash/witness.py");

/// How a command inside the box asks the witness.
const ASK: &str = "exec 3<>/dev/tcp/127.0.0.1/7778 && cat <&3";

/// Who is killed at a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Victim {
    /// The server.
    Server,
    /// The CRIU at work, by the server, which goes on.
    Criu,
    /// First CRIU, then the server.
    Both,
}

/// One cell of the matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cell {
    /// The step, one of the driver's.
    pub step: &'static str,
    /// Who is killed there.
    pub victim: Victim,
    /// What is under way: `start`, `freeze`, `thaw`, `stop`, `restore`, `renew`; `begin`: a start from a snapshot; `save` and `unsave`:
    /// a snapshot is made or removed.
    pub act: &'static str,
}

/// Every cell, in the order of a life.
pub fn cells() -> Vec<Cell> {
    let mut cells = Vec::new();
    for step in STEPS.iter().copied() {
        let acts: &[&'static str] = match step.split('.').next() {
            Some("boot") => &["start"],
            Some("seed") => &["begin"],
            Some("save") => &["save"],
            Some("unsave") => &["unsave"],
            Some("freeze" | "evict") => &["freeze"],
            Some("renew") => &["renew"],
            Some("thaw" | "release") => &["thaw", "restore"],
            Some(_) | None => &["stop"],
        };
        let victims: &[Victim] = match step {
            "freeze.dumping" | "thaw.restoring" => &[Victim::Server, Victim::Criu, Victim::Both],
            _ => &[Victim::Server],
        };
        for act in acts.iter().copied() {
            cells.extend(victims.iter().map(|victim| Cell {
                step,
                victim: *victim,
                act,
            }));
        }
    }
    cells
}

/// Runs the whole matrix `rounds` times, or the cells whose step contains `only`.
pub fn run(rounds: u32, only: Option<&str>) -> anyhow::Result<()> {
    let cells: Vec<Cell> = cells()
        .into_iter()
        .filter(|cell| only.is_none_or(|text| cell.step.contains(text)))
        .collect();
    ensure!(
        !cells.is_empty(),
        "no step has that in its name; the steps are {STEPS:?}"
    );
    let mut failures = 0_u32;
    let mut instance = Instance::new("crash", true)?;
    for round in 1..=rounds {
        for cell in &cells {
            let result = run_cell(&mut instance, *cell);
            let Cell { step, victim, act } = cell;
            match &result {
                Ok(()) => println!("round {round}/{rounds}  {act:7} {step:20} {victim:?}: fine"),
                Err(error) => {
                    failures += 1;
                    println!(
                        "round {round}/{rounds}  {act:7} {step:20} {victim:?}: FAILED\n{error:#}"
                    );
                    // What is left of it must not spoil the next one.
                    instance = Instance::new(&format!("crash-{failures}"), true)?;
                }
            }
        }
    }
    ensure!(
        failures == 0,
        "{failures} of {} runs failed",
        rounds as usize * cells.len()
    );
    println!("{} runs, all fine", rounds as usize * cells.len());
    Ok(())
}

/// Runs one cell on an instance without boxes and without a server, and leaves it so.
pub fn run_cell(instance: &mut Instance, cell: Cell) -> anyhow::Result<()> {
    let trace = instance.data.join("steps.trace");
    if trace.exists() {
        fs::remove_file(&trace)?;
    }
    match cell.act {
        "start" => crash_in_start(instance, cell),
        "stop" => crash_in_stop(instance, cell),
        "begin" => crash_in_begin(instance, cell),
        "save" => crash_in_save(instance, cell),
        "unsave" => crash_in_unsave(instance, cell),
        "freeze" => crash_in_freeze(instance, cell),
        "renew" => crash_in_renew(instance, cell),
        "restore" => crash_in_thaw(instance, cell, stop_by_rule, restore),
        _ => crash_in_thaw(instance, cell, |_, _| Ok(()), wake),
    }
}

fn crash_in_start(instance: &mut Instance, cell: Cell) -> anyhow::Result<()> {
    arm(instance, cell)?;
    // The server dies before it answers.
    drop(instance.ask("POST", "/v1/boxes", Some(&json!({"name": "unlucky"}))));
    struck(instance, cell)?;
    let listed = instance.get("/v1/boxes")?;
    let id = listed["boxes"][0]["id"]
        .as_str()
        .context("the box is not listed")?
        .to_owned();
    instance.wait_for_status(&id, &["ready"])?;
    ensure!(instance.exec(&id, "echo alive")?.trim() == "alive");
    stop_and_look(instance, &id)
}

fn crash_in_stop(instance: &mut Instance, cell: Cell) -> anyhow::Result<()> {
    instance.start(&[])?;
    let id = instance.start_box(json!({}))?;
    instance.stop()?;
    arm(instance, cell)?;
    drop(instance.ask("POST", &format!("/v1/boxes/{id}/stop"), Some(&json!({}))));
    struck(instance, cell)?;
    instance.wait_for_status(&id, &["terminated"])?;
    look_for_leftovers(instance, &id)
}

fn crash_in_freeze(instance: &mut Instance, cell: Cell) -> anyhow::Result<()> {
    let (id, before) = box_with_witness(instance)?;
    instance.stop()?;
    arm(instance, cell)?;
    drop(instance.ask("POST", &format!("/v1/boxes/{id}/freeze"), Some(&json!({}))));
    struck(instance, cell)?;
    instance.wait_for_status(&id, &["frozen", "ready"])?;
    goes_on(instance, &id, &before)
}

fn crash_in_renew(instance: &mut Instance, cell: Cell) -> anyhow::Result<()> {
    let (id, before) = box_with_witness(instance)?;
    instance.stop()?;
    let boxd = instance.data.join("another-boxd");
    let kept = fs::read_dir(instance.data.join("boxd"))?.next();
    let kept = kept.context("no boxd is kept")??.path().join("boxd");
    let mut program = fs::read(kept).context("read boxd")?;
    program.extend(b"another");
    fs::write(&boxd, program)?;
    arm_with(instance, cell, &[("ICEBOX_BOXD", &boxd.to_string_lossy())])?;
    let path = format!("/v1/boxes/{id}/renew");
    drop(instance.ask("POST", &path, Some(&json!({}))));
    struck(instance, cell)?;
    instance.wait_for_status(&id, &["ready"])?;
    witness(instance, &id, &before)?;
    // That server has the usual one again, and the box the one or the other.
    instance.post(&path, json!({}))?;
    goes_on(instance, &id, &before)
}

/// The new box goes on from the memory of the other, which is as it was.
fn crash_in_begin(instance: &mut Instance, cell: Cell) -> anyhow::Result<()> {
    let (id, before) = box_with_witness(instance)?;
    let snapshot = save(instance, &id)?;
    instance.stop()?;
    arm(instance, cell)?;
    let body = json!({"snapshot": snapshot, "name": "new"});
    drop(instance.ask("POST", "/v1/boxes", Some(&body)));
    struck(instance, cell)?;
    let listed = instance.get("/v1/boxes")?;
    let boxes = listed["boxes"].as_array().context("a list")?;
    let new = boxes.iter().find(|it| it["name"] == "new");
    let new = new.and_then(|it| it["id"].as_str());
    let new = new.context("the new box is not listed")?.to_owned();
    instance.wait_for_status(&new, &["ready"])?;
    witness(instance, &new, &before)?;
    unsave(instance, &snapshot);
    instance.post(&format!("/v1/boxes/{new}/stop"), json!({}))?;
    snapshots_are(instance, 0)?;
    goes_on(instance, &id, &before)
}

/// There is a whole snapshot or none, and the box goes on.
fn crash_in_save(instance: &mut Instance, cell: Cell) -> anyhow::Result<()> {
    let (id, before) = box_with_witness(instance)?;
    instance.stop()?;
    arm(instance, cell)?;
    let path = format!("/v1/boxes/{id}/snapshots");
    drop(instance.ask("POST", &path, Some(&json!({}))));
    struck(instance, cell)?;
    instance.wait_for_status(&id, &["frozen", "ready"])?;
    witness(instance, &id, &before)?;
    let listed = instance.get("/v1/snapshots")?;
    let listed = listed["snapshots"].as_array().context("a list")?.clone();
    snapshots_are(instance, listed.len())?;
    for snapshot in listed {
        let new = instance.start_box(json!({"snapshot": snapshot["id"]}))?;
        witness(instance, &new, &before)?;
        instance.post(&format!("/v1/boxes/{new}/stop"), json!({}))?;
        unsave(instance, snapshot["id"].as_str().context("an id")?);
    }
    snapshots_are(instance, 0)?;
    // It can be done again.
    let again = save(instance, &id)?;
    unsave(instance, &again);
    snapshots_are(instance, 0)?;
    goes_on(instance, &id, &before)
}

fn crash_in_unsave(instance: &mut Instance, cell: Cell) -> anyhow::Result<()> {
    let (id, before) = box_with_witness(instance)?;
    let snapshot = save(instance, &id)?;
    instance.stop()?;
    arm(instance, cell)?;
    unsave(instance, &snapshot);
    struck(instance, cell)?;
    let listed = instance.get("/v1/snapshots")?;
    ensure!(listed["snapshots"] == json!([]), "it is listed: {listed}");
    snapshots_are(instance, 0)?;
    goes_on(instance, &id, &before)
}

fn save(instance: &Instance, id: &str) -> anyhow::Result<String> {
    let made = instance.post(&format!("/v1/boxes/{id}/snapshots"), json!({}))?;
    ensure!(made["memory"] == true, "it has no memory: {made}");
    Ok(made["id"].as_str().context("no id")?.to_owned())
}

fn unsave(instance: &Instance, snapshot: &str) {
    drop(instance.ask("DELETE", &format!("/v1/snapshots/{snapshot}"), None));
}

/// Waits until so many snapshots lie in the data folder, and nothing else beside them.
fn snapshots_are(instance: &Instance, count: usize) -> anyhow::Result<()> {
    let folder = instance.data.join("snapshots");
    crate::harness::until(std::time::Duration::from_secs(30), || {
        let entries = fs::read_dir(&folder)?.flatten();
        let names: Vec<_> = entries.map(|entry| entry.file_name()).collect();
        let whole = names
            .iter()
            .all(|it| !it.to_string_lossy().ends_with(".tmp"));
        Ok((whole && names.len() == count).then_some(()))
    })
    .with_context(|| format!("not {count} snapshots in {}", folder.display()))
}

fn crash_in_thaw(
    instance: &mut Instance,
    cell: Cell,
    prepare: fn(&Instance, &str) -> anyhow::Result<()>,
    act: fn(&Instance, &str),
) -> anyhow::Result<()> {
    let (id, before) = box_with_witness(instance)?;
    freeze(instance, &id)?;
    prepare(instance, &id)?;
    instance.stop()?;
    arm(instance, cell)?;
    act(instance, &id);
    struck(instance, cell)?;
    instance.wait_for_status(&id, &["frozen", "ready"])?;
    goes_on(instance, &id, &before)
}

fn wake(instance: &Instance, id: &str) {
    drop(instance.ask("POST", &format!("/v1/boxes/{id}/wake"), Some(&json!({}))));
}

fn stop_by_rule(instance: &Instance, id: &str) -> anyhow::Result<()> {
    instance.post("/v1/test/clock", json!({"advanceSec": 25 * 3600}))?;
    instance.wait_for_status(id, &["terminated"]).map(drop)
}

fn restore(instance: &Instance, id: &str) {
    drop(instance.ask("POST", "/v1/boxes", Some(&json!({"restore": id}))));
}

/// Starts the server so that it strikes at the cell's step.
fn arm(instance: &mut Instance, cell: Cell) -> anyhow::Result<()> {
    arm_with(instance, cell, &[])
}

/// The same with more variables.
fn arm_with(instance: &mut Instance, cell: Cell, more: &[(&str, &str)]) -> anyhow::Result<()> {
    let at = match cell.victim {
        Victim::Server => cell.step.to_owned(),
        Victim::Criu => format!("{},only-criu", cell.step),
        Victim::Both => format!("{},criu", cell.step),
    };
    let trace = instance.data.join("steps.trace");
    let trace = trace.to_string_lossy().into_owned();
    let mut variables = vec![("ICEBOX_CRASH_AT", &*at), ("ICEBOX_STEP_TRACE", &*trace)];
    variables.extend(more);
    instance.start(&variables)
}

/// Makes sure that the blow fell, and has a healthy server afterwards.
fn struck(instance: &mut Instance, cell: Cell) -> anyhow::Result<()> {
    if cell.victim != Victim::Criu {
        instance.wait_for_end()?;
        instance.start(&[])?;
    }
    let trace = fs::read_to_string(instance.data.join("steps.trace")).unwrap_or_default();
    let struck = format!("crash {}", cell.step);
    ensure!(
        trace.lines().any(|line| line == struck),
        "the step was never reached:\n{trace}"
    );
    Ok(())
}

fn box_with_witness(instance: &mut Instance) -> anyhow::Result<(String, Value)> {
    instance.start(&[])?;
    let id = instance.start_box(json!({}))?;
    let path = format!("/v1/boxes/{id}/exec");
    let put = json!({"cmd": "cat >/work/witness.py", "stdin": WITNESS});
    instance.post(&path, put)?;
    let run = json!({"cmd": "exec python3 /work/witness.py", "background": true});
    instance.post(&path, run)?;
    let asked = crate::harness::until(std::time::Duration::from_secs(30), || {
        Ok(instance.exec(&id, ASK).ok())
    });
    let before = asked.context("the witness does not answer")?;
    instance.exec(&id, "echo precious >/work/file && sync /work/file")?;
    Ok((id, serde_json::from_str(&before)?))
}

/// Everything the witness holds is as it was; another freeze and thaw works; a stop leaves nothing.
fn goes_on(instance: &mut Instance, id: &str, before: &Value) -> anyhow::Result<()> {
    let mut last = witness(instance, id, before)?;
    freeze(instance, id)?;
    let copy = instance.data.join("boxes").join(id).join("copies");
    let copies = fs::read_dir(&copy)
        .map(|d| d.flatten().count())
        .unwrap_or(0);
    ensure!(
        copies == 1,
        "{copies} copies in {} instead of the one",
        copy.display()
    );
    last = witness(instance, id, &last)?;
    ensure!(
        last["count"].as_u64() > before["count"].as_u64(),
        "the counter stands still"
    );
    stop_and_look(instance, id)
}

fn witness(instance: &Instance, id: &str, before: &Value) -> anyhow::Result<Value> {
    let said = instance.exec(id, ASK).context("ask the witness")?;
    let now: Value =
        serde_json::from_str(&said).with_context(|| format!("the witness said {said:?}"))?;
    ensure!(
        now["born"] == before["born"],
        "another witness: memory was lost"
    );
    ensure!(
        now["count"].as_u64() >= before["count"].as_u64(),
        "time went back: {now} after {before}"
    );
    for held in ["memory", "first", "lock", "connection"] {
        ensure!(now[held] == true, "{held} was lost: {now}");
    }
    ensure!(
        instance.exec(id, "cat /work/file")?.trim() == "precious",
        "a file was lost"
    );
    Ok(now)
}

fn freeze(instance: &Instance, id: &str) -> anyhow::Result<()> {
    instance.post(&format!("/v1/boxes/{id}/freeze"), json!({}))?;
    let view = instance.get(&format!("/v1/boxes/{id}"))?;
    ensure!(
        view["status"] == "frozen",
        "not frozen after a freeze: {view}"
    );
    Ok(())
}

fn stop_and_look(instance: &mut Instance, id: &str) -> anyhow::Result<()> {
    instance.post(&format!("/v1/boxes/{id}/stop"), json!({}))?;
    instance.wait_for_status(id, &["terminated"])?;
    look_for_leftovers(instance, id)
}

fn look_for_leftovers(instance: &mut Instance, id: &str) -> anyhow::Result<()> {
    let left = instance.leftovers(&[id.to_owned()]);
    ensure!(left.is_empty(), "left behind:\n{}", left.join("\n"));
    instance.stop()
}
