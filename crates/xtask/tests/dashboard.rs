//! The dashboard in a real browser on real boxes: what a person does with it, in both languages, and that a page left open
//! keeps no box awake (rule 4.14).

use std::path::Path;

use serde_json::{Value, json};
use xtask::browser::Browser;
use xtask::harness::Instance;

/// What tells whether everybody can use a page, and the page as `make web` builds it.
const AXE: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../web/node_modules/axe-core/axe.min.js"
);
const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../web/dist/index.html");

/// Whoever uses the dashboard.
struct Person(Browser);

impl Person {
    fn at(url: &str, locale: &str) -> Self {
        assert!(
            Path::new(AXE).is_file() && Path::new(PAGE).is_file(),
            "this test needs the dashboard: run make web"
        );
        Self(Browser::open(url, locale).expect("a browser"))
    }

    #[track_caller]
    fn ask(&mut self, deed: &Value) -> Value {
        self.0.ask(deed).unwrap_or_else(|error| panic!("{error:#}"))
    }

    #[track_caller]
    fn goto(&mut self, path: &str) {
        self.ask(&json!({ "do": "goto", "path": path }));
    }

    #[track_caller]
    fn click(&mut self, name: &str) {
        self.ask(&json!({ "do": "click", "name": name }));
    }

    #[track_caller]
    fn click_in(&mut self, place: &str, name: &str) {
        self.ask(&json!({ "do": "click", "name": name, "in": place }));
    }

    #[track_caller]
    fn follow(&mut self, name: &str) {
        self.ask(&json!({ "do": "click", "role": "link", "name": name }));
    }

    #[track_caller]
    fn see(&mut self, text: &str) {
        self.ask(&json!({ "do": "see", "text": text }));
    }

    #[track_caller]
    fn see_in(&mut self, place: &str, text: &str) {
        self.ask(&json!({ "do": "see", "text": text, "in": place }));
    }

    #[track_caller]
    fn read(&mut self, selector: &str) -> String {
        let text = self.ask(&json!({ "do": "read", "selector": selector }));
        text.as_str().unwrap_or_default().to_owned()
    }

    /// What is on the page can be used by everybody (WCAG AA).
    #[track_caller]
    fn is_for_everybody(&mut self) {
        let found = self.ask(&json!({ "do": "axe", "source": AXE }));
        assert_eq!(found, json!([]), "axe finds something");
    }

    /// Nothing broke, and the page's policy had nothing to refuse.
    #[track_caller]
    fn complained_of_nothing(&mut self) {
        assert_eq!(self.ask(&json!({ "do": "complaints" })), json!([]));
    }
}

fn server(name: &str) -> (Instance, String, String) {
    let mut instance = Instance::new(name, true).expect("a data folder");
    instance.start(&[]).expect("a server");
    let (address, key) = instance.address().expect("its address");
    (instance, format!("http://{address}"), key)
}

fn advance(instance: &Instance, sec: u64) {
    let sec = json!({ "advanceSec": sec });
    instance.post("/v1/test/clock", sec).expect("time goes by");
}

fn status(instance: &Instance, id: &str) -> String {
    instance.status(id).expect("a status")
}

const HOUR: u64 = 3_600;
const DAY: u64 = 24 * HOUR;

