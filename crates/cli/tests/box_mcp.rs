//! Agents on real boxes: the official SDKs and the published adapter as clients, each in a program of its own under
//! `agents/`. Needs root, what `scripts/bootstrap` installs, Node.js and Python; the packages come from the registries the
//! machine is set up for and are kept in the target folder.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

const PROGRAM: &str = env!("CARGO_BIN_EXE_icebox");
/// The clients, at the versions these tests were written with.
const NODE: &[&str] = &[
    "@modelcontextprotocol/sdk@1.32.2",
    "parallelsandbox-mcp@0.2.4",
];
const PYTHON: &[&str] = &["mcp==2.3.0"];

/// A server on a folder and port of its own, ended with all its boxes when the test is over.
struct Server {
    child: Child,
    dir: tempfile::TempDir,
    url: String,
}

impl Server {
    fn start() -> Self {
        let port = TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr());
        let port = port.expect("a free port").port();
        // Where the images can share files with the system: /tmp may be another file system.
        let dir = tempfile::tempdir_in("/var/tmp").expect("a folder");
        let listen = format!("127.0.0.1:{port}");
        Self {
            child: serve(dir.path(), &listen),
            dir,
            url: format!("http://{listen}"),
        }
    }

    /// Kills the server, and starts another one in its place.
    fn restart(&mut self) {
        self.child.kill().expect("it is killed");
        self.child.wait().expect("it ends");
        let listen = self.url.trim_start_matches("http://");
        self.child = serve(self.dir.path(), listen);
    }

    fn key(&self) -> String {
        let key = fs::read_to_string(self.dir.path().join("admin.key"));
        key.expect("a key").trim().to_owned()
    }

    fn known_to(&self, client: &mut Command) {
        client
            .env("ICEBOX_URL", &self.url)
            .env("ICEBOX_DATA", self.dir.path())
            .env_remove("ICEBOX_API_KEY");
    }

    /// Runs a client, which has to end well, with this server in its environment.
    fn runs(&self, client: &mut Command) {
        self.known_to(client);
        let output = client.output().expect("the client runs");
        let said =
            [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
        assert!(output.status.success(), "{}", said.join("\n"));
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The program stops the boxes that a failed test left; then the server.
        let listed = Command::new(PROGRAM)
            .args(["ls", "--json", "--url", &self.url, "--data"])
            .arg(self.dir.path())
            .output();
        let listed: serde_json::Value = listed
            .ok()
            .and_then(|output| serde_json::from_slice(&output.stdout).ok())
            .unwrap_or_default();
        for shown in listed["boxes"].as_array().into_iter().flatten() {
            let stopped = Command::new(PROGRAM)
                .args([
                    "stop",
                    shown["id"].as_str().unwrap_or_default(),
                    "--url",
                    &self.url,
                    "--data",
                ])
                .arg(self.dir.path())
                .output();
            drop(stopped);
        }
        let pid = rustix::process::Pid::from_child(&self.child);
        // It may have ended by itself.
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        drop(self.child.wait());
    }
}

/// Starts a server and waits until it serves.
fn serve(data: &Path, listen: &str) -> Child {
    let mut child = Command::new(PROGRAM)
        .arg("serve")
        .arg("--data")
        .arg(data)
        .args(["--listen", listen])
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the server starts");
    let mut lines = BufReader::new(child.stderr.take().expect("its log")).lines();
    let served = lines.any(|line| line.is_ok_and(|line| line.contains("serving address")));
    if !served {
        drop(child.wait());
        panic!("the server does not serve");
    }
    // Whatever it says later must not fill the pipe.
    std::thread::spawn(move || lines.for_each(drop));
    child
}

/// Where packages of clients are kept: in the target folder, which is above this test's own program.
fn packages(kind: &str) -> PathBuf {
    let target = Path::new(PROGRAM)
        .ancestors()
        .nth(2)
        .expect("a target folder");
    target.join("clients").join(kind)
}

