//! `POST /files`: what is kept, what is refused, and that nothing half-done stays.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::harness::{Answer, Boxd, head, until};

const RAW: (&str, &str) = ("Content-Type", "application/octet-stream");
const PARTS: (&str, &str) = ("Content-Type", "multipart/form-data; boundary=XX");

fn raw(boxd: &Boxd, path: &str, content: &[u8]) -> Answer {
    boxd.http("POST", &format!("/files?path={path}"), &[RAW], content)
}

/// A multipart body of parts named `file`.
fn parts<'a>(files: impl IntoIterator<Item = (&'a str, &'a str)>) -> Vec<u8> {
    let mut body = String::new();
    for (name, content) in files {
        body.push_str(&format!(
            "--XX\r\nContent-Disposition: form-data; name=\"file\"; filename=\"{name}\"\r\n\r\n{content}\r\n"
        ));
    }
    body.push_str("--XX--\r\n");
    body.into_bytes()
}

/// Everything in a directory and below.
fn names(dir: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(dir).expect("a directory").flatten() {
        found.insert(entry.file_name().to_string_lossy().into_owned());
        if entry.file_type().expect("known").is_dir() {
            found.extend(names(&entry.path()));
        }
    }
    found
}

fn gzip(content: &[u8]) -> Vec<u8> {
    let mut child = Command::new("gzip")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("runs");
    let mut stdin = child.stdin.take().expect("piped");
    let content = content.to_vec();
    let feeding = std::thread::spawn(move || stdin.write_all(&content));
    let packed = child.wait_with_output().expect("ends").stdout;
    feeding.join().expect("fed").expect("fed");
    packed
}

#[tokio::test]
async fn one_raw_file_gets_there_with_the_directories_above() {
    let boxd = Boxd::start(&[]);
    let path = boxd.named("a/b/file.txt");
    let answer = raw(&boxd, &path, b"content");
    assert_eq!(answer.status, 200);
    assert_eq!(
        answer.json(),
        serde_json::json!([{"path": path, "name": "file.txt", "type": "file"}])
    );
    assert_eq!(fs::read(&path).expect("there"), b"content");
    assert_eq!(fs::metadata(&path).expect("there").mode() & 0o777, 0o644);
    assert_eq!(raw(&boxd, &path, b"").status, 200);
    assert_eq!(fs::read(&path).expect("there"), b"");
    assert_eq!(names(&boxd.at("")).len(), 3);
}

#[tokio::test]
async fn parts_name_their_own_paths() {
    let boxd = Boxd::start(&[]);
    let (one, two) = (boxd.named("x/one"), boxd.named("two ü.txt"));
    let body = parts([(one.as_str(), "1\r\n--X"), (two.as_str(), "")]);
    let answer = boxd.http("POST", "/files", &[PARTS], &body);
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.json()[1]["path"], two.as_str());
    assert_eq!(fs::read(&one).expect("there"), b"1\r\n--X");
    assert_eq!(fs::read(&two).expect("there"), b"");
    // A path in the query wins over the name of the one part.
    let target = format!("/files?path={}", boxd.named("three"));
    let answer = boxd.http("POST", &target, &[PARTS], &parts([("ignored", "3")]));
    assert_eq!(
        (answer.status, fs::read(boxd.at("three")).expect("there")),
        (200, b"3".to_vec())
    );
    // Other parts are passed over.
    let body = b"--XX\r\nContent-Disposition: form-data; name=\"other\"\r\n\r\nx\r\n--XX--\r\n";
    assert_eq!(boxd.http("POST", "/files", &[PARTS], body).status, 400);
}

#[tokio::test]
async fn ten_thousand_files_go_in_one_upload_and_no_more() {
    let boxd = Boxd::start(&[]);
    let paths: Vec<String> = (0..10_001).map(|n| boxd.named(&format!("d/{n}"))).collect();
    let few = parts(paths[..10_000].iter().map(|path| (path.as_str(), "x")));
    let many = parts(paths.iter().map(|path| (path.as_str(), "x")));
    let refused = boxd.http("POST", "/files", &[PARTS], &many);
    assert_eq!(refused.status, 400);
    assert!(refused.text().contains("10000"), "{}", refused.text());
    assert_eq!(names(&boxd.at("")), BTreeSet::new(), "nothing of it stays");
    assert_eq!(boxd.http("POST", "/files", &[PARTS], &few).status, 200);
    assert_eq!(names(&boxd.at("d")).len(), 10_000);
}

