//! `GET /files`: whole files, ranges, packed ones, and what is no file.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Stdio};

use crate::harness::{Boxd, head, until};

#[tokio::test]
async fn a_file_comes_back_whole_or_in_part() {
    let boxd = Boxd::start(&[]);
    let content: Vec<u8> = (0..=255_u8).cycle().take(1_000_003).collect();
    fs::write(boxd.at("file ü.bin"), &content).expect("written");
    let target = format!("/files?path={}", boxd.named("file%20%C3%BC.bin"));
    let whole = boxd.http("GET", &target, &[], b"");
    assert_eq!(
        (whole.status, whole.header("content-length")),
        (200, Some("1000003"))
    );
    assert!(whole.body == content);
    assert_eq!(whole.header("accept-ranges"), Some("bytes"));
    assert_eq!(
        whole.header("content-disposition"),
        Some("inline; filename=\"file _.bin\"; filename*=UTF-8''file%20%C3%BC.bin")
    );
    for (range, from, to) in [
        ("0-0", 0, 1),
        ("700000-", 700_000, 1_000_003),
        ("-5", 999_998, 1_000_003),
    ] {
        let part = boxd.http("GET", &target, &[("Range", &format!("bytes={range}"))], b"");
        assert_eq!(part.status, 206);
        assert!(part.body == content[from..to], "{range}");
        let told = format!("bytes {from}-{}/1000003", to - 1);
        assert_eq!(part.header("content-range"), Some(told.as_str()));
    }
    let none = boxd.http("GET", &target, &[("Range", "bytes=1000003-")], b"");
    assert_eq!(
        (none.status, none.header("content-range")),
        (416, Some("bytes */1000003"))
    );
    let head = boxd.http("HEAD", &target, &[], b"");
    assert_eq!(
        (head.status, head.header("content-length"), head.body.len()),
        (200, Some("1000003"), 0)
    );
}

#[tokio::test]
async fn a_client_that_asks_for_gzip_gets_it() {
    let boxd = Boxd::start(&[]);
    let content: Vec<u8> = (0..1_000_000_u32)
        .flat_map(|n| (n / 9).to_le_bytes())
        .collect();
    fs::write(boxd.at("file"), &content).expect("written");
    let target = format!("/files?path={}", boxd.named("file"));
    let packed = boxd.http("GET", &target, &[("Accept-Encoding", "gzip")], b"");
    assert_eq!(packed.header("content-encoding"), Some("gzip"));
    assert!(packed.body.len() < content.len());
    let mut gunzip = Command::new("gzip")
        .arg("-d")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("runs");
    let mut stdin = gunzip.stdin.take().expect("piped");
    let feeding = std::thread::spawn(move || stdin.write_all(&packed.body));
    assert!(gunzip.wait_with_output().expect("ends").stdout == content);
    feeding.join().expect("fed").expect("fed");
    let habit = boxd.http("GET", &target, &[("Accept-Encoding", "gzip, deflate")], b"");
    assert!(habit.header("content-encoding").is_none() && habit.body == content);
    let neither = boxd.http("GET", &target, &[("Accept-Encoding", "identity;q=0")], b"");
    assert_eq!(neither.status, 406);
}

#[tokio::test]
async fn what_is_no_readable_file_is_refused() {
    let boxd = Boxd::start(&[]);
    fs::set_permissions(boxd.dir.path(), fs::Permissions::from_mode(0o755)).expect("ours");
    fs::write(boxd.at("file"), "x").expect("written");
    fs::set_permissions(boxd.at("file"), fs::Permissions::from_mode(0o600)).expect("ours");
    assert!(
        Command::new("mkfifo")
            .arg(boxd.at("fifo"))
            .status()
            .expect("runs")
            .success()
    );
    for (target, status) in [
        (boxd.named("none"), 404),
        (boxd.named(""), 400),
        (boxd.named("fifo"), 400),
        ("/dev/zero".to_owned(), 400),
        ("%00".to_owned(), 400),
        (boxd.named("file/below"), 400),
        (format!("{}&username=nosuchuser", boxd.named("file")), 401),
        (format!("{}&username=daemon", boxd.named("file")), 403),
    ] {
        let answer = boxd.http("GET", &format!("/files?path={target}"), &[], b"");
        assert_eq!(answer.status, status, "{target}: {}", answer.text());
        assert_eq!(answer.json()["code"], status, "{target}");
    }
}

#[tokio::test]
async fn empty_files_and_those_of_the_kernel_are_read() {
    let boxd = Boxd::start(&[]);
    fs::write(boxd.at("empty"), "").expect("written");
    let empty = boxd.http(
        "GET",
        &format!("/files?path={}", boxd.named("empty")),
        &[],
        b"",
    );
    assert_eq!((empty.status, empty.body.len()), (200, 0));
    let version = boxd.http("GET", "/files?path=/proc/version", &[], b"");
    assert!(
        version.text().starts_with("Linux version"),
        "{}",
        version.text()
    );
}

#[tokio::test]
async fn a_reader_that_leaves_frees_the_transfer() {
    let boxd = Boxd::start(&[]);
    fs::write(boxd.at("file"), vec![1; 16 << 20]).expect("written");
    let target = format!("/files?path={}", boxd.named("file"));
    let threads = || {
        fs::read_dir(format!("/proc/{}/task", boxd.pid()))
            .expect("runs")
            .count()
    };
    let mut held = Vec::new();
    for _ in 0..80 {
        let mut connection = boxd.connect();
        connection
            .write_all(&head("GET", &target, &[], 0))
            .expect("sent");
        held.push(connection);
    }
    // 64 transfers at most, and room for boxd's helpers.
    until("transfers run", || threads() > 64).await;
    assert!(threads() < 80, "{}", threads());
    drop(held);
    until("they ended", || threads() < 10).await;
    assert_eq!(boxd.http("GET", &target, &[], b"").body.len(), 16 << 20);
}