/// Installs packages once, whoever comes first.
fn installed(kind: &str, names: &[&str], install: impl FnOnce(&Path) -> Command) -> PathBuf {
    let folder = packages(kind);
    fs::create_dir_all(&folder).expect("a folder");
    let lock = fs::File::create(folder.with_extension("lock")).expect("a lock");
    lock.lock().expect("a lock");
    let mark = folder.join("installed");
    if fs::read_to_string(&mark).unwrap_or_default() != names.join(" ") {
        let output = install(&folder).args(names).output().expect("it runs");
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        fs::write(mark, names.join(" ")).expect("a mark");
    }
    folder
}

fn node(script: &str) -> Command {
    let folder = installed("node", NODE, |folder| {
        let mut npm = Command::new("npm");
        npm.args(["install", "--no-audit", "--no-fund", "--prefix"])
            .arg(folder);
        npm
    });
    let mut node = Command::new("node");
    node.arg(agent(script)).current_dir(folder);
    node
}

fn python(script: &str) -> Command {
    let folder = installed("python", PYTHON, |folder| {
        let mut pip = Command::new("python3");
        pip.args(["-m", "pip", "install", "--quiet", "--upgrade", "--target"])
            .arg(folder);
        pip
    });
    let mut python = Command::new("python3");
    python.env("PYTHONPATH", folder).arg(agent(script));
    python
}

fn agent(script: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/agents")
        .join(script)
}

/// A git project of four files, in a folder that goes with the test.
fn project(dir: &tempfile::TempDir) -> PathBuf {
    let project = dir.path().join("project");
    fs::create_dir(&project).expect("a folder");
    let build = "mkdir -p out && echo \"built from $(cat one)\" > out/result\n";
    for (name, content) in [
        ("one", "one\n"),
        ("old", "old\n"),
        ("build.sh", build),
        (".gitignore", "out/\n"),
    ] {
        fs::write(project.join(name), content).expect("a file");
    }
    let steps: [&[&str]; 3] = [
        &["init", "-q"],
        &["add", "-A"],
        &[
            "-c",
            "user.name=t",
            "-c",
            "user.email=t@localhost",
            "commit",
            "-qm",
            "one",
        ],
    ];
    for words in steps {
        let done = Command::new("git")
            .arg("-C")
            .arg(&project)
            .args(words)
            .status();
        assert!(done.expect("git runs").success(), "{words:?}");
    }
    project
}

#[test]
fn box_an_agents_day_over_the_adapter() {
    let server = Server::start();
    let dir = tempfile::tempdir().expect("a folder");
    server.runs(python("day.py").arg(PROGRAM).arg(project(&dir)));
}

#[test]
fn box_the_typescript_sdk_over_http() {
    let server = Server::start();
    server.runs(node("http.mjs").arg(&server.url).arg(server.key()));
}

#[test]
fn box_the_published_adapter_works_unchanged() {
    let server = Server::start();
    let dir = tempfile::tempdir().expect("a folder");
    let mut client = node("published.mjs");
    server.runs(client.arg(&server.url).arg(server.key()).arg(project(&dir)));
}

#[test]
fn box_an_agents_work_over_the_adapter() {
    let server = Server::start();
    let dir = tempfile::tempdir().expect("a folder");
    server.runs(python("work.py").arg(PROGRAM).arg(project(&dir)));
}

#[test]
fn box_a_call_goes_on_when_the_server_is_killed_in_the_middle() {
    let mut server = Server::start();
    let mut client = python("reconnect.py");
    server.known_to(&mut client);
    let client = client.arg(PROGRAM).stdout(Stdio::piped()).spawn();
    let mut client = client.expect("the client runs");
    let lines = BufReader::new(client.stdout.take().expect("its output")).lines();
    for line in lines {
        if line.expect("a line") == "restart now" {
            server.restart();
        }
    }
    assert!(client.wait().expect("it ends").success());
}

#[test]
fn box_words_are_there_once_whatever_answer_is_lost() {
    let server = Server::start();
    server.runs(python("words.py").arg(PROGRAM));
}

#[test]
fn box_an_adapter_leaves_however_it_ends() {
    let server = Server::start();
    server.runs(python("endings.py").arg(PROGRAM));
}

#[test]
fn box_hostile_arguments_and_files_do_no_harm() {
    let server = Server::start();
    let dir = tempfile::tempdir().expect("a folder");
    let mut client = python("hostile.py");
    let client = client.arg(PROGRAM).arg(&server.url).arg(server.key());
    server.runs(client.arg(dir.path()));
}
