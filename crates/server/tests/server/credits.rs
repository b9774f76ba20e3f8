//! Rules 4.12, 5.3 and 14.5 through the API: what box time costs, and what becomes of boxes when an account runs out. A
//! box of the default size costs a credit an hour.

use axum::http::Method;
use icebox_lifecycle::state::TakeoverCause;
use icebox_lifecycle::{BoxId, Event};
use icebox_server::driver::fake::{Behaviour, Gate, Step};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::rig::{Answer, HOUR, MIN, Rig, RigClient};

impl Rig {
    /// Changes the credits of the account `default`.
    async fn credits(&self, change: Value) -> Value {
        let path = "/v1/accounts/default/credits";
        self.post(path, change).await.expect(200)
    }

    async fn account(&self) -> Value {
        self.get("/v1/account").await.expect(200)
    }

    async fn left(&self) -> f64 {
        self.account().await["credits"]["left"].as_f64().unwrap()
    }

    async fn used(&self) -> f64 {
        self.account().await["credits"]["used"].as_f64().unwrap()
    }

    /// A box that nothing freezes but a lack of credits.
    async fn restless_box(&self) -> BoxId {
        self.box_with(json!({ "policy": { "freezeAfterSec": null } }))
            .await
    }

    /// Begins a command that does not end by itself.
    async fn hang(&self, id: BoxId) -> JoinHandle<Answer> {
        let hangs = self.later(id, "hang");
        self.until_running(id).await;
        hangs
    }

    /// Runs a command in a task.
    fn later(&self, id: BoxId, cmd: &str) -> JoinHandle<Answer> {
        let (client, body) = (self.client(), json!({ "cmd": cmd, "timeoutSec": 3_600 }));
        tokio::spawn(async move { client.exec(id, body).await })
    }

    async fn wake(&self, id: BoxId) -> Answer {
        self.post(&format!("/v1/boxes/{id}/wake"), json!({})).await
    }

    /// The rules behind the last decisions.
    async fn rules(&self, id: BoxId) -> Vec<String> {
        let shown = self.status(id).await;
        let why = shown["why"].as_array().unwrap().iter();
        why.map(|why| why["rule"].as_str().unwrap().to_owned())
            .collect()
    }

    /// What is stored of the credits of the account `default`: what is left and used, in millionths.
    fn stored(&self) -> (Option<i64>, i64) {
        let db = rusqlite::Connection::open(self.data().join("icebox.db")).unwrap();
        let sql = "SELECT left_micro, used_micro FROM credits WHERE account = 1";
        db.query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?)))
            .unwrap()
    }
}

#[tokio::test]
async fn an_account_is_unlimited_until_somebody_says_otherwise() {
    let rig = Rig::new().await;
    let account = rig.account().await;
    assert_eq!(account["account"], "default");
    assert_eq!(
        account["credits"],
        json!({ "unlimited": true, "used": 0.0, "perHour": 0.0 })
    );
    rig.restless_box().await;
    rig.advance(90 * MIN).await;
    let credits = json!({ "unlimited": true, "used": 1.5, "perHour": 1.0 });
    assert_eq!(rig.account().await["credits"], credits);
    let shown = rig.credits(json!({ "add": 2 })).await;
    assert_eq!(shown["credits"]["left"], 2.0, "from now on");
    assert_eq!(shown["boxes"], json!({ "active": 1, "stopped": 0 }));
    let shown = rig.credits(json!({ "left": 0.25 })).await;
    assert_eq!(shown["credits"]["left"], 0.25);
    let shown = rig.credits(json!({ "unlimited": true })).await;
    assert_eq!(shown["credits"], credits);
    rig.advance(24 * HOUR).await;
    assert_eq!(rig.used().await, 25.5);
}

