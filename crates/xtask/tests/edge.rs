//! Links that wake, in a real browser on real boxes: a frozen box's page turns into its app by itself, and a forgotten tab
//! that polls neither keeps a box awake past its time nor wakes it (rules 3.4, 4.5 and 8).

use std::time::Duration;

use serde_json::json;
use xtask::browser::Browser;
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

/// Waits until the page has counted so many more polls of a kind.
fn polls(tab: &mut Browser, kind: &str, more: u64) {
    let mut count = || {
        let polls = tab.evaluate(&format!("polls.{kind}"))?;
        Ok::<_, anyhow::Error>(polls.as_u64().unwrap_or(0))
    };
    let before = count().expect("the page counts");
    until(Duration::from_secs(60), || {
        Ok((count()? >= before + more).then_some(()))
    })
    .unwrap_or_else(|error| panic!("polls that are {kind}: {error:#}"));
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
    let mut tab = Browser::open(&url, "en-GB").expect("a browser");
    let seen = tab.visit("/", "#app").expect("the app");
    println!("a frozen box's app was visible: {seen}");
    let answers = seen["statuses"].as_array().expect("statuses");
    assert_eq!(
        (answers.first(), answers.last()),
        (Some(&json!(503)), Some(&json!(200))),
        "the waiting page came first: {seen}"
    );
    let shown = tab.evaluate("[document.title, document.querySelector('#app').textContent]");
    assert_eq!(shown.expect("the page"), json!(["the app", "it runs"]));
    assert_eq!(instance.status(&id).expect("a status"), "ready");
}

#[test]
fn box_a_polling_tab_leaves_a_box_to_freeze_on_time_and_stay_frozen() {
    let (instance, id, url) = app();
    let mut tab = Browser::open(&url, "en-GB").expect("a browser");
    let seen = tab.visit("/", "#app").expect("the app");
    assert_eq!(seen["statuses"], json!([200]));
    // Its last use was a moment ago; the polls hold it for two hours from then.
    for minute in (0..120).step_by(8) {
        polls(&mut tab, "ok", 3);
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
        polls(&mut tab, "frozen", 5);
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
