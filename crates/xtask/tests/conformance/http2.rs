//! HTTP/2 by RFC 9113, each test on a connection of its own.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::rc::Rc;
use std::time::Duration;

use buffet::IntoHalves;
use httpwg::{Config, Conn};
use tokio::net::TcpStream;
use tokio::task::{LocalSet, spawn_local};

use super::Recorded;

/// How long a test waits for a frame; some wait that long for none.
const FRAME_LIMIT: Duration = Duration::from_secs(5);

/// What does not come out as they have it.
struct Deviation {
    tests: &'static [&'static str],
    /// What they say then.
    says: &'static str,
    reason: &'static str,
}

const DEVIATIONS: &[Deviation] = &[
    Deviation {
        tests: &[
            "4. http frames: invalid header block fragment",
            "5. streams and multiplexing: closed sends headers frame",
            "5. streams and multiplexing: closed sends headers frame after rst stream",
            "5. streams and multiplexing: half closed remote sends data frame",
            "5. streams and multiplexing: half closed remote sends headers frame",
            "6. frame definitions: sends data frame on invalid stream state",
            "6. frame definitions: sends ping frame with invalid length",
            "6. frame definitions: sends priority frame with invalid length",
            "6. frame definitions: sends rst stream frame with invalid length",
            "6. frame definitions: sends settings frame with ack and payload",
            "6. frame definitions: sends settings frame with invalid length",
            "6. frame definitions: sends settings initial window size with exceeded max window size value",
            "6. frame definitions: sends settings initial window size with invalid value",
            "6. frame definitions: sends window update frame with invalid length",
        ],
        says: "but got ProtocolError",
        reason: "the connection ends as it has to; the h2 library names the general error instead of the particular one, \
                 which RFC 9113, section 7, leaves to it",
    },
    Deviation {
        tests: &[
            "8. expressing http semantics in http2: sends connect without authority",
            "8. expressing http semantics in http2: sends headers frame with leading space in field value",
            "8. expressing http semantics in http2: sends headers frame with mismatched host authority",
            "8. expressing http semantics in http2: sends headers frame with trailing tab in field value",
        ],
        says: "Timed out while waiting for stream error",
        reason: "it is refused with an answer that says why, 400 or 405, instead of a reset (RFC 9113, section 8.1.1); the \
                 program in the box gets nothing",
    },
    Deviation {
        tests: &["8. expressing http semantics in http2: client sends push promise frame"],
        says: "Timed out while waiting for connection error",
        reason: "the frame they send says that more of it follows (RFC 9113, section 6.6), and the h2 library waits for that; \
                 whether this shows depends on which of their two clocks is first",
    },
    Deviation {
        tests: &[
            "8. expressing http semantics in http2: sends headers frame with pseudo header in trailer",
        ],
        says: "Timed out while waiting for stream error",
        reason: "the h2 library leaves the pseudo-header out, so that nothing of it is passed on",
    },
];

httpwg_macros::gen_catalog!(catalog);

#[test]
fn box_http2_is_spoken_as_rfc_9113_has_it() {
    let recorded = Recorded::new("conformance-http2");
    let address = ("127.0.0.1", recorded.port);
    let config = Rc::new(Config {
        host: recorded.host.clone(),
        port: recorded.port,
        timeout: FRAME_LIMIT,
        ..Config::default()
    });
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let (count, failed) = LocalSet::new().block_on(&runtime, async move {
        buffet::bufpool::initialize_allocator().expect("buffers");
        let tests = catalog::<TcpStream>().into_values().flatten();
        let tests = tests.flat_map(|(section, tests)| {
            tests
                .into_iter()
                .map(move |(name, test)| (section, name, test))
        });
        let mut running = Vec::new();
        for (section, name, test) in tests {
            let stream = TcpStream::connect(address).await.expect("the edge");
            let conn = Conn::new(Rc::clone(&config), stream);
            let run = spawn_local(async move { test(conn).await });
            running.push((format!("{section}: {name}"), run));
        }
        let count = running.len();
        let mut failed: HashMap<String, String> = HashMap::new();
        for (name, run) in running {
            match run.await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => drop(failed.insert(name, error.to_string())),
                Err(error) => drop(failed.insert(name, format!("it broke off: {error}"))),
            }
        }
        (count, failed)
    });
    assert!(count > 100, "only {count} tests");
    let mut report = String::new();
    let mut names: Vec<_> = failed.keys().collect();
    names.sort();
    for name in names {
        let said = &failed[name];
        let known = DEVIATIONS
            .iter()
            .find(|known| known.tests.contains(&&**name) && said.contains(known.says));
        match known {
            Some(known) => println!("{name}: {said} ({})", known.reason),
            None => {
                let _ = writeln!(report, "{name}: {said}");
            }
        }
    }
    println!("{count} tests, {} of them deviate", failed.len());
    assert!(report.is_empty(), "{report}");
    drop(recorded.instance);
}
