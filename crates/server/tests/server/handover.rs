//! That a message of a person arrives once, whatever breaks on its way.

use icebox_lifecycle::BoxId;
use icebox_server::commands::Caller;
use icebox_server::record::AccountId;
use serde_json::{Value, json};

use crate::mcp::Agent;
use crate::rig::Rig;

/// The numbers of the messages in a result.
fn ids(fields: &Value) -> Vec<i64> {
    let messages = fields["fromHuman"].as_array();
    let ids = messages.into_iter().flatten().map(|one| one["id"].as_i64());
    ids.map(Option::unwrap).collect()
}

#[tokio::test]
async fn who_confirms_gets_a_message_again_until_then_and_through_a_restart() {
    let mut rig = Rig::new().await;
    let agent = Agent::new(&rig, "one");
    let id = agent.start().await;
    let path = format!("/v1/boxes/{id}/messages");
    let left = rig.post(&path, json!({"text": "first"})).await.expect(201);
    let first = left["id"].as_i64().unwrap();
    let look = json!({"id": id, "fields": ["goal"]});
    let confirming = |rig: &Rig| Agent::confirming(rig, "one");
    let got = confirming(&rig).call("sandbox_status", look.clone()).await;
    assert_eq!(ids(&got["structuredContent"]), [first]);
    let lines = got["content"].as_array().unwrap();
    assert_eq!(lines.len(), 1, "it makes the lines itself");
    // Whoever does not confirm it does not have it, so it comes again, with what was left meanwhile.
    rig.restart().await;
    let left = rig.post(&path, json!({"text": "second"})).await.expect(201);
    let second = left["id"].as_i64().unwrap();
    let got = confirming(&rig).works("sandbox_status", look.clone()).await;
    assert_eq!(ids(&got), [first, second]);
    let received = format!("{path}/received");
    for _ in 0..2 {
        rig.post(&received, json!({"ids": [first]}))
            .await
            .expect(200);
    }
    let got = confirming(&rig).works("sandbox_status", look.clone()).await;
    assert_eq!(ids(&got), [second]);
    rig.post(&received, json!({"ids": [second]}))
        .await
        .expect(200);
    let got = confirming(&rig).works("sandbox_status", look).await;
    assert_eq!(ids(&got), [0; 0]);
    let listed = rig.get(&path).await.expect(200);
    assert!(listed["messages"][1]["deliveredAt"].is_string(), "{listed}");

    for wrong in [json!([]), json!(["1"]), json!(vec![1; 101])] {
        let refused = rig.post(&received, json!({"ids": wrong})).await;
        refused.error(400, "bad_request");
    }
    let stranger = rig.other_account().await;
    let refused = stranger.post(&received, json!({"ids": [first]})).await;
    refused.error(404, "not_found");
}

#[tokio::test]
async fn what_an_answer_did_not_get_to_its_end_with_waits_for_the_next_one() {
    let rig = Rig::new().await;
    let agent = Agent::new(&rig, "one");
    let id = BoxId::parse(&agent.start().await).unwrap();
    let path = format!("/v1/boxes/{id}/messages");
    rig.post(&path, json!({"text": "only"})).await.expect(201);
    let caller = Caller {
        account: AccountId(1),
        agent: Some("one".into()),
    };
    let commands = rig.commands();
    let hand_over = async || commands.from_human(&caller, id, false).await.ok().unwrap();
    let (first, receipt) = hand_over().await;
    assert_eq!(first.len(), 1);
    let (meanwhile, none) = hand_over().await;
    assert!(meanwhile.is_empty() && none.is_none(), "one answer has it");
    // The connection broke.
    drop(receipt);
    let (again, receipt) = hand_over().await;
    assert_eq!(again, first, "under the same number");
    receipt.unwrap().arrived();
    let (over, _) = hand_over().await;
    assert!(over.is_empty());
    let listed = rig.get(&path).await.expect(200);
    assert_eq!(listed["messages"][0]["agent"], "one", "{listed}");
}

#[tokio::test]
async fn a_line_that_is_said_again_is_one_step() {
    let rig = Rig::new().await;
    let agent = Agent::new(&rig, "one");
    let id = agent.start().await;
    let said = json!({"id": id, "text": "Half of it is done.", "sayId": "0123456789abcdef"});
    for _ in 0..2 {
        agent.works("sandbox_say", said.clone()).await;
    }
    agent
        .works(
            "sandbox_say",
            json!({"id": id, "text": "Half of it is done."}),
        )
        .await;
    let shown = agent
        .works("sandbox_status", json!({"id": id, "fields": ["steps"]}))
        .await;
    let steps = shown["steps"].as_array().unwrap().iter();
    assert_eq!(
        steps.filter(|step| step["kind"] == "say").count(),
        2,
        "{shown}"
    );
    let mut wrong = said;
    wrong["sayId"] = json!("x");
    let (text, _) = agent.fails("sandbox_say", wrong).await;
    assert!(text.contains("`sayId` must be 16"), "{text}");
}
