//! One boxd for one test, ended with everything it started when the test is over.

use std::fs::Permissions;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use icebox_wire::boxd::{
    Client, ConfigureRequest, ExecRequest, ExecResponse, FilesystemClient, InfoRequest,
    InfoResponse, ProcInfo, ProcResult, ProcessClient, Transport, client, filesystem_client,
    process_client, transport,
};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use tempfile::TempDir;
use tokio::net::TcpStream;

/// The program that is tested.
const PROGRAM: &str = env!("CARGO_BIN_EXE_boxd");

/// How long anything may take before a test gives up.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// A running boxd.
pub(crate) struct Boxd {
    child: Child,
    pub(crate) addr: SocketAddr,
    pub(crate) dir: TempDir,
    transport: Mutex<Transport>,
}

impl Boxd {
    pub(crate) fn start(extra: &[&str]) -> Self {
        Self::start_with(extra, &[])
    }

    /// `variables` are all that boxd has.
    pub(crate) fn start_with(extra: &[&str], variables: &[(&str, &str)]) -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        std::fs::create_dir(dir.path().join("work")).expect("a work directory");
        std::os::unix::fs::symlink(PROGRAM, dir.path().join("boxd")).expect("a link");
        let (child, addr) = spawn(&dir, extra, variables);
        Self {
            child,
            addr,
            dir,
            transport: Mutex::new(transport_to(addr)),
        }
    }

    /// Ends boxd and starts another one in the same place.
    pub(crate) fn restart(&mut self, variables: &[(&str, &str)]) {
        signal(self.pid(), Signal::TERM);
        self.child.wait().expect("boxd is ours to wait for");
        (self.child, self.addr) = spawn(&self.dir, &[], variables);
        self.reconnect();
    }

    /// Calls from now on go over new connections.
    pub(crate) fn reconnect(&self) {
        *self.transport.lock().expect("no panic") = transport_to(self.addr);
    }

    fn transport(&self) -> Transport {
        self.transport.lock().expect("no panic").clone()
    }

    /// Puts a shell script in the place of the program; `$BOXD` in it is the program.
    pub(crate) fn replace_program(&self, script: &str) {
        let (script_path, place) = (self.dir.path().join("script"), self.dir.path().join("boxd"));
        std::fs::write(
            &script_path,
            format!("#!/bin/sh\nBOXD={PROGRAM}\n{script}\n"),
        )
        .expect("a script");
        std::fs::set_permissions(&script_path, Permissions::from_mode(0o755)).expect("a mode");
        std::fs::rename(&script_path, &place).expect("in its place");
    }

    pub(crate) fn own(&self) -> Client {
        client(&self.transport())
    }

    pub(crate) fn process(&self) -> ProcessClient {
        process_client(&self.transport())
    }

    pub(crate) fn files(&self) -> FilesystemClient {
        filesystem_client(&self.transport())
    }

    /// A path in the work directory, which the test may fill.
    pub(crate) fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join("work").join(name)
    }

    /// The same as text.
    pub(crate) fn named(&self, name: &str) -> String {
        self.at(name).to_string_lossy().into_owned()
    }

    pub(crate) async fn configure(&self, settings: ConfigureRequest) {
        within(self.own().configure(settings))
            .await
            .expect("settings are taken");
    }

    /// One request over a connection of its own.
    pub(crate) fn http(
        &self,
        method: &str,
        target: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Answer {
        let mut connection = self.connect();
        let head = head(method, target, headers, body.len());
        // A refused upload may be cut off; its answer is there all the same.
        let sent = connection.write_all(&head);
        drop(sent.and_then(|()| connection.write_all(body)));
        Answer::read(connection)
    }

    pub(crate) fn connect(&self) -> std::net::TcpStream {
        let connection = std::net::TcpStream::connect(self.addr).expect("connects");
        connection
            .set_read_timeout(Some(PATIENCE * 6))
            .expect("a timeout");
        connection
    }

    pub(crate) fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).expect("a process number")
    }

    pub(crate) async fn exec(&self, request: ExecRequest) -> ExecResponse {
        within(self.own().exec(request))
            .await
            .expect("exec answers")
            .into_owned()
    }

    /// Runs a line to its end.
    pub(crate) async fn run(&self, cmd: &str) -> ProcResult {
        self.exec(line(cmd))
            .await
            .result
            .into_option()
            .expect("a result")
    }

    pub(crate) async fn info(&self) -> InfoResponse {
        within(self.own().info(InfoRequest::default()))
            .await
            .expect("info answers")
            .into_owned()
    }
}

