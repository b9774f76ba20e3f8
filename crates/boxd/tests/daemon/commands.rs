//! `Exec` and its neighbours: results, environment, input, deadlines, joining, stopping.

use std::fs;
use std::time::{Duration, Instant};

use connectrpc::ErrorCode;
use icebox_wire::boxd::{
    AfterThawRequest, ExecRequest, FlushRequest, ProcRequest, ProcsRequest, StopProcRequest,
    WaitRequest,
};
use rustix::process::Signal;

use crate::harness::{Boxd, alive, line, proc, signal, text, until, within};

#[tokio::test]
async fn a_command_gives_its_output_its_code_and_its_length() {
    let boxd = Boxd::start(&[]);
    let result = boxd.run("echo out; echo err >&2; exit 3").await;
    assert_eq!(
        (text(&result.stdout_tail), text(&result.stderr_tail)),
        ("out\n", "err\n")
    );
    let info = proc(&result);
    assert_eq!(
        (info.exit_code, &info.signal, info.running, info.background),
        (Some(3), &None, false, false)
    );
    assert_eq!((info.stdout_bytes, info.stderr_bytes), (4, 4));
    assert!(info.ended_ms.expect("ended") >= info.started_ms);
}

/// CPUs that each command keeps busy, by its line.
async fn cpus(boxd: &Boxd, cpu_ms: u32) -> Vec<(String, Option<f64>)> {
    let request = ProcsRequest {
        cpu_ms,
        ..ProcsRequest::default()
    };
    let procs = within(boxd.own().procs(request)).await.unwrap();
    let procs = procs.into_owned().procs.into_iter();
    procs.map(|proc| (proc.cmd, proc.cpus)).collect()
}

#[tokio::test]
async fn a_busy_command_is_told_from_one_that_waits() {
    let boxd = Boxd::start(&[]);
    // One that computes in a child, one that does in many short ones, one that waits, and one that is over.
    let busy = "bash -c 'while :; do :; done' & wait";
    let many = "while :; do bash -c 'for i in {1..3000}; do :; done'; done";
    for cmd in [busy, many, "sleep 600"] {
        let background = ExecRequest {
            background: true,
            ..line(cmd)
        };
        boxd.exec(background).await;
    }
    boxd.run("true").await;
    // The machine may be busy with others just now.
    let measured = async {
        loop {
            let shown = cpus(&boxd, 400).await;
            let of = |cmd: &str| shown.iter().find(|(line, _)| line == cmd).unwrap().1;
            assert!(of("sleep 600").unwrap() < 0.05, "{shown:?}");
            assert_eq!(of("true"), None, "{shown:?}");
            let (busy, many) = (of(busy).unwrap(), of(many).unwrap());
            if (0.2..1.2).contains(&busy) && (0.1..1.5).contains(&many) {
                break;
            }
        }
    };
    within(measured).await;
    assert!(cpus(&boxd, 0).await.iter().all(|(_, cpus)| cpus.is_none()));
    assert_eq!(cpus(&boxd, 0).await.len(), 4);
}

#[tokio::test]
async fn a_signal_is_named_and_leaves_no_code() {
    let boxd = Boxd::start(&[]);
    let result = boxd.run("kill -SEGV $$").await;
    assert_eq!(
        (proc(&result).exit_code, proc(&result).signal.as_deref()),
        (None, Some("SIGSEGV"))
    );
}

#[tokio::test]
async fn tails_are_cut_and_say_so() {
    let boxd = Boxd::start(&[]);
    let request = ExecRequest {
        tail_bytes: Some(4),
        ..line("printf 123456789")
    };
    let result = boxd.exec(request).await.result.unwrap();
    assert_eq!(
        (
            text(&result.stdout_tail),
            result.stdout_truncated,
            result.stderr_truncated
        ),
        ("6789", true, false)
    );
    let result = boxd.run("head -c 20000 /dev/zero").await;
    assert_eq!(
        (result.stdout_tail.len(), result.stdout_truncated),
        (16384, true)
    );
}

