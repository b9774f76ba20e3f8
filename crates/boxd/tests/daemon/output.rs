//! Kept output: offsets, following, the cap, files.

use connectrpc::ErrorCode;
use icebox_wire::boxd::{ExecRequest, OutputRequest, OutputResponse, Stream};

use crate::harness::{Boxd, line, proc, until, within};
use crate::processes::start_line;

async fn read(boxd: &Boxd, exec_id: &str, offset: u64, wait_ms: u64) -> OutputResponse {
    let request = OutputRequest {
        exec_id: exec_id.to_owned(),
        stream: Stream::STREAM_STDOUT.into(),
        offset,
        wait_ms,
        ..Default::default()
    };
    within(boxd.own().output(request))
        .await
        .expect("output answers")
        .into_owned()
}

#[tokio::test]
async fn output_is_followed_by_offset_to_its_end() {
    let boxd = Boxd::start(&[]);
    let request = ExecRequest {
        background: true,
        ..line("for n in 1 2 3; do echo $n; sleep 0.1; done")
    };
    let exec_id = boxd.exec(request).await.result.proc.exec_id.clone();
    let (mut data, mut offset) = (Vec::new(), 0);
    loop {
        let piece = read(&boxd, &exec_id, offset, 10_000).await;
        assert_eq!(piece.data_offset, offset);
        data.extend_from_slice(&piece.data);
        offset = piece.next_offset;
        if piece.eof {
            break;
        }
    }
    assert_eq!(data, b"1\n2\n3\n");
    assert_eq!(read(&boxd, &exec_id, 2, 0).await.data, b"2\n3\n");
}

#[tokio::test]
async fn waiting_for_output_ends_empty_when_none_comes() {
    let boxd = Boxd::start(&[]);
    let exec_id = boxd
        .exec(ExecRequest {
            background: true,
            ..line("sleep 300")
        })
        .await
        .result
        .proc
        .exec_id
        .clone();
    let piece = read(&boxd, &exec_id, 0, 30).await;
    assert_eq!(
        (piece.data.len(), piece.eof, piece.next_offset),
        (0, false, 0)
    );
}

#[tokio::test]
async fn past_64_mib_the_middle_is_dropped_and_said_so() {
    const MIB: u64 = 1 << 20;
    let boxd = Boxd::start(&[]);
    let cmd = "printf first; head -c 70M /dev/zero; printf last";
    let result = boxd
        .exec(ExecRequest {
            tail_bytes: Some(4),
            ..line(cmd)
        })
        .await
        .result
        .unwrap();
    assert_eq!(result.stdout_tail, b"last");
    let (exec_id, total) = (proc(&result).exec_id.clone(), 70 * MIB + 9);
    assert_eq!(proc(&result).stdout_bytes, total);
    let head = read(&boxd, &exec_id, 0, 0).await;
    assert_eq!(
        (&head.data[..6], head.data.len() as u64),
        (&b"first\0"[..], MIB)
    );
    assert_eq!(
        (head.dropped_from, head.dropped_to, head.total_bytes),
        (32 * MIB, total - 32 * MIB, total)
    );
    let middle = read(&boxd, &exec_id, 35 * MIB, 0).await;
    assert_eq!(middle.data_offset, head.dropped_to);
    let end = read(&boxd, &exec_id, total - 5, 0).await;
    assert_eq!((&end.data[..], end.eof), (&b"\0last"[..], true));
    assert!(
        boxd.dir
            .path()
            .join("state/procs")
            .join(&exec_id)
            .join("stdout")
            .exists()
    );
}

#[tokio::test]
async fn a_burst_larger_than_the_pipe_arrives_whole_and_in_order() {
    let boxd = Boxd::start(&["--output-cap-bytes", "4000000"]);
    let result = boxd.run("seq 1 200000").await;
    let exec_id = proc(&result).exec_id.clone();
    let (mut data, mut offset) = (Vec::new(), 0);
    loop {
        let piece = read(&boxd, &exec_id, offset, 0).await;
        data.extend_from_slice(&piece.data);
        offset = piece.next_offset;
        if piece.eof {
            break;
        }
    }
    let expected: String = (1..=200_000).map(|n| format!("{n}\n")).collect();
    assert!(data == expected.as_bytes());
}

#[tokio::test]
async fn unknown_ids_and_streams_are_refused() {
    let boxd = Boxd::start(&[]);
    let request = OutputRequest {
        exec_id: "00000000000000ff".to_owned(),
        stream: Stream::STREAM_STDERR.into(),
        ..Default::default()
    };
    let error = within(boxd.own().output(request))
        .await
        .expect_err("unknown");
    assert_eq!(error.code, ErrorCode::NotFound);
    let exec_id = proc(&boxd.run("true").await).exec_id.clone();
    let error = within(boxd.own().output(OutputRequest {
        exec_id,
        ..Default::default()
    }))
    .await
    .expect_err("no stream");
    assert_eq!(error.code, ErrorCode::InvalidArgument);
}

#[tokio::test]
async fn a_reader_that_stalls_does_not_hold_the_process_up() {
    let boxd = Boxd::start(&[]);
    let work = boxd.dir.path().join("work");
    let mut request = start_line("head -c 30M /dev/zero; touch done; sleep 300");
    request.process.get_or_insert_default().cwd = Some(work.to_string_lossy().into_owned());
    let stalled = within(boxd.process().start(request)).await.expect("starts");
    until("the process got past its output", || {
        work.join("done").exists()
    })
    .await;
    drop(stalled);
}
