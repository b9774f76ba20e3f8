//! What others have written down of HTTP, against the edge with a real program in a real box: AWS's collection of requests
//! that servers disagree about (`http_desync_guardian`, HTTP/1.1), and the tests of RFC 9113 that replace h2spec
//! (`httpwg`, HTTP/2). Both are read from where cargo keeps these crates; none of it is copied here.
//!
//! What does not come out as they have it stands in a table, with the reason.

mod http1;
mod http2;

use std::time::Duration;

use serde_json::json;
use xtask::harness::{Instance, until};

/// The port of the program in the box.
const PORT: u16 = 3000;

/// A server, and a box with a program that records what it gets.
struct Recorded {
    instance: Instance,
    /// The box's host and the server's port.
    host: String,
    port: u16,
}

impl Recorded {
    fn new(name: &str) -> Self {
        let mut instance = Instance::new(name, false).expect("a data folder");
        instance.start(&[]).expect("a server");
        let id = instance.start_box(json!({})).expect("a box");
        let recorder = include_str!("recorder.py");
        let run = format!("cat >recorder.py <<'END'\n{recorder}END\nexec python3 recorder.py");
        let path = format!("/v1/boxes/{id}/exec");
        let started = instance.post(&path, json!({ "cmd": run, "background": true }));
        started.expect("the program");
        let listens = format!("(exec 3<>/dev/tcp/127.0.0.1/{PORT}) 2>/dev/null");
        until(Duration::from_secs(60), || {
            Ok(instance.exec(&id, &listens).ok())
        })
        .expect("the program listens");
        let (address, _) = instance.address().expect("its address");
        let port = address.rsplit(':').next().expect("a port");
        Self {
            port: port.parse().expect("a port"),
            host: format!("{PORT}-{id}.localhost"),
            instance,
        }
    }
}