fn spawn(dir: &TempDir, extra: &[&str], variables: &[(&str, &str)]) -> (Child, SocketAddr) {
    let mut child = Command::new(dir.path().join("boxd"))
        .args([
            "--listen",
            "127.0.0.1:0",
            "--state-dir",
            "state",
            "--work-dir",
        ])
        .arg(dir.path().join("work"))
        .args(extra)
        .env_clear()
        .envs(variables.iter().copied())
        .current_dir(dir.path())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .expect("boxd starts");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("piped"))
        .read_line(&mut line)
        .expect("boxd says where it listens");
    let addr = line
        .trim()
        .rsplit(' ')
        .next()
        .and_then(|addr| addr.parse().ok())
        .expect("an address");
    (child, addr)
}

fn transport_to(addr: SocketAddr) -> Transport {
    transport(Arc::new(move || Box::pin(TcpStream::connect(addr))))
}

impl Drop for Boxd {
    fn drop(&mut self) {
        signal(self.pid(), Signal::TERM);
        self.child.wait().expect("boxd is ours to wait for");
    }
}

/// The head of a request with a body of this length.
pub(crate) fn head(method: &str, target: &str, headers: &[(&str, &str)], len: usize) -> Vec<u8> {
    let mut head = format!(
        "{method} {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {len}\r\n"
    );
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str("\r\n");
    head.into_bytes()
}

/// What came back over plain HTTP.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    head: String,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    /// Reads to the end of the connection.
    pub(crate) fn read(mut connection: std::net::TcpStream) -> Self {
        let mut all = Vec::new();
        // It may end in a reset after the answer.
        drop(connection.read_to_end(&mut all));
        let split = all.windows(4).position(|four| four == b"\r\n\r\n");
        let split =
            split.unwrap_or_else(|| panic!("no head in {:?}", String::from_utf8_lossy(&all)));
        let mut answer = Self {
            status: 0,
            head: String::from_utf8_lossy(&all[..split]).into_owned(),
            body: all.split_off(split + 4),
        };
        answer.status = answer.head[9..12].parse().expect("a status");
        if answer.header("transfer-encoding").is_some() {
            answer.body = unchunk(&answer.body);
        }
        answer
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().skip(1).find_map(|line| {
            let (found, value) = line.split_once(':')?;
            found.eq_ignore_ascii_case(name).then_some(value.trim())
        })
    }

    pub(crate) fn text(&self) -> &str {
        text(&self.body)
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).expect("JSON")
    }
}

/// Joins chunks up to the last one, or to where they break off.
fn unchunk(mut body: &[u8]) -> Vec<u8> {
    let mut joined = Vec::new();
    while let Some(line) = body.windows(2).position(|two| two == b"\r\n") {
        let len = usize::from_str_radix(text(&body[..line]), 16).expect("a length");
        let end = (line + 2 + len).min(body.len());
        joined.extend_from_slice(&body[line + 2..end]);
        body = body.get(end + 2..).unwrap_or_default();
    }
    joined
}

/// A request for a line with nothing special.
pub(crate) fn line(cmd: &str) -> ExecRequest {
    ExecRequest {
        cmd: cmd.to_owned(),
        ..Default::default()
    }
}

/// What the result says about the process.
pub(crate) fn proc(result: &ProcResult) -> &ProcInfo {
    result.proc.as_option().expect("a process")
}

pub(crate) fn text(bytes: &[u8]) -> &str {
    str::from_utf8(bytes).expect("text")
}

/// Awaits with an end.
pub(crate) async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future)
        .await
        .expect("an answer in time")
}

/// Asks again and again until `holds`, with an end.
pub(crate) async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let waiting = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    assert!(
        tokio::time::timeout(PATIENCE, waiting).await.is_ok(),
        "never: {what}"
    );
}

pub(crate) fn alive(pid: i32) -> bool {
    Pid::from_raw(pid).is_some_and(|pid| test_kill_process(pid).is_ok())
}

pub(crate) fn signal(pid: i32, signal: Signal) {
    if let Some(pid) = Pid::from_raw(pid) {
        // It may have ended by itself.
        let _ = kill_process(pid, signal);
    }
}