#[test]
fn box_a_person_finds_wakes_uses_restores_and_shuts_down_boxes_in_both_languages() {
    let (instance, url, key) = server("dashboard");
    let start = |name: &str, goal: &str| {
        let body = json!({ "name": name, "goal": goal });
        instance.start_box(body).expect("a box")
    };
    let noted = json!({ "cmd": "echo done", "note": "Count the links" });
    let stopped = start("old-report", "Render the report");
    advance(&instance, 2_000);
    let docs = start("docs", "Rewrite the first page");
    let path = format!("/v1/boxes/{docs}/exec");
    instance.post(&path, noted).expect("a command");
    // The older one is stopped by now, and the other has twenty minutes left.
    advance(&instance, DAY + 600 - 1_200);
    assert_eq!(status(&instance, &stopped), "terminated");
    assert_eq!(status(&instance, &docs), "frozen");
    let docs_row = format!("[data-box='{docs}']");
    let stopped_row = format!("[data-section=stopped] [data-box='{stopped}']");

    // English. Nobody sees anything before they sign in, and a wrong key is none.
    let mut browser = Person::at(&url, "en-GB");
    browser.goto("/");
    browser.see("With a key of your account");
    browser.is_for_everybody();
    browser.ask(&json!({ "do": "fill", "label": "Key", "text": "e2b_0000000000000000000000000000000000000000" }));
    browser.click("Sign in");
    browser.see("The server does not know this key.");
    browser.ask(&json!({ "do": "fill", "label": "Key", "text": key }));
    browser.click("Sign in");

    // The box that is about to stop, and why.
    browser.see("1 box will be gone within 30 minutes unless used:");
    browser.see_in(&docs_row, "AI stopped · unused for 1 hour");
    browser.see_in(&docs_row, "Rewrite the first page");
    browser.see_in(&docs_row, "Count the links");
    assert!(
        !browser.read("main").contains("frozen\n"),
        "frozen is no label (rule 9.4)"
    );
    browser.is_for_everybody();
    browser.follow("docs");
    browser.see("The AI isn’t using this box");
    browser.see_in(".why", "Nobody used it for a while, so it is frozen.");
    browser.see_in(
        ".next",
        "(in 20 min) unless something uses it before; /work goes with it.",
    );
    browser.is_for_everybody();
    assert_eq!(status(&instance, &docs), "frozen", "looking wakes nothing");
    browser.click("Wake");
    browser.see("It is awake.");
    browser.see_in(".next", "if nothing uses it: memory and files are kept.");
    assert_eq!(status(&instance, &docs), "ready");
    browser.click("Keep");
    browser.see_in(".next", "It is kept: while it is frozen, no rule stops it.");

    // Its terminal, and its files.
    browser.follow("Terminal");
    browser.click("Open a terminal");
    browser.see("Open. It ends when you leave this page.");
    browser.ask(&json!({ "do": "type", "text": "echo $((6 * 7)) >answer.txt; stty size\n" }));
    browser.ask(&json!({ "do": "find", "selector": ".xterm-rows > div:has-text('$ ')" }));
    browser.is_for_everybody();
    browser.follow("Files");
    browser.see("answer.txt");
    let fetch = json!({ "do": "download", "selector": "a[aria-label='Download answer.txt']" });
    assert_eq!(browser.ask(&fetch), "42\n");
    browser.ask(&json!({ "do": "upload", "name": "brought.txt", "text": "from outside" }));
    browser.see("brought.txt is in the box.");
    assert_eq!(
        instance.exec(&docs, "cat brought.txt").expect("the file"),
        "from outside"
    );
    browser.is_for_everybody();

    // What was done comes by itself; so does what happened, by which rule.
    browser.follow("Details");
    let note = json!({ "cmd": "seq 3", "note": "Count to three" });
    instance.post(&path, note).expect("a command");
    browser.see("Count to three");
    browser.follow("Events");
    browser.see("Stopped for good");
    browser.see("frozen and unused for 24 hours");
    browser.is_for_everybody();
    browser.complained_of_nothing();

    // Nothing secret is left where scripts or others could read it.
    let kept = browser.ask(&json!({ "do": "stored" }));
    assert!(!kept.to_string().contains("e2b_"), "{kept}");
    let cookies = browser.ask(&json!({ "do": "cookies" }));
    let cookie = &cookies[0];
    assert_eq!(
        (&cookie["httpOnly"], &cookie["sameSite"]),
        (&json!(true), &json!("Strict"))
    );
    drop(browser);

    // Japanese, signed in with a link: bring the stopped one back, and put it away again.
    let link = instance
        .post("/v1/session/links", json!({}))
        .expect("a link");
    let link = link["url"].as_str().expect("its address").to_owned();
    let mut browser = Person::at(&url, "ja-JP");
    browser.goto(&link);
    browser.see("停止済み（過去 7 日）");
    let address = browser.ask(&json!({ "do": "address" }));
    assert!(!address.to_string().contains("token"), "{address}");
    browser.is_for_everybody();
    browser.click_in(&stopped_row, "復元する");
    browser.see("元のまま戻りました。");
    browser.see_in(
        &format!("[data-section=all] [data-box='{stopped}']"),
        "AI が使用中",
    );
    assert_eq!(status(&instance, &stopped), "ready");
    browser.follow("old-report");
    browser.see_in(".why", "しばらく起きています。");
    browser.click("片付ける");
    browser.see("/work を含め、ボックスの中身はすべて消えます。");
    browser.is_for_everybody();
    browser.click("キャンセル");
    assert_eq!(
        status(&instance, &stopped),
        "ready",
        "asked, and not answered yet"
    );
    browser.click("片付ける");
    browser.click_in("dialog", "片付ける");
    browser.see("片付けました。");
    browser.see("復元できません。");
    assert_eq!(status(&instance, &stopped), "terminated");
    browser.complained_of_nothing();
}

