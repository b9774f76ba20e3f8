//! Files in and out for the box's own server: archives are merged whole or not at all, and nothing leaves its folder.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::Path;

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use tar::{Builder, EntryType, Header};

use crate::harness::Boxd;

/// One entry of an archive, in any form that the format knows, whatever sense it makes.
#[derive(Clone, Copy)]
enum Entry<'a> {
    File(&'a str, &'a str),
    Run(&'a str, &'a str),
    Folder(&'a str),
    Link(&'a str, &'a str),
    Same(&'a str, &'a str),
    Device(&'a str),
}

fn archive(entries: &[Entry<'_>]) -> Vec<u8> {
    let mut tar = Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
    for entry in entries {
        let (name, kind, mode, content, target) = match *entry {
            Entry::File(name, content) => (name, EntryType::Regular, 0o644, content, ""),
            Entry::Run(name, content) => (name, EntryType::Regular, 0o4755, content, ""),
            Entry::Folder(name) => (name, EntryType::Directory, 0o755, "", ""),
            Entry::Link(name, target) => (name, EntryType::Symlink, 0o777, "", target),
            Entry::Same(name, target) => (name, EntryType::Link, 0o644, "", target),
            Entry::Device(name) => (name, EntryType::Char, 0o666, "", ""),
        };
        let mut header = Header::new_old();
        // By hand, because the library refuses what has to be tried.
        let fields = header.as_old_mut();
        fields.name[..name.len()].copy_from_slice(name.as_bytes());
        fields.linkname[..target.len()].copy_from_slice(target.as_bytes());
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_size(content.len() as u64);
        header.set_cksum();
        tar.append(&header, content.as_bytes()).expect("an entry");
    }
    tar.into_inner()
        .and_then(GzEncoder::finish)
        .expect("an archive")
}

/// An answer: its status, its head and its body.
struct Answer(u16, String, Vec<u8>);

impl Answer {
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.2).into_owned()
    }
}