#[tokio::test]
async fn at_zero_a_box_freezes_under_a_call_that_is_answered_402_and_goes_on_later() {
    let rig = Rig::new().await;
    rig.credits(json!({ "add": 0.5 })).await;
    let id = rig.ready_box().await;
    rig.exec(id, "remember me").await.expect(200);
    let hangs = rig.hang(id).await;
    let runs_out = rig.account().await["credits"]["runsOutAt"].clone();
    rig.advance(30 * MIN - 1).await;
    assert_eq!(rig.state(id).await, "ready");
    rig.advance(1).await;
    let now = rig.get("/v1/test/clock").await.expect(200)["now"].clone();
    assert_eq!(runs_out, now, "at the moment it said");

    let refused = hangs.await.unwrap();
    let exec = refused.json["execId"].as_str().unwrap().to_owned();
    let text = refused.error(402, "no_credits");
    assert!(text.contains("icebox key credits ACCOUNT --add"), "{text}");
    let shown = rig.status(id).await;
    assert_eq!(shown["status"], "frozen");
    assert_eq!(shown["keeps"], "files_and_memory");
    assert_eq!(rig.left().await, 0.0);

    rig.exec(id, "true").await.error(402, "no_credits");
    rig.wake(id).await.error(402, "no_credits");
    let start = rig.post("/v1/boxes", json!({})).await;
    start.error(402, "no_credits");
    rig.get("/v1/boxes").await.expect(200);
    rig.advance(2 * HOUR).await;
    assert_eq!(rig.left().await, 0.0, "frozen time is free");

    rig.credits(json!({ "add": 1 })).await;
    assert_eq!(rig.state(id).await, "frozen", "nothing wakes by itself");
    rig.wake(id).await.expect(200);
    assert_eq!(rig.fake.running_commands(id), [exec.as_str()]);
    assert_eq!(rig.exec(id, "recall").await.expect(200)["stdout"], "me");
    rig.fake.finish(id, &exec);
    let output = format!("/v1/boxes/{id}/procs/{exec}/output");
    assert_eq!(rig.get(&output).await.bytes, "hanging\n");
    let proc = format!("/v1/boxes/{id}/procs/{exec}");
    assert_eq!(rig.get(&proc).await.expect(200)["exitCode"], 0);
}

#[tokio::test]
async fn everything_that_holds_a_box_gives_way() {
    let rig = Rig::new().await;
    rig.credits(json!({ "left": 1 })).await;
    let (taken, linked) = (rig.ready_box().await, rig.ready_box().await);
    let background = rig.ready_box().await;
    let until = rig.commands().clock().now() + 3 * 3_600_000;
    let cause = TakeoverCause::Person;
    let began = Event::TakeoverBegan { cause, until };
    rig.engine().tell(taken, began).await.unwrap();
    let opened = Event::LinkOpened { from: taken };
    rig.engine().tell(linked, opened).await.unwrap();
    let dev = json!({ "cmd": "hang", "background": true });
    rig.client().exec(background, dev).await.expect(200);
    // Three boxes cost three credits an hour.
    rig.advance(20 * MIN - 1).await;
    for id in [taken, linked, background] {
        assert_ne!(rig.state(id).await, "frozen");
    }
    rig.advance(1).await;
    for id in [taken, linked, background] {
        assert_eq!(rig.state(id).await, "frozen");
        assert!(rig.rules(id).await.contains(&"4.12".to_owned()));
    }
}

#[tokio::test]
async fn accounts_are_apart() {
    let mut rig = Rig::new().await;
    let other = rig.other_account().await;
    rig.credits(json!({ "left": 0.25 })).await;
    let restless = json!({ "policy": { "freezeAfterSec": null } });
    let theirs = other.post("/v1/boxes", restless).await.expect(201);
    let theirs = BoxId::parse(theirs["id"].as_str().unwrap()).unwrap();
    let mine = rig.restless_box().await;
    rig.advance(HOUR).await;
    assert_eq!(rig.state(mine).await, "frozen");
    let run = json!({ "cmd": "true" });
    other.exec(theirs, run).await.expect(200);
    let shown = other.call(Method::GET, "/v1/account", None).await;
    let credits = json!({ "unlimited": true, "used": 1.0, "perHour": 1.0 });
    assert_eq!(shown.expect(200)["credits"], credits);
}

