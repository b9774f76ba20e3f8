//! One boxd for one test, ended with everything it started when the test is over.

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use icebox_wire::boxd::{
    Client, ExecRequest, ExecResponse, InfoRequest, InfoResponse, ProcInfo, ProcResult,
    ProcessClient, Transport, client, process_client, transport,
};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use tempfile::TempDir;
use tokio::net::TcpStream;

/// How long anything may take before a test gives up.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// A running boxd.
pub(crate) struct Boxd {
    child: Child,
    pub(crate) addr: SocketAddr,
    pub(crate) dir: TempDir,
    transport: Transport,
}

impl Boxd {
    pub(crate) fn start(extra: &[&str]) -> Self {
        Self::start_with(extra, &[])
    }

    /// `variables` are all that boxd has.
    pub(crate) fn start_with(extra: &[&str], variables: &[(&str, &str)]) -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        std::fs::create_dir(dir.path().join("work")).expect("a work directory");
        let mut child = Command::new(env!("CARGO_BIN_EXE_boxd"))
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
        let addr: SocketAddr = line
            .trim()
            .rsplit(' ')
            .next()
            .and_then(|addr| addr.parse().ok())
            .expect("an address");
        let transport = transport(Arc::new(move || Box::pin(TcpStream::connect(addr))));
        Self {
            child,
            addr,
            dir,
            transport,
        }
    }

    pub(crate) fn own(&self) -> Client {
        client(&self.transport)
    }

    pub(crate) fn process(&self) -> ProcessClient {
        process_client(&self.transport)
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

impl Drop for Boxd {
    fn drop(&mut self) {
        signal(self.pid(), Signal::TERM);
        self.child.wait().expect("boxd is ours to wait for");
    }
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
