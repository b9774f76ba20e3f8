//! PID 1's other duty: orphans.

use std::fs;

use icebox_wire::boxd::ExecRequest;

use crate::harness::{Boxd, alive, line, proc, text, until};

/// The state letter and parent of a process, while it exists.
fn stat(pid: i32) -> Option<(char, i32)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    Some((fields.next()?.chars().next()?, fields.next()?.parse().ok()?))
}

fn children_of(parent: i32) -> Vec<(i32, char)> {
    let pids = fs::read_dir("/proc")
        .expect("proc")
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter_map(|pid| {
        stat(pid)
            .filter(|(_, of)| *of == parent)
            .map(|(state, _)| (pid, state))
    })
    .collect()
}

#[tokio::test]
async fn orphans_are_adopted_and_reaped_and_statuses_are_not_stolen() {
    let boxd = Boxd::start(&[]);
    let result = boxd.run("for n in 1 2 3 4 5; do (setsid sh -c 'sleep 0.1; exit 9' >/dev/null 2>&1 &); done; exit 7").await;
    assert_eq!(proc(&result).exit_code, Some(7));
    // Many short commands beside many orphans: every command must get its own code.
    let runs = (0..20).map(|code| {
        let boxd = &boxd;
        async move {
            let result = boxd
                .run(&format!("(true &); (exit 99 &); exit {code}"))
                .await;
            assert_eq!(proc(&result).exit_code, Some(code));
        }
    });
    futures_util::future::join_all(runs).await;
    until("no zombie is left", || {
        children_of(boxd.pid())
            .iter()
            .all(|(_, state)| *state != 'Z')
    })
    .await;
    until("nothing is left", || children_of(boxd.pid()).is_empty()).await;
}

#[tokio::test]
async fn boxds_end_ends_what_it_runs() {
    let boxd = Boxd::start(&[]);
    let started = boxd
        .exec(ExecRequest {
            background: true,
            ..line("echo $$; exec sleep 300")
        })
        .await
        .result
        .unwrap();
    let pid = i32::try_from(proc(&started).pid).expect("a process number");
    assert!(alive(pid));
    drop(boxd);
    until("the command is gone", || {
        !alive(pid) || stat(pid).is_some_and(|(state, _)| state == 'Z')
    })
    .await;
    assert_eq!(text(&started.stderr_tail), "");
}
