//! The dialect of agents: what a client of MCP sees of tools, results, errors and conversations.

use axum::http::Method;
use icebox_lifecycle::BoxId;
use serde_json::{Value, json};

use crate::rig::{MIN, Rig, RigClient};

/// A client of MCP that speaks the protocol by hand, so that it can also speak it badly.
pub(crate) struct Agent(RigClient);

impl Agent {
    pub(crate) fn new(rig: &Rig, conversation: &str) -> Self {
        let client = rig
            .client()
            .with_header("content-type", "application/json")
            .with_header("accept", "application/json, text/event-stream")
            .with_header("mcp-protocol-version", "2025-06-18")
            .with_header("x-psbx-agent", conversation);
        Self(client)
    }

    /// The same, which says by itself what messages arrived.
    pub(crate) fn confirming(rig: &Rig, conversation: &str) -> Self {
        let Self(client) = Self::new(rig, conversation);
        Self(client.with_header("x-icebox-confirms", "1"))
    }

    pub(crate) async fn ask(&self, method: &str, params: Value) -> Value {
        let message = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        self.0.post("/mcp", message).await.expect(200)
    }

    /// A tool's result, whatever it is.
    pub(crate) async fn call(&self, name: &str, arguments: Value) -> Value {
        let answer = self
            .ask("tools/call", json!({"name": name, "arguments": arguments}))
            .await;
        assert!(answer["result"].is_object(), "{answer}");
        answer["result"].clone()
    }

    /// The fields of a tool that worked; the first text says the same.
    pub(crate) async fn works(&self, name: &str, arguments: Value) -> Value {
        let result = self.call(name, arguments).await;
        assert_ne!(result["isError"], true, "{result}");
        let text = result["content"][0]["text"].as_str().unwrap();
        let fields: Value = serde_json::from_str(text).unwrap();
        assert_eq!(fields, result["structuredContent"]);
        fields
    }

    /// What a tool says that failed.
    pub(crate) async fn fails(&self, name: &str, arguments: Value) -> (String, Value) {
        let result = self.call(name, arguments).await;
        assert_eq!(result["isError"], true, "{result}");
        let text = result["content"][0]["text"].as_str().unwrap().to_owned();
        assert_eq!(result["structuredContent"]["error"], text);
        (text, result["structuredContent"].clone())
    }

    pub(crate) async fn start(&self) -> String {
        let shown = self.works("sandbox_start", json!({"goal": "a test"})).await;
        shown["id"].as_str().unwrap().to_owned()
    }
}

