//! The program on real boxes: a day with one box, over the command line alone, and the demo. Needs root and what
//! `scripts/bootstrap` installs.

use std::fs;
use std::io::{BufRead, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;

use self::terminal::Terminal;

mod terminal;

const PROGRAM: &str = env!("CARGO_BIN_EXE_icebox");

/// A server on a folder and port of its own, ended and removed with all its boxes when the test is over.
struct Server {
    child: Option<Child>,
    dir: tempfile::TempDir,
    port: u16,
    /// The daemon that its boxes get, where that is not the usual one.
    boxd: Option<PathBuf>,
}

impl Server {
    fn start() -> Self {
        let port = TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr());
        let mut server = Self {
            child: None,
            // Where the images can share files with the system: /tmp may be another file system.
            dir: tempfile::tempdir_in("/var/tmp").expect("a folder"),
            port: port.expect("a free port").port(),
            boxd: None,
        };
        server.run().expect("the server starts");
        server
    }

    /// Starts it and waits until it says that it serves. Errors with what it said instead.
    fn run(&mut self) -> Result<(), String> {
        let mut child = Command::new(PROGRAM)
            .arg("serve")
            .arg("--data")
            .arg(self.dir.path())
            .args(["--listen", &format!("127.0.0.1:{}", self.port)])
            .envs(self.boxd.iter().map(|boxd| ("ICEBOX_BOXD", boxd)))
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| error.to_string())?;
        let log = child.stderr.take().ok_or("it has no log")?;
        self.child = Some(child);
        let mut lines = BufReader::new(log).lines().map_while(Result::ok);
        let mut said = String::new();
        loop {
            let line = lines.next().ok_or_else(|| said.clone())?;
            if line.contains("serving address") {
                break;
            }
            said.push_str(&line);
            said.push('\n');
        }
        // Whatever it says later must not fill the pipe.
        std::thread::spawn(move || lines.for_each(drop));
        Ok(())
    }

    /// Asks it to end, and answers whether it ended well.
    fn end(&mut self) -> bool {
        let Some(mut child) = self.child.take() else {
            return false;
        };
        let pid = rustix::process::Pid::from_child(&child);
        let asked = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        asked.is_ok() && child.wait().is_ok_and(|status| status.success())
    }

    /// Ends it without asking.
    fn kill(&mut self) {
        let mut child = self.child.take().expect("a server");
        child.kill().expect("it can be killed");
        child.wait().expect("it ends");
    }

    fn icebox(&self, args: &[&str]) -> Command {
        let mut command = Command::new(PROGRAM);
        command
            .env("ICEBOX_URL", format!("http://127.0.0.1:{}", self.port))
            .env("ICEBOX_DATA", self.dir.path())
            .env_remove("ICEBOX_API_KEY")
            .args(args);
        command
    }

    /// Runs a verb that must end with this exit code, and answers what it printed and what it told.
    fn ends(&self, code: i32, args: &[&str]) -> (String, String) {
        let output = self.icebox(args).output().expect("the program runs");
        let (stdout, stderr) = texts(&output);
        assert_eq!(
            output.status.code(),
            Some(code),
            "{args:?}\n{stdout}\n{stderr}"
        );
        (stdout, stderr)
    }

    fn prints(&self, args: &[&str]) -> String {
        self.ends(0, args).0
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // A good test has ended it and left no box. After a failed one only a server can take boxes apart.
        if !std::thread::panicking() || (self.child.is_none() && self.run().is_err()) {
            return;
        }
        let left = self.icebox(&["ls", "-q"]).output();
        let left = left.map(|left| texts(&left).0).unwrap_or_default();
        if !left.is_empty() {
            drop(self.icebox(&["stop"]).args(left.lines()).output());
        }
        self.end();
    }
}

fn texts(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

fn mounts_in(folder: &Path) -> Vec<String> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").expect("the mounts");
    let folder = folder.to_str().expect("a path");
    mounts
        .lines()
        .filter(|line| line.contains(folder))
        .map(str::to_owned)
        .collect()
}

