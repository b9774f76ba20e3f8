//! One port that the server listens on in a box. Owns the trying when a program of the box has the port, the taking of
//! connections within a limit, and what readers are told of it.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_util::task::AbortOnDropHandle;

use super::{Source, Spot, Way, Wires, lock};
use crate::driver::{Listener, NoListener, Stream};

/// Connections that one port carries at a time; more wait in the kernel's own queue.
const MOST_OPEN: usize = 256;
/// How often a port that a program of the box has is tried again: first, and at most.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// How a port is, for readers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    /// `listening`, `waiting` or `closed`.
    pub status: &'static str,
    /// Connections that are open.
    pub open: u32,
    /// Connections that came to nothing.
    pub failed: u64,
    /// What is wrong, or was with the latest of those.
    pub last_error: Option<String>,
}

/// An open port, or one that is tried again. Dropping it closes it with all its connections.
pub(super) struct Port {
    way: Way,
    news: Arc<News>,
    serving: AbortOnDropHandle<()>,
}

/// What becomes of it.
#[derive(Default)]
struct News {
    status: Mutex<Status>,
    open: AtomicU32,
    failed: AtomicU64,
    last_error: Mutex<Option<String>>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Status {
    Listening,
    Waiting(String),
    #[default]
    Closed,
}

impl Port {
    /// Listens, or begins to try.
    pub(super) async fn open(wires: &Wires, source: Source, spot: Spot, way: Way) -> Self {
        let news = Arc::new(News::default());
        let first = listen(wires, source, spot, &news).await;
        let serving = serve(
            wires.clone(),
            source,
            spot,
            way.clone(),
            Arc::clone(&news),
            first,
        );
        Self {
            way,
            news,
            serving: AbortOnDropHandle::new(tokio::spawn(serving)),
        }
    }

    /// Closes it, and is over when the port is free.
    pub(super) async fn close(self) {
        self.serving.abort();
        // How it ended says nothing: it was told to.
        let _ = self.serving.await;
    }

    pub(super) fn way(&self) -> &Way {
        &self.way
    }

    pub(super) fn shown(&self) -> Shown {
        let News {
            status,
            open,
            failed,
            last_error,
        } = &*self.news;
        let (status, wrong) = match &*lock(status) {
            Status::Listening => ("listening", None),
            Status::Waiting(why) => ("waiting", Some(why.clone())),
            Status::Closed => ("closed", None),
        };
        Shown {
            status,
            open: open.load(Ordering::Relaxed),
            failed: failed.load(Ordering::Relaxed),
            last_error: wrong.or_else(|| lock(last_error).clone()),
        }
    }
}

/// Why a port is not listened on.
enum Not {
    /// Try again.
    Now,
    /// The box does not run.
    Closed,
}

async fn listen(
    wires: &Wires,
    source: Source,
    (address, port): Spot,
    news: &News,
) -> Result<Box<dyn Listener>, Not> {
    let listening = wires.0.driver.listen(source.id, address, port).await;
    let (status, result) = match listening {
        Ok(listener) => (Status::Listening, Ok(listener)),
        Err(taken @ NoListener::Taken(_)) => {
            let why = format!("{taken}; end it, or wire the name to the box's own program");
            (Status::Waiting(why), Err(Not::Now))
        }
        Err(NoListener::Unreachable(_)) => (Status::Closed, Err(Not::Closed)),
    };
    *lock(&news.status) = status;
    result
}

async fn serve(
    wires: Wires,
    source: Source,
    spot: Spot,
    way: Way,
    news: Arc<News>,
    first: Result<Box<dyn Listener>, Not>,
) {
    let mut pause = FIRST_PAUSE;
    let mut listener = first;
    loop {
        match listener {
            Ok(open) => {
                pause = FIRST_PAUSE;
                take(&wires, source, &way, &news, open).await;
            }
            Err(Not::Now) => {}
            Err(Not::Closed) => return,
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
        listener = listen(&wires, source, spot, &news).await;
    }
}

/// Takes connections until there are no more to come. Then those that are open end.
async fn take(
    wires: &Wires,
    source: Source,
    way: &Way,
    news: &Arc<News>,
    mut listener: Box<dyn Listener>,
) {
    let permits = Arc::new(Semaphore::new(MOST_OPEN));
    let mut carried = JoinSet::new();
    loop {
        // It is never closed.
        let Ok(permit) = Arc::clone(&permits).acquire_owned().await else {
            return;
        };
        let stream = loop {
            tokio::select! {
                biased;
                Some(_) = carried.join_next() => {}
                accepted = listener.accept() => match accepted {
                    Ok(stream) => break stream,
                    Err(_) => return,
                },
            }
        };
        let (wires, way, news) = (wires.clone(), way.clone(), Arc::clone(news));
        carried.spawn(async move {
            carry(&wires, source, &way, &news, stream).await;
            drop(permit);
        });
    }
}

async fn carry(wires: &Wires, source: Source, way: &Way, news: &News, stream: Stream) {
    let counted = Counted::new(&news.open);
    let carried = super::carry::carry(wires, source, way, stream).await;
    drop(counted);
    if let Err(why) = carried {
        news.failed.fetch_add(1, Ordering::Relaxed);
        *lock(&news.last_error) = Some(why);
    }
}

/// One more while it lives.
struct Counted<'a>(&'a AtomicU32);

impl<'a> Counted<'a> {
    fn new(open: &'a AtomicU32) -> Self {
        open.fetch_add(1, Ordering::Relaxed);
        Self(open)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
