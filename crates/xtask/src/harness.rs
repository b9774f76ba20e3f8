//! A real server as its users run it: the `icebox` program in a process of its own, spoken to over REST.
//!
//! Owns starting, ending and cleaning up after it. Knows nothing of what a test wants to see.

use std::fs::{self, File};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use serde_json::{Value, json};

/// How long a server may take until it is ready, and until it has ended.
const SETTLE: Duration = Duration::from_secs(60);

/// The settings file of the server, where a test writes one into the data folder.
pub const SETTINGS: &str = "settings.toml";

/// How often something that has no event to wait for is looked at.
const LOOK_INTERVAL: Duration = Duration::from_millis(5);

/// A data folder with, most of the time, a server on it. Everything goes when this is dropped.
pub struct Instance {
    /// The data folder.
    pub data: PathBuf,
    program: PathBuf,
    test_clock: bool,
    tls: bool,
    server: Option<Running>,
}

struct Running {
    child: Child,
    port: u16,
    http: ureq::Agent,
    key: String,
}

/// An answer of the server.
#[derive(Debug)]
pub struct Answer {
    /// The HTTP status.
    pub status: u16,
    /// The body, as JSON; a string when it is not JSON.
    pub body: Value,
}

impl Answer {
    /// The body, if the status is a good one.
    pub fn ok(self) -> anyhow::Result<Value> {
        ensure!(
            (200..300).contains(&self.status),
            "HTTP {}: {}",
            self.status,
            self.body
        );
        Ok(self.body)
    }
}

impl Instance {
    /// A new data folder without a server yet.
    pub fn new(name: &str, test_clock: bool) -> anyhow::Result<Self> {
        let base =
            std::env::var_os("ICEBOX_TEST_DIR").map_or_else(std::env::temp_dir, PathBuf::from);
        let data = base.join(format!("icebox-{name}-{}", std::process::id()));
        fs::create_dir_all(&data).with_context(|| format!("make {}", data.display()))?;
        // Boxes of tests that say nothing about it leave the network of the machine alone.
        fs::write(data.join(SETTINGS), "[egress]\ndefault = \"none\"\n")?;
        Ok(Self {
            data,
            program: program()?,
            test_clock,
            tls: false,
            server: None,
        })
    }

    /// Has the server speak TLS, with certificates of its own authority.
    #[must_use]
    pub fn over_tls(mut self) -> Self {
        self.tls = true;
        self
    }

    /// Starts the server with these variables on top and waits until it is ready.
    pub fn start(&mut self, variables: &[(&str, &str)]) -> anyhow::Result<()> {
        ensure!(self.server.is_none(), "a server runs already");
        let port = free_port()?;
        let log = self.log_file()?;
        let mut command = Command::new(&self.program);
        command
            .arg("serve")
            .arg("--data")
            .arg(&self.data)
            .args(["--listen", &format!("127.0.0.1:{port}")])
            .envs(variables.iter().copied())
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        if self.test_clock {
            command.arg("--test-clock");
        }
        if self.tls {
            command.arg("--tls");
        }
        let settings = self.data.join(SETTINGS);
        if settings.exists() {
            command.arg("--config").arg(settings);
        }
        let child = command
            .spawn()
            .with_context(|| format!("start {}", self.program.display()))?;
        self.server = Some(Running {
            child,
            port,
            http: agent(),
            key: String::new(),
        });
        self.wait_until_ready()
    }

    fn wait_until_ready(&mut self) -> anyhow::Result<()> {
        let ready = until(SETTLE, || {
            let server = self.server.as_mut().context("no server")?;
            if let Some(status) = server.child.try_wait()? {
                bail!("the server ended with {status}: {}", self.log_tail());
            }
            let url = format!("{}/readyz", origin(self.tls, server.port));
            let answered = server.http.get(&url).call();
            Ok(answered
                .is_ok_and(|answer| answer.status() == 200)
                .then_some(()))
        });
        ready.with_context(|| format!("the server is not ready: {}", self.log_tail()))?;
        let key = fs::read_to_string(self.data.join("admin.key")).context("read the admin key")?;
        let server = self.server.as_mut().context("no server")?;
        server.key = key.trim().to_owned();
        Ok(())
    }