#[tokio::test]
async fn the_environment_is_a_logins_then_the_boxs_then_the_calls() {
    let boxd = Boxd::start_with(&[], &[("A", "box"), ("B", "box"), ("HOME", "/nowhere")]);
    let mut request = line(
        "echo $A $B $USER $LOGNAME $HOME $LANG $PWD; echo ${PATH:?} >/dev/null; pwd; ls /proc/self/fd | wc -l",
    );
    request.env.insert("B".to_owned(), "call".to_owned());
    request.cwd = "/usr".to_owned();
    let result = boxd.exec(request).await.result.unwrap();
    // `ls` has its three streams and the directory open: nothing of boxd's leaked.
    assert_eq!(
        text(&result.stdout_tail),
        "box call root root /root C.UTF-8 /usr\n/usr\n4\n"
    );
}

#[tokio::test]
async fn commands_get_default_signals_and_a_session_of_their_own() {
    let boxd = Boxd::start(&[]);
    let result = boxd
        .run("grep -E '^Sig(Blk|Ign)' /proc/self/status; cut -d' ' -f6 /proc/self/stat; echo $$")
        .await;
    let lines: Vec<_> = text(&result.stdout_tail).lines().collect();
    assert_eq!(
        lines[..2],
        ["SigBlk:\t0000000000000000", "SigIgn:\t0000000000000000"]
    );
    assert_eq!(lines[2], lines[3], "the shell leads its session");
}

#[tokio::test]
async fn another_user_is_that_user_in_all_its_groups() {
    let boxd = Boxd::start(&[]);
    let request = ExecRequest {
        user: "daemon".to_owned(),
        ..line("id -un; id -ru; echo $HOME; true > /etc/shadow-x")
    };
    let result = boxd.exec(request).await.result.unwrap();
    let lines: Vec<_> = text(&result.stdout_tail).lines().collect();
    assert_eq!(lines, ["daemon", "1", "/usr/sbin"]);
    assert_ne!(
        proc(&result).exit_code,
        Some(0),
        "daemon must not write to /etc"
    );
    // Nothing is left of root: no saved id, no capability.
    let request = ExecRequest {
        user: "daemon".to_owned(),
        ..line("grep -E '^(Uid|Gid|Groups|CapPrm|CapEff|CapAmb):' /proc/self/status | tr '\\t' ' '")
    };
    let result = boxd.exec(request).await.result.unwrap();
    let lines: Vec<_> = text(&result.stdout_tail).lines().map(str::trim).collect();
    let none = "0000000000000000";
    assert_eq!(
        lines,
        [
            "Uid: 1 1 1 1",
            "Gid: 1 1 1 1",
            "Groups: 1",
            &format!("CapPrm: {none}"),
            &format!("CapEff: {none}"),
            &format!("CapAmb: {none}"),
        ]
    );
    // Nor is anything of the user left in boxd.
    let result = boxd
        .exec(line("id -u; id -ru; id -G"))
        .await
        .result
        .unwrap();
    let lines: Vec<_> = text(&result.stdout_tail).lines().collect();
    assert_eq!(lines[..2], ["0", "0"]);
    assert!(lines[2].starts_with('0'), "{}", lines[2]);
    let request = ExecRequest {
        user: "daemon".to_owned(),
        cwd: "/root".to_owned(),
        ..line("true")
    };
    let error = within(boxd.own().exec(request))
        .await
        .expect_err("closed to daemon");
    let says = error.message.unwrap_or_default();
    assert!(
        says.contains("\"daemon\" may not enter \"/root\""),
        "{says}"
    );
    let request = ExecRequest {
        user: "nobody-here".to_owned(),
        ..line("true")
    };
    let error = within(boxd.own().exec(request))
        .await
        .expect_err("no such user");
    assert_eq!(error.code, ErrorCode::InvalidArgument);
}

#[tokio::test]
async fn input_is_delivered_and_ended_and_absent_input_is_empty() {
    let boxd = Boxd::start(&[]);
    let request = ExecRequest {
        stdin: vec![b'x'; 300_000],
        ..line("wc -c")
    };
    assert_eq!(
        text(&boxd.exec(request).await.result.unwrap().stdout_tail),
        "300000\n"
    );
    assert_eq!(text(&boxd.run("wc -c").await.stdout_tail), "0\n");
    let request = ExecRequest {
        stdin: vec![b'x'; 300_000],
        ..line("true")
    };
    assert_eq!(
        proc(&boxd.exec(request).await.result.unwrap()).exit_code,
        Some(0),
        "unread input is no failure"
    );
}