#[test]
fn box_a_page_left_open_keeps_no_box_awake() {
    let (instance, url, key) = server("dashboard-open");
    let id = instance.start_box(json!({ "name": "web" })).expect("a box");
    let path = format!("/v1/boxes/{id}/exec");
    let ticking = "i=0; while sleep 0.1; do echo tick $((i++)); done";
    let request = json!({ "cmd": ticking, "background": true, "note": "Rebuild on change" });
    instance.post(&path, request).expect("a command");
    let mut browser = Person::at(&url, "en-GB");
    browser.goto(&format!("/app/boxes/{id}"));
    browser.ask(&json!({ "do": "fill", "label": "Key", "text": key }));
    browser.click("Sign in");
    // Its output is watched live, and a terminal is open and left alone.
    browser.see("tick 1");
    browser.see_in(".why", "runs in the background");
    let mut other = Person::at(&url, "en-GB");
    other.goto(&format!("/app/boxes/{id}/terminal"));
    other.ask(&json!({ "do": "fill", "label": "Key", "text": key }));
    other.click("Sign in");
    other.click("Open a terminal");
    other.see("Open. It ends when you leave this page.");
    // The background command holds it for an hour after its last use, which opening the terminal was.
    advance(&instance, HOUR - 60);
    assert_eq!(status(&instance, &id), "ready");
    browser.see_in(".next", "It freezes");
    advance(&instance, 60);
    instance
        .wait_for_status(&id, &["frozen"])
        .expect("frozen on time");
    browser.see("The AI isn’t using this box");
    other.see("The box froze, and the shell with it.");
    advance(&instance, 2 * HOUR);
    assert_eq!(status(&instance, &id), "frozen", "nobody asked for it");
    let view = instance
        .get(&format!("/v1/boxes/{id}"))
        .expect("its status");
    let why = view["why"].as_array().expect("reasons");
    assert!(why.iter().all(|why| why["rule"] != "5.1"), "{view}");
    // Typing is use: the shell goes on where it was.
    other.ask(&json!({ "do": "click", "role": "textbox", "name": "Terminal" }));
    other.ask(&json!({ "do": "type", "text": "echo again >typed.txt\n" }));
    other.see("Open. It ends when you leave this page.");
    instance.wait_for_status(&id, &["ready"]).expect("awake");
    let typed = "timeout 30 bash -c 'until [ -s typed.txt ]; do sleep 0.05; done'; cat typed.txt";
    assert_eq!(
        instance.exec(&id, typed).expect("what was typed"),
        "again\n"
    );
    browser.complained_of_nothing();
    other.complained_of_nothing();
}
