//! Rules 4.12, 5.3 and 14.5 on a real box with the test clock: an account runs out under a command, which stands still with
//! its box and goes on when there are credits again. Nothing is charged twice, whatever happens to the server.

use std::time::Duration;

use serde_json::{Value, json};
use xtask::harness::{Answer, Instance, until};

/// Says every number once, for good.
const COUNTER: &str =
    "i=0; while :; do i=$((i+1)); echo $i; echo $i >/work/count; sleep 0.02; done";

const MIN: u64 = 60;

fn advance(instance: &Instance, sec: u64) {
    let by = json!({ "advanceSec": sec });
    instance.post("/v1/test/clock", by).expect("time moves");
}

fn credits(instance: &Instance, change: Value) {
    let path = "/v1/accounts/default/credits";
    instance.post(path, change).expect("credits");
}

/// What is left and used.
fn account(instance: &Instance) -> (f64, f64) {
    let account = instance.get("/v1/account").expect("the account");
    let amount = |field: &str| account["credits"][field].as_f64().expect("an amount");
    (amount("left"), amount("used"))
}

fn refused(answer: &Answer) {
    let said = (answer.status, &answer.body["code"]);
    assert_eq!(said, (402, &json!("no_credits")), "{answer:?}");
}

fn post(instance: &Instance, path: &str, body: &Value) -> Answer {
    instance.ask("POST", path, Some(body)).expect("an answer")
}

#[test]
fn box_runs_out_of_credits_under_a_command_that_goes_on_when_there_are_some() {
    let mut instance = Instance::new("credits", true).expect("a data folder");
    instance.start(&[]).expect("a server");
    // It costs 0.375 credits an hour: there are 40 minutes.
    credits(&instance, json!({ "add": 0.25 }));
    let size = json!({ "size": { "cpus": 1, "memoryMb": 512 } });
    let id = instance.start_box(size).expect("a box");
    let path = format!("/v1/boxes/{id}");
    let run = json!({ "cmd": COUNTER, "timeoutSec": 3_600 });
    let exec = format!("{path}/exec");
    let exec = std::thread::scope(|scope| {
        let counter = scope.spawn(|| post(&instance, &exec, &run));
        let counts = || Ok(instance.exec(&id, "test -s /work/count").ok());
        until(Duration::from_secs(30), counts).expect("it counts");
        advance(&instance, 40 * MIN - 1);
        assert_eq!(instance.status(&id).expect("a status"), "ready");
        advance(&instance, 1);
        counter.join().expect("an answer")
    });
    refused(&exec);
    let exec = exec.body["execId"].as_str().expect("an execId").to_owned();

    let view = instance.get(&path).expect("a status");
    assert_eq!(view["status"], "frozen", "{view}");
    assert_eq!(view["keeps"], "files_and_memory", "{view}");
    assert_eq!(account(&instance), (0.0, 0.25));
    refused(&post(&instance, &format!("{path}/wake"), &json!({})));
    let run = json!({ "cmd": "true" });
    refused(&post(&instance, &format!("{path}/exec"), &run));
    refused(&post(&instance, "/v1/boxes", &json!({})));
    instance.kill().expect("a crash");
    instance.start(&[]).expect("a server");
    advance(&instance, 60 * MIN);
    assert_eq!(account(&instance), (0.0, 0.25), "it costs nothing");

    credits(&instance, json!({ "add": 1 }));
    assert_eq!(instance.status(&id).expect("a status"), "frozen");
    post(&instance, &format!("{path}/wake"), &json!({}))
        .ok()
        .expect("it wakes");
    let before = instance.exec(&id, "cat /work/count").expect("the count");
    let goes_on = format!("test $(cat /work/count) -gt {}", before.trim());
    let counts = || Ok(instance.exec(&id, &goes_on).ok());
    until(Duration::from_secs(30), counts).expect("it counts on");
    let output = format!("{path}/procs/{exec}/output");
    let answer = instance.ask("GET", &output, None).expect("the output");
    // A single number would be read as JSON; there are many.
    let text = answer.body.as_str().expect("text");
    let whole = text
        .lines()
        .zip(1_u64..)
        .all(|(line, n)| line == n.to_string());
    assert!(whole, "a number is missing or came twice: {text}");

    // A crash while it runs: up to here it was charged, and once.
    advance(&instance, 8 * MIN);
    // What a test clock showed last is known to the next server once something was recorded at that time.
    instance.exec(&id, "true").expect("a call");
    instance.kill().expect("a crash");
    instance.start(&[]).expect("a server");
    let (left, used) = account(&instance);
    assert_eq!((left, used), (0.95, 0.3));
    post(&instance, &format!("{path}/stop"), &json!({}))
        .ok()
        .expect("it stops");
    assert_eq!(account(&instance), (0.95, 0.3));
    let left = instance.leftovers(std::slice::from_ref(&id));
    assert!(left.is_empty(), "left behind:\n{}", left.join("\n"));
    instance.stop().expect("the server ends");
}
