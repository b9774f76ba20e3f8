//! Commands through the API: answers, repeats, callers that hang up, the list of commands and their output.

use serde_json::{Value, json};

use crate::rig::Rig;

#[tokio::test]
async fn a_command_answers_with_everything_it_wrote() {
    let rig = Rig::new().await;
    let id = rig.ready_box().await;
    let done = rig.exec(id, "echo hello").await.expect(200);
    assert_eq!(done["exitCode"], 0);
    assert_eq!(
        (&done["stdout"], &done["stderr"]),
        (&json!("hello\n"), &json!(""))
    );
    assert_eq!(
        (&done["timedOut"], &done["truncated"]),
        (&json!(false), &json!(false))
    );
    let failed = rig.exec(id, "nosuch").await.expect(200);
    assert_eq!(failed["exitCode"], 127);
    assert_eq!(failed["stderr"], "nosuch: command not found\n");
}

#[tokio::test]
async fn a_repeat_with_the_same_id_gets_the_first_run() {
    let rig = Rig::new().await;
    let id = rig.ready_box().await;
    let request = json!({ "cmd": "echo once", "execId": "00112233445566ff" });
    for _ in 0..3 {
        let done = rig.client().exec(id, request.clone()).await.expect(200);
        assert_eq!(
            (&done["execId"], &done["stdout"]),
            (&json!("00112233445566ff"), &json!("once\n"))
        );
    }
    let procs = rig.get(&format!("/v1/boxes/{id}/procs")).await.expect(200);
    assert_eq!(procs["procs"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn an_id_of_another_command_is_refused() {
    let rig = Rig::new().await;
    let id = rig.ready_box().await;
    let first = json!({ "cmd": "echo once", "execId": "00112233445566ff" });
    rig.client().exec(id, first).await.expect(200);
    let other = json!({ "cmd": "echo other", "execId": "00112233445566ff" });
    let refused = rig.client().exec(id, other).await;
    let text = refused.error(400, "bad_request");
    assert!(
        text.contains("execId") && text.contains("another"),
        "{text}"
    );
}

#[tokio::test]
async fn a_caller_that_hangs_up_cancels_nothing() {
    let rig = Rig::new().await;
    let id = rig.ready_box().await;
    let client = rig.client();
    let call = tokio::spawn(async move { client.exec(id, json!({ "cmd": "hang" })).await });
    rig.until_running(id).await;
    call.abort();
    assert!(call.await.unwrap_err().is_cancelled());
    // Two round trips later the server knows that the connection is gone; the call goes on all the same.
    rig.status(id).await;
    let blocked = rig.status(id).await["freeze"]["blockedBy"].clone();
    assert_eq!(blocked, json!([{ "kind": "foreground" }]));
    rig.fake.finish(id, &rig.only_command(id));
    rig.until_unused(id).await;
}

#[tokio::test]
async fn output_is_read_whole_from_an_offset_and_to_the_end() {
    let rig = Rig::new().await;
    let id = rig.ready_box().await;
    let big = rig.exec(id, "big 1000000").await.expect(200);
    assert_eq!(big["truncated"], true);
    assert_eq!(big["stdout"].as_str().unwrap().len(), 16 * 1024);
    let url = big["outputUrl"].as_str().unwrap();
    let whole = rig.get(url).await;
    assert_eq!(whole.bytes.len(), 1_000_000);
    let rest = rig.get(&format!("{url}?stream=stdout&offset=999990")).await;
    assert_eq!(&rest.bytes[..], b"xxxxxxxxxx");
    assert_eq!(rest.headers["x-icebox-offset"], "999990");
    let errors = rig.get(&format!("{url}?stream=stderr&follow=1")).await;
    assert_eq!(errors.bytes.len(), 0);
}

#[tokio::test]
async fn following_ends_with_the_command_and_holds_the_box_meanwhile() {
    let rig = Rig::new().await;
    let id = rig.ready_box().await;
    let hang = json!({ "cmd": "hang", "background": true });
    let began = rig.client().exec(id, hang).await.expect(200);
    let exec_id = began["execId"].as_str().unwrap().to_owned();
    let (client, url) = (
        rig.client(),
        began["outputUrl"].as_str().unwrap().to_owned(),
    );
    let follow = tokio::spawn(async move {
        let url = format!("{url}?follow=1");
        client.call(axum::http::Method::GET, &url, None).await
    });
    rig.until_in_use(id).await;
    let path = format!("/v1/boxes/{id}/procs/{exec_id}");
    assert_eq!(rig.get(&path).await.expect(200)["running"], true);
    let stopped = rig.post(&format!("{path}/stop"), Value::Null).await;
    stopped.error(400, "bad_request");
    let stopped = rig
        .post(&format!("{path}/stop?graceSec=1"), json!({}))
        .await
        .expect(200);
    assert_eq!(
        (&stopped["running"], &stopped["signal"]),
        (&json!(false), &json!("SIGTERM"))
    );
    assert_eq!(&follow.await.unwrap().bytes[..], b"hanging\n");
    let waited = rig.get(&format!("{path}?waitSec=300")).await.expect(200);
    assert_eq!(waited["running"], false);
    rig.until_unused(id).await;
}

#[tokio::test]
async fn a_command_that_is_not_known_is_not_found() {
    let rig = Rig::new().await;
    let id = rig.ready_box().await;
    for path in ["0000000000000000", "0000000000000000/output", "nonsense"] {
        let answer = rig.get(&format!("/v1/boxes/{id}/procs/{path}")).await;
        answer.error(404, "not_found");
    }
}

#[tokio::test]
async fn what_the_daemon_refuses_is_the_callers_to_mend() {
    let rig = Rig::new().await;
    let id = rig.ready_box().await;
    let request = json!({ "cmd": "true", "cwd": "nowhere" });
    let text = rig
        .client()
        .exec(id, request)
        .await
        .error(400, "bad_request");
    assert!(text.contains("nowhere does not exist"), "{text}");
}
