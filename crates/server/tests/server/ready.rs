//! Servers in the background that are waited for: a port, a line, both, neither in time, and a program that ends first.

use serde_json::{Value, json};

use crate::mcp::Agent;
use crate::program::Program;
use crate::rig::Rig;

fn background(id: &str, cmd: &str, more: Value) -> Value {
    let mut run = json!({"id": id, "cmd": cmd, "note": "serve", "background": true});
    for (name, value) in more.as_object().unwrap() {
        run[name] = value.clone();
    }
    run
}

#[tokio::test]
async fn a_line_a_port_or_both_make_a_server_ready() {
    let rig = Rig::new().await;
    let agent = Agent::new(&rig, "one");
    let id = agent.start().await;
    let box_id = icebox_lifecycle::BoxId::parse(&id).unwrap();
    let line = background(&id, "hang", json!({"readyLog": "angin"}));
    let up = agent.works("sandbox_exec", line).await;
    assert_eq!((&up["ready"], up["bgId"].is_string()), (&json!(true), true));

    let closed = json!({"readyPort": 3000, "readySec": 1});
    let not = agent
        .works("sandbox_exec", background(&id, "hang", closed))
        .await;
    assert_eq!(not["ready"], false, "{not}");
    let wait = json!({
        "id": id, "action": "wait", "bgId": not["bgId"], "until": "ready", "readyPort": 3000, "readyLog": "hanging",
        "waitSec": 30,
    });
    let waiting = agent.works("sandbox_procs", wait);
    let opens = async {
        let program = Program::on(&rig, box_id, 3000).await;
        program.accept().await;
    };
    let (up, ()) = tokio::join!(waiting, opens);
    assert_eq!((&up["ready"], &up["running"]), (&json!(true), &json!(true)));
    let shown = rig.status(box_id).await;
    let kinds: Vec<_> = shown["steps"].as_array().unwrap().iter().collect();
    assert_eq!(kinds.len(), 3, "a start and two commands: {shown}");
    let path = format!(
        "/v1/boxes/{id}/procs/{}?readyLog=hanging",
        not["bgId"].as_str().unwrap()
    );
    let up = rig.get(&path).await.expect(200);
    assert_eq!(up["ready"], true);
}

#[tokio::test]
async fn a_program_that_ends_first_says_how_and_what_it_wrote() {
    let rig = Rig::new().await;
    let agent = Agent::new(&rig, "one");
    let id = agent.start().await;
    let run = background(&id, "nosuch", json!({"readyPort": 3000}));
    let (text, fields) = agent.fails("sandbox_exec", run).await;
    assert!(text.contains("exited with code 127"), "{text}");
    assert!(text.contains("nosuch: command not found"), "{text}");
    assert_eq!(
        (&fields["code"], &fields["exitCode"], &fields["ready"]),
        (&json!("not_ready"), &json!(127), &json!(false))
    );
    assert_eq!(fields["stderr"], "nosuch: command not found\n");
    // What a program wrote before it ended counts: it may have gone into the background.
    let run = background(&id, "echo up and away", json!({"readyLog": "up and"}));
    assert_eq!(agent.works("sandbox_exec", run).await["ready"], true);
    let rest = json!({"cmd": "false", "background": true, "readyLog": "never"});
    let path = format!("/v1/boxes/{id}/exec");
    let said = rig.post(&path, rest).await.error(409, "not_ready");
    assert!(said.contains("a line with `never`"), "{said}");
}

#[tokio::test]
async fn a_text_is_found_in_the_middle_of_a_long_line() {
    let rig = Rig::new().await;
    let agent = Agent::new(&rig, "one");
    let id = agent.start().await;
    let text = format!("echo {}ready{}", "x".repeat(60_000), "y".repeat(60_000));
    let run = background(&id, &text, json!({"readyLog": "xready"}));
    assert_eq!(agent.works("sandbox_exec", run).await["ready"], true);
}

#[tokio::test]
async fn what_cannot_be_waited_for_is_refused_and_nothing_runs() {
    let rig = Rig::new().await;
    let agent = Agent::new(&rig, "one");
    let id = agent.start().await;
    for (more, said) in [
        (json!({"readyPort": 0}), "`readyPort` must be"),
        (json!({"readyPort": 70000}), "`readyPort` must be"),
        (json!({"readyPort": 49983}), "`readyPort` must be"),
        (json!({"readyLog": ""}), "`readyLog` must be"),
        (json!({"readyLog": "a\nb"}), "`readyLog` must be"),
        (json!({"readyLog": "x".repeat(1001)}), "`readyLog` must be"),
        (json!({"readySec": 5}), "given together"),
        (json!({"readyPort": 1, "readySec": 301}), "1 to 300"),
        (
            json!({"readyPort": 1, "background": false}),
            "go with `background`",
        ),
    ] {
        let (text, _) = agent
            .fails("sandbox_exec", background(&id, "hang", more.clone()))
            .await;
        assert!(text.contains(said), "{more}: {text}");
    }
    for (more, said) in [
        (json!({"until": "ready"}), "say what counts"),
        (
            json!({"until": "end", "readyPort": 1}),
            "`until` must be `ready`",
        ),
        (json!({"until": "never"}), "`until` must be"),
        (json!({"readyPort": -1}), "`readyPort` must be"),
    ] {
        let mut wait = json!({"id": id, "action": "wait", "bgId": "0011223344556677"});
        for (name, value) in more.as_object().unwrap() {
            wait[name] = value.clone();
        }
        let (text, _) = agent.fails("sandbox_procs", wait).await;
        assert!(text.contains(said), "{more}: {text}");
    }
    let listed = agent
        .works("sandbox_procs", json!({"id": id, "all": true}))
        .await;
    assert_eq!(listed["procs"], json!([]));
}
