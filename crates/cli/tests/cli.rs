//! The program as a person or a script meets it: its help, its errors, its exit codes, and what it sends. It runs against
//! no server, or against one in this file that answers what a test tells it to; real boxes are in `box_cli.rs`.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;

use self::terminal::Terminal;

mod terminal;

const ID: &str = "abcd0123456789abcdef";

/// The program, with nothing in its environment but what the test gives it.
fn icebox(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_icebox"));
    command
        .env_clear()
        .env("ICEBOX_API_KEY", "e2b_test")
        .args(args);
    command
}

fn run(args: &[&str]) -> Output {
    icebox(args).output().expect("the program runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("text")
}

// ---- help -------------------------------------------------------------------

/// Compares with the file, or with `ICEBOX_UPDATE_HELP=1` writes it.
fn is_as_in_file(name: &str, actual: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/help")
        .join(name);
    if std::env::var_os("ICEBOX_UPDATE_HELP").is_some() {
        fs::write(&path, actual).expect("the file is written");
        return;
    }
    let expected = fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(
        actual, expected,
        "{name} changed. If it was meant to: ICEBOX_UPDATE_HELP=1 cargo nextest run -p icebox-cli help"
    );
}

#[test]
fn help_is_as_written_down_for_each_verb() {
    let top = text(&run(&["--help"]).stdout);
    is_as_in_file("icebox.txt", &top);
    let listed = top.lines().skip_while(|line| *line != "Commands:").skip(1);
    let verbs = listed.take_while(|line| !line.is_empty());
    let verbs: Vec<_> = verbs
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    assert!(verbs.len() > 10, "{verbs:?}");
    for verb in verbs.into_iter().filter(|verb| *verb != "help") {
        let help = text(&run(&[verb, "--help"]).stdout);
        assert!(help.contains("Examples:\n"), "{verb} has no examples");
        is_as_in_file(&format!("{verb}.txt"), &help);
    }
    for verb in ["add", "ls", "set", "rm", "test", "deliveries"] {
        let help = text(&run(&["webhook", verb, "--help"]).stdout);
        is_as_in_file(&format!("webhook-{verb}.txt"), &help);
    }
    for verb in ["add", "ls", "rotate", "rm", "maps", "logs"] {
        let help = text(&run(&["project", verb, "--help"]).stdout);
        is_as_in_file(&format!("project-{verb}.txt"), &help);
    }
}

// ---- errors without a server ------------------------------------------------

/// An address where nothing listens.
fn nowhere() -> String {
    let socket = TcpListener::bind("127.0.0.1:0").expect("a free port");
    format!("http://{}", socket.local_addr().expect("its address"))
}

#[test]
fn without_a_server_every_verb_says_how_to_start_one() {
    let url = nowhere();
    let table: &[(&[&str], i32)] = &[
        (&["ls"], 1),
        (&["start"], 1),
        (&["status", ID], 1),
        (&["ps", ID], 1),
        (&["logs", "web"], 1),
        (&["freeze", ID], 1),
        (&["wake", ID], 1),
        (&["renew", ID], 1),
        (&["stop", ID], 1),
        (&["restore", ID], 1),
        (&["webhook", "ls"], 1),
        (&["project", "ls"], 1),
        (&["project", "logs", "shop"], 1),
        (&["webhook", "test", "wh_0"], 1),
        (&["exec", ID, "--", "true"], 125),
    ];
    for (args, code) in table {
        let output = icebox(args)
            .env("ICEBOX_URL", &url)
            .output()
            .expect("it runs");
        assert_eq!(
            text(&output.stderr),
            format!(
                "error: no Icebox server answers at {url}: Connection refused (os error 111); start it with \
                 `icebox serve`, or name another with --url\n"
            ),
            "{args:?}"
        );
        assert_eq!(output.status.code(), Some(*code), "{args:?}");
        assert_eq!(output.stdout, b"", "{args:?}");
    }
}

#[test]
fn with_json_an_error_is_json_on_standard_error() {
    let output = run(&["ls", "--json", "--url", &nowhere()]);
    let error: serde_json::Value = serde_json::from_slice(&output.stderr).expect("JSON");
    assert_eq!(error["code"], "unreachable");
    assert!(
        error["error"]
            .as_str()
            .is_some_and(|e| e.contains("icebox serve")),
        "{error}"
    );
    assert_eq!(output.stdout, b"");
}

#[test]
fn wrong_usage_is_told_before_anything_is_sent() {
    let table: &[(&[&str], &str)] = &[
        (
            &["ls", "--url", "ftp://x"],
            "`ftp://x` is no address of a server",
        ),
        (&["exec", ID], "required"),
        (
            &["exec", ID, "--timeout", "3601", "--", "true"],
            "3601 is not in 1..=3600",
        ),
        (&["exec", ID, "--env", "A", "--", "true"], "NAME=VALUE"),
        (&["start", "--service", "app"], "NAME:PORT"),
        (&["start", "--policy", "{\"freezAfter\":1}"], "freezAfter"),
        (
            &["serve", "--listen", "nonsense", "--data", "/nonexistent"],
            "listen: `nonsense`",
        ),
        (&["serve", "--log", "=,="], "--log"),
        (&["key", "credits", "--add", "1"], "say which account"),
        (
            &["key", "credits", "team", "--add", "1", "--unlimited"],
            "cannot be used with",
        ),
        (&["thaw"], "unrecognized subcommand"),
    ];
    for (args, expected) in table {
        let output = run(args);
        let told = text(&output.stderr);
        assert!(told.contains(expected), "{args:?}: {told}");
        assert!(!told.contains("backtrace"), "{args:?}: {told}");
        assert_eq!(output.status.code(), Some(2), "{args:?}: {told}");
    }
}

#[test]
fn the_key_is_shown_only_when_asked_for() {
    let dir = tempfile::tempdir().expect("a folder");
    let data = dir.path().to_str().expect("a path");
    let path = dir.path().join("admin.key");
    let missing = run(&["key", "--reveal", "--data", data]);
    assert_eq!(missing.status.code(), Some(1));
    assert!(
        text(&missing.stderr).contains("there is no key file"),
        "{missing:?}"
    );
    fs::write(&path, "e2b_secret\n").expect("a key");
    let shown = run(&["key", "--data", data]);
    assert_eq!(text(&shown.stdout), format!("{}\n", path.display()));
    assert_eq!(
        text(&run(&["key", "--reveal", "--data", data]).stdout),
        "e2b_secret\n"
    );
}

// ---- against a server that answers what it is told --------------------------

/// What was asked: the request line, the headers and the body.
struct Asked {
    line: String,
    head: String,
    body: String,
}

/// Answers each request with the next of `answers`, one a connection, and notes what was asked.
fn server(answers: Vec<(u16, String)>) -> (String, mpsc::Receiver<Asked>) {
    let socket = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", socket.local_addr().expect("its address"));
    let (note, noted) = mpsc::channel();
    thread::spawn(move || {
        for (status, body) in answers {
            let (stream, _) = socket.accept().expect("a connection");
            // Whoever no longer listens has seen enough.
            drop(note.send(answer(stream, status, &body)));
        }
    });
    (url, noted)
}

/// Reads a request.
fn asked(stream: &TcpStream) -> Asked {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).expect("a request");
    let (mut head, mut length) = (String::new(), 0);
    loop {
        let mut header = String::new();
        reader.read_line(&mut header).expect("a header");
        if header.trim().is_empty() {
            break;
        }
        let lower = header.to_ascii_lowercase();
        if let Some(value) = lower.strip_prefix("content-length:") {
            length = value.trim().parse().expect("a length");
        }
        head.push_str(&lower);
    }
    let mut sent = vec![0; length];
    reader.read_exact(&mut sent).expect("a body");
    Asked {
        line: line.trim().to_owned(),
        head,
        body: text(&sent),
    }
}

fn answer(stream: TcpStream, status: u16, body: &str) -> Asked {
    let asked = asked(&stream);
    let mut to = &stream;
    // Status 0: hang up without a word.
    if status != 0 {
        let length = body.len();
        let extra = if status == 503 {
            "retry-after: 3\r\n"
        } else {
            ""
        };
        write!(to, "HTTP/1.1 {status} X\r\n{extra}content-length: {length}\r\nconnection: close\r\n\r\n{body}")
            .expect("the answer is sent");
    }
    asked
}