#[tokio::test]
async fn bad_requests_say_what_is_wrong() {
    let boxd = Boxd::start(&[]);
    let cases = [
        (
            ExecRequest {
                cwd: "no-such".to_owned(),
                ..line("true")
            },
            "no-such",
        ),
        (
            ExecRequest {
                exec_id: "XYZ".to_owned(),
                ..line("true")
            },
            "16 lowercase hex",
        ),
        (line("  "), "empty"),
        (
            line(&format!("echo {}", "x".repeat(200_000))),
            "at most 131071",
        ),
        (line("echo a\0b"), "NUL"),
    ];
    for (request, words) in cases {
        let error = within(boxd.own().exec(request)).await.expect_err("refused");
        assert_eq!(error.code, ErrorCode::InvalidArgument);
        assert!(error.to_string().contains(words), "{error}");
    }
    let mut request = line("true");
    request
        .env
        .extend((0..40).map(|n| (format!("V{n}"), "x".repeat(120_000))));
    let error = within(boxd.own().exec(request))
        .await
        .expect_err("more than the kernel takes");
    assert_eq!(error.code, ErrorCode::InvalidArgument, "{error}");
}

#[tokio::test]
async fn a_missing_program_is_bashs_127() {
    let boxd = Boxd::start(&[]);
    let result = boxd.run("no-such-program at all").await;
    assert_eq!(proc(&result).exit_code, Some(127));
    assert!(text(&result.stderr_tail).contains("no-such-program"));
}

#[tokio::test]
async fn rule_12_1_a_deadline_terminates_the_group_and_spares_a_setsid_child() {
    let boxd = Boxd::start(&[]);
    let cmd = "setsid sleep 300 >/dev/null 2>&1 & echo $!; sleep 301 & echo $!; echo so far; wait";
    let began = Instant::now();
    let request = ExecRequest {
        timeout_ms: 300,
        ..line(cmd)
    };
    let result = boxd.exec(request).await.result.unwrap();
    let took = began.elapsed();
    let info = proc(&result);
    assert_eq!(
        (info.timed_out, info.signal.as_deref()),
        (true, Some("SIGTERM"))
    );
    assert!(
        took >= Duration::from_millis(300) && took < Duration::from_millis(1500),
        "{took:?}"
    );
    let lines: Vec<_> = text(&result.stdout_tail).lines().collect();
    assert_eq!(lines[2], "so far");
    let (survivor, member): (i32, i32) = (lines[0].parse().unwrap(), lines[1].parse().unwrap());
    until("the group's member is gone", || !alive(member)).await;
    assert!(alive(survivor));
    signal(survivor, Signal::KILL);
    until("the survivor is reaped", || !alive(survivor)).await;
}

#[tokio::test]
async fn rule_12_1_a_command_that_ignores_sigterm_is_killed_after_the_grace() {
    let boxd = Boxd::start(&[]);
    let began = Instant::now();
    let request = ExecRequest {
        timeout_ms: 100,
        ..line("trap '' TERM; echo deaf; while :; do sleep 1; done")
    };
    let result = boxd.exec(request).await.result.unwrap();
    let took = began.elapsed();
    assert_eq!(
        (proc(&result).timed_out, proc(&result).signal.as_deref()),
        (true, Some("SIGKILL"))
    );
    assert_eq!(text(&result.stdout_tail), "deaf\n");
    assert!(
        took >= Duration::from_millis(2100) && took < Duration::from_millis(3500),
        "{took:?}"
    );
}

#[tokio::test]
async fn rule_12_1_a_child_that_holds_the_output_open_delays_the_answer() {
    let boxd = Boxd::start(&[]);
    let began = Instant::now();
    let result = boxd.run("(sleep 0.4; echo late) & echo early").await;
    assert!(began.elapsed() >= Duration::from_millis(400));
    assert_eq!(
        (text(&result.stdout_tail), proc(&result).exit_code),
        ("early\nlate\n", Some(0))
    );
    // And no longer than the deadline.
    let request = ExecRequest {
        timeout_ms: 200,
        ..line("sleep 300 & echo $!")
    };
    let result = boxd.exec(request).await.result.unwrap();
    assert!(proc(&result).timed_out);
    let holder: i32 = text(&result.stdout_tail).trim().parse().unwrap();
    until("the holder is ended", || !alive(holder)).await;
}

