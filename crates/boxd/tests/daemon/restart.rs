//! boxd's restart in place: commands outlive it with everything that belongs to them, and one that would fail does not begin.

use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use buffa::MessageField;
use connectrpc::{ConnectError, ErrorCode};
use icebox_wire::boxd::{
    ConfigureRequest, ExecRequest, InfoRequest, InfoResponse, OutputRequest, ProcInfo, ProcRequest,
    ProcResult, ProcsRequest, RestartRequest, StopProcRequest, Stream, UNKNOWN_EXIT, WaitRequest,
};
use icebox_wire::filesystem::{CreateWatcherRequest, GetWatcherEventsRequest};
use icebox_wire::process::__buffa::oneof::process_event::Event;
use icebox_wire::process::{
    ConnectRequest, ConnectResponse, PTY, SendInputRequest, StartRequest, StartResponse,
    UpdateRequest, pty,
};

use tokio::task::JoinHandle;

use crate::harness::{Answer, Boxd, alive, head, line, proc, text, until, within};
use crate::processes::{Whole, next, start_line, stdin, tag, typed};

impl Boxd {
    async fn restart_in_place(&self) -> Result<(), ConnectError> {
        within(self.own().restart(RestartRequest::default())).await?;
        // Those that are open are closed, maybe under a call.
        self.reconnect();
        Ok(())
    }

    /// The answer of the new one.
    async fn restarted(&self) -> InfoResponse {
        let before = self.info().await;
        self.restart_in_place().await.expect("restarts");
        let after = self.answered().await;
        assert_eq!(after.restarts, before.restarts + 1);
        assert_eq!(
            (&after.start_id, after.started_ms),
            (&before.start_id, before.started_ms)
        );
        after
    }

    /// Asks for a restart that something is in the way of.
    async fn restart_that_waits(&self) -> JoinHandle<Result<(), ConnectError>> {
        let own = self.own();
        let restart = async move { own.restart(RestartRequest::default()).await.map(drop) };
        let restarting = tokio::spawn(restart);
        // Only so that one which would not wait has time to show it.
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert!(!restarting.is_finished());
        restarting
    }

    async fn restart_that_waited(&self, restarting: JoinHandle<Result<(), ConnectError>>) {
        let restarted = within(restarting).await.expect("no panic");
        restarted.expect("restarts");
        self.reconnect();
    }

    /// Asks until it is not sent away any more.
    async fn answered(&self) -> InfoResponse {
        loop {
            match within(self.own().info(InfoRequest::default())).await {
                Ok(answer) => return answer.into_owned(),
                Err(error) => assert_eq!(error.code, ErrorCode::Unavailable, "{error}"),
            }
            self.reconnect();
        }
    }

    async fn background(&self, cmd: &str) -> ProcInfo {
        let request = ExecRequest {
            background: true,
            ..line(cmd)
        };
        proc(&self.exec(request).await.result).clone()
    }

    async fn look(&self, id: &str) -> ProcInfo {
        let request = ProcRequest {
            exec_id: id.to_owned(),
            ..Default::default()
        };
        let answer = within(self.own().proc(request)).await.expect("it is known");
        answer.into_owned().proc.into_option().expect("a process")
    }

    async fn wait_for(&self, id: &str) -> ProcResult {
        let request = WaitRequest {
            exec_id: id.to_owned(),
            wait_ms: 20_000,
            tail_bytes: Some(1 << 20),
            ..Default::default()
        };
        let answer = within(self.own().wait(request)).await.expect("it is known");
        answer.into_owned().result.into_option().expect("a result")
    }

    async fn output(&self, id: &str, offset: u64, max: u32) -> Vec<u8> {
        let request = OutputRequest {
            exec_id: id.to_owned(),
            stream: Stream::STREAM_STDOUT.into(),
            offset,
            max_bytes: max,
            ..Default::default()
        };
        let answer = within(self.own().output(request)).await.expect("output");
        answer.into_owned().data
    }
}