#[test]
fn box_cli_a_day_with_one_box() {
    let mut server = Server::start();
    let id = server.prints(&[
        "start",
        "--name",
        "web",
        "--goal",
        "a test",
        "--env",
        "COLOUR=blue",
    ]);
    let id = id.trim();
    assert_eq!(id.len(), 20, "{id}");

    // Commands: exit codes, both streams, variables, input, whole output, signals, deadlines.
    let (stdout, stderr) = server.ends(
        3,
        &["exec", "web", "--", "echo $COLOUR; echo 'a  b' >&2; exit 3"],
    );
    assert_eq!((stdout.as_str(), stderr.as_str()), ("blue\n", "a  b\n"));
    assert_eq!(
        server.prints(&["exec", "web", "--", "printf", "%s|", "a b", "$HOME"]),
        "a b|$HOME|"
    );
    let numbers: String = (1..=20_000).map(|n| format!("{n}\n")).collect();
    assert!(
        server.prints(&["exec", "web", "--", "seq 1 20000"]) == numbers,
        "all of the output"
    );
    server.ends(137, &["exec", "web", "--", "kill -9 $$"]);
    let (_, told) = server.ends(124, &["exec", "web", "--timeout", "1", "--", "sleep 30"]);
    assert!(told.contains("ended after 1 s"), "{told}");
    let mut with_input = server.icebox(&["exec", "web", "--stdin", "--", "tr a-z A-Z"]);
    let input = fs::File::open("/proc/self/comm").expect("some text");
    let output = with_input.stdin(input).output().expect("it runs");
    let comm = fs::read_to_string("/proc/self/comm").expect("the same text");
    assert_eq!(texts(&output).0, comm.to_uppercase());

    // In the background: seen, named as what keeps the box awake, followed to its end.
    let count = "for n in 1 2 3; do echo $n; sleep 0.1; done; read -r _ < go; echo over; exit 4";
    server.prints(&["exec", "web", "--", "mkfifo go"]);
    let exec = server.prints(&["exec", "--background", "web", "--", count]);
    let status = server.prints(&["status", "web"]);
    assert!(status.contains("awake because `for n in 1"), "{status}");
    assert!(server.prints(&["ps", "web"]).contains("background, pid"));
    let follow = server
        .icebox(&["logs", "--follow", "web", exec.trim()])
        .stdout(Stdio::piped())
        .spawn();
    server.prints(&["exec", "web", "--", "echo > go"]);
    let followed = follow
        .and_then(Child::wait_with_output)
        .expect("it ends with the command");
    assert_eq!(texts(&followed).0, "1\n2\n3\nover\n");
    assert!(server.prints(&["ps", "web"]).contains("exit code 4"));

    // Frozen, kept over a restart of the server, awake again at the next call.
    server.prints(&["exec", "--background", "web", "--", "exec sleep 1000"]);
    let before = server.prints(&[
        "exec",
        "web",
        "--",
        "pgrep -x sleep; cat /proc/sys/kernel/random/boot_id",
    ]);
    assert!(
        server
            .prints(&["freeze", "web"])
            .contains("web: frozen by a call, ")
    );
    assert!(
        server.prints(&["freeze", &id[..6]]).contains("frozen"),
        "safe to repeat"
    );
    assert!(server.end(), "it ends well");
    let (_, told) = server.ends(1, &["ls"]);
    assert!(told.contains("start it with `icebox serve`"), "{told}");
    server.run().expect("the server starts again");
    let listed: Value = serde_json::from_str(&server.prints(&["ls", "--json"])).expect("JSON");
    assert_eq!(
        (&listed["boxes"][0]["id"], &listed["boxes"][0]["status"]),
        (&id.into(), &"frozen".into())
    );
    let after = server.prints(&[
        "exec",
        "web",
        "--",
        "pgrep -x sleep; cat /proc/sys/kernel/random/boot_id",
    ]);
    assert_eq!(before, after, "the same process");
    let why = server.prints(&["status", "web", "--why"]);
    assert!(why.contains("5.1") && why.contains("4.9"), "{why}");

    // Stopped for good: gone from the list, and its name says what it was.
    assert!(server.prints(&["stop", "web"]).contains("web: stopped"));
    let (stdout, told) = server.ends(0, &["ls"]);
    assert!(
        stdout.is_empty() && told.contains("No boxes"),
        "{stdout}{told}"
    );
    assert!(server.prints(&["ls", "--all"]).contains(id));
    let (_, told) = server.ends(125, &["exec", "web", "--json", "--", "true"]);
    let error: Value = serde_json::from_str(&told).expect("JSON");
    assert_eq!(error["code"], "box_gone", "{error}");
    assert!(server.end(), "it ends well");
    assert_eq!(mounts_in(server.dir.path()), Vec::<String>::new());
}

