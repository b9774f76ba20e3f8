//! `/openapi.json`: what is described is there and nothing else is, who may call is as described, and tools are named. That
//! answers are as described is looked at in every other test (`contract.rs`), and on real boxes in `xtask`.

use std::collections::BTreeSet;

use axum::http::Method;
use serde_json::{Value, json};

use crate::rig::{Answer, Rig, RigClient};

/// A path with something in each place.
fn at(template: &str, id: &str) -> String {
    let parts = template.split('/').map(|part| match part {
        "{id}" => id,
        // As ids of commands are.
        "{exec}" => "0123456789abcdef",
        part if part.starts_with('{') => "x",
        part => part,
    });
    parts.collect::<Vec<_>>().join("/")
}

async fn asked(client: &RigClient, method: &Method, path: &str) -> Answer {
    client.raw(method.clone(), path, Vec::new()).await
}

#[tokio::test]
async fn the_document_is_for_everybody_and_says_what_it_is() {
    let rig = Rig::new().await;
    let nobody = rig.client().with_key(None);
    let answer = nobody.call(Method::GET, "/openapi.json", None).await;
    assert_eq!(answer.headers["content-type"], "application/json");
    let document = answer.expect(200);
    assert_eq!(document["openapi"], "3.1.0");
    let exec = &document["paths"]["/v1/boxes/{id}/exec"]["post"];
    let body = &exec["requestBody"]["content"]["application/json"]["schema"];
    assert_eq!(body["$ref"], "#/components/schemas/ExecRequest");
    let request = &document["components"]["schemas"]["ExecRequest"];
    assert_eq!(request["required"], json!(["cmd"]));
    assert_eq!(request["additionalProperties"], false);
    // The words are those of the types.
    assert_eq!(
        request["properties"]["cmd"]["description"],
        "The command, for bash."
    );
    let described = |schema: &Value| schema["description"].is_string();
    let schemas = document["components"]["schemas"].as_object().unwrap();
    for (name, schema) in schemas {
        assert!(described(schema), "{name} is not described");
        for (field, schema) in schema["properties"].as_object().into_iter().flatten() {
            assert!(described(schema), "{name}.{field} is not described");
        }
    }
}

#[tokio::test]
async fn no_path_takes_a_method_that_is_not_described() {
    let rig = Rig::new().await;
    let client = rig.client();
    let contract = client.contract().await;
    let paths: BTreeSet<&str> = contract.calls().map(|(_, path, _)| path).collect();
    assert!(paths.len() > 50, "{paths:?}");
    for path in paths {
        for method in ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"] {
            let method: Method = method.parse().unwrap();
            let described = contract
                .calls()
                .any(|(m, p, _)| (m, p) == (method.clone(), path));
            // Without a key, so that nothing is done.
            let nobody = client.clone().with_key(None);
            let answer = asked(&nobody, &method, &at(path, "x")).await;
            let taken = answer.status.as_u16() != 405;
            assert_eq!(taken, described, "{method} {path}: {}", answer.status);
        }
    }
}

#[tokio::test]
async fn who_may_call_is_as_described() {
    let mut rig = Rig::new().await;
    let id = rig.ready_box().await.to_string();
    let other = rig.other_account().await;
    let client = rig.client();
    let contract = client.contract().await;
    let nobody = client.clone().with_key(None);
    let stranger = client
        .clone()
        .with_key(Some("e2b_0000000000000000000000000000000000000000"));
    let mut seen = [0; 3];
    for (method, template, call) in contract.calls() {
        let path = at(template, &id);
        let open = call["security"] == json!([]);
        let admin = call["description"].as_str().unwrap_or_default();
        let admin = admin.contains("Needs an admin's key.");
        for client in [&nobody, &stranger] {
            let answer = asked(client, &method, &path).await;
            let refused = answer.status.as_u16() == 401;
            // Who signs in shows a key in the body, and apps show theirs there, too.
            let in_body = [(Method::POST, "/v1/session"), (Method::POST, "/v1/logs")];
            if !in_body.contains(&(method.clone(), template)) {
                assert_eq!(refused, !open, "{method} {template}: {}", answer.status);
            }
        }
        if admin {
            let answer = asked(&other, &method, &path).await;
            assert_eq!(answer.status.as_u16(), 403, "{method} {template}");
        } else if template.starts_with("/v1/boxes/{id}") && !open {
            // A body that fits, so that it is the box that is looked for. Terminals are no plain requests.
            if let Some(body) = fitting(&method, template) {
                let body = if body.is_null() {
                    Vec::new()
                } else {
                    body.to_string().into_bytes()
                };
                let path = format!("{path}{}", needed(call));
                let answer = other.raw(method.clone(), &path, body).await;
                let error = answer.error(404, "not_found");
                assert!(error.contains("no box"), "{method} {template}: {error}");
                seen[2] += 1;
            }
        }
        seen[0] += usize::from(open);
        seen[1] += usize::from(admin);
    }
    let [open, admin, of_boxes] = seen;
    assert!(open >= 5 && admin >= 9 && of_boxes >= 25, "{seen:?}");
}

/// The parameters that a call cannot do without.
fn needed(call: &Value) -> String {
    let parameters = call["parameters"].as_array().unwrap().iter();
    let needed = parameters.filter(|it| it["in"] == "query" && it["required"] == true);
    let needed: Vec<String> = needed
        .map(|it| format!("{}=x", it["name"].as_str().unwrap()))
        .collect();
    if needed.is_empty() {
        String::new()
    } else {
        format!("?{}", needed.join("&"))
    }
}

/// A body that a call about a box takes; `null` for none.
fn fitting(method: &Method, template: &str) -> Option<Value> {
    let below = template.strip_prefix("/v1/boxes/{id}").unwrap();
    Some(match (method.as_str(), below) {
        (_, "/terminal") => return None,
        ("POST", "/exec") => json!({ "cmd": "true" }),
        ("POST", "/build") => json!({ "dir": "x", "cmd": "true", "out": ["y"] }),
        ("POST", "/wire") => json!({ "service": "db", "port": 5432 }),
        ("POST", "/scene") => json!({ "service": "web" }),
        ("POST", "/secrets") => json!({ "names": ["A"] }),
        ("POST", "/say" | "/messages") => json!({ "text": "x" }),
        ("POST", "/messages/received") => json!({ "ids": [1] }),
        (_, _) => Value::Null,
    })
}

#[tokio::test]
async fn every_tool_is_named_by_the_calls_that_do_the_same() {
    let rig = Rig::new().await;
    let client = rig.client();
    let asked = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" });
    let agent = client
        .clone()
        .with_header("accept", "application/json, text/event-stream")
        .with_header("content-type", "application/json");
    let listed = agent.post("/mcp", asked).await.expect(200);
    let tools = listed["result"]["tools"].as_array().unwrap().iter();
    let tools: BTreeSet<&str> = tools.map(|tool| tool["name"].as_str().unwrap()).collect();
    let contract = client.contract().await;
    let named = contract
        .calls()
        .flat_map(|(_, _, call)| call["x-mcp-tools"].as_array());
    let named: BTreeSet<&str> = named.flatten().filter_map(Value::as_str).collect();
    assert_eq!(named, tools);
}
