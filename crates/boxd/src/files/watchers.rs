//! All watchers of the box: the tasks that read them, those a client asks for by id, and how many there may be.

use std::collections::{HashMap, VecDeque};
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use connectrpc::ConnectError;
use futures_util::{Stream, stream};
use icebox_wire::filesystem::__buffa::oneof::watch_dir_response::Event;
use icebox_wire::filesystem::FilesystemEvent;
use icebox_wire::filesystem::watch_dir_response::{KeepAlive, StartEvent};
use icebox_wire::handover::{Handover, Watcher};
use tokio::io::unix::AsyncFd;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use super::acting::Acting;
use super::watch::{Watch, What, lost};
use crate::clock;
use crate::error::Error;
use crate::id::ExecId;
use crate::restart::gate::{AWAY, Gate};

/// The most watchers at once, of both kinds.
const MAX_WATCHERS: usize = 64;

/// The most events that wait to be sent or asked for.
const MAX_EVENTS: usize = 4096;

/// For how long a watcher must not have been asked before it makes room for a new one.
const ABANDONED: Duration = Duration::from_secs(300);

/// How long the place of an ended watcher is waited for.
const FREED_WITHIN: Duration = Duration::from_secs(2);

/// A watcher's events, as they come.
pub(crate) struct Events {
    receiver: mpsc::Receiver<FilesystemEvent>,
    lost: Arc<AtomicBool>,
}

/// One that a client asks by id.
struct Kept {
    /// Taken from `events` already.
    waiting: VecDeque<FilesystemEvent>,
    events: Events,
    asked: Instant,
}

impl Kept {
    /// Takes over what came, as far as there is room.
    fn gather(&mut self) {
        while self.waiting.len() < MAX_EVENTS
            && let Ok(event) = self.events.receiver.try_recv()
        {
            self.waiting.push_back(event);
        }
    }
}

/// All watchers.
pub(crate) struct Watchers {
    room: Arc<Semaphore>,
    kept: Mutex<HashMap<String, Kept>>,
}

impl Default for Watchers {
    fn default() -> Self {
        Self {
            room: Arc::new(Semaphore::new(MAX_WATCHERS)),
            kept: Mutex::default(),
        }
    }
}

impl Watchers {
    /// Adds what the next boxd has to know of those that are kept.
    pub(crate) fn leave(&self, to: &mut Handover) {
        let mut kept = self.lock();
        let watchers = kept.iter_mut().map(|(id, kept)| {
            kept.gather();
            Watcher {
                id: id.clone(),
                events: kept.waiting.iter().cloned().collect(),
                ..Default::default()
            }
        });
        to.watchers = watchers.collect();
    }

    /// Those that the boxd before this one left. They tell what they had seen, and then that they missed the rest.
    pub(crate) fn take_over(handover: &mut Handover) -> Self {
        let watchers = Self::default();
        for watcher in std::mem::take(&mut handover.watchers) {
            let (_, receiver) = mpsc::channel(1);
            let kept = Kept {
                waiting: watcher.events.into_iter().collect(),
                events: Events {
                    receiver,
                    lost: Arc::new(AtomicBool::new(true)),
                },
                asked: clock::now(),
            };
            watchers.lock().insert(watcher.id, kept);
        }
        watchers
    }

    /// Begins to watch; what happens from the answer on is told. It ends when its events are dropped.
    pub(crate) async fn start(&self, acting: Acting, what: What) -> Result<Events, Error> {
        let permit = self.permit().await?;
        let begun = acting.clone().aside(move || Watch::begin(what)).await?;
        let descriptor = begun.descriptor();
        // SAFETY: the descriptor stays the same one for as long as this `Arc` to its owner lives.
        let ready = unsafe { AsyncFd::register(descriptor) };
        let ready = ready.map_err(|error| Error::Plumbing(error.into()))?;
        let (sender, receiver) = mpsc::channel(MAX_EVENTS);
        let lost = Arc::new(AtomicBool::new(false));
        let told_lost = Arc::clone(&lost);
        tokio::spawn(async move {
            let _counted: OwnedSemaphorePermit = permit;
            let complete = tell(acting, begun, ready, &sender).await;
            told_lost.store(!complete, Ordering::Relaxed);
        });
        Ok(Events { receiver, lost })
    }

    /// Keeps a watcher's events until they are asked for; answers with the id to ask by.
    pub(crate) fn keep(&self, events: Events) -> String {
        let id = ExecId::fresh().to_string();
        let kept = Kept {
            waiting: VecDeque::new(),
            events,
            asked: clock::now(),
        };
        self.lock().insert(id.clone(), kept);
        id
    }

    /// What happened since the last time.
    pub(crate) fn collect(&self, id: &str) -> Result<Vec<FilesystemEvent>, Error> {
        let mut kept = self.lock();
        let kept = kept.get_mut(id).ok_or_else(|| no_watcher(id))?;
        kept.asked = clock::now();
        kept.gather();
        let events: Vec<_> = kept.waiting.drain(..).collect();
        if events.is_empty() && kept.events.lost.load(Ordering::Relaxed) {
            return Err(lost());
        }
        Ok(events)
    }

