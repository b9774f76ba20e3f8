//! The filesystem service without its watchers: stat, list, make, move, remove, and as whom.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};

use connectrpc::client::CallOptions;
use connectrpc::{ConnectError, ErrorCode};
use icebox_wire::boxd::ConfigureRequest;
use icebox_wire::filesystem::{
    EntryInfo, FileType, ListDirRequest, MakeDirRequest, MoveRequest, RemoveRequest, StatRequest,
};

use crate::harness::{Boxd, within};

/// As `daemon`, who is in every `/etc/passwd`.
fn daemon() -> CallOptions {
    CallOptions::default().with_header("authorization", "Basic ZGFlbW9uOg==")
}

async fn stat(boxd: &Boxd, path: &str, options: CallOptions) -> Result<EntryInfo, ConnectError> {
    let request = StatRequest {
        path: path.to_owned(),
        ..Default::default()
    };
    let answer = within(boxd.files().stat_with_options(request, options)).await?;
    Ok(answer.into_owned().entry.into_option().expect("an entry"))
}

async fn list(boxd: &Boxd, path: &str, depth: u32) -> Result<Vec<EntryInfo>, ConnectError> {
    let request = ListDirRequest {
        path: path.to_owned(),
        depth,
        ..Default::default()
    };
    let answer = within(boxd.files().list_dir(request)).await?;
    Ok(answer.into_owned().entries)
}

async fn make_dir(
    boxd: &Boxd,
    path: &str,
    options: CallOptions,
) -> Result<EntryInfo, ConnectError> {
    let request = MakeDirRequest {
        path: path.to_owned(),
        ..Default::default()
    };
    let answer = within(boxd.files().make_dir_with_options(request, options)).await?;
    Ok(answer.into_owned().entry.into_option().expect("an entry"))
}

