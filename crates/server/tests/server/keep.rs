//! What accounts keep for their boxes: secrets, environments, versions, messages and feedback, over both dialects.

use axum::http::Method;
use serde_json::{Value, json};

use crate::mcp::Agent;
use crate::rig::{Rig, RigClient};

async fn put(client: &RigClient, path: &str, body: Value) -> crate::rig::Answer {
    client.call(Method::PUT, path, Some(body)).await
}

async fn variable(agent: &Agent, id: &str, name: &str) -> String {
    let run = json!({"id": id, "cmd": format!("variable {name}"), "note": "look"});
    let done = agent.works("sandbox_exec", run).await;
    done["stdout"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn secrets_are_variables_of_the_boxes_that_got_them_and_shown_to_nobody() {
    let mut rig = Rig::new().await;
    let client = rig.client();
    let agent = Agent::new(&rig, "one");
    let value = "s3cret-value-of-mine";
    let set = put(&client, "/v1/secrets/TOKEN", json!({"value": value}))
        .await
        .expect(200);
    assert_eq!(set["name"], "TOKEN");
    assert!(!set.to_string().contains(value));
    put(&client, "/v1/secrets/OTHER", json!({"value": "x"}))
        .await
        .expect(200);
    let listed = agent.works("sandbox_secrets", json!({})).await;
    let names: Vec<_> = listed["secrets"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| &one["name"])
        .collect();
    assert_eq!(names, ["OTHER", "TOKEN"]);

    let start = json!({"goal": "a test", "secrets": ["TOKEN"], "env": {"TOKEN": "weaker"}});
    let started = agent.works("sandbox_start", start).await;
    let id = started["id"].as_str().unwrap();
    assert_eq!(variable(&agent, id, "TOKEN").await, value);
    assert_eq!(variable(&agent, id, "OTHER").await, "");
    let run =
        json!({"id": id, "cmd": "variable TOKEN", "note": "x", "env": {"TOKEN": "this once"}});
    assert_eq!(
        agent.works("sandbox_exec", run).await["stdout"],
        "this once"
    );
    let gave = agent
        .works(
            "sandbox_secrets",
            json!({"id": id, "names": ["OTHER", "OTHER"]}),
        )
        .await;
    assert_eq!(gave["names"], json!(["OTHER", "TOKEN"]));
    assert_eq!(variable(&agent, id, "OTHER").await, "x");

    // A box has the values of the moment it was given them.
    put(&client, "/v1/secrets/TOKEN", json!({"value": "newer"}))
        .await
        .expect(200);
    assert_eq!(variable(&agent, id, "TOKEN").await, value);
    // So has a fork of it.
    let path = format!("/v1/boxes/{id}/fork");
    let forked = client.post(&path, json!({}));
    let forked = forked.await.expect(201);
    let fork = forked["forks"][0]["box"]["id"].as_str().unwrap();
    assert_eq!(variable(&agent, fork, "TOKEN").await, value);
    assert_eq!(variable(&agent, fork, "OTHER").await, "x");
    client
        .call(Method::DELETE, "/v1/secrets/OTHER", None)
        .await
        .expect(200);
    assert_eq!(variable(&agent, id, "OTHER").await, "x");
    client
        .call(Method::DELETE, "/v1/secrets/OTHER", None)
        .await
        .error(404, "not_found");
    let whole = agent.works("sandbox_status", json!({"id": id})).await;
    assert!(!whole.to_string().contains(value));

    rig.restart().await;
    let agent = Agent::new(&rig, "one");
    assert_eq!(
        variable(&agent, id, "TOKEN").await,
        value,
        "after a restart"
    );
    for file in ["icebox.db", "icebox.db-wal"] {
        let bytes = std::fs::read(rig.data().join(file)).unwrap_or_default();
        let found = bytes
            .windows(value.len())
            .any(|part| part == value.as_bytes());
        assert!(!found, "{file} has the value as it is");
    }
}

#[tokio::test]
async fn secrets_of_another_account_are_none_and_bad_ones_are_refused() {
    let mut rig = Rig::new().await;
    let client = rig.client();
    put(&client, "/v1/secrets/TOKEN", json!({"value": "x"}))
        .await
        .expect(200);
    let id = rig.ready_box().await;
    let stranger = rig.other_account().await;
    let client = rig.client();
    let listed = stranger
        .call(Method::GET, "/v1/secrets", None)
        .await
        .expect(200);
    assert_eq!(listed["secrets"], json!([]));
    let start = stranger
        .post("/v1/boxes", json!({"secrets": ["TOKEN"]}))
        .await;
    assert!(
        start
            .error(400, "bad_request")
            .contains("no secret `TOKEN`")
    );
    let give = stranger
        .post(
            &format!("/v1/boxes/{id}/secrets"),
            json!({"names": ["TOKEN"]}),
        )
        .await;
    give.error(404, "not_found");
    let long = "x".repeat(32 * 1024 + 1);
    for (name, body) in [
        ("TOKEN", json!({"value": ""})),
        ("TOKEN", json!({"value": long})),
        ("TOKEN", json!({"value": "a\u{0}b"})),
        ("TOKEN", json!({"value": 1})),
        ("TOKEN", json!({})),
        ("1X", json!({"value": "x"})),
        ("A-B", json!({"value": "x"})),
        ("A%3DB", json!({"value": "x"})),
    ] {
        put(&client, &format!("/v1/secrets/{name}"), body)
            .await
            .error(400, "bad_request");
    }
    let path = format!("/v1/boxes/{id}/secrets");
    let names: Vec<_> = (0..101).map(|n| format!("N{n}")).collect();
    for names in [
        json!([]),
        json!(names),
        json!(["NOPE"]),
        json!("TOKEN"),
        json!([1]),
    ] {
        client
            .post(&path, json!({"names": names}))
            .await
            .error(400, "bad_request");
    }
    let agent = Agent::new(&rig, "one");
    let (text, _) = agent
        .fails("sandbox_secrets", json!({"names": ["TOKEN"]}))
        .await;
    assert!(text.contains("`id` is required"), "{text}");
    let (text, _) = agent
        .fails("sandbox_secrets", json!({"id": id.as_str()}))
        .await;
    assert!(text.contains("`names` is required"), "{text}");
}

#[tokio::test]
async fn an_environment_settles_the_services_that_a_box_declares() {
    let rig = Rig::new().await;
    let client = rig.client();
    let agent = Agent::new(&rig, "one");
    client
        .post("/v1/environments", json!({"name": "staging"}))
        .await
        .expect(201);
    client
        .post("/v1/environments", json!({"name": "staging"}))
        .await
        .error(400, "bad_request");
    for name in ["", "A", "a_b", "-a", &"a".repeat(41)] {
        client
            .post("/v1/environments", json!({"name": name}))
            .await
            .error(400, "bad_request");
    }
    let env = "/v1/environments/staging/services";
    let text = b"# settings\nexport URL=\"http://db\"\nPLAIN=two words\n".to_vec();
    let set = client
        .raw(Method::PUT, &format!("{env}/api"), text)
        .await
        .expect(200);
    assert_eq!(set["keys"], json!(["PLAIN", "URL"]));
    client
        .raw(Method::PUT, &format!("{env}/web"), b"WEB=1".to_vec())
        .await
        .expect(200);
    for bad in [&b"NOT A LINE"[..], b"1A=x", b"A='x", b"\xff\xfe"] {
        let refused = client
            .raw(Method::PUT, &format!("{env}/api"), bad.to_vec())
            .await;
        refused.error(400, "bad_request");
    }
    let refused = client
        .raw(Method::PUT, &format!("{env}/No"), b"A=1".to_vec())
        .await;
    refused.error(400, "bad_request");
    let refused = client
        .raw(
            Method::PUT,
            "/v1/environments/nope/services/api",
            b"A=1".to_vec(),
        )
        .await;
    refused.error(400, "bad_request");

    let start = json!({
        "goal": "a test", "environment": "staging", "services": [{"name": "api", "port": 3000}],
        "env": {"PLAIN": "its own"},
    });
    let started = agent.works("sandbox_start", start).await;
    let id = started["id"].as_str().unwrap();
    assert_eq!(variable(&agent, id, "URL").await, "http://db");
    assert_eq!(
        variable(&agent, id, "WEB").await,
        "",
        "a service it does not declare"
    );
    assert_eq!(
        variable(&agent, id, "PLAIN").await,
        "",
        "the box's own wins, by its daemon"
    );
    let shown = agent
        .works(
            "sandbox_status",
            json!({"id": id, "fields": ["environment"]}),
        )
        .await;
    assert_eq!(shown["environment"], "staging");
    let listed = agent.works("sandbox_environments", json!({})).await;
    let one = &listed["environments"][0];
    assert_eq!(
        (&one["name"], &one["activeBoxes"]),
        (&json!("staging"), &json!(1))
    );
    assert_eq!(
        one["services"][0],
        json!({"name": "api", "keys": ["PLAIN", "URL"]})
    );
    assert!(!listed.to_string().contains("http://db"));
    // What changes is what later commands see.
    client
        .raw(Method::PUT, &format!("{env}/api"), b"URL=new".to_vec())
        .await
        .expect(200);
    assert_eq!(variable(&agent, id, "URL").await, "new");
    client
        .call(Method::DELETE, &format!("{env}/web"), None)
        .await
        .expect(200);
    client
        .call(Method::DELETE, &format!("{env}/web"), None)
        .await
        .error(404, "not_found");
    client
        .call(Method::DELETE, "/v1/environments/staging", None)
        .await
        .expect(200);
    assert_eq!(variable(&agent, id, "URL").await, "");
    let (text, _) = agent
        .fails(
            "sandbox_start",
            json!({"goal": "x", "environment": "staging"}),
        )
        .await;
    assert!(text.contains("no environment `staging`"), "{text}");
}

#[tokio::test]
async fn a_published_label_means_the_same_for_ever() {
    let rig = Rig::new().await;
    let agent = Agent::new(&rig, "one");
    let version = json!({"service": "api", "label": "v1.0", "image": "registry.example/api:1", "gitSha": "0123abc"});
    let published = agent
        .works("sandbox_publish_version", version.clone())
        .await;
    let again = agent
        .works("sandbox_publish_version", version.clone())
        .await;
    assert_eq!(published["versionId"], again["versionId"]);
    let mut other = version.clone();
    other["image"] = json!("registry.example/api:2");
    let (text, _) = agent.fails("sandbox_publish_version", other.clone()).await;
    assert!(text.contains("published already"), "{text}");
    other["label"] = json!("v1.1");
    agent.works("sandbox_publish_version", other).await;
    let all = agent.works("sandbox_versions", json!({})).await;
    assert_eq!(all["versions"].as_array().unwrap().len(), 2);
    let none = agent
        .works("sandbox_versions", json!({"service": "web"}))
        .await;
    assert_eq!(none["versions"], json!([]));
    for (field, value) in [
        ("service", json!("Api")),
        ("label", json!("a b")),
        ("label", json!("")),
        ("image", json!("-x")),
        ("image", json!("a;b")),
        ("gitSha", json!("xyz")),
        ("cmd", json!("")),
        ("image", json!("snapshot:nosuch")),
        ("note", json!("x".repeat(201))),
    ] {
        let mut bad = version.clone();
        bad[field] = value;
        let (text, fields) = agent.fails("sandbox_publish_version", bad).await;
        assert_eq!(fields["field"], field, "{text}");
    }
}

#[tokio::test]
async fn what_a_person_says_arrives_once_at_whoever_holds_the_box() {
    let mut rig = Rig::new().await;
    let agent = Agent::new(&rig, "one");
    let id = agent.start().await;
    let path = format!("/v1/boxes/{id}/messages");
    rig.post(&path, json!({"text": "first"})).await.expect(201);
    rig.post(&path, json!({"text": " second "}))
        .await
        .expect(201);
    let waiting = rig.get(&path).await.expect(200);
    assert_eq!(waiting["messages"][0]["deliveredAt"], Value::Null);
    let stranger = Agent::new(&rig, "two");
    let seen = stranger.works("sandbox_status", json!({"id": id})).await;
    assert_eq!(seen["fromHuman"], Value::Null, "who does not hold it");
    rig.restart().await;
    let agent = Agent::new(&rig, "one");
    let looked = agent
        .call("sandbox_status", json!({"id": id, "fields": ["goal"]}))
        .await;
    let said = &looked["structuredContent"]["fromHuman"];
    assert_eq!(
        (&said[0]["text"], &said[1]["text"]),
        (&json!("first"), &json!("second"))
    );
    let lines = looked["content"].as_array().unwrap();
    assert!(
        lines[1]["text"].as_str().unwrap().ends_with("says: first"),
        "{looked}"
    );
    let again = agent.works("sandbox_status", json!({"id": id})).await;
    assert_eq!(again["fromHuman"], Value::Null, "once");
    let listed = rig.get(&path).await.expect(200);
    assert_eq!(listed["messages"][1]["agent"], "one");
    // Whoever takes the box over gets what comes then, with the call that does.
    rig.post(&path, json!({"text": "third"})).await.expect(201);
    let two = Agent::new(&rig, "two");
    let run = json!({"id": id, "cmd": "true", "note": "go on"});
    let taken = two.works("sandbox_exec", run).await;
    assert_eq!(taken["fromHuman"][0]["text"], "third");
    for text in [json!(""), json!("  "), json!("x".repeat(4001)), json!(1)] {
        rig.post(&path, json!({"text": text}))
            .await
            .error(400, "bad_request");
    }
    for _ in 0..100 {
        rig.post(&path, json!({"text": "more"})).await.expect(201);
    }
    rig.post(&path, json!({"text": "too many"}))
        .await
        .error(409, "too_many");
}

#[tokio::test]
async fn an_agents_line_is_a_step_and_no_use_and_feedback_reaches_the_admin_only() {
    let mut rig = Rig::new().await;
    let agent = Agent::new(&rig, "one");
    let id = agent.start().await;
    let frozen = agent.works("sandbox_freeze", json!({"id": id})).await;
    let long = "word ".repeat(60);
    agent
        .works("sandbox_say", json!({"id": id, "text": long}))
        .await;
    let shown = agent.works("sandbox_status", json!({"id": id})).await;
    assert_eq!(
        (&shown["status"], &shown["lastUsedAt"]),
        (&json!("frozen"), &frozen["lastUsedAt"])
    );
    let step = shown["steps"].as_array().unwrap().last().unwrap();
    assert_eq!(
        (&step["kind"], &step["note"]),
        (&json!("say"), &json!(long.trim()))
    );
    let (text, _) = agent
        .fails("sandbox_say", json!({"id": id, "text": " "}))
        .await;
    assert!(text.contains("`text` must be"), "{text}");
    let (text, _) = agent
        .fails("sandbox_say", json!({"id": id, "text": "x".repeat(501)}))
        .await;
    assert!(text.contains("500"), "{text}");
    agent.works("sandbox_stop", json!({"id": id})).await;
    agent
        .fails("sandbox_say", json!({"id": id, "text": "late"}))
        .await;

    let said = json!({"task": "t", "usage": "u", "problems": "p", "suggestions": "s", "id": id});
    agent.works("sandbox_feedback", said).await;
    let bad = json!({"task": "t", "usage": "u", "problems": "x".repeat(4001), "suggestions": "s"});
    agent.fails("sandbox_feedback", bad).await;
    let read = rig.get("/v1/feedback").await.expect(200);
    let one = &read["feedback"][0];
    assert_eq!(
        (&one["problems"], &one["account"], &one["agent"]),
        (&json!("p"), &json!("default"), &json!("one"))
    );
    let stranger = rig.other_account().await;
    stranger
        .call(Method::GET, "/v1/feedback", None)
        .await
        .error(403, "forbidden");
    let foreign = json!({"task": "", "usage": "", "problems": "", "suggestions": "", "id": id});
    stranger
        .post("/v1/feedback", foreign)
        .await
        .error(404, "not_found");
}
