//! Keeps an eye on boxes that run: whether their first process lives, and when their background commands end. A box
//! that does not run has no task here. Reports to the inbox; decides nothing.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt as _};
use icebox_lifecycle::{BoxId, Event, State};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio_util::task::AbortOnDropHandle;

use super::inbox::{Message, Sender};
use super::views::View;
use crate::boxd::{Boxds, WaitError};
use crate::driver::{Driver, DriverError};

/// Waits for commands that are under way at a time in one box, each on a connection of its own.
const WAITS_AT_A_TIME: usize = 16;
const LONG_WAIT: Duration = Duration::from_secs(600);
const SHORT_WAIT: Duration = Duration::from_secs(10);
/// How long to leave a driver or daemon alone that did not answer.
const PAUSE: Duration = Duration::from_secs(1);

/// The watches of all running boxes.
pub(super) struct Watches {
    runtime: Handle,
    driver: Arc<dyn Driver>,
    boxds: Arc<Boxds>,
    inbox: Sender,
    latest: u64,
    running: HashMap<BoxId, Watch>,
}

struct Watch {
    number: u64,
    _exit: AbortOnDropHandle<()>,
    follow: Option<AbortOnDropHandle<()>>,
    followed: Vec<Box<str>>,
}

impl Watches {
    pub(super) fn new(
        runtime: Handle,
        driver: Arc<dyn Driver>,
        boxds: Arc<Boxds>,
        inbox: Sender,
    ) -> Self {
        Self {
            runtime,
            driver,
            boxds,
            inbox,
            latest: 0,
            running: HashMap::new(),
        }
    }

    /// Whether this watch is the current one of the box; news from an older one says nothing about it.
    pub(super) fn is_current(&self, id: BoxId, number: u64) -> bool {
        self.running
            .get(&id)
            .is_some_and(|watch| watch.number == number)
    }

    /// Begins, changes or ends the watch as the box now needs it.
    pub(super) fn update(&mut self, view: &View) {
        let id = view.id();
        if view.sandbox.state != State::Ready {
            if self.running.remove(&id).is_some() {
                self.boxds.forget(id);
            }
            return;
        }
        let commands: Vec<Box<str>> = {
            let background = view.sandbox.holds.background.iter();
            background.map(|command| command.exec.clone()).collect()
        };
        if !self.running.contains_key(&id) {
            self.begin(id);
        }
        let Some(watch) = self.running.get_mut(&id) else {
            return;
        };
        if watch.followed != commands {
            watch.follow = (!commands.is_empty()).then(|| {
                let follow = follow(
                    Arc::clone(&self.boxds),
                    id,
                    commands.clone(),
                    self.inbox.clone(),
                );
                AbortOnDropHandle::new(self.runtime.spawn(follow))
            });
            watch.followed = commands;
        }
    }

    /// Ends every watch of a box that is forgotten.
    pub(super) fn forget(&mut self, id: BoxId) {
        self.running.remove(&id);
        self.boxds.forget(id);
    }

    /// Finds the commands that run in a box which an earlier server started. Their callers are gone, so all of them
    /// count as background commands now.
    pub(super) fn adopt(&self, view: &View) {
        let (boxds, inbox) = (Arc::clone(&self.boxds), self.inbox.clone());
        self.runtime.spawn(adopt(boxds, view.id(), inbox));
    }

    fn begin(&mut self, id: BoxId) {
        self.latest += 1;
        let number = self.latest;
        let exit = exit(Arc::clone(&self.driver), id, number, self.inbox.clone());
        let exit = AbortOnDropHandle::new(self.runtime.spawn(exit));
        self.running.insert(
            id,
            Watch {
                number,
                _exit: exit,
                follow: None,
                followed: Vec::new(),
            },
        );
    }
}

async fn exit(driver: Arc<dyn Driver>, id: BoxId, number: u64, inbox: Sender) {
    let detail = loop {
        match driver.exited(id).await {
            Ok(detail) | Err(DriverError::Gone(detail)) => break detail,
            Err(DriverError::Refused(reason) | DriverError::Failed(reason)) => {
                tracing::warn!(%id, %reason, "cannot watch the box; trying again");
                tokio::time::sleep(PAUSE).await;
            }
        }
    };
    // A closed inbox means that the server ends.
    let _ = inbox.send(Message::Exited(id, number, detail)).await;
}

async fn follow(boxds: Arc<Boxds>, id: BoxId, commands: Vec<Box<str>>, inbox: Sender) {
    let wait = if commands.len() <= WAITS_AT_A_TIME {
        LONG_WAIT
    } else {
        SHORT_WAIT
    };
    let turns = Semaphore::new(WAITS_AT_A_TIME);
    let mut ends: FuturesUnordered<_> = commands
        .into_iter()
        .map(|exec| until_end(&boxds, id, exec, wait, &turns))
        .collect();
    while let Some(exec) = ends.next().await {
        let ended = Event::BackgroundEnded { exec };
        if inbox.send(Message::Event(id, ended)).await.is_err() {
            return;
        }
    }
}

async fn until_end(
    boxds: &Boxds,
    id: BoxId,
    exec: Box<str>,
    wait: Duration,
    turns: &Semaphore,
) -> Box<str> {
    loop {
        let Ok(turn) = turns.acquire().await else {
            return exec;
        };
        let waited = boxds.wait(id, &exec, wait).await;
        drop(turn);
        match waited {
            Ok(true) | Err(WaitError::Unknown) => return exec,
            Ok(false) => {}
            Err(WaitError::Silent) => tokio::time::sleep(PAUSE).await,
        }
    }
}

async fn adopt(boxds: Arc<Boxds>, id: BoxId, inbox: Sender) {
    const TRIES: usize = 10;
    for _ in 0..TRIES {
        let Ok(running) = boxds.running(id).await else {
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        let running: BTreeMap<String, String> = running.into_iter().collect();
        for (exec, label) in running {
            let began = Event::BackgroundBegan {
                exec: exec.into(),
                label: label.into(),
            };
            if inbox.send(Message::Event(id, began)).await.is_err() {
                return;
            }
        }
        return;
    }
    tracing::warn!(%id, "its daemon did not say which commands run");
}
