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

#[tokio::test]
async fn offsets_are_true_across_what_is_not_kept_and_that_is_told_beside_the_bytes() {
    let rig = Rig::new().await;
    let id = rig.ready_box().await;
    let byte = |offset: u64| (offset % 251) as u8;
    let len = 2_000_000;
    let done = rig.exec(id, &format!("long {len}")).await.expect(200);
    let url = done["outputUrl"].as_str().unwrap();
    let (from, to) = (len / 4, len - len / 4);
    for (asked, begins, gap) in [
        (0, 0, Some((from, to))),
        (from - 3, from - 3, Some((from, to))),
        (from, to, Some((from, to))),
        (from + 5, to, Some((from + 5, to))),
        (to, to, None),
        (len - 2, len - 2, None),
    ] {
        for follow in [0, 1] {
            let answer = rig
                .get(&format!("{url}?offset={asked}&follow={follow}"))
                .await;
            assert_eq!(answer.headers["x-icebox-offset"], begins.to_string());
            let told = answer
                .headers
                .get("x-icebox-gap")
                .map(|gap| gap.to_str().unwrap());
            assert_eq!(
                told,
                gap.map(|(from, to)| format!("{from}-{to}")).as_deref()
            );
            let left_out = |offset: &u64| gap.is_some_and(|(from, to)| (from..to).contains(offset));
            let expected: Vec<u8> = (begins..len).filter(|at| !left_out(at)).map(byte).collect();
            assert!(
                answer.bytes[..] == expected[..],
                "from {asked}: not a byte more or less"
            );
        }
    }
    let exec = done["execId"].as_str().unwrap();
    let shown = rig
        .get(&format!("/v1/boxes/{id}/procs/{exec}"))
        .await
        .expect(200);
    assert_eq!(
        shown["gap"],
        json!({ "stdout": { "from": from, "to": to } })
    );
}

/// The command as the record has it: the box is gone.
async fn recorded(rig: &Rig, id: icebox_lifecycle::BoxId, exec_id: &str) -> Value {
    rig.stop(id).await.expect(200);
    let shown = rig.get(&format!("/v1/boxes/{id}/procs/{exec_id}")).await;
    let shown = shown.expect(200);
    assert_eq!(
        (&shown["recorded"], &shown["running"]),
        (&json!(true), &json!(false))
    );
    shown
}

#[tokio::test]
async fn what_a_command_came_to_is_readable_when_its_caller_hung_up_and_its_box_is_gone() {
    let rig = Rig::new().await;
    let id = rig.ready_box().await;
    let client = rig.client();
    let request = json!({ "cmd": "hang", "execId": "00112233445566ff", "note": "why" });
    let call = tokio::spawn(async move { client.exec(id, request).await });
    rig.until_running(id).await;
    call.abort();
    assert!(call.await.unwrap_err().is_cancelled());
    rig.fake.finish(id, "00112233445566ff");
    rig.until_unused(id).await;
    let path = format!("/v1/boxes/{id}/procs/00112233445566ff");
    assert_eq!(rig.get(&path).await.expect(200)["exitCode"], 0);
    let shown = recorded(&rig, id, "00112233445566ff").await;
    assert_eq!(
        (&shown["exitCode"], &shown["cmd"]),
        (&json!(0), &json!("hang"))
    );
    let missing = rig
        .get(&format!("/v1/boxes/{id}/procs/ffffffffffffffff"))
        .await;
    missing.error(410, "box_gone");
}

#[tokio::test]
async fn a_command_whose_call_a_restart_cut_off_is_written_down_when_it_ends() {
    for ends_while_down in [false, true] {
        let mut rig = Rig::new().await;
        let id = rig.ready_box().await;
        let client = rig.client();
        let request = json!({ "cmd": "hang", "execId": "00112233445566ff" });
        drop(tokio::spawn(async move { client.exec(id, request).await }));
        rig.until_running(id).await;
        rig.kill().await;
        if ends_while_down {
            rig.fake.finish(id, "00112233445566ff");
        }
        rig.start().await;
        if !ends_while_down {
            rig.until_background(id, 1).await;
            rig.fake.finish(id, "00112233445566ff");
        }
        let step = loop {
            let status = rig.status(id).await;
            let steps = status["steps"].as_array().unwrap().clone();
            if let Some(step) = steps.into_iter().find(|step| step["kind"] == "exec") {
                break step;
            }
        };
        assert_eq!(
            (&step["summary"], &step["exitCode"]),
            (&json!("hang"), &json!(0))
        );
        let shown = recorded(&rig, id, "00112233445566ff").await;
        assert_eq!(shown["exitCode"], 0);
    }
}

#[tokio::test]
async fn a_background_command_is_written_down_as_it_ended_or_as_unknown() {
    let rig = Rig::new().await;
    let id = rig.ready_box().await;
    let run = async |exec: &str| {
        let request = json!({ "cmd": "hang", "background": true, "note": "why", "execId": exec });
        rig.client().exec(id, request).await.expect(200);
    };
    run("00112233445566ff").await;
    rig.until_background(id, 1).await;
    rig.fake.finish(id, "00112233445566ff");
    rig.until_background(id, 0).await;
    run("ff00112233445566").await;
    rig.until_background(id, 1).await;
    let steps = rig.status(id).await["steps"].clone();
    assert_eq!(steps.as_array().unwrap().len(), 3, "{steps:#}");
    for step in [&steps[1], &steps[2]] {
        assert_eq!(
            (&step["detail"], &step["note"], step.get("exitCode")),
            (&json!("background"), &json!("why"), None),
            "rule 11.3 tells that of commands that were waited for"
        );
    }
    let cut_off = recorded(&rig, id, "ff00112233445566").await;
    assert_eq!(
        (&cut_off["outcome"], cut_off.get("exitCode")),
        (&json!("unknown"), None)
    );
    assert_eq!(cut_off["background"], true);
    let path = format!("/v1/boxes/{id}/procs/00112233445566ff");
    let ended = rig.get(&path).await.expect(200);
    assert_eq!(
        (&ended["exitCode"], ended.get("outcome")),
        (&json!(0), None)
    );
}

#[tokio::test]
async fn what_keeps_a_box_awake_says_how_many_commands_run() {
    let rig = Rig::new().await;
    let id = rig.ready_box().await;
    let label = async || rig.status(id).await["freeze"]["blockedBy"][0]["label"].clone();
    for (count, expected) in [(1, "hang"), (2, "hang and 1 more"), (3, "hang and 2 more")] {
        let hang = json!({ "cmd": "hang", "background": true });
        rig.client().exec(id, hang).await.expect(200);
        rig.until_background(id, count).await;
        assert_eq!(label().await, expected);
    }
}