#[tokio::test]
async fn a_client_begins_lists_the_tools_and_needs_a_key() {
    let rig = Rig::new().await;
    let agent = Agent::new(&rig, "one");
    let hello = json!({
        "protocolVersion": "2025-06-18", "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    });
    let begun = agent.ask("initialize", hello).await;
    assert_eq!(begun["result"]["protocolVersion"], "2025-06-18");
    assert_eq!(begun["result"]["serverInfo"]["name"], "icebox");
    assert!(begun["result"]["instructions"].is_string());
    let listed = agent.ask("tools/list", json!({})).await;
    let hints = |name: &str| {
        let tools = listed["result"]["tools"].as_array().unwrap();
        let tool = tools.iter().find(|tool| tool["name"] == name);
        tool.unwrap()["annotations"].clone()
    };
    assert_eq!(hints("sandbox_list")["readOnlyHint"], true);
    assert_eq!(hints("sandbox_get")["readOnlyHint"], true);
    assert_eq!(hints("sandbox_stop")["destructiveHint"], true);
    assert_eq!(hints("sandbox_procs")["destructiveHint"], true);
    let status = hints("sandbox_status");
    assert_eq!(
        (&status["readOnlyHint"], &status["destructiveHint"]),
        (&json!(false), &json!(false)),
        "it can hand out a message"
    );
    let stranger = rig.client().with_key(None);
    let refused = stranger.post("/mcp", json!({})).await;
    assert_eq!(refused.headers["www-authenticate"], "Bearer");
    refused.error(401, "unauthorized");
    // There is no stream that is not the answer of a call.
    let got = agent.0.call(Method::GET, "/mcp", None).await;
    assert_eq!(got.status, 405);
}

#[tokio::test]
async fn a_box_is_the_same_over_mcp_and_rest() {
    let rig = Rig::new().await;
    let agent = Agent::new(&rig, "one");
    let started = agent
        .works(
            "sandbox_start",
            json!({"goal": "try things", "name": "try"}),
        )
        .await;
    let id = started["id"].as_str().unwrap();
    assert_eq!(
        (&started["status"], &started["goal"], &started["workDir"]),
        (&json!("ready"), &json!("try things"), &json!("/work"))
    );
    let run = json!({"id": id, "cmd": "echo hello", "note": "see whether it works"});
    let done = agent.works("sandbox_exec", run).await;
    assert_eq!(
        (&done["exitCode"], &done["stdout"]),
        (&json!(0), &json!("hello\n"))
    );
    let failed = json!({"id": id, "cmd": "nosuch", "note": "see it fail"});
    assert_eq!(agent.works("sandbox_exec", failed).await["exitCode"], 127);
    let shown = rig.get(&format!("/v1/boxes/{id}")).await.expect(200);
    assert_eq!(shown["steps"][1]["note"], "see whether it works");
    let whole = agent.works("sandbox_status", json!({"id": id})).await;
    assert_eq!(whole["steps"], shown["steps"]);
    let some = json!({"id": id, "fields": ["goal", "nosuch"]});
    let some = agent.works("sandbox_status", some).await;
    assert_eq!(
        some,
        json!({"id": id, "status": "ready", "goal": "try things", "unknownFields": ["nosuch"]})
    );
    let frozen = agent.works("sandbox_freeze", json!({"id": id})).await;
    assert_eq!(frozen["status"], "frozen");
    let seen = agent.works("sandbox_status", json!({"id": id})).await;
    assert_eq!(seen["status"], "frozen", "looking wakes nothing");
    let woken = agent.works("sandbox_wake", json!({"id": id})).await;
    assert_eq!(woken["status"], "ready");
    let stopped = agent.works("sandbox_stop", json!({"id": id})).await;
    assert_eq!(stopped["status"], "terminated");
    let listed = agent.works("sandbox_list", json!({})).await;
    assert_eq!(listed["boxes"], json!([]));
    let listed = agent.works("sandbox_list", json!({"all": true})).await;
    assert_eq!(listed["boxes"][0]["id"], id);
    let gone = json!({"id": id, "cmd": "true", "note": "too late"});
    let (text, fields) = agent.fails("sandbox_exec", gone).await;
    assert!(text.contains("was stopped"), "{text}");
    assert_eq!(fields["code"], "box_gone");
}

#[tokio::test]
async fn wrong_arguments_are_named_with_their_limit() {
    let rig = Rig::new().await;
    let agent = Agent::new(&rig, "one");
    let id = agent.start().await;
    let long = "x".repeat(501);
    let huge = "x".repeat(2 * 1024 * 1024);
    let rows = [
        ("sandbox_start", json!({}), "`goal` is required"),
        ("sandbox_start", json!({"goal": " "}), "`goal` is required"),
        (
            "sandbox_start",
            json!({"goal": long}),
            "`goal` must be a text of at most 500",
        ),
        ("sandbox_start", json!({"goal": 1}), "`goal` must be a text"),
        (
            "sandbox_start",
            json!({"goal": "x", "gaol": 1}),
            "no field `gaol`",
        ),
        (
            "sandbox_start",
            json!({"goal": "x", "secrets": ["NOPE"]}),
            "no secret `NOPE`",
        ),
        (
            "sandbox_start",
            json!({"goal": "x", "name": "a\nb"}),
            "`name` must be",
        ),
        (
            "sandbox_start",
            json!({"goal": "x", "idleTimeoutMin": 0}),
            "1 to 10080",
        ),
        (
            "sandbox_start",
            json!({"goal": "x", "idleTimeoutMin": -1}),
            "1 to 10080",
        ),
        (
            "sandbox_start",
            json!({"goal": "x", "waitForCapacitySec": 1801}),
            "0 to 1800",
        ),
        (
            "sandbox_start",
            json!({"goal": "x", "policy": {"freezeAfter": 1}}),
            "no field `freezeAfter`",
        ),
        (
            "sandbox_start",
            json!({"goal": "x", "services": [{"name": "A", "port": 1}]}),
            "lowercase",
        ),
        (
            "sandbox_exec",
            json!({"cmd": "true", "note": "x"}),
            "`id` is required",
        ),
        (
            "sandbox_exec",
            json!({"id": id, "note": "x"}),
            "`cmd` is required",
        ),
        (
            "sandbox_exec",
            json!({"id": id, "cmd": "true"}),
            "`note` is required",
        ),
        (
            "sandbox_exec",
            json!({"id": id, "cmd": "true", "note": ""}),
            "`note` is required",
        ),
        (
            "sandbox_exec",
            json!({"id": id, "cmd": "", "note": "x"}),
            "`cmd` must be",
        ),
        (
            "sandbox_exec",
            json!({"id": id, "cmd": "a\u{0}b", "note": "x"}),
            "NUL",
        ),
        (
            "sandbox_exec",
            json!({"id": id, "cmd": huge, "note": "x"}),
            "`cmd` must be",
        ),
        (
            "sandbox_exec",
            json!({"id": id, "cmd": "cat", "note": "x", "stdin": huge}),
            "`stdin` must be",
        ),
        (
            "sandbox_exec",
            json!({"id": id, "cmd": "true", "note": "x", "timeoutSec": 3601}),
            "1 to 3600",
        ),
        (
            "sandbox_exec",
            json!({"id": id, "cmd": "true", "note": "x", "timeoutSec": "9"}),
            "1 to 3600",
        ),
        (
            "sandbox_exec",
            json!({"id": id, "cmd": "true", "note": "x", "execId": "XYZ"}),
            "16 hex",
        ),
        (
            "sandbox_exec",
            json!({"id": id, "cmd": "true", "note": "x", "env": {"A=B": ""}}),
            "`env`",
        ),
        (
            "sandbox_exec",
            json!({"id": "../x", "cmd": "true", "note": "x"}),
            "no box `../x`",
        ),
        (
            "sandbox_exec",
            json!({"id": ["x"], "cmd": "true", "note": "x"}),
            "`id` must be",
        ),
        (
            "sandbox_procs",
            json!({"id": id, "action": "kill"}),
            "`action` must be",
        ),
        (
            "sandbox_procs",
            json!({"id": id, "action": "wait"}),
            "`bgId` is required",
        ),
        (
            "sandbox_procs",
            json!({"id": id, "action": "wait", "bgId": "x"}),
            "bgId not found",
        ),
        (
            "sandbox_procs",
            json!({"id": id, "action": "stop", "bgId": "0011223344556677"}),
            "0011223344556677",
        ),
        (
            "sandbox_procs",
            json!({"id": id, "waitSec": 301}),
            "0 to 300",
        ),
        ("sandbox_get", json!({"id": id}), "`path` is required"),
        (
            "sandbox_get",
            json!({"id": id, "path": "a", "paths": ["b"]}),
            "left out",
        ),
        ("sandbox_get", json!({"id": id, "paths": []}), "1 to 100"),
        (
            "sandbox_get",
            json!({"id": id, "path": ""}),
            "`path` must be",
        ),
        ("sandbox_status", json!({}), "`id` is required"),
        (
            "sandbox_status",
            json!({"id": id, "fields": "goal"}),
            "`fields` must be",
        ),
        ("sandbox_list", json!({"all": "yes"}), "`all` must be"),
        ("sandbox_list", json!({"id": id}), "no field `id`"),
        ("sandbox_freeze", json!({}), "`id` is required"),
        (
            "sandbox_wake",
            json!({"id": id, "coldRestart": 1}),
            "`coldRestart` must be",
        ),
        (
            "sandbox_fork",
            json!({"id": id, "count": 21}),
            "`count` must be",
        ),
        (
            "sandbox_stop",
            json!({"id": id, "force": true}),
            "no field `force`",
        ),
        ("sandbox_sync", json!({"id": id}), "icebox mcp"),
        ("sandbox_pull", json!({"id": id}), "icebox mcp"),
        ("sandbox_nosuch", json!({}), "no tool `sandbox_nosuch`"),
    ];
    for (tool, arguments, expected) in rows {
        let (text, _) = agent.fails(tool, arguments).await;
        assert!(
            text.contains(expected),
            "{tool}: {text:?} lacks {expected:?}"
        );
    }
    let listed = agent.works("sandbox_list", json!({"all": true})).await;
    assert_eq!(
        listed["boxes"].as_array().unwrap().len(),
        1,
        "nothing was started"
    );
    let shown = agent.works("sandbox_status", json!({"id": id})).await;
    assert_eq!(
        shown["steps"].as_array().unwrap().len(),
        1,
        "nothing was run"
    );
}

#[tokio::test]
async fn another_conversation_takes_a_box_over() {
    let rig = Rig::new().await;
    let (one, two) = (Agent::new(&rig, "one"), Agent::new(&rig, "two"));
    let id = one.start().await;
    let own = async |agent: &Agent| {
        let listed = agent.works("sandbox_list", json!({})).await;
        listed["boxes"][0]["agent"]["thisConversation"].clone()
    };
    assert_eq!(
        (own(&one).await, own(&two).await),
        (json!(true), Value::Null)
    );
    let run = json!({"id": id, "cmd": "echo taken over", "note": "go on with it"});
    two.works("sandbox_exec", run).await;
    assert_eq!(
        (own(&one).await, own(&two).await),
        (Value::Null, json!(true))
    );
}

#[tokio::test]
async fn a_warning_is_a_text_of_its_own_under_every_result() {
    let rig = Rig::new().await;
    let agent = Agent::new(&rig, "one");
    let limited = json!({"goal": "a test", "idleTimeoutMin": 60});
    let started = agent.works("sandbox_start", limited).await;
    rig.advance(40 * MIN).await;
    let looked = agent.call("sandbox_list", json!({})).await;
    let texts = looked["content"].as_array().unwrap();
    let begins = format!("box {}: ", started["id"].as_str().unwrap());
    assert_eq!(texts.len(), 2, "{looked}");
    assert!(texts[1]["text"].as_str().unwrap().starts_with(&begins));
    assert_eq!(looked["structuredContent"]["notices"], Value::Null);
    let failed = agent
        .call("sandbox_get", json!({"id": started["id"]}))
        .await;
    assert_eq!(failed["content"].as_array().unwrap().len(), 2, "{failed}");
}

#[tokio::test]
async fn a_background_command_is_looked_after() {
    let rig = Rig::new().await;
    let agent = Agent::new(&rig, "one");
    let id = agent.start().await;
    let run = json!({"id": id, "cmd": "hang", "note": "serve", "background": true});
    let begun = agent.works("sandbox_exec", run).await;
    let bg_id = &begun["bgId"];
    let listed = agent.works("sandbox_procs", json!({"id": id})).await;
    assert_eq!(listed["procs"][0]["bgId"], *bg_id);
    let wait = json!({"id": id, "action": "wait", "bgId": bg_id, "waitSec": 0});
    assert_eq!(agent.works("sandbox_procs", wait).await["running"], true);
    let stop = json!({"id": id, "action": "stop", "bgId": bg_id});
    assert_eq!(agent.works("sandbox_procs", stop).await["running"], false);
    let listed = agent.works("sandbox_procs", json!({"id": id})).await;
    assert_eq!(listed["procs"], json!([]));
    let listed = agent
        .works("sandbox_procs", json!({"id": id, "all": true}))
        .await;
    assert_eq!(listed["procs"][0]["bgId"], *bg_id);
}

#[tokio::test]
async fn an_agent_that_hangs_up_ends_no_command() {
    let rig = Rig::new().await;
    let agent = Agent::new(&rig, "one");
    let id = agent.start().await;
    let id = BoxId::parse(&id).unwrap();
    let run = json!({"id": id.as_str(), "cmd": "hang", "note": "work"});
    let calling = tokio::spawn(async move { agent.call("sandbox_exec", run).await });
    rig.until_running(id).await;
    calling.abort();
    assert!(calling.await.unwrap_err().is_cancelled());
    let again = Agent::new(&rig, "one");
    let listed = again
        .works("sandbox_procs", json!({"id": id.as_str()}))
        .await;
    assert_eq!(listed["procs"][0]["running"], true, "{listed}");
    rig.fake.finish(id, &rig.only_command(id));
    rig.until_unused(id).await;
}

// Rule 11.3: an answer does not wait for the record of its call, so whoever looks next has to.
#[tokio::test]
async fn the_next_look_shows_the_step_of_a_call_that_was_answered() {
    let rig = Rig::new().await;
    let agent = Agent::new(&rig, "one");
    let id = agent.start().await;
    for number in 0..25 {
        let note = format!("look {number}");
        let run = json!({"id": id, "cmd": "echo hello", "note": note});
        agent.works("sandbox_exec", run).await;
        let seen = agent.works("sandbox_status", json!({"id": id})).await;
        let last = seen["steps"].as_array().and_then(|steps| steps.last());
        assert_eq!(last.unwrap()["note"], note);
    }
}