fn ok(body: &str) -> (u16, String) {
    (200, body.to_owned())
}

fn a_box(id: &str, name: &str, status: &str, more: &str) -> String {
    format!(
        r#"{{"id":"{id}","status":"{status}","name":"{name}","createdAt":"2026-03-04T12:00:00Z",
        "lastUsedAt":"2026-03-04T12:00:00Z","services":[],"image":"host",
        "size":{{"cpus":2,"memoryMb":2048,"diskGb":10}},"why":[]{more}}}"#
    )
}

fn boxes(boxes: &[String]) -> (u16, String) {
    ok(&format!(r#"{{"boxes":[{}]}}"#, boxes.join(",")))
}

#[test]
fn a_server_on_this_machine_is_found_by_the_note_in_its_folder() {
    let dir = tempfile::tempdir().expect("a folder");
    let (url, noted) = server(vec![ok(r#"{"boxes":[]}"#)]);
    fs::write(dir.path().join("url"), format!("{url}\n")).expect("it is written");
    let data = dir.path().to_str().expect("text");
    let found = run(&["ls", "--json", "--data", data]);
    assert_eq!(found.status.code(), Some(0), "{}", text(&found.stderr));
    let asked = noted.recv().expect("a request");
    assert!(asked.line.starts_with("GET /v1/boxes"), "{}", asked.line);
}

#[test]
fn whom_tls_trusts_is_said_and_checked() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("ca.pem");
    let ca = path.to_str().expect("text");
    let missing = run(&["ls", "--url", "https://localhost:1", "--ca", ca]);
    assert!(
        text(&missing.stderr).contains(ca),
        "{}",
        text(&missing.stderr)
    );
    fs::write(&path, "nonsense").expect("it is written");
    let nonsense = icebox(&["ls"])
        .env("ICEBOX_URL", "https://localhost:1")
        .env("ICEBOX_CA", ca)
        .output()
        .expect("it runs");
    let said = text(&nonsense.stderr);
    assert!(said.contains("holds no certificate in PEM form"), "{said}");
    let none = run(&["tls", "ca", "--data", dir.path().to_str().expect("text")]);
    let said = text(&none.stderr);
    assert!(said.contains("icebox serve --tls"), "{said}");
    fs::create_dir(dir.path().join("tls")).expect("it is made");
    let own = dir.path().join("tls/ca.pem");
    fs::write(&own, "-----BEGIN CERTIFICATE-----\n").expect("it is written");
    let shown = run(&["tls", "ca", "--data", dir.path().to_str().expect("text")]);
    assert_eq!(text(&shown.stdout), format!("{}\n", own.display()));
    assert!(text(&shown.stderr).contains("NODE_EXTRA_CA_CERTS="));
    // What answers in the clear is no server with TLS.
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("https://{}", listener.local_addr().expect("an address"));
    let answering = thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a client");
        let mut some = [0; 16];
        stream.read_exact(&mut some).expect("a greeting");
        stream
            .write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            .expect("it is sent");
    });
    let plain = run(&["ls", "--url", &url]);
    answering.join().expect("it answered");
    let said = text(&plain.stderr);
    assert!(said.contains("no TLS with https://"), "{said}");
}

#[test]
fn accounts_are_made_shown_and_given_credits_with_the_admin_key() {
    let account = |left: &str| {
        format!(
            r#"{{"account":"team","credits":{{{left}"used":1.5,"perHour":0.25}},"boxes":{{"active":3,"stopped":0}}}}"#
        )
    };
    let key = r#"{"account":"team","key":"e2b_new"}"#;
    let link = r#"{"url":"http://h:1/app#token=ibl_0","token":"ibl_0","expiresAt":"2026-03-04T13:00:00Z"}"#;
    let left = account(r#""left":2.5,"#);
    let table = [
        (
            vec!["key", "new", "team", "--credits", "2.5"],
            (201, key.to_owned()),
            "POST /v1/accounts HTTP/1.1",
            r#"{"name":"team","credits":2.5}"#,
            "e2b_new\n",
        ),
        (
            vec!["key", "add", "te/am"],
            (201, key.to_owned()),
            "POST /v1/accounts/te%2Fam/keys HTTP/1.1",
            "",
            "e2b_new\n",
        ),
        (
            vec!["key", "credits"],
            ok(&account(r#""unlimited":true,"#)),
            "GET /v1/account HTTP/1.1",
            "",
            "team: unlimited credits, uses 0.25 an hour\n",
        ),
        (
            vec!["key", "credits", "team", "--add", "1"],
            ok(&left),
            "POST /v1/accounts/team/credits HTTP/1.1",
            r#"{"add":1.0}"#,
            "team: 2.5 credits left, uses 0.25 an hour\n",
        ),
        (
            vec!["key", "credits", "team", "--unlimited", "--json"],
            ok(&left),
            "POST /v1/accounts/team/credits HTTP/1.1",
            r#"{"unlimited":true}"#,
            &format!("{left}\n"),
        ),
        (
            vec!["key", "revoke", "team", "3f9a61c2d7b0"],
            ok(r#"{"ok":true}"#),
            "POST /v1/accounts/team/keys/revoke HTTP/1.1",
            r#"{"id":"3f9a61c2d7b0"}"#,
            "team: the key is revoked\n",
        ),
        (
            vec!["key", "revoke", "te/am", "e2b_old"],
            ok(r#"{"ok":true}"#),
            "POST /v1/accounts/te%2Fam/keys/revoke HTTP/1.1",
            r#"{"key":"e2b_old"}"#,
            "te/am: the key is revoked\n",
        ),
        (
            vec!["key", "ls", "team", "--json"],
            ok(r#"{"account":"team","keys":[]}"#),
            "GET /v1/accounts/team/keys HTTP/1.1",
            "",
            "{\"account\":\"team\",\"keys\":[]}\n",
        ),
        (
            vec!["dashboard", "--no-open"],
            ok(link),
            "POST /v1/session/links HTTP/1.1",
            "",
            "http://h:1/app#token=ibl_0\n",
        ),
        (
            vec!["dashboard", "--json"],
            ok(link),
            "POST /v1/session/links HTTP/1.1",
            "",
            &format!("{link}\n"),
        ),
        (
            vec!["key", "ls"],
            ok(&format!(r#"{{"accounts":[{left}]}}"#)),
            "GET /v1/accounts HTTP/1.1",
            "",
            "ACCOUNT  LEFT  AN HOUR  USED  BOXES  RUNS OUT\nteam     2.5   0.25     1.5   3      -\n",
        ),
    ];
    for (args, answer, line, body, shown) in table {
        let (url, noted) = server(vec![answer]);
        let output = icebox(&args).env("ICEBOX_URL", &url).output();
        let output = output.expect("it runs");
        let asked = noted.recv().expect("a request");
        assert_eq!((asked.line.as_str(), asked.body.as_str()), (line, body));
        assert!(asked.head.contains("bearer e2b_test"), "{}", asked.head);
        assert_eq!(text(&output.stdout), shown, "{args:?}");
        assert_eq!(output.status.code(), Some(0), "{args:?}");
    }
}

#[test]
fn exec_ends_as_the_command_did_and_passes_its_output_on() {
    let table = [
        (
            r#""exitCode":7,"stdout":"out\n","stderr":"err\n""#,
            7,
            "out\n",
            "err\n",
        ),
        (r#""signal":"SIGKILL","stdout":"","stderr":"""#, 137, "", ""),
        (
            r#""timedOut":true,"signal":"SIGTERM","stdout":"a","stderr":"""#,
            124,
            "a",
            "icebox: the command was ended after 600 s; --timeout sets another limit\n",
        ),
        (
            r#""exitCode":0,"stdout":"a","stderr":"b\n","notices":["box x: soon"]"#,
            0,
            "a",
            "b\nicebox: box x: soon\n",
        ),
    ];
    for (fields, code, stdout, stderr) in table {
        let (url, asked) = server(vec![ok(&format!(r#"{{"execId":"00",{fields}}}"#))]);
        let output = run(&[
            "exec", ID, "--url", &url, "--env", "A=b", "--", "echo", "a b",
        ]);
        assert_eq!(output.status.code(), Some(code), "{output:?}");
        assert_eq!(
            (text(&output.stdout), text(&output.stderr)),
            (stdout.to_owned(), stderr.to_owned())
        );
        let asked = asked.recv().expect("a request");
        assert_eq!(asked.line, format!("POST /v1/boxes/{ID}/exec HTTP/1.1"));
        assert!(
            asked.head.contains("authorization: bearer e2b_test"),
            "{}",
            asked.head
        );
        let sent: serde_json::Value = serde_json::from_str(&asked.body).expect("JSON");
        assert_eq!(sent["cmd"], "echo 'a b'");
        assert_eq!(sent["env"]["A"], "b");
        assert_eq!(sent["execId"].as_str().map(str::len), Some(16));
    }
}

#[test]
fn exec_fetches_output_whole_when_the_answer_has_only_its_end() {
    let result = r#"{"execId":"00","exitCode":0,"stdout":"end","stderr":"","truncated":true,"outputUrl":"/o"}"#;
    let (url, asked) = server(vec![ok(result), ok("beginning and end"), ok("")]);
    let output = run(&["exec", ID, "--url", &url, "--", "true"]);
    assert_eq!(text(&output.stdout), "beginning and end");
    let lines: Vec<_> = asked.iter().map(|asked| asked.line).collect();
    assert_eq!(lines[1], "GET /o?stream=stdout&offset=0&follow=0 HTTP/1.1");
    assert_eq!(lines[2], "GET /o?stream=stderr&offset=0&follow=0 HTTP/1.1");
}

/// What a test's own server does with one request: it gets the request line and writes what it likes.
type Handler = dyn Fn(&str, &mut TcpStream) + Send + Sync;

/// Handles each request in a thread of its own, so that several can be under way.
fn routed(handler: impl Fn(&str, &mut TcpStream) + Send + Sync + 'static) -> String {
    let socket = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", socket.local_addr().expect("its address"));
    let handler: Arc<Handler> = Arc::new(handler);
    thread::spawn(move || {
        for stream in socket.incoming() {
            let mut stream = stream.expect("a connection");
            let handler = Arc::clone(&handler);
            thread::spawn(move || {
                let line = asked(&stream).line;
                handler(&line, &mut stream);
            });
        }
    });
    url
}

/// Writes the head of an answer whose body ends with the connection, or after `length` bytes.
fn head(to: &mut TcpStream, status: u16, length: Option<usize>) {
    let length = length.map_or(String::new(), |length| {
        format!("content-length: {length}\r\n")
    });
    put(
        to,
        &format!("HTTP/1.1 {status} X\r\n{length}connection: close\r\n\r\n"),
    );
}

fn put(to: &mut TcpStream, text: &str) {
    to.write_all(text.as_bytes()).expect("it is sent");
}

fn whole(to: &mut TcpStream, status: u16, body: &str) {
    head(to, status, Some(body.len()));
    put(to, body);
}

#[test]
fn exec_passes_output_on_while_the_command_runs_and_nothing_twice() {
    let (go_on, wait) = mpsc::channel::<()>();
    let wait = Mutex::new(wait);
    let (end, ended) = mpsc::channel::<()>();
    let (end, ended) = (Mutex::new(Some(end)), Mutex::new(ended));
    let early = AtomicBool::new(true);
    let url = routed(move |line, to| {
        if line.starts_with("POST") {
            // Answered when standard output has been followed to its end.
            let over = ended.lock().expect("one POST").recv();
            assert!(over.is_err(), "the sender is dropped then");
            return whole(
                to,
                200,
                r#"{"execId":"00","exitCode":3,"stdout":"one\ntwo\n","stderr":"bad\n","outputUrl":"/o"}"#,
            );
        }
        assert!(line.contains("offset=0&follow=1"), "{line}");
        if line.contains("stream=stderr") {
            return whole(to, 200, "bad\n");
        }
        if early.swap(false, Ordering::SeqCst) {
            return whole(to, 404, r#"{"error":"no such command","code":"not_found"}"#);
        }
        head(to, 200, None);
        put(to, "one\n");
        wait.lock()
            .expect("one reader")
            .recv()
            .expect("a word from the test");
        put(to, "two\n");
        drop(end.lock().expect("one reader").take());
    });
    let mut program = icebox(&["exec", ID, "--url", &url, "--", "true"]);
    program.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = program.spawn().expect("it runs");
    let mut out = BufReader::new(child.stdout.take().expect("its output"));
    let mut first = String::new();
    out.read_line(&mut first).expect("a line");
    assert_eq!(first, "one\n", "while the command runs");
    go_on.send(()).expect("the server waits");
    let mut rest = String::new();
    out.read_to_string(&mut rest).expect("the rest");
    let ended = child.wait_with_output().expect("it ends");
    assert_eq!((rest.as_str(), ended.status.code()), ("two\n", Some(3)));
    assert_eq!(text(&ended.stderr), "bad\n");
}

#[test]
fn exec_adds_what_was_not_followed() {
    let table = [
        (
            r#""stdout":"one\ntwo\n","stderr":"""#,
            "one\ntwo\n",
            "from the answer, which has all of it",
        ),
        (
            r#""stdout":"wo\n","stderr":"","truncated":true"#,
            "one\nthe rest",
            "from the server, from there on",
        ),
    ];
    for (fields, expected, why) in table {
        let (go_on, wait) = mpsc::channel::<()>();
        let wait = Mutex::new(wait);
        let url = routed(move |line, to| {
            if line.starts_with("POST") {
                wait.lock()
                    .expect("one POST")
                    .recv()
                    .expect("a word from the test");
                return whole(
                    to,
                    200,
                    &format!(r#"{{"execId":"00","exitCode":0,{fields},"outputUrl":"/o"}}"#),
                );
            }
            if line.starts_with("GET /o?") {
                let out = line.contains("stdout");
                let from = if out { 4 } else { 0 };
                assert!(line.contains(&format!("offset={from}&follow=0")), "{line}");
                return whole(to, 200, if out { "the rest" } else { "" });
            }
            if line.contains("stdout&offset=0") {
                // Breaks off in the middle.
                head(to, 200, Some(100));
                return put(to, "one\n");
            }
            whole(to, 500, r#"{"error":"not today","code":"internal"}"#);
        });
        let mut program = icebox(&["exec", ID, "--url", &url, "--", "true"]);
        let mut child = program.stdout(Stdio::piped()).spawn().expect("it runs");
        let mut out = BufReader::new(child.stdout.take().expect("its output"));
        let mut told = String::new();
        out.read_line(&mut told).expect("a line");
        go_on.send(()).expect("the server waits");
        out.read_to_string(&mut told).expect("the rest");
        assert_eq!(told, expected, "{why}");
        assert_eq!(child.wait().expect("it ends").code(), Some(0));
    }
}

#[test]
fn exec_says_on_ctrl_c_that_the_command_runs_on() {
    let (posted, wait) = mpsc::channel::<()>();
    let (posted, wait) = (Mutex::new(posted), wait);
    let (hold, held) = mpsc::channel::<()>();
    let held = Mutex::new(held);
    let url = routed(move |line, to| {
        if line.starts_with("POST") {
            posted
                .lock()
                .expect("one POST")
                .send(())
                .expect("the test waits");
            assert!(
                held.lock().expect("one POST").recv().is_err(),
                "until the test is over"
            );
            return;
        }
        whole(to, 404, r#"{"error":"no such command","code":"not_found"}"#);
    });
    let mut program = icebox(&["exec", ID, "--url", &url, "--", "true"]);
    let child = program.stderr(Stdio::piped()).spawn().expect("it runs");
    wait.recv().expect("the command is asked for");
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("it is there");
    let ended = child.wait_with_output().expect("it ends");
    drop(hold);
    let told = text(&ended.stderr);
    assert!(told.contains("runs on in the box"), "{told}");
    assert!(told.contains(&format!("icebox kill {ID} ")), "{told}");
    assert_eq!(ended.status.code(), Some(130));
}

#[test]
fn exec_says_where_its_options_go() {
    let body = r#"{"execId":"00","exitCode":127,"stdout":"","stderr":"bash: no\n"}"#;
    for (last, hint) in [("--background", true), ("--all", false)] {
        let (url, _asked) = server(vec![ok(body)]);
        let output = run(&["exec", ID, "--url", &url, "--", "npm run dev", last]);
        let told = text(&output.stderr);
        assert_eq!(told.contains("go before `--`"), hint, "{told}");
        assert_eq!(output.status.code(), Some(127));
    }
}

#[test]
fn exec_asks_again_for_the_same_command_when_the_connection_breaks() {
    let bodies = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&bodies);
    let socket = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", socket.local_addr().expect("its address"));
    thread::spawn(move || {
        for stream in socket.incoming() {
            let mut stream = stream.expect("a connection");
            let asked = asked(&stream);
            if !asked.line.starts_with("POST") {
                whole(
                    &mut stream,
                    404,
                    r#"{"error":"no such command","code":"not_found"}"#,
                );
                continue;
            }
            let mut seen = seen.lock().expect("the bodies");
            seen.push(asked.body);
            // The first one hangs up without a word.
            if seen.len() > 1 {
                let body = r#"{"execId":"00","exitCode":0,"stdout":"once\n","stderr":""}"#;
                whole(&mut stream, 200, body);
            }
        }
    });
    let output = run(&["exec", ID, "--url", &url, "--", "true"]);
    assert_eq!(
        (output.status.code(), text(&output.stdout)),
        (Some(0), "once\n".to_owned())
    );
    let bodies = bodies.lock().expect("the bodies");
    assert_eq!(bodies.len(), 2);
    assert_eq!(
        bodies[0], bodies[1],
        "the same execId, so that it runs once"
    );
}

#[test]
fn logs_as_json_are_lines_with_their_offsets() {
    let url = routed(|line, to| {
        if line.contains("/procs HTTP") {
            let proc = r#"{"execId":"00","cmd":"x","background":false,"running":false,"timedOut":false,"ms":1,
                "stdoutBytes":0,"stderrBytes":0,"outputUrl":"/o"}"#;
            return whole(to, 200, &format!(r#"{{"procs":[{proc}]}}"#));
        }
        let out = line.contains("stream=stdout");
        whole(to, 200, if out { "a\nb" } else { "" });
    });
    let output = run(&["logs", ID, "--json", "--url", &url]);
    assert_eq!(
        text(&output.stdout),
        "{\"offset\":0,\"stream\":\"stdout\",\"text\":\"a\\nb\"}\n"
    );
    assert_eq!(text(&output.stderr), "");
}

#[test]
fn a_stop_says_that_the_copy_is_deleted_and_a_cold_wake_that_nothing_happened() {
    let until = r#","restorableUntil":"2099-03-04T12:00:00Z""#;
    let gone = a_box(ID, "web", "terminated", "");
    let (url, _asked) = server(vec![ok(&a_box(ID, "web", "terminated", until)), ok(&gone)]);
    let told = text(&run(&["stop", ID, "--url", &url]).stderr);
    assert!(told.contains("its copy is deleted now"), "{told}");
    let ready = a_box(ID, "web", "ready", "");
    let (url, _asked) = server(vec![ok(&ready), ok(&ready)]);
    let told = text(&run(&["wake", "--cold", ID, "--url", &url]).stderr);
    assert!(told.contains("nothing was restarted"), "{told}");
}

#[test]
fn a_start_that_takes_long_says_what_it_may_wait_for() {
    let (go_on, wait) = mpsc::channel::<()>();
    let wait = Mutex::new(wait);
    let url = routed(move |_, to| {
        wait.lock()
            .expect("one POST")
            .recv()
            .expect("a word from the test");
        whole(to, 200, &a_box(ID, "web", "ready", ""));
    });
    let mut program = icebox(&["start", "--url", &url]);
    program.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = program.spawn().expect("it runs");
    let mut told = BufReader::new(child.stderr.take().expect("its notes"));
    let mut line = String::new();
    told.read_line(&mut line).expect("a line");
    assert!(line.contains("only the first box waits for it"), "{line}");
    go_on.send(()).expect("the server waits");
    let ended = child.wait_with_output().expect("it ends");
    assert_eq!(text(&ended.stdout), format!("{ID}\n"));
}

#[test]
fn a_start_says_when_the_name_is_taken() {
    let other = a_box("abce0123456789abcdef", "web", "ready", "");
    let (url, _asked) = server(vec![boxes(&[other]), ok(&a_box(ID, "web", "ready", ""))]);
    let output = run(&["start", "--name", "web", "--url", &url]);
    assert_eq!(text(&output.stdout), format!("{ID}\n"));
    let told = text(&output.stderr);
    assert!(
        told.contains("another box is called `web`, too (abce0123456789abcdef)"),
        "{told}"
    );
}

#[test]
fn what_the_server_refuses_is_told_in_its_own_words() {
    let body = r#"{"error":"the copy is damaged: wake it cold","code":"wake_failed","boxId":"x"}"#;
    let (url, _asked) = server(vec![(503, body.to_owned()), (503, body.to_owned())]);
    let output = run(&["wake", ID, "--url", &url]);
    assert_eq!(
        text(&output.stderr),
        "error: the copy is damaged: wake it cold; try again in 3 s\n"
    );
    assert_eq!(output.status.code(), Some(1));
    let output = run(&["wake", ID, "--url", &url, "--json"]);
    let error: serde_json::Value = serde_json::from_slice(&output.stderr).expect("JSON");
    assert_eq!(
        (&error["code"], &error["boxId"]),
        (&"wake_failed".into(), &"x".into())
    );
}

#[test]
fn without_a_key_the_way_to_one_is_told() {
    let (url, asked) = server(vec![(
        401,
        r#"{"error":"no key","code":"unauthorized"}"#.to_owned(),
    )]);
    let mut command = icebox(&["ls", "--url", &url, "--data", "/nonexistent"]);
    let output = command
        .env_remove("ICEBOX_API_KEY")
        .output()
        .expect("it runs");
    assert_eq!(
        text(&output.stderr),
        "error: the server wants a key, and there is no key file /nonexistent/admin.key; set ICEBOX_API_KEY, or name \
         the server's folder with --data\n"
    );
    assert!(
        !asked
            .recv()
            .expect("a request")
            .head
            .contains("authorization")
    );
}

#[test]
fn a_name_or_the_beginning_of_an_id_is_looked_up_and_several_are_named() {
    let list = [
        a_box(ID, "web", "ready", ""),
        a_box("abce0123456789abcdef", "web2", "frozen", ""),
    ];
    let frozen = a_box(
        ID,
        "web",
        "frozen",
        r#","tier":"disk","keeps":"files_and_memory""#,
    );
    let (url, asked) = server(vec![
        boxes(&list),
        ok(&frozen),
        boxes(&list),
        boxes(&[]),
        boxes(&[]),
    ]);
    let output = run(&["freeze", "web", "--url", &url]);
    assert_eq!(
        text(&output.stdout),
        "web: frozen on disk, memory and all: the next call wakes it\n"
    );
    let lines: Vec<_> = asked.iter().take(2).map(|asked| asked.line).collect();
    assert_eq!(lines[1], format!("POST /v1/boxes/{ID}/freeze HTTP/1.1"));
    let output = run(&["freeze", "abc", "--url", &url]);
    assert_eq!(
        text(&output.stderr),
        format!(
            "error: `abc` may mean several boxes: {ID} (web, ready), abce0123456789abcdef (web2, frozen); give more of \
             the id\n"
        )
    );
    let output = run(&["freeze", "nothing", "--url", &url]);
    assert!(
        text(&output.stderr).contains("no box has the id or the name `nothing`"),
        "{output:?}"
    );
}

#[test]
fn a_list_is_a_table_in_words_without_colours_or_the_servers_json() {
    let hold = r#","freeze":{"blockedBy":[{"kind":"background","label":"npm run dev"}]}"#;
    let list = [a_box(ID, "we\\u001b[31mb", "ready", hold)];
    let (url, asked) = server(vec![boxes(&list), boxes(&list), boxes(&[])]);
    let output = run(&["ls", "--url", &url]);
    let expected = format!(
        "ID                    NAME           STATUS  WHAT\n\
         {ID}  we\\u{{1b}}[31mb  ready   awake because `npm run dev` runs in the background; does not freeze before that \
         ends\n"
    );
    assert_eq!(text(&output.stdout), expected);
    let output = run(&["ls", "--all", "--json", "--url", &url]);
    assert_eq!(text(&output.stdout), format!("{}\n", boxes(&list).1));
    let lines: Vec<_> = asked.iter().take(2).map(|asked| asked.line).collect();
    assert_eq!(lines[1], "GET /v1/boxes?limit=100&all=1 HTTP/1.1");
    let output = run(&["ls", "--url", &url]);
    assert_eq!(
        (text(&output.stdout), text(&output.stderr)),
        (
            String::new(),
            "No boxes. Start one with `icebox start`.\n".to_owned()
        )
    );
}

#[test]
fn rule_13_6_a_list_ends_with_the_slots_and_who_waits() {
    let waits = r#","waitsForRoom":{"before":1,"since":"2026-03-04T13:00:00Z","until":"2026-03-04T13:00:30Z"}"#;
    let (status, list) = boxes(&[a_box(ID, "web", "frozen", waits)]);
    let slots = r#","slots":{"running":3,"maximum":3,"waiting":2}}"#;
    let list = list.strip_suffix('}').expect("an object").to_owned() + slots;
    let (url, _asked) = server(vec![(status, list.clone()), (status, list)]);
    let output = run(&["ls", "--url", &url]);
    assert!(
        text(&output.stdout).contains("frozen, and waits for room on the host, 1 before it"),
        "{output:?}"
    );
    assert_eq!(
        text(&output.stderr),
        "Slots: 3 of 3 taken, 2 waiting for room\n"
    );
    let output = run(&["ls", "--quiet", "--url", &url]);
    assert_eq!(
        (text(&output.stdout), text(&output.stderr)),
        (format!("{ID}\n"), String::new())
    );
}

#[test]
fn rule_5_9_a_start_that_waits_tells_its_place() {
    let host = |before: Option<u32>| {
        let queue = before.map_or(String::new(), |before| {
            format!(
                r#"{{"box":"{ID}","wanted":"start","before":{before},"since":"2026-03-04T13:00:00Z",
                "until":"2026-03-04T13:30:00Z"}}"#
            )
        });
        format!(
            r#"{{"version":"1","driver":"d","cpus":1,"memoryMb":1,"diskGb":1,"boxes":{{}},"orphans":[],
            "droppedOutcomes":0,"capacity":{{"slots":{{"running":1,"maximum":1,"waiting":1}},
            "memoryMb":{{"taken":1,"maximum":1}},"cpus":{{"taken":1,"maximum":1}},"queue":[{queue}]}}}}"#
        )
    };
    let (looked, looks) = mpsc::channel::<()>();
    let looks = Mutex::new(looks);
    let places = Mutex::new(vec![0, 2]);
    let url = routed(move |line, to| {
        if line.starts_with("GET /v1/host") {
            let place = places.lock().expect("the places").pop();
            whole(to, 200, &host(place));
            // The start may have been answered already.
            let _ = looked.send(());
        } else {
            // The start is answered when its place was asked for twice.
            let looks = looks.lock().expect("one start");
            (0..2).for_each(|_| looks.recv().expect("a look"));
            whole(to, 200, &a_box(ID, "web", "ready", ""));
        }
    });
    let output = run(&["start", "--wait-for-capacity", "600", "--url", &url]);
    let told = text(&output.stderr);
    assert!(
        told.starts_with(
            "icebox: waiting for room: 2 before you\nicebox: waiting for room: you are next\n"
        ),
        "{told}"
    );
    assert_eq!(text(&output.stdout), format!("{ID}\n"));
}

#[test]
fn something_else_at_the_address_is_told_apart() {
    let (url, _asked) = server(vec![ok("<html>"), (404, "<html>".to_owned())]);
    for _ in 0..2 {
        let output = run(&["ls", "--url", &url]);
        let told = text(&output.stderr);
        assert!(
            told.starts_with(&format!("error: what answers at {url} is not understood: ")),
            "{told}"
        );
    }
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let list: Vec<_> = (0..100)
        .map(|_| a_box(ID, &"x".repeat(2_000), "ready", ""))
        .collect();
    let (url, _asked) = server(vec![boxes(&list)]);
    let program = env!("CARGO_BIN_EXE_icebox");
    let script = format!("set -o pipefail; '{program}' ls --url {url} | head -n 1 > /dev/null");
    let mut shell = Command::new("bash");
    let output = shell
        .args(["-c", &script])
        .env("ICEBOX_API_KEY", "k")
        .output()
        .expect("bash runs");
    assert_eq!(text(&output.stderr), "");
    assert_eq!(output.status.code(), Some(141));
}

// ---- webhooks ---------------------------------------------------------------

const HOOK: &str = r#"{"id":"wh_0","url":"https://hooks.example/x","kinds":["frozen"],"enabled":true,
    "createdAt":"2026-03-04T12:00:00Z","waiting":2"#;

#[test]
fn a_webhook_is_added_with_what_was_given_and_its_secret_is_told_once() {
    let made = format!(r#"{HOOK},"secret":"whsec_AAAA"}}"#);
    let (url, asked) = server(vec![ok(&made), ok(&format!("{HOOK}}}"))]);
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("secret");
    fs::write(&file, "whsec_BBBB\n").expect("a secret");
    let file = file.to_str().expect("a path");
    let add = [
        "webhook",
        "add",
        "https://hooks.example/x",
        "--kind",
        "frozen",
        "--box",
        ID,
    ];
    let output = run_at(&url, &add);
    assert_eq!(
        text(&output.stdout),
        "wh_0: frozen go to https://hooks.example/x\nsecret: whsec_AAAA\n"
    );
    let first = asked.recv().expect("a request");
    assert_eq!(first.line, "POST /v1/webhooks HTTP/1.1");
    let sent: serde_json::Value = serde_json::from_str(&first.body).expect("JSON");
    assert_eq!(
        sent,
        serde_json::json!({"url": "https://hooks.example/x", "kinds": ["frozen"], "box": ID})
    );
    let set = [
        "webhook",
        "set",
        "wh_0",
        "--secret-file",
        file,
        "--all-kinds",
        "--disable",
    ];
    let output = run_at(&url, &set);
    assert!(output.status.success(), "{output:?}");
    let second = asked.recv().expect("a request");
    assert_eq!(second.line, "PATCH /v1/webhooks/wh_0 HTTP/1.1");
    let sent: serde_json::Value = serde_json::from_str(&second.body).expect("JSON");
    assert_eq!(
        sent,
        serde_json::json!({"secret": "whsec_BBBB", "kinds": [], "enabled": false})
    );
}

#[test]
fn webhooks_and_their_deliveries_are_told_in_words() {
    let gone = r#"{"id":"wh_1","url":"https://b\u001b.example/","kinds":[],"box":"b","enabled":false,
        "disabledReason":"it answered 410","createdAt":"2026-03-04T12:00:00Z","waiting":0}"#;
    let list = format!(r#"{{"webhooks":[{HOOK}}},{gone}]}}"#);
    let (url, _) = server(vec![ok(&list)]);
    let shown = text(&run_at(&url, &["webhook", "ls"]).stdout);
    assert!(shown.contains("wh_0  enabled"), "{shown}");
    assert!(shown.contains("disabled: it answered 410"), "{shown}");
    assert!(shown.contains("all events of b"), "{shown}");
    assert!(!shown.contains('\u{1b}'), "{shown}");
    let one = |seq: u8, more: &str| {
        format!(r#"{{"id":"msg_wh_0_{seq}","seq":{seq},"box":"b","kind":"ready",{more}}}"#)
    };
    let list = [
        one(4, r#""state":"waiting","tries":0"#),
        one(
            3,
            r#""state":"waiting","tries":2,"error":"it answered 500","nextTryAt":"2026-03-04T12:00:00Z""#,
        ),
        one(
            2,
            r#""state":"given_up","tries":9,"error":"it answered 404""#,
        ),
        one(
            1,
            r#""state":"delivered","tries":1,"triedAt":"2026-03-04T12:00:00Z""#,
        ),
    ];
    let (url, asked) = server(vec![ok(&format!(
        r#"{{"deliveries":[{}]}}"#,
        list.join(",")
    ))]);
    let shown = text(&run_at(&url, &["webhook", "deliveries", "wh_0"]).stdout);
    let words = [
        "waits for an earlier event of its box",
        "it answered 500; again ",
        "given up: it answered 404",
        "delivered ",
    ];
    for (line, words) in shown.lines().skip(1).zip(words) {
        assert!(line.contains(words), "{shown}");
    }
    assert_eq!(shown.lines().count(), 5);
    let line = asked.recv().expect("a request").line;
    assert_eq!(line, "GET /v1/webhooks/wh_0/deliveries?limit=30 HTTP/1.1");
}

#[test]
fn a_test_ends_as_the_endpoint_took_it_and_webhooks_are_removed() {
    let (url, asked) = server(vec![
        ok(r#"{"ok":true,"id":"msg_1","status":204}"#),
        ok(r#"{"ok":false,"id":"msg_2","error":"no connection to it"}"#),
        ok(r#"{"ok":true}"#),
    ]);
    let taken = run_at(&url, &["webhook", "test", "wh_0"]);
    assert_eq!(taken.status.code(), Some(0));
    assert_eq!(text(&taken.stdout), "wh_0: taken, with HTTP status 204\n");
    let not = run_at(&url, &["webhook", "test", "wh_0"]);
    assert_eq!(not.status.code(), Some(1));
    assert_eq!(text(&not.stdout), "wh_0: not taken: no connection to it\n");
    let removed = run_at(&url, &["webhook", "rm", "wh_0"]);
    assert_eq!(text(&removed.stdout), "wh_0: removed\n");
    let lines: Vec<_> = asked.iter().map(|asked| asked.line).collect();
    assert_eq!(lines[0], "POST /v1/webhooks/wh_0/test HTTP/1.1");
    assert_eq!(lines[2], "DELETE /v1/webhooks/wh_0 HTTP/1.1");
    let bad = run_at(&url, &["webhook", "rm", "../boxes"]);
    assert_eq!(bad.status.code(), Some(2), "{bad:?}");
}

// ---- projects ---------------------------------------------------------------

const PROJECT: &str = r#"{"id":"prj_0","name":"my shop","origins":["https://shop.example"],
    "createdAt":"2026-03-04T12:00:00Z","bytes":2048}"#;

#[test]
fn a_projects_key_is_told_once() {
    let made = format!(r#"{{"project":{PROJECT},"writeKey":"psw_1"}}"#);
    let list = format!(r#"{{"projects":[{PROJECT}]}}"#);
    let (url, asked) = server(vec![ok(&made), ok(&made), ok(&list), ok(r#"{"ok":true}"#)]);
    let add = [
        "project",
        "add",
        "my shop",
        "--origin",
        "https://shop.example",
    ];
    let told = "prj_0: my shop, for pages of https://shop.example\nwrite key: psw_1\n";
    assert_eq!(text(&run_at(&url, &add).stdout), told);
    let first = asked.recv().expect("a request");
    let sent: serde_json::Value = serde_json::from_str(&first.body).expect("JSON");
    let expected = serde_json::json!({"name": "my shop", "origins": ["https://shop.example"]});
    assert_eq!(
        (&*first.line, sent),
        ("POST /v1/projects HTTP/1.1", expected)
    );
    assert_eq!(
        text(&run_at(&url, &["project", "rotate", "my shop"]).stdout),
        told
    );
    let second = asked.recv().expect("a request");
    assert_eq!(second.line, "POST /v1/projects/my%20shop/rotate HTTP/1.1");
    let shown = text(&run_at(&url, &["project", "ls"]).stdout);
    assert!(
        shown.contains("prj_0") && shown.contains("my shop"),
        "{shown}"
    );
    assert!(!shown.contains("psw_"), "{shown}");
    let removed = run_at(&url, &["project", "rm", "prj_0"]);
    assert_eq!(text(&removed.stdout), "prj_0: removed\n");
    let bad = run_at(&url, &["project", "rm", "../boxes"]);
    assert_eq!(bad.status.code(), Some(2), "{bad:?}");
}

#[test]
fn maps_are_found_and_sent_by_the_paths_of_their_scripts() {
    let answer =
        r#"{"release":"1.2","paths":["/static/js/a.js","/static/b.js"],"removedReleases":["0.9"]}"#;
    let (url, asked) = server(vec![ok(answer)]);
    let dir = tempfile::tempdir().expect("a folder");
    fs::create_dir(dir.path().join("js")).expect("a folder");
    for (file, content) in [
        ("js/a.js.map", "map a"),
        ("b.js.map", "map b"),
        ("b.js", "script"),
    ] {
        fs::write(dir.path().join(file), content).expect("a file");
    }
    let folder = dir.path().to_str().expect("a path");
    let args = [
        "project",
        "maps",
        "shop",
        folder,
        "--release",
        "1.2",
        "--at",
        "/static/",
    ];
    let output = run_at(&url, &args);
    assert_eq!(
        text(&output.stdout),
        "1.2: /static/js/a.js\n1.2: /static/b.js\n"
    );
    assert!(text(&output.stderr).contains("0.9"), "{output:?}");
    let sent = asked.recv().expect("a request");
    assert_eq!(sent.line, "POST /v1/projects/shop/sourcemaps HTTP/1.1");
    let parts: Vec<_> = sent.body.split("form-data; name=").skip(1).collect();
    assert_eq!(parts.len(), 3, "{}", sent.body);
    assert!(
        parts[0].starts_with("\"release\"\r\n\r\n1.2\r\n"),
        "{}",
        parts[0]
    );
    assert!(
        parts[1].starts_with("\"/static/b.js.map\"\r\n\r\nmap b\r\n"),
        "{}",
        parts[1]
    );
    assert!(
        parts[2].starts_with("\"/static/js/a.js.map\"\r\n\r\nmap a\r\n"),
        "{}",
        parts[2]
    );
    let nothing = run_at(
        &url,
        &["project", "maps", "shop", "/proc/self/ns", "--release", "1"],
    );
    assert_eq!(nothing.status.code(), Some(2), "{nothing:?}");
}

#[test]
fn logs_are_read_page_by_page_and_told_in_words() {
    let row = |msg: &str, more: &str| {
        format!(
            r#"{{"time":"2026-03-04T12:00:00Z","level":"error","name":"error","msg":"{msg}"{more}}}"#
        )
    };
    let stack = r#","stack":"at a (a.js:1:1)","stackResolved":"    at pay (pay.ts:7:3)","extra":{"code":7}"#;
    let first = format!(r#"{{"rows":[{}],"nextCursor":"5.0"}}"#, row("one", stack));
    let second = format!(r#"{{"rows":[{}]}}"#, row("two\\u001b[31m", ""));
    let (url, asked) = server(vec![ok(&first), ok(&second)]);
    let output = run_at(
        &url,
        &[
            "project", "logs", "shop", "-a & b", "--since", "2d", "--box", ID,
        ],
    );
    let shown = text(&output.stdout);
    let lines: Vec<_> = shown.lines().collect();
    assert!(lines[0].ends_with(" error error: one"), "{shown}");
    assert_eq!(
        lines[1..3],
        ["    at pay (pay.ts:7:3)", r#"    {"code":7}"#]
    );
    assert!(
        lines[3].contains("error: two") && !shown.contains('\u{1b}'),
        "{shown}"
    );
    let line = asked.recv().expect("a request").line;
    let path = format!("/v1/projects/shop/logs?query=-a+%26+b&boxId={ID}&since=2d&limit=");
    assert_eq!(line, format!("GET {path}200 HTTP/1.1"));
    let line = asked.recv().expect("a request").line;
    assert_eq!(line, format!("GET {path}199&cursor=5.0 HTTP/1.1"));
}

fn run_at(url: &str, args: &[&str]) -> Output {
    icebox(args)
        .env("ICEBOX_URL", url)
        .output()
        .expect("it runs")
}

#[test]
fn what_is_left_out_of_an_output_is_told_and_offsets_stay_true() {
    let url = routed(|line, to| {
        if line.contains("/procs ") {
            let proc = r#"{"execId":"3f00000000000000","cmd":"x","background":false,"running":false,"timedOut":false,
                "ms":1,"stdoutBytes":13,"stderrBytes":0,"outputUrl":"/o"}"#;
            return whole(to, 200, &format!(r#"{{"procs":[{proc}]}}"#));
        }
        if line.contains("stderr") {
            return whole(to, 200, "");
        }
        put(
            to,
            "HTTP/1.1 200 X\r\nx-icebox-offset: 0\r\nx-icebox-gap: 3-10\r\n",
        );
        put(to, "content-length: 6\r\nconnection: close\r\n\r\nabcXYZ");
    });
    let shown = run_at(&url, &["logs", ID, "3f"]);
    assert_eq!(text(&shown.stdout), "abcXYZ");
    assert_eq!(
        text(&shown.stderr),
        "icebox: 7 bytes are not kept any more\n"
    );
    let lines = run_at(&url, &["logs", "--json", ID, "3f"]);
    let lines = text(&lines.stdout);
    let lines = lines
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"));
    let lines: Vec<serde_json::Value> = lines.collect();
    assert_eq!(
        lines,
        [
            serde_json::json!({"stream": "stdout", "offset": 0, "text": "abc"}),
            serde_json::json!({"stream": "stdout", "offset": 10, "text": "XYZ"}),
        ]
    );
}

#[test]
fn a_server_that_cannot_listen_says_so_and_nothing_else() {
    let socket = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = socket.local_addr().expect("its address").to_string();
    let dir = tempfile::tempdir().expect("a folder");
    let data = dir.path().join("data");
    let output = icebox(&["serve", "--listen", &address, "--data"])
        .arg(&data)
        .output()
        .expect("it runs");
    let told = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(
        told.contains(&format!("cannot listen on {address}")),
        "{told}"
    );
    assert_eq!(told.lines().count(), 1, "{told}");
    assert!(!data.exists(), "it touched nothing");
}

// ---- cp, shell, kill ----------------------------------------------------------

#[test]
fn a_copy_needs_one_side_in_a_box_and_no_more() {
    for (args, expected) in [
        (["cp", "a", "b"], "write one as BOX:PATH"),
        (["cp", "-", "-"], "write one as BOX:PATH"),
        (["cp", "web:a", "api:b"], "both sides are in boxes"),
    ] {
        let output = run(&args);
        let told = text(&output.stderr);
        assert!(told.contains(expected), "{args:?}: {told}");
        assert_eq!(output.status.code(), Some(2), "{args:?}");
    }
}

#[test]
fn a_file_that_breaks_off_on_its_way_out_leaves_what_was_there() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("file");
    fs::write(&path, "old").expect("a file");
    let cut = AtomicBool::new(true);
    let url = routed(move |line, to| {
        assert_eq!(
            line,
            format!("GET /v1/boxes/{ID}/files?path=a%2Ffile HTTP/1.1")
        );
        let length = if cut.swap(false, Ordering::Relaxed) {
            9
        } else {
            3
        };
        put(
            to,
            &format!(
                "HTTP/1.1 200 X\r\ncontent-length: {length}\r\nx-icebox-archive: false\r\nx-icebox-mode: 750\r\n\r\nnew"
            ),
        );
    });
    let (from, to) = (format!("{ID}:a/file"), path.to_str().expect("text"));
    let broken = run_at(&url, &["cp", &from, to]);
    assert_eq!(broken.status.code(), Some(1), "{}", text(&broken.stderr));
    assert_eq!(fs::read_to_string(&path).expect("it is there"), "old");
    let whole = run_at(&url, &["cp", "--json", &from, to]);
    assert_eq!(
        text(&whole.stdout),
        "{\"bytes\":3,\"files\":1,\"ok\":true}\n"
    );
    assert_eq!(fs::read_to_string(&path).expect("it is there"), "new");
    let left = fs::read_dir(dir.path()).expect("the folder").count();
    assert_eq!(left, 1, "nothing is left beside it");
    // A new one has the box's permissions; one that was there keeps its own.
    let fresh = dir.path().join("fresh");
    run_at(&url, &["cp", &from, fresh.to_str().expect("text")]);
    for (path, expected) in [(&path, 0o644), (&fresh, 0o750)] {
        let mode = fs::metadata(path).expect("it is there").permissions();
        let mode = std::os::unix::fs::PermissionsExt::mode(&mode) & 0o777;
        assert_eq!(mode, expected, "{}", path.display());
    }
    let shown = run_at(&url, &["cp", &from, "-"]);
    assert_eq!(text(&shown.stdout), "new");
}

#[test]
fn links_that_lead_out_are_refused_before_anything_is_sent() {
    let dir = tempfile::tempdir().expect("a folder");
    let folder = dir.path().join("app");
    fs::create_dir(&folder).expect("a folder");
    std::os::unix::fs::symlink("/etc/passwd", folder.join("out")).expect("a link");
    let to = format!("{ID}:app");
    // There is no server: the box is not even asked.
    let from = folder.to_str().expect("text");
    let output = run_at("http://127.0.0.1:1", &["cp", from, &to]);
    let told = text(&output.stderr);
    assert!(
        told.contains("`out`") && told.contains("--skip-links"),
        "{told}"
    );
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn what_is_wrong_with_a_copy_is_seen_before_the_box_is_asked() {
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("file");
    fs::write(&file, "x").expect("a file");
    let (file, folder) = (file.to_str().expect("text"), dir.path().to_str());
    let folder = folder.expect("text");
    for (from, to, expected, code) in [
        (file, "/etc/x", "relative to /work", 2),
        (file, "../x", "must not contain `..`", 2),
        ("-", "/etc/x", "relative to /work", 2),
        (folder, "/tmp/x", "below /work only", 2),
        (folder, "../x", "must be a folder below /work", 2),
        ("/nothing/here", "x", "cannot copy /nothing/here", 1),
        ("/", "x", "end it with `/.`", 2),
    ] {
        let to = format!("{ID}:{to}");
        // There is no server.
        let output = run_at("http://127.0.0.1:1", &["cp", from, &to]);
        let told = text(&output.stderr);
        assert!(told.contains(expected), "{from} {to}: {told}");
        assert_eq!(output.status.code(), Some(code), "{from} {to}");
    }
}

#[test]
fn what_is_sent_is_called_as_it_was_named_and_need_be_no_file() {
    let dir = tempfile::tempdir().expect("a folder");
    let at = |name: &str| dir.path().join(name);
    fs::write(at("notes-v2.txt"), "x").expect("a file");
    std::os::unix::fs::symlink("notes-v2.txt", at("notes.txt")).expect("a link");
    let written = r#"{"ok":true}"#;
    for (command, expected) in [
        ("$0 cp notes.txt $1:/tmp/", "%2Ftmp%2Fnotes.txt"),
        ("echo x | $0 cp /dev/stdin $1:new/", "new%2Fstdin"),
        ("$0 cp <(echo x) $1:new/ && true", "new%2F63"),
    ] {
        let (url, asked) = server(vec![ok(written)]);
        let output = Command::new("bash")
            .args(["-c", command, env!("CARGO_BIN_EXE_icebox"), ID])
            .current_dir(dir.path())
            .env("ICEBOX_URL", url)
            .env("ICEBOX_API_KEY", "e2b_test")
            .stdin(Stdio::null())
            .output()
            .expect("bash runs");
        let line = asked.recv().expect("a request").line;
        let path = format!("files?path={expected} ");
        assert!(line.contains(&path), "{command}: {line}: {output:?}");
    }
}

#[test]
fn a_file_here_that_cannot_be_read_is_no_lost_connection() {
    let (url, _asked) = server(vec![(0, String::new())]);
    // It opens, and nothing can be read at its beginning.
    let output = run_at(&url, &["cp", "/proc/self/mem", &format!("{ID}:/tmp/")]);
    let told = text(&output.stderr);
    assert!(told.contains("cannot read what is to be sent"), "{told}");
    assert!(!told.contains("may have taken effect"), "{told}");
}

#[test]
fn a_link_that_has_the_name_of_what_arrives_is_replaced_and_one_that_is_named_is_followed() {
    for (named, followed) in [("", false), ("file", true)] {
        let dir = tempfile::tempdir().expect("a folder");
        let (outside, here) = (dir.path().join("outside"), dir.path().join("here"));
        fs::write(&outside, "mine").expect("a file");
        fs::create_dir(&here).expect("a folder");
        std::os::unix::fs::symlink(&outside, here.join("file")).expect("a link");
        let (url, _asked) = server(vec![ok("new")]);
        let to = here.join(named);
        let from = format!("{ID}:app/file");
        let output = run_at(&url, &["cp", &from, to.to_str().expect("text")]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        let there = fs::read_to_string(&outside).expect("it is there");
        assert_eq!(there, if followed { "new" } else { "mine" });
        let link = here.join("file");
        assert_eq!(fs::read_to_string(&link).expect("it is there"), "new");
        assert_eq!(link.is_symlink(), followed);
    }
}

#[test]
fn a_shell_is_left_also_when_its_server_takes_nothing_any_more() {
    for signal in [false, true] {
        let socket = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}", socket.local_addr().expect("its address"));
        let (end, ended) = mpsc::channel::<()>();
        thread::spawn(move || {
            let (stream, _) = socket.accept().expect("a connection");
            answer(stream, 200, &a_box(ID, "web", "ready", ""));
            let (stream, _) = socket.accept().expect("a connection");
            let mut shell = tokio_tungstenite::tungstenite::accept(stream).expect("a shell");
            let prompt = tokio_tungstenite::tungstenite::Message::binary(&b"prompt"[..]);
            shell.send(prompt).expect("it is sent");
            // Open, and never read.
            ended.recv()
        });
        let mut program = icebox(&["shell", ID]);
        program.env("ICEBOX_URL", url);
        let mut shell = Terminal::run(program);
        shell.shows("prompt");
        assert!(shell.is_raw());
        // More than connections on this machine hold.
        for _ in 0..3_000 {
            shell.type_in(&"x".repeat(1023));
            shell.type_in("\r");
        }
        shell.size(91, 17);
        shell.signal(rustix::process::Signal::WINCH);
        if signal {
            shell.signal(rustix::process::Signal::TERM);
            shell.ends(143);
        } else {
            shell.type_in("~.");
            shell.shows("icebox: left");
            shell.ends(0);
        }
        drop(end);
    }
}

#[test]
fn a_shell_without_a_terminal_says_what_to_use_instead() {
    let output = run(&["shell", "web"]);
    let told = text(&output.stderr);
    assert!(told.contains("icebox exec web -- COMMAND"), "{told}");
    assert_eq!(output.status.code(), Some(125));
}

#[test]
fn a_command_is_ended_by_the_beginning_of_its_id() {
    let proc = |running: bool, more: &str| {
        format!(
            r#"{{"execId":"3f00000000000000","cmd":"sleep 1000","background":true,"running":{running},"timedOut":false,
            "ms":5,"stdoutBytes":0,"stderrBytes":0,"outputUrl":"/v1/x"{more}}}"#
        )
    };
    let (url, asked) = server(vec![
        ok(&format!(r#"{{"procs":[{}]}}"#, proc(true, ""))),
        ok(&proc(false, r#","signal":"SIGTERM""#)),
    ]);
    let output = run_at(&url, &["kill", ID, "3f", "--grace", "7"]);
    assert_eq!(
        text(&output.stdout),
        "3f00000000000000: ended by SIGTERM\n",
        "{}",
        text(&output.stderr)
    );
    let lines: Vec<_> = asked.iter().take(2).map(|asked| asked.line).collect();
    let stop = format!("POST /v1/boxes/{ID}/procs/3f00000000000000/stop?graceSec=7 HTTP/1.1");
    assert_eq!(lines[1], stop);
}

#[test]
fn of_several_boxes_the_one_that_failed_is_named() {
    let other = "abce0123456789abcdef";
    let used = r#"{"error":"it is being used (foreground); freeze it when that is over","code":"in_use",
        "blockedBy":["foreground"]}"#;
    let frozen = a_box(other, "api", "frozen", "");
    let answers = || vec![(409, used.to_owned()), ok(&frozen)];
    let (url, _asked) = server(answers());
    let output = run_at(&url, &["freeze", ID, other]);
    let told = text(&output.stderr);
    assert!(
        told.starts_with(&format!("error: {ID}: it is being used")),
        "{told}"
    );
    assert!(told.contains("icebox kill BOX EXEC"), "{told}");
    assert!(text(&output.stdout).contains("api: frozen"), "{output:?}");
    let (url, _asked) = server(answers());
    let output = run_at(&url, &["freeze", "--json", ID, other]);
    let error: serde_json::Value = serde_json::from_slice(&output.stderr).expect("JSON");
    assert_eq!(
        (&error["box"], &error["code"]),
        (&ID.into(), &"in_use".into())
    );
}

#[test]
fn what_is_piped_in_and_not_sent_is_told() {
    let body = r#"{"execId":"00","exitCode":0,"stdout":"","stderr":""}"#;
    for (input, hint) in [("data", true), ("", false)] {
        let (url, _asked) = server(vec![ok(body)]);
        let mut program = icebox(&["exec", ID, "--url", &url, "--", "cat"]);
        program.stdin(Stdio::piped()).stderr(Stdio::piped());
        let mut child = program.spawn().expect("it runs");
        let mut to = child.stdin.take().expect("a pipe");
        to.write_all(input.as_bytes()).expect("it is written");
        let told = text(&child.wait_with_output().expect("it ends").stderr);
        assert_eq!(told.contains("--stdin sends it"), hint, "{told}");
        drop(to);
    }
}

#[test]
fn help_is_there_about_help_and_exec_says_where_the_command_goes() {
    for (args, expected) in [
        (&["help", "--help"][..], "Usage: icebox help [COMMAND]..."),
        (&["help", "exec", "--help"], "Usage: icebox exec"),
        (&["help"], "Commands:"),
    ] {
        let output = run(args);
        assert!(text(&output.stdout).contains(expected), "{output:?}");
        assert_eq!(output.status.code(), Some(0), "{args:?}");
    }
    for command in [&["ls", "-la"][..], &["-la"]] {
        let output = run(&[&["exec", "web"], command].concat());
        let told = text(&output.stderr);
        assert!(told.contains("`icebox exec web -- ls -la`"), "{told}");
        assert_eq!(output.status.code(), Some(2));
    }
}

#[test]
fn a_copy_that_is_interrupted_leaves_nothing_behind() {
    let dir = tempfile::tempdir().expect("a folder");
    let (began, wait) = mpsc::channel::<()>();
    let began = Mutex::new(began);
    let url = routed(move |_, to| {
        head(to, 200, Some(1 << 30));
        // Until nobody listens any more.
        while to.write_all(&[0; 1024]).is_ok() {
            // The test may have seen enough.
            let _ = began.lock().expect("one request").send(());
            thread::sleep(std::time::Duration::from_millis(5));
        }
    });
    let to = dir.path().join("file");
    let mut program = icebox(&["cp", &format!("{ID}:file"), to.to_str().expect("text")]);
    program.env("ICEBOX_URL", &url).stderr(Stdio::piped());
    let child = program.spawn().expect("it runs");
    for _ in 0..50 {
        wait.recv().expect("it comes");
    }
    let arriving = || fs::read_dir(dir.path()).expect("the folder").count();
    assert_eq!(arriving(), 1);
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("it is there");
    let ended = child.wait_with_output().expect("it ends");
    assert_eq!(ended.status.code(), Some(130), "{}", text(&ended.stderr));
    assert_eq!(arriving(), 0);
}
