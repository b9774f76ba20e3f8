//! Keeps an eye on boxes that run: whether their first process lives, and when their background commands end. A box
//! that does not run has no task here. Reports to the inbox, with what commands came to that no call waits for (rules 11.3,
//! 12.2); decides nothing.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt as _};
use icebox_lifecycle::{BoxId, Event, State, Time};
use icebox_wire::boxd::ProcInfo;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio_util::task::AbortOnDropHandle;

use super::inbox::{Message, Sender};
use super::views::View;
use crate::boxd::{Boxds, WaitError, label};
use crate::driver::{Driver, DriverError};
use crate::store::{Ending, HistoryStep, SUMMARY_LEN, cut, is_housekeeping};

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
    /// When the last server was last known to be alive.
    pub(super) down_since: Time,
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
            down_since: Time(0),
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

    /// Finds the commands of a box which an earlier server started, or the box that this one is a fork of. Their callers are
    /// gone, so those that run count as background commands now, and what the others came to `since` then is written down.
    pub(super) fn adopt(&self, view: &View, since: Time) {
        let (boxds, inbox) = (Arc::clone(&self.boxds), self.inbox.clone());
        let adopt = adopt(boxds, view.id(), inbox, since);
        self.runtime.spawn(adopt);
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
    while let Some((exec, proc)) = ends.next().await {
        if let Some(step) = proc.as_ref().and_then(step_of)
            && inbox.send(Message::Step(id, step)).await.is_err()
        {
            return;
        }
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
) -> (Box<str>, Option<ProcInfo>) {
    loop {
        let Ok(turn) = turns.acquire().await else {
            return (exec, None);
        };
        let waited = boxds.wait(id, &exec, wait).await;
        drop(turn);
        match waited {
            Ok(Some(proc)) => return (exec, Some(proc)),
            Err(WaitError::Unknown) => return (exec, None),
            Ok(None) => {}
            Err(WaitError::Silent) => tokio::time::sleep(PAUSE).await,
        }
    }
}

/// The step that a command is which no call waits for any more, when it has ended.
fn step_of(proc: &ProcInfo) -> Option<Box<HistoryStep>> {
    if is_housekeeping(&proc.cmd, "") {
        return None;
    }
    let ended_ms = proc.ended_ms?;
    Some(Box::new(HistoryStep {
        at: Time(proc.started_ms),
        exec: Some(proc.exec_id.clone()),
        kind: "exec",
        summary: cut(&proc.cmd, SUMMARY_LEN),
        note: None,
        detail: proc.background.then(|| "background".into()),
        target: None,
        ending: Ending {
            ms: u64::try_from(ended_ms - proc.started_ms).ok(),
            error: None,
            exit_code: proc.exit_code.filter(|_| !proc.timed_out),
            signal: proc.signal.clone(),
            timed_out: proc.timed_out,
        },
    }))
}

async fn adopt(boxds: Arc<Boxds>, id: BoxId, inbox: Sender, since: Time) {
    const TRIES: usize = 10;
    for _ in 0..TRIES {
        let Ok(mut procs) = boxds.procs(id).await else {
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        procs.sort_by(|a, b| (a.started_ms, &a.exec_id).cmp(&(b.started_ms, &b.exec_id)));
        for proc in procs {
            let message = match proc.ended_ms {
                None => {
                    let label = label(&proc.cmd).into();
                    let exec = proc.exec_id.into();
                    Message::Event(id, Event::BackgroundBegan { exec, label })
                }
                // The others were written down when they ended.
                Some(ended_ms) if Time(ended_ms) < since => continue,
                Some(_) => match step_of(&proc) {
                    Some(step) => Message::Step(id, step),
                    None => continue,
                },
            };
            if inbox.send(message).await.is_err() {
                return;
            }
        }
        return;
    }
    tracing::warn!(%id, "its daemon did not say which commands run");
}
