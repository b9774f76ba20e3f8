//! What `icebox serve` says at the start: at a terminal a link that signs in, in a log none. Needs root and what
//! `scripts/bootstrap` installs.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

/// Starts a server that tells where `told` leads.
fn serve(data: &tempfile::TempDir, told: Stdio) -> Child {
    Command::new(env!("CARGO_BIN_EXE_icebox"))
        .arg("serve")
        .arg("--data")
        .arg(data.path())
        .args(["--listen", "127.0.0.1:0"])
        // Its own key counts, whatever else is at hand.
        .env("ICEBOX_API_KEY", "e2b_of_another_server")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(told)
        .spawn()
        .expect("the server starts")
}

fn end(mut server: Child) {
    kill_process(Pid::from_child(&server), Signal::TERM).expect("it can be asked to end");
    assert!(server.wait().expect("it ends").success());
}

#[test]
fn box_serve_prints_a_link_that_signs_in_at_a_terminal() {
    let data = tempfile::tempdir_in("/var/tmp").expect("a folder");
    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
    grantpt(&terminal).expect("a terminal");
    unlockpt(&terminal).expect("a terminal");
    let name = ptsname(&terminal, Vec::new()).expect("its name");
    let name = name.to_str().expect("its name");
    let far = File::options().read(true).write(true).open(name);
    let server = serve(&data, far.expect("its other end").into());
    let link = BufReader::new(File::from(terminal))
        .lines()
        .map_while(Result::ok)
        .find_map(|line| Some(line.trim().to_owned()).filter(|line| line.contains("#token=")))
        .expect("a link");
    let (url, token) = link.split_once("/app#token=").expect("a link");
    let sign_in = || {
        ureq::post(format!("{url}/v1/session"))
            .header("content-type", "application/json")
            .header("x-icebox-csrf", "1")
            .config()
            .http_status_as_error(false)
            .build()
            .send(format!("{{\"token\": \"{token}\"}}"))
            .expect("an answer")
    };
    let signed_in = sign_in();
    assert_eq!(signed_in.status(), 200);
    assert!(signed_in.headers().contains_key("set-cookie"));
    assert_eq!(sign_in().status(), 401, "it is good once");
    end(server);
}

#[test]
fn box_serve_writes_no_link_into_a_log() {
    let data = tempfile::tempdir_in("/var/tmp").expect("a folder");
    let mut server = serve(&data, Stdio::piped());
    let log = server.stderr.take().expect("its log");
    let mut lines = BufReader::new(log).lines().map_while(Result::ok);
    let mut said: Vec<String> = Vec::new();
    while !said
        .last()
        .is_some_and(|line| line.contains("serving address"))
    {
        said.push(lines.next().expect("it serves"));
    }
    end(server);
    said.extend(lines);
    let said = said.join("\n");
    assert!(!said.contains("token"), "{said}");
}