    /// Sends a request; `body` goes as JSON.
    pub fn ask(&self, method: &str, path: &str, body: Option<&Value>) -> anyhow::Result<Answer> {
        self.ask_as(None, method, path, body)
    }

    /// The same from a conversation (rule 7.1).
    pub fn ask_as(
        &self,
        agent: Option<&str>,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> anyhow::Result<Answer> {
        let server = self.server.as_ref().context("no server")?;
        let url = format!("{}{path}", origin(self.tls, server.port));
        let mut request = ureq::http::Request::builder()
            .method(method)
            .uri(&url)
            .header("Authorization", format!("Bearer {}", server.key));
        if let Some(agent) = agent {
            request = request.header("X-Psbx-Agent", agent);
        }
        let answered = match body {
            Some(body) => {
                let request = request.header("Content-Type", "application/json");
                server.http.run(request.body(body.to_string())?)
            }
            None => server.http.run(request.body(())?),
        };
        let mut answer = answered.with_context(|| format!("{method} {path}"))?;
        let status = answer.status().as_u16();
        let text = answer
            .body_mut()
            .read_to_string()
            .context("read the answer")?;
        let body = serde_json::from_str(&text).unwrap_or(Value::String(text));
        Ok(Answer { status, body })
    }

    /// `POST`, and the body of the answer if it is a good one.
    pub fn post(&self, path: &str, body: Value) -> anyhow::Result<Value> {
        let answer = self.ask("POST", path, Some(&body))?;
        answer.ok().with_context(|| format!("POST {path}"))
    }

    /// `GET`, and the body of the answer if it is a good one.
    pub fn get(&self, path: &str) -> anyhow::Result<Value> {
        self.ask("GET", path, None)?
            .ok()
            .with_context(|| format!("GET {path}"))
    }

    /// Starts a box and returns its id.
    pub fn start_box(&self, body: Value) -> anyhow::Result<String> {
        let started = self.post("/v1/boxes", body)?;
        let id = started["id"].as_str().context("the answer has no id")?;
        Ok(id.to_owned())
    }

    /// Runs a command in a box and returns its output, if it ended well.
    pub fn exec(&self, id: &str, cmd: &str) -> anyhow::Result<String> {
        let path = format!("/v1/boxes/{id}/exec");
        let answer = self.post(&path, json!({"cmd": cmd}))?;
        ensure!(answer["exitCode"] == 0, "`{cmd}`: {answer}");
        Ok(answer["stdout"].as_str().unwrap_or("").to_owned())
    }

    /// The status of a box, in the word that REST has for it.
    pub fn status(&self, id: &str) -> anyhow::Result<String> {
        let view = self.get(&format!("/v1/boxes/{id}"))?;
        Ok(view["status"].as_str().unwrap_or("").to_owned())
    }

    /// Waits, bounded, until a box has one of these statuses, and returns it.
    pub fn wait_for_status(&self, id: &str, wanted: &[&str]) -> anyhow::Result<String> {
        let mut last = String::new();
        let waited = until(SETTLE, || {
            last = self.status(id)?;
            Ok(wanted.contains(&last.as_str()).then_some(()))
        });
        waited.with_context(|| {
            format!(
                "box {id} is {last}, not one of {wanted:?}: {}",
                self.log_tail()
            )
        })?;
        Ok(last)
    }

    /// Moves the test clock; returns once all that came due has taken effect.
    pub fn advance(&self, sec: u64) -> anyhow::Result<()> {
        self.post("/v1/test/clock", json!({"advanceSec": sec}))
            .map(drop)
    }

    /// The size of the server's memory, in KiB.
    pub fn server_rss_kib(&self) -> anyhow::Result<u64> {
        let server = self.server.as_ref().context("no server")?;
        let status = fs::read_to_string(format!("/proc/{}/status", server.child.id()))?;
        let line = status
            .lines()
            .find_map(|l| l.strip_prefix("VmRSS:"))
            .context("no VmRSS")?;
        Ok(line.trim().trim_end_matches(" kB").parse()?)
    }

    /// The time that the server has computed for, in milliseconds.
    pub fn server_cpu_ms(&self) -> anyhow::Result<u64> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.server_pid()?))?;
        // After the name, which may hold anything, `utime` and `stime` are the 12th and 13th.
        let (_, rest) = stat.rsplit_once(')').context("no name")?;
        let ticks = rest.split_whitespace().skip(11).take(2);
        let ticks: Vec<u64> = ticks.map(str::parse).collect::<Result<_, _>>()?;
        Ok(ticks.iter().sum::<u64>() * 1_000 / rustix::param::clock_ticks_per_second())
    }

    /// The process of the server.
    pub fn server_pid(&self) -> anyhow::Result<u32> {
        Ok(self.server.as_ref().context("no server")?.child.id())
    }

    /// The network that the programs of a running box are in, as a path.
    pub fn network_namespace(&self, id: &str) -> anyhow::Result<String> {
        let pids = cgroups_of(id).into_iter().find_map(|path| {
            let pids = fs::read_to_string(path.join("cgroup.procs")).ok()?;
            pids.lines().next().map(str::to_owned)
        });
        let pid = pids.with_context(|| format!("no process of box {id} was found"))?;
        Ok(format!("/proc/{pid}/ns/net"))
    }

    /// The address of the server and its key, for clients of a benchmark's own.
    pub fn address(&self) -> anyhow::Result<(String, String)> {
        let server = self.server.as_ref().context("no server")?;
        Ok((format!("127.0.0.1:{}", server.port), server.key.clone()))
    }

    /// The URL of the server, without a path.
    pub fn url(&self) -> anyhow::Result<String> {
        let server = self.server.as_ref().context("no server")?;
        Ok(origin(self.tls, server.port))
    }

    /// Asks the server to end, as a service manager would, and waits for it.
    pub fn stop(&mut self) -> anyhow::Result<()> {
        let Some(server) = &self.server else {
            return Ok(());
        };
        let pid = rustix::process::Pid::from_child(&server.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM)?;
        self.wait_for_end().map(drop)
    }

    /// Ends the server as a crash would.
    pub fn kill(&mut self) -> anyhow::Result<()> {
        if let Some(server) = &mut self.server {
            server.child.kill()?;
            server.child.wait()?;
        }
        self.server = None;
        Ok(())
    }

    /// Waits, bounded, until the server has ended by itself.
    pub fn wait_for_end(&mut self) -> anyhow::Result<ExitStatus> {
        let mut server = self.server.take().context("no server")?;
        let ended = until(SETTLE, || Ok(server.child.try_wait()?));
        if ended.is_err() {
            server.child.kill()?;
            server.child.wait()?;
        }
        ended.with_context(|| format!("the server did not end: {}", self.log_tail()))
    }

    /// What is left on this machine of the boxes of this instance, a line each. Empty is as it should be
    /// once all of them are stopped.
    pub fn leftovers(&self, ids: &[String]) -> Vec<String> {
        let mut left = Vec::new();
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let data = self.data.to_string_lossy();
        left.extend(
            mounts
                .lines()
                .filter(|l| l.contains(&*data))
                .map(|l| format!("mount: {l}")),
        );
        for folder in ["boxes", "run", "snapshots"] {
            let entries = fs::read_dir(self.data.join(folder))
                .into_iter()
                .flatten()
                .flatten();
            left.extend(entries.map(|entry| format!("file: {}", entry.path().display())));
        }
        for id in ids {
            left.extend(
                cgroups_of(id)
                    .into_iter()
                    .map(|path| format!("cgroup: {}", path.display())),
            );
            left.extend(
                processes_of(id)
                    .into_iter()
                    .map(|line| format!("process: {line}")),
            );
        }
        left
    }

    /// The end of the server's log.
    pub fn log_tail(&self) -> String {
        let text = fs::read_to_string(self.log_path()).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        let tail = &lines[lines.len().saturating_sub(15)..];
        format!(
            "the end of {}:\n{}",
            self.log_path().display(),
            tail.join("\n")
        )
    }

    fn log_path(&self) -> PathBuf {
        self.data.join("server.log")
    }

    fn log_file(&self) -> anyhow::Result<File> {
        let mut options = File::options();
        let path = self.log_path();
        let opened = options.create(true).append(true).open(&path);
        opened.with_context(|| format!("open {}", path.display()))
    }

    fn destroy_boxes(&mut self) -> anyhow::Result<()> {
        if self.server.is_none() {
            self.start(&[])?;
        }
        let listed = self.get("/v1/boxes")?;
        for view in listed["boxes"].as_array().into_iter().flatten() {
            let id = view["id"].as_str().unwrap_or("");
            self.post(&format!("/v1/boxes/{id}/stop"), json!({}))?;
        }
        self.stop()
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        // Also when a test fails: its boxes, and then the folder, must not stay on the machine.
        let has_boxes = fs::read_dir(self.data.join("boxes")).is_ok_and(|mut d| d.next().is_some());
        if has_boxes && let Err(error) = self.destroy_boxes() {
            eprintln!(
                "boxes of {} could not be stopped: {error:#}",
                self.data.display()
            );
        }
        // In good order: the last one takes the groups that boxes stood in with it.
        if let Err(error) = self.stop() {
            eprintln!(
                "the server of {} could not be ended: {error:#}",
                self.data.display()
            );
        }
        let failed = std::thread::panicking() && std::env::var_os("ICEBOX_KEEP").is_some();
        if !failed && let Err(error) = fs::remove_dir_all(&self.data) {
            eprintln!("{} could not be removed: {error}", self.data.display());
        }
    }
}

