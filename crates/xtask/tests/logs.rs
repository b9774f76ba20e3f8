//! What a real page at a real box's URL logs: with its box, its sources' lines, and to its last moment; and that a collector
//! harms no page.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};
use xtask::harness::Instance;

/// What a bundler made of two small sources, `src/main.ts` and `src/pay.ts`.
const APP: &str = include_str!("logs/app.js");
const MAP: &str = include_str!("logs/app.js.map");

/// A server of pages that allow no script of their own, and the collector's alone besides.
const SERVER: &str = r#"
const [server, key] = process.argv.slice(2);
const policy = `default-src 'none'; script-src 'self' ${server}; connect-src ${server}`;
const page = `<!doctype html><title>shop</title><script src="${server}/logs.js" data-key="${key}" data-release="1.2"
  data-user="ann"></script><script src="/assets/app.js"></script>`;
require("http").createServer((request, answer) => {
  answer.setHeader("content-security-policy", policy);
  if (request.url === "/assets/app.js") {
    answer.setHeader("content-type", "text/javascript");
    answer.end(require("fs").readFileSync("app.js"));
  } else {
    answer.setHeader("content-type", "text/html");
    answer.end(page);
  }
}).listen(3000, "127.0.0.1");
"#;

/// A browser with one page. It is closed when this is dropped.
struct Browser {
    node: Child,
    say: Option<ChildStdin>,
    hear: BufReader<ChildStdout>,
}

impl Browser {
    fn open() -> Self {
        let prefix = std::env::var_os("ICEBOX_PREFIX");
        let prefix = prefix.map_or_else(|| PathBuf::from("/usr/local/lib/icebox"), PathBuf::from);
        let folder = prefix.join("browser");
        let chromium = Path::new("/usr/bin/chromium");
        assert!(
            folder.join("node_modules/playwright-core").is_dir() && chromium.is_file(),
            "this test needs Chromium and playwright-core: run scripts/bootstrap --tests"
        );
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/logs/page.mjs");
        let mut node = Command::new("node")
            .arg(script)
            .arg(folder)
            .arg(chromium)
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

    #[track_caller]
    fn ask(&mut self, deed: &Value) -> Value {
        let say = self.say.as_mut().expect("its input");
        writeln!(say, "{deed}").expect("the browser runs");
        let mut line = String::new();
        self.hear.read_line(&mut line).expect("the browser runs");
        let mut answer: Value = serde_json::from_str(&line)
            .unwrap_or_else(|_| panic!("{deed}: the browser said {line:?}"));
        assert!(answer["error"].is_null(), "{deed}: {}", answer["error"]);
        answer["ok"].take()
    }

    #[track_caller]
    fn run(&mut self, script: &str) -> Value {
        self.ask(&json!({ "run": script }))
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // It closes its browser when it has nothing more to read.
        self.say = None;
        if let Err(error) = self.node.wait() {
            eprintln!("the browser did not end: {error}");
        }
    }
}

/// A server with a project that has the app's map, and a box in which the app is served.
struct World {
    instance: Instance,
    id: String,
    url: String,
}

impl World {
    fn new(name: &str) -> Self {
        let mut instance = Instance::new(name, true).expect("a data folder");
        instance.start(&[]).expect("a server");
        let made = instance
            .post("/v1/projects", json!({ "name": "shop" }))
            .expect("a project");
        let key = made["writeKey"].as_str().expect("a key").to_owned();
        upload(&instance);
        let services = json!([{ "name": "web", "port": 3000, "web": true }]);
        let id = instance
            .start_box(json!({ "services": services }))
            .expect("a box");
        let (address, _) = instance.address().expect("its address");
        let (_, port) = address.rsplit_once(':').expect("a port");
        let cmd = format!(
            "cat >app.js <<'END'\n{APP}\nEND\ncat >server.js <<'END'\n{SERVER}\nEND\nexec node server.js http://localhost:{port} {key}"
        );
        let request = json!({ "cmd": cmd, "background": true, "readyPort": 3000 });
        instance
            .post(&format!("/v1/boxes/{id}/exec"), request)
            .expect("the app");
        let view = instance
            .get(&format!("/v1/boxes/{id}"))
            .expect("its status");
        let url = view["webUrl"].as_str().expect("a URL").to_owned();
        Self { instance, id, url }
    }