/// Sends `begin`, takes the last credit while `step` is held, and opens it: everything that was begun is over then.
async fn broke_at(
    rig: &Rig,
    step: Step,
    begin: impl AsyncFnOnce() -> Vec<JoinHandle<Answer>>,
) -> Vec<Answer> {
    let gate = Gate::default();
    rig.fake.next(step, Behaviour::HoldBefore(gate.clone()));
    let begun = begin().await;
    gate.reached().await;
    rig.credits(json!({ "left": 0 })).await;
    gate.open();
    let mut answers = Vec::new();
    for answer in begun {
        answers.push(answer.await.unwrap());
    }
    answers
}

#[tokio::test]
async fn in_the_middle_of_a_freeze_a_call_that_waits_for_it_is_answered_402() {
    let rig = Rig::new().await;
    let id = rig.ready_box().await;
    rig.exec(id, "remember me").await.expect(200);
    let answers = broke_at(&rig, Step::Freeze, async || {
        let client = rig.client();
        let freeze = format!("/v1/boxes/{id}/freeze");
        let freeze = tokio::spawn(async move { client.post(&freeze, json!({})).await });
        rig.until(id, "freezing").await;
        let waits = rig.later(id, "true");
        rig.until_called(id).await;
        vec![waits, freeze]
    })
    .await;
    let [waited, frozen] = answers.try_into().unwrap();
    assert!(waited.json["execId"].is_string(), "{}", waited.json);
    waited.error(402, "no_credits");
    frozen.expect(200);
    recovers(&rig, id).await;
}

#[tokio::test]
async fn in_the_middle_of_a_thaw_the_box_freezes_again() {
    for step in [Step::Thaw, Step::Release] {
        let rig = Rig::new().await;
        let id = rig.ready_box().await;
        rig.exec(id, "remember me").await.expect(200);
        rig.freeze(id).await.expect(200);
        let answers = broke_at(&rig, step, async || vec![rig.later(id, "true")]).await;
        for answer in answers {
            assert!(answer.json["execId"].is_string(), "{}", answer.json);
            answer.error(402, "no_credits");
        }
        recovers(&rig, id).await;
    }
}

#[tokio::test]
async fn in_the_middle_of_a_start_the_box_is_there_and_frozen() {
    let rig = Rig::new().await;
    let answers = broke_at(&rig, Step::Boot, async || {
        let client = rig.client();
        let start = async move { client.post("/v1/boxes", json!({})).await };
        vec![tokio::spawn(start)]
    })
    .await;
    let [started] = answers.try_into().unwrap();
    let id = BoxId::parse(started.json["box"].as_str().unwrap()).unwrap();
    started.error(402, "no_credits");
    rig.until(id, "frozen").await;
    rig.credits(json!({ "add": 1 })).await;
    rig.exec(id, "true").await.expect(200);
}

/// A box that ran out is frozen with its memory, and wakes once there are credits.
async fn recovers(rig: &Rig, id: BoxId) {
    rig.until(id, "frozen").await;
    rig.wake(id).await.error(402, "no_credits");
    rig.credits(json!({ "add": 1 })).await;
    assert_eq!(rig.exec(id, "recall").await.expect(200)["stdout"], "me");
}

#[tokio::test]
async fn in_the_same_instant_as_an_idle_freeze_the_credits_are_the_reason() {
    let rig = Rig::new().await;
    rig.credits(json!({ "left": 0.5 })).await;
    let slow = json!({ "policy": { "freezeAfterSec": 1800 } });
    let id = rig.box_with(slow).await;
    rig.advance(30 * MIN).await;
    assert_eq!(rig.state(id).await, "frozen");
    let rules = rig.rules(id).await;
    assert!(
        rules.contains(&"4.12".to_owned()) && !rules.contains(&"4.1".to_owned()),
        "{rules:?}"
    );
    assert_eq!(rig.fake.count(Step::Freeze), 1);
}

