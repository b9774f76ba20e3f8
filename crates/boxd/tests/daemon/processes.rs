//! The E2B process service: streams, input, signals, terminals, selection, deadlines.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use buffa::MessageField;
use connectrpc::ErrorCode;
use connectrpc::client::{CallOptions, stream_iter};
use icebox_wire::boxd::{Client, ProcessClient};
use icebox_wire::process::__buffa::oneof::process_event::Event;
use icebox_wire::process::__buffa::oneof::process_event::data_event::Output;
use icebox_wire::process::__buffa::oneof::process_input::Input;
use icebox_wire::process::__buffa::oneof::process_selector::Selector;
use icebox_wire::process::process_event::EndEvent;
use icebox_wire::process::{
    CloseStdinRequest, ConnectRequest, ConnectResponse, ListRequest, PTY, ProcessConfig,
    ProcessEvent, ProcessInput, ProcessSelector, SendInputRequest, SendSignalRequest, Signal,
    StartRequest, StartResponse, StreamInputRequest, UpdateRequest, pty, stream_input_request,
};
use rustix::process::Signal as Sig;

use crate::harness::{Boxd, alive, signal, text, until, within};

/// A line as the SDKs send it, without input.
pub(crate) fn start_line(cmd: &str) -> StartRequest {
    let config = ProcessConfig {
        cmd: "/bin/bash".to_owned(),
        args: vec!["-c".to_owned(), cmd.to_owned()],
        ..Default::default()
    };
    StartRequest {
        process: MessageField::some(config),
        stdin: Some(false),
        ..Default::default()
    }
}

fn pid(pid: u32) -> ProcessSelector {
    ProcessSelector {
        selector: Some(Selector::Pid(pid)),
        ..Default::default()
    }
}

pub(crate) fn tag(tag: &str) -> ProcessSelector {
    ProcessSelector {
        selector: Some(Selector::Tag(tag.to_owned())),
        ..Default::default()
    }
}

pub(crate) fn stdin(data: &str) -> ProcessInput {
    ProcessInput {
        input: Some(Input::Stdin(data.into())),
        ..Default::default()
    }
}

pub(crate) fn typed(data: &str) -> ProcessInput {
    ProcessInput {
        input: Some(Input::Pty(data.into())),
        ..Default::default()
    }
}

/// The next event of a stream of either call; an error is the stream's.
macro_rules! next {
    ($stream:expr, $response:ty) => {{
        let message = within($stream.message::<$response>()).await;
        message.map(|message| {
            message.map(|message| {
                message
                    .to_owned_message()
                    .event
                    .into_option()
                    .expect("an event")
            })
        })
    }};
}

pub(crate) use next;

/// What a whole stream held.
#[derive(Debug, Default)]
pub(crate) struct Whole {
    pid: u32,
    pub(crate) stdout: Vec<u8>,
    stderr: Vec<u8>,
    pub(crate) terminal: Vec<u8>,
    largest: usize,
    keepalives: usize,
    end: Option<EndEvent>,
}

impl Whole {
    pub(crate) fn take(&mut self, event: ProcessEvent) {
        assert!(self.end.is_none(), "nothing follows the end");
        match event.event.expect("one of the events") {
            Event::Start(start) => self.pid = start.pid,
            Event::Keepalive(_) => self.keepalives += 1,
            Event::End(end) => self.end = Some(*end),
            Event::Data(data) => {
                let (to, data) = match data.output.expect("output") {
                    Output::Stdout(data) => (&mut self.stdout, data),
                    Output::Stderr(data) => (&mut self.stderr, data),
                    Output::Pty(data) => (&mut self.terminal, data),
                };
                self.largest = self.largest.max(data.len());
                to.extend_from_slice(&data);
            }
        }
    }

    fn end(&self) -> (i32, bool, &str, Option<&str>) {
        let end = self.end.as_ref().expect("an end");
        (end.exit_code, end.exited, &end.status, end.error.as_deref())
    }
}