#[tokio::test]
async fn refused_uploads_leave_everything_as_it_was() {
    let boxd = Boxd::start(&[]);
    fs::write(boxd.at("kept"), "old").expect("written");
    fs::create_dir(boxd.at("dir")).expect("made");
    assert!(
        Command::new("mkfifo")
            .arg(boxd.at("fifo"))
            .status()
            .expect("runs")
            .success()
    );
    let before = names(&boxd.at(""));
    let kept = boxd.named("kept");
    let twice = format!("{}/../kept", boxd.named("dir"));
    let broken = &parts([(kept.as_str(), "new")])[..60];
    let target = |name: &str| format!("/files?path={}", boxd.named(name));
    let packed = &gzip(b"hello")[..10];
    let gzipped = ("Content-Encoding", "gzip");
    let long = format!("x-metadata-{}", "k".repeat(247));
    let header = format!("--XX\r\nX: {}", "y".repeat(2 << 20));
    for (what, target, headers, body) in [
        (
            "twice",
            "/files".to_owned(),
            &[PARTS][..],
            parts([(kept.as_str(), "new"), (twice.as_str(), "x")]),
        ),
        ("broken off", "/files".to_owned(), &[PARTS], broken.to_vec()),
        (
            "no files",
            "/files".to_owned(),
            &[PARTS],
            b"--XX--\r\n".to_vec(),
        ),
        (
            "no multipart",
            "/files".to_owned(),
            &[PARTS],
            b"hello".to_vec(),
        ),
        (
            "huge header",
            "/files".to_owned(),
            &[PARTS],
            header.into_bytes(),
        ),
        (
            "no boundary",
            target("kept"),
            &[("Content-Type", "multipart/form-data")],
            b"x".to_vec(),
        ),
        ("no type", target("kept"), &[], b"x".to_vec()),
        ("no path", "/files".to_owned(), &[RAW], b"x".to_vec()),
        ("a directory", target("dir"), &[RAW], b"x".to_vec()),
        ("a fifo", target("fifo"), &[RAW], b"x".to_vec()),
        (
            "a device",
            "/files?path=/dev/null".to_owned(),
            &[RAW],
            b"x".to_vec(),
        ),
        ("below a file", target("kept/x"), &[RAW], b"x".to_vec()),
        (
            "NUL",
            "/files?path=/a%00b".to_owned(),
            &[RAW],
            b"x".to_vec(),
        ),
        ("root", "/files?path=/".to_owned(), &[RAW], b"x".to_vec()),
        (
            "a long name",
            target(&"n".repeat(256)),
            &[RAW],
            b"x".to_vec(),
        ),
        (
            "broken gzip",
            target("kept"),
            &[RAW, gzipped],
            packed.to_vec(),
        ),
        (
            "no gzip",
            target("kept"),
            &[RAW, gzipped],
            b"hello".to_vec(),
        ),
        (
            "a long key",
            target("kept"),
            &[RAW, (long.as_str(), "v")],
            b"x".to_vec(),
        ),
    ] {
        let answer = boxd.http("POST", &target, headers, &body);
        assert_eq!(answer.status, 400, "{what}: {}", answer.text());
        assert_eq!(answer.json()["code"], 400, "{what}");
        assert_eq!(fs::read(&kept).expect("there"), b"old", "{what}");
        assert_eq!(names(&boxd.at("")), before, "{what}");
    }
    let unknown = [RAW, ("Content-Encoding", "br")];
    assert_eq!(
        boxd.http("POST", &target("kept"), &unknown, b"x").status,
        415
    );
    let nobody = format!("{}&username=nosuchuser", target("kept"));
    assert_eq!(boxd.http("POST", &nobody, &[RAW], b"x").status, 401);
    assert_eq!(boxd.http("PUT", &target("kept"), &[RAW], b"x").status, 405);
}