#[tokio::test]
async fn a_known_id_joins_its_run_and_never_runs_again() {
    let boxd = Boxd::start(&[]);
    let id = "00000000000000ab".to_owned();
    let request = || ExecRequest {
        exec_id: id.clone(),
        ..line("echo run >> ran; sleep 0.2; echo done")
    };
    let (first, second) = tokio::join!(boxd.exec(request()), boxd.exec(request()));
    assert_eq!(
        [first.joined, second.joined]
            .iter()
            .filter(|joined| **joined)
            .count(),
        1
    );
    let third = boxd
        .exec(ExecRequest {
            exec_id: id.clone(),
            ..line("echo other")
        })
        .await;
    assert!(third.joined);
    for answer in [first, second, third] {
        assert_eq!(text(&answer.result.unwrap().stdout_tail), "done\n");
    }
    assert_eq!(
        fs::read_to_string(boxd.dir.path().join("work/ran")).expect("written"),
        "run\n"
    );
}

#[tokio::test]
async fn a_client_that_hangs_up_ends_nothing_and_finds_its_result() {
    let boxd = Boxd::start(&[]);
    let id = "00000000000000ac".to_owned();
    let request = || ExecRequest {
        exec_id: id.clone(),
        ..line("echo $$; while [ ! -e go ]; do sleep 0.02; done; echo on")
    };
    let client = boxd.own();
    let gone = tokio::time::timeout(Duration::from_millis(300), client.exec(request())).await;
    assert!(gone.is_err(), "the command waits for its file");
    assert_eq!(boxd.info().await.running_foreground, 1);
    fs::write(boxd.dir.path().join("work/go"), "").expect("written");
    let answer = boxd.exec(request()).await;
    assert!(answer.joined && text(&answer.result.unwrap().stdout_tail).ends_with("on\n"));
}

#[tokio::test]
async fn a_background_command_answers_at_once_and_is_waited_for_and_stopped_by_id() {
    let boxd = Boxd::start(&[]);
    let started = boxd
        .exec(ExecRequest {
            background: true,
            ..line("sleep 300")
        })
        .await
        .result
        .unwrap();
    let info = proc(&started).clone();
    assert!(info.running && info.background && alive(i32::try_from(info.pid).unwrap()));
    assert_eq!(
        (
            boxd.info().await.running_foreground,
            boxd.info().await.running_background
        ),
        (0, 1)
    );
    let client = boxd.own();
    let wait = WaitRequest {
        exec_id: info.exec_id.clone(),
        wait_ms: 50,
        ..Default::default()
    };
    let waited = within(client.wait(wait))
        .await
        .expect("answers")
        .into_owned();
    assert!(proc(&waited.result).running);
    let stop = || StopProcRequest {
        exec_id: info.exec_id.clone(),
        ..Default::default()
    };
    let stopped = within(client.stop_proc(stop()))
        .await
        .expect("answers")
        .into_owned();
    assert_eq!(
        (stopped.already_ended, stopped.proc.signal.as_deref()),
        (false, Some("SIGTERM"))
    );
    assert!(
        within(client.stop_proc(stop()))
            .await
            .expect("answers")
            .into_owned()
            .already_ended
    );
    let all = within(client.procs(ProcsRequest::default()))
        .await
        .expect("answers")
        .into_owned();
    assert_eq!(
        all.procs
            .iter()
            .map(|proc| &proc.exec_id)
            .collect::<Vec<_>>(),
        [&info.exec_id]
    );
    let running = ProcsRequest {
        running_only: true,
        ..Default::default()
    };
    assert!(
        within(client.procs(running))
            .await
            .expect("answers")
            .into_owned()
            .procs
            .is_empty()
    );
}