#[tokio::test]
async fn a_use_at_that_instant_is_refused_and_credits_at_that_instant_help() {
    let rig = Rig::new().await;
    rig.credits(json!({ "left": 0.5 })).await;
    let id = rig.restless_box().await;
    rig.exec(id, "remember me").await.expect(200);
    let gate = Gate::default();
    rig.fake
        .next(Step::Freeze, Behaviour::HoldBefore(gate.clone()));
    let client = rig.client();
    let advance = json!({ "advanceSec": 30 * MIN });
    let moves = tokio::spawn(async move { client.post("/v1/test/clock", advance).await });
    gate.reached().await;
    // Time stands still at the very moment.
    assert_eq!(rig.state(id).await, "freezing");
    rig.exec(id, "true").await.error(402, "no_credits");
    rig.credits(json!({ "add": 1 })).await;
    let waits = rig.later(id, "recall");
    rig.until_called(id).await;
    gate.open();
    let done = waits.await.unwrap().expect(200);
    assert_eq!(done["stdout"], "me", "it waited for the freeze");
    moves.await.unwrap().expect(200);
    rig.advance(HOUR - 1).await;
    assert_eq!(rig.state(id).await, "ready");
    rig.advance(1).await;
    assert_eq!(rig.state(id).await, "frozen", "and so again an hour later");
}

#[tokio::test]
async fn a_freeze_that_fails_for_want_of_credits_is_tried_again_unless_some_are_added() {
    let rig = Rig::new().await;
    let id = rig.restless_box().await;
    let fails = || Behaviour::Fail("no space".into());
    rig.fake.next(Step::Freeze, fails());
    rig.credits(json!({ "left": 0 })).await;
    rig.until(id, "ready").await;
    rig.exec(id, "true").await.error(402, "no_credits");
    rig.advance(MIN).await;
    assert_eq!(rig.state(id).await, "frozen");
    assert!(rig.left().await < 0.0, "it ran that minute");

    rig.credits(json!({ "left": 1 })).await;
    rig.wake(id).await.expect(200);
    rig.fake.next(Step::Freeze, fails());
    rig.credits(json!({ "left": 0 })).await;
    rig.until(id, "ready").await;
    rig.credits(json!({ "left": 1 })).await;
    rig.advance(30 * MIN).await;
    assert_eq!(rig.state(id).await, "ready");
    rig.exec(id, "true").await.expect(200);
}

#[tokio::test]
async fn nothing_is_written_while_a_box_runs_and_each_stretch_is_charged_once() {
    let rig = Rig::new().await;
    rig.credits(json!({ "left": 100 })).await;
    let large = json!({ "size": { "cpus": 4, "memoryMb": 8192 } });
    let id = rig.box_with(large).await;
    let hangs = rig.hang(id).await;
    assert_eq!(rig.account().await["credits"]["perHour"], 3.0);
    rig.advance(2 * HOUR).await;
    assert_eq!(rig.left().await, 94.0);
    assert_eq!(rig.stored(), (Some(100_000_000), 0));
    let exec = rig.only_command(id);
    rig.fake.finish(id, &exec);
    hangs.await.unwrap().expect(200);
    rig.advance(10 * MIN).await;
    assert_eq!(rig.state(id).await, "frozen");
    assert_eq!(rig.stored(), (Some(93_500_000), 6_500_000));
    rig.advance(HOUR).await;
    assert_eq!(rig.left().await, 93.5);
    rig.stop(id).await.expect(200);
    assert_eq!(rig.stored(), (Some(93_500_000), 6_500_000));
}

