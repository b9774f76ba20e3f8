//! What is said of boxes without asking for it: why programs were ended, how fresh a reading is, and the figures of the host.

use axum::http::Method;
use serde_json::{Value, json};

use crate::mcp::Agent;
use crate::rig::{MIN, Rig};

#[tokio::test]
async fn a_program_that_the_kernel_ended_for_want_of_memory_is_explained() {
    let rig = Rig::new().await;
    let agent = Agent::new(&rig, "one");
    let id = agent.start().await;
    let run = |cmd: &str| json!({"id": id, "cmd": cmd, "note": "try"});
    let done = agent.works("sandbox_exec", run("false")).await;
    assert_eq!(done["endReason"], Value::Null, "it failed by itself");
    let health = json!({"id": id, "fields": ["health"]});
    let shown = agent.works("sandbox_status", health.clone()).await;
    assert_eq!(shown["health"]["memoryKills"], Value::Null);

    let done = agent.works("sandbox_exec", run("exhaust")).await;
    let why = done["endReason"].as_str().unwrap();
    assert_eq!(done["signal"], "SIGKILL");
    assert!(
        why.contains("no memory left (2048 MB)") && why.contains("ended 1 of its programs;"),
        "{why}"
    );
    let shown = agent.works("sandbox_status", health).await;
    assert_eq!(shown["health"]["memoryKills"], 1);
    let one = json!({"id": id, "bgId": done["execId"]});
    let listed = agent.works("sandbox_procs", one).await;
    let proc = &listed["procs"][0];
    assert!(
        proc["endReason"]
            .as_str()
            .unwrap()
            .contains("since the box came up"),
        "{proc}"
    );
    assert_eq!(
        proc["result"]["signal"], "SIGKILL",
        "what its call returned"
    );
    // One that does well later has nothing to do with it.
    let done = agent.works("sandbox_exec", run("false")).await;
    assert_eq!(done["endReason"], Value::Null);
}

#[tokio::test]
async fn a_job_that_its_box_did_not_survive_has_ended_and_says_why() {
    let rig = Rig::new().await;
    let agent = Agent::new(&rig, "one");
    let id = agent.start().await;
    let run = json!({"id": id, "cmd": "hang", "note": "serve", "background": true});
    let begun = agent.works("sandbox_exec", run).await;
    let job = &begun["bgId"];
    let parsed = icebox_lifecycle::BoxId::parse(&id).unwrap();
    rig.fake.kill(parsed, "its daemon crashed");
    rig.until(parsed, "interrupted").await;
    let wake = format!("/v1/boxes/{id}/wake");
    let woken = rig.post(&wake, json!({"coldRestart": true})).await;
    woken.expect(200);
    for arguments in [
        json!({"id": id, "bgId": job, "all": true}),
        json!({"id": id, "bgId": job, "action": "wait"}),
    ] {
        let shown = agent.works("sandbox_procs", arguments).await;
        let proc = shown["procs"].as_array().map_or(&shown, |procs| &procs[0]);
        assert_eq!(
            (&proc["exitCode"], &proc["running"]),
            (&json!(-1), &json!(false)),
            "{shown}"
        );
        assert!(
            proc["endReason"].as_str().unwrap().contains("began anew"),
            "{shown}"
        );
    }
    let never = json!({"id": id, "bgId": "0123456789abcdef", "action": "wait"});
    agent.fails("sandbox_procs", never).await;
}

#[tokio::test]
async fn a_list_of_commands_says_which_are_ones_own() {
    let rig = Rig::new().await;
    let agent = Agent::new(&rig, "one");
    let id = agent.start().await;
    let run = json!({"id": id, "cmd": "hang", "note": "serve", "background": true});
    agent.works("sandbox_exec", run.clone()).await;
    let mine = async |agent: &Agent| {
        let listed = agent.works("sandbox_procs", json!({"id": id})).await;
        let procs = listed["procs"].as_array().unwrap().clone();
        procs
            .iter()
            .map(|proc| proc["mine"] == true)
            .collect::<Vec<_>>()
    };
    assert_eq!(mine(&agent).await, [true]);
    let other = Agent::new(&rig, "two");
    assert_eq!(mine(&other).await, [false]);
    other.works("sandbox_exec", run).await;
    assert_eq!(mine(&other).await, [true, false], "the newest first");
}

#[tokio::test]
async fn rule_2_6_a_look_asks_the_box_and_a_list_does_not() {
    let rig = Rig::new().await;
    let id = rig.ready_box().await;
    rig.advance(5 * MIN).await;
    let now = rig.get("/v1/test/clock").await.expect(200)["now"].clone();
    let shown = rig.status(id).await;
    assert_eq!(shown["observedAt"], now);
    assert_ne!(shown["stateRecordedAt"], now, "nothing changed");
    let listed = rig.get("/v1/boxes").await.expect(200);
    assert_ne!(listed["boxes"][0]["observedAt"], now);
    rig.stop(id).await.expect(200);
    rig.advance(5 * MIN).await;
    let later = rig.get("/v1/test/clock").await.expect(200)["now"].clone();
    let ended = rig.status(id).await;
    assert_eq!(ended["status"], "terminated", "it is still readable");
    assert_ne!(ended["observedAt"], later, "there is nothing to ask");
}

#[tokio::test]
async fn rule_4_14_figures_for_prometheus_wake_nothing_and_need_an_admins_key() {
    let mut rig = Rig::new().await;
    let frozen = rig.frozen_box().await;
    let before = rig.status(frozen).await;
    rig.ready_box().await;
    let page = rig.get("/metrics").await;
    assert_eq!(page.status, 200);
    let kind = page.headers["content-type"].to_str().unwrap();
    assert!(kind.starts_with("text/plain; version=0.0.4"), "{kind}");
    let text = String::from_utf8(page.bytes.to_vec()).unwrap();
    for line in [
        "# TYPE icebox_boxes gauge",
        "icebox_boxes{status=\"ready\"} 1",
        "icebox_boxes{status=\"frozen\"} 1",
        "icebox_boxes{status=\"stopping\"} 0",
        "icebox_slots_taken 1",
        "icebox_queue_length 0",
        "# TYPE icebox_dropped_outcomes_total counter",
        "icebox_ready 1",
    ] {
        assert!(
            text.lines().any(|one| one == line),
            "{line} is not in\n{text}"
        );
    }
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (name, value) = line.rsplit_once(' ').unwrap();
        assert!(
            name.starts_with("icebox_") && value.parse::<f64>().is_ok(),
            "{line}"
        );
    }
    let after = rig.status(frozen).await;
    assert_eq!(
        (&after["status"], &after["lastUsedAt"]),
        (&json!("frozen"), &before["lastUsedAt"])
    );
    let keyless = rig.client().with_key(None);
    keyless
        .call(Method::GET, "/metrics", None)
        .await
        .error(401, "unauthorized");
    let stranger = rig.other_account().await;
    stranger
        .call(Method::GET, "/metrics", None)
        .await
        .error(403, "forbidden");
}
