//! The main rules as a user meets them: through REST, on real boxes, with the test clock. Each test is named after its
//! rule; every boundary of every rule is in the tables of `lifecycle`.

use serde_json::{Value, json};
use xtask::harness::Instance;

const MIN: u64 = 60;
const HOUR: u64 = 60 * MIN;

/// A program whose memory shows whether it is the same one: it says a number that it chose when it began.
const REMEMBERS: &str = r#"exec python3 -c '
import os, socket, threading
mine = os.urandom(8).hex()
listener = socket.create_server(("127.0.0.1", 4000))
while True:
    client, _ = listener.accept()
    client.sendall(mine.encode())
    client.close()'"#;
/// Asks it.
const ASK: &str = "exec 3<>/dev/tcp/127.0.0.1/4000 && cat <&3";

struct Rig(Instance);

impl Rig {
    fn new(name: &str) -> Self {
        let mut instance = Instance::new(name, true).expect("a data folder");
        instance.start(&[]).expect("a server");
        Self(instance)
    }

    fn start(&self, agent: Option<&str>, body: Value) -> String {
        let answer = self.ask(agent, "POST", "/v1/boxes", Some(&body));
        answer["id"].as_str().expect("an id").to_owned()
    }

    fn ask(&self, agent: Option<&str>, method: &str, path: &str, body: Option<&Value>) -> Value {
        let answer = self.0.ask_as(agent, method, path, body).expect(path);
        answer.ok().expect(path)
    }

    fn exec(&self, agent: Option<&str>, id: &str, cmd: &str) -> Value {
        let path = format!("/v1/boxes/{id}/exec");
        let answer = self.ask(agent, "POST", &path, Some(&json!({"cmd": cmd})));
        assert_eq!(answer["exitCode"], 0, "{cmd}: {answer}");
        answer
    }

    fn view(&self, agent: Option<&str>, id: &str) -> Value {
        self.ask(agent, "GET", &format!("/v1/boxes/{id}"), None)
    }

    /// Starts [`REMEMBERS`] in the background; its number.
    fn remembering(&self, id: &str) -> String {
        let path = format!("/v1/boxes/{id}/exec");
        self.ask(
            None,
            "POST",
            &path,
            Some(&json!({"cmd": REMEMBERS, "background": true})),
        );
        let ready = format!("until {ASK} >/dev/null 2>&1; do sleep 0.02; done; {ASK}");
        let said = self.exec(None, id, &ready);
        said["stdout"].as_str().expect("a number").to_owned()
    }

    fn advance(&self, sec: u64) {
        self.0.advance(sec).expect("the clock");
    }

    /// Moves to just before a rule strikes and to the moment that it does; the box afterwards.
    fn strikes_after(&self, sec: u64, id: &str, before: &str, after: &str) -> Value {
        self.advance(sec - 1);
        assert_eq!(self.view(None, id)["status"], before, "a second before");
        self.advance(1);
        let view = self.view(None, id);
        assert_eq!(view["status"], after, "{view}");
        view
    }

    fn end(mut self, ids: &[String]) {
        for id in ids {
            let path = format!("/v1/boxes/{id}/stop");
            self.0.post(&path, json!({})).expect("stop");
        }
        let left = self.0.leftovers(ids);
        assert!(left.is_empty(), "left behind:\n{}", left.join("\n"));
        self.0.stop().expect("the server ends");
    }
}

/// Whether one of the last decisions about a box was made by this rule.
fn decided_by(view: &Value, rule: &str) -> bool {
    let why = view["why"].as_array().expect("reasons");
    why.iter().any(|why| why["rule"] == rule)
}

/// What a call says that names a stopped box.
fn gone(rig: &Rig, id: &str) -> String {
    let path = format!("/v1/boxes/{id}/exec");
    let body = json!({"cmd": "true"});
    let answer = rig.0.ask("POST", &path, Some(&body)).expect("an answer");
    assert_eq!(answer.status, 410, "{}", answer.body);
    answer.body["error"]
        .as_str()
        .expect("a sentence")
        .to_owned()
}

/// Idle freeze (4.1), a background command (4.3), and a wake that goes on as if nothing had happened (5.5).
#[test]
fn box_rule_4_1_and_4_3_an_idle_box_freezes_and_a_background_command_delays_that_for_an_hour() {
    let rig = Rig::new("rule-4-1");
    let id = rig.start(None, json!({}));
    rig.exec(None, &id, "echo kept >/work/file");
    let frozen = rig.strikes_after(10 * MIN, &id, "ready", "frozen");
    assert!(decided_by(&frozen, "4.1"), "{frozen}");
    assert_eq!(
        rig.exec(None, &id, "cat /work/file")["stdout"],
        "kept\n",
        "it woke"
    );

    let number = rig.remembering(&id);
    rig.advance(10 * MIN);
    let held = rig.view(None, &id);
    assert_eq!(held["freeze"]["blockedBy"][0]["kind"], "background");
    let until = &held["freeze"]["blockedBy"][0]["until"];
    assert_eq!(until, &held["freeze"]["at"]);
    let frozen = rig.strikes_after(50 * MIN, &id, "ready", "frozen");
    assert_eq!(frozen["keeps"], "files_and_memory");
    assert_eq!(
        rig.exec(None, &id, ASK)["stdout"],
        number.as_str(),
        "the same program"
    );
    rig.end(&[id]);
}