/// The next message of a webhook: its id, the kind of its event, and the connection, which waits for an answer.
fn message(endpoint: &TcpListener) -> (String, String, TcpStream) {
    let (stream, _) = endpoint.accept().expect("a connection");
    let mut reader = BufReader::new(&stream);
    let (mut id, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).expect("a header");
        match line.trim().split_once(": ") {
            Some(("webhook-id", value)) => value.clone_into(&mut id),
            Some(("content-length", value)) => length = value.parse().expect("a length"),
            Some(_) => {}
            None if line.trim().is_empty() => break,
            None => {}
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).expect("a body");
    let body: Value = serde_json::from_slice(&body).expect("JSON");
    let kind = body["data"]["kind"].as_str().expect("a kind").to_owned();
    (id, kind, stream)
}

#[test]
fn box_cli_webhooks_lose_nothing_when_the_server_is_killed() {
    let mut server = Server::start();
    let endpoint = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}/", endpoint.local_addr().expect("its address"));
    let made = server.prints(&["webhook", "add", &url]);
    assert!(made.contains("whsec_"), "{made}");
    let id = made.split(':').next().expect("an id").to_owned();
    server.prints(&["start", "--name", "web"]);
    let (cut_off, kind, held) = message(&endpoint);
    assert_eq!(kind, "starting");
    server.kill();
    drop(held);
    server.run().expect("the server starts again");
    server.prints(&["freeze", "web"]);
    server.prints(&["stop", "web"]);
    let mut told = Vec::new();
    while told.last().is_none_or(|(_, kind)| kind != "terminated") {
        let (id, kind, mut stream) = message(&endpoint);
        write!(stream, "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").expect("an answer");
        told.push((id, kind));
    }
    assert_eq!(told[0].0, cut_off, "what was under way is repeated");
    let kinds: Vec<_> = told.iter().map(|(_, kind)| kind.as_str()).collect();
    let expected = [
        "starting",
        "ready",
        "freezing",
        "frozen",
        "stopping",
        "terminated",
    ];
    assert_eq!(kinds, expected);
    let listed = server.prints(&["webhook", "deliveries", &id]);
    assert_eq!(listed.lines().count(), 7, "{listed}");
    server.prints(&["webhook", "rm", &id]);
    assert!(server.end(), "it ends well");
}