/// Starts and reads to the end.
pub(crate) async fn whole(client: &ProcessClient, request: StartRequest) -> Whole {
    let mut stream = within(client.start(request)).await.expect("starts");
    let mut whole = Whole::default();
    while let Some(event) = next!(stream, StartResponse).expect("no error") {
        whole.take(event);
    }
    assert!(stream.error().is_none(), "{:?}", stream.error());
    whole
}

#[tokio::test]
async fn a_start_streams_start_output_and_end() {
    let boxd = Boxd::start(&[]);
    let client = boxd.process();
    let got = whole(&client, start_line("echo out; echo err >&2; pwd")).await;
    assert!(got.pid > 1);
    assert_eq!(
        (text(&got.stdout), text(&got.stderr)),
        ("out\n/root\n", "err\n")
    );
    assert_eq!(got.end(), (0, true, "exit status 0", None));
    let got = whole(&client, start_line("exit 5")).await;
    assert_eq!(got.end(), (5, true, "exit status 5", Some("exit status 5")));
    let got = whole(&client, start_line("head -c 100000 /dev/zero")).await;
    assert_eq!(got.stdout.len(), 100_000);
    assert!(got.largest <= 32 * 1024, "{}", got.largest);
}

#[tokio::test]
async fn bad_starts_are_refused() {
    let boxd = Boxd::start(&[]);
    let client = boxd.process();
    let mut no_cwd = start_line("true");
    no_cwd.process.get_or_insert_default().cwd = Some("/no/such".to_owned());
    let mut no_program = start_line("true");
    no_program.process.get_or_insert_default().cmd = "/no/program".to_owned();
    for (request, words) in [
        (no_cwd, "/no/such"),
        (no_program, "/no/program"),
        (StartRequest::default(), "process"),
    ] {
        let error = match within(client.start(request)).await {
            Ok(mut stream) => {
                let failed = within(stream.message::<StartResponse>()).await.err();
                failed.or_else(|| stream.error().cloned()).expect("refused")
            }
            Err(error) => error,
        };
        assert_eq!(error.code, ErrorCode::InvalidArgument, "{error}");
        assert!(error.to_string().contains(words), "{error}");
    }
}

#[tokio::test]
async fn input_comes_in_order_and_ends_when_closed() {
    let boxd = Boxd::start(&[]);
    let client = boxd.process();
    let request = StartRequest {
        stdin: None,
        tag: Some("cat".to_owned()),
        ..start_line("cat; echo over")
    };
    let mut stream = within(client.start(request)).await.expect("starts");
    let mut got = Whole::default();
    got.take(
        next!(stream, StartResponse)
            .expect("no error")
            .expect("start"),
    );
    let send = SendInputRequest {
        process: MessageField::some(tag("cat")),
        input: MessageField::some(stdin("one ")),
        ..Default::default()
    };
    within(client.send_input(send)).await.expect("taken");
    let wrong = SendInputRequest {
        process: MessageField::some(pid(got.pid)),
        input: MessageField::some(typed("x")),
        ..Default::default()
    };
    assert_eq!(
        within(client.send_input(wrong))
            .await
            .expect_err("no terminal")
            .code,
        ErrorCode::FailedPrecondition
    );
    let start = stream_input_request::StartEvent {
        process: MessageField::some(pid(got.pid)),
        ..Default::default()
    };
    let data = |text: &str| stream_input_request::DataEvent {
        input: MessageField::some(stdin(text)),
        ..Default::default()
    };
    let events = [start.into(), data("two ").into(), data("three\n").into()];
    let requests = events.map(|event| StreamInputRequest {
        event: Some(event),
        ..Default::default()
    });
    within(client.stream_input(stream_iter(requests)))
        .await
        .expect("taken");
    let close = || CloseStdinRequest {
        process: MessageField::some(pid(got.pid)),
        ..Default::default()
    };
    within(client.close_stdin(close())).await.expect("closed");
    while let Some(event) = next!(stream, StartResponse).expect("no error") {
        got.take(event);
    }
    assert_eq!(
        (text(&got.stdout), got.end().0),
        ("one two three\nover\n", 0)
    );
    let gone = CloseStdinRequest {
        process: MessageField::some(pid(got.pid)),
        ..Default::default()
    };
    assert_eq!(
        within(client.close_stdin(gone))
            .await
            .expect_err("it ended")
            .code,
        ErrorCode::NotFound
    );
}

