//! Carries out what was decided: asks the driver, within a time limit, and sends the outcome back to the inbox. One
//! effect at a time for each box, in the order they were decided; a destroy does not wait long for what goes before it.
//! Decides nothing, and knows of a box only what an effect needs.

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use icebox_lifecycle::{BoxId, CopyId, Effect, Outcome, State};
use icebox_wire::boxd::ConfigureRequest;
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, SemaphorePermit, oneshot};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::inbox::{Message, Sender};
use super::views::View;
use super::way_out::Heard;
use crate::boxd::Boxds;
use crate::driver::{BoxSpec, Driver, DriverError, FreezeMode, Reaches};

const BOOT_LIMIT: Duration = Duration::from_secs(180);
/// A boot that has to copy files first.
const SEED_LIMIT: Duration = Duration::from_secs(900);
const SAVE_LIMIT: Duration = Duration::from_secs(900);
const FREEZE_LIMIT: Duration = Duration::from_secs(900);
const EVICT_LIMIT: Duration = Duration::from_secs(120);
const THAW_LIMIT: Duration = Duration::from_secs(600);
const RELEASE_LIMIT: Duration = Duration::from_secs(120);
const REACH_LIMIT: Duration = Duration::from_secs(60);
const DESTROY_LIMIT: Duration = Duration::from_secs(300);

/// Whom E2B's calls act as when they name nobody.
const E2B_USER: &str = "user";

/// How long a destroy lets an earlier effect go on before it cuts it short.
const PATIENCE: Duration = Duration::from_secs(30);

/// What may be under way at a time on the whole host, so that a thousand boxes that come due together do not starve each
/// other of disk and processors. What lets a box run or removes one never waits.
struct Crowd {
    freezes: Semaphore,
    starts: Semaphore,
}

impl Crowd {
    fn new() -> Self {
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            freezes: Semaphore::new(cpus.max(2)),
            starts: Semaphore::new((2 * cpus).max(4)),
        }
    }

    async fn turn(&self, effect: &Effect) -> Option<SemaphorePermit<'_>> {
        let crowd = match effect {
            Effect::Freeze { .. } | Effect::Evict { .. } | Effect::Save { .. } => &self.freezes,
            Effect::Boot { .. } | Effect::Thaw { .. } => &self.starts,
            Effect::Release { .. }
            | Effect::Destroy { .. }
            | Effect::DropCopy { .. }
            | Effect::Reach
            | Effect::StopRecording
            | Effect::FreezePhones => return None,
        };
        // It is never closed.
        crowd.acquire().await.ok()
    }
}

/// Runs effects on the server's runtime.
pub(super) struct Effects {
    runtime: Handle,
    driver: Arc<dyn Driver>,
    boxds: Arc<Boxds>,
    crowd: Arc<Crowd>,
    inbox: Sender,
    lanes: HashMap<BoxId, Lane>,
    under_way: usize,
}

/// The effects of one box that are not over.
struct Lane {
    count: usize,
    /// The latest one's end.
    last_over: oneshot::Receiver<()>,
    /// Cuts the latest one short.
    last_cancel: CancellationToken,
}

impl Effects {
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
            crowd: Arc::new(Crowd::new()),
            inbox,
            lanes: HashMap::new(),
            under_way: 0,
        }
    }

    /// How many effects have not come back yet.
    pub(super) fn under_way(&self) -> usize {
        self.under_way
    }

    /// Takes note that one came back.
    pub(super) fn over(&mut self, id: BoxId) {
        self.under_way = self.under_way.saturating_sub(1);
        if let Some(lane) = self.lanes.get_mut(&id) {
            lane.count -= 1;
            if lane.count == 0 {
                self.lanes.remove(&id);
            }
        }
    }

    /// Starts one. Exactly one [`Message::Done`] comes of it, and before it what became of the way out, where it made one.
    pub(super) fn launch(&mut self, view: &View, effect: Effect, hears: Vec<Heard>) {
        let id = view.id();
        let spec = spec(view);
        let copy = good_copy(&view.sandbox.state);
        let (over, last_over) = oneshot::channel::<()>();
        let cancel = CancellationToken::new();
        let count = self.lanes.get(&id).map_or(0, |lane| lane.count) + 1;
        let lane = Lane {
            count,
            last_over,
            last_cancel: cancel.clone(),
        };
        let before = self.lanes.insert(id, lane);
        self.under_way += 1;
        let driver = Arc::clone(&self.driver);
        let boxds = Arc::clone(&self.boxds);
        let settings = settings(view);
        let record = Arc::clone(&view.record);
        let crowd = Arc::clone(&self.crowd);
        let inbox = self.inbox.clone();
        let runtime = self.runtime.clone();
        self.runtime.spawn(async move {
            if let Some(before) = before {
                wait_for(before, &effect).await;
            }
            let op = effect.op();
            let changes = effect == Effect::Reach;
            let saves = if let Effect::Save { snapshot, .. } = effect {
                Some(snapshot)
            } else {
                None
            };
            let bytes = Arc::new(AtomicU64::new(0));
            let counted = Arc::clone(&bytes);
            // A task of its own, so that a driver that panics is a failure like any other.
            let act = runtime.spawn(async move {
                let _turn = crowd.turn(&effect).await;
                let boots = matches!(effect, Effect::Boot { .. });
                let runs = boots || matches!(effect, Effect::Release { .. });
                unwire(&boxds, id, &effect).await;
                let (mut outcome, reaches) = act(driver, spec, copy, effect, &counted).await;
                if let Some(settings) = settings.filter(|_| boots && outcome == Outcome::Done) {
                    outcome = configure(&boxds, id, settings).await;
                }
                if runs && outcome == Outcome::Done {
                    boxds.wires().open(id, &record).await;
                }
                (outcome, reaches)
            });
            let act = AbortOnDropHandle::new(act);
            let (outcome, reaches) = tokio::select! {
                done = act => done.unwrap_or_else(|error| broke_down(&error)),
                () = cancel.cancelled() => (failed("it was overtaken by a stop".to_owned()), None),
            };
            if let Some(failure) = way_out(changes, &outcome, reaches) {
                // Before the next effect on the box can say otherwise. The inbox is as below.
                let _ = inbox.send(Message::WayOut(id, failure, hears)).await;
            }
            drop(over);
            if let Some(snapshot) = saves {
                let result = saved(&outcome, bytes.load(Ordering::Relaxed));
                // As below.
                let _ = inbox.send(Message::Saved(snapshot, result)).await;
            }
            // The inbox closes only when the server ends; a new one looks at what is there.
            let _ = inbox.send(Message::Done(id, op, outcome)).await;
        });
    }
}