#[tokio::test]
async fn a_stop_without_grace_kills_at_once() {
    let boxd = Boxd::start(&[]);
    let request = ExecRequest {
        background: true,
        ..line("trap '' TERM; while :; do sleep 1; done")
    };
    let exec_id = boxd.exec(request).await.result.proc.exec_id.clone();
    let began = Instant::now();
    let stop = StopProcRequest {
        exec_id,
        grace_ms: Some(0),
        ..Default::default()
    };
    let stopped = within(boxd.own().stop_proc(stop))
        .await
        .expect("answers")
        .into_owned();
    assert_eq!(stopped.proc.signal.as_deref(), Some("SIGKILL"));
    assert!(began.elapsed() < Duration::from_secs(1));
}

#[tokio::test]
async fn housekeeping_however_often_pushes_no_command_out() {
    let boxd = Boxd::start(&[]);
    boxd.exec(line("echo kept")).await;
    for _ in 0..220 {
        boxd.exec(line(": /work/.psbx-sync/; true")).await;
    }
    let client = boxd.own();
    let all = within(client.procs(ProcsRequest::default()))
        .await
        .expect("answers")
        .into_owned();
    let oldest = all.procs.last().expect("some");
    assert_eq!((all.procs.len(), &*oldest.cmd), (9, "echo kept"));
}

#[tokio::test]
async fn only_the_newest_200_ended_ones_are_kept_and_older_ids_never_run_again() {
    let boxd = Boxd::start(&[]);
    let id = |n: u32| format!("{n:016x}");
    for n in 0..205 {
        boxd.exec(ExecRequest {
            exec_id: id(n),
            ..line("true")
        })
        .await;
    }
    let client = boxd.own();
    let all = within(client.procs(ProcsRequest::default()))
        .await
        .expect("answers")
        .into_owned();
    assert_eq!((all.procs.len(), &all.procs[0].exec_id), (200, &id(204)));
    let error = within(client.exec(ExecRequest {
        exec_id: id(0),
        ..line("true")
    }))
    .await
    .expect_err("refused");
    assert_eq!(error.code, ErrorCode::FailedPrecondition);
    let unknown = ProcRequest {
        exec_id: id(999),
        ..Default::default()
    };
    assert_eq!(
        within(client.proc(unknown))
            .await
            .expect_err("unknown")
            .code,
        ErrorCode::NotFound
    );
}

#[tokio::test]
async fn a_thaw_is_noted_and_a_flush_completes() {
    let boxd = Boxd::start(&[]);
    let (before, client) = (boxd.info().await, boxd.own());
    let request = AfterThawRequest {
        unix_ms: before.started_ms + 3_600_000,
        from_ram: true,
        ..Default::default()
    };
    let skew_ms = within(client.after_thaw(request))
        .await
        .expect("answers")
        .into_owned()
        .skew_ms;
    assert!((3_590_000..=3_600_000).contains(&skew_ms), "{skew_ms}");
    let after = boxd.info().await;
    assert_eq!(
        (after.thaws, after.skew_ms, &after.start_id),
        (1, skew_ms, &before.start_id)
    );
    assert!(after.processes > 1 && after.version == env!("CARGO_PKG_VERSION"));
    let flush = FlushRequest {
        max_ms: 20_000,
        ..Default::default()
    };
    assert!(
        within(client.flush(flush))
            .await
            .expect("answers")
            .into_owned()
            .complete
    );
}

#[tokio::test]
async fn rule_12_1_time_spent_frozen_does_not_count_towards_the_deadline() {
    const FROZEN: Duration = Duration::from_secs(2);
    let boxd = Boxd::start(&[]);
    let request = ExecRequest {
        timeout_ms: 1_500,
        background: true,
        ..line("exec sleep 300")
    };
    let began = Instant::now();
    let exec_id = boxd.exec(request).await.result.proc.exec_id.clone();
    // A stopped boxd finds its monotonic clock jumped, as after a thaw from RAM.
    signal(boxd.pid(), Signal::STOP);
    tokio::time::sleep(FROZEN).await;
    signal(boxd.pid(), Signal::CONT);
    let wait = WaitRequest {
        exec_id,
        wait_ms: 15_000,
        ..Default::default()
    };
    let waited = within(boxd.own().wait(wait))
        .await
        .expect("answers")
        .into_owned();
    let took = began.elapsed();
    assert!(proc(&waited.result).timed_out);
    // The jump counted for a second at most, so half of the deadline was still to come.
    assert!(took >= FROZEN + Duration::from_millis(400), "{took:?}");
}
