//! Watchers: what is told of what happens, recursively, by stream and by asking.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use connectrpc::ErrorCode;
use connectrpc::client::CallOptions;
use icebox_wire::filesystem::__buffa::oneof::watch_dir_response::Event;
use icebox_wire::filesystem::{
    CreateWatcherRequest, EventType, FilesystemEvent, GetWatcherEventsRequest,
    RemoveWatcherRequest, WatchDirRequest, WatchDirResponse,
};

use crate::harness::{Boxd, PATIENCE, within};

/// A watcher that is asked.
struct Watcher<'a> {
    boxd: &'a Boxd,
    id: String,
}

impl<'a> Watcher<'a> {
    async fn create(boxd: &'a Boxd, recursive: bool, include_entry: bool) -> Self {
        let request = CreateWatcherRequest {
            path: boxd.named(""),
            recursive,
            include_entry,
            ..Default::default()
        };
        let created = within(boxd.files().create_watcher(request))
            .await
            .expect("created");
        Self {
            boxd,
            id: created.into_owned().watcher_id,
        }
    }

    async fn ask(&self) -> Result<Vec<FilesystemEvent>, connectrpc::ConnectError> {
        let request = GetWatcherEventsRequest {
            watcher_id: self.id.clone(),
            ..Default::default()
        };
        let events = within(self.boxd.files().get_watcher_events(request)).await?;
        Ok(events.into_owned().events)
    }

