//! Links that wake, in a real browser on real boxes: a frozen box's page turns into its app by itself, and a forgotten tab
//! that polls neither keeps a box awake past its time nor wakes it (rules 3.4, 4.5 and 8).

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use xtask::harness::{Instance, until};

/// A small app of node's, with a page that counts its polls.
const APP: &str = r##"
const page = `<!doctype html><title>the app</title><main id=app>it runs</main><script>
  globalThis.polls = { ok: 0, frozen: 0 };
  setInterval(async () => {
    const answer = await fetch("/poll").catch(() => null);
    if (answer) polls[answer.ok ? "ok" : "frozen"]++;
  }, 100);
</script>`;
const ballast = Buffer.alloc(64 << 20, 7);
require("http").createServer((request, answer) => {
  answer.setHeader("content-type", "text/html");
  answer.end(request.url === "/" ? page : String(ballast[0]));
}).listen(3000, "127.0.0.1");
"##;

/// A tab in a browser. It is closed when this is dropped.
struct Tab {
    node: Child,
    say: Option<ChildStdin>,
    hear: BufReader<ChildStdout>,
}

impl Tab {
    fn open(url: &str) -> Self {
        let prefix = std::env::var_os("ICEBOX_PREFIX");
        let prefix = prefix.map_or_else(|| PathBuf::from("/usr/local/lib/icebox"), PathBuf::from);
        let folder = prefix.join("browser");
        let chromium = Path::new("/usr/bin/chromium");
        assert!(
            folder.join("node_modules/playwright-core").is_dir() && chromium.is_file(),
            "this test needs Chromium and playwright-core: run scripts/bootstrap --tests"
        );
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/browser.mjs");
        let mut node = Command::new("node")
            .arg(script)
            .arg(folder)
            .arg(chromium)
            .arg(url)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("node runs");
        Self {
            say: node.stdin.take(),
            hear: BufReader::new(node.stdout.take().expect("its output")),
            node,
        }
    }

    /// What the tab says when it is told this.
    fn ask(&mut self, word: &str) -> Value {
        let say = self.say.as_mut().expect("its input");
        writeln!(say, "{word}").expect("the browser runs");
        let mut line = String::new();
        self.hear.read_line(&mut line).expect("the browser runs");
        serde_json::from_str(&line).unwrap_or_else(|_| panic!("the browser said {line:?}"))
    }

    /// Waits until the page has counted so many more polls of a kind.
    fn polls(&mut self, kind: &str, more: u64) {
        let count = |seen: &Value| seen["polls"][kind].as_u64().unwrap_or(0);
        let before = count(&self.ask("look"));
        until(Duration::from_secs(60), || {
            let now = count(&self.ask("look"));
            Ok((now >= before + more).then_some(()))
        })
        .unwrap_or_else(|error| panic!("polls that are {kind}: {error:#}"));
    }
}

impl Drop for Tab {
    fn drop(&mut self) {
        // It closes its browser when it has nothing more to read.
        self.say = None;
        if let Err(error) = self.node.wait() {
            eprintln!("the browser did not end: {error}");
        }
    }
}

/// A server, and a box whose app answers.
fn app() -> (Instance, String, String) {
    let mut instance = Instance::new("edge", true).expect("a data folder");
    instance.start(&[]).expect("a server");
    let services = json!([{ "name": "web", "port": 3000, "web": true }]);
    let id = instance
        .start_box(json!({ "services": services }))
        .expect("a box");
    let request = json!({ "cmd": format!("cat >app.js <<'END'\n{APP}\nEND\nexec node app.js"), "background": true });
    instance
        .post(&format!("/v1/boxes/{id}/exec"), request)
        .expect("the app");
    let answers = "timeout 30 bash -c 'until (exec 3<>/dev/tcp/127.0.0.1/3000) 2>/dev/null; do sleep 0.05; done'";
    instance.exec(&id, answers).expect("the app answers");
    let view = instance
        .get(&format!("/v1/boxes/{id}"))
        .expect("its status");
    let url = view["webUrl"].as_str().expect("a URL").to_owned();
    (instance, id, url)
}

fn advance(instance: &Instance, min: u64) {
    let sec = json!({ "advanceSec": min * 60 });
    instance.post("/v1/test/clock", sec).expect("time goes by");
}

#[test]
fn box_a_frozen_boxs_page_turns_into_its_app_by_itself() {
    let (instance, id, url) = app();
    instance
        .post(&format!("/v1/boxes/{id}/freeze"), json!({}))
        .expect("a freeze");
    assert_eq!(instance.status(&id).expect("a status"), "frozen");
    let mut tab = Tab::open(&url);
    let seen = tab.ask("app");
    println!(
        "a frozen box's app was visible after {} ms, loads at {}",
        seen["ms"], seen["loads"]
    );
    assert_eq!(seen["status"], 503, "the waiting page came first: {seen}");
    assert_eq!(
        (&seen["app"], &seen["title"]),
        (&json!("it runs"), &json!("the app"))
    );
    assert_eq!(instance.status(&id).expect("a status"), "ready");
}

#[test]
fn box_a_polling_tab_leaves_a_box_to_freeze_on_time_and_stay_frozen() {
    let (instance, id, url) = app();
    let mut tab = Tab::open(&url);
    assert_eq!(tab.ask("app")["status"], 200);
    // Its last use was a moment ago; the polls hold it for two hours from then.
    for minute in (0..120).step_by(8) {
        tab.polls("ok", 3);
        assert_eq!(
            instance.status(&id).expect("a status"),
            "ready",
            "minute {minute}"
        );
        advance(&instance, 8);
    }
    instance
        .wait_for_status(&id, &["frozen"])
        .expect("frozen on time");
    for _ in 0..3 {
        tab.polls("frozen", 5);
        advance(&instance, 20);
        assert_eq!(
            instance.status(&id).expect("a status"),
            "frozen",
            "the tab goes on polling"
        );
    }
    let view = instance
        .get(&format!("/v1/boxes/{id}"))
        .expect("its status");
    let wakes = view["why"]
        .as_array()
        .expect("reasons")
        .iter()
        .filter(|why| why["rule"] == "5.1");
    assert_eq!(wakes.count(), 0, "{view}");
}
