//! Requests that servers disagree about. Those that nobody may pass on have to be refused, those that are in order to get
//! through, and whatever gets through has to be beyond doubt for the collection's own judge, each as one request.

use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use http_desync_guardian::RequestSafetyTier as Tier;
use http_desync_guardian::request_analyzer::HttpRequestData;
use yaml_rust2::{Yaml, YamlLoader};

use super::Recorded;

/// Longer than anything here takes, and shorter than the edge waits for what does not come.
const LIMIT: Duration = Duration::from_secs(20);

/// The longest body that is sent, in bytes.
const MOST_BODY: u64 = 64 * 1024;

/// What is not as the collection has it, and why.
const DEVIATIONS: &[(&str, &str)] = &[
    ("Correct TE OK", ONLY_CHUNKED),
    ("Transfer-Encoding: identity and chunked OK", ONLY_CHUNKED),
    (
        "Multiple transfer encoding headers in a single request OK",
        ONLY_CHUNKED,
    ),
    ("TE with custom parameters OK", ONLY_CHUNKED),
    ("Different Transfer-Encoding headers", ONLY_CHUNKED),
    ("Different Transfer-Encoding headers combined", ONLY_CHUNKED),
    (
        "Transfer-Encoding with a param: chunked;custom_param",
        ONLY_CHUNKED,
    ),
    ("Get with a body and Content-Length", EVERY_METHOD),
    ("Get with a body and Content-Length:0", EVERY_METHOD),
    ("Get with a body and Transfer-Encoding", EVERY_METHOD),
    ("Head with a body and Content-Length", EVERY_METHOD),
    ("Head with a body and Transfer-Encoding", EVERY_METHOD),
    ("Has a CL in GET", EVERY_METHOD),
    ("Has a TE in GET", EVERY_METHOD),
    (
        "Large Size OK",
        "nobody sends its body, so it never becomes a whole request",
    ),
    (
        "Empty URI",
        "a request line without a target is refused (RFC 9112, section 3)",
    ),
];

const EVERY_METHOD: &str = "a body goes along with every method, in our framing; a connection into the box that carried \
                            one with GET or HEAD carries nothing else (RFC 9110, sections 9.3.1 and 9.3.2)";

const ONLY_CHUNKED: &str = "of the codings only `chunked` is spoken, and what is not understood must not be passed on \
                            (RFC 9112, section 6.1)";

/// A request of the collection.
struct Case {
    name: String,
    head: Vec<u8>,
    body: Vec<u8>,
    /// Its body is longer than anybody would send.
    endless: bool,
    tier: Tier,
}

/// Where cargo keeps the collection.
fn collection() -> PathBuf {
    let metadata = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--locked", "--offline"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo runs");
    let metadata: serde_json::Value =
        serde_json::from_slice(&metadata.stdout).expect("what cargo knows of its packages");
    let packages = metadata["packages"].as_array().expect("packages");
    let package = packages
        .iter()
        .find(|package| package["name"] == "http_desync_guardian")
        .expect("the package");
    let manifest = PathBuf::from(package["manifest_path"].as_str().expect("its manifest"));
    manifest.with_file_name("tests")
}

fn cases(host: &str) -> Vec<Case> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(collection())
        .expect("the collection")
        .map(|entry| entry.expect("a file").path())
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "yaml")
        })
        .collect();
    files.sort();
    let mut cases = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(&file).expect("a file");
        let all = YamlLoader::load_from_str(&text).expect("YAML");
        let listed = all[0].as_vec().expect("a list");
        cases.extend(listed.iter().map(|case| read(case, host)));
    }
    cases
}

fn read(case: &Yaml, host: &str) -> Case {
    let (method, uri, version) = (
        text(&case["method"]),
        text(&case["uri"]),
        text(&case["version"]),
    );
    let mut head = format!("{method} {uri} {version}\r\nHost: {host}\r\n");
    let (mut body, mut endless) = (Vec::new(), false);
    for field in case["headers"].as_vec().into_iter().flatten() {
        let (name, value) = (text(&field["name"]), text(&field["value"]));
        let _ = write!(head, "{name}: {value}\r\n");
        if name.eq_ignore_ascii_case("content-length") {
            match value.trim().parse::<u64>() {
                Ok(length) if length <= MOST_BODY => body = vec![b'x'; length as usize],
                Ok(_) => endless = true,
                Err(_) => {}
            }
        }
        if name.to_ascii_lowercase().contains("transfer") {
            body = b"0\r\n\r\n".to_vec();
        }
    }
    head.push_str("\r\n");
    let tier = match case["expected"]["tier"].as_str() {
        Some("Compliant") => Tier::Compliant,
        Some("Acceptable") => Tier::Acceptable,
        Some("Ambiguous") => Tier::Ambiguous,
        Some("Severe") => Tier::Severe,
        other => panic!("an unknown tier: {other:?}"),
    };
    Case {
        name: text(&case["name"]),
        head: head.into_bytes(),
        body,
        endless,
        tier,
    }
}