/// A line that goes on once a file is there.
fn once(boxd: &Boxd, name: &str, then: &str) -> String {
    format!(
        "while [ ! -e '{}' ]; do sleep 0.01; done; {then}",
        boxd.named(name)
    )
}

fn touch(boxd: &Boxd, name: &str) {
    std::fs::write(boxd.at(name), "").expect("a file");
}

#[tokio::test]
async fn jobs_outlive_a_restart_of_boxd() {
    let boxd = Boxd::start(&[]);
    let ended = boxd.background("echo small; exit 3").await;
    assert_eq!(
        proc(&boxd.wait_for(&ended.exec_id).await).exit_code,
        Some(3)
    );
    let killed = boxd.background("kill -9 $$").await;
    boxd.wait_for(&killed.exec_id).await;
    let large = boxd.background("seq 1 60000; exit 0").await;
    boxd.wait_for(&large.exec_id).await;
    let begin = once(&boxd, "go", "echo after; echo error >&2; exit 5");
    let job = boxd
        .background(&format!("echo before; seq 1 30000; {begin}"))
        .await;
    // More than memory keeps.
    while boxd.look(&job.exec_id).await.stdout_bytes < 70_000 {}

    for round in 1..=2 {
        assert_eq!(
            boxd.restarted().await.running_background,
            1,
            "round {round}"
        );
        assert!(alive(job.pid.try_into().expect("a number")));
        assert_eq!(boxd.look(&job.exec_id).await.started_ms, job.started_ms);
    }
    touch(&boxd, "go");
    let result = boxd.wait_for(&job.exec_id).await;
    let written = (1..=30_000).fold("before\n".to_owned(), |all, n| format!("{all}{n}\n"));
    assert_eq!(text(&result.stdout_tail), format!("{written}after\n"));
    assert_eq!(text(&result.stderr_tail), "error\n");
    assert_eq!(proc(&result).exit_code, Some(5));

    let known = boxd.look(&ended.exec_id).await;
    assert_eq!((known.exit_code, known.running), (Some(3), false));
    assert_eq!(boxd.output(&ended.exec_id, 0, 100).await, b"small\n");
    assert_eq!(
        boxd.look(&killed.exec_id).await.signal.as_deref(),
        Some("SIGKILL")
    );
    assert_eq!(boxd.output(&large.exec_id, 0, 4).await, b"1\n2\n");
    // It is known by its id, and is not run again.
    let again = ExecRequest {
        exec_id: ended.exec_id.clone(),
        ..line("echo small; exit 3")
    };
    assert!(boxd.exec(again).await.joined);
}

#[tokio::test]
async fn a_call_that_waits_for_its_command_can_be_made_again() {
    let boxd = Boxd::start(&[]);
    let request = ExecRequest {
        exec_id: "0123456789abcdef".to_owned(),
        ..line(&once(&boxd, "go", "echo done"))
    };
    let own = boxd.own();
    let (waiting, ()) = tokio::join!(within(own.exec(request.clone())), async {
        while boxd.info().await.running_foreground == 0 {}
        boxd.restarted().await;
    });
    assert_eq!(waiting.expect_err("sent away").code, ErrorCode::Unavailable);
    touch(&boxd, "go");
    let again = boxd.exec(request).await;
    assert!(again.joined);
    assert_eq!(text(&again.result.stdout_tail), "done\n");
}