/// One request, of which only `sent` bytes of the body arrive.
fn ask(boxd: &Boxd, line: &str, body: &[u8], sent: usize) -> Option<Answer> {
    let mut stream = TcpStream::connect(boxd.addr).expect("a connection");
    let head = format!(
        "{line} HTTP/1.1\r\nhost: boxd\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).expect("a request");
    stream.write_all(&body[..sent]).expect("a body");
    if sent < body.len() {
        stream.shutdown(std::net::Shutdown::Write).expect("cut off");
    }
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("an answer");
    let split = answer.windows(4).position(|end| end == b"\r\n\r\n")?;
    let head = String::from_utf8(answer[..split].to_vec()).expect("a head");
    let status = head.split(' ').nth(1)?.parse().ok()?;
    Some(Answer(status, head, answer.split_off(split + 4)))
}

fn merge(boxd: &Boxd, dest: &str, entries: &[Entry<'_>]) -> Answer {
    let body = archive(entries);
    let line = format!("POST /icebox/merge?dest={dest}");
    ask(boxd, &line, &body, body.len()).expect("an answer")
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).expect("a file")
}

#[tokio::test]
async fn an_archive_is_merged_and_what_is_the_same_stays_as_it_is() {
    let boxd = Boxd::start(&[]);
    let app = boxd.dir.path().join("work/app");
    let entries = [
        Entry::Folder("./"),
        Entry::File("a", "a"),
        Entry::Run("bin/run", "run"),
        Entry::Link("link", "bin/run"),
        Entry::Same("same", "a"),
        Entry::Folder("empty"),
    ];
    let answer = merge(&boxd, "app", &entries);
    assert_eq!(
        (answer.0, answer.text().as_str()),
        (200, r#"{"changed":4}"#)
    );
    assert_eq!(
        (read(&app.join("a")), read(&app.join("link"))),
        ("a".into(), "run".into())
    );
    let mode = fs::metadata(app.join("bin/run"))
        .expect("it is there")
        .permissions()
        .mode();
    assert_eq!(mode & 0o7777, 0o755, "no file changes users");
    assert!(app.join("empty").is_dir());
    let inode = |name: &str| fs::metadata(app.join(name)).expect("it is there").ino();
    assert_eq!(inode("a"), inode("same"));
    fs::write(app.join("own"), "own").expect("a file of the box");
    let before = inode("bin/run");
    let entries = [
        Entry::Folder("./"),
        Entry::File("b", "b"),
        Entry::Run("bin/run", "run"),
        Entry::Link("link", "b"),
    ];
    let answer = merge(&boxd, "/work/../work/app", &entries);
    assert_eq!(answer.0, 400, "{}", answer.text());
    let answer = merge(&boxd, "app", &entries);
    assert_eq!(answer.text(), r#"{"changed":2}"#);
    assert_eq!(inode("bin/run"), before);
    assert_eq!(
        (read(&app.join("own")), read(&app.join("link"))),
        ("own".into(), "b".into())
    );
    let left: Vec<_> = fs::read_dir(boxd.dir.path().join("work"))
        .expect("a folder")
        .collect();
    assert_eq!(left.len(), 1, "{left:?}");
}

#[tokio::test]
async fn nothing_leaves_its_folder_and_a_wrong_archive_changes_nothing() {
    let boxd = Boxd::start(&[]);
    let work = boxd.dir.path().join("work");
    let outside = boxd.dir.path().join("outside");
    fs::create_dir_all(work.join("app/folder")).expect("a folder");
    fs::create_dir(&outside).expect("a folder");
    symlink(&outside, work.join("app/out")).expect("a link");
    symlink("folder", work.join("app/in")).expect("a link");
    symlink(&outside, work.join("away")).expect("a link");
    fs::write(work.join("app/file"), "file").expect("a file");
    let good = Entry::File("good", "good");
    let rows = [
        ("app", Entry::File("../x", ""), "without `..`"),
        ("app", Entry::File("/x", ""), "must be relative"),
        ("app", Entry::File("a/../../x", ""), "without `..`"),
        ("app", Entry::Device("d"), "neither a file"),
        ("app", Entry::Link("l", "/etc/passwd"), "points out"),
        ("app", Entry::Link("l", "../x"), "points out"),
        ("app", Entry::Same("s", "/etc/passwd"), "no earlier file"),
        ("app", Entry::File("good/x", ""), "both `good`"),
        ("app", Entry::File("out/x", "x"), "leads out"),
        ("app", Entry::File("folder", "x"), "is a folder in the box"),
        ("app", Entry::Folder("file"), "is a file in the box"),
        ("app", Entry::File("file/x", "x"), "is a file in the box"),
        ("away", Entry::File("x", "x"), "leads out"),
        ("..", good, "`dest` must be"),
        ("~", good, "`dest` must be"),
        ("/etc", good, "`dest` must be"),
        ("", good, "`dest` must be"),
    ];
    for (dest, bad, expected) in rows {
        let answer = merge(&boxd, dest, &[good, bad]);
        assert_eq!(answer.0, 400, "{expected}: {}", answer.text());
        assert!(
            answer.text().contains(expected),
            "{expected}: {}",
            answer.text()
        );
        assert!(!work.join("app/good").exists(), "{expected}");
        assert_eq!(
            fs::read_dir(&outside).expect("a folder").count(),
            0,
            "{expected}"
        );
    }
    // A link that stays inside is followed, as tar and git do.
    assert_eq!(merge(&boxd, "app", &[Entry::File("in/x", "x")]).0, 200);
    assert_eq!(read(&work.join("app/folder/x")), "x");
}

#[tokio::test]
async fn an_archive_that_is_cut_off_changes_nothing() {
    let boxd = Boxd::start(&[]);
    let content = "x".repeat(100_000);
    let body = archive(&[Entry::File("a", "a"), Entry::File("b", &content)]);
    let line = "POST /icebox/merge?dest=app";
    for sent in [0, 10, body.len() / 2, body.len() - 1] {
        if let Some(answer) = ask(&boxd, line, &body, sent) {
            assert_ne!(answer.0, 200, "{sent}: {}", answer.text());
        }
    }
    for body in [
        &body[..body.len() - 1],
        &body[..body.len() / 2],
        b"no archive",
    ] {
        let answer = ask(&boxd, line, body, body.len()).expect("an answer");
        assert_eq!(answer.0, 400, "{}", answer.text());
        assert!(
            answer.text().contains("whole gzipped tar"),
            "{}",
            answer.text()
        );
    }
    let work = boxd.dir.path().join("work");
    crate::harness::until("nothing is left of it", || {
        fs::read_dir(&work).expect("a folder").count() == 0
    })
    .await;
}

#[tokio::test]
async fn a_file_is_written_and_read_and_a_folder_is_read_as_an_archive() {
    let boxd = Boxd::start(&[]);
    let line = "PUT /icebox/file?path=app/a%20b";
    assert_eq!(ask(&boxd, line, b"hello", 5).expect("an answer").0, 200);
    if let Some(answer) = ask(&boxd, line, b"hello again", 5) {
        assert_ne!(answer.0, 200, "it was cut off");
    }
    let got = ask(&boxd, "GET /icebox/file?path=/tmp/../etc/passwd", b"", 0).expect("an answer");
    assert_eq!(got.0, 400, "{}", got.text());
    let got = ask(&boxd, "GET /icebox/file?path=app/nosuch", b"", 0).expect("an answer");
    assert_eq!(got.0, 404, "{}", got.text());
    let got = ask(&boxd, "GET /icebox/file?path=app/a%20b", b"", 0).expect("an answer");
    assert_eq!((got.0, got.text().as_str()), (200, "hello"));
    assert!(got.1.contains("content-length: 5"), "{}", got.1);
    symlink("/etc/passwd", boxd.dir.path().join("work/app/out")).expect("a link");
    let got = ask(&boxd, "GET /icebox/file?path=app/out", b"", 0).expect("an answer");
    assert_eq!(got.0, 400, "{}", got.text());
    let answer = merge(&boxd, "app", &[Entry::Run("bin/run", "run")]);
    assert_eq!(answer.0, 200);
    let line = b"GET /icebox/file?path=app HTTP/1.0\r\n\r\n";
    let mut stream = TcpStream::connect(boxd.addr).expect("a connection");
    stream.write_all(line).expect("a request");
    let mut got = Vec::new();
    stream.read_to_end(&mut got).expect("an answer");
    let split = got
        .windows(4)
        .position(|end| end == b"\r\n\r\n")
        .expect("a head");
    let head = String::from_utf8_lossy(&got[..split]).to_lowercase();
    assert!(head.contains("x-icebox-archive: true"), "{head}");
    let mut tar = tar::Archive::new(GzDecoder::new(&got[split + 4..]));
    let names = tar.entries().expect("an archive").map(|entry| {
        let entry = entry.expect("an entry");
        let path = entry.path().expect("a path").into_owned();
        (path.display().to_string(), entry.size())
    });
    let names: Vec<_> = names.collect();
    let expected = [
        ("app/", 0),
        ("app/a b", 5),
        ("app/bin/", 0),
        ("app/bin/run", 3),
        ("app/out", 0),
    ];
    let names: Vec<_> = names
        .iter()
        .map(|(name, size)| (name.trim_end_matches('/'), *size))
        .collect();
    assert_eq!(
        names,
        expected.map(|(name, size)| (name.trim_end_matches('/'), size))
    );
}
