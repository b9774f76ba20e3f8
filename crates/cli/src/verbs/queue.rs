//! Waiting for room on a full host: tells the place in the queue while a call is under way. Owns how often it looks; the
//! server says the place, and a server that does not is not asked again.

use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use icebox_wire::rest::{CapacityView, HostView, QueuedView};

use crate::client::Client;
use crate::printer;

/// A call that takes longer may be waiting for room.
const SLOW: Duration = Duration::from_secs(1);
/// How often the place is looked at.
const LOOK_INTERVAL: Duration = Duration::from_secs(2);

/// What somebody waits for.
#[derive(Clone, Copy)]
pub(super) enum For<'a> {
    /// A box that is to start: the newest of the account's is taken for it.
    New,
    /// A box that exists.
    Box(&'a str),
}

/// Does it, and tells its place in the queue whenever that changes, if it may be in it. `otherwise` is told once when it
/// takes long and is not in the queue.
pub(super) fn telling_place<T>(
    client: &Client,
    waits: Option<For<'_>>,
    otherwise: Option<&str>,
    work: impl FnOnce() -> T,
) -> T {
    let (done, ended) = mpsc::channel::<()>();
    thread::scope(|scope| {
        scope.spawn(move || tell(client, waits, otherwise, &ended));
        let worked = work();
        drop(done);
        worked
    })
}

fn tell(
    client: &Client,
    waits: Option<For<'_>>,
    mut otherwise: Option<&str>,
    ended: &Receiver<()>,
) {
    let mut own: Option<String> = None;
    let mut told = None;
    let mut wait = SLOW;
    while ended.recv_timeout(wait) == Err(RecvTimeoutError::Timeout) {
        wait = LOOK_INTERVAL;
        let look = |waits| {
            let host: HostView = client.get("/v1/host").ok()?.read().ok()?;
            Some((waits, host.capacity?))
        };
        let Some((waits, capacity)) = waits.and_then(look) else {
            if let Some(text) = otherwise {
                printer::note(text);
            }
            return;
        };
        match place(&capacity, waits, own.as_deref()) {
            Some(queued) => {
                own = Some(queued.id.clone());
                if told != Some(queued.place.before) {
                    told = Some(queued.place.before);
                    printer::note(&in_words(queued.place.before));
                }
            }
            None => {
                if let Some(text) = otherwise.take().filter(|_| own.is_none()) {
                    printer::note(text);
                }
            }
        }
    }
}

fn place<'c>(
    capacity: &'c CapacityView,
    waits: For<'_>,
    own: Option<&str>,
) -> Option<&'c QueuedView> {
    let mut queue = capacity.queue.iter();
    match (waits, own) {
        (For::Box(id), _) | (For::New, Some(id)) => queue.find(|queued| queued.id == id),
        (For::New, None) => queue.rfind(|queued| queued.wanted == "start"),
    }
}

fn in_words(before: u64) -> String {
    match before {
        0 => "icebox: waiting for room: you are next".to_owned(),
        before => format!("icebox: waiting for room: {before} before you"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_is_the_newest_of_the_queue_and_stays_the_one_it_was() {
        let queue = [("aa", "start", 1), ("bb", "wake", 4), ("cc", "start", 7)];
        let queue: Vec<_> = queue
            .iter()
            .map(|(id, wanted, before)| {
                serde_json::json!({
                    "box": id, "wanted": wanted, "before": before,
                    "since": "2026-03-04T13:00:00Z", "until": "2026-03-04T13:30:00Z",
                })
            })
            .collect();
        let capacity: CapacityView = serde_json::from_value(serde_json::json!({
            "slots": { "running": 4, "maximum": 4, "waiting": 9 },
            "memoryMb": { "taken": 1, "maximum": 2 },
            "cpus": { "taken": 0.5, "maximum": 2.0 },
            "queue": queue,
        }))
        .unwrap();
        let before = |waits, own| place(&capacity, waits, own).map(|q| q.place.before);
        assert_eq!(before(For::New, None), Some(7));
        assert_eq!(before(For::New, Some("aa")), Some(1));
        assert_eq!(before(For::New, Some("zz")), None);
        assert_eq!(before(For::Box("bb"), None), Some(4));
        assert_eq!(in_words(2), "icebox: waiting for room: 2 before you");
    }
}