async fn move_to(boxd: &Boxd, source: &str, destination: &str) -> Result<EntryInfo, ConnectError> {
    let request = MoveRequest {
        source: source.to_owned(),
        destination: destination.to_owned(),
        ..Default::default()
    };
    let answer = within(boxd.files().r#move(request)).await?;
    Ok(answer.into_owned().entry.into_option().expect("an entry"))
}

async fn remove(boxd: &Boxd, path: &str, options: CallOptions) -> Result<(), ConnectError> {
    let request = RemoveRequest {
        path: path.to_owned(),
        ..Default::default()
    };
    within(boxd.files().remove_with_options(request, options)).await?;
    Ok(())
}

fn plain() -> CallOptions {
    CallOptions::default()
}

#[tokio::test]
async fn an_entry_says_all_about_a_file() {
    let boxd = Boxd::start(&[]);
    fs::write(boxd.at("file"), "12345").expect("written");
    fs::set_permissions(boxd.at("file"), fs::Permissions::from_mode(0o640)).expect("ours");
    let entry = stat(&boxd, &boxd.named("file"), plain())
        .await
        .expect("there");
    assert_eq!(
        (entry.name.as_str(), entry.size, entry.mode),
        ("file", 5, 0o640)
    );
    assert_eq!(entry.r#type, FileType::FILE_TYPE_FILE);
    assert_eq!(entry.path, boxd.named("file"));
    assert_eq!(entry.permissions, "-rw-r-----");
    assert_eq!(
        (entry.owner.as_str(), entry.group.as_str()),
        ("root", "root")
    );
    let modified = fs::metadata(boxd.at("file")).expect("there");
    let told = entry.modified_time.as_option().expect("a time");
    assert_eq!(
        (told.seconds, i64::from(told.nanos)),
        (modified.mtime(), modified.mtime_nsec())
    );
    assert_eq!((entry.is_symlink, entry.symlink_target), (false, None));
}

#[tokio::test]
async fn links_are_listed_under_their_own_name_and_not_followed() {
    let boxd = Boxd::start(&[]);
    fs::create_dir_all(boxd.at("real/sub")).expect("made");
    fs::write(boxd.at("real/a"), "").expect("written");
    symlink(boxd.at("real"), boxd.at("link")).expect("linked");
    symlink("loop", boxd.at("loop")).expect("linked");
    let listed = list(&boxd, &boxd.named("link"), 1).await.expect("lists");
    let paths: Vec<_> = listed.iter().map(|entry| entry.path.as_str()).collect();
    assert_eq!(paths, [boxd.named("link/a"), boxd.named("link/sub")]);
    let listed = list(&boxd, &boxd.named(""), 9).await.expect("lists");
    let names: Vec<_> = listed.iter().map(|entry| entry.name.as_str()).collect();
    assert_eq!(names, ["link", "loop", "real", "a", "sub"]);
    assert_eq!(listed[0].r#type, FileType::FILE_TYPE_DIRECTORY);
    assert_eq!(listed[0].symlink_target, Some(boxd.named("real")));
    assert!(listed[0].is_symlink);
    assert_eq!(listed[1].r#type, FileType::FILE_TYPE_SYMLINK);
    // No depth is one level.
    let listed = list(&boxd, &boxd.named(""), 0).await.expect("lists");
    assert_eq!(listed.len(), 3);
}

#[tokio::test]
async fn directories_and_moves_make_what_is_missing_above() {
    let boxd = Boxd::start(&[]);
    let made = make_dir(&boxd, &boxd.named("a/b/c"), plain())
        .await
        .expect("made");
    assert_eq!((made.name.as_str(), made.mode), ("c", 0o755));
    fs::write(boxd.at("file"), "x").expect("written");
    let moved = move_to(&boxd, &boxd.named("file"), &boxd.named("x/y/file2")).await;
    assert_eq!(moved.expect("moved").path, boxd.named("x/y/file2"));
    assert_eq!(fs::read(boxd.at("x/y/file2")).expect("there"), b"x");
    assert!(!boxd.at("file").exists());
    // A move that fails leaves no directories behind.
    let error = move_to(&boxd, &boxd.named("a"), &boxd.named("a/b/c/d/e")).await;
    assert_eq!(
        error.expect_err("into itself").code,
        ErrorCode::InvalidArgument
    );
    assert!(!boxd.at("a/b/c/d").exists());
    remove(&boxd, &boxd.named("a"), plain())
        .await
        .expect("removed");
    assert!(!boxd.at("a").exists());
    remove(&boxd, &boxd.named("a"), plain())
        .await
        .expect("removed already");
    remove(&boxd, &boxd.named("x/y/file2/z"), plain())
        .await
        .expect("never there");
}

/// `/dev/shm` is another file system than where tests have their directories.
#[tokio::test]
async fn a_move_between_file_systems_keeps_everything() {
    let boxd = Boxd::start(&[]);
    let elsewhere = tempfile::tempdir_in("/dev/shm").expect("a directory");
    let there = |name: &str| elsewhere.path().join(name);
    fs::create_dir_all(boxd.at("dir/sub")).expect("made");
    fs::write(boxd.at("dir/sub/file"), "content").expect("written");
    fs::set_permissions(boxd.at("dir/sub/file"), fs::Permissions::from_mode(0o750)).expect("ours");
    std::os::unix::fs::chown(boxd.at("dir/sub/file"), Some(1), Some(1)).expect("ours");
    symlink("sub/file", boxd.at("dir/link")).expect("linked");
    fs::set_permissions(boxd.at("dir"), fs::Permissions::from_mode(0o500)).expect("ours");
    let time = fs::metadata(boxd.at("dir"))
        .expect("there")
        .modified()
        .expect("known");
    let destination = there("x/moved").to_string_lossy().into_owned();
    move_to(&boxd, &boxd.named("dir"), &destination)
        .await
        .expect("moved");
    assert!(!boxd.at("dir").exists());
    assert_eq!(fs::read(there("x/moved/link")).expect("there"), b"content");
    let meta = fs::metadata(there("x/moved/sub/file")).expect("there");
    assert_eq!((meta.mode() & 0o777, meta.uid()), (0o750, 1));
    let meta = fs::metadata(there("x/moved")).expect("there");
    assert_eq!(
        (meta.mode() & 0o777, meta.modified().expect("known")),
        (0o500, time)
    );
    // One that cannot be carried stays where it is, whole.
    fs::create_dir(boxd.at("pipes")).expect("made");
    let fifo = std::process::Command::new("mkfifo")
        .arg(boxd.at("pipes/fifo"))
        .status();
    assert!(fifo.expect("runs").success());
    let destination = there("y/pipes").to_string_lossy().into_owned();
    let error = move_to(&boxd, &boxd.named("pipes"), &destination).await;
    assert_eq!(error.expect_err("refused").code, ErrorCode::InvalidArgument);
    assert!(boxd.at("pipes/fifo").exists() && !there("y").exists());
}

#[tokio::test]
async fn removing_a_link_leaves_what_it_leads_to() {
    let boxd = Boxd::start(&[]);
    fs::create_dir(boxd.at("real")).expect("made");
    fs::write(boxd.at("real/kept"), "").expect("written");
    fs::create_dir(boxd.at("dir")).expect("made");
    symlink(boxd.at("real"), boxd.at("dir/link")).expect("linked");
    symlink(boxd.at("real"), boxd.at("link")).expect("linked");
    remove(&boxd, &boxd.named("link"), plain())
        .await
        .expect("removed");
    remove(&boxd, &boxd.named("dir"), plain())
        .await
        .expect("removed");
    assert!(boxd.at("real/kept").exists() && !boxd.at("dir").exists());
    assert!(fs::symlink_metadata(boxd.at("link")).is_err());
}

#[tokio::test]
async fn mistakes_have_their_codes() {
    let boxd = Boxd::start(&[]);
    fs::write(boxd.at("file"), "").expect("written");
    fs::create_dir(boxd.at("dir")).expect("made");
    let (file, none) = (boxd.named("file"), boxd.named("none"));
    let below = boxd.named("file/below");
    let long = "x".repeat(300);
    let code = |error: ConnectError| error.code;
    for (path, expected) in [
        (none.as_str(), ErrorCode::NotFound),
        (below.as_str(), ErrorCode::NotFound),
        ("a\0b", ErrorCode::InvalidArgument),
        (long.as_str(), ErrorCode::InvalidArgument),
    ] {
        let error = stat(&boxd, path, plain()).await.expect_err("refused");
        assert_eq!(code(error), expected, "stat {path:?}");
    }
    for (path, expected) in [
        (boxd.named("dir"), ErrorCode::AlreadyExists),
        ("/".to_owned(), ErrorCode::AlreadyExists),
        (file.clone(), ErrorCode::InvalidArgument),
        (below.clone(), ErrorCode::InvalidArgument),
    ] {
        let error = make_dir(&boxd, &path, plain()).await.expect_err("refused");
        assert_eq!(code(error), expected, "make {path:?}");
    }
    for (path, expected) in [
        (&file, ErrorCode::InvalidArgument),
        (&none, ErrorCode::NotFound),
    ] {
        let error = list(&boxd, path, 1).await.expect_err("refused");
        assert_eq!(code(error), expected, "list {path:?}");
    }
    let error = move_to(&boxd, &none, &file).await.expect_err("refused");
    assert_eq!(code(error), ErrorCode::NotFound);
    for root in ["/", "/..", "//."] {
        let error = remove(&boxd, root, plain()).await.expect_err("refused");
        assert_eq!(code(error), ErrorCode::InvalidArgument, "{root}");
    }
    let nobody = CallOptions::default().with_header("authorization", "Basic bm9zdWNodXNlcjo=");
    let error = stat(&boxd, &file, nobody).await.expect_err("refused");
    assert_eq!(code(error), ErrorCode::Unauthenticated);
}

#[tokio::test]
async fn relative_paths_begin_at_home_or_where_the_settings_say() {
    let boxd = Boxd::start(&[]);
    fs::write(boxd.at("here"), "").expect("written");
    let home = stat(&boxd, "~", plain()).await.expect("there");
    assert_eq!(home.path, "/root");
    assert_eq!(stat(&boxd, "", plain()).await.expect("there").path, "/root");
    boxd.configure(ConfigureRequest {
        default_workdir: boxd.named(""),
        ..Default::default()
    })
    .await;
    let found = stat(&boxd, "./x/../here", plain()).await.expect("there");
    assert_eq!(found.path, boxd.named("here"));
}

#[tokio::test]
async fn files_are_made_and_refused_as_for_a_process_of_the_user() {
    let boxd = Boxd::start(&[]);
    let open =
        |path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("ours");
    open(boxd.dir.path().to_owned(), 0o755);
    fs::create_dir(boxd.at("shared")).expect("made");
    open(boxd.at("shared"), 0o777);
    fs::create_dir(boxd.at("roots")).expect("made");
    fs::create_dir(boxd.at("secret")).expect("made");
    fs::write(boxd.at("secret/file"), "").expect("written");
    open(boxd.at("secret"), 0o700);
    let made = make_dir(&boxd, &boxd.named("shared/a/b"), daemon())
        .await
        .expect("made");
    assert_eq!(made.owner, "daemon");
    let above = fs::metadata(boxd.at("shared/a")).expect("there");
    assert_eq!((above.uid(), above.gid()), (1, 1));
    for refused in [
        make_dir(&boxd, &boxd.named("roots/a"), daemon())
            .await
            .map(drop),
        stat(&boxd, &boxd.named("secret/file"), daemon())
            .await
            .map(drop),
        remove(&boxd, &boxd.named("secret"), daemon()).await,
    ] {
        assert_eq!(
            refused.expect_err("refused").code,
            ErrorCode::PermissionDenied
        );
    }
    assert!(boxd.at("secret/file").exists());
    // With root's rights everything is within reach, and what is made is still the user's.
    boxd.configure(ConfigureRequest {
        files_as_root: true,
        ..Default::default()
    })
    .await;
    let made = make_dir(&boxd, &boxd.named("roots/a"), daemon())
        .await
        .expect("made");
    assert_eq!(
        (made.owner.as_str(), made.group.as_str()),
        ("daemon", "daemon")
    );
    stat(&boxd, &boxd.named("secret/file"), daemon())
        .await
        .expect("seen");
    // The helper threads are root again.
    let made = make_dir(&boxd, &boxd.named("roots/b"), plain())
        .await
        .expect("made");
    assert_eq!(made.owner, "root");
    assert_eq!(boxd.run("id -u").await.stdout_tail, b"0\n");
}

#[tokio::test]
async fn a_hundred_thousand_entries_are_listed() {
    let boxd = Boxd::start(&[]);
    for n in 0..100_000 {
        fs::File::create(boxd.at(&format!("{n:06}"))).expect("made");
    }
    let listed = list(&boxd, &boxd.named(""), 1).await.expect("lists");
    assert_eq!(listed.len(), 100_000);
    assert_eq!(listed[99_999].name, "099999");
}

#[tokio::test]
async fn what_is_no_file_and_names_that_are_no_text_are_listed() {
    use std::os::unix::ffi::OsStrExt as _;
    let boxd = Boxd::start(&[]);
    let strange = boxd.at("").join(std::ffi::OsStr::from_bytes(b"\xff\xfe"));
    fs::write(&strange, "").expect("written");
    let fifo = boxd.named("fifo");
    assert!(
        std::process::Command::new("mkfifo")
            .arg(&fifo)
            .status()
            .expect("runs")
            .success()
    );
    let _socket = std::os::unix::net::UnixListener::bind(boxd.at("socket")).expect("bound");
    let listed = list(&boxd, &boxd.named(""), 2).await.expect("lists");
    let kinds: Vec<_> = listed
        .iter()
        .map(|entry| (entry.name.as_str(), entry.r#type))
        .collect();
    assert_eq!(kinds[0], ("fifo", FileType::FILE_TYPE_UNSPECIFIED.into()));
    assert_eq!(kinds[1], ("socket", FileType::FILE_TYPE_UNSPECIFIED.into()));
    assert_eq!(
        kinds[2],
        ("\u{fffd}\u{fffd}", FileType::FILE_TYPE_FILE.into())
    );
    remove(&boxd, &fifo, plain()).await.expect("removed");
    list(&boxd, "/dev", 1).await.expect("lists");
}