/// Waits for the effect before this one; a destroy cuts it short in the end.
async fn wait_for(before: Lane, effect: &Effect) {
    let Lane {
        mut last_over,
        last_cancel,
        ..
    } = before;
    // Its end is the drop of the sender; there is nothing to receive.
    if let Effect::Destroy { .. } = effect {
        if tokio::time::timeout(PATIENCE, &mut last_over).await.is_ok() {
            return;
        }
        last_cancel.cancel();
    }
    let _ = last_over.await;
}

/// Gives how it went, and of what lets a box run, or changes what it reaches, what it reaches now.
async fn act(
    driver: Arc<dyn Driver>,
    spec: BoxSpec,
    copy: Option<CopyId>,
    effect: Effect,
    bytes: &AtomicU64,
) -> (Outcome, Option<Reaches>) {
    let id = spec.id;
    let outcome = match effect {
        Effect::Boot { keep_files, .. } => {
            let limit = match spec.origin {
                Some(_) if !keep_files => SEED_LIMIT,
                Some(_) | None => BOOT_LIMIT,
            };
            return split(within(limit, "boot", driver.boot(&spec, keep_files)).await);
        }
        Effect::Release { .. } => {
            let release = driver.release(id, &spec.egress);
            return split(within(RELEASE_LIMIT, "release", release).await);
        }
        Effect::Reach => {
            let reach = driver.reach(id, &spec.egress);
            return split(within(REACH_LIMIT, "change of what it may reach", reach).await);
        }
        Effect::Save { snapshot, copy } => {
            let save = async {
                let saved = driver.save(id, copy, snapshot).await?;
                bytes.store(saved, Ordering::Relaxed);
                Ok(())
            };
            within(SAVE_LIMIT, "snapshot", save).await
        }
        Effect::Freeze { copy, ram_only, .. } => {
            return (freeze(&*driver, id, copy, ram_only).await, None);
        }
        Effect::Evict { .. } => match copy {
            Some(copy) => within(EVICT_LIMIT, "evict", driver.evict(id, copy)).await,
            // Only the files are kept, so there is no copy to check.
            None => within(EVICT_LIMIT, "evict", driver.destroy(id, true)).await,
        },
        Effect::Thaw { copy, .. } => within(THAW_LIMIT, "thaw", driver.thaw(id, copy)).await,
        Effect::Destroy { keep_files, .. } => {
            within(DESTROY_LIMIT, "destroy", driver.destroy(id, keep_files)).await
        }
        Effect::DropCopy { copy } => {
            let dropped = within(DESTROY_LIMIT, "drop a copy", driver.drop_copy(id, copy)).await;
            if let Err(Outcome::Failed { reason } | Outcome::Refused { reason }) = &dropped {
                tracing::warn!(%id, copy = copy.0, %reason, "a copy is still there; the next freeze or destroy takes it");
            }
            dropped
        }
        // No recorder and no phones yet: there is nothing to stop.
        Effect::StopRecording | Effect::FreezePhones => Ok(()),
    };
    (outcome.err().unwrap_or(Outcome::Done), None)
}

/// How it went, and what the box reaches.
fn split(ran: Result<Reaches, Outcome>) -> (Outcome, Option<Reaches>) {
    match ran {
        Ok(reaches) => (Outcome::Done, Some(reaches)),
        Err(outcome) => (outcome, None),
    }
}