/// Looks, bounded, until `look` finds something.
pub fn until<T>(
    limit: Duration,
    mut look: impl FnMut() -> anyhow::Result<Option<T>>,
) -> anyhow::Result<T> {
    let looks = limit.as_millis() / LOOK_INTERVAL.as_millis();
    for _ in 0..looks {
        if let Some(found) = look()? {
            return Ok(found);
        }
        std::thread::sleep(LOOK_INTERVAL);
    }
    bail!("waited {} s in vain", limit.as_secs())
}

fn origin(tls: bool, port: u16) -> String {
    if tls {
        format!("https://localhost:{port}")
    } else {
        format!("http://127.0.0.1:{port}")
    }
}

/// What speaks to the server for the tests themselves. It checks no certificate: the clients that are tested do.
fn agent() -> ureq::Agent {
    let provider = rustls::crypto::ring::default_provider();
    let tls = ureq::tls::TlsConfig::builder()
        .disable_verification(true)
        .unversioned_rustls_crypto_provider(Arc::new(provider))
        .build();
    ureq::Agent::config_builder()
        .http_status_as_error(false)
        .timeout_global(Some(Duration::from_secs(120)))
        .tls_config(tls)
        .build()
        .into()
}

/// The cgroups that belong to a box, in every hierarchy.
fn cgroups_of(id: &str) -> Vec<PathBuf> {
    let root = Path::new("/sys/fs/cgroup");
    let hierarchies = fs::read_dir(root)
        .into_iter()
        .flatten()
        .flatten()
        .map(|e| e.path());
    let candidates = hierarchies.chain([root.to_path_buf()]);
    candidates
        .map(|dir| dir.join("icebox").join(id))
        .filter(|dir| dir.exists())
        .collect()
}

/// Processes whose command line names a box: a CRIU, a runc.
fn processes_of(id: &str) -> Vec<String> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let lines = entries.filter_map(|entry| {
        let pid = entry.file_name().to_str()?.parse::<u32>().ok()?;
        let line = fs::read(entry.path().join("cmdline")).ok()?;
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        line.contains(id).then(|| format!("{pid} {line}"))
    });
    lines.collect()
}

/// The `icebox` program of this build: beside the running one, or one folder up for tests.
fn program() -> anyhow::Result<PathBuf> {
    if let Some(named) = std::env::var_os("ICEBOX_PROGRAM") {
        return Ok(named.into());
    }
    let own = std::env::current_exe()?;
    let found = own
        .ancestors()
        .skip(1)
        .take(2)
        .map(|dir| dir.join("icebox"))
        .find(|p| p.is_file());
    found.context("the icebox program is not built: run `cargo build -p icebox-cli`")
}

fn free_port() -> anyhow::Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}
