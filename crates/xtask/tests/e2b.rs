//! E2B's published SDKs, unchanged, on a real server: programs of our own like those in their documentation, and an idle
//! freeze in the middle, by the test clock. The packages are installed below `target/`, in the versions that are pinned
//! beside this file.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};
use xtask::harness::Instance;

/// The parts of the Python programs.
const SYNC: &str = "commands,lists,ends,pauses,files_only,auto,idles,kills,files,ptys,metrics,network,snapshots,forks";
const ASYNC: &str = "commands,together,files";
/// The parts of the JavaScript program.
const NODE: &str = "commands,pauses,idles,forks,files";

fn programs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/e2b")
}

/// A folder below `target/` for what is installed.
fn place(name: &str) -> anyhow::Result<PathBuf> {
    let own = std::env::current_exe()?;
    let target = own.ancestors().nth(3).context("no target folder")?;
    let place = target.join("e2b").join(name);
    fs::create_dir_all(&place)?;
    Ok(place)
}

fn run(command: &mut Command) -> anyhow::Result<()> {
    let output = command.stdin(Stdio::null()).output();
    let output = output.with_context(|| format!("{command:?} cannot run"))?;
    print!("{}", String::from_utf8_lossy(&output.stdout));
    ensure!(
        output.status.success(),
        "{command:?}: {}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(())
}

/// Installs once for each list of versions.
fn install(
    place: &Path,
    pins: &Path,
    install: impl FnOnce() -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let (pins, done) = (fs::read(pins)?, place.join("installed"));
    if fs::read(&done).is_ok_and(|installed| installed == pins) {
        return Ok(());
    }
    install()?;
    fs::write(done, pins).context("note what is installed")
}

/// A Python with the SDK in it.
fn python(pins: &str) -> anyhow::Result<PathBuf> {
    let place = place(&format!("python-{pins}"))?;
    let pins = programs().join("python").join(format!("{pins}.txt"));
    let python = place.join("venv/bin/python");
    install(&place, &pins, || {
        run(Command::new("python3")
            .args(["-m", "venv", "--clear"])
            .arg(place.join("venv")))?;
        run(Command::new(&python)
            .args([
                "-m",
                "pip",
                "install",
                "--quiet",
                "--disable-pip-version-check",
                "-r",
            ])
            .arg(&pins))
    })?;
    Ok(python)
}

/// A folder with the JavaScript SDKs and the program beside them.
fn node(name: &str) -> anyhow::Result<PathBuf> {
    let place = place(&format!("node-{name}"))?;
    let from = programs().join("node");
    for file in ["package.json", "package-lock.json", "day.mjs"] {
        fs::copy(from.join(file), place.join(file))?;
    }
    install(&place, &from.join("package-lock.json"), || {
        run(Command::new("npm")
            .args(["ci", "--no-audit", "--no-fund", "--prefix"])
            .arg(&place))
    })?;
    Ok(place)
}

/// Runs programs against a server whose clock stands still, and ends it; no box may be left.
fn against_a_server(
    name: &str,
    programs: impl FnOnce(&dyn Fn(&mut Command, &str) -> anyhow::Result<()>) -> anyhow::Result<()>,
) {
    let mut instance = Instance::new(name, true).expect("a data folder");
    instance.start(&[]).expect("a server");
    let (address, key) = instance.address().expect("an address");
    let url = format!("http://{address}");
    let ran = programs(&|command, parts| {
        run(command
            .env("E2B_API_URL", &url)
            .env("E2B_SANDBOX_URL", &url)
            .env("E2B_API_KEY", &key)
            .env("E2B_RUN", parts))
    });
    if let Err(error) = ran {
        panic!("{error:#}\n{}", instance.log_tail());
    }
    let listed = instance.get("/v1/boxes").expect("a list");
    assert_eq!(listed["boxes"], serde_json::json!([]), "boxes were left");
    let left = instance.leftovers(&[]);
    assert!(left.is_empty(), "left behind:\n{}", left.join("\n"));
    instance.stop().expect("the server ends");
}

fn python_day(pins: &str) {
    let python = python(pins).expect("the Python SDK");
    let program = |name: &str| programs().join("python").join(name);
    against_a_server(&format!("e2b-py-{pins}"), |run| {
        run(Command::new(&python).arg(program("sync.py")), SYNC)?;
        run(Command::new(&python).arg(program("asynchronous.py")), ASYNC)
    });
}

fn node_day(package: &str) {
    let place = node(package).expect("the JavaScript SDK");
    against_a_server(&format!("e2b-js-{package}"), |run| {
        let mut program = Command::new("node");
        program
            .arg(place.join("day.mjs"))
            .env("E2B_PACKAGE", format!("e2b-{package}"));
        run(&mut program, NODE)
    });
}

#[test]
fn box_e2b_python_pinned() {
    python_day("old");
}

#[test]
fn box_e2b_python_newest() {
    python_day("new");
}

#[test]
fn box_e2b_javascript_pinned() {
    node_day("old");
}

#[test]
fn box_e2b_javascript_newest() {
    node_day("new");
}