/// What is to be told of the way out of a box: why it has none although it should, if that is so. A change that did not come
/// to its end is as one that could not be made.
fn way_out(changes: bool, outcome: &Outcome, reaches: Option<Reaches>) -> Option<Option<Box<str>>> {
    match (reaches, outcome) {
        (Some(Reaches::AsAsked), _) => Some(None),
        (Some(Reaches::Nothing(reason)), _) => Some(Some(reason.into())),
        (None, Outcome::Failed { reason } | Outcome::Refused { reason }) if changes => {
            Some(Some(reason.clone()))
        }
        (None, _) => None,
    }
}

fn broke_down(error: &tokio::task::JoinError) -> (Outcome, Option<Reaches>) {
    (failed(format!("the driver broke down: {error}")), None)
}

/// What came of a snapshot: its size, or why there is none.
fn saved(outcome: &Outcome, bytes: u64) -> Result<u64, String> {
    match outcome {
        Outcome::Done => Ok(bytes),
        Outcome::Refused { reason } | Outcome::Failed { reason } | Outcome::Gone { reason } => {
            Err(reason.to_string())
        }
    }
}

/// What the server has open in a box for its programs ends before the box stands still.
async fn unwire(boxds: &Boxds, id: BoxId, effect: &Effect) {
    match effect {
        Effect::Freeze { .. } => boxds.wires().close(id).await,
        Effect::Destroy { .. } => boxds.wires().forget(id).await,
        Effect::Boot { .. }
        | Effect::Evict { .. }
        | Effect::Thaw { .. }
        | Effect::Release { .. }
        | Effect::Reach
        | Effect::DropCopy { .. }
        | Effect::Save { .. }
        | Effect::StopRecording
        | Effect::FreezePhones => {}
    }
}

/// A box runs once its daemon knows whom to let in and whom to act as.
async fn configure(boxds: &Boxds, id: BoxId, settings: ConfigureRequest) -> Outcome {
    match boxds.configure(id, settings).await {
        Ok(()) => Outcome::Done,
        Err(error) => failed(format!("its daemon took no settings: {error}")),
    }
}

async fn freeze(driver: &dyn Driver, id: BoxId, copy: CopyId, ram_only: bool) -> Outcome {
    let cannot = driver.capabilities().checkpoint.err();
    let mode = if ram_only || cannot.is_some() {
        FreezeMode::RamOnly
    } else {
        FreezeMode::Copy(copy)
    };
    let frozen = within(FREEZE_LIMIT, "freeze", driver.freeze(id, mode)).await;
    match (frozen.err().unwrap_or(Outcome::Done), cannot) {
        (Outcome::Done, Some(reason)) if !ram_only => Outcome::Refused {
            reason: reason.into(),
        },
        (outcome, _) => outcome,
    }
}

async fn within<T>(
    limit: Duration,
    what: &str,
    work: impl Future<Output = Result<T, DriverError>>,
) -> Result<T, Outcome> {
    match tokio::time::timeout(limit, work).await {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(DriverError::Refused(reason))) => Err(Outcome::Refused {
            reason: reason.into(),
        }),
        Ok(Err(DriverError::Failed(reason))) => Err(failed(reason)),
        Ok(Err(DriverError::Gone(reason))) => Err(Outcome::Gone {
            reason: reason.into(),
        }),
        Err(_) => Err(failed(format!(
            "the {what} was not over after {} s",
            limit.as_secs()
        ))),
    }
}

fn failed(reason: String) -> Outcome {
    Outcome::Failed {
        reason: reason.into(),
    }
}

/// The copy that makes the memory of a standing box superfluous.
fn good_copy(state: &State) -> Option<CopyId> {
    match state {
        State::Frozen(frozen) => frozen.copy,
        State::Stopping { keep, .. } => keep.as_ref().and_then(|keep| keep.copy),
        State::Starting { .. }
        | State::Ready
        | State::Freezing { .. }
        | State::Thawing { .. }
        | State::Releasing { .. }
        | State::Terminated { .. }
        | State::Interrupted { .. } => None,
    }
}

/// What the daemon of a box has to be told at each boot. A copy of its memory has it already; one that began as another box
/// has that one's, which must not hold here.
fn settings(view: &View) -> Option<ConfigureRequest> {
    let env = || view.record.env.to_map().into_iter().collect();
    let Some(e2b) = view.record.e2b.as_deref() else {
        return view.record.origin.as_ref().map(|_| ConfigureRequest {
            env: env(),
            ..ConfigureRequest::default()
        });
    };
    Some(ConfigureRequest {
        access_token: e2b.access_token.clone().unwrap_or_default(),
        default_user: E2B_USER.to_owned(),
        env: env(),
        files_as_root: true,
        ..ConfigureRequest::default()
    })
}

fn spec(view: &View) -> BoxSpec {
    BoxSpec {
        id: view.id(),
        image: view.record.image.to_string(),
        size: view.record.size.into(),
        env: view.record.env.to_map(),
        egress: view.record.egress.clone(),
        origin: view.record.origin(),
    }
}