#[tokio::test]
async fn everybody_is_told_half_an_hour_before() {
    let rig = Rig::new().await;
    rig.credits(json!({ "left": 1 })).await;
    let id = rig.restless_box().await;
    rig.advance(30 * MIN - 1).await;
    assert_eq!(
        rig.exec(id, "true").await.expect(200)["notices"],
        Value::Null
    );
    rig.advance(1).await;
    let runs_out = rig.account().await["credits"]["runsOutAt"].clone();
    let runs_out = runs_out.as_str().unwrap();
    let line = json!([format!(
        "account default: its credits run out at {runs_out} (in 30 minutes) if its boxes stay up; \
         then they freeze with their memory until some are added."
    )]);
    assert_eq!(rig.exec(id, "true").await.expect(200)["notices"], line);
    assert_eq!(rig.status(id).await["notices"], line);
    assert_eq!(rig.account().await["notices"], line);
    rig.advance(30 * MIN).await;
    let list = rig.get("/v1/boxes").await.expect(200);
    let text = list["notices"][0].as_str().unwrap();
    assert!(text.contains("out of credits"), "{text}");
    rig.credits(json!({ "add": 5 })).await;
    assert_eq!(rig.status(id).await["notices"], Value::Null);
}

#[tokio::test]
async fn a_restore_needs_credits() {
    let rig = Rig::new().await;
    let id = rig.ready_box().await;
    rig.exec(id, "remember me").await.expect(200);
    rig.advance(25 * HOUR).await;
    assert_eq!(rig.state(id).await, "terminated");
    rig.credits(json!({ "left": 0 })).await;
    let restore = json!({ "restore": id.as_str() });
    let refused = rig.post("/v1/boxes", restore.clone()).await;
    refused.error(402, "no_credits");
    rig.credits(json!({ "add": 1 })).await;
    rig.post("/v1/boxes", restore).await.expect(201);
    assert_eq!(rig.exec(id, "recall").await.expect(200)["stdout"], "me");
}

// ---- restarts ----------------------------------------------------------------

/// What an account has left in an engine alone, in credits.
fn left_in(engine: &icebox_server::engine::Engine, now: icebox_lifecycle::Time) -> f64 {
    let account = engine.accounts().find("default").unwrap();
    account.ledger.left(now).unwrap().micro() as f64 / 1e6
}

#[tokio::test]
async fn a_box_that_ran_while_the_server_was_down_is_charged_for_it_once() {
    let mut rig = Rig::new().await;
    rig.credits(json!({ "left": 6 })).await;
    let id = rig.restless_box().await;
    rig.advance(HOUR).await;
    rig.kill().await;
    for left in [3.0, 1.0] {
        let now = rig.last_seen() + 2 * 3_600_000;
        let engine = rig.engine_after(2 * 3_600_000).await;
        assert_eq!(left_in(&engine, now), left);
        let view = engine.views().get(id).unwrap();
        assert_eq!(view.sandbox.status().as_str(), "ready");
        engine.shut_down().await;
    }
}

#[tokio::test]
async fn an_account_that_ran_out_while_the_server_was_down_owes_what_ran() {
    let mut rig = Rig::new().await;
    rig.credits(json!({ "left": 2 })).await;
    let id = rig.restless_box().await;
    rig.exec(id, "remember me").await.expect(200);
    rig.advance(HOUR).await;
    rig.kill().await;
    let now = rig.last_seen() + 3 * 3_600_000;
    let engine = rig.engine_after(3 * 3_600_000).await;
    let frozen = engine
        .views()
        .wait_for(id, |view| match view.sandbox.status().as_str() {
            "frozen" => std::ops::ControlFlow::Break(()),
            _ => std::ops::ControlFlow::Continue(()),
        });
    frozen.await.unwrap();
    assert_eq!(left_in(&engine, now), -2.0);
    engine.shut_down().await;
    drop(engine);
    rig.start().await;
    assert_eq!(rig.left().await, -2.0);
    rig.credits(json!({ "add": 2 })).await;
    rig.wake(id).await.error(402, "no_credits");
    rig.credits(json!({ "add": 1 })).await;
    assert_eq!(rig.exec(id, "recall").await.expect(200)["stdout"], "me");
}