#[tokio::test]
async fn input_deadlines_and_ends_go_on_where_they_were() {
    let boxd = Boxd::start(&[]);
    let fed = ExecRequest {
        stdin: vec![b'x'; 3 << 20],
        background: true,
        ..line(&once(&boxd, "read", "wc -c"))
    };
    let fed = proc(&boxd.exec(fed).await.result).clone();
    let late = ExecRequest {
        timeout_ms: 1_500,
        background: true,
        ..line("sleep 600")
    };
    let late = proc(&boxd.exec(late).await.result).clone();
    // It notes each time that it is told to end, and ends by itself.
    let deaf = format!(
        "trap 'echo told' TERM; echo ready; {}",
        once(&boxd, "end", "exit 4")
    );
    let deaf = boxd.background(&deaf).await;
    while boxd.output(&deaf.exec_id, 0, 10).await != b"ready\n" {}
    let own = boxd.own();
    let stop = StopProcRequest {
        exec_id: deaf.exec_id.clone(),
        grace_ms: Some(15_000),
        ..Default::default()
    };
    let (stopped, ()) = tokio::join!(within(own.stop_proc(stop)), async {
        while boxd.output(&deaf.exec_id, 6, 10).await != b"told\n" {}
        boxd.restarted().await;
    });
    assert_eq!(stopped.expect_err("sent away").code, ErrorCode::Unavailable);

    touch(&boxd, "read");
    assert_eq!(
        text(&boxd.wait_for(&fed.exec_id).await.stdout_tail),
        "3145728\n"
    );
    let late = boxd.wait_for(&late.exec_id).await;
    assert!(
        proc(&late).timed_out && late.elapsed_ms >= 1_500,
        "{late:?}"
    );
    touch(&boxd, "end");
    let deaf = boxd.wait_for(&deaf.exec_id).await;
    assert_eq!(
        proc(&deaf).exit_code,
        Some(4),
        "nobody ended it before its grace was over"
    );
    assert_eq!(text(&deaf.stdout_tail), "ready\ntold\n", "it was told once");
}

#[tokio::test]
async fn streams_end_and_terminals_go_on() {
    let boxd = Boxd::start(&[]);
    let client = boxd.process();
    let request = StartRequest {
        pty: MessageField::some(PTY::default()),
        stdin: None,
        tag: Some("shell".to_owned()),
        ..start_line("echo here; while read line; do echo \"got $line\"; stty size; done")
    };
    let mut stream = within(client.start(request)).await.expect("starts");
    let mut shown = Whole::default();
    while !text(&shown.terminal).contains("here") {
        shown.take(
            next!(stream, StartResponse)
                .expect("no error")
                .expect("more"),
        );
    }
    boxd.restarted().await;
    let end = next!(stream, StartResponse);
    let error = end.err().or_else(|| stream.error().cloned());
    assert_eq!(
        error.expect("no end of the program").code,
        ErrorCode::Unavailable
    );

    let connect = ConnectRequest {
        process: MessageField::some(tag("shell")),
        ..Default::default()
    };
    let mut stream = within(client.connect(connect)).await.expect("connects");
    let mut shown = Whole::default();
    shown.take(
        next!(stream, ConnectResponse)
            .expect("no error")
            .expect("start"),
    );
    let size = pty::Size {
        rows: 33,
        cols: 99,
        ..Default::default()
    };
    let update = UpdateRequest {
        process: MessageField::some(tag("shell")),
        pty: MessageField::some(PTY {
            size: MessageField::some(size),
            ..Default::default()
        }),
        ..Default::default()
    };
    within(client.update(update)).await.expect("resized");
    let send = SendInputRequest {
        process: MessageField::some(tag("shell")),
        input: MessageField::some(typed("word\n")),
        ..Default::default()
    };
    within(client.send_input(send)).await.expect("taken");
    while !text(&shown.terminal).contains("33 99") {
        shown.take(
            next!(stream, ConnectResponse)
                .expect("no error")
                .expect("more"),
        );
    }
    assert!(text(&shown.terminal).contains("got word"));
}

