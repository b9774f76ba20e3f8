//! Published packages for tests, E2B's above all, in the versions that are pinned below `tests/`, installed below `target/`,
//! once for each list of versions.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};

/// The folder of lists, and of our own programs.
#[must_use]
pub fn tests() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests")
}

/// The folder of our own programs for E2B's.
#[must_use]
pub fn programs() -> PathBuf {
    tests().join("e2b")
}

/// Runs a command to its good end, and shows what it says.
pub fn run(command: &mut Command) -> anyhow::Result<()> {
    print!("{}", said(command)?);
    Ok(())
}

/// Runs a command to its good end. What it said on its standard output.
pub fn said(command: &mut Command) -> anyhow::Result<String> {
    let output = command.stdin(Stdio::null()).output();
    let output = output.with_context(|| format!("{command:?} cannot run"))?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(
        output.status.success(),
        "{command:?}: {}\n{said}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(said)
}

/// A Python with the packages of a list in it.
pub fn python(pins: &str) -> anyhow::Result<PathBuf> {
    let pins = tests().join(pins);
    let name = pins.file_stem().context("no name")?.to_string_lossy();
    let place = place(&format!("python-{name}"))?;
    let python = place.join("venv/bin/python");
    install(&place, &pins, || {
        run(Command::new("python3")
            .args(["-m", "venv", "--clear"])
            .arg(place.join("venv")))?;
        let pip = ["-m", "pip", "install", "--quiet"];
        let quiet = ["--disable-pip-version-check", "-r"];
        run(Command::new(&python).args(pip).args(quiet).arg(&pins))
    })?;
    Ok(python)
}

/// Where the packages of the lock file in the folder `from` are.
pub fn node_modules(from: &str) -> anyhow::Result<PathBuf> {
    let place = place(from)?;
    let from = programs().join(from);
    let lock = "package-lock.json";
    install(&place, &from.join(lock), || {
        for file in ["package.json", lock] {
            fs::copy(from.join(file), place.join(file))?;
        }
        run(Command::new("npm")
            .args(["ci", "--no-audit", "--no-fund", "--prefix"])
            .arg(&place))
    })?;
    Ok(place.join("node_modules"))
}

/// A folder below `target/` for what is installed.
fn place(name: &str) -> anyhow::Result<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2);
    let place = root.context("no repository")?.join("target/e2b").join(name);
    fs::create_dir_all(&place)?;
    Ok(place)
}

fn install(
    place: &Path,
    pins: &Path,
    install: impl FnOnce() -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    // Tests are processes of their own, several at a time.
    let lock = fs::File::create(place.join("lock"))?;
    lock.lock()?;
    let (pins, done) = (fs::read(pins)?, place.join("installed"));
    if fs::read(&done).is_ok_and(|installed| installed == pins) {
        return Ok(());
    }
    install()?;
    fs::write(done, pins).context("note what is installed")
}