#[tokio::test]
async fn a_box_that_was_lost_with_its_host_is_not_charged_for_what_it_did_not_run() {
    let mut rig = Rig::new().await;
    rig.credits(json!({ "left": 2 })).await;
    let (lost, other) = (rig.restless_box().await, rig.frozen_box().await);
    rig.advance(HOUR).await;
    rig.kill().await;
    rig.fake.reboot();
    let now = rig.last_seen() + 72 * 3_600_000;
    let engine = rig.engine_after(72 * 3_600_000).await;
    assert_eq!(left_in(&engine, now), 1.0);
    let status = |id| engine.views().get(id).unwrap().sandbox.status();
    assert_eq!(status(lost).as_str(), "interrupted");
    assert_eq!(status(other).as_str(), "frozen");
    engine.shut_down().await;
}

#[tokio::test]
async fn killed_at_any_step_an_account_is_charged_once() {
    let holds: [fn(Gate) -> Behaviour; 2] = [Behaviour::HoldBefore, Behaviour::HoldAfter];
    for step in [Step::Freeze, Step::Evict] {
        for hold in holds {
            let mut rig = Rig::new().await;
            rig.credits(json!({ "left": 0.5 })).await;
            let id = rig.restless_box().await;
            rig.exec(id, "remember me").await.expect(200);
            let gate = Gate::default();
            rig.fake.next(step, hold(gate.clone()));
            let client = rig.client();
            let advance = json!({ "advanceSec": HOUR });
            // The server is killed under it, so there is no answer to wait for.
            drop(tokio::spawn(async move {
                client.post("/v1/test/clock", advance).await;
            }));
            gate.reached().await;
            rig.restart().await;
            rig.until(id, "frozen").await;
            let (left, used) = (rig.left().await, rig.used().await);
            assert_eq!((left, used), (0.0, 0.5), "{step:?}");
            recovers(&rig, id).await;
        }
    }
}

#[tokio::test]
async fn a_charge_that_cannot_be_written_is_made_later_and_once() {
    let rig = Rig::new().await;
    rig.credits(json!({ "left": 0.5 })).await;
    let id = rig.restless_box().await;
    rig.advance(30 * MIN - 1).await;
    let db = rusqlite::Connection::open(rig.data().join("icebox.db")).unwrap();
    db.execute_batch("BEGIN IMMEDIATE").unwrap();
    let client = rig.client();
    let advance = json!({ "advanceSec": 1 });
    let moves = tokio::spawn(async move { client.post("/v1/test/clock", advance).await });
    let refused = rig.post("/v1/accounts/default/credits", json!({ "add": 1 }));
    refused.await.error(500, "internal");
    db.execute_batch("ROLLBACK").unwrap();
    moves.await.unwrap().expect(200);
    // It is tried again a second later, for which the box is charged too.
    rig.advance(1).await;
    assert_eq!(rig.state(id).await, "frozen");
    let (left, used) = (rig.left().await, rig.used().await);
    assert!(-0.001 < left && left <= 0.0, "{left}");
    assert!((0.5..0.501).contains(&used), "{used}");
}

// ---- accounts and keys -------------------------------------------------------

fn with_key(client: RigClient, made: &Value) -> RigClient {
    client.with_key(made["key"].as_str())
}