#[tokio::test]
async fn a_client_that_stops_half_way_changes_nothing() {
    let boxd = Boxd::start(&[]);
    fs::write(boxd.at("kept"), "old").expect("written");
    for (name, headers, body) in [
        ("kept", &[RAW][..], vec![b'x'; 300_000]),
        ("new/sub/file", &[RAW], vec![b'x'; 300_000]),
        (
            "new/parts",
            &[PARTS],
            parts([("ignored", "content")])[..90].to_vec(),
        ),
    ] {
        let mut connection = boxd.connect();
        let target = format!("/files?path={}", boxd.named(name));
        connection
            .write_all(&head("POST", &target, headers, 1 << 20))
            .expect("sent");
        connection.write_all(&body).expect("sent");
        until("the upload has begun", || {
            names(&boxd.at(""))
                .iter()
                .any(|name| name.starts_with(".boxd-upload-"))
        })
        .await;
        drop(connection);
        until("it is undone", || names(&boxd.at("")).len() == 1).await;
        assert_eq!(fs::read(boxd.at("kept")).expect("there"), b"old");
    }
}

#[tokio::test]
async fn what_is_replaced_keeps_its_mode_owner_links_and_names() {
    let boxd = Boxd::start(&[]);
    fs::set_permissions(boxd.dir.path(), fs::Permissions::from_mode(0o755)).expect("ours");
    fs::write(boxd.at("script"), "old").expect("written");
    fs::set_permissions(boxd.at("script"), fs::Permissions::from_mode(0o755)).expect("ours");
    std::os::unix::fs::chown(boxd.at("script"), Some(1), Some(1)).expect("ours");
    symlink("script", boxd.at("link")).expect("linked");
    symlink("made", boxd.at("broken")).expect("linked");
    assert_eq!(raw(&boxd, &boxd.named("link"), b"new").status, 200);
    assert_eq!(raw(&boxd, &boxd.named("broken"), b"made").status, 200);
    let meta = fs::metadata(boxd.at("script")).expect("there");
    assert_eq!((meta.mode() & 0o777, meta.uid(), meta.len()), (0o755, 1, 3));
    assert!(
        fs::symlink_metadata(boxd.at("link"))
            .expect("there")
            .is_symlink()
    );
    assert_eq!(fs::read(boxd.at("made")).expect("there"), b"made");
    // A file with two names stays one file.
    fs::write(boxd.at("one"), "something longer").expect("written");
    fs::hard_link(boxd.at("one"), boxd.at("two")).expect("linked");
    assert_eq!(raw(&boxd, &boxd.named("one"), b"both").status, 200);
    assert_eq!(fs::read(boxd.at("two")).expect("there"), b"both");
    // A file the user may write to, in a directory the user may not.
    fs::write(boxd.at("open"), "old").expect("written");
    fs::set_permissions(boxd.at("open"), fs::Permissions::from_mode(0o666)).expect("ours");
    let as_daemon = |name: &str| format!("{}&username=daemon", boxd.named(name));
    assert_eq!(raw(&boxd, &as_daemon("open"), b"theirs").status, 200);
    assert_eq!(fs::read(boxd.at("open")).expect("there"), b"theirs");
    assert_eq!(fs::metadata(boxd.at("open")).expect("there").uid(), 0);
    for refused in ["two", "new"] {
        let answer = raw(&boxd, &as_daemon(refused), b"x");
        assert_eq!(answer.status, 403, "{}", answer.text());
    }
    assert_eq!(fs::read(boxd.at("two")).expect("there"), b"both");
    assert!(!names(&boxd.at("")).iter().any(|name| name.starts_with('.')));
}

#[tokio::test]
async fn metadata_is_kept_told_and_replaced() {
    let boxd = Boxd::start(&[]);
    let path = boxd.named("file");
    let target = format!("/files?path={path}");
    let headers = [RAW, ("X-Metadata-Author", "alice"), ("X-Metadata-b", "2")];
    let answer = boxd.http("POST", &target, &headers, b"x");
    assert_eq!(
        answer.json()[0]["metadata"],
        serde_json::json!({"author": "alice", "b": "2"})
    );
    let request = || icebox_wire::filesystem::StatRequest {
        path: path.clone(),
        ..Default::default()
    };
    let entry = boxd
        .files()
        .stat(request())
        .await
        .expect("there")
        .into_owned();
    let mut told: Vec<_> = entry
        .entry
        .metadata
        .iter()
        .map(|(key, value)| (key.as_str(), value.as_str()))
        .collect();
    told.sort_unstable();
    assert_eq!(told, [("author", "alice"), ("b", "2")]);
    fs::hard_link(&path, boxd.at("other")).expect("linked");
    assert_eq!(
        boxd.http("POST", &target, &[RAW, ("X-Metadata-c", "3")], b"y")
            .status,
        200
    );
    let entry = boxd
        .files()
        .stat(request())
        .await
        .expect("there")
        .into_owned();
    assert_eq!(
        entry.entry.metadata.iter().collect::<Vec<_>>(),
        [(&"c".to_owned(), &"3".to_owned())]
    );
    assert_eq!(raw(&boxd, &path, b"z").status, 200);
    let entry = boxd
        .files()
        .stat(request())
        .await
        .expect("there")
        .into_owned();
    assert!(entry.entry.metadata.is_empty());
}