#[tokio::test]
async fn without_stdin_a_process_reads_nothing_and_takes_nothing() {
    let boxd = Boxd::start(&[]);
    let client = boxd.process();
    assert_eq!(
        text(&whole(&client, start_line("wc -c")).await.stdout),
        "0\n"
    );
    let request = StartRequest {
        tag: Some("t".to_owned()),
        ..start_line("sleep 300")
    };
    let stream = within(client.start(request)).await.expect("starts");
    let send = SendInputRequest {
        process: MessageField::some(tag("t")),
        input: MessageField::some(stdin("x")),
        ..Default::default()
    };
    assert_eq!(
        within(client.send_input(send))
            .await
            .expect_err("no stdin")
            .code,
        ErrorCode::FailedPrecondition
    );
    drop(stream);
}

#[tokio::test]
async fn a_kill_ends_the_stream_at_once_though_a_grandchild_holds_the_pipes() {
    let boxd = Boxd::start(&[]);
    let client = boxd.process();
    let mut stream = within(client.start(start_line("sleep 300 & echo $!; wait")))
        .await
        .expect("starts");
    let mut got = Whole::default();
    while got.stdout.is_empty() {
        got.take(
            next!(stream, StartResponse)
                .expect("no error")
                .expect("more"),
        );
    }
    let kill = |number| SendSignalRequest {
        process: MessageField::some(pid(number)),
        signal: Signal::SIGNAL_SIGKILL.into(),
        ..Default::default()
    };
    let began = Instant::now();
    within(client.send_signal(kill(got.pid)))
        .await
        .expect("sent");
    while let Some(event) = next!(stream, StartResponse).expect("no error") {
        got.take(event);
    }
    assert!(began.elapsed() < Duration::from_secs(2));
    assert_eq!(
        got.end(),
        (-1, false, "signal: killed", Some("signal: killed"))
    );
    assert_eq!(
        within(client.send_signal(kill(got.pid)))
            .await
            .expect_err("gone")
            .code,
        ErrorCode::NotFound
    );
    let grandchild: i32 = text(&got.stdout).trim().parse().expect("a number");
    assert!(alive(grandchild), "only the process itself was signalled");
    signal(grandchild, Sig::KILL);
}

#[tokio::test]
async fn the_deadline_kills_the_process_and_ends_the_stream() {
    let boxd = Boxd::start(&[]);
    let options = CallOptions::default().with_header("connect-timeout-ms", "300");
    let request = start_line("echo $$; exec sleep 300");
    let mut stream = within(boxd.process().start_with_options(request, options))
        .await
        .expect("starts");
    let mut got = Whole::default();
    let failed = loop {
        match next!(stream, StartResponse) {
            Ok(Some(event)) => got.take(event),
            Ok(None) => break stream.error().cloned().expect("an error at the end"),
            Err(error) => break error,
        }
    };
    assert_eq!(failed.code, ErrorCode::DeadlineExceeded);
    let number: i32 = text(&got.stdout).trim().parse().expect("a number");
    until("the process is gone", || !alive(number)).await;
}