#[tokio::test]
async fn one_that_ends_meanwhile_keeps_how() {
    // Perl waits for no programs, and the shell lays to rest whatever ended.
    let perl = "exec perl -e 'open F, \">work/between\"; select undef, undef, undef, 0.01 until -e \"work/ended\"; exec @ARGV' \
                $BOXD \"$@\"";
    let shell =
        ": >work/between; while [ ! -e work/ended ]; do sleep 0.01; done; exec $BOXD \"$@\"";
    for (wait, expected) in [(perl, 7), (shell, UNKNOWN_EXIT)] {
        let boxd = Boxd::start(&[]);
        let script =
            format!("if [ \"$1\" = --could-take-over ]; then exec $BOXD \"$@\"; fi\n{wait}");
        boxd.replace_program(&script);
        let job = boxd
            .background(&once(&boxd, "between", "echo last; exit 7"))
            .await;
        let pid = job.pid;
        let gone = move || {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
            stat.map_or(true, |stat| stat.contains(") Z "))
        };
        boxd.restart_in_place().await.expect("restarts");
        until("it ended", gone).await;
        if expected == UNKNOWN_EXIT {
            until("it was laid to rest", || {
                !alive(pid.try_into().expect("a number"))
            })
            .await;
        }
        touch(&boxd, "ended");
        let result = boxd.wait_for(&job.exec_id).await;
        assert_eq!(proc(&result).exit_code, Some(expected));
        assert_eq!(text(&result.stdout_tail), "last\n");
    }
}

#[tokio::test]
async fn a_program_that_would_not_take_over_is_not_tried_in_earnest() {
    let boxd = Boxd::start(&[]);
    let job = boxd.background("sleep 600").await;
    for (script, words) in [
        ("echo 'it has the form 9' >&2; exit 1", "the form 9"),
        ("kill -SEGV $$", "signal: 11"),
        ("exit 0", "it said nothing"),
        ("echo I am something else", "I am something else"),
        ("exec /nowhere", "exit status: 127"),
    ] {
        boxd.replace_program(script);
        let error = boxd.restart_in_place().await.expect_err("refused");
        assert_eq!(error.code, ErrorCode::FailedPrecondition);
        let said = error.message.expect("words");
        assert!(said.contains(words), "{said}");
    }
    std::fs::remove_file(boxd.dir.path().join("boxd")).expect("removed");
    let error = boxd.restart_in_place().await.expect_err("refused");
    assert!(error.message.expect("words").contains("No such file"));
    assert_eq!(boxd.info().await.restarts, 0);
    assert!(boxd.look(&job.exec_id).await.running);
    assert_eq!(text(&boxd.run("echo on").await.stdout_tail), "on\n");
}

#[tokio::test]
async fn an_exec_that_fails_after_all_changes_nothing() {
    // It is gone, or is no program any more: no shell must run that as a script, which would end well.
    for spoil in ["rm \"$0\"", ": >\"$0\""] {
        let boxd = Boxd::start(&[]);
        boxd.replace_program(&format!("{spoil}; exec $BOXD \"$@\""));
        let job = boxd.background(&once(&boxd, "go", "echo still")).await;
        boxd.restart_in_place().await.expect("it began");
        assert_eq!(boxd.answered().await.restarts, 0);
        // Descriptors are not left to programs: this one sees its own three and the folder it looks at.
        let seen = boxd.run("ls /proc/self/fd | wc -l").await;
        assert_eq!(text(&seen.stdout_tail), "4\n");
        touch(&boxd, "go");
        let result = boxd.wait_for(&job.exec_id).await;
        assert_eq!(text(&result.stdout_tail), "still\n");
    }
}

#[tokio::test]
async fn settings_go_on_whatever_became_of_their_file() {
    let boxd = Boxd::start(&[]);
    let settings = ConfigureRequest {
        access_token: "secret".to_owned(),
        default_workdir: "/tmp".to_owned(),
        ..Default::default()
    };
    boxd.configure(settings).await;
    let file = boxd.dir.path().join("state/settings");
    for spoil in [
        |file: &Path| std::fs::write(file, "nonsense"),
        |file: &Path| std::fs::remove_file(file),
    ] {
        spoil(&file).expect("spoilt");
        boxd.restarted().await;
        assert_eq!(boxd.http("GET", "/envs", &[], b"").status, 401);
        let token = [("X-Access-Token", "secret")];
        assert_eq!(boxd.http("GET", "/envs", &token, b"").status, 200);
    }
}

