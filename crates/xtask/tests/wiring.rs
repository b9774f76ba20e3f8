//! Names in real boxes: where they lead is what was said, before a freeze and after it, and a dump knows nothing of it
//! (rules 4.2, 5.1, 5.6, 5.10).

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use serde_json::{Value, json};
use xtask::harness::{Instance, until};

/// Says who it is to whoever sends a line.
const ECHO: &str = r#"require("net").createServer((socket) => {
  socket.on("data", (line) => socket.write(process.env.WHO + " heard " + line));
  socket.on("error", () => {});
}).listen(Number(process.env.PORT), "127.0.0.1");"#;

/// Keeps a connection open, and notes when it ends.
const HOLDER: &str = r#"const fs = require("fs");
const socket = require("net").connect(5432, "db", () => socket.write("hello\n"));
socket.on("data", () => fs.writeFileSync("/work/open", ""));
socket.on("error", () => {});
socket.on("close", () => fs.writeFileSync("/work/closed", ""));
setInterval(() => {}, 1000);"#;

/// Says `line` to `place` and gives what comes back.
fn asks(instance: &Instance, id: &str, place: &str, line: &str) -> String {
    let (host, port) = place.split_once(':').expect("a port");
    let cmd = format!(
        "timeout 60 bash -c 'exec 3<>/dev/tcp/{host}/{port}; echo {line} >&3; head -n 1 <&3'"
    );
    let heard = instance.exec(id, &cmd);
    heard.unwrap_or_else(|error| panic!("{place}: {error:#}"))
}

/// Starts a program of node's that goes on running, and waits until it listens.
fn runs(instance: &Instance, id: &str, program: &str, env: Value, port: Option<u16>) {
    let cmd = format!("exec node -e '{}'", program.replace('\'', "'\\''"));
    let mut request = json!({ "cmd": cmd, "background": true, "env": env });
    if let Some(port) = port {
        request["readyPort"] = port.into();
    }
    let path = format!("/v1/boxes/{id}/exec");
    instance.post(&path, request).expect("the program");
}

fn wire(instance: &Instance, id: &str, body: Value) -> Value {
    let path = format!("/v1/boxes/{id}/wire");
    instance.post(&path, body).expect("wired")
}

fn status(instance: &Instance, id: &str) -> Value {
    let path = format!("/v1/boxes/{id}");
    instance.get(&path).expect("its status")
}

/// Listens on this machine and answers each connection with a line, or with what `says` makes of its first one.
fn listener(says: impl Fn(&str) -> String + Send + 'static) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("its address").port();
    std::thread::spawn(move || {
        // It ends with the test.
        for stream in listener.incoming().flatten() {
            answer(stream, &says);
        }
    });
    port
}

fn answer(mut stream: TcpStream, says: &impl Fn(&str) -> String) {
    let mut line = String::new();
    let copy = stream.try_clone().expect("the same connection");
    let read = BufReader::new(copy).read_line(&mut line);
    if read.is_ok_and(|read| read > 0) {
        // A client that is gone hears nothing.
        let _ = stream.write_all(says(line.trim()).as_bytes());
    }
}