/// A text of the collection, whose escapes are its own where YAML left them.
fn text(yaml: &Yaml) -> String {
    let Some(escaped) = yaml.as_str() else {
        return yaml.as_i64().expect("a text or a number").to_string();
    };
    let mut chars = escaped.chars();
    let mut text = String::new();
    while let Some(c) = chars.next() {
        let c = match c {
            '\\' => match chars.next().expect("something escaped") {
                'x' => {
                    let digits: String = chars.by_ref().take(2).collect();
                    char::from(u8::from_str_radix(&digits, 16).expect("two digits"))
                }
                'n' => '\n',
                'r' => '\r',
                't' => '\t',
                'b' => '\x08',
                'f' => '\x0c',
                other => other,
            },
            other => other,
        };
        text.push(c);
    }
    text
}

/// What a client hears that says this and then waits for the end, or hangs up when it is to.
fn hears(port: u16, said: &[u8], hangs_up: bool) -> String {
    let mut client = TcpStream::connect(("127.0.0.1", port)).expect("the edge");
    client.set_read_timeout(Some(LIMIT)).expect("a limit");
    // Who refuses may have hung up before all is said.
    let _ = client.write_all(said);
    if hangs_up {
        let _ = client.shutdown(Shutdown::Write);
    }
    let mut heard = Vec::new();
    let mut buffer = [0; 16 * 1024];
    loop {
        match client.read(&mut buffer) {
            Ok(0) => break,
            Ok(some) => heard.extend(&buffer[..some]),
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => break,
            Err(error) => {
                heard.extend(format!("\n(no end: {error})").as_bytes());
                break;
            }
        }
    }
    String::from_utf8_lossy(&heard).into_owned()
}

/// The heads that the program got since it was last asked.
fn taken(port: u16, host: &str) -> Vec<Vec<u8>> {
    let ask = format!("GET /taken HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    let answer = hears(port, ask.as_bytes(), false);
    let (_, text) = answer.split_once("\r\n\r\n").expect("an answer");
    let byte = |digits: &[u8]| {
        let digits = std::str::from_utf8(digits).expect("digits");
        u8::from_str_radix(digits, 16).expect("hexadecimal")
    };
    text.lines()
        .map(|line| line.as_bytes().chunks(2).map(byte).collect())
        .collect()
}

/// What is wrong with how a request was treated.
fn wrong(case: &Case, answers: &str, got: &[Vec<u8>]) -> Vec<String> {
    let mut wrong = Vec::new();
    let statuses: Vec<&str> = answers
        .split("HTTP/1.1 ")
        .skip(1)
        .map(|answer| answer.get(..3).unwrap_or_default())
        .collect();
    if answers.contains("(no end:") {
        wrong.push("the connection did not end".to_owned());
    }
    let passed = statuses.iter().filter(|status| **status == "200").count();
    if passed != got.len() {
        wrong.push(format!(
            "the program got {} requests and answered {passed}",
            got.len()
        ));
    }
    match case.tier {
        Tier::Severe if !got.is_empty() || !statuses.starts_with(&["400"]) => {
            wrong.push("it was not refused".to_owned());
        }
        Tier::Severe if statuses.len() > 1 => {
            wrong.push("what follows was not refused with it".to_owned());
        }
        Tier::Compliant if statuses != ["200", "200"] => {
            wrong.push("it was not passed on, with what follows it".to_owned());
        }
        Tier::Compliant | Tier::Acceptable | Tier::Ambiguous | Tier::Severe => {}
    }
    for head in got {
        let judged = HttpRequestData::analyze_raw_request(head);
        if judged.tier != Tier::Compliant {
            wrong.push(format!(
                "what came through is {:?} ({:?}): {}",
                judged.tier,
                judged.reason,
                head.escape_ascii()
            ));
        }
    }
    wrong
}

#[test]
fn box_requests_that_servers_disagree_about_are_refused_or_made_clear() {
    let recorded = Recorded::new("conformance-http1");
    let (host, port) = (
        format!("{}:{}", recorded.host, recorded.port),
        recorded.port,
    );
    let cases = cases(&host);
    assert!(cases.len() > 150, "only {} requests", cases.len());
    let follows = format!("GET /next HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    let mut report = String::new();
    let mut deviations: Vec<&str> = Vec::new();
    for case in &cases {
        let said = [&case.head[..], &case.body, follows.as_bytes()].concat();
        let answers = hears(port, &said, case.endless);
        let got = taken(port, &host);
        let wrong = wrong(case, &answers, &got);
        let known = DEVIATIONS.iter().find(|(name, _)| *name == case.name);
        if let (Some((name, _)), false) = (known, wrong.is_empty()) {
            deviations.push(name);
            continue;
        }
        for wrong in wrong {
            let _ = writeln!(
                report,
                "{:?} “{}”: {wrong}\n    said: {}\n    heard: {}",
                case.tier,
                case.name,
                case.head.escape_ascii(),
                answers.lines().next().unwrap_or_default()
            );
        }
    }
    assert!(report.is_empty(), "{report}");
    for (name, reason) in DEVIATIONS {
        assert!(
            deviations.contains(name),
            "“{name}” is no deviation any more: {reason}"
        );
    }
    println!("{} requests, {} deviations", cases.len(), deviations.len());
    drop(recorded.instance);
}