/// The box's own limit (6.2) with its warning (6.4), and the way back (6.5).
#[test]
fn box_rule_6_2_and_6_5_an_own_limit_stops_a_box_which_can_be_brought_back() {
    let rig = Rig::new("rule-6-2");
    let mine = Some("conversation-1");
    let id = rig.start(mine, json!({"idleTimeoutMin": 90}));
    let other = rig.start(mine, json!({"idleTimeoutMin": 10_080}));
    let number = rig.remembering(&id);
    rig.advance(HOUR - 1);
    assert_eq!(rig.exec(mine, &other, "true")["notices"], Value::Null);
    rig.advance(1);
    let warned = rig.exec(mine, &other, "true");
    let line = warned["notices"][0].as_str().expect("a warning");
    assert!(
        line.contains(&id) && line.contains("(in 30 minutes)"),
        "{line}"
    );

    let stopped = rig.strikes_after(30 * MIN, &id, "frozen", "terminated");
    assert!(decided_by(&stopped, "6.2"), "{stopped}");
    let reason = stopped["statusReason"].as_str().expect("a reason");
    assert!(reason.contains("idleTimeoutMin"), "{reason}");
    assert!(
        gone(&rig, &id).contains("restore"),
        "a call says how to bring it back"
    );
    let back = json!({"restore": id, "goal": "go on"});
    assert_eq!(rig.start(mine, back), id, "the same box");
    assert_eq!(rig.exec(mine, &id, ASK)["stdout"], number.as_str());
    assert_eq!(
        rig.view(mine, &id)["idleTimeoutMin"],
        90,
        "its limit is kept"
    );
    rig.end(&[id, other]);
}

/// A frozen box stops after a day (6.1), and another day later nothing brings it back (6.5).
#[test]
fn box_rule_6_1_a_frozen_box_stops_after_a_day_and_is_gone_after_another() {
    let rig = Rig::new("rule-6-1");
    let id = rig.start(None, json!({}));
    let number = rig.remembering(&id);
    rig.ask(
        None,
        "POST",
        &format!("/v1/boxes/{id}/freeze"),
        Some(&json!({})),
    );
    let stopped = rig.strikes_after(24 * HOUR, &id, "frozen", "terminated");
    assert!(decided_by(&stopped, "6.1"), "{stopped}");
    let reason = stopped["statusReason"].as_str().expect("a reason");
    assert!(reason.starts_with("frozen and unused for"), "{reason}");

    rig.advance(24 * HOUR - 1);
    let back = json!({"restore": id, "goal": "go on"});
    assert_eq!(rig.start(None, back.clone()), id, "on the last second");
    assert_eq!(rig.exec(None, &id, ASK)["stdout"], number.as_str());
    rig.ask(
        None,
        "POST",
        &format!("/v1/boxes/{id}/freeze"),
        Some(&json!({})),
    );
    rig.advance(48 * HOUR);
    let late = rig.0.ask("POST", "/v1/boxes", Some(&back)).expect("answer");
    assert_eq!(late.status, 410, "{}", late.body);
    assert!(!gone(&rig, &id).contains("restore"), "no way back is named");
    rig.end(&[id]);
}

/// Which conversation has a box, and whether it is still there (7.3, 7.5).
#[test]
fn box_rule_7_5_a_box_says_whether_its_conversation_is_still_there() {
    let rig = Rig::new("rule-7-5");
    let (mine, theirs) = (Some("conversation-1"), Some("conversation-2"));
    let beat = || {
        let path = "/v1/agents/conversation-1/heartbeat";
        rig.ask(None, "POST", path, Some(&json!({"client": "test"})))
    };
    let id = rig.start(mine, json!({}));
    let agent = |who: Option<&str>| rig.view(who, &id)["agent"].clone();
    beat();
    assert_eq!(agent(mine)["state"], "working");
    assert_eq!(agent(mine)["thisConversation"], true);
    assert_eq!(agent(theirs)["thisConversation"], Value::Null);
    rig.advance(3 * MIN);
    assert_eq!(
        agent(mine)["state"],
        "working",
        "three minutes are not more"
    );
    rig.advance(1);
    assert_eq!(agent(mine)["state"], "left");
    beat();
    assert_eq!(agent(mine)["state"], "working", "it came back");
    rig.advance(7 * MIN);
    beat();
    assert_eq!(agent(mine)["state"], "away", "frozen");
    rig.advance(50 * MIN);
    beat();
    assert_eq!(agent(mine)["state"], "idle", "unused for an hour");

    rig.exec(theirs, &id, "true");
    assert_eq!(agent(theirs)["thisConversation"], true, "it moved on");
    assert_eq!(agent(mine)["thisConversation"], Value::Null);
    rig.exec(None, &id, "true");
    assert_eq!(agent(theirs)["untracked"], true);
    rig.end(&[id]);
}