#[tokio::test]
async fn input_that_is_half_taken_is_waited_for() {
    let boxd = Boxd::start(&[]);
    let client = boxd.process();
    let request = StartRequest {
        stdin: None,
        tag: Some("reader".to_owned()),
        ..start_line(&once(&boxd, "read", "head -c 1048576 | wc -c"))
    };
    let mut stream = within(client.start(request)).await.expect("starts");
    let send = SendInputRequest {
        process: MessageField::some(tag("reader")),
        input: MessageField::some(stdin(&"x".repeat(1 << 20))),
        ..Default::default()
    };
    let sending = tokio::spawn(async move { client.send_input(send).await.map(drop) });
    // Taken as far as the pipe holds it.
    let pid = match next!(stream, StartResponse)
        .expect("no error")
        .expect("start")
        .event
    {
        Some(Event::Start(start)) => start.pid,
        other => panic!("{other:?}"),
    };
    let held = format!("/proc/{pid}/fd/0");
    until("it is half taken", || {
        let pipe = std::fs::File::open(&held).expect("its input");
        rustix::io::ioctl_fionread(&pipe).is_ok_and(|bytes| bytes >= 65_536)
    })
    .await;
    let restarting = boxd.restart_that_waits().await;
    touch(&boxd, "read");
    within(sending)
        .await
        .expect("no panic")
        .expect("all is taken");
    boxd.restart_that_waited(restarting).await;
    boxd.answered().await;
    let mut procs = within(boxd.own().procs(ProcsRequest::default()))
        .await
        .expect("a list")
        .into_owned()
        .procs;
    let reader = boxd.wait_for(&procs.remove(0).exec_id).await;
    assert_eq!(text(&reader.stdout_tail), "1048576\n");
}

#[tokio::test]
async fn files_on_their_way_are_waited_for() {
    let boxd = Boxd::start(&[]);
    let content = vec![b'y'; 1 << 20];
    let target = format!("/files?path={}", boxd.named("large"));
    let headers = [("Content-Type", "application/octet-stream")];
    let mut upload = boxd.connect();
    let (first, second) = content.split_at(1 << 19);
    upload
        .write_all(&head("POST", &target, &headers, content.len()))
        .expect("sent");
    upload.write_all(first).expect("sent");
    // It has begun once something of it is in the box.
    until("it began", || {
        std::fs::read_dir(boxd.at(""))
            .expect("a folder")
            .next()
            .is_some()
    })
    .await;
    let restarting = boxd.restart_that_waits().await;
    assert_eq!(
        boxd.run("echo on").await.stdout_tail,
        b"on\n",
        "everything else goes on"
    );
    upload.write_all(second).expect("sent");
    let answer = tokio::task::spawn_blocking(|| Answer::read(upload))
        .await
        .expect("no panic");
    assert_eq!(answer.status, 200, "{}", answer.text());
    boxd.restart_that_waited(restarting).await;
    assert_eq!(boxd.answered().await.restarts, 1);
    assert!(std::fs::read(boxd.at("large")).expect("the file") == content);
}

#[tokio::test]
async fn watchers_tell_what_they_saw_and_then_that_they_missed_the_rest() {
    let boxd = Boxd::start(&[]);
    let request = CreateWatcherRequest {
        path: boxd.named(""),
        ..Default::default()
    };
    let created = within(boxd.files().create_watcher(request))
        .await
        .expect("created");
    let watcher_id = created.into_owned().watcher_id;
    touch(&boxd, "seen");
    // A watcher of its own tells when the kernel has told.
    let ask = || async {
        let request = GetWatcherEventsRequest {
            watcher_id: watcher_id.clone(),
            ..Default::default()
        };
        within(boxd.files().get_watcher_events(request))
            .await
            .map(|answer| answer.into_owned().events)
    };
    while ask().await.expect("events").is_empty() {}
    boxd.restarted().await;
    touch(&boxd, "unseen");
    let error = ask().await.expect_err("it missed something");
    assert!(error.message.expect("words").contains("events"));
}