#[test]
fn box_names_lead_where_they_were_wired_before_and_after_a_freeze() {
    let mut instance = Instance::new("wiring", true).expect("a data folder");
    instance.start(&[]).expect("a server");
    let elsewhere = listener(|line| {
        let said = format!("elsewhere was asked {line}");
        format!(
            "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{said}",
            said.len()
        )
    });
    let target = instance.start_box(json!({})).expect("a box");
    runs(
        &instance,
        &target,
        ECHO,
        json!({"WHO": "target", "PORT": "5432"}),
        Some(5432),
    );
    let services = json!([
        {"name": "db", "port": 5432, "fromBox": target},
        {"name": "web", "port": 80, "targetPort": 3001},
    ]);
    let source = instance
        .start_box(json!({ "services": services }))
        .expect("a box");
    instance
        .exec(&source, "echo '10.9.9.9 mine' >>/etc/hosts")
        .expect("its own name");
    runs(
        &instance,
        &source,
        ECHO,
        json!({"WHO": "source", "PORT": "3001"}),
        Some(3001),
    );
    let api = json!({"service": "api", "port": 8000, "externalBaseUrl": format!("http://127.0.0.1:{elsewhere}/v2")});
    let wired = wire(&instance, &source, api);
    for service in wired["services"].as_array().expect("services") {
        assert_eq!(service.get("lastError"), None, "{service}");
    }

    let check = |instance: &Instance| {
        assert_eq!(
            asks(instance, &source, "db:5432", "hi"),
            "target heard hi\n"
        );
        assert_eq!(
            asks(instance, &source, "localhost:5432", "hi"),
            "target heard hi\n"
        );
        assert_eq!(asks(instance, &source, "web:80", "hi"), "source heard hi\n");
        let fetch = "timeout 60 node -e 'fetch(\"http://api:8000/x?y=1\").then((r) => r.text()).then(console.log)'";
        let said = instance.exec(&source, fetch).expect("an answer");
        assert_eq!(said, "elsewhere was asked GET /v2/x?y=1 HTTP/1.1\n");
        let names = instance.exec(&source, "cat /etc/hosts").expect("its names");
        assert!(
            names.contains("localhost") && names.contains("10.9.9.9 mine\n"),
            "{names}"
        );
        assert_eq!(
            names.matches("127.0.0.1 db # icebox\n").count(),
            1,
            "{names}"
        );
        assert_eq!(names.matches("# icebox").count(), 3, "{names}");
    };
    check(&instance);

    // A connection that is open while its box is dumped.
    runs(&instance, &source, HOLDER, json!({}), None);
    let opened = "timeout 60 bash -c 'until [ -e /work/open ]; do sleep 0.01; done'";
    instance.exec(&source, opened).expect("an open connection");
    let holds = status(&instance, &target)["freeze"]["blockedBy"].clone();
    assert_eq!(holds[0]["kind"], "link", "{holds}");
    instance
        .post(&format!("/v1/boxes/{source}/freeze"), json!({}))
        .expect("a freeze");
    let shown = status(&instance, &source);
    assert_eq!(
        (&shown["status"], &shown["tier"]),
        (&json!("frozen"), &json!("disk")),
        "{shown}"
    );
    assert_eq!(shown.get("snapshotError"), None);
    instance
        .post(&format!("/v1/boxes/{target}/freeze"), json!({}))
        .expect("a freeze: nothing holds it");

    // The first call after the thaw finds everything in place, and the other box wakes for it.
    check(&instance);
    assert_eq!(instance.status(&target).expect("a status"), "ready");
    let why = status(&instance, &target)["why"].to_string();
    assert!(why.contains("another box connected to it"), "{why}");
    let closed = "timeout 60 bash -c 'until [ -e /work/closed ]; do sleep 0.01; done'";
    instance
        .exec(&source, closed)
        .expect("the old connection has ended");

    // Another server finds the boxes running, and opens what they had.
    instance.kill().expect("a crash");
    instance.start(&[]).expect("another server");
    until(Duration::from_secs(60), || {
        let shown = status(&instance, &source);
        Ok((shown["links"][0]["status"] == "listening").then_some(()))
    })
    .expect("the names are back");
    check(&instance);

    // A program of the box's own gets the port once the name is its own again.
    wire(&instance, &source, json!({"service": "db", "mode": "box"}));
    runs(
        &instance,
        &source,
        ECHO,
        json!({"WHO": "own", "PORT": "5432"}),
        Some(5432),
    );
    assert_eq!(asks(&instance, &source, "db:5432", "hi"), "own heard hi\n");
    let back = wire(
        &instance,
        &source,
        json!({"service": "db", "fromBox": target}),
    );
    let error = back["services"][0]["lastError"].as_str().expect("an error");
    assert!(error.contains("listens on port 5432 itself"), "{error}");

    for id in [&source, &target] {
        instance
            .post(&format!("/v1/boxes/{id}/stop"), json!({}))
            .expect("a stop");
    }
    assert_eq!(instance.leftovers(&[source, target]), Vec::<String>::new());
}

#[test]
fn box_an_environment_lets_its_boxes_reach_exactly_its_endpoints() {
    let mut instance = Instance::new("endpoints", true).expect("a data folder");
    instance.start(&[]).expect("a server");
    let database = listener(|line| format!("database heard {line}\n"));
    let other = listener(|line| format!("other heard {line}\n"));
    instance
        .post("/v1/environments", json!({"name": "staging"}))
        .expect("an environment");
    let connection = json!({"name": "vpc", "endpoints": [format!("pg.test=127.0.0.1:{database}")]});
    let path = "/v1/environments/staging/connections";
    let made = instance.post(path, connection).expect("a connection");
    assert_eq!(made["online"], true, "{made}");
    let id = instance
        .start_box(json!({"environment": "staging"}))
        .expect("a box");
    let place = format!("pg.test:{database}");
    assert_eq!(asks(&instance, &id, &place, "hi"), "database heard hi\n");
    for place in [
        format!("pg.test/{other}"),
        format!("127.0.0.1/{database}"),
        format!("127.0.0.1/{other}"),
    ] {
        let cmd = format!("! timeout 10 bash -c 'exec 3<>/dev/tcp/{place}' 2>/dev/null");
        instance.exec(&id, &cmd).expect("nothing else is there");
    }
    instance
        .post(&format!("/v1/boxes/{id}/freeze"), json!({}))
        .expect("a freeze");
    let shown = status(&instance, &id);
    assert_eq!(
        (shown["tier"].as_str(), shown.get("snapshotError")),
        (Some("disk"), None)
    );
    assert_eq!(
        asks(&instance, &id, &place, "again"),
        "database heard again\n"
    );
    instance
        .post(&format!("/v1/boxes/{id}/stop"), json!({}))
        .expect("a stop");
    assert_eq!(instance.leftovers(&[id]), Vec::<String>::new());
}