#[tokio::test]
async fn an_admin_makes_accounts_and_keys_and_nobody_else_does() {
    let mut rig = Rig::new().await;
    let new = json!({ "name": "team-1", "credits": 3 });
    let made = rig.post("/v1/accounts", new.clone()).await.expect(201);
    let again = rig.post("/v1/accounts", new).await;
    let text = again.error(400, "bad_request");
    assert!(text.contains("already"), "{text}");
    let team = with_key(rig.client(), &made);
    let shown = team
        .call(Method::GET, "/v1/account", None)
        .await
        .expect(200);
    assert_eq!(shown["account"], "team-1");
    assert_eq!(shown["credits"]["left"], 3.0);
    let other = rig.post("/v1/accounts/team-1/keys", json!({})).await;
    let other = with_key(rig.client(), &other.expect(201));
    let started = team.post("/v1/boxes", json!({})).await.expect(201);
    let path = format!("/v1/boxes/{}", started["id"].as_str().unwrap());
    other.call(Method::GET, &path, None).await.expect(200);
    rig.get(&path).await.error(404, "not_found");

    for client in [&team, &other] {
        let change = json!({ "add": 1 });
        let path = "/v1/accounts/team-1/credits";
        client.post(path, change).await.error(403, "forbidden");
        let new = json!({ "name": "more" });
        client
            .post("/v1/accounts", new)
            .await
            .error(403, "forbidden");
        let keys = client.post("/v1/accounts/team-1/keys", json!({})).await;
        keys.error(403, "forbidden");
        let all = client.call(Method::GET, "/v1/accounts", None).await;
        all.error(403, "forbidden");
    }
    let nobody = rig.client().with_key(None);
    let all = nobody.call(Method::GET, "/v1/accounts", None).await;
    all.error(401, "unauthorized");
    for path in ["/v1/accounts/none/credits", "/v1/accounts/none/keys"] {
        let body = if path.ends_with("keys") {
            json!({})
        } else {
            json!({ "add": 1 })
        };
        rig.post(path, body).await.error(404, "not_found");
    }

    rig.restart().await;
    let all = rig.get("/v1/accounts").await.expect(200);
    let names: Vec<_> = all["accounts"].as_array().unwrap().iter().collect();
    assert_eq!(names.len(), 2);
    assert_eq!(all["accounts"][1]["account"], "team-1");
    let team = with_key(rig.client(), &made);
    team.call(Method::GET, &path, None).await.expect(200);
    let one = rig.get("/v1/accounts/team-1").await.expect(200);
    assert_eq!(one["boxes"]["active"], 1);
}

#[tokio::test]
async fn amounts_and_names_have_limits() {
    let rig = Rig::new().await;
    for (body, said) in [
        (json!({}), "exactly one"),
        (json!({ "add": 1, "unlimited": true }), "exactly one"),
        (json!({ "add": 0 }), "0.000001 to 1000000000"),
        (json!({ "add": -1 }), "0.000001 to 1000000000"),
        (json!({ "add": 1e300 }), "0.000001 to 1000000000"),
        (json!({ "add": "1" }), "0.000001 to 1000000000"),
        (json!({ "left": -0.1 }), "0 to 1000000000"),
        (json!({ "left": 1_000_000_001 }), "0 to 1000000000"),
        (json!({ "unlimited": false }), "true"),
        (json!({ "credits": 1 }), "add"),
    ] {
        let refused = rig.post("/v1/accounts/default/credits", body.clone());
        let text = refused.await.error(400, "bad_request");
        assert!(text.contains(said), "{body}: {text}");
    }
    rig.credits(json!({ "left": 1_000_000_000 })).await;
    let more = rig.post("/v1/accounts/default/credits", json!({ "add": 1 }));
    let text = more.await.error(400, "bad_request");
    assert!(text.contains("at most 1000000000"), "{text}");
    for name in ["", "Team", "a b", "../x", &"n".repeat(61)] {
        let refused = rig.post("/v1/accounts", json!({ "name": name })).await;
        let text = refused.error(400, "bad_request");
        assert!(text.contains("1 to 60"), "{name}: {text}");
    }
    let refused = rig.post("/v1/accounts", json!({ "credits": 1 })).await;
    refused.error(400, "bad_request");
}