#[test]
fn box_cli_files_go_in_and_come_out_as_they_were() {
    let mut server = Server::start();
    server.prints(&["start", "--name", "web"]);
    let dir = tempfile::tempdir().expect("a folder");
    let at = |name: &str| dir.path().join(name);
    let named = |name: &str| at(name).to_str().expect("text").to_owned();
    fs::create_dir_all(at("app/empty")).expect("a folder");
    fs::write(at("app/run"), "#!/bin/sh\necho ran\n").expect("a file");
    fs::set_permissions(at("app/run"), fs::Permissions::from_mode(0o755)).expect("a mode");
    std::os::unix::fs::symlink("run", at("app/link")).expect("a link");
    let large: Vec<u8> = (0..3_000_000_u32).flat_map(u32::to_le_bytes).collect();
    fs::write(at("large"), &large).expect("a file");

    // A folder becomes the destination, and goes into it once that is there.
    let (_, told) = server.ends(0, &["cp", &named("app"), "web:copy"]);
    assert!(
        told.contains("2 files") && told.contains("to web:copy"),
        "{told}"
    );
    assert_eq!(
        server.prints(&["exec", "web", "--", "./copy/link"]),
        "ran\n"
    );
    server.prints(&["cp", &named("app"), "web:copy"]);
    server.prints(&["cp", &named("app/."), "web:copy"]);
    let found = server.prints(&["exec", "web", "--", "find copy | sort"]);
    let expected = "copy\ncopy/app\ncopy/app/empty\ncopy/app/link\ncopy/app/run\ncopy/empty\ncopy/link\ncopy/run\n";
    assert_eq!(found, expected);

    // Files: by name, into a folder, outside /work, and whole however large.
    server.prints(&["cp", &named("app/run"), "web:"]);
    server.prints(&["cp", &named("app/run"), "web:new/"]);
    server.prints(&["cp", &named("large"), "web:/tmp"]);
    server.prints(&[
        "exec",
        "web",
        "--",
        "./run && new/run && test -f /tmp/large",
    ]);
    server.prints(&["cp", "web:/tmp/large", &named("back")]);
    assert!(
        fs::read(at("back")).expect("it is there") == large,
        "all of it"
    );
    server.prints(&["cp", "web:run", &named("app/empty")]);
    let mode = fs::metadata(at("app/empty/run"))
        .expect("it is there")
        .permissions();
    assert_eq!(mode.mode() & 0o777, 0o755);

    // Folders out: as the destination, into it, its contents.
    for (from, to) in [
        ("web:copy/app", "out"),
        ("web:copy/app", "out"),
        ("web:copy/app/.", "out"),
    ] {
        server.prints(&["cp", from, &named(to)]);
    }
    for inner in ["out", "out/app"] {
        assert!(at(inner).join("empty").is_dir(), "{inner}");
        assert_eq!(
            fs::read_link(at(inner).join("link")).expect("a link"),
            Path::new("run")
        );
    }
    assert!(!at("out/app/app").exists(), "what is in it, and not itself");

    // Streams.
    let mut put = server.icebox(&["cp", "-", "web:piped"]);
    let put = put
        .stdin(fs::File::open(at("large")).expect("it is there"))
        .output();
    assert!(put.expect("it runs").status.success());
    let printed = server
        .icebox(&["cp", "web:piped", "-"])
        .output()
        .expect("it runs");
    assert!(printed.stdout == large, "all of it");

    // What cannot be copied whole is not copied.
    server.prints(&["exec", "web", "--", "ln -s /etc/passwd copy/out"]);
    let (_, told) = server.ends(1, &["cp", "web:copy", &named("refused")]);
    assert!(
        told.contains("`out`") && told.contains("--skip-links"),
        "{told}"
    );
    assert!(!at("refused").exists());
    let (_, told) = server.ends(0, &["cp", "--skip-links", "web:copy", &named("refused")]);
    assert!(
        told.contains("left out") && at("refused/run").exists(),
        "{told}"
    );
    let (_, told) = server.ends(1, &["cp", "web:nothing", &named("x")]);
    assert!(told.contains("there is no `nothing` in the box"), "{told}");
    let (_, told) = server.ends(2, &["cp", &named("app"), "web:/tmp/app"]);
    assert!(told.contains("below /work only"), "{told}");
    let left: Vec<_> = fs::read_dir(dir.path())
        .expect("the folder")
        .flatten()
        .collect();
    assert_eq!(left.len(), 5, "no staging is left: {left:?}");
    server.prints(&["stop", "web"]);
    assert!(server.end(), "it ends well");
}