#[tokio::test]
async fn packed_uploads_are_unpacked() {
    let boxd = Boxd::start(&[]);
    let content: Vec<u8> = (0..2_000_000_u32)
        .flat_map(|n| (n / 7).to_le_bytes())
        .collect();
    let target = format!("/files?path={}", boxd.named("file"));
    let gzipped = ("Content-Encoding", "gzip");
    assert_eq!(
        boxd.http("POST", &target, &[RAW, gzipped], &gzip(&content))
            .status,
        200
    );
    assert!(fs::read(boxd.at("file")).expect("there") == content);
    let body = gzip(&parts([("ignored", "in parts")]));
    assert_eq!(
        boxd.http("POST", &target, &[PARTS, gzipped], &body).status,
        200
    );
    assert_eq!(fs::read(boxd.at("file")).expect("there"), b"in parts");
}

/// A small file system, gone with the test.
struct Small<'a>(&'a Path);

impl<'a> Small<'a> {
    fn mount(at: &'a Path) -> Self {
        fs::create_dir(at).expect("made");
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=1m", "boxd-test"])
            .arg(at)
            .status();
        assert!(mounted.expect("runs").success());
        Self(at)
    }
}

impl Drop for Small<'_> {
    fn drop(&mut self) {
        // A failed test says so by itself.
        drop(Command::new("umount").arg("-l").arg(self.0).status());
    }
}

#[tokio::test]
async fn a_full_disk_is_told_and_leaves_no_half_file() {
    let boxd = Boxd::start(&[]);
    let small = boxd.at("small");
    let _mounted = Small::mount(&small);
    fs::write(small.join("kept"), "old").expect("written");
    fs::hard_link(small.join("kept"), small.join("kept2")).expect("linked");
    let large = vec![b'x'; 3 << 20];
    for name in ["small/new", "small/sub/new", "small/kept"] {
        let answer = raw(&boxd, &boxd.named(name), &large);
        assert_eq!(answer.status, 507, "{}", answer.text());
        assert_eq!(answer.json()["code"], 507);
    }
    assert_eq!(names(&small), ["kept", "kept2"].map(str::to_owned).into());
    assert_eq!(fs::read(small.join("kept")).expect("there"), b"old");
    assert_eq!(raw(&boxd, &boxd.named("small/new"), b"fits").status, 200);
}

/// boxd's most memory so far, in KiB.
fn high_water(boxd: &Boxd) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", boxd.pid())).expect("runs");
    let line = status
        .lines()
        .find(|line| line.starts_with("VmHWM:"))
        .expect("told");
    line.split_whitespace()
        .nth(1)
        .and_then(|kib| kib.parse().ok())
        .expect("a number")
}

#[tokio::test]
async fn memory_stays_flat_whatever_the_size() {
    let boxd = Boxd::start(&[]);
    let content = vec![7; 64 << 20];
    let target = format!("/files?path={}", boxd.named("file"));
    raw(&boxd, &boxd.named("small"), b"x");
    let before = high_water(&boxd);
    assert_eq!(raw(&boxd, &boxd.named("file"), &content).status, 200);
    let mut body =
        b"--XX\r\nContent-Disposition: form-data; name=\"file\"; filename=\"f\"\r\n\r\n".to_vec();
    body.extend_from_slice(&content);
    body.extend_from_slice(b"\r\n--XX--\r\n");
    assert_eq!(boxd.http("POST", &target, &[PARTS], &body).status, 200);
    drop(body);
    // A reader that is slow to begin must not make boxd read ahead.
    let mut connection = boxd.connect();
    connection
        .write_all(&head("GET", &target, &[], 0))
        .expect("sent");
    until("the download has begun", || {
        connection.peek(&mut [0; 1000]).is_ok_and(|len| len == 1000)
    })
    .await;
    let mut answer = Vec::new();
    connection.read_to_end(&mut answer).expect("answered");
    assert!(answer.ends_with(&content));
    let grown = high_water(&boxd) - before;
    assert!(grown < 24 * 1024, "{grown} KiB more than before");
}