    /// Ends a kept watcher.
    pub(crate) fn remove(&self, id: &str) -> Result<(), Error> {
        let removed = self.lock().remove(id);
        removed.map(drop).ok_or_else(|| no_watcher(id))
    }

    /// Room for one more, made by ending the kept one that was not asked for longest if there is none.
    async fn permit(&self) -> Result<OwnedSemaphorePermit, Error> {
        if let Ok(permit) = Arc::clone(&self.room).try_acquire_owned() {
            return Ok(permit);
        }
        let full = || {
            Error::Limit(format!(
                "{MAX_WATCHERS} watchers exist, which is the most; remove some first"
            ))
        };
        if !self.end_abandoned() {
            return Err(full());
        }
        // Its task gives its place back when it sees that nobody wants the events.
        let freed = Arc::clone(&self.room).acquire_owned();
        match tokio::time::timeout(FREED_WITHIN, freed).await {
            Ok(Ok(permit)) => Ok(permit),
            Ok(Err(_)) | Err(_) => Err(full()),
        }
    }

    /// Ends the kept watcher that was not asked for longest, if that is long enough.
    fn end_abandoned(&self) -> bool {
        let mut kept = self.lock();
        let longest = kept.iter().min_by_key(|(_, kept)| kept.asked);
        let abandoned = longest
            .filter(|(_, kept)| kept.asked.elapsed() >= ABANDONED)
            .map(|(id, _)| id.clone());
        abandoned.is_some_and(|id| kept.remove(&id).is_some())
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Kept>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Tells events until nobody wants them; false when some went missing.
async fn tell(
    acting: Acting,
    mut watch: Watch,
    ready: AsyncFd<Arc<OwnedFd>>,
    sender: &mpsc::Sender<FilesystemEvent>,
) -> bool {
    loop {
        tokio::select! {
            () = sender.closed() => return true,
            readable = ready.readable() => match readable {
                Ok(mut readable) => readable.clear_ready(),
                Err(_) => return false,
            },
        }
        // Until the kernel has nothing more: readiness was cleared above, before the first look.
        loop {
            let read = acting.clone().aside(move || {
                let events = watch.read()?;
                Ok((watch, events))
            });
            let Ok((back, events)) = read.await else {
                return false;
            };
            watch = back;
            let over = events.is_empty() && !has_more(&watch);
            for event in events {
                match sender.try_send(event) {
                    Ok(()) => {}
                    Err(mpsc::error::TrySendError::Full(_)) => return false,
                    Err(mpsc::error::TrySendError::Closed(_)) => return true,
                }
            }
            if over {
                break;
            }
        }
    }
}

/// Whether the kernel has events ready.
fn has_more(watch: &Watch) -> bool {
    rustix::io::ioctl_fionread(&*watch.descriptor()).is_ok_and(|bytes| bytes > 0)
}

fn no_watcher(id: &str) -> Error {
    Error::NoWatcher(id.chars().take(64).collect())
}

struct Follower {
    events: Events,
    keepalive: Duration,
    limit: Pin<Box<dyn Future<Output = ()> + Send>>,
    gate: Arc<Gate>,
    phase: Phase,
}

enum Phase {
    Starting,
    Running,
    Over,
}

type Item = Result<Event, ConnectError>;

/// Start, then events and keepalives, until the client leaves, `limit` comes, events are lost, or boxd restarts.
pub(crate) fn follow(
    events: Events,
    keepalive: Duration,
    limit: Option<Duration>,
    gate: Arc<Gate>,
) -> impl Stream<Item = Item> + Send {
    let follower = Follower {
        events,
        keepalive,
        gate,
        limit: match limit {
            Some(limit) => Box::pin(clock::awake(limit)),
            None => Box::pin(std::future::pending()),
        },
        phase: Phase::Starting,
    };
    stream::unfold(follower, |mut follower| async move {
        let item = follower.next().await?;
        if item.is_err() {
            follower.phase = Phase::Over;
        }
        Some((item, follower))
    })
}

impl Follower {
    async fn next(&mut self) -> Option<Item> {
        match self.phase {
            Phase::Over => return None,
            Phase::Starting => {
                self.phase = Phase::Running;
                return Some(Ok(StartEvent::default().into()));
            }
            Phase::Running => {}
        }
        tokio::select! {
            event = self.events.receiver.recv() => match event {
                Some(event) => Some(Ok(event.into())),
                // Its task only ends by itself when it could not tell everything.
                None => Some(Err(lost().into())),
            },
            () = &mut self.limit => Some(Err(ConnectError::deadline_exceeded("watching timed out"))),
            () = self.gate.closed() => Some(Err(ConnectError::unavailable(AWAY))),
            () = tokio::time::sleep(self.keepalive) => Some(Ok(KeepAlive::default().into())),
        }
    }
}