    /// What was logged and fits, once there is some: each tail waits until something comes.
    fn rows(&self, query: &str) -> Vec<Value> {
        let mut cursor = "0.0".to_owned();
        for _ in 0..20 {
            let path = format!("/v1/projects/shop/logs/tail?waitSec=25&cursor={cursor}&{query}");
            let mut came = self.instance.get(&path).expect("logs");
            if let Some(rows) = came["rows"].as_array_mut().filter(|rows| !rows.is_empty()) {
                return std::mem::take(rows);
            }
            cursor = came["cursor"].as_str().expect("a cursor").to_owned();
        }
        panic!("nothing was logged that fits {query}");
    }
}

fn upload(instance: &Instance) {
    let mut body = String::new();
    for (name, content) in [("release", "1.2"), ("/assets/app.js.map", MAP)] {
        body += &format!(
            "--cut\r\ncontent-disposition: form-data; name=\"{name}\"\r\n\r\n{content}\r\n"
        );
    }
    body += "--cut--\r\n";
    let (address, key) = instance.address().expect("its address");
    ureq::post(format!("http://{address}/v1/projects/shop/sourcemaps"))
        .header("authorization", format!("Bearer {key}"))
        .header("content-type", "multipart/form-data; boundary=cut")
        .send(body)
        .expect("the map is taken");
}

#[test]
fn box_a_pages_error_comes_with_its_box_and_its_sources_line() {
    let world = World::new("logs-page");
    let mut browser = Browser::open();
    assert_eq!(browser.ask(&json!({ "open": world.url })), 200);
    browser.run("app.fail()");
    let failed = world.rows("name=error");
    let row = &failed[0];
    assert_eq!(row["msg"], "Uncaught RangeError: cannot charge -5");
    assert_eq!(
        (&row["box"], &row["release"], &row["user"], &row["level"]),
        (
            &json!(world.id),
            &json!("1.2"),
            &json!("ann"),
            &json!("error")
        )
    );
    assert_eq!(row["url"], world.url);
    let stack = row["stack"].as_str().expect("a stack");
    assert!(stack.contains("/assets/app.js:1:"), "{stack}");
    let resolved = row["stackResolved"].as_str().expect("a resolved stack");
    assert!(
        resolved.contains("at charge (../src/pay.ts:8:"),
        "{resolved}"
    );
    assert!(resolved.contains("../src/main.ts:6:"), "{resolved}");
    browser.run("app.reject()");
    let rejected = world.rows("name=rejection");
    assert_eq!(
        rejected[0]["msg"],
        "Unhandled rejection: Error: the bank is closed"
    );
    let resolved = rejected[0]["stackResolved"]
        .as_str()
        .expect("a resolved stack");
    assert!(resolved.contains("../src/main.ts:9:"), "{resolved}");
    let errors = world
        .instance
        .get("/v1/projects/shop/logs/errors")
        .expect("errors");
    assert_eq!(errors["rows"].as_array().expect("rows").len(), 2);
    let (session, device) = (row["session"].clone(), row["device"].clone());
    assert!(session.is_string() && device.is_string());
    assert_eq!(browser.ask(&json!({ "open": world.url })), 200);
    browser.run("console.warn('again', { coupon: 'X' })");
    let again = world.rows("query=again");
    assert_eq!(again[0]["msg"], r#"again {"coupon":"X"}"#);
    assert_eq!(
        (&again[0]["session"], &again[0]["device"]),
        (&session, &device)
    );
    assert_eq!(
        browser.ask(&json!({ "complaints": 1 })),
        json!([]),
        "its policy refused nothing"
    );
}

#[test]
fn box_a_page_is_heard_to_its_last_moment_and_never_harmed() {
    let world = World::new("logs-last");
    let mut browser = Browser::open();
    assert_eq!(browser.ask(&json!({ "open": world.url })), 200);
    let unharmed = browser.run(
        "(() => {
            const cycle = { name: 'cycle' };
            cycle.self = cycle;
            const chatty = { toJSON() { console.log('noise from a value'); return 'chatty'; } };
            const broken = { get x() { throw new Error('broken getter'); } };
            console.log(cycle, chatty, document.body, broken, 10n, Symbol('s'), () => 1, undefined, null, window);
            console.error(new Error('logged, not thrown'));
            iceboxLogs.event('checkout', { total: 3 });
            iceboxLogs.user('bob');
            for (let index = 0; index < 1000; index++) console.debug('flood', index);
            return 'the page goes on';
        })()",
    );
    assert_eq!(unharmed, "the page goes on");
    let event = &world.rows("name=checkout")[0];
    assert_eq!(
        (&event["extra"]["total"], &event["user"]),
        (&json!(3), &json!("bob"))
    );
    let objects = &world.rows("query=cycle")[0];
    let msg = objects["msg"].as_str().expect("a text");
    assert!(msg.contains("chatty") && msg.contains("<BODY>"), "{msg}");
    let dropped = &world.rows("name=dropped")[0];
    let msg = dropped["msg"].as_str().expect("a text");
    assert!(msg.contains("events were dropped"), "{msg}");
    browser.run("console.info('last words')");
    assert_eq!(browser.ask(&json!({ "open": "about:blank" })), Value::Null);
    let last = world.rows("query=last%20words");
    assert_eq!(last.len(), 1, "once, and not again");
    let noise = world
        .instance
        .get("/v1/projects/shop/logs?query=noise&since=1d")
        .expect("logs");
    assert_eq!(
        noise["rows"],
        json!([]),
        "what a look at a value logs is not logged in turn"
    );
}