#[test]
fn box_cli_a_shell_is_a_terminal_that_freezes_and_goes_on() {
    let mut server = Server::start();
    server.prints(&["start", "--name", "web"]);
    let open = || Terminal::run(server.icebox(&["shell", "web"]));
    let mut shell = open();
    // What is typed is shown, too: only what bash makes of it counts.
    shell.type_in("echo at-$((40 + 2))\r");
    shell.shows("at-42");
    assert!(shell.is_raw());
    shell.size(91, 17);
    shell.signal(rustix::process::Signal::WINCH);
    // The new size goes another way than what is typed.
    shell.type_in("until stty size | grep '17 91'; do sleep 0.1; done; echo sized-$((1 + 1))\r");
    shell.shows("sized-2");
    server.prints(&["freeze", "web"]);
    shell.shows("fell asleep");
    shell.type_in("echo awake-$((1 + 1))\r");
    shell.shows("awake-2");
    shell.type_in("exit 7\r");
    shell.ends(7);

    let mut shell = open();
    shell.type_in("echo at-$((40 + 2))\r");
    shell.shows("at-42");
    shell.type_in("~.");
    shell.shows("the shell is ended");
    shell.ends(0);

    // One that sleeps with its box is not.
    let mut shell = open();
    shell.type_in("echo at-$((40 + 2))\r");
    shell.shows("at-42");
    server.prints(&["freeze", "web"]);
    shell.shows("fell asleep");
    shell.type_in("~.");
    shell.shows("the shell stays in it");
    shell.ends(0);

    let mut shell = open();
    shell.type_in("echo at-$((40 + 2))\r");
    shell.shows("at-42");
    shell.signal(rustix::process::Signal::TERM);
    shell.ends(143);

    // A command is ended by hand.
    let exec = server.prints(&["exec", "web", "--background", "--", "exec sleep 1000"]);
    let ended = server.prints(&["kill", "web", &exec[..8]]);
    assert!(ended.contains("ended by SIGTERM"), "{ended}");
    let (_, told) = server.ends(0, &["kill", "web", exec.trim(), "--json"]);
    assert_eq!(told, "", "safe to repeat");

    server.prints(&["stop", "web"]);
    server.prints(&["start", "--name", "web"]);
    for _ in 0..2 {
        server.prints(&["stop", "web"]);
    }
    assert!(server.end(), "it ends well");
}

/// What is told of the box's first process: which program it is.
fn executed(server: &Server) -> String {
    server.prints(&["exec", "web", "--", "sha256sum < /proc/1/exe"])
}