#[tokio::test]
async fn a_client_that_goes_away_ends_nothing_and_another_follows_only_what_is_new() {
    let boxd = Boxd::start(&[]);
    let client = boxd.process();
    let mut request = start_line("echo before; while [ ! -e go ]; do sleep 0.02; done; echo after");
    request.process.get_or_insert_default().cwd =
        Some(boxd.dir.path().join("work").to_string_lossy().into_owned());
    let mut stream = within(client.start(request)).await.expect("starts");
    let mut got = Whole::default();
    while got.stdout.is_empty() {
        got.take(
            next!(stream, StartResponse)
                .expect("no error")
                .expect("more"),
        );
    }
    drop(stream);
    let listed = within(client.list(ListRequest::default()))
        .await
        .expect("lists")
        .into_owned();
    assert_eq!(
        listed
            .processes
            .iter()
            .map(|process| process.pid)
            .collect::<Vec<_>>(),
        [got.pid]
    );
    assert_eq!(listed.processes[0].config.cmd, "/bin/bash");
    let connect = || ConnectRequest {
        process: MessageField::some(pid(got.pid)),
        ..Default::default()
    };
    let mut stream = within(client.connect(connect())).await.expect("connects");
    let mut late = Whole::default();
    late.take(
        next!(stream, ConnectResponse)
            .expect("no error")
            .expect("start"),
    );
    std::fs::write(boxd.dir.path().join("work/go"), "").expect("written");
    while let Some(event) = next!(stream, ConnectResponse).expect("no error") {
        late.take(event);
    }
    assert_eq!(
        (late.pid, text(&late.stdout), late.end().0),
        (got.pid, "after\n", 0)
    );
    // Within 30 s of the end, a late one still gets the end.
    let mut stream = within(client.connect(connect())).await.expect("connects");
    let mut later = Whole::default();
    while let Some(event) = next!(stream, ConnectResponse).expect("no error") {
        later.take(event);
    }
    assert_eq!((text(&later.stdout), later.end().0), ("", 0));
    assert!(
        within(client.list(ListRequest::default()))
            .await
            .expect("lists")
            .into_owned()
            .processes
            .is_empty()
    );
}

#[tokio::test]
async fn a_terminal_has_its_size_takes_keys_and_is_resized() {
    let boxd = Boxd::start(&[]);
    let client = boxd.process();
    let size = |cols, rows| PTY {
        size: MessageField::some(pty::Size {
            cols,
            rows,
            ..Default::default()
        }),
        ..Default::default()
    };
    let request = StartRequest {
        pty: MessageField::some(size(91, 33)),
        tag: Some("term".to_owned()),
        stdin: None,
        ..start_line(
            "stty size; tty; read line; stty size; echo got $line; [ -t 0 ] && [ -t 2 ] && ps -o tty= -p $$",
        )
    };
    let mut stream = within(client.start(request)).await.expect("starts");
    let mut got = Whole::default();
    while !text(&got.terminal).contains("/dev/pts/") {
        got.take(
            next!(stream, StartResponse)
                .expect("no error")
                .expect("more"),
        );
    }
    assert!(
        text(&got.terminal).starts_with("33 91\r\n"),
        "{:?}",
        text(&got.terminal)
    );
    let update = UpdateRequest {
        process: MessageField::some(tag("term")),
        pty: MessageField::some(size(100, 40)),
        ..Default::default()
    };
    within(client.update(update)).await.expect("resized");
    let close = CloseStdinRequest {
        process: MessageField::some(tag("term")),
        ..Default::default()
    };
    assert_eq!(
        within(client.close_stdin(close))
            .await
            .expect_err("a terminal")
            .code,
        ErrorCode::FailedPrecondition
    );
    let keys = SendInputRequest {
        process: MessageField::some(tag("term")),
        input: MessageField::some(typed("hello\n")),
        ..Default::default()
    };
    within(client.send_input(keys)).await.expect("typed");
    while let Some(event) = next!(stream, StartResponse).expect("no error") {
        got.take(event);
    }
    let terminal = text(&got.terminal);
    assert!(
        terminal.contains("40 100\r\n")
            && terminal.contains("got hello\r\n")
            && terminal.ends_with("\r\n"),
        "{terminal:?}"
    );
    assert!(
        terminal
            .trim_end()
            .rsplit('\n')
            .next()
            .is_some_and(|last| last.starts_with("pts/")),
        "its controlling terminal"
    );
    assert_eq!(got.end().0, 0);
}

#[tokio::test]
async fn ctrl_c_on_a_terminal_interrupts() {
    let boxd = Boxd::start(&[]);
    let client = boxd.process();
    let request = StartRequest {
        pty: MessageField::some(PTY::default()),
        stdin: None,
        ..start_line("echo ready; exec sleep 300")
    };
    let mut stream = within(client.start(request)).await.expect("starts");
    let mut got = Whole::default();
    while !text(&got.terminal).contains("ready") {
        got.take(
            next!(stream, StartResponse)
                .expect("no error")
                .expect("more"),
        );
    }
    let keys = SendInputRequest {
        process: MessageField::some(pid(got.pid)),
        input: MessageField::some(typed("\x03")),
        ..Default::default()
    };
    within(client.send_input(keys)).await.expect("typed");
    while let Some(event) = next!(stream, StartResponse).expect("no error") {
        got.take(event);
    }
    assert_eq!(
        got.end(),
        (-1, false, "signal: interrupt", Some("signal: interrupt"))
    );
}