    /// Asks until the event with this name came; answers with all up to then, each repetition once.
    async fn until(&self, last: &str) -> Vec<(String, EventType)> {
        let mut told: Vec<(String, EventType)> = Vec::new();
        let asking = async {
            while !told.iter().any(|(name, _)| name == last) {
                for event in self.ask().await.expect("events") {
                    let kind = event.r#type.as_known().expect("a known one");
                    let event = (event.name, kind);
                    if told.last() != Some(&event) {
                        told.push(event);
                    }
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let came = tokio::time::timeout(PATIENCE, asking).await;
        assert!(came.is_ok(), "{last} never came");
        told
    }
}

use EventType::{
    EVENT_TYPE_CHMOD as CHMOD, EVENT_TYPE_CREATE as CREATE, EVENT_TYPE_REMOVE as REMOVE,
    EVENT_TYPE_RENAME as RENAME, EVENT_TYPE_WRITE as WRITE,
};

fn named(events: &[(&str, EventType)]) -> Vec<(String, EventType)> {
    events
        .iter()
        .map(|(name, kind)| ((*name).to_owned(), *kind))
        .collect()
}

#[tokio::test]
async fn what_happens_to_files_is_told_in_order() {
    let boxd = Boxd::start(&[]);
    let watcher = Watcher::create(&boxd, false, false).await;
    fs::write(boxd.at("a"), "x").expect("written");
    fs::set_permissions(boxd.at("a"), fs::Permissions::from_mode(0o600)).expect("ours");
    fs::rename(boxd.at("a"), boxd.at("b")).expect("renamed");
    fs::remove_file(boxd.at("b")).expect("removed");
    fs::create_dir(boxd.at("dir")).expect("made");
    fs::write(boxd.at("dir/unseen"), "x").expect("written");
    fs::write(boxd.at("end"), "").expect("written");
    let expected = [
        ("a", CREATE),
        ("a", WRITE),
        ("a", CHMOD),
        ("a", RENAME),
        ("b", CREATE),
        ("b", REMOVE),
        ("dir", CREATE),
        ("end", CREATE),
    ];
    assert_eq!(watcher.until("end").await, named(&expected));
}

#[tokio::test]
async fn a_recursive_watcher_follows_directories_that_come_move_and_go() {
    let boxd = Boxd::start(&[]);
    fs::create_dir_all(boxd.at("old/sub")).expect("made");
    let watcher = Watcher::create(&boxd, true, false).await;
    fs::write(boxd.at("old/sub/a"), "").expect("written");
    watcher.until("old/sub/a").await;
    // Made faster than anyone can watch.
    fs::create_dir_all(boxd.at("new/x/y")).expect("made");
    fs::write(boxd.at("new/x/y/file"), "").expect("written");
    let told = watcher.until("new/x/y/file").await;
    let creations = [
        ("new", CREATE),
        ("new/x", CREATE),
        ("new/x/y", CREATE),
        ("new/x/y/file", CREATE),
    ];
    assert_eq!(told, named(&creations), "each once");
    // The directory has another name from now on.
    fs::rename(boxd.at("old"), boxd.at("moved")).expect("renamed");
    fs::write(boxd.at("moved/sub/b"), "").expect("written");
    let told = watcher.until("moved/sub/b").await;
    assert_eq!(
        told,
        named(&[("old", RENAME), ("moved", CREATE), ("moved/sub/b", CREATE)])
    );
    // One that leaves is not watched any more.
    let outside = boxd.dir.path().join("outside");
    fs::rename(boxd.at("moved"), &outside).expect("renamed");
    watcher.until("moved").await;
    fs::write(outside.join("sub/c"), "").expect("written");
    fs::remove_dir_all(boxd.at("new")).expect("removed");
    fs::write(boxd.at("end"), "").expect("written");
    let told = watcher.until("end").await;
    assert!(
        told.iter().all(|(name, _)| !name.contains("sub")),
        "{told:?}"
    );
    assert!(
        told.contains(&("new/x/y/file".to_owned(), REMOVE)),
        "{told:?}"
    );
}

#[tokio::test]
async fn uploads_look_like_writes_in_place() {
    let boxd = Boxd::start(&[]);
    let watcher = Watcher::create(&boxd, true, true).await;
    let raw = [("Content-Type", "application/octet-stream")];
    for content in [&b"first"[..], b"second"] {
        let target = format!("/files?path={}", boxd.named("file"));
        assert_eq!(boxd.http("POST", &target, &raw, content).status, 200);
    }
    fs::write(boxd.at("end"), "").expect("written");
    let told = watcher.until("end").await;
    assert_eq!(
        told,
        named(&[("file", CREATE), ("file", WRITE), ("end", CREATE)])
    );
}

#[tokio::test]
async fn entries_come_along_when_asked_for_and_there() {
    let boxd = Boxd::start(&[]);
    let watcher = Watcher::create(&boxd, false, true).await;
    fs::write(boxd.at("kept"), "12345").expect("written");
    fs::write(boxd.at("gone"), "").expect("written");
    fs::remove_file(boxd.at("gone")).expect("removed");
    let mut told = Vec::new();
    let asking = async {
        while !told
            .iter()
            .any(|event: &FilesystemEvent| event.r#type == REMOVE)
        {
            told.extend(watcher.ask().await.expect("events"));
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    within(asking).await;
    let kept = told
        .iter()
        .find(|event| event.name == "kept")
        .expect("told");
    assert_eq!(
        kept.entry.as_option().expect("an entry").path,
        boxd.named("kept")
    );
    let removed = told
        .iter()
        .find(|event| event.r#type == REMOVE)
        .expect("told");
    assert!(removed.entry.as_option().is_none());
}

#[tokio::test]
async fn a_stream_begins_keeps_alive_and_ends_at_its_deadline() {
    let boxd = Boxd::start(&[]);
    let request = WatchDirRequest {
        path: boxd.named(""),
        ..Default::default()
    };
    let options = CallOptions::default()
        .with_header("keepalive-ping-interval", "1")
        .with_header("connect-timeout-ms", "1700");
    let mut stream = within(boxd.files().watch_dir_with_options(request, options))
        .await
        .expect("watches");
    let mut seen = Vec::new();
    let error = loop {
        match within(stream.message::<WatchDirResponse>()).await {
            Ok(Some(message)) => match message.to_owned_message().event.expect("one of the events")
            {
                Event::Start(_) => {
                    seen.push("start".to_owned());
                    fs::write(boxd.at("file"), "").expect("written");
                }
                Event::Filesystem(event) => seen.push(event.name.clone()),
                Event::Keepalive(_) => seen.push("keepalive".to_owned()),
            },
            Ok(None) => break stream.error().cloned().expect("an error"),
            Err(error) => break error,
        }
    };
    assert_eq!(error.code, ErrorCode::DeadlineExceeded);
    assert_eq!(seen, ["start", "file", "keepalive"]);
}

#[tokio::test]
async fn there_are_only_so_many_watchers_and_each_is_found_by_its_id() {
    let boxd = Boxd::start(&[]);
    let mut watchers = Vec::new();
    for _ in 0..64 {
        watchers.push(Watcher::create(&boxd, false, false).await);
    }
    let request = |path: String| CreateWatcherRequest {
        path,
        ..Default::default()
    };
    let error = within(boxd.files().create_watcher(request(boxd.named("")))).await;
    assert_eq!(
        error.expect_err("too many").code,
        ErrorCode::ResourceExhausted
    );
    let remove = || RemoveWatcherRequest {
        watcher_id: watchers[0].id.clone(),
        ..Default::default()
    };
    within(boxd.files().remove_watcher(remove()))
        .await
        .expect("removed");
    let error = within(boxd.files().remove_watcher(remove())).await;
    assert_eq!(error.expect_err("gone").code, ErrorCode::NotFound);
    assert_eq!(
        watchers[0].ask().await.expect_err("gone").code,
        ErrorCode::NotFound
    );
    let room = async {
        while boxd
            .files()
            .create_watcher(request(boxd.named("")))
            .await
            .is_err()
        {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    within(room).await;
    fs::write(boxd.at("file"), "").expect("written");
    for (path, code) in [
        (boxd.named("none"), ErrorCode::NotFound),
        (boxd.named("file"), ErrorCode::InvalidArgument),
    ] {
        within(boxd.files().remove_watcher(RemoveWatcherRequest {
            watcher_id: watchers.pop().expect("more").id,
            ..Default::default()
        }))
        .await
        .expect("removed");
        let error = within(boxd.files().create_watcher(request(path))).await;
        let code_of = error.expect_err("refused").code;
        // The place of the one just removed may not be free yet.
        assert!(
            code_of == code || code_of == ErrorCode::ResourceExhausted,
            "{code_of:?}"
        );
    }
}

#[tokio::test]
async fn events_nobody_asks_for_are_bounded_and_their_loss_is_told() {
    let boxd = Boxd::start(&[]);
    let watcher = Watcher::create(&boxd, false, false).await;
    for n in 0..30_000 {
        fs::write(boxd.at("file"), n.to_string()).expect("written");
        fs::remove_file(boxd.at("file")).expect("removed");
    }
    let mut events = 0;
    let error = loop {
        match watcher.ask().await {
            Ok(more) => events += more.len(),
            Err(error) => break error,
        }
    };
    assert_eq!(error.code, ErrorCode::ResourceExhausted);
    assert!(events <= 4096, "{events}");
}
