//! E2B's published SDKs and command line, unchanged, on a real server: programs of our own like those in their
//! documentation, and an idle freeze in the middle, by the test clock. The packages are installed below `target/`, in the
//! versions that are pinned beside this file.

use std::process::Command;

use xtask::harness::Instance;
use xtask::sdks::{node_modules, programs, python, run};

/// The parts of the programs.
const SYNC: &str = "commands,lists,ends,pauses,files_only,auto,idles,kills,files,ptys,metrics,network,snapshots,forks";
const SYNC_DOCS: &str = "sandboxes,listing,commands,files,links,watching,watchers,ptys,git,pausing,figures,network,cut_off";
const ASYNC: &str = "commands,together,files";
const ASYNC_DOCS: &str = "sandboxes,commands,files,watching,ptys,git,pausing,figures";
const NODE: &str = "commands,pauses,idles,forks,files";
const NODE_DOCS: &str = "sandboxes,commands,files,watching,ptys,git,pausing,figures,network";
const CLI: &str = "templates,sandboxes,commands,figures,snapshots,terminals";
/// Those that are run over TLS, too: each way of speaking to a server once.
const SYNC_TLS: &str = "commands,files,cut_off";
const ASYNC_TLS: &str = "commands,files,watching";
const NODE_TLS: &str = "commands,files,watching,network";
const NODE_DOMAIN: &str = "sandboxes,commands,files,host";

/// Runs a command with the settings of a client of the server, and the parts that it is to run.
type Run<'r> = &'r dyn Fn(&mut Command, &str) -> anyhow::Result<()>;

/// Runs programs against a server whose clock stands still, and ends it; no box may be left.
fn against(
    mut instance: Instance,
    programs: impl FnOnce(&Instance, Run<'_>) -> anyhow::Result<()>,
) {
    instance.start(&[]).expect("a server");
    let url = instance.url().expect("a URL");
    let (_, key) = instance.address().expect("an address");
    let ran = programs(&instance, &|command, parts| {
        // For the programs' own requests.
        command.env("ICEBOX_URL", &url);
        if !command.get_envs().any(|(name, _)| name == "E2B_DOMAIN") {
            command.env("E2B_API_URL", &url);
            command.env("E2B_SANDBOX_URL", &url);
        }
        run(command
            .env("E2B_API_KEY", &key)
            .env("E2B_RUN", parts)
            .env("PYTHONDONTWRITEBYTECODE", "1"))
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

fn instance(name: &str) -> Instance {
    Instance::new(&format!("e2b-{name}"), true).expect("a data folder")
}

/// The list with one of the SDK's versions.
fn list(pins: &str) -> String {
    format!("e2b/python/{pins}.txt")
}

fn with_python(pins: &str, runs: &[(&str, &str)]) {
    let python = python(&list(pins)).expect("the Python SDK");
    let name = format!("py-{pins}-{}", runs[0].0.trim_end_matches(".py"));
    against(instance(&name), |_, run| {
        runs.iter().try_for_each(|(program, parts)| {
            let program = programs().join("python").join(program);
            run(Command::new(&python).arg(program), parts)
        })
    });
}

/// A program with one of the JavaScript SDKs.
fn javascript(version: &str, program: &str) -> anyhow::Result<Command> {
    let package = format!("e2b-{version}/dist/index.mjs");
    let mut command = Command::new("node");
    command
        .arg(programs().join("node").join(program))
        .env("E2B_PACKAGE", node_modules("node")?.join(package));
    Ok(command)
}

fn with_node(version: &str, program: &str, parts: &str) {
    let mut command = javascript(version, program).expect("the JavaScript SDK");
    let name = format!("js-{version}-{}", program.trim_end_matches(".mjs"));
    against(instance(&name), |_, run| run(&mut command, parts));
}

#[test]
fn box_e2b_python_pinned() {
    with_python("old", &[("sync.py", SYNC), ("asynchronous.py", ASYNC)]);
}

#[test]
fn box_e2b_python_newest() {
    with_python("new", &[("sync.py", SYNC), ("asynchronous.py", ASYNC)]);
}

#[test]
fn box_e2b_python_documentation_pinned() {
    let runs = [("docs.py", SYNC_DOCS), ("docs_async.py", ASYNC_DOCS)];
    with_python("old", &runs);
}

#[test]
fn box_e2b_python_documentation_newest() {
    let runs = [("docs.py", SYNC_DOCS), ("docs_async.py", ASYNC_DOCS)];
    with_python("new", &runs);
}

#[test]
fn box_e2b_javascript_pinned() {
    with_node("old", "day.mjs", NODE);
}

#[test]
fn box_e2b_javascript_newest() {
    with_node("new", "day.mjs", NODE);
}

#[test]
fn box_e2b_javascript_documentation_pinned() {
    with_node("old", "docs.mjs", NODE_DOCS);
}

#[test]
fn box_e2b_javascript_documentation_newest() {
    with_node("new", "docs.mjs", NODE_DOCS);
}

#[test]
fn box_e2b_command_line() {
    let packages = node_modules("cli").expect("the command line");
    against(instance("cli"), |_, run| {
        let mut command = Command::new("python3");
        command.arg(programs().join("python/cli.py"));
        run(command.arg(packages.join("@e2b/cli/dist/index.js")), CLI)
    });
}

/// With the certificates of the server's own authority, which the clients trust by the variables that they have for that.
#[test]
fn box_e2b_over_tls() {
    let (old, new) = (python(&list("old")), python(&list("new")));
    let pythons = [old.expect("the Python SDK"), new.expect("the Python SDK")];
    node_modules("node").expect("the JavaScript SDKs");
    let resolver = programs().join("node/resolve.mjs");
    against(instance("tls").over_tls(), |instance, run| {
        let authority = instance.data.join("tls/ca.pem");
        for python in &pythons {
            for (program, parts) in [("docs.py", SYNC_TLS), ("docs_async.py", ASYNC_TLS)] {
                let mut command = Command::new(python);
                command.arg(programs().join("python").join(program));
                run(command.env("SSL_CERT_FILE", &authority), parts)?;
            }
        }
        for version in ["old", "new"] {
            let mut command = javascript(version, "docs.mjs")?;
            run(command.env("NODE_EXTRA_CA_CERTS", &authority), NODE_TLS)?;
            // With nothing but the domain, below which the API and every port of every box have names.
            let mut command = javascript(version, "docs.mjs")?;
            let (address, _) = instance.address()?;
            let port = address.rsplit(':').next().unwrap_or_default();
            command
                .env("E2B_DOMAIN", format!("localhost:{port}"))
                .env("NODE_OPTIONS", format!("--import={}", resolver.display()));
            run(command.env("NODE_EXTRA_CA_CERTS", &authority), NODE_DOMAIN)?;
        }
        Ok(())
    });
}