#[tokio::test]
async fn silence_brings_keepalives() {
    let boxd = Boxd::start(&[]);
    let options = CallOptions::default().with_header("keepalive-ping-interval", "1");
    let client = boxd.process();
    let mut stream = within(client.start_with_options(start_line("sleep 1.5"), options))
        .await
        .expect("starts");
    let mut got = Whole::default();
    while let Some(event) = next!(stream, StartResponse).expect("no error") {
        got.take(event);
    }
    assert_eq!((got.keepalives, got.end().0), (1, 0));
}

#[tokio::test]
async fn the_basic_header_chooses_the_user() {
    let boxd = Boxd::start(&[]);
    let client = boxd.process();
    let options = CallOptions::default().with_header("authorization", "Basic ZGFlbW9uOg==");
    let mut stream = within(client.start_with_options(start_line("id -un"), options))
        .await
        .expect("starts");
    let mut got = Whole::default();
    while let Some(event) = next!(stream, StartResponse).expect("no error") {
        got.take(event);
    }
    assert_eq!(text(&got.stdout), "daemon\n");
}

#[tokio::test]
async fn the_json_form_is_what_the_sdks_read() {
    let boxd = Boxd::start(&[]);
    let ask = |path: &str, kind: &str, body: &[u8]| {
        let mut connection = TcpStream::connect(boxd.addr).expect("connects");
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: {kind}\r\nConnect-Protocol-Version: 1\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        connection
            .write_all(head.as_bytes())
            .and_then(|()| connection.write_all(body))
            .expect("sent");
        let mut answer = Vec::new();
        connection.read_to_end(&mut answer).expect("answered");
        String::from_utf8_lossy(&answer).into_owned()
    };
    let json = br#"{"process":{"cmd":"/bin/bash","args":["-c","echo hi; exit 2"],"envs":{"A":"b"}},"stdin":false}"#;
    let mut framed = vec![0];
    framed.extend(u32::try_from(json.len()).expect("short").to_be_bytes());
    framed.extend_from_slice(json);
    let answer = ask(
        "/process.Process/Start",
        "application/connect+json",
        &framed,
    );
    for part in [
        r#"{"event":{"start":{"pid":"#,
        r#"{"event":{"data":{"stdout":"aGkK"}}}"#,
        r#""exitCode":2"#,
        r#""status":"exit status 2""#,
    ] {
        assert!(answer.contains(part), "{part} in {answer}");
    }
    let answer = ask(
        "/process.Process/SendSignal",
        "application/json",
        br#"{"process":{"pid":1},"signal":"SIGNAL_SIGKILL"}"#,
    );
    assert!(
        answer.starts_with("HTTP/1.1 404") && answer.contains(r#""code":"not_found""#),
        "{answer}"
    );
    let mut connection = TcpStream::connect(boxd.addr).expect("connects");
    connection
        .write_all(b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        .expect("sent");
    let mut answer = String::new();
    connection.read_to_string(&mut answer).expect("answered");
    assert!(answer.starts_with("HTTP/1.1 204"), "{answer}");
}

/// Both services show the same processes.
#[tokio::test]
async fn one_table_serves_both_services() {
    let boxd = Boxd::start(&[]);
    let got = whole(
        &boxd.process(),
        StartRequest {
            tag: Some("both".to_owned()),
            ..start_line("echo kept")
        },
    )
    .await;
    let own: Client = boxd.own();
    let all = within(own.procs(Default::default()))
        .await
        .expect("answers")
        .into_owned();
    assert_eq!(
        (
            all.procs[0].pid,
            all.procs[0].tag.as_deref(),
            all.procs[0].stdout_bytes
        ),
        (got.pid, Some("both"), 5)
    );
}