#[test]
fn box_cli_jobs_outlive_a_new_boxd() {
    let mut server = Server::start();
    server.prints(&["start", "--name", "web"]);
    let old = executed(&server);

    // A server with another boxd takes over, and the box keeps its own until it is renewed.
    let boxd = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/boxd/boxd");
    let mut other = fs::read(boxd).expect("boxd is built");
    other.extend(b"another");
    let other_boxd = server.dir.path().join("another-boxd");
    fs::write(&other_boxd, other).expect("written");
    fs::set_permissions(&other_boxd, fs::Permissions::from_mode(0o755)).expect("ours");
    server.boxd = Some(other_boxd);
    assert!(server.end(), "it ends well");
    server.run().expect("the server starts again");
    assert_eq!(executed(&server), old);
    let told = |server: &Server| {
        server
            .prints(&["status", "web"])
            .contains("`icebox renew web`")
    };
    assert!(told(&server), "that it is outdated");

    let until = |name: &str| format!("until [ -e {name} ]; do sleep 0.05; done");
    let job = format!("echo begun; {}; echo over; exit 5", until("end"));
    let job = server.prints(&["exec", "web", "--background", "--", &job]);
    server.prints(&["exec", "web", "--background", "--", &until("never")]);
    let waiting = format!("{}; echo waited; exit 6", until("end"));
    let waiting = server
        .icebox(&["exec", "web", "--", &waiting])
        .stdout(Stdio::piped())
        .spawn();
    let mut shell = Terminal::run(server.icebox(&["shell", "web"]));
    shell.type_in("echo at-$((40 + 2))\r");
    shell.shows("at-42");
    let pids = "pgrep -f 'until \\[ -e (end|never)' | sort -n";
    let before = server.prints(&["exec", "web", "--", pids]);
    assert_eq!(before.lines().count(), 3, "{before}");
    for round in 3..5 {
        let (renewed, told) = server.ends(0, &["renew", "web"]);
        assert!(renewed.contains("web: awake because"), "{renewed}");
        let expected = if round == 3 { "now" } else { "already" };
        assert!(
            told.contains(&format!("daemon of new boxes {expected}")),
            "{told}"
        );
        assert_ne!(executed(&server), old);
        shell.type_in(&format!("echo at-$((40 + {round}))\r"));
        shell.shows(&format!("at-4{round}"));
    }
    assert_eq!(
        server.prints(&["exec", "web", "--", pids]),
        before,
        "the same processes"
    );
    assert!(!told(&server), "that it is outdated");
    server.prints(&["exec", "web", "--", "touch end"]);
    shell.type_in("exit\r");
    shell.ends(0);
    let waited = waiting.and_then(Child::wait_with_output).expect("it ends");
    assert_eq!(
        (waited.status.code(), texts(&waited).0.as_str()),
        (Some(6), "waited\n")
    );
    let output = server.prints(&["logs", "--follow", "web", job.trim()]);
    assert_eq!(output, "begun\nover\n");
    assert!(server.prints(&["ps", "web"]).contains("exit code 5"));

    // It is one like any other afterwards.
    let frozen = server.prints(&["freeze", "web"]);
    assert!(frozen.contains("on disk"), "{frozen}");
    let after = server.prints(&["exec", "web", "--", pids]);
    assert!(
        before.lines().any(|pid| pid == after.trim()),
        "{after} of {before}"
    );
    server.prints(&["stop", "web"]);
    assert!(server.end(), "it ends well");
    assert_eq!(mounts_in(server.dir.path()), Vec::<String>::new());
}

/// A folder for a demo that is not there yet, in one that goes with the test.
fn demo_folder() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir_in("/var/tmp").expect("a folder");
    let folder = dir.path().join("demo");
    (dir, folder)
}

#[test]
fn box_demo_shows_the_whole_job_and_leaves_nothing() {
    let (dir, folder) = demo_folder();
    let output = Command::new(PROGRAM)
        .arg("demo")
        .arg("--data")
        .arg(&folder)
        .output();
    let (stdout, stderr) = texts(&output.expect("the demo runs"));
    assert!(stderr.contains("without a gap"), "{stderr}");
    assert!(
        stderr.contains("[9/9]") && stderr.contains("nothing is left"),
        "{stderr}"
    );
    assert!(stdout.contains("thaw, until the first answer"), "{stdout}");
    assert!(stdout.contains("icebox key --reveal)"), "{stdout}");
    let left: Vec<_> = fs::read_dir(dir.path()).expect("the folder").collect();
    assert!(left.is_empty(), "{left:?}");
    assert_eq!(mounts_in(dir.path()), Vec::<String>::new());
}

#[test]
fn box_demo_cleans_up_when_it_is_interrupted() {
    let (dir, folder) = demo_folder();
    let mut demo = Command::new(PROGRAM)
        .arg("demo")
        .arg("--data")
        .arg(&folder)
        .stderr(Stdio::piped())
        .spawn()
        .expect("the demo runs");
    let mut told = BufReader::new(demo.stderr.take().expect("its progress"));
    let mut line = String::new();
    while !line.contains("is ready after") {
        line.clear();
        assert_ne!(
            told.read_line(&mut line).expect("a line"),
            0,
            "it ended before there was a box"
        );
    }
    let pid = rustix::process::Pid::from_child(&demo);
    rustix::process::kill_process(pid, rustix::process::Signal::INT)
        .expect("it can be interrupted");
    let rest: Vec<_> = told.lines().map_while(Result::ok).collect();
    assert_eq!(demo.wait().expect("it ends").code(), Some(130), "{rest:#?}");
    assert!(!folder.exists(), "{rest:#?}");
    assert_eq!(mounts_in(dir.path()), Vec::<String>::new());
}
